#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradwire::program::sweep {

//! The kernel's count of the bytes that one network interface has sent: payload and headers, retransmissions,
//! acknowledgements, and whatever else uses that interface. An interface that takes segments larger than its MTU (TSO)
//! may count the headers of one where several go out.
class interface_counter {
 public:
  //! `root`: other than /sys/class/net in tests. Throws program_error that names the interfaces there are.
  explicit interface_counter(std::string const& name, std::filesystem::path const& root = "/sys/class/net");
  //! Throws program_error when the interface is gone.
  [[nodiscard]] std::uint64_t sent() const;

 private:
  std::filesystem::path file_;
};

}  // namespace gradwire::program::sweep
