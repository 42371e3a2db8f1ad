#include "comm/rendezvous/tcp_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <gradwire/error.hpp>

#include "comm/rendezvous/frames.hpp"

namespace gradwire {
namespace {

using namespace std::chrono_literals;
using board_protocol::kind;

// Connections that have not joined: neither many nor for long.
constexpr std::size_t most_strangers = 64;
constexpr auto stranger_patience = 5s;

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Asks whoever listens there who it is.
std::string name_holder(host_and_port const& where) {
  std::string other = "another program";
  try {
    auto const socket = connect_to(where, 1s);
    if (!socket.valid()) return other;
    auto const question = board_protocol::encode(kind::who, board_protocol::greeting);
    if (::send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size())) {
      return other;
    }
    std::string bytes;
    std::array<char, 512> part{};
    for (pollfd wait{socket.get(), POLLIN, 0}; poll(&wait, 1, 1000) == 1;) {
      auto const got = ::recv(socket.get(), part.data(), part.size(), 0);
      if (got <= 0) return other;
      bytes.append(part.data(), static_cast<std::size_t>(got));
      if (auto const answer = board_protocol::take(bytes, part.size())) return answer->payload;
    }
  } catch (error const&) {  // it speaks something else
  }
  return other;
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

tcp_server::tcp_server(host_and_port const& where, std::size_t size)
    : where_{where}, size_{size}, listener_{listen_on(where)} {
  if (!listener_.valid()) {
    throw error{errc::communicator, "port " + std::to_string(where.port) + " is in use by " + name_holder(where) +
                                        ": choose another port for the rendezvous, or end that program"};
  }
  set_nonblocking(listener_.get());
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw error{errc::communicator, with_errno("pipe")};
  wake_read_ = descriptor{ends[0]};
  wake_write_ = descriptor{ends[1]};
  thread_ = std::thread{[this] { run(); }};
}

tcp_server::~tcp_server() {
  wake_write_.reset();
  thread_.join();
}

void tcp_server::run() {
  for (;;) {
    std::vector<pollfd> waits{{wake_read_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::vector<connection*> order;
    bool strangers = false;
    for (auto& each : connections_) {
      waits.push_back({each.socket.get(), static_cast<short>(POLLIN | (each.out.empty() ? 0 : POLLOUT)), 0});
      order.push_back(&each);
      strangers = strangers || !each.joined;
    }
    // Only strangers need a look at the clock.
    poll(waits.data(), waits.size(), strangers ? 500 : -1);
    if (waits[0].revents != 0) break;
    if (waits[1].revents != 0) accept_all();
    auto const now = board::clock::now();
    for (std::size_t i = 0; i < order.size(); ++i) {
      auto& each = *order[i];
      if ((waits[i + 2].revents & (POLLIN | POLLERR | POLLHUP)) != 0) read_from(each);
      if (!each.joined && now - each.since > stranger_patience) each.socket.reset();
    }
    // Handling one connection may have written to, or ended, any other.
    for (auto& each : connections_) {
      if (each.socket.valid()) flush(each);
    }
    std::erase_if(connections_, [](auto const& each) { return !each.socket.valid(); });
  }
  for (auto& each : connections_) {
    each.out += board_protocol::encode(kind::goodbye, "");
    flush(each);
  }
}

void tcp_server::accept_all() {
  for (;;) {
    descriptor socket{accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket.valid()) return;
    auto const strangers =
        std::count_if(connections_.begin(), connections_.end(), [](auto const& each) { return !each.joined; });
    if (static_cast<std::size_t>(strangers) >= most_strangers + size_) continue;
    stay_alert(socket);
    connection next;
    next.socket = std::move(socket);
    next.since = board::clock::now();
    connections_.push_back(std::move(next));
  }
}

void tcp_server::read_from(connection& from) {
  std::array<char, 65536> part{};
  auto const got = ::recv(from.socket.get(), part.data(), part.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(from);
  from.in.append(part.data(), static_cast<std::size_t>(got));
  try {
    auto const most = from.joined ? board_protocol::most_payload : std::size_t{64};
    while (from.socket.valid() && !from.leaving) {
      auto const next = board_protocol::take(from.in, most);
      if (!next) return;
      handle(from, static_cast<char>(next->what), next->payload);
    }
  } catch (error const&) {
    drop(from);
  }
}

void tcp_server::handle(connection& from, char what, std::string const& payload) {
  switch (static_cast<kind>(what)) {
    case kind::join: return join(from, payload);
    case kind::who:
      return refuse(from, "another gradwire run of " + std::to_string(size_) + " ranks (rank 0 is process " +
                              std::to_string(getpid()) + " on " + host_name() + ")");
    case kind::entry: {
      if (!from.joined) break;
      std::string key;
      std::string value;
      board_protocol::decode_entry(payload, key, value);
      return publish(key, value);
    }
    case kind::goodbye: from.joined = false; return drop(from);
    case kind::refuse: break;
  }
  drop(from);
}

void tcp_server::join(connection& from, std::string const& payload) {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  if (from.joined || !board_protocol::decode_join(payload, rank, size)) {
    return refuse(from, "the rendezvous is served by another release of gradwire: use the same one on all ranks");
  }
  auto const who = "rank " + std::to_string(rank) + " of " + std::to_string(size);
  if (size != size_) {
    return refuse(from, who + " came to a rendezvous of " + std::to_string(size_) +
                            " ranks: start all ranks with the same world size, or this may be the port of another run");
  }
  if (rank >= size_ || !seen_.insert(rank).second) {
    return refuse(from, who + " has joined already: start each rank once, or this may be the port of another run");
  }
  from.rank = rank;
  from.joined = true;
  for (auto const& [key, value] : entries_) from.out += board_protocol::encode_entry(key, value);
  if (seen_.size() == size_) publish_host_address();
}

void tcp_server::publish_host_address() {
  // By which address do other machines reach this one? Name services often call it 127.0.1.1 on itself.
  std::string address = where_.host.find(':') == std::string::npos ? "127.0.0.1" : "::1";
  for (auto const& each : connections_) {
    if (!each.joined) continue;
    auto const reached = local_address_of(each.socket);
    if (!is_loopback(reached)) address = reached;
  }
  publish("host address", address);
}

void tcp_server::refuse(connection& to, std::string const& text) {
  to.out += board_protocol::encode(kind::refuse, text);
  to.leaving = true;
}

void tcp_server::publish(std::string const& key, std::string const& value) {
  if (!entries_.emplace(key, value).second) return;
  auto const frame = board_protocol::encode_entry(key, value);
  for (auto& each : connections_) {
    if (each.joined && each.socket.valid()) each.out += frame;
  }
}

void tcp_server::flush(connection& to) {
  while (!to.out.empty()) {
    auto const sent = ::send(to.socket.get(), to.out.data(), to.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) return drop(to);
    to.out.erase(0, static_cast<std::size_t>(sent));
  }
  if (to.leaving) to.socket.reset();
}

void tcp_server::drop(connection& gone) {
  gone.socket.reset();
  gone.out.clear();
  if (std::exchange(gone.joined, false)) publish("lost/" + std::to_string(gone.rank), "");
}

}  // namespace gradwire
