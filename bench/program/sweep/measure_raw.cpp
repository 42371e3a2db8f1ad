#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include <gradwire/buffer.hpp>
#include <gradwire/error.hpp>

#include "program/sweep/inputs.hpp"
#include "program/sweep/measure.hpp"
#include "program/sweep/timing.hpp"

namespace gradwire::program::sweep {
namespace {

// One collective at one size on one rank. Rank r's part of `count` elements is [begin(r), begin(r + 1)).
class raw_collective {
 public:
  raw_collective(communicator& comm, collective_kind kind, std::size_t count, measure_options const& options)
      : comm_{comm},
        kind_{kind},
        count_{count},
        type_{options.type},
        width_{size_of(options.type)},
        input_{options.seed, comm.size(), significant_bits_of(options.type)} {
    for (std::size_t r = 0; r < comm.size(); ++r) {
      elements_.push_back(begin(r + 1) - begin(r));
      bytes_.push_back(elements_.back() * width_);
    }
    bool const gathers = kind == collective_kind::all_gather;
    in_ = buffer{(gathers ? own() : count) * width_};
    fill_elements(input_, comm.rank(), gathers ? begin(comm.rank()) : 0, in_.size() / width_, {in_.data(), type_});
    own_bytes_.assign(comm.size(), own() * width_);
    std::size_t out = count;  // broadcast works in place, on a copy
    if (kind == collective_kind::all_to_all) out = own() * comm.size();
    if (kind == collective_kind::reduce_scatter) out = own();
    out_ = buffer{out * width_};
  }

  void prepare() {
    if (kind_ == collective_kind::broadcast) std::copy_n(in_.data(), in_.size(), out_.data());
  }

  void call() {
    switch (kind_) {
      case collective_kind::all_gather: return comm_.all_gather(in_.bytes(), out_.bytes(), bytes_, {}).wait();
      case collective_kind::all_to_all:
        return comm_.all_to_all(in_.bytes(), bytes_, out_.bytes(), own_bytes_, {}).wait();
      case collective_kind::reduce_scatter:
        return comm_.reduce_scatter({in_.data(), type_}, {out_.data(), type_}, elements_, reduce_op::sum, {}).wait();
      case collective_kind::broadcast: return comm_.broadcast(out_.bytes(), 0, {}).wait();
      case collective_kind::all_reduce: break;
    }
    throw error{errc::invalid_argument, "all_reduce is measured with a spec"};
  }

  // Elements of this rank's output that are not what the definition says.
  [[nodiscard]] std::size_t wrong() const {
    std::size_t const rank = comm_.rank();
    switch (kind_) {
      case collective_kind::broadcast: return differ(0, count_, [&](auto at, auto to) { input_.fill(0, at, to); });
      case collective_kind::reduce_scatter:
        return differ(0, own(), [&](auto at, auto to) { fill_sum(begin(rank) + at, to); });
      default: break;
    }
    std::size_t bad = 0;
    std::size_t placed = 0;
    for (std::size_t r = 0; r < comm_.size(); ++r) {
      bool const gathers = kind_ == collective_kind::all_gather;
      std::size_t const first = gathers ? begin(r) : begin(rank);
      std::size_t const n = gathers ? elements_[r] : own();
      bad += differ(placed, n, [&](auto at, auto to) { input_.fill(r, first + at, to); });
      placed += n;
    }
    return bad;
  }

 private:
  [[nodiscard]] std::size_t begin(std::size_t rank) const {
    std::size_t const n = comm_.size();
    return count_ / n * rank + std::min(rank, count_ % n);
  }
  [[nodiscard]] std::size_t own() const { return elements_[comm_.rank()]; }
  void fill_sum(std::size_t first, std::span<float> to) const {
    std::vector<float> one(to.size());
    std::fill(to.begin(), to.end(), 0.0F);
    for (std::size_t r = 0; r < comm_.size(); ++r) {
      input_.fill(r, first, one);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += one[i];
    }
  }
  // Elements place … place + n − 1 of the output against expect(at, span), which gives the at-th of them and on.
  template <class Expect>
  [[nodiscard]] std::size_t differ(std::size_t place, std::size_t n, Expect const& expect) const {
    std::vector<float> piece;
    std::size_t bad = 0;
    for (std::size_t at = 0; at < n; at += piece.size()) {
      piece.resize(std::min<std::size_t>(n - at, 1 << 16));
      expect(at, std::span<float>{piece});
      for (std::size_t i = 0; i < piece.size(); ++i) {
        if (element_at({out_.data(), type_}, place + at + i) != piece[i]) ++bad;
      }
    }
    return bad;
  }

  communicator& comm_;
  collective_kind kind_;
  std::size_t count_;
  dtype type_;
  std::size_t width_;
  exact_sum_input input_;
  std::vector<std::size_t> elements_;   // of each rank's part
  std::vector<std::size_t> bytes_;      // likewise
  std::vector<std::size_t> own_bytes_;  // of this rank's part, once per rank
  buffer in_;
  buffer out_;
};

}  // namespace

case_result measure_raw(communicator& comm, collective_kind kind, std::size_t count, measure_options const& options) {
  raw_collective one{comm, kind, count, options};
  one.prepare();
  auto const before = comm.stats();
  one.call();
  std::size_t const sent = comm.stats().bytes_sent - before.bytes_sent;
  timing const time = time_calls(
      comm, options, [&] { one.prepare(); }, [&] { one.call(); });
  auto const wrong = gather(comm, one.wrong());

  case_result done = describe(comm, options, count, sent, time);
  done.collective = kind;
  done.reduction = "none";
  done.spec = "none";
  done.canonical = "none";
  done.wrong = std::accumulate(wrong.begin(), wrong.end(), std::size_t{0});
  return done;
}

}  // namespace gradwire::program::sweep
