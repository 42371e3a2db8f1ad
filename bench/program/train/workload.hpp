#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradwire::program {

//! A trained tensor of a workload.
struct weight {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

//! Where backward puts its results, by weight.
struct gradient_sink {
  std::span<float* const> gradients;  //!< backward adds to them
  float scale = 1;                    //!< of what it adds: 1 / micro-batches, so that their mean comes out
  //! Called once for each weight, as soon as its gradient is complete.
  std::function<void(std::size_t)> ready;
};

struct metric {
  std::string name;
  double value = 0;
};

//! A model and its data, as one rank trains it. Weights start equal on all ranks.
class workload {
 public:
  workload() = default;
  virtual ~workload() = default;
  workload(workload const&) = delete;
  workload& operator=(workload const&) = delete;

  [[nodiscard]] virtual std::span<weight> weights() = 0;
  //! Forward and backward over `count` samples, the global ones from `first` on (all ranks number the same sequence).
  //! Returns the mean loss.
  virtual double forward_backward(std::size_t first, std::size_t count, gradient_sink const& sink) = 0;
  //! Of the training data; equal for every rank of a run. 0 where there are none.
  [[nodiscard]] virtual std::uint32_t data_checksum() const { return 0; }
  //! The metrics of the weights as they are; the first one is the workload's own. Not collective.
  [[nodiscard]] virtual std::vector<metric> evaluate() = 0;
  //! After the optimizer: back into the feasible set, where there is one.
  virtual void project() {}
  //! True when the weights are so far off that the run has plainly diverged. Depends on the weights alone, so all ranks
  //! agree.
  [[nodiscard]] virtual bool hopeless() const { return false; }
};

//! What a workload trains with when the command line does not say.
struct workload_defaults {
  std::size_t ranks = 4;
  std::size_t steps = 0;
  std::size_t batch = 0;
  std::size_t eval_every = 0;
  double lr = 0;
  std::string optimizer;
};

//! The configuration of a run, complete.
struct train_config {
  std::string workload;
  std::string model;    //!< digits: mlp or conv
  std::string problem;  //!< quadratic: ce1 …
  std::vector<std::string> data;
  std::string spec;  //!< canonical
  std::vector<std::string> rules;
  std::size_t world = 1;
  std::size_t steps = 0;
  std::size_t batch = 0;  //!< per rank and micro-batch
  std::size_t accumulate = 1;
  std::size_t eval_every = 0;
  double lr = 0;
  std::string optimizer;
  std::uint64_t seed = 1;
  bool compress_everything = false;  //!< also small and one-dimensional parameters
};

//! Makes rank `rank`'s part. Data are loaded once and shared by the ranks of a process.
using workload_factory = std::function<std::unique_ptr<workload>(std::size_t rank)>;

//! The bytes of a --data file. Throws program_error: it cannot be read (why), or is no regular file, which not every
//! rank could read from its beginning.
[[nodiscard]] std::string read_data(std::string const& file);

//! Loads and checks the data. Throws program_error that names file, line and what is wrong.
[[nodiscard]] workload_factory load_workload(train_config const& config);
//! Throws program_error that lists the workloads (or problems).
[[nodiscard]] workload_defaults defaults_of(std::string const& workload, std::string const& model,
                                            std::string const& problem);

}  // namespace gradwire::program
