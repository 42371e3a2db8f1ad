#pragma once

#include <string>

#include "program/train/workload.hpp"

namespace gradwire::program {

//! A character-level language model: the next byte from the 6 before it (an embedding, a hidden layer, softmax). The
//! last tenth of each file is held out.
[[nodiscard]] workload_factory load_text(train_config const& config);
[[nodiscard]] workload_defaults text_defaults();

}  // namespace gradwire::program
