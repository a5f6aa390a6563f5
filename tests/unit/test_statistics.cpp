#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "measure/roofline.hpp"
#include "measure/statistics.hpp"

using namespace kw;

namespace {

// Noise that is the same on every machine.
std::vector<double> noisy(double centre, size_t count, unsigned seed) {
  std::vector<double> samples;
  unsigned state = seed;
  for (size_t index = 0; index < count; ++index) {
    state = state * 1664525u + 1013904223u;
    samples.push_back(centre * (1.0 + 0.1 * (static_cast<double>(state >> 8) / (1u << 24) - 0.5)));
  }
  return samples;
}

}  // namespace

TEST(Statistics, MedianOfOddEvenAndNoSamples) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Statistics, MedianIntervalIsThatOfTheBinomialTables) {
  std::vector<double> samples;
  for (int value = 1; value <= 20; ++value) samples.push_back(value);
  // Conover, Practical Nonparametric Statistics: for n = 20 the 6th and the 15th order statistics.
  const Estimate estimate = median_estimate(samples);
  EXPECT_DOUBLE_EQ(estimate.value, 10.5);
  EXPECT_DOUBLE_EQ(estimate.low, 6);
  EXPECT_DOUBLE_EQ(estimate.high, 15);
  const Estimate few = median_estimate(std::vector<double>{5, 1, 3});
  EXPECT_DOUBLE_EQ(few.low, 1);
  EXPECT_DOUBLE_EQ(few.high, 5);
}

TEST(Statistics, ClearlyFasterAndSlowerAreSaidSo) {
  const std::vector<double> slow = noisy(2.0, 30, 1), fast = noisy(1.0, 30, 2);
  const Speedup up = speedup(slow, fast), down = speedup(fast, slow);
  EXPECT_EQ(up.difference, Difference::kFaster);
  EXPECT_EQ(down.difference, Difference::kSlower);
  EXPECT_NEAR(up.ratio.value, 2.0, 0.1);
  EXPECT_LT(up.ratio.low, up.ratio.value);
  EXPECT_GT(up.ratio.high, up.ratio.value);
  EXPECT_EQ(name_of(up.difference), "faster");
}

TEST(Statistics, NoDifferenceIsAVerdict) {
  const Speedup same = speedup(noisy(1.0, 40, 1), noisy(1.0, 40, 7));
  EXPECT_EQ(same.difference, Difference::kNone);
  EXPECT_LE(same.ratio.low, 1.0);
  EXPECT_GE(same.ratio.high, 1.0);
  EXPECT_EQ(to_json(same)["difference"], "no difference");
}

TEST(Statistics, ADriftThatBothShareCancels) {
  std::vector<double> baseline, ours;
  for (int round = 0; round < 30; ++round) {
    const double drift = 1.0 + 0.05 * round;
    baseline.push_back(1.1 * drift);
    ours.push_back(drift);
  }
  const Speedup paired = speedup(baseline, ours);
  EXPECT_EQ(paired.difference, Difference::kFaster);
  EXPECT_NEAR(paired.ratio.low, 1.1, 1e-9);
  EXPECT_NEAR(paired.ratio.high, 1.1, 1e-9);
}

TEST(Statistics, WhatOneKernelDiffersBetweenProcessesIsNoDifference) {
  const std::vector<double> ours = noisy(1.0, 200, 1);
  const auto times = [&](double factor) {
    std::vector<double> slower;
    for (const double sample : ours) slower.push_back(factor * sample);
    return slower;
  };
  EXPECT_EQ(speedup(times(1.02), ours).difference, Difference::kNone);
  EXPECT_EQ(speedup(ours, times(1.02)).difference, Difference::kNone);
  EXPECT_EQ(speedup(times(1.05), ours).difference, Difference::kFaster);
  EXPECT_EQ(speedup(ours, times(1.05)).difference, Difference::kSlower);
}

TEST(Statistics, EqualSamplesGiveEqualFigures) {
  const std::vector<double> baseline = noisy(2.0, 15, 3), ours = noisy(1.9, 17, 4);
  EXPECT_EQ(to_json(speedup(baseline, ours)), to_json(speedup(baseline, ours)));
}

TEST(Statistics, FewSamplesClaimNoMoreThanTheirExtremes) {
  const Speedup few = speedup(std::vector<double>{2, 2.2, 2.1}, std::vector<double>{1, 2.15, 1});
  EXPECT_DOUBLE_EQ(few.ratio.low, 2 / 2.15);
  EXPECT_DOUBLE_EQ(few.ratio.high, 2.2);
  EXPECT_EQ(few.difference, Difference::kNone);
}

TEST(Statistics, AKernelIsHardlyEverSaidToBeFasterThanItself) {
  for (const int count : {3, 6, 10, 30}) {
    int faster = 0;
    constexpr int kComparisons = 200;
    for (int number = 0; number < kComparisons; ++number)
      faster += speedup(noisy(1.0, count, 2 * number + 1), noisy(1.0, count, 2 * number + 2)).difference ==
                Difference::kFaster;
    EXPECT_LE(faster, 3) << count << " samples";
  }
}

TEST(Statistics, NoDifferenceSaysWhatCouldHaveBeenTold) {
  const Speedup same = speedup(noisy(1.0, 40, 1), noisy(1.0, 40, 7));
  const Speedup faster = speedup(noisy(1.0 + 3 * same.detectable, 40, 1), noisy(1.0, 40, 7));
  EXPECT_GT(same.detectable, 0.0);
  EXPECT_EQ(faster.difference, Difference::kFaster);
  EXPECT_EQ(to_json(same)["detectable"], same.detectable);
}

TEST(Statistics, SuiteFigures) {
  EXPECT_NEAR(geometric_mean(std::vector<double>{1, 4, 2}), 2, 1e-12);
  const std::vector<double> speedups = {0, 0.9, 1.2, 3};
  EXPECT_DOUBLE_EQ(fast_p(speedups, 0), 0.75);
  EXPECT_DOUBLE_EQ(fast_p(speedups, 1), 0.5);
  EXPECT_DOUBLE_EQ(fast_p(speedups, 5), 0);
}

namespace {

Ceilings device() {
  return ceilings_from_json({{"name", "device"},
                             {"copy_bytes_per_second", 1e12},
                             {"read_bytes_per_second", 1.2e12},
                             {"flops", {{"fp32", 5e13}, {"tf32", nullptr}}},
                             {"launch_seconds", 2e-6}});
}

}  // namespace

TEST(Roofline, TheSlowestOfMemoryProductsAndLaunchIsTheFloor) {
  const Roofline memory = roofline({5e8, 5e8, 1e9, "fp32"}, device(), 2.0);
  EXPECT_EQ(memory.limit, "memory");
  EXPECT_DOUBLE_EQ(memory.floor_ms, 1.0);
  EXPECT_DOUBLE_EQ(memory.share, 0.5);
  EXPECT_EQ(roofline({1e6, 1e6, 1e12, "fp32"}, device(), 30).limit, "compute");
  EXPECT_EQ(roofline({1e3, 1e3, 0, ""}, device(), 1).limit, "launch");
  EXPECT_DOUBLE_EQ(roofline({1.2e9, 0, 0, ""}, device(), 1).floor_ms, 1.0);
}

TEST(Roofline, ATimeUnderFourFifthsOfTheMemoryFloorIsToldWithItsFigures) {
  const Work work{6e9, 6e9, 1e15, "fp32"};
  EXPECT_FALSE(too_fast_to_be_true(work, device(), 0, 8.001));
  const auto told = too_fast_to_be_true(work, device(), 0, 7.9);
  ASSERT_TRUE(told);
  EXPECT_NE(told->find("too fast to be true"), std::string::npos);
  EXPECT_FALSE(too_fast_to_be_true(work, device(), 6e9, 5)) << "what the cache can hold does not count";
  EXPECT_FALSE(too_fast_to_be_true({1e6, 1e6, 0, ""}, device(), 6e9, 1e-6));
}

TEST(Roofline, CeilingsSurviveTheirJson) {
  EXPECT_EQ(to_json(ceilings_from_json(to_json(device()))), to_json(device()));
  EXPECT_EQ(device().flops_in("tf32"), 0);
  // In the worker's order, and nothing where it had nothing to say.
  for (const char* said : {R"({"name":"d","copy_bytes_per_second":1.5,"read_bytes_per_second":2.5,)"
                           R"("flops":{"fp32":3.5,"tf32":null,"bf16":4.5},"launch_seconds":1e-06,"threads":2})",
                           R"({"name":"d","launch_seconds":1e-06})"})
    EXPECT_EQ(to_json(ceilings_from_text(said).value()).dump(), said);
  const char* const calibrated = R"({"strided_bytes_per_second":1.5,"launch_seconds":1e-06,"synchronise_seconds":0.0})";
  EXPECT_EQ(to_json(calibration_from_text(calibrated).value()).dump(), calibrated) << "before long products were timed";
  const char* const whole = R"({"launch_seconds":1e-06,"synchronise_seconds":0.0,"sustained_share":0.86})";
  EXPECT_EQ(to_json(calibration_from_text(whole).value()).dump(), whole);
  EXPECT_FALSE(ceilings_from_text("[]") || calibration_from_text("no JSON"));
}
