#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gradwire/dtype.hpp>

#include "program/common/json_lines.hpp"
#include "program/sweep/statistics.hpp"

namespace gradwire::program::sweep {

//! One measured case: a method at a size on a world.
struct case_result {
  collective_kind collective = collective_kind::all_reduce;
  std::string transport;
  std::string reduction;  //!< as reduction::name(); "none" for collectives that move raw bytes
  std::string spec;       //!< as it was written
  std::string canonical;  //!< with every key that has a value
  dtype type = dtype::f32;
  bool overlap = false;  //!< through the reducer
  std::size_t ranks = 1;
  std::size_t count = 0;  //!< elements; of the whole array for the collectives that split it
  std::size_t iterations = 0;
  double time_us = 0;  //!< p50 over the iterations of the slowest rank's time
  double p99_us = 0;
  std::size_t wire_bytes = 0;                  //!< that the busiest rank sent in one call, counted by the communicator
  std::optional<std::size_t> interface_bytes;  //!< that its network interface sent in one, where it was counted
  std::optional<double> nmse;  //!< of the first call; empty where nothing is rounded or there is nothing
  std::size_t wrong = 0;

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(type); }
  [[nodiscard]] double algbw_gbps() const noexcept;
  //! Empty with one rank.
  [[nodiscard]] std::optional<double> busbw_gbps() const noexcept;
  //! Empty where nothing is sent, like ratio().
  [[nodiscard]] std::optional<double> wirebw_gbps() const noexcept;
  //! Bytes that the dense algorithm sends for the same gradients in their own type, over wire_bytes.
  [[nodiscard]] std::optional<double> ratio() const noexcept;
  //! Why one of the figures above is undefined; empty when none is.
  [[nodiscard]] std::string_view note() const noexcept;
  //! "gloo, 4 ranks": cases of one sweep with equal settings may be compared with one another.
  [[nodiscard]] std::string setting() const;
};

//! {"event":"case", …}, as docs/cli.md has it.
[[nodiscard]] record to_record(case_result const& result);
//! Throws program_error for a record that is not one of to_record().
[[nodiscard]] case_result from_record(record const& line);

//! The columns of nccl-tests (`size count type redop root time algbw busbw #wrong`) and then ours, with fixed widths so
//! that rows can be printed as they come. `spec_width`: of the longest spec.
[[nodiscard]] std::string table_header(std::size_t spec_width);
[[nodiscard]] std::string table_row(case_result const& result, std::size_t spec_width);

//! Where one spec stands against dense in one setting.
struct break_even {
  std::string setting;
  std::string spec;
  std::string reduction;
  std::optional<std::size_t> bytes;  //!< see break_even_bytes()
  double best_speedup = 0;           //!< largest dense time / time
  std::size_t best_bytes = 0;        //!< where
  double last_speedup = 0;           //!< the same at the largest size
  std::size_t last_bytes = 0;        //!< which is this
};

//! True for the baseline: f32, f16 or bf16 as it is, by the transport's own all-reduce.
[[nodiscard]] bool is_dense_baseline(case_result const& result);

//! One per setting and spec but the baseline, in order of appearance. Settings without a baseline are left out.
[[nodiscard]] std::vector<break_even> break_evens(std::vector<case_result> const& results);

}  // namespace gradwire::program::sweep
