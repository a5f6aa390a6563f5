#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "judge/contract.hpp"
#include "support/error.hpp"

using namespace kw;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kEps = 1.1920928955078125e-07;

Json errors(double norm, double max) { return {{"norm", norm}, {"max", max}}; }

Json output(double ours, double eager) {
  return Json{{"name", "output[0]"},
              {"dtype", "float32"},
              {"expected_dtype", "float32"},
              {"shape", {4, 8}},
              {"expected_shape", {4, 8}},
              {"strides", {8, 1}},
              {"expected_strides", {8, 1}},
              {"dtype_ok", true},
              {"shape_ok", true},
              {"strides_ok", true},
              {"device_ok", true},
              {"exact", false},
              {"mismatches", 0},
              {"nonfinite_ok", true},
              {"ours", errors(ours, ours)},
              {"eager", errors(eager, eager)},
              {"epsilon", kEps},
              {"where", {1, 2}},
              {"ours_value", 1.5},
              {"reference_value", 1.0}};
}

Json reply(Json row) {
  return Json{{"reference", "fp64"},
              {"reference_note", ""},
              {"draws", Json::array({Json{{"kind", "wide"}, {"seed", 1}, {"outputs", Json::array({std::move(row)})}}})},
              {"checks", Json::array({Json{{"name", "inputs-unchanged"}, {"ok", true}, {"detail", ""}}})},
              {"vacuous", Json::array()},
              {"kernelbench_gate", {{"ok", true}, {"atol", 1e-4}, {"rtol", 1e-4}}}};
}

Figures figures(Json row) { return figures_from_json(reply(std::move(row))); }

Json with(Json row, const char* key, Json value) {
  row[key] = std::move(value);
  return row;
}

}  // namespace

TEST(Contract, TwiceEagersErrorPlusFourEpsilonPassesAndNoMore) {
  const double eager = 1e-6, bound = 2 * eager + 4 * kEps;
  EXPECT_TRUE(judge(figures(output(bound, eager)), Policy::kReference).pass);
  const Verdict verdict = judge(figures(output(std::nextafter(bound, 1.0), eager)), Policy::kReference);
  EXPECT_FALSE(verdict.pass);
  EXPECT_EQ(verdict.code, "inaccurate");
  EXPECT_EQ(verdict.reason,
            "On the wide draw, output[0] has a norm-relative error of 2.5e-06; eager's is 1e-06, so at most 2.5e-06 "
            "passes (at [1, 2]: 1.5 instead of 1).");
}

TEST(Contract, BothSensesOfTheErrorAreHeldToTheBound) {
  for (const char* sense : {"norm", "max"}) {
    Json row = output(0.0, 0.0);
    row["ours"][sense] = 1e-5;
    const Verdict verdict = judge(figures(row), Policy::kReference);
    EXPECT_FALSE(verdict.pass);
    EXPECT_NE(verdict.reason.find(std::string(sense) + "-relative"), std::string::npos) << verdict.reason;
  }
}

TEST(Contract, AnErrorThatIsNotANumberFails) {
  EXPECT_FALSE(
      judge(figures(with(output(0, 0), "ours", Json{{"norm", "nan"}, {"max", "nan"}})), Policy::kReference).pass);
  EXPECT_FALSE(
      judge(figures(with(output(0, 0), "ours", Json{{"norm", "inf"}, {"max", "inf"}})), Policy::kReference).pass);
}

TEST(Contract, FormsMustAgree) {
  const std::pair<const char*, const char*> forms[] = {
      {"dtype_ok", "dtype"}, {"shape_ok", "shape"}, {"strides_ok", "strides"}, {"device_ok", "device"}};
  for (const auto& [key, code] : forms)
    EXPECT_EQ(judge(figures(with(output(0, 0), key, false)), Policy::kReference).code, code);
  EXPECT_EQ(judge(figures(with(with(output(0, 0), "shape_ok", false), "shape", {4, 7})), Policy::kReference).reason,
            "On the wide draw, output[0] has shape [4, 7] where Model's has [4, 8].");
}

TEST(Contract, NonfiniteValuesAndIntegersMustStandWhereTheyShould) {
  EXPECT_EQ(judge(figures(with(output(0, 0), "nonfinite_ok", false)), Policy::kReference).code, "nonfinite");
  const Verdict verdict = judge(figures(with(with(output(0, 0), "exact", true), "mismatches", 3)), Policy::kReference);
  EXPECT_EQ(verdict.code, "mismatch");
  EXPECT_NE(verdict.reason.find("in 3 elements"), std::string::npos);
}

TEST(Contract, AnIllConditionedOutputIsHeldToItsSensitivityAndMarked) {
  const Json row = with(output(1e-4, 1e-8), "sensitivity", errors(8e-5, 8e-5));
  const Verdict verdict = judge(figures(row), Policy::kReference);
  EXPECT_TRUE(verdict.pass);
  EXPECT_TRUE(verdict.errors.front().conditioned);
  EXPECT_DOUBLE_EQ(verdict.errors.front().bound.norm, 2 * 8e-5 + 4 * kEps);
  EXPECT_FALSE(judge(figures(with(output(1e-3, 1e-8), "sensitivity", errors(8e-5, 8e-5))), Policy::kReference).pass);
}

TEST(Contract, IntegersMayBeStepsThatEagerTakesWhenItRoundsOtherwise) {
  const auto verdict = [](int missed, int eager_missed, int unexplained) {
    return judge(figures(with(with(with(with(output(0, 0), "exact", true), "mismatches", missed), "eager_mismatches",
                                   eager_missed),
                              "unexplained", unexplained)),
                 Policy::kReference);
  };
  EXPECT_TRUE(verdict(8, 4, 0).pass);
  EXPECT_TRUE(verdict(8, 4, 0).errors.front().conditioned);
  EXPECT_FALSE(verdict(9, 4, 0).pass);
  EXPECT_FALSE(verdict(1, 0, 0).pass);
  EXPECT_FALSE(verdict(8, 4, 1).pass);
}

TEST(Contract, OtherRoundingsCountOnlyWhereTheyTakeHalfOfTheDigits) {
  const auto verdict = [](double ours, double rounding) {
    return judge(figures(with(output(ours, 0), "rounding", errors(rounding, rounding))), Policy::kReference);
  };
  EXPECT_TRUE(verdict(3e144, 2e144).pass);
  EXPECT_TRUE(verdict(3e144, 2e144).errors.front().conditioned);
  EXPECT_FALSE(verdict(3e144, 1e144).pass);
  EXPECT_TRUE(verdict(1e-3, 6e-4).pass);
  EXPECT_FALSE(verdict(5e-5, 3e-4).pass);  // of 3.5e-4
}

TEST(Contract, EagerAsItsOwnReferenceAllowsTheWeakerBound) {
  Json raw = reply(output(9e-5, 0));
  raw["reference"] = "fp32-eager";
  const Verdict verdict = judge(figures_from_json(raw), Policy::kReference);
  EXPECT_TRUE(verdict.pass);
  EXPECT_NE(verdict.reason.find("weaker"), std::string::npos);
  raw["draws"][0]["outputs"][0]["ours"]["norm"] = 2e-4;
  EXPECT_FALSE(judge(figures_from_json(raw), Policy::kReference).pass);
}

TEST(Contract, OnlyRelaxedAllowsTheErrorOfSixteenBitProducts) {
  EXPECT_FALSE(judge(figures(output(5e-3, 1e-7)), Policy::kReference).pass);
  EXPECT_FALSE(judge(figures(output(5e-3, 1e-7)), Policy::kIeee).pass);
  EXPECT_TRUE(judge(figures(output(5e-3, 1e-7)), Policy::kRelaxed).pass);
  EXPECT_FALSE(judge(figures(output(5e-2, 1e-7)), Policy::kRelaxed).pass);
}

TEST(Contract, WhatIsSmallIsHeldToEagersErrorsAmongWhatIsAsSmall) {
  const auto bucket = [](double low, double ours, double eager, double moved) {
    return Json{{"low", low},
                {"count", 64},
                {"ours", {{"rms", ours}, {"max", ours}}},
                {"eager", {{"rms", eager}, {"max", eager}}},
                {"moved", {{"rms", moved}, {"max", moved}}}};
  };
  // Not a Json, which clang takes for a copy of the one value in its braces.
  const auto verdict = [&](const std::vector<Json>& buckets, Policy policy = Policy::kReference) {
    return judge(figures(with(output(0.0, 0.0), "buckets", buckets)), policy);
  };
  const double units = 8 * kEps * 16;  // of a bucket that starts at 1
  EXPECT_TRUE(verdict({bucket(1.0, 16e-6 + units, 1e-6, 0.0)}).pass);
  EXPECT_TRUE(verdict({bucket(1.0, 16e-6 + units, 0.0, 1e-6)}).pass);
  const Verdict beyond = verdict({bucket(1.0, 16.1e-6 + units, 1e-6, 0.0)});
  EXPECT_EQ(beyond.code, "inaccurate-where-small");
  EXPECT_EQ(beyond.reason,
            "On the wide draw, output[0] is off by 3.1e-05 (rms) among its 64 elements from 1 to 16; eager is off by "
            "at most 1e-06 there, so at most 3.1e-05 passes.");
  // What eager shows beside a bucket counts, further off it does not.
  EXPECT_TRUE(verdict({bucket(1.0, 1e-3, 0.0, 0.0), bucket(16.0, 1e-3, 1e-3, 0.0)}).pass);
  EXPECT_FALSE(verdict({bucket(1.0, 1e-3, 0.0, 0.0), bucket(256.0, 1e-3, 1e-3, 0.0)}).pass);
  EXPECT_TRUE(verdict({bucket(0x1p-140, 1e-39, 0.0, 0.0)}).pass);
  const Json keeps_subnormals = with(output(0.0, 0.0), "underflow", 0x1p-146);
  const Json small = Json::array({bucket(0x1p-140, 1e-39, 0.0, 0.0)});
  EXPECT_FALSE(judge(figures(with(keeps_subnormals, "buckets", small)), Policy::kReference).pass);
  EXPECT_TRUE(verdict({bucket(1.0, 0.5, 0.0, 0.0)}, Policy::kRelaxed).pass);
}

TEST(Contract, WhatEagerKnowsToAnEighthMayNotBeLeftOut) {
  struct Part {
    int count = 16, values = 16;
    double size = 2.0, eager = 0.25, moved = 0.5, low = 1.0;
  };
  const auto verdict = [](const Part& part) {
    // What eager errs by in the next bucket allows zeros by the other rule.
    const auto error = [](double value) { return Json{{"rms", value}, {"max", value}}; };
    const Json bucket{
        {"low", part.low},
        {"count", 32},
        {"ours", error(part.size)},
        {"eager", error(part.eager)},
        {"moved", error(part.moved)},
        {"left_out", {{"count", part.count}, {"values", part.values}, {"size", part.size}, {"eager", part.eager}}}};
    const Json next{{"low", 16 * part.low},
                    {"count", 32},
                    {"ours", error(part.size)},
                    {"eager", error(part.size)},
                    {"moved", error(0.0)}};
    return judge(figures(with(output(0.0, 0.0), "buckets", Json::array({bucket, next}))), Policy::kReference);
  };
  const Verdict zeros = verdict({});
  EXPECT_EQ(zeros.code, "inaccurate-where-small");
  EXPECT_EQ(zeros.reason,
            "On the wide draw, output[0] leaves out 16 of its 32 elements from 1 to 16, of 2 (rms); eager is off by "
            "0.25 there.");
  EXPECT_TRUE(verdict({.eager = 0.26}).pass);
  EXPECT_TRUE(verdict({.moved = 0.51}).pass);
  EXPECT_TRUE(verdict({.count = 15}).pass);
  EXPECT_TRUE(verdict({.values = 7}).pass);
  // Subnormal numbers may be flushed.
  EXPECT_TRUE(verdict({.size = 1e-38, .eager = 0.0, .moved = 0.0, .low = 0x1p-130}).pass);
  EXPECT_FALSE(verdict({.size = 2e-38, .eager = 0.0, .moved = 0.0, .low = 0x1p-130}).pass);
}

TEST(Contract, WhereNothingShowsWhatDoublesErrBySmallOnesAreNotAsked) {
  const auto verdict = [](double epsilon, double ours, double moved) {
    const Json bucket{{"low", 1e-3},
                      {"count", 64},
                      {"ours", {{"rms", ours}, {"max", ours}}},
                      {"eager", {{"rms", 0.0}, {"max", 0.0}}},
                      {"moved", {{"rms", moved}, {"max", moved}}}};
    return judge(figures(with(with(output(0.0, 0.0), "epsilon", epsilon), "buckets", Json::array({bucket}))),
                 Policy::kReference)
        .pass;
  };
  const double of_double = std::numeric_limits<double>::epsilon();
  EXPECT_TRUE(verdict(of_double, 3e-16, 0.0));
  EXPECT_FALSE(verdict(of_double, 3e-16, 1e-18));
  EXPECT_FALSE(verdict(kEps, 1e-6, 0.0));
}

TEST(Contract, TheNormOfFewElementsIn16BitsMayBeTheirRounding) {
  const double of_bfloat16 = 0x1p-7;
  const auto largest = [&](int elements) {
    const Json row = with(with(output(0.0, 0.0), "epsilon", of_bfloat16), "compared", elements);
    return judge(figures(row), Policy::kReference).errors.front().bound;
  };
  EXPECT_DOUBLE_EQ(largest(1).norm, of_bfloat16 + 4 * kEps);
  EXPECT_DOUBLE_EQ(largest(4).norm, of_bfloat16 / 2 + 4 * kEps);
  EXPECT_DOUBLE_EQ(largest(16).norm, of_bfloat16 / 4 + 4 * kEps);
  EXPECT_DOUBLE_EQ(largest(1 << 20).norm, of_bfloat16 / 4 + 4 * kEps);
  EXPECT_DOUBLE_EQ(largest(1 << 20).max, of_bfloat16 + 4 * kEps);
}

TEST(Contract, EveryFailedCheckFailsTheCandidate) {
  Json raw = reply(output(0, 0));
  raw["checks"].push_back(
      {{"name", "fresh-outputs"}, {"ok", false}, {"detail", "output[0] shares memory with input[0]."}});
  const Verdict verdict = judge(figures_from_json(raw), Policy::kReference);
  EXPECT_EQ(verdict.code, "fresh-outputs");
  EXPECT_EQ(verdict.reason, "output[0] shares memory with input[0].");
}

TEST(Contract, ACheckThatCouldNotBeMadeIsNamed) {
  Json raw = reply(output(0, 0));
  raw["checks"].push_back(
      {{"name", "distinct-positions"}, {"ok", true}, {"detail", ""}, {"unchecked", "no memory on the wide draw"}});
  const Verdict verdict = judge(figures_from_json(raw), Policy::kReference);
  EXPECT_TRUE(verdict.pass);
  EXPECT_TRUE(verdict.reason.ends_with(" Not checked: distinct-positions (no memory on the wide draw)."))
      << verdict.reason;
  EXPECT_EQ(verdict_from_json(to_json(verdict)).checks.back().unchecked, "no memory on the wide draw");
  EXPECT_FALSE(to_json(verdict).at("checks").front().contains("unchecked"));
}

TEST(Contract, WritesOutOfBoundsAreTheReasonBeforeTheWrongNumbersTheyLeave) {
  Json raw = reply(output(1, 0));
  raw["checks"].push_back({{"name", "poison"}, {"ok", false}, {"detail", "NaN."}});
  EXPECT_EQ(judge(figures_from_json(raw), Policy::kReference).code, "inaccurate");
  raw["checks"].push_back(
      {{"name", "guard-bands"}, {"ok", false}, {"detail", "4 bytes behind a tensor were overwritten."}});
  EXPECT_EQ(judge(figures_from_json(raw), Policy::kReference).code, "guard-bands");
}

TEST(Contract, NothingComparedIsNoPass) {
  Json raw = reply(output(0, 0));
  raw["draws"] = Json::array();
  EXPECT_EQ(judge(figures_from_json(raw), Policy::kReference).code, "nothing-compared");
}

TEST(Contract, TrivialAnswersCountAsVacuousOnlyWithinTheBoundOnEveryDraw) {
  Json raw = reply(output(0, 0));
  raw["draws"].push_back({{"kind", "signed"}, {"seed", 2}, {"outputs", Json::array({output(0, 0)})}});
  raw["draws"].push_back({{"kind", "special"}, {"seed", 3}, {"outputs", Json::array({output(0, 0)})}});
  const auto trivial = [](const char* name, const char* draw, double error) {
    return Json{{"output", "output[0]"},       {"draw", draw},   {"trivial", name}, {"norm", error}, {"max", error},
                {"eager", errors(1e-7, 1e-7)}, {"epsilon", kEps}};
  };
  raw["vacuous"] = Json::array({trivial("zeros", "wide", 1e-8), trivial("a constant", "wide", 1e-3),
                                trivial("zeros", "signed", 1e-8), trivial("ones", "wide", 0),
                                trivial("the output for other inputs and weights", "signed", 0)});
  const Verdict verdict = judge(figures_from_json(raw), Policy::kReference);
  EXPECT_TRUE(verdict.pass);
  ASSERT_EQ(verdict.vacuous.size(), 2u);
  EXPECT_EQ(verdict.vacuous[0].trivial, "zeros");
  EXPECT_EQ(verdict.vacuous[1].trivial, "the output for other inputs and weights");
}

TEST(Contract, SkippedDrawsAreToldAndNotCounted) {
  Json raw = reply(output(0, 0));
  raw["draws"].push_back(
      {{"kind", "signed"}, {"seed", 2}, {"outputs", Json::array()}, {"skipped", "Model raises on this draw: no."}});
  const Verdict verdict = judge(figures_from_json(raw), Policy::kReference);
  EXPECT_EQ(verdict.reason, "Every output is within the contract's bound of eager's error on all 1 draws.");
  ASSERT_EQ(verdict.skipped.size(), 1u);
}

TEST(Contract, AVerdictSurvivesItsJson) {
  Json raw = reply(with(output(1e-4, 1e-8), "sensitivity", errors(8e-5, 8e-5)));
  raw["draws"][0]["outputs"].push_back(with(output(0, 0), "ours", Json{{"norm", "inf"}, {"max", "nan"}}));
  Verdict verdict = judge(figures_from_json(raw), Policy::kIeee);
  verdict.detail = "log";
  const Json json = to_json(verdict);
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["errors"][1]["ours"]["norm"], "inf");
  EXPECT_EQ(to_json(verdict_from_json(json)), json);
  const Verdict crashed = failed_verdict(Policy::kReference, "crashed", "The candidate crashed with signal 11.", "log");
  EXPECT_EQ(to_json(verdict_from_json(to_json(crashed))), to_json(crashed));
}

TEST(Contract, PoliciesHaveNamesAndUnknownOnesAreTheUsersFault) {
  for (const Policy policy : {Policy::kReference, Policy::kIeee, Policy::kRelaxed})
    EXPECT_EQ(policy_of(name_of(policy)), policy);
  EXPECT_THROW(policy_of("fast"), Error);
}
