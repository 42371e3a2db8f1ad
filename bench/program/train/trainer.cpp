#include "program/train/trainer.hpp"

#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <regex>
#include <span>
#include <vector>

#include <gradwire/handshake.hpp>
#include <gradwire/reducer.hpp>
#include <gradwire/version.hpp>

#include "program/common/interrupt.hpp"
#include "program/train/checkpoint.hpp"
#include "program/train/metrics.hpp"
#include "program/train/optimizer.hpp"

namespace gradwire::program {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

// The mean loss travels with the gradients, as a parameter of one element that nobody compresses: no collective of its
// own, and every rank knows the same mean. It comes first because buckets go from last to first.
constexpr std::size_t loss_index = 0;
constexpr char const* loss_name = "train.loss";

std::vector<parameter> parameters_of(std::span<weight const> weights) {
  std::vector<parameter> result{{.name = loss_name, .shape = {1}}};
  for (weight const& one : weights) result.push_back({.name = one.name, .shape = one.shape});
  return result;
}

// What goes dense beside a compressed model: the loss, and parameters of one dimension or few elements.
std::string small_parameters(std::span<weight const> weights, std::size_t min_numel) {
  std::string names = loss_name;
  for (weight const& one : weights) {
    if (one.shape.size() < 2 || one.values.size() < min_numel) names += "|" + one.name;
  }
  return std::regex_replace(names, std::regex{"[.]"}, "[.]");
}

// The transport adds these itself, in an order of its own.
bool summed_by_transport(spec const& method) {
  return method.via == "dense" ||
         (method.via == "auto" && !method.error_feedback && method.codec.traits().sums_on_wire);
}

reducer_options options_of(train_config const& config, std::span<weight const> weights, bool timeline) {
  reducer_options options;
  options.method = spec::parse(config.spec);
  // Where gradwire sums the compressed part, it sums the rest as well: ranks in order, so that a run gives the same
  // bytes on every transport, in two exchanges where a ring takes 2(n−1).
  std::string const exact = summed_by_transport(options.method) ? "none" : "none+via(two_shot)";
  options.rules.push_back(rule::parse(fmt::format("name~^{}$=>{}", small_parameters({}, 0), exact)));
  for (std::string const& text : config.rules) options.rules.push_back(rule::parse(text));
  if (config.compress_everything) options.rules.push_back({.condition = "min_numel=0", .spec = options.method});
  options.rules.push_back(
      rule::parse(fmt::format("name~^({})$=>{}", small_parameters(weights, options.min_numel), exact)));
  std::size_t bytes = 0;
  for (weight const& one : weights) bytes += one.values.size() * sizeof(float);
  // These models are far smaller than the default buckets; half a model in the first keeps the wire busy during the
  // rest of backward, and more buckets cost more in collectives than they hide.
  options.first_bucket_bytes = std::min(options.first_bucket_bytes, std::max<std::size_t>(bytes / 2, 1));
  options.seed = config.seed;
  options.timeline = timeline;
  return options;
}

// The ranks of a launcher may have been started with different command lines.
void require_equal(communicator& comm, train_config const& config, train_files const& files,
                   std::uint32_t data_checksum) {
  require_equal_configuration(comm, std::vector<config_field>{{"--workload", config.workload},
                                                              {"--model", config.model},
                                                              {"--problem", config.problem},
                                                              {"--data", fmt::format("crc32 {:08x}", data_checksum)},
                                                              {"--checkpoint", files.checkpoint.empty() ? "off" : "on"},
                                                              {"--resume", files.resume ? "on" : "off"},
                                                              {"--steps", std::to_string(config.steps)},
                                                              {"--batch", std::to_string(config.batch)},
                                                              {"--accumulate", std::to_string(config.accumulate)},
                                                              {"--eval-every", std::to_string(config.eval_every)},
                                                              {"--optimizer", config.optimizer},
                                                              {"--lr", fmt::format("{}", config.lr)},
                                                              {"--seed", std::to_string(config.seed)}});
}

std::uint32_t checksum(std::span<weight const> weights) {
  uLong sum = 0;
  for (weight const& one : weights) {
    sum = crc32_z(sum, reinterpret_cast<Bytef const*>(one.values.data()), one.values.size() * sizeof(float));
  }
  return static_cast<std::uint32_t>(sum);
}

// Throws unless all ranks hold the same parameters.
std::uint32_t common_checksum(communicator& comm, std::span<weight const> weights) {
  std::uint32_t const own = checksum(weights);
  std::vector<std::uint32_t> all(comm.size());
  std::vector<std::size_t> const sizes(comm.size(), sizeof own);
  comm.all_gather(std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{all}), sizes, {}).wait();
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw program_error{fmt::format("rank {} ended with other parameters than rank 0 (crc32 {:08x}, {:08x}): this is a "
                                    "fault of gradwire or of the machine's arithmetic; please report it",
                                    rank, all[rank], all[0]),
                        exit_code::no};
  }
  return own;
}

class trainer {
 public:
  trainer(communicator& comm, train_config const& config, std::unique_ptr<workload> work, train_files const& files,
          output_options const& output)
      : comm_{comm},
        config_{config},
        files_{files},
        first_{comm.rank() == 0},
        work_{std::move(work)},
        reducer_{comm, parameters_of(work_->weights()), options_of(config, work_->weights(), !files.trace.empty())},
        optimizer_{make_optimizer(config.optimizer, config.lr, work_->weights())},
        people_{first_ ? output : output_options{.json = {}, .quiet = true}},
        records_on_stdout_{output.json == "-"},
        bar_{first_ ? output : output_options{.json = {}, .quiet = true}, "train", config.steps} {
    for (std::size_t i = 0; i < work_->weights().size(); ++i) {
      gradients_.push_back(static_cast<float*>(reducer_.gradient(i + 1)));
    }
    if (files.resume) resume();
    if (first_) log_ = std::make_unique<metrics_log>(std::vector{files.metrics, output.json}, totals_.steps);
  }

  exit_code run() {
    start();
    while (totals_.steps < config_.steps && !diverged_) {
      throw_if_interrupted();
      step();
      bool const last = totals_.steps == config_.steps;
      if (diverged_ || (totals_.steps % config_.eval_every != 0 && !last)) continue;
      evaluate();
      if (!files_.checkpoint.empty()) {
        save_checkpoint(comm_, files_.checkpoint, config_, totals_, work_->weights(), *optimizer_,
                        reducer_.save_state());
      }
      // The ranks that did not evaluate wait here and not in the next step, where it would count as exposed.
      comm_.barrier({}).wait();
    }
    return end();
  }

 private:
  void resume() {
    checkpoint const from = load_checkpoint(comm_, files_.checkpoint, config_);
    restore(from, work_->weights(), *optimizer_);
    reducer_.load_state(from.reducer);
    totals_ = from.totals;
    resumed_at_ = totals_.steps;
  }

  void start() {
    std::size_t count = 0;
    for (weight const& one : work_->weights()) count += one.values.size();
    if (!first_) return;
    record line{{"event", "start"},
                {"spec", config_.spec},
                {"seed", config_.seed},
                {"world", comm_.size()},
                {"transport", comm_.transport()},
                {"device", "cpu"},
                {"workload", config_.workload}};
    if (!config_.model.empty()) line["model"] = config_.model;
    if (!config_.problem.empty()) line["problem"] = config_.problem;
    line.update({{"steps", config_.steps},
                 {"batch", config_.batch},
                 {"accumulate", config_.accumulate},
                 {"optimizer", config_.optimizer},
                 {"lr", config_.lr},
                 {"rules", config_.rules},
                 {"parameters", count},
                 {"version", version()}});
    if (files_.resume) line["resumed_at"] = totals_.steps;
    log_->write(line);
    std::string const detail = config_.model + config_.problem;
    people_.print("{}{}: {} parameter{}, {}, {} rank{} over {}, {} lr {}, batch {}, seed {}\n", config_.workload,
                  detail.empty() ? "" : " " + detail, count, count == 1 ? "" : "s", config_.spec, comm_.size(),
                  comm_.size() == 1 ? "" : "s", comm_.transport(), config_.optimizer, config_.lr, batch_text(),
                  config_.seed);
  }

  // "4 x 16 = 64": ranks, batches that add up, samples.
  [[nodiscard]] std::string batch_text() const {
    std::string factors = comm_.size() == 1 ? "" : fmt::format("{} x ", comm_.size());
    if (config_.accumulate > 1) factors += fmt::format("{} x ", config_.accumulate);
    std::size_t const all = config_.batch * config_.accumulate * comm_.size();
    return factors.empty() ? fmt::format("{}", all) : fmt::format("{}{} = {}", factors, config_.batch, all);
  }

  // Forward and backward over all micro-batches; the last one sends gradients while it goes on.
  double local_loss() {
    gradient_sink const sink{gradients_, 1.0f / static_cast<float>(config_.accumulate),
                             [this](std::size_t i) { reducer_.mark_ready(i + 1); }};
    auto const micro_batch = [&](std::size_t micro) {
      std::size_t const first = totals_.samples + (micro * comm_.size() + comm_.rank()) * config_.batch;
      return work_->forward_backward(first, config_.batch, sink);
    };
    double loss = 0;
    for (std::size_t micro = 0; micro + 1 < config_.accumulate; ++micro) {
      auto const local_only = reducer_.no_sync();
      loss += micro_batch(micro);
    }
    loss += micro_batch(config_.accumulate - 1);
    return loss / static_cast<double>(config_.accumulate);
  }

  void step() {
    auto const begin = clock::now();
    reducer_stats const before = reducer_.stats();
    reducer_.zero_gradients();
    auto* const mean_loss = static_cast<float*>(reducer_.gradient(loss_index));
    *mean_loss = static_cast<float>(local_loss());
    reducer_.mark_ready(loss_index);
    reducer_.synchronize();
    diverged_ = !std::isfinite(*mean_loss) || !finite_gradients();
    if (!diverged_) {
      optimizer_->step(work_->weights(), gradients_);
      work_->project();
      diverged_ = work_->hopeless();
    }
    count(before, *mean_loss, seconds_since(begin));
  }

  [[nodiscard]] bool finite_gradients() const {
    auto const weights = work_->weights();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      for (float const g : std::span{gradients_[i], weights[i].values.size()}) {
        if (!std::isfinite(g)) return false;
      }
    }
    return true;
  }

  void count(reducer_stats const& before, float loss, double seconds) {
    reducer_stats const after = reducer_.stats();
    double const raw = after.raw_bytes - before.raw_bytes;
    double const wire = static_cast<double>(after.wire_bytes - before.wire_bytes);
    double const exposed = after.exposed_seconds - before.exposed_seconds;
    ++totals_.steps;
    totals_.samples += config_.batch * config_.accumulate * comm_.size();
    totals_.seconds += seconds;
    totals_.raw_bytes += raw;
    totals_.wire_bytes += wire;
    exposed_seconds_ += exposed;
    seconds_ += seconds;
    loss_ = loss;
    if (!first_) return;
    clear_for_records();
    log_->write({{"event", "step"},
                 {"step", totals_.steps},
                 {"loss", loss},
                 {"seconds", seconds},
                 {"raw_bytes", std::llround(raw)},
                 {"wire_bytes", std::llround(wire)},
                 {"exposed_seconds", exposed}});
    bar_.show(totals_.steps, fmt::format("loss {:.4g}", loss));
  }

  void evaluate() {
    if (!first_) return;
    std::string shown;
    clear_for_records();
    for (metric const& one : work_->evaluate()) {
      log_->write({{"event", "eval"}, {"step", totals_.steps}, {"metric", one.name}, {"value", one.value}});
      std::string name = one.name;
      std::replace(name.begin(), name.end(), '_', ' ');
      shown += fmt::format("  {} {:<9.4g}", name, one.value);
    }
    bar_.clear();
    people_.print("step {:>6}  loss {:<9.4g}{}\n", totals_.steps, loss_, shown);
  }

  exit_code end() {
    std::uint32_t const sum = common_checksum(comm_, work_->weights());
    if (first_) {
      clear_for_records();
      log_->write({{"event", "end"},
                   {"steps", totals_.steps},
                   {"seconds", totals_.seconds},
                   {"raw_bytes", std::llround(totals_.raw_bytes)},
                   {"wire_bytes", std::llround(totals_.wire_bytes)},
                   {"parameters_crc32", fmt::format("{:08x}", sum)},
                   {"status", diverged_ ? "diverged" : "ok"}});
      bar_.clear();
      say_how_it_ended();
      if (!files_.trace.empty()) reducer_.write_timeline(files_.trace);  // last: it may fail, and the run is done
    }
    return diverged_ ? exit_code::no : exit_code::done;
  }

  // Records may go to the terminal that has the bar.
  void clear_for_records() {
    if (records_on_stdout_) bar_.clear();
  }

  void say_how_it_ended() {
    if (resumed_at_ > 0 && resumed_at_ >= config_.steps) {
      people_.print("nothing was left to do: the checkpoint in {} is at step {}, and --steps is {}\n",
                    files_.checkpoint.string(), resumed_at_, config_.steps);
      return;
    }
    if (diverged_) {
      people_.print("diverged at step {}: {}; try a smaller --lr, or +ef on the spec\n", totals_.steps,
                    std::isfinite(loss_) ? "the parameters ran away" : "loss or gradients are not finite");
      return;
    }
    auto const steps_here = static_cast<double>(std::max<std::size_t>(1, totals_.steps - resumed_at_));
    people_.print("{} step{} in {}, {} a step, of which {:.0f} % waiting for communication\n", totals_.steps,
                  totals_.steps == 1 ? "" : "s", format_seconds(totals_.seconds), format_seconds(seconds_ / steps_here),
                  seconds_ > 0 ? 100 * exposed_seconds_ / seconds_ : 0);
    if (totals_.wire_bytes > 0) {
      people_.print("rank 0 sent {} instead of {}: {:.3g} times less\n", format_bytes(totals_.wire_bytes),
                    format_bytes(totals_.raw_bytes), totals_.raw_bytes / totals_.wire_bytes);
    }
  }

  communicator& comm_;
  train_config const& config_;
  train_files const& files_;
  bool first_;
  std::unique_ptr<workload> work_;
  reducer reducer_;
  std::unique_ptr<optimizer> optimizer_;
  console people_;
  bool records_on_stdout_;
  progress bar_;
  std::unique_ptr<metrics_log> log_;
  std::vector<float*> gradients_;
  train_totals totals_;
  std::size_t resumed_at_ = 0;
  double seconds_ = 0;  // of this process alone, not of what it resumed
  double exposed_seconds_ = 0;
  float loss_ = 0;
  bool diverged_ = false;
};

}  // namespace

exit_code train_rank(communicator& comm, train_config const& config, workload_factory const& make,
                     train_files const& files, output_options const& output) {
  auto work = make(comm.rank());
  require_equal(comm, config, files, work->data_checksum());
  return trainer{comm, config, std::move(work), files, output}.run();
}

}  // namespace gradwire::program
