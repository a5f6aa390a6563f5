#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "judge/measurement.hpp"
#include "run/report.hpp"
#include "run/report_parts.hpp"

using namespace kw;
using Json = nlohmann::ordered_json;

namespace {

// Every field of docs/json.md that a report may have, in the order in which it is written.
const char* const kReport = R"({
  "version": 1, "command": "optimize", "problem": "/x.py", "name": "x", "problem_hash": "ab", "size": null,
  "target": "triton", "graphs": "auto", "verdict": "pass", "code": "pass", "reason": "right", "policy": "reference",
  "errors": [{"draw": "wide", "draw_index": 2, "output": "output[0]", "ours": {"norm": 0.25, "max": 0.5},
              "eager": {"norm": 0.25, "max": 0.5}, "bound": {"norm": 1.0, "max": 2.0}, "ok": true,
              "conditioned": true, "of_bound": 0.25},
             {"draw": "special", "draw_index": 3, "output": "output[0]", "ours": {"norm": "inf", "max": "nan"},
              "eager": {"norm": 0.0, "max": 0.0}, "bound": {"norm": 0.0, "max": 0.0}, "ok": false, "fault": "far off",
              "of_bound": null}],
  "reference": "fp64", "reference_note": "on the CPU",
  "checks": [{"name": "guard-bands", "ok": true, "detail": ""},
             {"name": "inputs", "ok": false, "detail": "changed", "unchecked": "no memory"}],
  "vacuous": [{"output": "output[0]", "trivial": "zeros"}], "skipped_draws": ["wide: it overflows"],
  "kernelbench_gate": {"ok": true, "atol": 1e-4, "rtol": 1e-2}, "detail": "long",
  "where": "file.py:3", "source": "x", "hint": "look", "runs_original": "another dtype",
  "seed": 18446744073709551615, "draws": 7, "sandbox": {"kind": "none", "missing": ["no namespaces"]},
  "time_ms": {"ours": 1.0, "eager": 2.0, "compile": null},
  "time_interval_ms": {"ours": [0.5, 1.5], "eager": [2.0, 2.0]},
  "noise": {"reasons": ["busy"], "cores": 2, "others_cores": 0.5, "stolen_cores": 0.0, "throttled_seconds": 0.0,
            "seconds": 1.5, "noisy": true},
  "speedup": {"eager": {"value": 2.0, "low": 1.75, "high": 2.25, "difference": "faster", "detectable": 0.03}},
  "timer": "perf_counter", "samples": 12, "share_in_our_kernels": 0.75,
  "profile": [{"name": "softmax_kernel", "share": 0.75, "ours": true}, {"name": "mm", "share": 0.25, "ours": false},
              {"name": "unnamed", "share": 0.0, "ours": null}],
  "peak_memory_bytes": {"ours": 1024}, "baseline_errors": {"compile": "it failed"},
  "time_with_new_weights_ms": {"eager": 2.5}, "timed_outputs_judged": 3,
  "roofline": {"fraction": 0.5, "floor_ms": 0.5, "bound": "memory", "bytes": 4096.0, "flops": 0.0, "device": "H100"},
  "slower_than_eager": false,
  "lost": {"value": 0.5, "low": 0.25, "high": 0.75, "difference": "slower", "detectable": 0.03},
  "min_speedup": 0.97, "written": true, "advice": [{"command": "kw", "effect": "none"}],
  "kernels": ["a", "b"], "library_calls": 1, "library_ops": ["mm"], "cuda_graph": true,
  "kept_weight_bytes": 3145728,
  "compiled": {"sm": 90, "kernels": 2, "ok": 1,
               "each": [{"name": "a", "ok": true, "registers": 255, "shared_bytes": 0, "spills": 32, "seconds": 0.5,
                         "error": ""},
                        {"name": "b", "ok": false, "registers": null, "shared_bytes": null, "spills": null,
                         "seconds": 0.25, "error": "no"}]},
  "search": {"budget_seconds": 30.0, "evaluations": 0, "seconds": 29.0, "seed": 7, "tried": 9, "pruned": 1,
             "failed": 1, "reused": 4, "exhausted": true, "speedup": 1.5,
             "history": [{"seconds": 1.0, "tried": 2, "speedup": 1.5, "change": "warps"}],
             "trials": [{"change": "warps", "state": "measured", "ratio": 0.5, "best": 0.5, "reused": false},
                        {"change": "stages", "state": "stopped", "ratio": 0.25, "best": 0.5, "reused": true},
                        {"change": "tile", "state": "failed", "ratio": null, "best": 0.5, "reused": false,
                         "reason": "no"}],
             "schedule": {"target": "triton"}},
  "proposers": [{"proposer": "scheduler", "verdict": "pass", "ms": 1.0, "seconds": 3.0},
                {"proposer": "llm:m", "verdict": "fail", "ms": null, "seconds": 2.0, "passed": 1, "judged": 3,
                 "tokens": {"prompt": 10, "completion": 20, "per_second": null}, "cost": 0.5,
                 "pass_at_k": {"1": 0.5}, "run": "cd", "answers": 4, "evaluated": 2, "speedup_over_scheduler": 1.25,
                 "error": "gone"}],
  "winner": "scheduler", "repairs": ["imports added"],
  "edits": {"groups": 2, "combinations": 640.0, "evaluations": 5, "curve": [1.0, 0.5],
            "answers": [{"answer": 0, "change": "warps", "code": "pass", "evaluated": true, "ratio": 0.5,
                         "reason": null}]},
  "overlap": {"wall_seconds": 4.0, "writing_seconds": 3.0, "judging_seconds": 2.0, "waiting_seconds": 1.0,
              "slower_side": null},
  "model": {"asked": "m", "name": "m-1"}, "template": {"name": "chat", "hash": "ef"}, "run": "cd", "prompt_tokens": 90,
  "sampling": {"temperature": 1.0, "top_p": 0.5, "max_tokens": 2048, "seed": "0", "shots": 1, "repair": 0,
               "improve": 0},
  "judged": 3, "passed": 2, "passed_at_first": 1, "ran": 2, "pass_at_k": {"1": 0.5, "10": 0.75},
  "pass_at_k_without_repair": {"1": 0.25}, "codes": {"pass": 2, "inaccurate": 1}, "repairs_made": {"imports": 2},
  "tokens": {"prompt": 100, "completion": 50, "per_second": 25.0}, "cost": 0.25,
  "overhead_ms": {"median": 4.0, "largest": 8.0}, "best_at_k": {"1": 1.5},
  "candidate": "/tmp/x_kw.py", "candidate_hash": "01", "notes": ["one", "two"], "archive_error": "full",
  "interrupted": false, "lacked_memory": true, "from_archive": true, "created": "2026-01-02",
  "seconds": {"capture": 1.5, "total": 12.5}})";

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
  EXPECT_EQ(read.draws->count, 7);
  ASSERT_EQ((*read.errors).size(), 2u);
  EXPECT_EQ((*read.errors)[0].of_bound, 0.25);
  EXPECT_FALSE((*read.errors)[1].of_bound);
  EXPECT_EQ(read.findings->kernelbench_gate->rtol, 1e-2);
  EXPECT_EQ(read.failure->where, "file.py:3");
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
  EXPECT_FALSE(read.timing.profile[0].is_library());
  EXPECT_TRUE(read.timing.profile[1].is_library());
  EXPECT_FALSE(read.timing.profile[2].is_library());
  EXPECT_TRUE(read.timing.answers_for("eager"));
  EXPECT_TRUE(read.timing.answers_for("compile")) << "it failed, and that is known";
  EXPECT_EQ(read.seconds.total, 12.5);
}

TEST(Reports, WhatWasMadeAndTriedIsRead) {
  const Report read = report_from_json(report());
  EXPECT_EQ(read.worth.beside_eager, Worth::BesideEager::kNotSlower);
  EXPECT_EQ(read.worth.written, true);
  EXPECT_EQ(read.worth.advice.at(0).effect, "none");
  EXPECT_EQ(read.worth.lost->ratio.high, 0.75);
  EXPECT_EQ(read.kernels->names.size(), 2u);
  EXPECT_EQ(read.kernels->kept_weight_bytes, 3145728);
  EXPECT_EQ(read.timing.share_in_our_kernels, 0.75);
  EXPECT_EQ(read.compiled->good, 1);
  EXPECT_EQ(read.compiled->each.at(0).spills, 32);
  EXPECT_EQ(read.compiled->each.at(1).error, "no");
  EXPECT_FALSE(read.searches.rescue);
  EXPECT_TRUE(read.searches.search->is_exhausted);
  EXPECT_EQ(read.searches.search->trials.at(0).measured_ratio(), 0.5);
  EXPECT_FALSE(read.searches.search->trials.at(1).measured_ratio()) << "it was stopped early";
  EXPECT_EQ(read.proposers.at(1).tokens->completion, 20);
  EXPECT_FALSE(read.proposers.at(1).ms);
  EXPECT_EQ(read.sampling.pass_at_k->at(10), 0.75);
  EXPECT_EQ(read.sampling.codes.at(1), std::pair(std::string("inaccurate"), int64_t{1}));
  EXPECT_EQ(read.edits->combinations, 640);
  EXPECT_EQ(read.archive_error, "full");
}

// What the archive holds, and what one run's lines were made of, is written again as it was.
TEST(Reports, WhatIsReadIsWrittenAgain) {
  const Json stored = report(), written = to_json(report_from_json(stored));
  for (const auto& [name, value] : stored.items()) {
    if (name == "samples") continue;
    EXPECT_EQ(written.value(name, Json("not there")), value) << name;
  }
  EXPECT_EQ(written.size(), stored.size());
  EXPECT_TRUE(written["samples"].is_array()) << "where a model was asked, they are its answers";
}

TEST(Reports, WhatWasNotFoundIsNotWritten) {
  EXPECT_EQ(to_json(Report{}), Json::object());
  Report emitted;
  emitted.command = "optimize";
  emitted.verdict = "emitted";
  const Json json = to_json(emitted);
  for (const char* name : {"errors", "checks", "draws", "time_ms", "roofline", "slower_than_eager", "written", "search",
                           "model", "samples", "notes", "seconds", "graphs", "code"})
    EXPECT_FALSE(json.contains(name)) << name;
  EXPECT_TRUE(json.at("candidate").is_null());
  EXPECT_EQ(json.at("reason"), "");
}

TEST(Reports, AnEmptyReportHasNothing) {
  const Report read = report_from_json(Json::object());
  EXPECT_FALSE(read.passed() || read.failed() || read.emitted() || read.is_no());
  EXPECT_EQ(read.worth.beside_eager, Worth::BesideEager::kNotAsked);
  EXPECT_FALSE(read.kernels || read.searches.search || read.archive_error || read.seconds.total);
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
  Report timed;
  add_measurement(timed, reply);
  const Measurement made = measurement_of(reply), read = measurement_from_json(Json::parse(to_json(timed).dump()));
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

TEST(Reports, ADevicesFiguresAreWrittenAsTheWorkerSaysThem) {
  const DeviceReport report{.target = "triton",
                            .ceilings = {.name = "H200",
                                         .copy_bytes_per_second = 4e12,
                                         .read_bytes_per_second = std::nullopt,
                                         .flops = {{"fp32", 5e13}, {"bf16", std::nullopt}},
                                         .launch_seconds = 2e-6,
                                         .threads = 8},
                            .from_archive = true,
                            .calibration = Calibration{.strided_bytes_per_second = 1e9,
                                                       .gather_bytes_per_second = {},
                                                       .cache_bytes_per_second = {},
                                                       .shared_bytes_per_second = {},
                                                       .launch_seconds = {},
                                                       .synchronise_seconds = 0.0,
                                                       .sustained_share = 0.86}};
  EXPECT_EQ(
      to_json(report).dump(),
      R"({"version":1,"command":"device","target":"triton","name":"H200","copy_bytes_per_second":4000000000000.0,)"
      R"("flops":{"fp32":50000000000000.0,"bf16":null},"launch_seconds":2e-06,"threads":8,"from_archive":true,)"
      R"("calibration":{"strided_bytes_per_second":1000000000.0,"synchronise_seconds":0.0,"sustained_share":0.86}})");
}
