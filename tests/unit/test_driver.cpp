// Which groups a spilling kernel belongs to, and what a bench's summary says of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/text.hpp"
#include "judge/environment.hpp"
#include "targets/targets.hpp"
#include "propose/compile.hpp"
#include "run/optimize.hpp"
#include "run/summary.hpp"
#include "run/worth.hpp"
#include "support/error.hpp"

using namespace kw;

namespace {

// A long sum is cut into parts, which the last program of the same launch adds; the library's product stands between it
// and the last group.
constexpr const char* kThreeGroups = R"(graph G on cuda {
  input %x : f32[8, 4194304] user args.0 access "x"
  input %w : f32[8, 8] user args.1 access "w"
  %s = aten.sum.dim_IntList(self=%x, dim=[1], keepdim=true) : f32[8, 1]
  %m = aten.mm.default(self=%w, mat2=%s) : f32[8, 1]
  %e = aten.exp.default(self=%m) : f32[8, 1]
  return %e
})";

}  // namespace

TEST(Compile, KnowsWhoseWorkAFunctionDoes) {
  const Compiled compiled = compile(parse_graph(kThreeGroups), {.device = default_device("triton"),
                                                                .caution = Caution::kNone,
                                                                .passes = {},
                                                                .problem_name = "",
                                                                .problem_source = ""});
  ASSERT_EQ(compiled.schedule.groups.size(), 3u);
  const size_t at = compiled.source.find("_in_one_kernel, (");
  ASSERT_NE(at, std::string::npos);
  const size_t begin = compiled.source.find_last_of(" (", at) + 1;
  const std::string joined = compiled.source.substr(begin, at + std::string("_in_one_kernel").size() - begin),
                    last = compiled.kernels.back();
  EXPECT_EQ(groups_at_work(compiled, {joined}), std::vector<size_t>{0});
  EXPECT_EQ(groups_at_work(compiled, {last}), std::vector<size_t>{2});
  EXPECT_EQ(groups_at_work(compiled, {joined, last}), (std::vector<size_t>{0, 2}));
  EXPECT_TRUE(groups_at_work(compiled, {"another_kernel"}).empty());
}

TEST(Targets, AutoLeavesGpusThatAreHidden) {
  Environment environment;
  environment.driver_version = "580";
  environment.torch_cuda = "13.0";
  environment.triton_version = "3.6.0";
  EXPECT_EQ(resolve_target("auto", environment, true).name(), "triton");
  environment.gpus_hidden = true;
  EXPECT_EQ(resolve_target("auto", environment, true).name(), "cpu");
  EXPECT_EQ(resolve_target("triton", environment, false).name(), "triton");
  EXPECT_THROW(resolve_target("triton", environment, true), Error);
}

namespace {

Report timed(double low, double value, double high) {
  Report report;
  report.verdict = "pass";
  report.candidate = "timed_kw.py";
  report.timing.is_taken = true;
  report.timing.measured.speedups[static_cast<size_t>(Contender::kEager)] = Speedup{.ratio = {value, low, high}};
  return report;
}

}  // namespace

TEST(Worth, SlowerBeyondNoiseIsNotWritten) {
  const OptimizeOptions options;
  Report slower = timed(0.58, 0.61, 0.64), even = timed(0.9, 0.97, 1.02), unknown;
  unknown.candidate = "x_kw.py";
  EXPECT_FALSE(decide(slower, kNotSlower, advice_for(options, slower.searches)));
  EXPECT_EQ(slower.worth.written, false);
  EXPECT_EQ(slower.worth.beside_eager, Worth::BesideEager::kSlower);
  EXPECT_EQ(slower.candidate, "");
  EXPECT_TRUE(decide(even, kNotSlower, advice_for(options, even.searches)));
  EXPECT_TRUE(even.worth.advice.empty());
  EXPECT_EQ(even.candidate, "timed_kw.py");
  EXPECT_TRUE(decide(unknown, kNotSlower, advice_for(options, unknown.searches))) << "what was not timed is written";
  EXPECT_EQ(unknown.worth.beside_eager, Worth::BesideEager::kNotTimed);
}

TEST(Worth, RunsOfOneKernelThatDifferAreNotSlower) {
  const OptimizeOptions options;
  Report library = timed(0.978, 0.98, 0.982);
  EXPECT_TRUE(decide(library, options.min_speedup, advice_for(options, library.searches)));
  EXPECT_EQ(library.worth.beside_eager, Worth::BesideEager::kNotSlower);
  EXPECT_FALSE(decide(library, 1, advice_for(options, library.searches))) << "whoever asks for 1 gets 1";
}

TEST(Worth, WhatWasAskedForDecides) {
  Report slower = timed(0.58, 0.61, 0.64), faster = timed(1.3, 1.4, 1.49);
  EXPECT_TRUE(decide(slower, 0, {}));
  EXPECT_TRUE(decide(faster, 1.4, {}));
  EXPECT_FALSE(decide(faster, 1.5, {}));
}

TEST(Worth, AdviceIsACommandThatCanBePasted) {
  OptimizeOptions options;
  options.problem = "my loss.py";
  options.target = "cpu";
  options.baselines = {"eager"};
  Report slower = timed(0.58, 0.61, 0.64);
  const std::vector<Advice> advice = advice_for(options, slower.searches);
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_EQ(advice[0].command, "kw optimize 'my loss.py' --target cpu --baseline eager --budget 40");
  EXPECT_EQ(advice[1].command, "kw optimize 'my loss.py' --target cpu --baseline eager --min-speedup 0");
  slower.searches.rescue.emplace().is_exhausted = true;
  EXPECT_EQ(advice_for(options, slower.searches).size(), 1u)
      << "a search that left nothing to try is not advised again";
}

Summary summary_of(const std::vector<nlohmann::ordered_json>& json) {
  std::vector<ResultLine> lines;
  for (const nlohmann::ordered_json& line : json) lines.push_back(result_line_from_json(line));
  return summarise(lines);
}

TEST(Summary, NamesWhatIsRightAndSlower) {
  const auto line = [](const Report& report) {
    return ResultLine{.problem = "timed.py",
                      .name = "timed",
                      .category = "",
                      .key = "",
                      .report = report,
                      .error = {},
                      .error_text = ""};
  };
  const Summary summary = summarise({line(timed(0.58, 0.61, 0.64)), line(timed(0.9, 0.97, 1.02))});
  ASSERT_EQ(summary.slower.size(), 1u);
  EXPECT_EQ(summary.all.correct, 2);
  EXPECT_NE(summary_text(summary).find("1 verified but slower than eager: timed 0.61x"), std::string::npos)
      << summary_text(summary);
}

// docs/json.md: the keys of a group and their order, with everything that a line may have.
TEST(Summary, IsWrittenAsThePageSays) {
  const auto line = nlohmann::ordered_json::parse(R"({"problem": "a/b.py", "name": "b", "category": "a",
    "verdict": "pass", "speedup": {"eager": {"value": 2.0, "low": 1.5, "high": 2.5}, "compile": null},
    "pass_at_k": {"1": 0.5, "10": 1.0}, "best_at_k": {"10": 2.0}, "judged": 4, "winner": "model", "proposers": [
      {"proposer": "model", "seconds": 2.5, "judged": 4, "passed": 2, "cost": 0.25,
       "tokens": {"prompt": 100, "completion": 20}}],
    "noise": {"noisy": true, "reasons": ["it was loud"]}})");
  EXPECT_EQ(
      to_json(summary_of({line})).dump(),
      R"({"all":{"problems":1,"correct":1,)"
      R"("eager":{"measured":1,"fast_p":{"0":1.0,"0.5":1.0,"0.8":1.0,"1":1.0,"1.5":1.0,"2":0.0,"5":0.0},)"
      R"("geometric_mean":2.0,"wins":1,"losses":0,"no_difference":0,"below_0.97":0},)"
      R"("compile":{"measured":0,"fast_p":{"0":1.0,"0.5":0.0,"0.8":0.0,"1":0.0,"1.5":0.0,"2":0.0,"5":0.0},)"
      R"("geometric_mean":null,"wins":0,"losses":0,"no_difference":0,"below_0.97":0},)"
      R"("samples":4,"pass_at_k":{"1":0.5,"10":1.0},"best_at_k":{"10":2.0},)"
      R"("proposers":{"model":{"problems":1,"kept":1,"seconds":2.5,"judged":4,"passed":2,"cost":0.25,)"
      R"("tokens_read":100,"tokens_written":20}}},"categories":{"a":)" +
          to_json(summary_of({line}))["all"].dump() +
          R"(},"slower":[],"spilling":[],"noisy":[{"problem":"a/b.py","reasons":["it was loud"]}],"failures":[]})");
}

TEST(Summary, ALineThatIsNotAsThePageSaysIsAFailureAndNoCrash) {
  for (const char* text : {"{}", "[]", "3", R"({"verdict": null, "speedup": 4, "pass_at_k": {"x": 1}, "proposers": 2})",
                           R"({"error": {"message": "no", "where": "a.py:3"}, "compiled": "no", "noise": []})"}) {
    const Summary summary = summary_of({nlohmann::ordered_json::parse(text)});
    EXPECT_EQ(summary.failures.size(), 1u) << text;
    EXPECT_FALSE(summary_text(summary).empty());
  }
}

TEST(Summary, NamesKernelsThatSpill) {
  const auto kernel = [](const char* name, int bytes) {
    return nlohmann::ordered_json{{"name", name}, {"ok", true}, {"registers", 64}, {"spills", bytes}};
  };
  const std::vector<nlohmann::ordered_json> lines = {
      {{"name", "focal"},
       {"category", "loss"},
       {"verdict", "emitted"},
       {"compiled",
        {{"sm", 90}, {"kernels", 2}, {"ok", 2}, {"each", {kernel("sum_kernel", 0), kernel("sigmoid_kernel", 56)}}}}},
      {{"name", "dice"},
       {"category", "loss"},
       {"verdict", "emitted"},
       {"compiled", {{"sm", 90}, {"kernels", 1}, {"ok", 1}, {"each", {kernel("add_kernel", 0)}}}}}};
  const Summary summary = summary_of(lines);
  ASSERT_EQ(summary.spilling.size(), 1u);
  EXPECT_EQ(summary.spilling[0].bytes, 56);
  EXPECT_NE(summary_text(summary).find("1 kernel spills registers: focal/sigmoid_kernel 56 B"), std::string::npos)
      << summary_text(summary);
}
