#include "overlap/model.hpp"

#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire::overlap {
namespace {

std::size_t arena_index(dtype type) noexcept { return static_cast<std::size_t>(type); }

buffer zeros(std::size_t bytes, std::pmr::memory_resource* memory) {
  buffer result{bytes, memory};
  if (bytes != 0) std::memset(result.data(), 0, bytes);
  return result;
}

void check_names(std::span<parameter const> parameters) {
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::string const& name = parameters[i].name;
    if (name.empty()) {
      throw error{errc::invalid_argument,
                  join({"parameter ", std::to_string(i), " has no name: give every parameter one"})};
    }
    if (!names.insert(name).second) {
      throw error{errc::invalid_argument, join({"two parameters are called '", name, "': names must be unique"})};
    }
  }
}

}  // namespace

std::string placed_parameter::text() const {
  std::string shape;
  for (std::size_t const extent : given.shape) shape += join({shape.empty() ? "" : ",", std::to_string(extent)});
  return join({to_string(given.type), " [", shape, "] ", method.text()});
}

model::model(std::vector<parameter> parameters, reducer_options const& options, gradient_home home) {
  check_names(parameters);
  std::unordered_map<std::string, std::size_t> groups;
  for (parameter& given : parameters) {
    std::size_t const count = element_count(given.shape);
    spec method = choose_spec({given.name, given.shape}, options.rules, options.method, options.min_numel);
    std::size_t const group =
        groups.emplace(join({to_string(given.type), " ", method.text()}), groups.size()).first->second;
    parameters_.push_back({.given = std::move(given), .count = count, .method = std::move(method), .group = group});
  }
  // Backward meets parameters in reverse order, so this places the neighbours of a first bucket side by side: dense
  // buckets are then averaged where they lie.
  std::array<std::size_t, 3> used{};
  std::size_t residuals = 0;
  for (auto each = parameters_.rbegin(); each != parameters_.rend(); ++each) {
    each->offset =
        std::exchange(used[arena_index(each->given.type)], used[arena_index(each->given.type)] + each->count);
    if (each->method.error_feedback) each->residual_offset = std::exchange(residuals, residuals + each->count);
  }
  for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
    if (home == gradient_home::outside) break;
    arenas_[arena_index(type)] = zeros(used[arena_index(type)] * size_of(type), options.on.memory);
  }
  residuals_ = zeros(residuals * sizeof(float), options.on.memory);
}

elements model::arena(dtype type) noexcept { return {arenas_[arena_index(type)].data(), type}; }

void* model::gradient(std::size_t index) noexcept {
  placed_parameter const& at = parameters_[index];
  if (at.given.gradient != nullptr) return at.given.gradient;
  return arenas_[arena_index(at.given.type)].data() + at.offset * size_of(at.given.type);
}

std::span<float> model::residual(std::size_t index) noexcept {
  placed_parameter const& at = parameters_[index];
  if (!at.method.error_feedback) return {};
  return residuals().subspan(at.residual_offset, at.count);
}

segment model::whole(std::size_t index) const noexcept {
  placed_parameter const& at = parameters_[index];
  return {at.offset, at.residual_offset, at.count, 0, static_cast<std::uint32_t>(index)};
}

void model::zero_gradients() noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].count != 0) std::memset(gradient(i), 0, parameters_[i].bytes());
  }
}

void model::copy_in(std::span<segment const> segments) noexcept {
  for (segment const& each : segments) {
    placed_parameter const& at = parameters_[each.tensor_id];
    if (at.given.gradient == nullptr || each.count == 0) continue;
    std::size_t const size = size_of(at.given.type);
    std::memcpy(arenas_[arena_index(at.given.type)].data() + each.offset * size,
                static_cast<std::byte const*>(at.given.gradient) + each.first * size, each.count * size);
  }
}

void model::copy_out(std::span<segment const> segments) noexcept {
  for (segment const& each : segments) {
    placed_parameter const& at = parameters_[each.tensor_id];
    if (at.given.gradient == nullptr || each.count == 0) continue;
    std::size_t const size = size_of(at.given.type);
    std::memcpy(static_cast<std::byte*>(at.given.gradient) + each.first * size,
                arenas_[arena_index(at.given.type)].data() + each.offset * size, each.count * size);
  }
}

}  // namespace gradwire::overlap
