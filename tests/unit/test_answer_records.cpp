#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "propose/answer_record.hpp"
#include "propose/sample_log.hpp"

using namespace kw;
using Json = nlohmann::ordered_json;

namespace {

const char* const kUsage =
    R"({"finish":"length","prompt_tokens":90,"completion_tokens":20,"estimated":true,"seconds":2.5,)"
    R"("first_token_seconds":0.5,"retries":1,"waited_seconds":0.25})";

std::string with_usage(const std::string& before, const std::string& after) { return before + kUsage + after; }

// As archives hold them: of a sample that goes on, of a talk with a person, of a schedule that was picked.
const std::string kSample = with_usage(
    R"({"model":"m-1","usage":)",
    R"(,"repairs":["imports added: torch","fences"],"verdict":"pass","code":"pass","reason":"","ran":true,)"
    R"("errors":[{"draw":"wide","draw_index":2,"output":"output[0]","ours":{"norm":0.25,"max":0.5},)"
    R"("eager":{"norm":0.25,"max":0.5},"bound":{"norm":1.0,"max":2.0},"ok":true,"conditioned":true,"of_bound":0.25},)"
    R"({"draw":"special","draw_index":3,"output":"output[1]","ours":{"norm":"inf","max":"nan"},)"
    R"("eager":{"norm":0.0,"max":0.0},"bound":{"norm":0.0,"max":0.0},"ok":false,"fault":"off","of_bound":null}],)"
    R"("notes":["vacuous"],"same_as_before":true,"candidate":"ab",)"
    R"("times":{"time_ms":{"ours":1.0,"eager":2.0,"compile":null},)"
    R"("speedup":{"eager":{"value":2.0,"low":1.75,"high":2.25,"difference":"faster","detectable":0.03}},)"
    R"("noise":{"reasons":[],"cores":2,"seconds":1.5,"noisy":false},"roofline":null,)"
    R"("profile":[{"name":"softmax","share":0.75,"ours":null}]},)"
    R"("last":false,"feedback":"faster","seconds":{"write":2.5,"judge":3.5,"overhead":0.125}})");
const std::string kTalk = with_usage(
    R"({"model":"m-1","usage":)",
    R"(,"repairs":[],"verdict":"fail","code":"no-code","reason":"none","ran":false,"seconds":{"write":2.5,"judge":0.0}})");
const std::string kPick = with_usage(
    R"({"model":"m-1","usage":)",
    R"(,"repairs":[],"verdict":"pass","code":"pass","reason":"","ran":true,"last":true,"same_as_before":true,)"
    R"("reused":true,"candidate":"cd","ratio":0.5,"change":"warps"})");

}  // namespace

TEST(AnswerRecords, WhatIsReadIsWrittenAgain) {
  for (const std::string& stored : {kSample, kTalk, kPick}) {
    const auto read = answer_record_from_text(stored);
    ASSERT_TRUE(read) << stored;
    EXPECT_EQ(to_text(*read), stored);
  }
  EXPECT_EQ(to_text(usage_from_text(kUsage)), kUsage);
}

TEST(AnswerRecords, FieldsAreRead) {
  const AnswerRecord read = answer_record_from_text(kSample).value();
  EXPECT_TRUE(read.passed());
  EXPECT_EQ(read.usage.finish, "length");
  EXPECT_EQ(read.usage.completion_tokens, 20);
  EXPECT_EQ(read.outcome.errors->at(1).fault, "off");
  EXPECT_EQ(read.times->measured.speedup_over(Contender::kEager)->ratio.low, 1.75);
  EXPECT_EQ(read.is_last, false);
  EXPECT_EQ(read.feedback, "faster");
  EXPECT_EQ(read.seconds->overhead, 0.125);
  EXPECT_EQ(answer_record_from_text(kPick)->pick->ratio, 0.5);
}

TEST(AnswerRecords, AReportShowsATurnInItsOwnOrder) {
  const Json turn = turn_json(*answer_record_from_text(kSample));
  std::vector<std::string> names;
  for (const auto& [name, value] : turn.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"verdict", "code", "reason", "repairs", "ran", "candidate", "usage",
                                             "seconds", "times", "same_as_before"}));
  EXPECT_EQ(turn_json(answer_record_from_json(turn)), turn);
}

TEST(AnswerRecords, WhatIsNoRecordIsNone) {
  EXPECT_FALSE(answer_record_from_text("another opinion"));
  EXPECT_FALSE(answer_record_from_text("[]"));
  const AnswerRecord empty = answer_record_from_text("{}").value();
  EXPECT_FALSE(empty.passed());
  EXPECT_FALSE(empty.is_last || empty.times || empty.outcome.errors);
  EXPECT_EQ(usage_from_text("").finish, "stop");
}

TEST(AnswerRecords, ARequestKeepsItsPrompt) {
  AnswerRequest request{.prompt = {.messages = {{"system", "be brief"}, {"user", "\xff"}}, .raw = ""},
                        .form = "chat",
                        .temperature = 1,
                        .top_p = 0.5,
                        .max_tokens = 2048,
                        .seed = 7,
                        .schema = "",
                        .target = "cpu"};
  const std::string text = to_text(request);
  EXPECT_EQ(
      text,
      "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":\"\uFFFD\"}],"
      "\"template\":\"chat\",\"temperature\":1.0,\"top_p\":0.5,\"max_tokens\":2048,\"seed\":7,\"target\":\"cpu\"}");
  EXPECT_EQ(prompt_from_text(text).messages.at(0).content, "be brief");
  request.prompt = {.messages = {}, .raw = "def"};
  request.max_tokens.reset();
  request.schema = R"({"type": "object"})";
  EXPECT_EQ(to_text(request),
            R"({"prompt":"def","template":"chat","temperature":1.0,"top_p":0.5,"seed":7,"schema":{"type":"object"},)"
            R"("target":"cpu"})");
  EXPECT_EQ(prompt_from_text(to_text(request)).raw, "def");
  EXPECT_TRUE(prompt_from_text("no JSON").messages.empty());
}

TEST(SampleLog, CountsSamplesTurnsRepairsAndTokens) {
  SampleLog log;
  log.add(0, 0, answer_record_from_text(kTalk).value());
  log.add(0, 1, answer_record_from_text(kSample).value());
  log.add(1, 0, answer_record_from_text(kTalk).value());
  log.add_unjudged(usage_from_text(kUsage));
  EXPECT_EQ(log.passed(), 1);
  EXPECT_EQ(log.turns(0, false), 1);
  EXPECT_EQ(log.best_at_k({{"ab", 2.0}}).at(2), 2.0);
  const Sampling made = log.sampling({});
  EXPECT_EQ(made.judged, 2);
  EXPECT_EQ(made.passed_at_first, 0);
  EXPECT_EQ(made.ran, 1);
  EXPECT_EQ(made.tokens.completion, 80);
  EXPECT_EQ(made.codes.at(0), std::pair(std::string("pass"), int64_t{1}));
  EXPECT_EQ(made.codes.at(1), std::pair(std::string("no-code"), int64_t{1}));
  EXPECT_EQ(made.repairs.at(0), std::pair(std::string("imports added"), int64_t{1}));
}
