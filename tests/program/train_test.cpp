#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include <gradwire/inproc.hpp>
#include <gradwire/reducer.hpp>

#include "program/common/interrupt.hpp"
#include "tests/program/run.hpp"

namespace gradwire::program {
namespace {

using testing::last_eval;
using testing::outcome;
using testing::records;
using testing::run;
using testing::temporary_folder;
using testing::words;

// Ranks are threads here; processes are process_test's.
outcome train(std::string const& arguments) {
  return run(words("train --transport inproc --json - --quiet " + arguments));
}

std::vector<record> trained(std::string const& arguments) {
  outcome const result = train(arguments);
  EXPECT_EQ(result.status, 0) << arguments << "\n" << result.err;
  return records(result.out);
}

record without_times(record line) {
  line.erase("seconds");
  line.erase("exposed_seconds");
  return line;
}

TEST(Train, WritesTheRecordsOfItsContract) {
  auto const all = trained("--ranks 2 --steps 4 --eval-every 2 --spec bf16");
  ASSERT_EQ(all.size(), 1u + 4 + 2 * 2 + 1);
  for (char const* const key : {"spec", "seed", "world", "transport", "device", "workload", "version"}) {
    EXPECT_TRUE(all.front().contains(key)) << key;
  }
  EXPECT_EQ(all.front()["event"], "start");
  EXPECT_EQ(all.front()["spec"], "bf16");
  EXPECT_EQ(all[1]["event"], "step");
  EXPECT_EQ(all[1]["step"], 1);
  for (char const* const key : {"loss", "seconds", "raw_bytes", "wire_bytes", "exposed_seconds"}) {
    EXPECT_TRUE(all[1].contains(key)) << key;
  }
  EXPECT_EQ(all[3]["event"], "eval");
  EXPECT_EQ(all[3]["step"], 2);
  EXPECT_EQ(all[3]["metric"], "accuracy");
  EXPECT_EQ(all.back()["event"], "end");
  EXPECT_EQ(all.back()["steps"], 4);
  EXPECT_EQ(all.back()["status"], "ok");
  EXPECT_EQ(all.back()["parameters_crc32"].get<std::string>().size(), 8u);
}

TEST(Train, CountsDenseBytesByTheFormula) {
  // The dense algorithm sends 2(n−1)/n·4 bytes of each of the 50,826 parameters and the loss: n = 4.
  auto const all = trained("--ranks 4 --steps 1 --batch 2 --spec none");
  EXPECT_EQ(all[1]["raw_bytes"], 6 * 50827);
  EXPECT_EQ(all[1]["wire_bytes"], 6 * 50827);
}

TEST(Train, GivesEqualBytesFromRunToRun) {
  std::string const line = "--ranks 3 --steps 6 --batch 8 --eval-every 3 --seed 5 --spec topk(ratio=0.05)+ef";
  auto const first = trained(line);
  auto const second = trained(line);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(without_times(first[i]), without_times(second[i]));
  auto const other = trained("--ranks 3 --steps 6 --batch 8 --eval-every 3 --seed 6 --spec topk(ratio=0.05)+ef");
  EXPECT_NE(first.back()["parameters_crc32"], other.back()["parameters_crc32"]);
}

TEST(Train, LearnsDigitsWithBothModels) {
  EXPECT_GT(last_eval(trained("--ranks 2 --steps 60 --spec bf16"), "accuracy"), 0.9);
  EXPECT_GT(last_eval(trained("--ranks 2 --steps 40 --model conv --spec none"), "accuracy"), 0.85);
}

TEST(Train, LearnsATextWithoutSurprises) {
  temporary_folder const folder;
  {
    // The letter after a letter is always the same one: 0 bits.
    std::ofstream text{folder / "abc"};
    for (int i = 0; i < 4000; ++i) text << static_cast<char>('a' + i % 26);
  }
  auto const all = trained("--workload text --ranks 2 --steps 80 --eval-every 80 --spec bf16 --data " + folder / "abc");
  EXPECT_LT(last_eval(all, "bits_per_char"), 0.1);
  EXPECT_NEAR(std::exp(last_eval(all, "loss")), last_eval(all, "perplexity"), 1e-9);
}

TEST(Train, LearnsTheBuiltInTextBetterThanGuessing) {
  auto const all = trained("--workload text --ranks 2 --steps 40 --eval-every 40 --spec topk(ratio=0.05)+ef");
  EXPECT_LT(last_eval(all, "bits_per_char"), std::log2(64.0));  // its alphabet is larger than 64
}

TEST(Train, TakesAccumulatedBatchesAsOneBatchOfTheirSize) {
  auto const whole = trained("--ranks 1 --steps 5 --batch 16");
  auto const parts = trained("--ranks 1 --steps 5 --batch 8 --accumulate 2");
  for (std::size_t i = 1; i <= 5; ++i) {
    // The same samples in the same order; only roundings differ.
    EXPECT_NEAR(whole[i]["loss"].get<double>(), parts[i]["loss"].get<double>(), 1e-4);
  }
}

TEST(Train, ResumedFromItsCheckpointEqualsAnUninterruptedRun) {
  for (std::string const more : {"--optimizer momentum --spec topk(ratio=0.05)+ef",
                                 "--optimizer adam --accumulate 2 --lr 0.001 --spec bf16+ef --seed 3"}) {
    SCOPED_TRACE(more);
    temporary_folder const folder;
    std::string const common = "--ranks 3 --batch 4 --eval-every 3 " + more;
    auto const whole = trained(common + " --steps 9");
    std::string const kept = common + " --checkpoint " + folder / "c" + " --metrics " + folder / "m";
    trained(kept + " --steps 6");
    trained(kept + " --steps 9 --resume");
    auto const resumed = read_json_lines(folder / "m");
    EXPECT_EQ(resumed.back()["parameters_crc32"], whole.back()["parameters_crc32"]);
    EXPECT_EQ(resumed.back()["steps"], 9);
    EXPECT_EQ(resumed.front()["event"], "start");
    EXPECT_FALSE(resumed.front().contains("resumed_at"));
    EXPECT_EQ(resumed.back()["wire_bytes"], whole.back()["wire_bytes"]);
    std::vector<record> steps;
    for (record const& one : resumed) {
      if (one["event"] == "step") steps.push_back(without_times(one));
    }
    std::vector<record> expected;
    for (record const& one : whole) {
      if (one["event"] == "step") expected.push_back(without_times(one));
    }
    EXPECT_EQ(steps, expected);
  }
}

TEST(Train, RefusesACheckpointOfAnotherConfigurationNamingTheField) {
  temporary_folder const folder;
  std::string const common = "--ranks 2 --batch 2 --steps 2 --checkpoint " + folder / "c";
  trained(common + " --lr 0.01");
  outcome const result = train(common + " --lr 0.02 --resume");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("lr = 0.01, now it is 0.02"), std::string::npos) << result.err;
  std::ofstream{folder / "c/checkpoint.cbor", std::ios::app} << "x";
  outcome const damaged = train(common + " --lr 0.01 --resume");
  EXPECT_EQ(damaged.status, 2);
  EXPECT_NE(damaged.err.find("is damaged"), std::string::npos) << damaged.err;
  outcome const missing = train("--ranks 2 --steps 2 --resume --checkpoint " + folder / "d");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("No such file"), std::string::npos) << missing.err;
}

TEST(Train, StopsAndSaysDivergedWhenGradientsAreNotFinite) {
  for (std::string const spec : {"none", "topk(ratio=0.05)+ef"}) {
    outcome const result = train("--ranks 3 --steps 20 --lr 1e30 --spec " + spec);
    EXPECT_EQ(result.status, 1) << result.err;
    auto const all = records(result.out);
    EXPECT_EQ(all.back()["event"], "end");
    EXPECT_EQ(all.back()["status"], "diverged");
    EXPECT_LT(all.back()["steps"], 20);
  }
}

TEST(Train, RefusesWhatItCannotDoBeforeItStarts) {
  temporary_folder const folder;
  std::ofstream{folder / "bad.csv"} << "1,2,3\n";
  for (auto const& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"--workload chess", "use digits, text or quadratic"},
           {"--model vgg", "use mlp or conv"},
           {"--workload quadratic", "needs --problem"},
           {"--workload quadratic --problem ce6",
            "--problem 'ce6' is not known: use one of ce1, ce2, ce3, ce4, ce5, ce10"},
           {"--workload quadratic --problem ce4 --ranks 2", "use --ranks 3"},
           {"--spec onebits", "onebits"},
           {"--spec none+ef+ef", "ef"},
           {"--rule name=>none", "name"},
           {"--optimizer lion", "use sgd, momentum or adam"},
           {"--lr -1", "--lr -1 is not a positive number"},
           {"--lr nan", "--lr nan is not a positive number"},
           {"--data /dev/null", "'/dev/null' is a device or socket, not a regular file"},
           {"--workload text --data " + folder / "", "is a directory, not a regular file"},
           {"--steps 0", "--steps"},
           {"--data " + folder / "bad.csv", "bad.csv:1: 3 columns, expected 65"},
           {"--data /no/such/file", "cannot read '/no/such/file': No such file or directory"},
           {"--metrics /no/such/folder/m", "cannot open '/no/such/folder/m'"},
           {"--resume", "--checkpoint"}}) {
    outcome const result = train(line);
    EXPECT_EQ(result.status, 2) << line;
    EXPECT_NE(result.err.find(part), std::string::npos) << line << "\n" << result.err;
    EXPECT_EQ(result.out, "") << line;
  }
}

TEST(Train, SaysThatTheDiskIsFull) {
  outcome const result = train("--ranks 2 --steps 2 --metrics /dev/full");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "gradwire: cannot write to '/dev/full': No space left on device\n");
}

TEST(Train, WritesItsEndBeforeATimelineThatCannotBeWritten) {
  outcome const result = train("--ranks 2 --steps 2 --trace /dev/full");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("/dev/full"), std::string::npos) << result.err;
  EXPECT_EQ(records(result.out).back()["event"], "end");
}

TEST(Train, SaysThatThereIsNothingLeftToResume) {
  temporary_folder const folder;
  std::string const line = "train --transport inproc --ranks 2 --batch 2 --steps 3 --checkpoint " + folder / "c";
  EXPECT_EQ(run(words(line)).status, 0);
  outcome const again = run(words(line + " --resume"));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("nothing was left to do"), std::string::npos) << again.out;
}

TEST(Train, HandsTheFirstBucketOverWhileBackwardGoesOn) {
  temporary_folder const folder;
  trained("--ranks 2 --steps 3 --batch 64 --spec topk(ratio=0.05)+ef --trace " + folder / "t.json");
  record const trace = record::parse(read_file(folder / "t.json"));
  // By step: when the first bucket was complete, and the last gradient of all.
  std::map<int, std::pair<double, double>> ready;
  for (record const& one : trace.at("traceEvents")) {
    if (one.at("name") != "ready") continue;
    auto& [first, last] = ready[one.at("args").at("step")];
    double const when = one.at("ts");
    if (one.at("args").at("bucket") == 0) first = std::max(first, when);
    last = std::max(last, when);
  }
  ASSERT_EQ(ready.size(), 3u);
  for (auto const& [step, times] : ready) EXPECT_LT(times.first, times.second) << step;
}

// The outcomes that Karimireddy et al. 2019 (arXiv:1901.09847) and Beznosikov et al. 2020 (arXiv:2002.12410) prove;
// bounds from their constants, or an order of magnitude above what the same updates give in plain double arithmetic.
double objective(std::string const& arguments) {
  return last_eval(trained("--workload quadratic --problem " + arguments), "objective");
}

TEST(CounterExamples, OneBareSignsWalkToTheWrongEndUnlessTheirErrorIsFedBack) {
  // x/4 on [−1, 1]: the mean of the signs is −½, so they walk to +1; everything else finds −1 but for the noise.
  EXPECT_LT(objective("ce1 --steps 2000 --spec none"), -0.2);
  EXPECT_GT(objective("ce1 --steps 2000 --spec onebit(scale=one)"), 0.24);
  EXPECT_LT(objective("ce1 --steps 2000 --spec onebit(scale=one)+ef"), -0.2);
}

TEST(CounterExamples, TwoSignsStayOnALineUnlessTheirErrorIsFedBack) {
  // Four times the default step, a quarter of the steps; what is left oscillates by a few steps.
  std::string const fast = "ce2 --steps 2000 --lr 0.002 --spec ";
  EXPECT_LT(objective(fast + "none"), 2e-2);
  EXPECT_GE(objective(fast + "onebit"), 0.999);  // x₁ + x₂ stays 2, so f ≥ 2ε = 1
  EXPECT_LT(objective(fast + "onebit+ef"), 2e-2);
  EXPECT_LT(objective(fast + "topk(k=1)"), 2e-2);
}

TEST(CounterExamples, ThreeStochasticSignsStayOnALineUnlessTheirErrorIsFedBack) {
  std::string const fast = "ce3 --steps 1000 --spec ";
  EXPECT_LT(objective(fast + "none"), 1e-6);
  EXPECT_GE(objective(fast + "onebit"), 1.999);  // x₁ + x₂ stays 2; there the least is at (1, 1): 2·(2ε)² = 2
  EXPECT_LT(objective(fast + "onebit+ef"), 1e-6);
}

TEST(CounterExamples, FourUnlikeWorkersDivergeWithTop1UnlessTheirErrorIsFedBack) {
  outcome const plain = train("--workload quadratic --problem ce4 --spec topk(k=1)+via(one_shot)");
  EXPECT_EQ(plain.status, 1);
  record const end = records(plain.out).back();
  EXPECT_EQ(end["status"], "diverged");
  // ‖x‖ grows from √3 by 1 + 11γ/6 a step; γ = 0.005 passes 10¹² at step ln(10¹²/√3) / ln(1.0091667) = 2,968.
  EXPECT_NEAR(end["steps"].get<double>(), 2968, 2);
  EXPECT_LT(objective("ce4 --steps 1500 --spec topk(k=1)+ef+via(one_shot)"), 1e-6);
  EXPECT_LT(objective("ce4 --steps 1500 --spec none"), 1e-6);
}

TEST(CounterExamples, FiveFeedbackAroundANoisyUnbiasedCodecIsRefusedWithTheReason) {
  outcome const result = train("--workload quadratic --problem ce5 --spec quant(bits=1,round=stochastic)+ef");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("omega"), std::string::npos) << result.err;
  EXPECT_LT(objective("ce5 --spec quant(bits=1,round=stochastic)"), 1e-6);
}

TEST(CounterExamples, FiveWouldDivergeIfItWereNotRefused) {
  // The specification that parse() refuses, put together by hand.
  spec method = spec::parse("quant(bits=1,round=stochastic)");
  for (bool const feedback : {false, true}) {
    method.error_feedback = feedback;
    run_ranks(1, [&](communicator& comm) {
      constexpr std::size_t dimension = 1000;
      reducer averaged{comm, {{.name = "x", .shape = {dimension, 1}}}, {.method = method, .min_numel = 0}};
      auto* const gradient = static_cast<float*>(averaged.gradient(0));
      std::vector<float> x(dimension);
      for (std::size_t i = 0; i < dimension; ++i) x[i] = std::sin(static_cast<float>(i));
      double norm = 0;
      for (int step = 0; step < 600 && norm < 1e12; ++step) {
        std::copy(x.begin(), x.end(), gradient);  // of ½‖x‖²
        averaged.mark_ready(0);
        averaged.synchronize();
        norm = 0;
        for (std::size_t i = 0; i < dimension; ++i) {
          x[i] -= 0.02f * gradient[i];
          norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        }
      }
      if (feedback) {
        EXPECT_GE(norm, 1e12);
      } else {
        EXPECT_LT(norm, 1);  // from 500; (1 − 0.02)^1200 = 3e-11, slowed by noise
      }
    });
  }
}

TEST(CounterExamples, TenHeavyNoiseOnOneCoordinateIsWhereSignsWin) {
  double const signs = objective("ce10 --spec onebit");
  double const dense = objective("ce10 --spec none");
  double const fed_back = objective("ce10 --spec onebit+ef");
  EXPECT_LT(signs, 1.5);
  EXPECT_GT(dense, 2 * signs);
  EXPECT_GT(fed_back, 2 * signs);
}

}  // namespace
}  // namespace gradwire::program
