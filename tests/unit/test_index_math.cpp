#include <gtest/gtest.h>

#include <random>

#include "plan/index_math.hpp"

namespace kw::plan {
namespace {

int64_t evaluate(const Index& index, const std::vector<int64_t>& point) {
  int64_t sum = index.constant;
  for (const auto& term : index.terms) {
    int64_t value = point[term.axis] / term.divisor;
    if (term.modulus) value %= term.modulus;
    sum += term.coefficient * value;
  }
  return sum;
}

template <typename Visit>
void for_each_point(const std::vector<int64_t>& extents, Visit&& visit) {
  std::vector<int64_t> point(extents.size(), 0);
  while (true) {
    visit(point);
    size_t axis = extents.size();
    while (axis > 0 && ++point[axis - 1] == extents[axis - 1]) point[--axis] = 0;
    if (axis == 0) return;
  }
}

Index axis(int id, Extents extents) { return axis_index(id, extents); }

TEST(IndexMath, DivisionReachesThroughTheOuterTerm) {
  const std::vector<int64_t> extents = {6, 8};
  const Index position = add(scale(axis(0, extents), 8, extents), axis(1, extents), extents);
  EXPECT_EQ(floor_divide(position, 8, extents), axis(0, extents));
  EXPECT_EQ(modulo(position, 8, extents), axis(1, extents));
}

TEST(IndexMath, DivisionSplitsAFlatAxisIntoDigits) {
  const std::vector<int64_t> extents = {2 * 3 * 5};
  const auto coords = delinearise(axis(0, extents), {2, 3, 5}, extents);
  ASSERT_TRUE(coords);
  EXPECT_EQ((*coords)[0], (Index{0, {{0, 1, 15, 0}}}));
  EXPECT_EQ((*coords)[1], (Index{0, {{0, 1, 5, 3}}}));
  EXPECT_EQ((*coords)[2], (Index{0, {{0, 1, 1, 5}}}));
  EXPECT_EQ(linearise(*coords, {2, 3, 5}, extents), axis(0, extents));
}

TEST(IndexMath, WhatTheFormCannotExpressIsRefused) {
  const std::vector<int64_t> extents = {4, 6};
  const Index position = add(scale(axis(0, extents), 6, extents), axis(1, extents), extents);
  EXPECT_FALSE(floor_divide(position, 8, extents));  // 8 cuts across rows of 6
  Index shifted = axis(1, extents);
  shifted.constant = 1;
  EXPECT_FALSE(floor_divide(shifted, 3, extents));  // (a + 1) / 3 has no term
}

TEST(IndexMath, ReshapeThroughAnotherShapeComesBack) {
  const std::vector<int64_t> extents = {4, 6, 10};
  const Coords start = {axis(0, extents), axis(1, extents), axis(2, extents)};
  const auto there = reshape(start, {4, 6, 10}, {8, 3, 10}, extents);
  ASSERT_TRUE(there);
  const auto back = reshape(*there, {8, 3, 10}, {4, 6, 10}, extents);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, start);
}

// Whatever the algebra answers agrees with evaluating the index at every point.
TEST(IndexMath, RandomDivisionsAgreeWithEvaluation) {
  std::mt19937 random(7);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int expressible = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const std::vector<int64_t> extents = {pick(1, 6), pick(1, 12), pick(1, 9)};
    Index index{pick(-3, 9), {}};
    const int choices[] = {1, 2, 3, 4, 6, 8, 12, 24, -1};
    for (int term = pick(1, 3); term > 0; --term)
      index.terms.push_back({pick(0, 2), choices[pick(0, 8)], pick(1, 4), pick(0, 1) ? pick(2, 6) : 0});
    const Index simple = normalise(index, extents);
    const int64_t divisor = choices[pick(0, 7)];
    const auto quotient = floor_divide(simple, divisor, extents);
    const auto remainder = modulo(simple, divisor, extents);
    EXPECT_EQ(quotient.has_value(), remainder.has_value());
    expressible += quotient.has_value();
    const Range range = range_of(simple, extents);
    for_each_point(extents, [&](const std::vector<int64_t>& point) {
      const int64_t value = evaluate(index, point);
      ASSERT_EQ(evaluate(simple, point), value);
      ASSERT_GE(value, range.low);
      ASSERT_LE(value, range.high);
      if (!quotient) return;
      const int64_t floor = (value >= 0 ? value : value - divisor + 1) / divisor;
      ASSERT_EQ(evaluate(*quotient, point), floor);
      ASSERT_EQ(evaluate(*remainder, point), value - floor * divisor);
    });
  }
  EXPECT_GT(expressible, 500);
}

TEST(IndexMath, SubstitutionAgreesWithEvaluation) {
  const std::vector<int64_t> old_extents = {3, 4, 5}, extents = {60};
  const Coords fused = {{0, {{0, 1, 20, 0}}}, {0, {{0, 1, 5, 4}}}, {0, {{0, 1, 1, 5}}}};
  const Index index = normalise({7, {{0, 20, 1, 0}, {1, 5, 1, 0}, {2, 1, 1, 0}, {1, 3, 2, 0}}}, old_extents);
  const auto result = substitute(index, fused, extents);
  ASSERT_TRUE(result);
  for_each_point(old_extents, [&](const std::vector<int64_t>& point) {
    EXPECT_EQ(evaluate(*result, {point[0] * 20 + point[1] * 5 + point[2]}), evaluate(index, point));
  });
}

}  // namespace
}  // namespace kw::plan
