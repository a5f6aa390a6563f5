// Picks of schedules: the grammar and the schema of a space, what is read of an answer, and chance at the same
// interface.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "llm/choices.hpp"
#include "llm/random_backend.hpp"
#include "support/error.hpp"

namespace kw::llm {
namespace {

using Json = nlohmann::ordered_json;

const ChoiceSpace kSpace = {{"softmax", {{"num_warps", {1, 2, 4}, 2}, {"keep", {0, 65536}, 0}}},
                            {"mul_2", {{"block", {256, 1024}, 1024}}}};

TEST(Choices, AGrammarOfChanges) {
  EXPECT_EQ(grammar_of(kSpace),
            "root ::= \"{\" group (\", \" group){0,1} \"}\"\n"
            "group ::= group0 | group1\n"
            "group0 ::= \"\\\"softmax\\\": {\" pick0 (\", \" pick0){0,1} \"}\"\n"
            "pick0 ::= \"\\\"num_warps\\\": \" (\"1\" | \"4\") | \"\\\"keep\\\": \" (\"65536\")\n"
            "group1 ::= \"\\\"mul_2\\\": {\" pick1 \"}\"\n"
            "pick1 ::= \"\\\"block\\\": \" (\"256\")\n");
  EXPECT_EQ(picked_text(kSpace, {{4, 0}, {256}}),
            R"({"softmax": {"num_warps": 4, "keep": 0}, "mul_2": {"block": 256}})");
  EXPECT_EQ(changes_text(kSpace, {{4, 0}, {256}}), R"({"softmax": {"num_warps": 4}, "mul_2": {"block": 256}})");
  EXPECT_EQ(changes_text(kSpace, {{2, 0}, {1024}}), "{}");
  EXPECT_GE(
      longest_text(kSpace),
      std::string(R"({"softmax": {"keep": 65536, "keep": 65536}, "softmax": {"keep": 65536, "keep": 65536}})").size());
}

TEST(Choices, WhereNothingIsOpenNothingIsAsked) {
  EXPECT_TRUE(has_choice(kSpace));
  EXPECT_FALSE(has_choice({{"softmax", {{"num_warps", {2}, 2}}}}));
  EXPECT_FALSE(has_choice({}));
  const ChoiceSpace half = {{"softmax", {{"num_warps", {2}, 2}}}, {"mul_2", {{"block", {256, 1024}, 256}}}};
  EXPECT_EQ(grammar_of(half),
            "root ::= \"{\" group \"}\"\ngroup ::= group1\ngroup1 ::= \"\\\"mul_2\\\": {\" pick1 \"}\"\npick1 ::= "
            "\"\\\"block\\\": \" (\"1024\")\n");
  EXPECT_EQ(schema_of(half)["required"], Json({"mul_2"}));
}

TEST(Choices, ASchemaThatAllowsNothingElse) {
  const Json schema = schema_of(kSpace);
  EXPECT_EQ(schema["required"], Json({"softmax", "mul_2"}));
  EXPECT_EQ(schema["properties"]["softmax"]["properties"]["num_warps"],
            Json({{"type", {"integer", "null"}}, {"enum", {1, 4, nullptr}}}));
  EXPECT_EQ(schema["properties"]["mul_2"]["additionalProperties"], false);
}

TEST(Choices, WhatIsPickedIsReadBackFromAnythingAroundIt) {
  const Picked picked = {{4, 65536}, {256}};
  const std::string text = picked_text(kSpace, picked);
  for (const std::string& answer : {text, "Sure! ```json\n" + text + "\n``` It is {fast}.", text + "{"}) {
    const PickedAnswer read = read_picked(kSpace, answer);
    ASSERT_TRUE(read.picked) << read.fault;
    EXPECT_EQ(*read.picked, picked);
  }
  // What is left out stays as it is.
  EXPECT_EQ(*read_picked(kSpace, R"({"softmax": {"num_warps": 1}})").picked, (Picked{{1, 0}, {1024}}));
  EXPECT_EQ(*read_picked(kSpace, R"({"softmax": {"num_warps": 1, "keep": null}, "mul_2": {"block": null}})").picked,
            (Picked{{1, 0}, {1024}}));
}

TEST(Choices, WhatMayNotBePickedIsRefusedWithTheReason) {
  const auto fault = [](const char* answer) {
    const PickedAnswer read = read_picked(kSpace, answer);
    EXPECT_FALSE(read.picked) << answer;
    return read.code + ": " + read.fault;
  };
  EXPECT_EQ(fault("I cannot do that."), "no-json: The answer holds no JSON object.");
  EXPECT_EQ(fault("{\"softmax\": {\"num_warps\": 4"), "no-json: The answer holds no JSON object.");
  EXPECT_EQ(fault("{\"gelu\": {}}"), "not-allowed: There is no group \"gelu\".");
  EXPECT_EQ(fault("{\"softmax\": {\"warps\": 1}}"), "not-allowed: \"softmax\" has no parameter \"warps\".");
  EXPECT_EQ(fault("{\"softmax\": {\"num_warps\": 8}}"),
            "not-allowed: \"softmax\": \"num_warps\" may not be 8, only 1, 2, 4.");
  EXPECT_EQ(fault("{\"softmax\": {\"num_warps\": \"4\"}}"),
            "not-allowed: \"softmax\": \"num_warps\" may not be \"4\", only 1, 2, 4.");
  EXPECT_EQ(fault("{\"softmax\": {\"num_warps\": 4.5}}"),
            "not-allowed: \"softmax\": \"num_warps\" may not be 4.5, only 1, 2, 4.");
  EXPECT_EQ(fault("{\"softmax\": 4}"), "not-allowed: \"softmax\" is no object.");
}

TEST(Choices, ChanceIsUniformAndTheSameForASeed) {
  RandomBackend random;
  Sampling sampling;
  sampling.schema = schema_of(kSpace).dump();
  std::map<std::string, int> counts;
  for (uint64_t seed = 0; seed < 900; ++seed) {
    sampling.seed = seed;
    const std::string text = random.generate({}, sampling, {}).text;
    EXPECT_EQ(text, random.generate({}, sampling, {}).text);
    const PickedAnswer read = read_picked(kSpace, text);
    ASSERT_TRUE(read.picked) << read.fault;
    ++counts[changes_text(kSpace, *read.picked)];
  }
  // One, two or three of three places; the two open values of the first are as likely as each other.
  ASSERT_EQ(counts.size(), 11u);
  EXPECT_FALSE(counts.contains("{}"));
  EXPECT_NEAR(counts[R"({"softmax": {"keep": 65536}})"], 100, 38);  // four standard deviations
  EXPECT_NEAR(counts[R"({"softmax": {"num_warps": 1}})"], 50, 28);
  EXPECT_NEAR(counts[R"({"softmax": {"num_warps": 4, "keep": 65536}, "mul_2": {"block": 256}})"], 150, 46);
  EXPECT_THROW(random.generate({}, {}, {}), Error);
}

}  // namespace
}  // namespace kw::llm
