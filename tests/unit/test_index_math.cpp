#include <gtest/gtest.h>

#include <random>

#include "kernel/digits.hpp"
#include "plan/index_math.hpp"

namespace kw::plan {
namespace {

using Ranges = std::vector<kernel::SymbolRange>;

Ranges ranges(const std::vector<int64_t>& extents) { return ranges_of_axes(extents); }

Index digit(int axis, int64_t divisor, int64_t modulus, const Ranges& ranges) {
  const Index quotient = kernel::floor_divide(kernel::symbol_index(axis), divisor, ranges);
  return modulus == 0 ? quotient : kernel::modulo(quotient, modulus, ranges);
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

TEST(IndexMath, DivisionReachesThroughTheOuterTerm) {
  const Ranges axes = ranges({6, 8});
  const Index position = add(axis_index(0, axes) * 8, axis_index(1, axes), axes);
  EXPECT_EQ(floor_divide(position, 8, axes), axis_index(0, axes));
  EXPECT_EQ(modulo(position, 8, axes), axis_index(1, axes));
}

TEST(IndexMath, DivisionSplitsAFlatAxisIntoDigits) {
  const Ranges axes = ranges({2 * 3 * 5});
  const auto coords = delinearise(axis_index(0, axes), {2, 3, 5}, axes);
  ASSERT_TRUE(coords);
  EXPECT_EQ((*coords)[0], digit(0, 15, 0, axes));
  EXPECT_EQ((*coords)[1], digit(0, 5, 3, axes));
  EXPECT_EQ((*coords)[2], digit(0, 1, 5, axes));
  EXPECT_EQ(linearise(*coords, {2, 3, 5}, axes), axis_index(0, axes));
}

TEST(IndexMath, DivisionReachesThroughARemainder) {
  const Ranges axes = ranges({8, 3, 5});
  const Index place = kernel::modulo(axis_index(1, axes) * 5 + axis_index(2, axes), 7, axes);  // 0 to 6
  const Index position = kernel::modulo(axis_index(0, axes) * 7 + place, 28, axes);
  const Index row = kernel::floor_divide(position, 7, axes);
  EXPECT_EQ(row, kernel::modulo(axis_index(0, axes), 4, axes));
  const Index cut = kernel::floor_divide(position, 14, axes);  // rows of 7 are cut in two: both divisions stay
  for_each_point({8, 3, 5}, [&](const std::vector<int64_t>& point) {
    EXPECT_EQ(kernel::evaluate(row, point), kernel::evaluate(position, point) / 7);
    EXPECT_EQ(kernel::evaluate(cut, point), kernel::evaluate(position, point) / 14);
  });
}

TEST(IndexMath, WhatTheFormCannotExpressIsRefused) {
  const Ranges axes = ranges({4, 6});
  const Index position = add(axis_index(0, axes) * 6, axis_index(1, axes), axes);
  EXPECT_FALSE(floor_divide(position, 8, axes));                        // 8 cuts across rows of 6
  EXPECT_FALSE(floor_divide(axis_index(1, axes) + Index(1), 3, axes));  // (a + 1) / 3 has no digit
}

TEST(IndexMath, ReshapeThroughAnotherShapeComesBack) {
  const Ranges axes = ranges({4, 6, 10});
  const Coords start = {axis_index(0, axes), axis_index(1, axes), axis_index(2, axes)};
  const auto there = reshape(start, {4, 6, 10}, {8, 3, 10}, axes);
  ASSERT_TRUE(there);
  const auto back = reshape(*there, {8, 3, 10}, {4, 6, 10}, axes);
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
    const Ranges axes = ranges(extents);
    const int choices[] = {1, 2, 3, 4, 6, 8, 12, 24, -1};
    std::vector<kernel::Digit> digits(static_cast<size_t>(pick(1, 3)));
    Index simple(pick(-3, 9));
    const int64_t constant = simple.constant;
    for (kernel::Digit& one : digits) {
      one = {pick(0, 2), choices[pick(0, 8)], pick(1, 4), pick(0, 1) ? pick(2, 6) : 0};
      simple = add(simple, digit(one.axis, one.divisor, one.modulus, axes) * one.coefficient, axes);
    }
    const int64_t divisor = choices[pick(0, 7)];
    const auto quotient = floor_divide(simple, divisor, axes);
    const auto remainder = modulo(simple, divisor, axes);
    EXPECT_EQ(quotient.has_value(), remainder.has_value());
    expressible += quotient.has_value();
    const Interval range = range_of(simple, axes);
    for_each_point(extents, [&](const std::vector<int64_t>& point) {
      int64_t value = constant;
      for (const kernel::Digit& one : digits) {
        const int64_t number = point[one.axis] / one.divisor;
        value += one.coefficient * (one.modulus == 0 ? number : number % one.modulus);
      }
      ASSERT_EQ(evaluate(simple, point), value);
      ASSERT_GE(value, range.low);
      ASSERT_LE(value, range.high);
      const int64_t floor = (value >= 0 ? value : value - divisor + 1) / divisor;
      if (!quotient) return;
      ASSERT_EQ(evaluate(*quotient, point), floor);
      ASSERT_EQ(evaluate(*remainder, point), value - floor * divisor);
    });
  }
  EXPECT_GT(expressible, 500);
}

TEST(IndexMath, SubstitutionAgreesWithEvaluation) {
  const std::vector<int64_t> old_extents = {3, 4, 5};
  const Ranges old = ranges(old_extents), axes = ranges({60});
  const Coords fused = {digit(0, 20, 0, axes), digit(0, 5, 4, axes), digit(0, 1, 5, axes)};
  const Index index = dot({axis_index(0, old), axis_index(1, old), axis_index(2, old), digit(1, 2, 0, old)},
                          {20, 5, 1, 3}, 7, old);
  const auto result = kernel::replace_digits(index, fused, axes);
  ASSERT_TRUE(result);
  for_each_point(old_extents, [&](const std::vector<int64_t>& point) {
    EXPECT_EQ(evaluate(*result, std::vector<int64_t>{point[0] * 20 + point[1] * 5 + point[2]}), evaluate(index, point));
  });
}

}  // namespace
}  // namespace kw::plan
