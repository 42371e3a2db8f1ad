#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gradwire {

//! Owns a file descriptor.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_{fd} {}
  ~descriptor() { reset(); }
  descriptor(descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  descriptor(descriptor const&) = delete;
  descriptor& operator=(descriptor const&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

struct host_and_port {
  std::string host;
  std::uint16_t port = 0;
};

//! Parses "tcp://host:port", host being a name, an IPv4 address or an IPv6 address in brackets. Throws
//! errc::invalid_argument.
[[nodiscard]] host_and_port parse_tcp(std::string const& address);

//! Listens on `port` (0: any free one): only on loopback for localhost and loopback addresses, on all interfaces
//! otherwise. Invalid when the port is taken; throws errc::communicator for other failures.
[[nodiscard]] descriptor listen_on(host_and_port const& where);
[[nodiscard]] std::uint16_t port_of(descriptor const& socket);

//! One attempt. Invalid when nobody listens; throws errc::communicator for a name that does not resolve.
[[nodiscard]] descriptor connect_to(host_and_port const& where, std::chrono::milliseconds timeout);

//! For a connection whose other end may vanish without a word: sends at once, and notices after 15 + 5·3 s.
void stay_alert(descriptor const& socket);

//! Numeric addresses of this end of a connection; IPv4 in IPv6 comes as IPv4.
[[nodiscard]] std::string local_address_of(descriptor const& socket);
[[nodiscard]] bool is_loopback(std::string const& numeric_address);

//! The address of this machine from which the default route goes out; empty without one.
[[nodiscard]] std::string default_route_address();

//! "what: strerror".
[[nodiscard]] std::string with_errno(std::string const& what);

}  // namespace gradwire
