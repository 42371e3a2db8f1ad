#include "program/common/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"

namespace gradwire::program {
namespace {

using clock = std::chrono::steady_clock;

std::vector<std::string> merged_environment(process_options const& options) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view const text{*entry};
    auto const replaced = [&](auto const& pair) { return text.starts_with(pair.first + "="); };
    bool keep = true;
    for (auto const& pair : options.environment) keep = keep && !replaced(pair);
    if (keep) result.emplace_back(text);
  }
  for (auto const& [name, value] : options.environment) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

int open_for_append(std::filesystem::path const& path) {
  if (path.empty()) return -1;
  int const fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw program_error{fmt::format("cannot open '{}': {}", path.string(), std::generic_category().message(errno))};
  }
  return fd;
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, char* const* envp, int out, int err, int report, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before the line above
  for (int const number : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigaction(number, &plain, nullptr);
  }
  int const null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execvpe(argv[0], argv, envp);
  int const reason = errno;
  if (write(report, &reason, sizeof reason) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::string process_end::text() const {
  if (!signalled) return fmt::format("exit status {}", value);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): processes belong to the main thread
  return fmt::format("signal {} ({})", value, strsignal(value));
}

process::process(process_options const& options) {
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> variables = merged_environment(options);
  std::vector<char*> const argv = pointers(arguments);
  std::vector<char*> const envp = pointers(variables);
  int const out = open_for_append(options.output);
  int const err = open_for_append(options.errors);
  std::array<int, 2> report{-1, -1};
  pid_t const parent = getpid();
  if (pipe2(report.data(), O_CLOEXEC) == 0) id_ = fork();
  int failure = id_ < 0 ? errno : 0;
  if (id_ == 0) become(argv.data(), envp.data(), out, err, report[1], parent);
  if (out >= 0) close(out);
  if (err >= 0) close(err);
  if (report[1] >= 0) close(report[1]);
  if (id_ > 0) {
    setpgid(id_, id_);  // also here: whoever comes first
    // The pipe closes with exec; bytes in it are the reason why that failed.
    ssize_t got = 0;
    do {
      got = read(report[0], &failure, sizeof failure);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) failure = 0;
  }
  if (report[0] >= 0) close(report[0]);
  if (failure == 0) return;
  if (id_ > 0) waitpid(id_, nullptr, 0);
  throw program_error{
      fmt::format("cannot run '{}': {}", options.arguments.front(), std::generic_category().message(failure))};
}

process::~process() {
  if (id_ <= 0 || poll()) return;
  signal(SIGKILL);
  while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

process::process(process&& other) noexcept : id_{std::exchange(other.id_, -1)}, end_{other.end_} {}

std::optional<process_end> process::poll() {
  if (end_ || id_ <= 0) return end_;
  int status = 0;
  if (waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  end_ = WIFSIGNALED(status) ? process_end{true, WTERMSIG(status)} : process_end{false, WEXITSTATUS(status)};
  // What it left running in its group has nobody to report to.
  kill(-id_, SIGKILL);
  return end_;
}

void process::signal(int number) noexcept {
  if (id_ > 0 && !end_) kill(-id_, number);
}

std::optional<std::size_t> wait_any(std::span<process> running, std::chrono::milliseconds timeout) {
  std::vector<std::size_t> watched;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (!running[i].end()) watched.push_back(i);
  }
  auto const deadline = clock::now() + timeout;
  int const before = interruptions();
  for (;;) {
    for (std::size_t const i : watched) {
      if (running[i].poll()) return i;
    }
    auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now());
    if (left.count() <= 0 || interruptions() != before) return std::nullopt;
    wait_for_signal(std::min(left, std::chrono::milliseconds{60'000}));
  }
}

void stop_all(std::span<process> running, std::chrono::milliseconds grace) {
  auto const alive = [&] {
    bool any = false;
    for (process& one : running) any = !one.poll() || any;
    return any;
  };
  for (process& one : running) one.signal(SIGINT);
  auto const deadline = clock::now() + grace;
  int const before = interruptions();
  while (alive() && clock::now() < deadline && interruptions() == before) {
    static_cast<void>(
        wait_any(running, std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now())));
  }
  for (process& one : running) one.signal(SIGKILL);
  while (alive()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

std::string self_executable() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace gradwire::program
