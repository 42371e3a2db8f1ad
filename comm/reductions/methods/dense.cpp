#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <gradwire/buffer.hpp>

#include "comm/reductions/elements.hpp"
#include "comm/reductions/entry.hpp"
#include "comm/reductions/plan.hpp"
#include "compressors/text.hpp"
#include "core/random.hpp"

namespace gradwire::reductions {
namespace {

std::size_t all_reduce_bytes(std::size_t payload, std::size_t ranks) { return 2 * (ranks - 1) * payload / ranks; }

std::size_t most_bytes(codec const& method, std::span<segment const> segments, std::size_t ranks) {
  return all_reduce_bytes(method.encoded_bytes(segments), ranks);
}

// The transport adds the encoded numbers: cast | all_reduce | cast back. 2(n−1)/n·c bytes.
//
// In f16 the sum itself could overflow (a public report: 40,000 on four ranks), so there the mean's 1/n is split: 2^-k
// before, with the smallest k for which 2^k >= n, so that no partial sum exceeds the largest input; 2^k/n after, in
// f32. The price: what is under 2^k·2^-25 goes as zero. bf16 has the range of f32 and needs none of this.
class dense_reduction final : public reduction_base {
 public:
  explicit dense_reduction(setup with)
      : reduction_base{std::move(with)}, wire_{*with_.codec.traits().sums_on_wire}, post_{one_over_ranks()} {
    if (wire_ == dtype::f16) {
      std::size_t const power = std::bit_ceil(ranks_);
      pre_ = 1.0F / static_cast<float>(power);
      post_ = static_cast<float>(power) / static_cast<float>(ranks_);
    }
    find_run();
    if (run_) return;
    payload_ = buffer{encoded_bytes_, with_.memory};
    if (pre_ != 1.0F) {
      pieces_ = cut_small(with_.codec, with_.segments, cached_elements);
      std::size_t longest = 0;
      for (piece const& each : pieces_) longest = std::max(longest, each.part.count);
      scaled_ = buffer{longest * sizeof(float), with_.memory};
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "dense"; }
  [[nodiscard]] std::size_t stages() const noexcept override { return 3; }
  [[nodiscard]] std::size_t wire_bytes() const noexcept override { return all_reduce_bytes(encoded_bytes_, ranks_); }

  void enqueue(std::size_t index, exec const& on, reduction_call const& call) override {
    switch (index) {
      case 0:
        check(call);
        if (!run_) encode(on, call);
        return;
      case 1: {
        elements const sum =
            run_ ? elements{run_of(call.gradient).data(), dtype::f32} : elements{payload_.data(), wire_};
        with_.comm.all_reduce(sum, encoded_bytes_ / size_of(wire_), reduce_op::sum, on.stream).wait(on.stream);
        return;
      }
      default:
        if (run_) {
          run_on_cpu(on, [this, call](exec const&) { multiply(run_of(call.gradient), post_); });
        } else {
          with_.codec.decode(on, payload_.bytes(), with_.segments, call.gradient, post_);
        }
    }
  }

 private:
  static constexpr std::size_t cached_elements = 16384;  // 64 KiB of f32

  struct run {
    std::size_t offset = 0;
    std::size_t count = 0;
  };

  // f32 gradients that lie in one piece and go as they are need no payload: the transport adds them where they are.
  void find_run() {
    codec_traits const traits = with_.codec.traits();
    bool const verbatim = traits.unbiased && traits.omega == 0;  // D(Q(x)) = x
    if (with_.type != dtype::f32 || wire_ != dtype::f32 || !verbatim) return;
    run found;
    for (segment const& each : with_.segments) {
      if (each.count == 0) continue;
      if (found.count == 0) found.offset = each.offset;
      if (each.offset != found.offset + found.count) return;
      found.count += each.count;
    }
    if (found.count * sizeof(float) == encoded_bytes_) run_ = found;
  }

  [[nodiscard]] std::span<float> run_of(elements gradient) const {
    return {static_cast<float*>(gradient.data) + run_->offset, run_->count};
  }

  void encode(exec const& on, reduction_call const& call) {
    if (pre_ == 1.0F) {
      encode_own(on, call, payload_.bytes());
      return;
    }
    random_key const key = with_stage(call.key, with_.comm.rank() + 1);
    run_on_cpu(on, [this, gradient = call.gradient, key](exec const& inner) {
      for (piece const& each : pieces_) {
        auto const scaled = scaled_.as<float>().first(each.part.count);
        widen(inner, gradient, each.part.offset, scaled);
        multiply(scaled, pre_);
        segment part = each.part;
        part.offset = 0;
        with_.codec.encode(inner, {scaled.data(), dtype::f32}, {&part, 1}, key,
                           payload_.bytes().subspan(each.payload_offset, each.payload_bytes));
      }
    });
  }

  dtype wire_;
  float pre_ = 1;
  float post_;
  std::optional<run> run_;
  buffer payload_;
  std::vector<piece> pieces_;
  buffer scaled_;  // of one piece
};

std::string refusal(codec const& method, bool feedback) {
  if (!method.traits().sums_on_wire) {
    return join({"'", method.text(), "' cannot go via(dense): the transport cannot add its payloads; ",
                 "use via(two_shot), via(one_shot) or via(auto)"});
  }
  if (feedback) {
    return join({"'", method.text(), "+ef' cannot go via(dense): no residual sees how the transport rounds its sums; ",
                 "use via(two_shot), via(one_shot) or via(auto), or leave +ef away"});
  }
  return {};
}

std::unique_ptr<reduction> make(setup with) { return std::make_unique<dense_reduction>(std::move(with)); }

}  // namespace

reduction_entry const& dense() {
  static reduction_entry const entry{"dense", 0, refusal, most_bytes, make};
  return entry;
}

}  // namespace gradwire::reductions
