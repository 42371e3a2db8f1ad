#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <gradwire/bucket_averager.hpp>
#include <gradwire/error.hpp>
#include <gradwire/gloo.hpp>

#include "bindings.hpp"

namespace nb = nanobind;

namespace gradwire::python {
namespace {

//! One layout of a bucket, read once.
struct layout {
  dtype type = dtype::f32;
  std::vector<bucket_slot> slots;
};

layout make_layout(std::string const& type, std::vector<std::pair<std::size_t, std::size_t>> const& slots) {
  layout made{parse_dtype(type), {}};
  for (auto const& [index, offset] : slots) made.slots.push_back({index, offset});
  return made;
}

struct parameter_list {
  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> shapes;
  std::vector<std::string> types;
};

class averager {
 public:
  averager(communicator& comm, parameter_list const& of, std::string const& method,
           std::vector<std::string> const& rules, std::size_t min_numel, std::uint64_t seed, bool timeline)
      : averager_{make(comm, of, method, rules, min_numel, seed, timeline)} {}
  ~averager() {
    // What is under way ends in threads that need the lock.
    nb::gil_scoped_release const released;
    averager_.reset();
    completions_.reset();
  }
  averager(averager const&) = delete;
  averager& operator=(averager const&) = delete;

  //! Averages the bucket at `address` and then calls done(None), or done(exception), in a thread of its own.
  void start(std::uintptr_t address, layout const& where, bool last, nb::callable done) {
    auto const callback = std::make_shared<carried>(std::move(done));
    nb::gil_scoped_release const released;
    event const point = averager_->average({reinterpret_cast<void*>(address), where.type}, where.slots, last);
    enqueue(completions_->ref(), [point, callback] {
      std::exception_ptr failure;
      try {
        point.wait(no_timeout);
      } catch (...) {
        failure = std::current_exception();
      }
      call(*callback, failure);
    });
  }

  [[nodiscard]] nb::dict stats() const {
    reducer_stats const now = [&] {
      nb::gil_scoped_release const released;  // a step under way may hold what it needs, and the lock would end that
      return averager_->stats();
    }();
    nb::dict result;
    result["steps"] = now.steps;
    result["raw_bytes"] = now.raw_bytes;
    result["wire_bytes"] = now.wire_bytes;
    result["collectives"] = now.collectives;
    result["exposed_seconds"] = now.exposed_seconds;
    result["buckets"] = now.buckets;
    return result;
  }

  //! A copy.
  [[nodiscard]] nb::object residual(std::size_t index) const {
    auto const values = averager_->residual(index);
    auto copy = std::make_unique<float[]>(values.size());
    std::copy(values.begin(), values.end(), copy.get());
    float* const data = copy.release();
    nb::capsule const owner{data, [](void* memory) noexcept { delete[] static_cast<float*>(memory); }};
    std::size_t const shape[] = {values.size()};
    return nb::cast(nb::ndarray<nb::numpy, float>{data, 1, shape, owner});
  }

  [[nodiscard]] nb::bytes save_state() const {
    std::vector<std::byte> state;
    {
      nb::gil_scoped_release const released;
      state = averager_->save_state();
    }
    return nb::bytes{state.data(), state.size()};
  }

  void load_state(std::vector<nb::bytes> const& states) {
    std::vector<std::vector<std::byte>> copies;
    for (nb::bytes const& each : states) {
      auto const* const begin = static_cast<std::byte const*>(each.data());
      copies.emplace_back(begin, begin + each.size());
    }
    nb::gil_scoped_release const released;
    averager_->load_state(copies);
  }

  void write_timeline(std::string const& file) const {
    nb::gil_scoped_release const released;
    averager_->write_timeline(file);
  }

 private:
  static std::unique_ptr<bucket_averager> make(communicator& comm, parameter_list const& of, std::string const& method,
                                               std::vector<std::string> const& rules, std::size_t min_numel,
                                               std::uint64_t seed, bool timeline) {
    std::vector<parameter> parameters;
    for (std::size_t i = 0; i < of.names.size(); ++i) {
      parameters.push_back({of.names[i], of.shapes[i], parse_dtype(of.types[i])});
    }
    reducer_options options{.method = spec::parse(method), .min_numel = min_numel, .seed = seed, .timeline = timeline};
    for (std::string const& text : rules) options.rules.push_back(rule::parse(text));
    nb::gil_scoped_release const released;
    return std::make_unique<bucket_averager>(comm, std::move(parameters), std::move(options));
  }

  static void call(carried const& callback, std::exception_ptr const& failure) noexcept {
    nb::gil_scoped_acquire const acquired;
    try {
      callback.get()(failure ? describe(failure) : nb::none());
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable("a gradwire completion");
    }
  }

  static nb::object describe(std::exception_ptr const& failure) {
    std::string text = "unknown failure";
    std::string code = "communicator";
    try {
      std::rethrow_exception(failure);
    } catch (error const& why) {
      text = why.what();
      code = std::string{to_string(why.code())};
    } catch (std::exception const& why) {
      text = why.what();
    }
    return nb::module_::import_("gradwire._error").attr("Error")(text, code);
  }

  std::optional<host_stream> completions_{std::in_place, "gw-python"};
  std::unique_ptr<bucket_averager> averager_;
};

}  // namespace

void bind_averager(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<communicator>(module, "Communicator")
      .def_prop_ro("rank", &communicator::rank)
      .def_prop_ro("size", &communicator::size)
      .def_prop_ro("transport", [](communicator const& comm) { return std::string{comm.transport()}; })
      .def("abort", &communicator::abort, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "make_gloo",
      [](std::size_t rank, std::size_t size, std::string const& rendezvous, std::string const& interface,
         double timeout) {
        nb::gil_scoped_release const released;
        return make_gloo({.rank = rank,
                          .size = size,
                          .rendezvous = rendezvous,
                          .interface = interface,
                          .timeout = to_timeout(timeout)});
      },
      "rank"_a, "size"_a, "rendezvous"_a, "interface"_a, "timeout"_a);
  nb::class_<layout>(module, "Layout");
  module.def("make_layout", &make_layout, "dtype"_a, "slots"_a);
  nb::class_<averager>(module, "Averager")
      .def(
          "__init__",
          [](averager* self, communicator& comm, std::vector<std::string> names,
             std::vector<std::vector<std::size_t>> shapes, std::vector<std::string> types, std::string const& method,
             std::vector<std::string> const& rules, std::size_t min_numel, std::uint64_t seed, bool timeline) {
            expects(names.size() == shapes.size() && names.size() == types.size(),
                    "Averager: names, shapes and dtypes must have one entry for each parameter");
            new (self) averager{
                comm,    {std::move(names), std::move(shapes), std::move(types)}, method, rules, min_numel, seed,
                timeline};
          },
          "comm"_a, "names"_a, "shapes"_a, "dtypes"_a, "spec"_a, "rules"_a, "min_numel"_a, "seed"_a, "timeline"_a,
          nb::keep_alive<1, 2>())
      .def("start", &averager::start, "address"_a, "layout"_a, "last"_a, "done"_a)
      .def("stats", &averager::stats)
      .def("residual", &averager::residual, "index"_a)
      .def("save_state", &averager::save_state)
      .def("load_state", &averager::load_state, "states"_a)
      .def("write_timeline", &averager::write_timeline, "file"_a);
}

}  // namespace gradwire::python
