#include "program/train/checkpoint.hpp"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include <fmt/format.h>

#include <gradwire/version.hpp>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

using json = record;

template <class T>
std::span<std::byte const> bytes_of(std::vector<T> const& values) {
  return std::as_bytes(std::span{values});
}

json binary(std::span<std::byte const> bytes) {
  std::vector<std::uint8_t> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return json::binary(std::move(copy));
}

template <class T>
std::vector<T> vector_of(json const& value) {
  auto const& bytes = value.get_binary();
  std::vector<T> result(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), result.size() * sizeof(T));
  return result;
}

// Everything that the next steps depend on, except what may change: the number of steps and of ranks.
json fields_of(train_config const& config) {
  return {{"workload", config.workload},
          {"model", config.model},
          {"problem", config.problem},
          {"data", config.data},
          {"spec", config.spec},
          {"rules", config.rules},
          {"batch", config.batch},
          {"accumulate", config.accumulate},
          {"optimizer", config.optimizer},
          {"lr", config.lr},
          {"seed", config.seed}};
}

std::uint32_t checksum(std::string_view bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<Bytef const*>(bytes.data()), bytes.size()));
}

// Rank r's bytes at element r, on every rank.
std::vector<std::vector<std::byte>> gather(communicator& comm, std::span<std::byte const> own) {
  std::size_t const ranks = comm.size();
  std::uint64_t const size = own.size();
  std::vector<std::uint64_t> sizes(ranks);
  std::vector<std::size_t> const words(ranks, sizeof size);
  comm.all_gather(std::as_bytes(std::span{&size, 1}), std::as_writable_bytes(std::span{sizes}), words, {}).wait();
  std::vector<std::size_t> const lengths(sizes.begin(), sizes.end());
  std::vector<std::byte> all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
  comm.all_gather(own, all, lengths, {}).wait();
  std::vector<std::vector<std::byte>> parts;
  auto at = all.cbegin();
  for (std::size_t const length : lengths) {
    parts.emplace_back(at, at + static_cast<std::ptrdiff_t>(length));
    at += static_cast<std::ptrdiff_t>(length);
  }
  return parts;
}

// The bytes that rank 0 has, on every rank.
std::string spread(communicator& comm, std::string bytes) {
  std::uint64_t size = bytes.size();
  comm.broadcast(std::as_writable_bytes(std::span{&size, 1}), 0, {}).wait();
  bytes.resize(size);
  comm.broadcast(std::as_writable_bytes(std::span{bytes.data(), bytes.size()}), 0, {}).wait();
  return bytes;
}

checkpoint parse(std::string_view bytes, std::string const& name, train_config const& config) {
  auto const damaged = [&] { return program_error{name + " is damaged: start without --resume"}; };
  std::uint32_t sum = 0;
  if (bytes.size() < sizeof sum) throw damaged();
  std::string_view const body = bytes.substr(0, bytes.size() - sizeof sum);
  std::memcpy(&sum, bytes.data() + body.size(), sizeof sum);
  if (sum != checksum(body)) throw damaged();
  json const all = json::from_cbor(body);
  json const expected = fields_of(config);
  for (auto const& [field, value] : expected.items()) {
    json const& before = all.at("config").at(field);
    if (before == value) continue;
    throw program_error{
        fmt::format("--resume: {} was written with {} = {}, now it is {}: give the old value, or start "
                    "without --resume",
                    name, field, before.dump(), value.dump())};
  }
  checkpoint result;
  json const& totals = all.at("totals");
  result.totals = {totals.at("steps"), totals.at("samples"), totals.at("seconds"), totals.at("raw_bytes"),
                   totals.at("wire_bytes")};
  result.optimizer_steps = all.at("optimizer_steps");
  for (json const& one : all.at("weights")) result.weights.push_back(vector_of<float>(one));
  for (json const& one : all.at("optimizer")) result.optimizer.push_back(vector_of<float>(one));
  for (json const& one : all.at("reducer")) result.reducer.push_back(vector_of<std::byte>(one));
  return result;
}

}  // namespace

std::filesystem::path checkpoint_file(std::filesystem::path const& directory) { return directory / "checkpoint.cbor"; }

void save_checkpoint(communicator& comm, std::filesystem::path const& directory, train_config const& config,
                     train_totals const& totals, std::span<weight const> weights, optimizer& opt,
                     std::vector<std::byte> reducer_state) {
  auto const states = gather(comm, reducer_state);
  if (comm.rank() != 0) return;
  json all{{"version", version()},
           {"config", fields_of(config)},
           {"totals",
            {{"steps", totals.steps},
             {"samples", totals.samples},
             {"seconds", totals.seconds},
             {"raw_bytes", totals.raw_bytes},
             {"wire_bytes", totals.wire_bytes}}},
           {"optimizer_steps", opt.steps},
           {"weights", json::array()},
           {"optimizer", json::array()},
           {"reducer", json::array()}};
  for (weight const& one : weights) all["weights"].push_back(binary(bytes_of(one.values)));
  for (auto const* const buffer : opt.state()) all["optimizer"].push_back(binary(bytes_of(*buffer)));
  for (auto const& state : states) all["reducer"].push_back(binary(state));
  std::string bytes;
  json::to_cbor(all, bytes);
  std::uint32_t const sum = checksum(bytes);
  bytes.append(reinterpret_cast<char const*>(&sum), sizeof sum);
  write_file(checkpoint_file(directory), bytes);
}

checkpoint load_checkpoint(communicator& comm, std::filesystem::path const& directory, train_config const& config) {
  std::string const name = checkpoint_file(directory).string();
  // A mark, then the file; or another mark, then why it could not be read, so that every rank says the same.
  constexpr char here = '+';
  constexpr char refused = '-';
  std::string message;
  if (comm.rank() == 0) {
    try {
      message = here + read_file(name);
    } catch (program_error const& failure) {
      message = refused + std::string{failure.what()};
    }
  }
  message = spread(comm, std::move(message));
  std::string_view const content = std::string_view{message}.substr(1);
  if (message.front() == refused) throw program_error{"--resume: " + std::string{content}};
  return parse(content, name, config);
}

void restore(checkpoint const& from, std::span<weight> weights, optimizer& opt) {
  auto const state = opt.state();
  bool fits = from.weights.size() == weights.size() && from.optimizer.size() == state.size();
  for (std::size_t i = 0; fits && i < weights.size(); ++i) {
    fits = from.weights[i].size() == weights[i].values.size();
  }
  if (!fits) throw program_error{"--resume: the checkpoint is of another model or data file: start without --resume"};
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i].values = from.weights[i];
  for (std::size_t i = 0; i < state.size(); ++i) *state[i] = from.optimizer[i];
  opt.steps = from.optimizer_steps;
}

}  // namespace gradwire::program
