#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! The records of a run, to as many files as asked for.
class metrics_log {
 public:
  metrics_log() = default;
  //! `paths`: empty ones are skipped. With `resumed_at`, a file that is there keeps its records up to that step.
  metrics_log(std::vector<std::string> const& paths, std::size_t resumed_at);
  void write(record const& line);

 private:
  std::vector<std::unique_ptr<json_lines>> files_;
};

}  // namespace gradwire::program
