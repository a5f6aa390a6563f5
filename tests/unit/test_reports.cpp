#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "judge/measurement.hpp"
#include "run/report.hpp"
#include "run/report_parts.hpp"

using namespace kw;
using Json = nlohmann::ordered_json;

namespace {

const char* const kReport = R"({
  "verdict": "pass", "code": "pass", "reason": "right", "graphs": "auto", "draws": 7,
  "errors": [{"draw": "wide", "output": "output[0]", "of_bound": 0.25},
             {"draw": "special", "output": "output[0]", "of_bound": null}],
  "kernelbench_gate": {"ok": true, "atol": 1e-4, "rtol": 1e-2}, "where": "file.py:3", "source": "x", "detail": "long",
  "sandbox": {"kind": "none", "missing": ["no namespaces"]}, "runs_original": "another dtype",
  "time_ms": {"ours": 1.0, "eager": 2.0, "compile": null}, "time_interval_ms": {"ours": [0.5, 1.5]},
  "speedup": {"eager": {"value": 2.0, "low": 1.75, "high": 2.25, "difference": "faster", "detectable": 0.03}},
  "noise": {"reasons": ["busy"], "noisy": true}, "samples": 12, "baseline_errors": {"compile": "it failed"},
  "roofline": {"fraction": 0.5, "floor_ms": 0.5, "bound": "memory"},
  "profile": [{"name": "softmax_kernel", "share": 0.75, "ours": true}, {"name": "mm", "share": 0.25, "ours": false},
              {"name": "unnamed", "share": 0, "ours": null}],
  "slower_than_eager": false, "written": true, "min_speedup": 0.97, "advice": [{"command": "kw", "effect": "none"}],
  "lost": {"value": 0.5, "low": 0.25, "high": 0.75},
  "kernels": ["a", "b"], "library_calls": 1, "library_ops": ["mm"], "share_in_our_kernels": 0.75, "cuda_graph": true,
  "compiled": {"sm": 90, "kernels": 2, "ok": 1,
               "each": [{"name": "a", "ok": true, "spills": 32, "registers": 255}, {"name": "b", "error": "no"}]},
  "search": {"speedup": 1.5, "tried": 9, "reused": 4, "exhausted": true, "budget_seconds": 30,
             "trials": [{"change": "warps", "state": "measured", "ratio": 0.5, "best": 0.5},
                        {"change": "stages", "state": "stopped", "ratio": 0.25, "best": 0.5}]},
  "proposers": [{"proposer": "scheduler", "verdict": "pass", "ms": 1.0, "seconds": 3.0},
                {"proposer": "llm:m", "verdict": "fail", "ms": null, "judged": 3, "passed": 1, "cost": 0.5,
                 "tokens": {"prompt": 10, "completion": 20}}], "winner": "scheduler",
  "judged": 3, "passed": 2, "passed_at_first": 1, "pass_at_k": {"1": 0.5, "10": 0.75}, "best_at_k": {"1": 1.5},
  "codes": {"pass": 2, "inaccurate": 1}, "repairs_made": {"imports": 2}, "cost": 0.25,
  "tokens": {"prompt": 100, "completion": 50, "per_second": 25.0}, "overhead_ms": {"median": 4.0},
  "edits": {"groups": 2, "combinations": 640, "evaluations": 5},
  "notes": ["one", "two"], "archive_error": "full", "candidate": "/tmp/x_kw.py", "from_archive": true,
  "created": "2026-01-02", "seconds": {"total": 12.5}})";

Json report() { return Json::parse(kReport); }

void each_value(Json& json, const std::function<void(Json&)>& body) {
  body(json);
  if (json.is_structured())
    for (Json& part : json) each_value(part, body);
}

}  // namespace

TEST(Reports, OutcomeAndTimesAreRead) {
  const Report read = report_from_json(report());
  EXPECT_TRUE(read.passed());
  EXPECT_EQ(read.accuracy.draws, 7);
  ASSERT_EQ(read.accuracy.outputs.size(), 2u);
  EXPECT_EQ(read.accuracy.outputs[0].of_bound, 0.25);
  EXPECT_FALSE(read.accuracy.outputs[1].of_bound);
  EXPECT_EQ(read.accuracy.kernelbench_gate->rtol, 1e-2);
  EXPECT_EQ(read.failure.where, "file.py:3");
  EXPECT_EQ(read.missing_protections, std::vector<std::string>{"no namespaces"});
  EXPECT_EQ(read.runs_original, "another dtype");
  const Measurement& made = read.timing.measured;
  EXPECT_EQ(made.time_ms(Contender::kOurs)->low, 0.5);
  EXPECT_EQ(made.time_ms(Contender::kEager)->high, 2.0) << "without an interval a time stands for itself";
  EXPECT_FALSE(made.time_ms(Contender::kCompile));
  EXPECT_EQ(made.speedup_over(Contender::kEager)->difference, Difference::kFaster);
  EXPECT_EQ(made.noise, std::vector<std::string>{"busy"});
  EXPECT_EQ(read.timing.roofline->limit, "memory");
  ASSERT_EQ(read.timing.profile.size(), 3u);
  EXPECT_FALSE(read.timing.profile[0].is_library);
  EXPECT_TRUE(read.timing.profile[1].is_library);
  EXPECT_FALSE(read.timing.profile[2].is_library);
  EXPECT_TRUE(read.timing.answers_for("eager"));
  EXPECT_TRUE(read.timing.answers_for("compile")) << "it failed, and that is known";
  EXPECT_EQ(read.seconds, 12.5);
}

TEST(Reports, WhatWasMadeAndTriedIsRead) {
  const Report read = report_from_json(report());
  EXPECT_EQ(read.worth.beside_eager, Worth::BesideEager::kNotSlower);
  EXPECT_EQ(read.worth.written, true);
  EXPECT_EQ(read.worth.advice.at(0).effect, "none");
  EXPECT_EQ(read.worth.lost->high, 0.75);
  EXPECT_EQ(read.kernels->count, 2u);
  EXPECT_EQ(read.kernels->share, 0.75);
  EXPECT_EQ(read.compiled.good, 1);
  EXPECT_EQ(read.compiled.each.at(0).spills, 32);
  EXPECT_EQ(read.compiled.each.at(1).error, "no");
  EXPECT_FALSE(read.searches.rescue);
  EXPECT_TRUE(read.searches.search->exhausted);
  EXPECT_EQ(read.searches.search->trials.at(0).ratio, 0.5);
  EXPECT_FALSE(read.searches.search->trials.at(1).ratio) << "it was stopped early";
  EXPECT_EQ(read.proposers.at(1).tokens.completion, 20);
  EXPECT_FALSE(read.proposers.at(1).ms);
  EXPECT_EQ(read.sampling.pass_at_k->at(10), 0.75);
  EXPECT_EQ(read.sampling.codes.at(1), std::pair(std::string("inaccurate"), int64_t{1}));
  EXPECT_EQ(read.edits.combinations, 640);
  EXPECT_EQ(read.archive_error, "full");
}

TEST(Reports, AnEmptyReportHasNothing) {
  const Report read = report_from_json(Json::object());
  EXPECT_FALSE(read.passed() || read.failed() || read.emitted() || read.is_no());
  EXPECT_EQ(read.worth.beside_eager, Worth::BesideEager::kNotAsked);
  EXPECT_FALSE(read.kernels || read.searches.search || read.archive_error || read.seconds);
  EXPECT_FALSE(read.timing.measured.time_ms(Contender::kOurs) || read.timing.roofline);
  EXPECT_FALSE(report_from_json(Json()).passed());
}

TEST(Reports, WhatWasNotTimedBesideEagerIsToldFromWhatWasNotAsked) {
  EXPECT_EQ(report_from_json({{"slower_than_eager", nullptr}}).worth.beside_eager, Worth::BesideEager::kNotTimed);
  EXPECT_EQ(report_from_json({{"slower_than_eager", true}}).worth.beside_eager, Worth::BesideEager::kSlower);
}

TEST(Reports, ValuesOfAnotherTypeAreAsIfTheyWereNotThere) {
  size_t values = 0;
  Json counted = report();
  each_value(counted, [&](Json&) { ++values; });
  const std::vector<Json> others = {nullptr, true, -1, 0.5, "text", Json::array({1}), Json::object({{"a", 1}})};
  for (size_t place = 0; place < values; ++place)
    for (const Json& other : others) {
      Json json = report();
      size_t at = 0;
      each_value(json, [&](Json& value) {
        if (at++ == place) value = other;
      });
      EXPECT_NO_THROW(report_from_json(json)) << json.dump();
    }
}

TEST(Reports, TimesSurviveTheirJson) {
  TimingReply reply;
  reply.samples_ms = {std::vector<double>{1.0, 1.1, 0.9}, {2.0, 2.5, 1.9}, {}};
  reply.noise = {"busy"};
  Json json = {{"policy", "reference"}};
  add_measurement(json, reply);
  const Measurement made = measurement_of(reply), read = measurement_from_json(Json::parse(json.dump()));
  for (const Contender one : kContenders) {
    ASSERT_EQ(made.time_ms(one).has_value(), read.time_ms(one).has_value()) << name_of(one);
    ASSERT_EQ(made.speedup_over(one).has_value(), read.speedup_over(one).has_value()) << name_of(one);
    const auto &time = made.time_ms(one), &time_read = read.time_ms(one);
    EXPECT_EQ(to_json(time.value_or(Estimate{})), to_json(time_read.value_or(Estimate{})));
    const auto &speedup = made.speedup_over(one), &speedup_read = read.speedup_over(one);
    EXPECT_EQ(to_json(speedup.value_or(Speedup{})), to_json(speedup_read.value_or(Speedup{})));
  }
  EXPECT_EQ(made.noise, read.noise);
  EXPECT_EQ(made.samples, read.samples);
}

TEST(Reports, ADevicesFiguresAreRead) {
  const DeviceReport read = device_report_from_json({{"name", "H200"},
                                                     {"copy_bytes_per_second", 4e12},
                                                     {"flops", {{"fp32", 5e13}, {"fp64", nullptr}}},
                                                     {"calibration", {{"synchronise_seconds", 1e-5}}}});
  EXPECT_EQ(read.name, "H200");
  EXPECT_EQ(read.copy_bytes_per_second, 4e12);
  EXPECT_FALSE(read.read_bytes_per_second);
  ASSERT_EQ(read.flops.size(), 1u);
  EXPECT_EQ(read.calibration.synchronise_seconds, 1e-5);
}
