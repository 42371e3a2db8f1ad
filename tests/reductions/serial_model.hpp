#pragma once
//! What a reduction has to give, computed by one thread that sees all ranks' gradients: no shards, no bytes on a wire,
//! no fast paths. Codecs are taken as their reference loops, which the codecs' own tests hold against hand-worked
//! bytes.

#include <cstddef>
#include <span>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/spec.hpp>

namespace gradwire::test {

class serial_model {
 public:
  //! `how`: "dense", "one_shot" or "two_shot"; `elements`: of the gradient and residual buffers.
  serial_model(spec const& method, std::string_view how, std::vector<segment> segments, dtype type,
               std::size_t elements, std::size_t ranks);

  //! `gradients`: each rank's whole buffer, in f32, representable in the dtype. Returns the means as they must lie in
  //! the segments afterwards; elements outside are 0.
  std::vector<float> step(std::vector<std::vector<float>> const& gradients, random_key key);

  [[nodiscard]] std::vector<float> const& worker_residual(std::size_t rank) const { return workers_[rank]; }
  [[nodiscard]] std::vector<float> const& owner_residual() const { return owner_; }

 private:
  std::vector<float> worker_round_trip(std::size_t rank, std::vector<float> const& gradient, random_key key,
                                       float scale);
  std::vector<float> dense(std::vector<std::vector<float>> const& gradients) const;

  spec method_;
  std::string how_;
  std::vector<segment> segments_;
  dtype type_;
  std::vector<std::vector<float>> workers_;
  std::vector<float> owner_;
};

}  // namespace gradwire::test
