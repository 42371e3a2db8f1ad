#include "comm/rendezvous/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

using addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

addresses resolve(std::string const& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int const failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) {
    throw error{errc::communicator, "the rendezvous host '" + host + "' is not known here: " + gai_strerror(failed)};
  }
  return {found, &freeaddrinfo};
}

std::string numeric(sockaddr_storage const& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in const&>(address).sin_addr, text, sizeof text);
    return text;
  }
  auto const& six = reinterpret_cast<sockaddr_in6 const&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    inet_ntop(AF_INET, &six.s6_addr[12], text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &six, text, sizeof text);
  }
  return text;
}

// Binds and listens on one family; an invalid descriptor with errno when that fails.
descriptor listen_at(sockaddr const* address, socklen_t bytes) {
  descriptor socket{::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!socket.valid()) return {};
  int const on = 1;
  int const off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), address, bytes) != 0 || listen(socket.get(), SOMAXCONN) != 0) {
    int const why = errno;
    socket.reset();
    errno = why;
  }
  return socket;
}

// TCP connects a port to itself when nobody listens there and the kernel happens to pick it as the source.
bool is_self_connected(descriptor const& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_bytes = sizeof here;
  socklen_t there_bytes = sizeof there;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &here_bytes);
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &there_bytes);
  return here_bytes == there_bytes && std::memcmp(&here, &there, here_bytes) == 0;
}

}  // namespace

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string with_errno(std::string const& what) { return what + ": " + std::generic_category().message(errno); }

host_and_port parse_tcp(std::string const& address) {
  auto const rest = address.substr(std::strlen("tcp://"));
  auto const colon = rest.rfind(':');
  auto host = rest.substr(0, colon);
  bool const bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  std::uint16_t port = 0;
  if (colon != std::string::npos) {
    auto const* const begin = rest.data() + colon + 1;
    auto const* const end = rest.data() + rest.size();
    auto const [stop, failed] = std::from_chars(begin, end, port);
    if (failed == std::errc{} && stop == end && begin != end && !host.empty() &&
        (bracketed || host.find(':') == std::string::npos)) {
      return {host, port};
    }
  }
  throw error{errc::invalid_argument, "the rendezvous is '" + address +
                                          "': give tcp://host:port, an IPv6 address in brackets, a port up to 65535"};
}

descriptor listen_on(host_and_port const& where) {
  descriptor socket;
  if (where.host == "localhost" || is_loopback(where.host)) {
    auto const found = resolve(where.host, where.port);
    socket = listen_at(found->ai_addr, found->ai_addrlen);
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(where.port);
    socket = listen_at(reinterpret_cast<sockaddr const*>(&six), sizeof six);
    if (!socket.valid() && errno != EADDRINUSE) {  // a kernel without IPv6
      sockaddr_in four{};
      four.sin_family = AF_INET;
      four.sin_port = htons(where.port);
      socket = listen_at(reinterpret_cast<sockaddr const*>(&four), sizeof four);
    }
  }
  if (!socket.valid() && errno != EADDRINUSE) {
    throw error{errc::communicator, with_errno("rank 0 cannot listen on port " + std::to_string(where.port))};
  }
  return socket;
}

std::uint16_t port_of(descriptor const& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in const&>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6 const&>(address).sin6_port);
}

descriptor connect_to(host_and_port const& where, std::chrono::milliseconds timeout) {
  auto const found = resolve(where.host, where.port);
  for (auto const* at = found.get(); at != nullptr; at = at->ai_next) {
    descriptor socket{::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!socket.valid()) continue;
    if (connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      pollfd wait{socket.get(), POLLOUT, 0};
      if (poll(&wait, 1, static_cast<int>(timeout.count())) != 1) continue;
      int failed = 0;
      socklen_t bytes = sizeof failed;
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &bytes);
      if (failed != 0) continue;
    }
    if (is_self_connected(socket)) continue;
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    stay_alert(socket);
    return socket;
  }
  return {};
}

void stay_alert(descriptor const& socket) {
  int const on = 1;
  int const idle = 15;
  int const interval = 3;
  int const probes = 5;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

std::string local_address_of(descriptor const& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return numeric(address);
}

bool is_loopback(std::string const& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

std::string default_route_address() {
  // Connecting a datagram socket sends nothing; it only picks the route. 192.0.2.1 is kept for documentation, RFC 5737.
  descriptor const socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &target.sin_addr);
  if (!socket.valid() || connect(socket.get(), reinterpret_cast<sockaddr const*>(&target), sizeof target) != 0)
    return {};
  return local_address_of(socket);
}

}  // namespace gradwire
