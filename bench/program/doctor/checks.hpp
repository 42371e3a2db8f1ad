#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <gradwire/transport.hpp>

#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! info: nothing to mend. warning: runs, but slowly or not everywhere. failure: would stop a run.
enum class severity { ok, info, warning, failure };
[[nodiscard]] std::string_view to_string(severity how) noexcept;

//! One line of the doctor's.
struct finding {
  severity how = severity::ok;
  std::string check{};
  std::string text{};
  std::string mend{};                //!< what to do; empty when there is nothing to mend
  record values = record::object();  //!< the same in numbers
};

struct doctor_options {
  std::size_t ranks = 4;
  std::size_t timeout_ms = 20'000;
};

// Each check catches what it tests for and says it; none changes anything.
[[nodiscard]] finding check_cpu();
[[nodiscard]] finding check_memory_speed();
[[nodiscard]] finding check_cores(doctor_options const& options);
[[nodiscard]] finding check_temporary_folder();
[[nodiscard]] finding check_open_files(doctor_options const& options);
[[nodiscard]] finding check_launch();
[[nodiscard]] finding check_local_rank();
//! Also measures a TCP stream over each interface's own address. It stays on this machine, which talks to itself: an
//! upper bound of what its network stack can do, not the speed of a cable.
[[nodiscard]] finding check_interfaces();
//! Bytes a second from `address` (IPv4) to itself, for about `seconds`; 0 where that is not possible.
[[nodiscard]] double own_stream_bytes_per_second(std::string const& address, double seconds);
//! A real all-reduce.
[[nodiscard]] finding check_transport(transport_entry const& transport, doctor_options const& options);
[[nodiscard]] std::vector<finding> check_gpu();
//! Bytes a second of a link below which each default method beats dense f32; see break_even_definition.
[[nodiscard]] std::vector<finding> check_break_even(doctor_options const& options);

inline constexpr std::string_view break_even_definition =
    "Break-even link speed: averaging 25 MiB of f32 takes dense / speed with the dense algorithm, and\n"
    "wire / speed + codec with a method, where dense and wire are the bytes that a rank sends by the formulas and\n"
    "codec is the measured time of its encoding, summing and decoding on one core. Below\n"
    "(dense − wire) / codec the method is the faster one.";

}  // namespace gradwire::program
