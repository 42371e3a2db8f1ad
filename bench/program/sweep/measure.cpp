#include "program/sweep/measure.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gradwire/buffer.hpp>
#include <gradwire/reducer.hpp>
#include <gradwire/reduction.hpp>

#include "program/sweep/inputs.hpp"
#include "program/sweep/model.hpp"
#include "program/sweep/timing.hpp"

namespace gradwire::program::sweep {
namespace {

constexpr std::size_t checked_feedback_calls = 3;

// One method at one size on one rank.
class averaging {
 public:
  averaging(communicator& comm, spec const& method, std::size_t count, measure_options const& options)
      : comm_{comm},
        options_{options},
        count_{count},
        segment_{.count = count},
        how_{make_reduction(comm, method, {&segment_, 1}, options.type)},
        model_{method, how_->name(), comm.size(), count, options.type, comm.rank(), comm.size()},
        key_{options.seed, 0},
        input_{count * size_of(options.type)},
        feedback_{method.error_feedback} {
    if (options.overlap) {
      make_reducer(method);
      return;
    }
    memory_ = buffer{input_.size()};
    gradient_ = memory_.bytes();
    if (feedback_) residual_.resize(count);
  }

  case_result run() {
    gaussian_input const gaussian{options_.seed, options_.type};
    std::unique_ptr<input_source> exact;
    use(gaussian);
    load();
    auto const before = comm_.stats();
    call();
    std::size_t const sent = comm_.stats().bytes_sent - before.bytes_sent;

    tally checked = verify(gaussian);
    double const nmse = checked.nmse();
    std::size_t wrong = checked.wrong;
    if (model_.needs_exact_sums()) {  // so far only ranks that differ count
      wrong = differing_;
      exact = std::make_unique<exact_sum_input>(options_.seed, comm_.size(), model_.significant_bits());
      use(*exact);
    }
    for (std::size_t i = 1; feedback_ && i < checked_feedback_calls; ++i) {
      load();
      call();
      wrong += verify(gaussian).wrong;
    }
    timing const time = time_calls(
        comm_, options_, [this] { load(); }, [this] { call(); });
    wrong += feedback_ ? disagreeing() : verify(exact ? *exact : static_cast<input_source const&>(gaussian)).wrong;
    return result(time, sent, nmse, wrong);
  }

 private:
  // One bucket, whatever the size; two dimensions, as reducers keep vectors dense.
  void make_reducer(spec const& method) {
    std::size_t const bytes = std::max<std::size_t>(input_.size(), 1);
    reducer_.emplace(comm_, std::vector<parameter>{{.name = "gradient", .shape = {1, count_}, .type = options_.type}},
                     reducer_options{.method = method,
                                     .min_numel = 0,
                                     .first_bucket_bytes = bytes,
                                     .bucket_bytes = bytes,
                                     .seed = options_.seed});
    gradient_ = {static_cast<std::byte*>(reducer_->gradient(0)), input_.size()};
    reducer_->synchronize();  // step 0, of zeros: only in their first one do reducers agree on the order of buckets
  }

  void use(input_source const& input) { fill_elements(input, comm_.rank(), 0, count_, {input_.data(), options_.type}); }
  void load() {
    if (count_ != 0) std::memcpy(gradient_.data(), input_.data(), input_.size());
  }
  void call() {
    ++key_.step;
    if (reducer_) return reducer_->synchronize();
    all_reduce_mean(*how_, {},
                    {.gradient = {gradient_.data(), options_.type},
                     .residual = feedback_ ? residual_.data() : nullptr,
                     .key = key_});
  }
  // Elements that differ from rank 0's, over all ranks.
  std::size_t disagreeing() {
    std::size_t sum = 0;
    for (std::size_t const each : gather(comm_, replace_by_first_ranks(comm_, gradient_, size_of(options_.type))))
      sum += each;
    return sum;
  }
  // Compares the last call's result; ranks that differ from rank 0 count as well.
  tally verify(input_source const& input) {
    differing_ = disagreeing();
    tally sum{.wrong = differing_};
    for (tally const& part : gather(comm_, model_.check(input, key_, gradient_.data()))) {
      sum.wrong += part.wrong;
      sum.error2 += part.error2;
      sum.norm2 += part.norm2;
    }
    return sum;
  }
  case_result result(timing const& time, std::size_t sent, double nmse, std::size_t wrong) {
    case_result done = describe(comm_, options_, count_, sent, time);
    done.reduction = how_->name();
    done.overlap = options_.overlap;
    if (count_ != 0) done.nmse = nmse;
    done.wrong = wrong;
    return done;
  }

  communicator& comm_;
  measure_options const& options_;
  std::size_t count_;
  segment segment_;
  std::unique_ptr<reduction> how_;
  reduction_model model_;
  random_key key_;
  buffer input_;
  buffer memory_;
  std::vector<float> residual_;
  std::optional<reducer> reducer_;  // brings a gradient and a residual of its own
  std::span<std::byte> gradient_;
  bool feedback_;
  std::size_t differing_ = 0;
};

}  // namespace

case_result measure_all_reduce(communicator& comm, spec const& method, std::size_t count,
                               measure_options const& options) {
  case_result done = averaging{comm, method, count, options}.run();
  done.spec = method.text();
  done.canonical = done.spec;
  return done;
}

}  // namespace gradwire::program::sweep
