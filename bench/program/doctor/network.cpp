#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include <gradwire/env.hpp>
#include <gradwire/error.hpp>
#include <gradwire/launch.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/process.hpp"
#include "program/common/temporary_directory.hpp"
#include "program/doctor/checks.hpp"

namespace gradwire::program {
namespace {

using clock = std::chrono::steady_clock;

struct interface {
  std::string name;
  std::string address;
  bool loopback = false;
  long megabits = -1;  // as the driver says; virtual ones often do not
};

std::vector<interface> interfaces() {
  std::vector<interface> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (ifaddrs const* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    auto const* const address = reinterpret_cast<sockaddr_in const*>(one->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    interface found {
      one->ifa_name, text.data(), (one->ifa_flags & IFF_LOOPBACK) != 0
    };
    std::ifstream speed{fmt::format("/sys/class/net/{}/speed", found.name)};
    if (!(speed >> found.megabits)) found.megabits = -1;
    result.push_back(std::move(found));
  }
  freeifaddrs(list);
  return result;
}

bool host_name_resolves() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return false;
  addrinfo* found = nullptr;
  bool const good = getaddrinfo(name.data(), nullptr, nullptr, &found) == 0;
  if (good) freeaddrinfo(found);
  return good;
}

struct measured {
  double small_seconds = 0;  // all-reduce of 4 bytes
  double large_gbps = 0;     // algbw of an all-reduce of 16 MiB
  bool right = true;
};

constexpr std::size_t ranks = 2;
constexpr std::size_t large_count = std::size_t{4} << 20;

// A real all-reduce, checked: rank r brings r + 1 everywhere.
measured all_reduce(communicator& comm) {
  auto const all = static_cast<float>(comm.size());
  float const expected = all * (all + 1) / 2;
  measured result;
  std::vector<float> data(large_count);
  for (std::size_t const count : {std::size_t{1}, large_count}) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      std::fill_n(data.begin(), count, static_cast<float>(comm.rank() + 1));
      auto const begin = clock::now();
      comm.all_reduce({data.data(), dtype::f32}, count, reduce_op::sum, {}).wait();
      best = std::min(best, std::chrono::duration<double>(clock::now() - begin).count());
      result.right = result.right && std::all_of(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count),
                                                 [&](float x) { return x == expected; });
    }
    if (count == 1) result.small_seconds = best;
    if (count != 1) result.large_gbps = static_cast<double>(count * sizeof(float)) / best / 1e9;
  }
  return result;
}

finding judged(std::string name, measured const& result) {
  finding line{.check = std::move(name)};
  line.text = fmt::format("{} ranks: all-reduce of 4 bytes in {}, of 16 MiB at {:.3g} GB/s", ranks,
                          format_seconds(result.small_seconds), result.large_gbps);
  line.values = {{"latency_seconds", result.small_seconds}, {"algbw_gbps", result.large_gbps}};
  if (!result.right) {
    line.how = severity::failure;
    line.text = "an all-reduce gave a wrong sum";
    line.mend = "do not train on this machine; run `gradwire sweep` and report its output";
  }
  return line;
}

measured over_threads(transport_entry const& transport, std::chrono::milliseconds timeout) {
  measured result;
  transport.run(
      ranks,
      [&](communicator& comm) {
        measured const mine = all_reduce(comm);
        if (comm.rank() == 0) result = mine;
      },
      timeout);
  return result;
}

// A transport whose ranks are processes serves as well between two threads.
measured over_processes(transport_entry const& transport, std::chrono::milliseconds timeout) {
  temporary_directory const folder;
  std::array<std::exception_ptr, ranks> failures;
  measured result;
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          auto const comm = transport.make({.rank = rank,
                                            .size = ranks,
                                            .rendezvous = "file://" + folder.path().string(),
                                            .interface = env::get().interface.value_or(""),
                                            .timeout = timeout});
          measured const mine = all_reduce(*comm);
          if (rank == 0) result = mine;
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
  }
  for (auto const& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return result;
}

// Ranks that only a launcher can start: a sweep of two of them. Throws program_error with what that said.
measured over_launcher(transport_entry const& transport, std::chrono::milliseconds timeout) {
  temporary_directory const folder;
  auto const output = folder / "output";
  auto const results = folder / "results.jsonl";
  auto command = transport.launcher(ranks);
  std::vector<std::string> const rank{self_executable(), "sweep",
                                      "--transport",     std::string{transport.name},
                                      "--spec",          "none",
                                      "--min-bytes",     std::to_string(sizeof(float)),
                                      "--max-bytes",     std::to_string(large_count * sizeof(float)),
                                      "--factor",        std::to_string(large_count),
                                      "--iters",         "3",
                                      "--timeout",       fmt::format("{}", static_cast<double>(timeout.count()) / 1000),
                                      "--json",          results.string()};
  command.insert(command.end(), rank.begin(), rank.end());
  std::vector<process> running;
  running.emplace_back(process_options{.arguments = command, .output = output, .errors = output});
  static_cast<void>(wait_any(running, 2 * timeout));
  auto const end = running.front().end();  // as it is now: nothing where the time was up
  stop_all(running);
  // Whatever the status: a sweep that found a wrong sum ends with 1.
  auto const lines = std::filesystem::exists(results) ? read_json_lines(results) : std::vector<record>{};
  measured result;
  for (record const& line : lines) {
    if (line.value("event", "") != "case") continue;
    result.right = result.right && line.at("wrong") == 0;
    if (line.at("count") == 1) result.small_seconds = line.at("time_us").get<double>() / 1e6;
    if (line.at("count") == large_count) result.large_gbps = line.at("algbw_gbps").get<double>();
  }
  if (!result.right || result.large_gbps > 0) return result;
  throw program_error{fmt::format("{} with {} ranks {}: {}", transport.launcher(ranks).front(), ranks,
                                  end ? "ended with " + end->text() : "did not end in time", read_file(output))};
}

// Without line breaks, and the dashes with which a launcher frames what it says.
std::string one_line(std::string const& text) {
  std::istringstream words{text};
  std::string result;
  for (std::string word; words >> word;) {
    if (word.find_first_not_of('-') == std::string::npos) continue;
    result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

bool under_a_launcher() {
  try {
    return detect_launch(env::get(), false).has_value();
  } catch (error const&) {
    return true;  // whose variables are wrong: another check tells
  }
}

finding check_launched(transport_entry const& transport, doctor_options const& options) {
  finding line{.check = std::string{transport.name}};
  auto const launcher = transport.launcher(ranks).front();
  if (under_a_launcher()) {
    line.how = severity::info;
    line.text = "in this build; these ranks use it with --transport " + line.check;
    line.mend = "run the doctor without a launcher to try it";
    return line;
  }
  try {
    return judged(line.check, over_launcher(transport, std::chrono::milliseconds{options.timeout_ms}));
  } catch (std::exception const& failure) {
    line.how = severity::warning;
    line.text = one_line(failure.what());
    line.mend = fmt::format("see that {} is installed and starts two processes of any program, or use --transport gloo",
                            launcher);
    return line;
  }
}

constexpr double stream_seconds = 0.15;

class owned_socket {
 public:
  explicit owned_socket(int fd) : fd_{fd} {}
  ~owned_socket() {
    if (fd_ >= 0) close(fd_);
  }
  owned_socket(owned_socket const&) = delete;
  owned_socket& operator=(owned_socket const&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

double own_stream_bytes_per_second(std::string const& address, double seconds) {
  sockaddr_in here{};
  here.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &here.sin_addr) != 1) return 0;
  owned_socket const listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  owned_socket const sender{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto* const place = reinterpret_cast<sockaddr*>(&here);
  socklen_t length = sizeof here;
  // A connection to a listener of one's own is made before it is accepted; neither end can wait for ever.
  timeval const patience{.tv_sec = 2, .tv_usec = 0};
  bool const joined = listener.fd() >= 0 && sender.fd() >= 0 && bind(listener.fd(), place, length) == 0 &&
                      listen(listener.fd(), 1) == 0 && getsockname(listener.fd(), place, &length) == 0 &&
                      setsockopt(sender.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
                      setsockopt(listener.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
                      connect(sender.fd(), place, length) == 0;
  if (!joined) return 0;
  std::jthread const source{[&sender](std::stop_token const& stop) {
    std::vector<char> const block(std::size_t{1} << 18);
    while (!stop.stop_requested() && send(sender.fd(), block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
    shutdown(sender.fd(), SHUT_WR);
  }};
  // Closed before the thread is joined, which wakes it.
  owned_socket const receiver{accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (receiver.fd() < 0) return 0;
  std::vector<char> block(std::size_t{1} << 18);
  setsockopt(receiver.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::size_t bytes = 0;
  auto const begin = clock::now();
  double elapsed = 0;
  while (elapsed < seconds) {
    ssize_t const got = recv(receiver.fd(), block.data(), block.size(), 0);
    if (got <= 0) return 0;
    bytes += static_cast<std::size_t>(got);
    elapsed = std::chrono::duration<double>(clock::now() - begin).count();
  }
  return static_cast<double>(bytes) / elapsed;
}

finding check_interfaces() {
  finding result{.check = "network"};
  std::vector<std::string> texts;
  record measured_ones = record::array();
  bool reaches_others = false;
  auto const all = interfaces();
  for (interface const& one : all) {
    double const gbps = own_stream_bytes_per_second(one.address, stream_seconds) / 1e9;
    std::string notes = one.megabits > 0 ? fmt::format("{} Mbit/s by its driver", one.megabits) : "";
    if (gbps > 0) notes += fmt::format("{}{:.3g} GB/s to itself", notes.empty() ? "" : ", ", gbps);
    texts.push_back(fmt::format("{} {}{}", one.name, one.address, notes.empty() ? "" : " (" + notes + ")"));
    measured_ones.push_back({{"name", one.name},
                             {"address", one.address},
                             {"driver_mbits", one.megabits > 0 ? record(one.megabits) : record(nullptr)},
                             {"self_gbps", gbps > 0 ? record(gbps) : record(nullptr)}});
    reaches_others = reaches_others || !one.loopback;
  }
  result.text = texts.empty() ? "no interface with an IPv4 address" : fmt::format("{}", fmt::join(texts, ", "));
  result.values["interfaces"] = texts;
  result.values["measured"] = std::move(measured_ones);
  std::string const wanted = env::get().interface.value_or("");
  bool const known = std::any_of(all.begin(), all.end(),
                                 [&](interface const& one) { return one.name == wanted || one.address == wanted; });
  if (all.empty()) {
    result.how = severity::failure;
    result.mend = "bring the loopback interface up: ip link set lo up";
  } else if (!wanted.empty() && !known) {
    result.how = severity::warning;
    result.text += fmt::format("; GRADWIRE_INTERFACE={} is none of them", wanted);
    result.mend = "name one of these interfaces, or a host name that resolves to one of these addresses";
  } else if (!reaches_others) {
    result.how = severity::info;
    result.text += "; ranks on this machine only";
  } else if (!host_name_resolves()) {
    result.how = severity::warning;
    result.text += "; this machine's own name does not resolve";
    result.mend = "for runs over several machines, add the name to /etc/hosts or set GRADWIRE_INTERFACE";
  }
  return result;
}

finding check_transport(transport_entry const& transport, doctor_options const& options) {
  finding line{.check = std::string{transport.name}};
  line.text = transport.unavailable();
  if (!line.text.empty()) {
    line.how = severity::info;
    return line;
  }
  if (transport.launcher != nullptr) return check_launched(transport, options);
  std::chrono::milliseconds const timeout{options.timeout_ms};
  try {
    return judged(line.check,
                  transport.run != nullptr ? over_threads(transport, timeout) : over_processes(transport, timeout));
  } catch (std::exception const& failure) {
    line.how = severity::failure;
    line.text = failure.what();
    line.mend = transport.run != nullptr
                    ? "report this: it needs threads only"
                    : "TMPDIR must name a folder that can be written, GRADWIRE_INTERFACE (if set) an interface of the "
                      "line above, and a firewall must let local ports through";
    return line;
  }
}

}  // namespace gradwire::program
