#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "judge/contract.hpp"
#include "judge/figures.hpp"
#include "support/error.hpp"

using namespace kw;
using Json = nlohmann::ordered_json;

namespace {

// Every field of docs/worker-protocol.md.
const char* const kReply = R"({
  "reference": "fp64-on-cpu", "reference_note": "too large", "seed": 18446744073709551615, "prepared_seconds": 0.5,
  "draws": [
    {"kind": "generator", "seed": 1, "outputs": [
      {"name": "output[0]", "dtype": "float32", "expected_dtype": "float64", "shape": [4, 8], "expected_shape": [8, 4],
       "strides": [8, 1], "expected_strides": [4, 1], "dtype_ok": true, "shape_ok": true, "strides_ok": true,
       "device_ok": true, "exact": false, "mismatches": 3, "eager_mismatches": 2, "unexplained": 1,
       "nonfinite_ok": false, "nonfinite_mismatches": 7, "ours": {"norm": 1e-6, "max": "inf"},
       "eager": {"norm": 2e-6, "max": "nan"}, "sensitivity": {"norm": 3e-6, "max": 4e-6},
       "rounding": {"norm": 5e-6, "max": 6e-6},
       "buckets": [{"low": 0.25, "count": 9, "ours": {"rms": 1, "max": 2}, "eager": {"rms": 3, "max": 4},
                    "moved": {"rms": 5, "max": 6},
                    "left_out": {"count": 8, "values": 7, "size": 0.5, "eager": 0.125}}],
       "epsilon": 1.1920928955078125e-07, "summands": 64, "underflow": 0.5, "compared": 32, "where": [1, 2],
       "ours_value": "-inf", "reference_value": 1.5}]},
    {"kind": "special", "seed": 2, "skipped": "eager raises", "outputs": []}],
  "checks": [{"name": "guard-bands", "ok": true, "detail": "", "unchecked": "no memory"}],
  "vacuous": [{"output": "output[0]", "draw": "generator", "draw_index": 0, "trivial": "zeros", "norm": 0.5, "max": 0.25,
               "eager": {"norm": 0.125, "max": 1}, "epsilon": 0.5}],
  "kernelbench_gate": {"ok": true, "atol": 1e-4, "rtol": 1e-2}, "runs_original": "another dtype",
  "missing_protections": ["no namespaces"]})";

Json reply() { return Json::parse(kReply); }

// Every value of `json`, however deep, once.
void each_value(Json& json, const std::function<void(Json&)>& body) {
  body(json);
  if (json.is_structured())
    for (Json& part : json) each_value(part, body);
}

// Read, or refused with a message.
void expect_answer(const Json& reply, const std::string& what) {
  try {
    judge(figures_from_json(reply), Policy::kReference);
  } catch (const Error& error) { EXPECT_FALSE(error.text().message.empty()) << what; }
}

}  // namespace

TEST(Figures, EveryFieldOfAReplyIsRead) {
  const Figures figures = figures_from_json(reply());
  EXPECT_EQ(figures.reference, "fp64-on-cpu");
  EXPECT_EQ(figures.reference_note, "too large");
  EXPECT_EQ(figures.seed, UINT64_MAX);
  EXPECT_EQ(figures.prepared_seconds, 0.5);
  EXPECT_EQ(figures.runs_original, "another dtype");
  EXPECT_EQ(figures.missing_protections, std::vector<std::string>{"no namespaces"});
  ASSERT_EQ(figures.draws.size(), 2u);
  EXPECT_EQ(figures.draws[0].kind, "generator");
  EXPECT_FALSE(figures.draws[0].skipped);
  EXPECT_EQ(figures.draws[1].skipped, "eager raises");
  ASSERT_EQ(figures.checks.size(), 1u);
  EXPECT_EQ(figures.checks[0].unchecked, "no memory");
  ASSERT_EQ(figures.trivial.size(), 1u);
  EXPECT_EQ(figures.trivial[0].trivial, "zeros");
  EXPECT_EQ(figures.trivial[0].error.max, 0.25);
  EXPECT_EQ(figures.trivial[0].eager.norm, 0.125);
  EXPECT_EQ(figures.trivial[0].facts.summands, 1);
  EXPECT_EQ(figures.kernelbench_gate->rtol, 1e-2);
}

TEST(Figures, EveryFieldOfAnOutputIsRead) {
  const Figures figures = figures_from_json(reply());
  const OutputFigures& output = figures.draws[0].outputs.at(0);
  EXPECT_EQ(output.name, "output[0]");
  EXPECT_EQ(output.form.dtype, "float32");
  EXPECT_EQ(output.expected.dtype, "float64");
  EXPECT_EQ(output.form.shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(output.expected.strides, (std::vector<int64_t>{4, 1}));
  EXPECT_FALSE(output.exact);
  EXPECT_EQ(output.mismatches, 3);
  EXPECT_EQ(output.eager_mismatches, 2);
  EXPECT_EQ(output.unexplained, 1);
  EXPECT_FALSE(output.nonfinite_ok);
  EXPECT_EQ(output.nonfinite_mismatches, 7);
  EXPECT_EQ(output.ours.max, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(output.eager.max));
  EXPECT_EQ(output.sensitivity->max, 4e-6);
  EXPECT_EQ(output.rounding->norm, 5e-6);
  ASSERT_EQ(output.buckets.size(), 1u);
  EXPECT_EQ(output.buckets[0].count, 9);
  EXPECT_EQ(output.buckets[0].moved.rms, 5);
  EXPECT_EQ(output.buckets[0].left_out->values, 7);
  EXPECT_EQ(output.buckets[0].left_out->size, 0.5);
  EXPECT_EQ(output.facts.summands, 64);
  EXPECT_EQ(output.facts.underflow, 0.5);
  EXPECT_EQ(output.facts.elements, 32);
  EXPECT_EQ(output.worst.index, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(output.worst.ours, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(output.worst.reference, 1.5);
}

TEST(Figures, WhatIsOnlyThereWhereItWasNeededMayBeMissing) {
  Json json = reply();
  Json& row = json["draws"][0]["outputs"][0];
  for (const char* name : {"sensitivity", "rounding", "buckets", "unexplained", "summands", "underflow"})
    row.erase(name);
  for (const char* name : {"vacuous", "kernelbench_gate", "runs_original", "missing_protections", "seed"})
    json.erase(name);
  const Figures figures = figures_from_json(json);
  const OutputFigures& output = figures.draws[0].outputs.at(0);
  EXPECT_FALSE(output.sensitivity || output.rounding || output.unexplained);
  EXPECT_EQ(output.facts.summands, 1);
  EXPECT_TRUE(output.buckets.empty() && figures.trivial.empty());
  EXPECT_FALSE(figures.kernelbench_gate || figures.runs_original || figures.missing_protections || figures.seed);
}

TEST(Figures, WithoutWhatTheContractRestsOnAReplyIsRefused) {
  for (const char* name : {"draws", "checks"}) {
    Json json = reply();
    json.erase(name);
    EXPECT_THROW(figures_from_json(json), Error) << name;
  }
  for (const char* name : {"name", "dtype_ok", "shape_ok", "strides_ok", "device_ok", "exact", "mismatches",
                           "nonfinite_ok", "ours", "eager", "epsilon"}) {
    Json json = reply();
    json["draws"][0]["outputs"][0].erase(name);
    EXPECT_THROW(figures_from_json(json), Error) << name;
  }
}

TEST(Figures, AnyValueOfAnotherTypeIsReadOrRefusedInWords) {
  size_t values = 0;
  Json counted = reply();
  each_value(counted, [&](Json&) { ++values; });
  const std::vector<Json> others = {nullptr, true, -1, 0.5, "text", Json::array({1}), Json::object({{"a", 1}})};
  for (size_t place = 0; place < values; ++place)
    for (const Json& other : others) {
      Json json = reply();
      size_t at = 0;
      each_value(json, [&](Json& value) {
        if (at++ == place) value = other;
      });
      expect_answer(json, json.dump());
    }
}
