#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gradwire/stream.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"

namespace gradwire::program::sweep {

//! The command line of `gradwire sweep`.
struct sweep_options {
  std::string collective = "all_reduce";
  std::vector<std::string> specs;       //!< empty: a choice of methods
  std::vector<std::string> reductions;  //!< empty: auto
  std::vector<std::string> transports;  //!< empty: gloo
  std::vector<std::size_t> ranks;       //!< empty: 2, or the launcher's world
  std::string min_bytes = "8";
  std::string max_bytes = "256M";
  std::size_t factor = 2;
  std::string type = "f32";
  std::optional<std::size_t> iterations;
  std::size_t warmup = 3;
  std::uint64_t seed = 1;
  bool overlap = false;
  std::string counted_interface;  //!< whose bytes are counted; empty: none
  std::string out;
  std::string part;  //!< set in the ranks of one world of a larger sweep: the file that rank 0 leaves its records in
  std::size_t timeout_ms = static_cast<std::size_t>(default_timeout.count());
  output_options output;
};

//! Runs the sweep on one world after the other: threads or processes of this program, as its transport wants it; under
//! a launcher, on its world.
exit_code run_sweep(sweep_options const& options, context const& ctx);

}  // namespace gradwire::program::sweep
