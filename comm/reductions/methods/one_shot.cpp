#include <algorithm>
#include <string>
#include <utility>

#include <gradwire/buffer.hpp>

#include "comm/reductions/elements.hpp"
#include "comm/reductions/entry.hpp"
#include "comm/reductions/plan.hpp"

namespace gradwire::reductions {
namespace {

std::size_t most_bytes(codec const& method, std::span<segment const> segments, std::size_t ranks) {
  return (ranks - 1) * method.encoded_bytes(segments);
}

// Every rank encodes the whole bucket and sends it to all: (n−1)·c bytes, one quantisation.
// Stages: encode | all_gather | decode and sum in f32 in rank order.
class one_shot_reduction final : public reduction_base {
 public:
  explicit one_shot_reduction(setup with)
      : reduction_base{std::move(with)},
        sizes_(ranks_, encoded_bytes_),
        payloads_{encoded_bytes_ * ranks_, with_.memory},
        pieces_{cut_small(with_.codec, with_.segments, cached_elements)} {
    if (with_.type == dtype::f32) return;
    std::size_t longest = 0;
    for (piece const& each : pieces_) longest = std::max(longest, each.part.count);
    sum_ = buffer{longest * sizeof(float), with_.memory};
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "one_shot"; }
  [[nodiscard]] std::size_t stages() const noexcept override { return 3; }
  [[nodiscard]] std::size_t wire_bytes() const noexcept override { return (ranks_ - 1) * encoded_bytes_; }

  void enqueue(std::size_t index, exec const& on, reduction_call const& call) override {
    switch (index) {
      case 0:
        check(call);
        encode_own(on, call, payload(with_.comm.rank()));
        return;
      case 1:
        with_.comm.all_gather(payload(with_.comm.rank()), payloads_.bytes(), sizes_, on.stream).wait(on.stream);
        return;
      default: run_on_cpu(on, [this, call](exec const& inner) { decode(inner, call.gradient); });
    }
  }

 private:
  // 64 KiB of f32: the sum stays in the cache while the payloads stream past.
  static constexpr std::size_t cached_elements = 16384;

  std::span<std::byte> payload(std::size_t rank) {
    return payloads_.bytes().subspan(rank * encoded_bytes_, encoded_bytes_);
  }

  // The mean of one piece; a sum in a narrow type would be rounded once per rank, so it is made in f32.
  void decode(exec const& on, elements gradient) {
    for (piece const& each : pieces_) {
      segment part = each.part;
      elements out = gradient;
      if (gradient.type != dtype::f32) {
        part.offset = 0;
        out = {sum_.data(), dtype::f32};
      }
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        auto const bytes = payload(rank).subspan(each.payload_offset, each.payload_bytes);
        if (rank == 0) {
          with_.codec.decode(on, bytes, {&part, 1}, out, one_over_ranks());
        } else {
          with_.codec.decode_add(on, bytes, {&part, 1}, out, one_over_ranks());
        }
      }
      if (gradient.type != dtype::f32) narrow(on, sum_.as<float>().first(part.count), gradient, each.part.offset);
    }
  }

  std::vector<std::size_t> sizes_;
  buffer payloads_;
  std::vector<piece> pieces_;
  buffer sum_;  // of one piece, for narrow gradients
};

std::string refusal(codec const&, bool) { return {}; }

std::unique_ptr<reduction> make(setup with) { return std::make_unique<one_shot_reduction>(std::move(with)); }

}  // namespace

reduction_entry const& one_shot() {
  static reduction_entry const entry{"one_shot", 1, refusal, most_bytes, make};
  return entry;
}

}  // namespace gradwire::reductions
