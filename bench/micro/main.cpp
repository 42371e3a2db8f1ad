#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "bench/micro/cases.hpp"
#include "bench/micro/report.hpp"

namespace gradwire::bench {
namespace {

struct options {
  std::size_t bytes = std::size_t{64} << 20;
  std::vector<std::string> specs;
  std::vector<std::string> functions;
  std::string type = "f32";
  std::string json;
  bool quiet = false;
};

// The settings that have a target and some beside them, and the presets of every other codec.
std::vector<codec> default_methods() {
  std::vector<codec> methods;
  for (std::string_view const text :
       {"none", "bf16", "f16", "onebit", "quant(bits=8)", "quant(bits=4)", "quant(bits=8,round=stochastic)",
        "quant(bits=4,round=stochastic)", "quant(bits=2)", "topk(ratio=0.01)"}) {
    methods.push_back(codec::parse(text));
  }
  for (codec_entry const* const entry : codecs()) {
    auto const same = [&](codec const& listed) { return &listed.entry() == entry; };
    if (std::none_of(methods.begin(), methods.end(), same)) methods.push_back(codec::parse(entry->name));
  }
  return methods;
}

// Time that this thread had the core for: what other processes take of it does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double seconds(Work const& work) {
  double const start = thread_seconds();
  work();
  return thread_seconds() - start;
}

double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median over repetitions of other/times. Both of a pair were taken one after the other, so that what the machine
// does at the time, which on a shared host changes speeds by a third for seconds, mostly cancels: the quotient of the
// two medians varies more.
double median_quotient(std::vector<double> const& other, std::vector<double> const& times) {
  std::vector<double> quotients(times.size());
  std::transform(other.begin(), other.end(), times.begin(), quotients.begin(), std::divides<>{});
  return median(std::move(quotients));
}

// Holds the data of a run. Google Benchmark chooses how often a case is repeated.
class suite {
 public:
  suite(std::size_t count, dtype type) : count_{count}, type_{type} {}

  void add(codec const& method, function which) {
    std::string const name = method.text() + "/" + std::string{to_string(which)};
    benchmark::RegisterBenchmark(name.c_str(),
                                 [this, method, which, name](benchmark::State& state) {
                                   try {
                                     measure(state, name, method, which);
                                   } catch (error const& failure) {
                                     failed_ = true;
                                     state.SkipWithError(failure.what());
                                   }
                                 })
        ->UseManualTime()
        ->MinTime(0.6)
        ->Unit(benchmark::kMillisecond);
  }

  [[nodiscard]] record const* find(std::string const& name) const {
    auto const found = records_.find(name);
    return found == records_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  // The case, its roof and memcpy in turn, so that a disturbance of the machine meets all three alike.
  void measure(benchmark::State& state, std::string const& name, codec const& method, function which) {
    subject& tested = subject_for(method);
    if (checked_.insert(name).second) tested.check(which);
    traffic const what = tested.moves(which);
    std::vector<double> times;
    std::vector<double> roof_times;
    std::vector<double> memcpy_times;
    tested.run(which);
    for (auto const step : state) {
      static_cast<void>(step);
      times.push_back(seconds([&] { tested.run(which); }));
      roof_times.push_back(seconds([&] { stream(what); }));
      memcpy_times.push_back(
          seconds([&] { std::memcpy(arena_->scratch.data(), arena_->gradient.data(), arena_->gradient.size()); }));
      state.SetIterationTime(times.back());
    }
    double const bytes = static_cast<double>(what.bytes());
    record row{.spec = method.text(), .function = std::string{to_string(which)}, .type = type_, .count = count_};
    row.bytes_moved = what.bytes();
    row.gbps = bytes / median(times) * 1e-9;
    row.stream_gbps = row.gbps / median_quotient(roof_times, times);
    double const copied = 2 * static_cast<double>(arena_->gradient.size());
    row.memcpy_gbps = row.gbps * copied / bytes / median_quotient(memcpy_times, times);
    if (type_ == dtype::f32) row.target = target_percent(method, row.function);
    state.counters["percent_of_stream"] = row.percent_of_stream();
    state.counters["percent_of_memcpy"] = row.percent_of_memcpy();
    state.SetBytesProcessed(static_cast<std::int64_t>(what.bytes()) * static_cast<std::int64_t>(times.size()));
    records_[name] = row;
  }

  subject& subject_for(codec const& method) {
    if (!arena_) arena_ = std::make_unique<arena>(count_, type_);
    if (!subject_ || subject_->method().text() != method.text()) {
      subject_.reset();  // before the next one takes its memory
      subject_ = std::make_unique<subject>(*arena_, method);
    }
    return *subject_;
  }

  std::size_t count_;
  dtype type_;
  std::unique_ptr<arena> arena_;
  std::unique_ptr<subject> subject_;
  std::set<std::string> checked_;
  std::map<std::string, record> records_;
  bool failed_ = false;
};

// Google Benchmark's hook for output: our table and our JSON lines, a row as soon as it is known.
class reporter : public benchmark::BenchmarkReporter {
 public:
  reporter(suite const& from, std::ostream* table, std::ostream* json) : from_{from}, table_{table}, json_{json} {}

  bool ReportContext(Context const& /*context*/) override {
    if (table_ != nullptr) print_header(*table_);
    return true;
  }

  void ReportRuns(std::vector<Run> const& runs) override {
    for (Run const& run : runs) {
      std::string const& name = run.run_name.function_name;
      if (run.error_occurred) {
        std::cerr << name << ": " << run.error_message << "\n";
      } else if (record const* const row = from_.find(name); row != nullptr && run.run_type == Run::RT_Iteration) {
        if (table_ != nullptr) print_row(*table_, *row);
        if (json_ != nullptr) *json_ << row->json() << "\n" << std::flush;
      }
    }
  }

 private:
  suite const& from_;
  std::ostream* table_;
  std::ostream* json_;
};

// Functions run on the calling thread: keeping it on one core is all that "one core" needs.
void stay_on_this_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) {
    throw error{errc::unsupported, "the process may not choose its core: run it outside the restriction"};
  }
}

std::ostream* open_json(std::string const& file, std::ofstream& storage) {
  if (file.empty()) return nullptr;
  if (file == "-") return &std::cout;
  storage.open(file);
  if (!storage)
    throw error{errc::invalid_argument, "cannot write '" + file + "': choose a file in a folder that exists"};
  return &storage;
}

int run(options const& chosen) {
  dtype const type = parse_dtype(chosen.type);
  suite cases{chosen.bytes / size_of(type), type};
  std::vector<codec> methods;
  for (std::string const& text : chosen.specs) methods.push_back(codec::parse(text));
  if (methods.empty()) methods = default_methods();
  std::vector<function> functions;
  for (std::string const& text : chosen.functions) functions.push_back(parse_function(text));
  if (functions.empty()) functions.assign(all_functions.begin(), all_functions.end());
  for (codec const& method : methods) {
    for (function const which : functions) cases.add(method, which);
  }
  stay_on_this_core();
  std::ofstream storage;
  std::ostream* const json = open_json(chosen.json, storage);
  std::ostream* const table = chosen.quiet ? nullptr : json == &std::cout ? &std::cerr : &std::cout;
  reporter output{cases, table, json};
  benchmark::RunSpecifiedBenchmarks(&output);
  if (json != nullptr && !json->flush()) throw error{errc::invalid_argument, "'" + chosen.json + "': the disk is full"};
  return cases.failed() ? 1 : 0;
}

int main_with_errors(int argc, char** argv) {
  options chosen;
  CLI::App app{
      "Times every codec function on one core against a loop with the same reads and writes (its roof) and\n"
      "against memcpy, in turn. Results are checked before they are timed."};
  app.add_option("--bytes", chosen.bytes, "bytes of the gradient")
      ->transform(CLI::AsSizeValue{false})
      ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 40))
      ->capture_default_str();
  app.add_option("--spec", chosen.specs, "codec with its keys; may be repeated (default: all)");
  app.add_option("--function", chosen.functions,
                 "encode, encode_with_feedback, decode, decode_add or reduce_encode; may be repeated (default: all)");
  app.add_option("--dtype", chosen.type, "f32, f16 or bf16: type of the gradient")->capture_default_str();
  app.add_option("--json", chosen.json, "write a record a case to this file; - is standard output");
  app.add_flag("--quiet", chosen.quiet, "no table");
  app.footer(
      "Options of Google Benchmark work as well: --benchmark_filter=REGEX, --benchmark_min_time=SECONDS, …\n"
      "Exit status: 0 done; 1 a result was wrong; 2 usage or environment.");
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& failure) {
    return app.exit(failure) == 0 ? 0 : 2;
  }
  std::vector<std::string> rest = app.remaining();
  rest.insert(rest.begin(), argv[0]);
  std::vector<char*> arguments;
  arguments.reserve(rest.size());
  for (std::string& text : rest) arguments.push_back(text.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  try {
    return run(chosen);
  } catch (error const& failure) {
    std::cerr << "gradwire_bench: " << failure.what() << "\n";
    return 2;
  }
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) { return gradwire::bench::main_with_errors(argc, argv); }
