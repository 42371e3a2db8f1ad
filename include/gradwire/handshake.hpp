#pragma once

#include <span>
#include <string>

#include <gradwire/communicator.hpp>

namespace gradwire {

//! One field of a configuration that all ranks must share, e.g. {"spec", "onebit(block=1024)+ef"}.
struct config_field {
  std::string name;
  std::string value;
};

//! Collective: compares the fields over all ranks (a digest first; the texts only when digests differ). Throws
//! errc::mismatch on every rank, naming the field, its value on rank 0 and each rank that differs with its value.
void require_equal_configuration(communicator& comm, std::span<config_field const> fields);

}  // namespace gradwire
