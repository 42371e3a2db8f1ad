#pragma once

#include <string>
#include <vector>

#include "program/train/workload.hpp"

namespace gradwire::program {

//! Small problems on which compressed gradients plainly succeed or plainly fail: the counter-examples 1 to 3 of
//! Karimireddy et al. 2019 (arXiv:1901.09847), that of Beznosikov et al. 2020 (arXiv:2002.12410) for top-1, error
//! feedback around an unbiased codec, and sparse noise, where signs win. One tensor "x", compressed whatever its size.
[[nodiscard]] workload_factory load_quadratic(train_config const& config);
[[nodiscard]] workload_defaults quadratic_defaults(std::string const& problem);

[[nodiscard]] std::vector<std::string> quadratic_problem_names();
//! "ce1: …" by line, for --help.
[[nodiscard]] std::string quadratic_problems();

}  // namespace gradwire::program
