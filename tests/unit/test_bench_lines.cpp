#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run/bench_messages.hpp"

using namespace kw;

namespace {

BenchRequest a_request() {
  BenchRequest request{.problem = {.path = "/s/c/x.py", .name = "x", .category = "c"},
                       .key = R"({"source":"ab"})",
                       .options = {},
                       .proposer = {},
                       .after_compiler = false};
  request.options.output = "/o/x_kw.py";
  request.options.target = "cpu";
  request.options.baselines = {"eager"};
  request.options.budget_seconds = 20;
  request.options.try_seconds = 450;
  request.options.draws = 3;
  request.options.force = true;
  return request;
}

}  // namespace

TEST(BenchMessages, ARequestIsReadAsItWasWritten) {
  BenchRequest request = a_request();
  const BenchRequest read = bench_request_from_text(to_text(request));
  EXPECT_EQ(read.problem.category, "c");
  EXPECT_EQ(read.options.problem, "/s/c/x.py");
  EXPECT_EQ(read.options.baselines, request.options.baselines);
  EXPECT_EQ(read.options.try_seconds, 450);
  EXPECT_FALSE(read.proposer);
  EXPECT_EQ(to_text(read), to_text(request));
  request.proposer.emplace().model.model = "random";
  request.proposer->fresh = true;
  request.after_compiler = true;
  const BenchRequest with_model = bench_request_from_text(to_text(request));
  EXPECT_TRUE(with_model.after_compiler && with_model.proposer->fresh);
  EXPECT_EQ(to_text(with_model), to_text(request));
  EXPECT_EQ(bench_request_from_text(R"({"problem": "x.py"})").options.timeout_seconds,
            OptimizeOptions{}.timeout_seconds);
}

TEST(BenchMessages, AReplyIsAWaitOrALine) {
  const auto wait = bench_reply_from_text(to_text(BenchWait{.whom = "kw 12", .seconds = 0.5}));
  ASSERT_TRUE(wait);
  EXPECT_EQ(std::get<BenchWait>(*wait).whom, "kw 12");
  EXPECT_EQ(std::get<BenchWait>(*wait).seconds, 0.5);
  const auto line = bench_reply_from_text(to_text(line_of(a_request())));
  ASSERT_TRUE(line);
  EXPECT_EQ(std::get<ResultLine>(*line).key, R"({"source":"ab"})");
  EXPECT_FALSE(bench_reply_from_text("Killed"));
}

TEST(BenchMessages, AKeyHasNoPrices) {
  BenchOptions options;
  options.target = "triton";
  options.devices = {"0", "1"};
  options.proposer.model.model = "random";
  const auto key = nlohmann::ordered_json::parse(bench_key("ab", options));
  EXPECT_EQ(key.at("source"), "ab");
  EXPECT_EQ(key.at("device"), "cuda");
  EXPECT_EQ(key.at("graphs"), "auto");
  EXPECT_FALSE(key.at("proposer").contains("price_read"));
  EXPECT_FALSE(key.at("after_compiler"));
}

// The lines of a suite, as results.jsonl has them.
TEST(ResultLines, AreReadAndWrittenAgain) {
  const std::string head = R"({"version":1,"problem":"/s/c/x.py","name":"x","category":"c","key":{"source":"ab"},)";
  for (const char* rest :
       {R"("verdict":"timeout","reason":"not done within 9 s","seconds":{"total":9.5}})",
        R"("verdict":"error","reason":"no","exit_code":2,"text":"error: no","error":{"kind":"user","code":"bad",)"
        R"("message":"no","where":"a.py:3","source":"x","hint":"y","detail":""},"seconds":{"total":0.5}})",
        R"("verdict":"error","reason":"no","exit_code":4,"error":{"kind":"internal","code":"","message":"no",)"
        R"("where":"","source":"","hint":"","detail":""},"seconds":{"total":0.5}})",
        R"("command":"optimize","problem_hash":"cd","size":null,"target":"cpu","verdict":"pass","code":"pass",)"
        R"("reason":"right","policy":"reference","candidate":"/o/x_kw.py","seconds":{"capture":1.5,"total":2.5}})"}) {
    const auto line = result_line_from_text(head + rest);
    ASSERT_TRUE(line) << rest;
    EXPECT_EQ(to_text(*line), head + rest);
  }
}

TEST(ResultLines, AnErrorIsToldWithItsPlace) {
  const auto line = result_line_from_text(R"({"error": {"message": "no", "where": "a.py:3", "kind": "missing"}})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->reason(), "no (a.py:3)");
  EXPECT_EQ(line->error->exit_code(), 3);
  EXPECT_TRUE(line->key.empty());
  EXPECT_FALSE(result_line_from_text("[1]"));
  EXPECT_FALSE(result_line_from_text("{\"half"));
}
