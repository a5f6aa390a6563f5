// Rounding, scalar operations and simple folds on single numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernel/scalar_values.hpp"

namespace kw::kernel {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Every value of a format of 8 or 16 bits, from its bits.
double decode(DType dtype, uint32_t bits) {
  struct Layout {
    int exponent, mantissa, bias;
  };
  const Layout layout = dtype == DType::f16      ? Layout{5, 10, 15}
                        : dtype == DType::bf16   ? Layout{8, 7, 127}
                        : dtype == DType::f8e5m2 ? Layout{5, 2, 15}
                                                 : Layout{4, 3, 7};
  const int total = layout.exponent + layout.mantissa;
  const uint32_t mantissa = bits & ((1u << layout.mantissa) - 1);
  const uint32_t exponent = (bits >> layout.mantissa) & ((1u << layout.exponent) - 1);
  const double sign = bits >> total & 1 ? -1 : 1;
  const bool top = exponent == (1u << layout.exponent) - 1;
  if (dtype == DType::f8e4m3fn) {
    if (top && mantissa == 7) return kNan;
  } else if (top) {
    return mantissa ? kNan : sign * kInf;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - layout.bias - layout.mantissa);
  return sign *
         std::ldexp(mantissa + (1u << layout.mantissa), static_cast<int>(exponent) - layout.bias - layout.mantissa);
}

class NarrowFloats : public testing::TestWithParam<DType> {};

// Values of the format stay; between two neighbours the nearest is taken, and the even one of two as near.
TEST_P(NarrowFloats, RoundToTheNearestWithTiesToEven) {
  const DType dtype = GetParam();
  const uint32_t count = 1u << (8 * size_of(dtype) - 1);  // those that are not negative
  int checked = 0;
  for (uint32_t bits = 0; bits + 1 < count; ++bits) {
    const double low = decode(dtype, bits), high = decode(dtype, bits + 1);
    if (std::isnan(low)) break;
    ASSERT_EQ(round_to(dtype, low), low);
    if (std::isnan(high) || std::isinf(high)) break;
    const double middle = (low + high) / 2, even = bits % 2 == 0 ? low : high;
    ASSERT_EQ(round_to(dtype, middle), even) << middle;
    ASSERT_EQ(round_to(dtype, -middle), -even) << middle;
    ASSERT_EQ(round_to(dtype, std::nextafter(middle, 0)), low);
    ASSERT_EQ(round_to(dtype, std::nextafter(middle, kInf)), high);
    ++checked;
  }
  EXPECT_GT(checked, 100);
  EXPECT_TRUE(std::isnan(round_to(dtype, kNan)));
  EXPECT_TRUE(std::signbit(round_to(dtype, -0.0)));
}

INSTANTIATE_TEST_SUITE_P(All, NarrowFloats, testing::Values(DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2));

TEST(Rounding, OverflowsAsPyTorchHasIt) {
  EXPECT_EQ(round_to(DType::f16, 65519.9), 65504);
  EXPECT_EQ(round_to(DType::f16, 65520), kInf);
  EXPECT_EQ(round_to(DType::f16, -1e9), -kInf);
  EXPECT_EQ(round_to(DType::bf16, 0x1.FEp127), 0x1.FEp127);
  EXPECT_EQ(round_to(DType::bf16, 0x1.FFp127), kInf);
  EXPECT_EQ(round_to(DType::f8e4m3fn, 1000), 448);
  EXPECT_EQ(round_to(DType::f8e4m3fn, -kInf), -448);
  EXPECT_EQ(round_to(DType::f8e5m2, 61439), 57344);
  EXPECT_EQ(round_to(DType::f8e5m2, 61440), kInf);
  EXPECT_EQ(round_to(DType::f32, 1e39), kInf);
  EXPECT_EQ(round_to(DType::f32, 1 + 0x1p-24), 1);
  EXPECT_EQ(round_to(DType::f32, 1 + 0x1p-24 + 0x1p-52), 1 + 0x1p-23);
  EXPECT_EQ(round_to(DType::f64, 0.1), 0.1);
}

// tf32 is f32 without its last 13 bits; halves go away from zero.
TEST(Rounding, BytesOfFloat8AreThoseThatTheyAreReadFrom) {
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2})
    for (uint32_t bits = 0; bits < 256; ++bits) {
      const double number = decode(dtype, bits);
      EXPECT_EQ(byte_of_float8(dtype, number), std::isnan(number) ? 0x7F : bits) << bits;
      if (!std::isfinite(number) || number == 0) continue;
      EXPECT_EQ(byte_of_float8(dtype, number * 1.01), bits) << number;
    }
  EXPECT_EQ(byte_of_float8(DType::f8e4m3fn, kInf), 0x7E);
  EXPECT_EQ(byte_of_float8(DType::f8e5m2, -1e9), 0xFC);
}

TEST(Rounding, Tf32KeepsElevenBits) {
  std::mt19937 random(7);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t bits = random();
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value) || std::isinf(value) || (bits >> 23 & 255) >= 254) continue;
    const uint32_t rounded = (bits + 0x1000) & ~0x1FFFu;
    ASSERT_EQ(round_to_tf32(value), std::bit_cast<float>(rounded)) << value;
  }
  EXPECT_EQ(round_to_tf32(1 + 0x1p-11), 1 + 0x1p-10);
  EXPECT_EQ(round_to_tf32(-1 - 0x1p-11), -1 - 0x1p-10);
  EXPECT_EQ(round_to_tf32(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(round_to_tf32(kNan)));
}

TEST(Rounding, WholeNumbersWrap) {
  EXPECT_EQ(wrap_to(DType::i8, 128), -128);
  EXPECT_EQ(wrap_to(DType::u8, -1), 255);
  EXPECT_EQ(wrap_to(DType::i16, 40000), 40000 - 65536);
  EXPECT_EQ(wrap_to(DType::i32, int64_t{1} << 31), INT32_MIN);
  EXPECT_EQ(wrap_to(DType::i64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(wrap_to(DType::b1, 2), 1);
}

double real(ScalarOp op, double a, double b = 0, double c = 0) {
  const Number operands[3] = {{a, 0}, {b, 0}, {c, 0}};
  return apply(op, DType::f64, DType::f64, operands).real;
}

int64_t whole(ScalarOp op, int64_t a, int64_t b = 0, DType dtype = DType::i64) {
  const Number operands[2] = {{0, a}, {0, b}};
  return wrap_to(dtype, apply(op, dtype, dtype, operands).whole);
}

bool predicate(ScalarOp op, double a, double b = 0) {
  const Number operands[2] = {{a, 0}, {b, 0}};
  return apply(op, DType::f32, DType::b1, operands).whole != 0;
}

using enum ScalarOp;

// The figures are PyTorch 2's.
TEST(Scalars, QuotientsOfReals) {
  EXPECT_EQ(real(kFloorDiv, -7, 2), -4);
  EXPECT_EQ(real(kFloorDiv, 7, 0), kInf);
  EXPECT_EQ(real(kFloorDiv, 1, kInf), 0);
  EXPECT_EQ(real(kFloorDiv, -1, kInf), -1);
  EXPECT_TRUE(std::isnan(real(kFloorDiv, kNan, 1)));
  EXPECT_EQ(real(kTruncDiv, -7, 2), -3);
  EXPECT_EQ(real(kRemainder, -7, 2), 1);
  EXPECT_EQ(real(kRemainder, 5, -3), -1);
  EXPECT_EQ(real(kRemainder, -1, kInf), kInf);
  EXPECT_TRUE(std::isnan(real(kRemainder, 7, 0)));
  EXPECT_EQ(real(kFmod, -7, 2), -1);
  EXPECT_EQ(real(kFmod, 5, -3), 2);
  EXPECT_EQ(real(kReciprocal, 4), 0.25);
  EXPECT_EQ(real(kReciprocal, -0.0), -kInf);
}

TEST(Scalars, QuotientsOfWholeNumbers) {
  for (const int64_t a : {-7, -6, -1, 0, 1, 6, 7})
    for (const int64_t b : {-3, -2, -1, 1, 2, 3}) {
      const int64_t down = static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      EXPECT_EQ(whole(kFloorDiv, a, b), down) << a << " / " << b;
      EXPECT_EQ(whole(kRemainder, a, b), a - down * b) << a << " % " << b;
      EXPECT_EQ(whole(kTruncDiv, a, b), a / b);
      EXPECT_EQ(whole(kFmod, a, b), a % b);
    }
  for (const ScalarOp op : {kFloorDiv, kTruncDiv, kRemainder, kFmod}) EXPECT_EQ(whole(op, 5, 0), 0);
  EXPECT_EQ(whole(kTruncDiv, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(whole(kRemainder, INT64_MIN, -1), 0);
}

TEST(Scalars, MinimaAndMaximaWithNan) {
  for (const ScalarOp op : {kMinimum, kMaximum}) {
    EXPECT_TRUE(std::isnan(real(op, kNan, 1)));
    EXPECT_TRUE(std::isnan(real(op, 1, kNan)));
  }
  EXPECT_EQ(real(kMinimum, 2, 1), 1);
  EXPECT_EQ(real(kMaximum, 2, 1), 2);
  EXPECT_EQ(real(kFmin, kNan, 1), 1);
  EXPECT_EQ(real(kFmax, 1, kNan), 1);
  EXPECT_TRUE(std::isnan(real(kFmax, kNan, kNan)));
  EXPECT_EQ(whole(kMinimum, -2, 1), -2);
  EXPECT_EQ(whole(kFmax, -2, 1), 1);
}

TEST(Scalars, RoundingOperations) {
  EXPECT_EQ(real(kRound, 2.5), 2);
  EXPECT_EQ(real(kRound, 3.5), 4);
  EXPECT_EQ(real(kRound, -0.5), 0);
  EXPECT_EQ(real(kFloor, -1.5), -2);
  EXPECT_EQ(real(kCeil, -1.5), -1);
  EXPECT_EQ(real(kTrunc, -1.5), -1);
  EXPECT_EQ(real(kSign, -3), -1);
  EXPECT_EQ(real(kSign, kNan), 0);
  EXPECT_EQ(real(kFma, 0x1p30 + 1, 0x1p30 - 1, -0x1p60), -1);
}

// Each against an identity, at points where it says something.
TEST(Scalars, TranscendentalOperationsAgreeWithEachOther) {
  for (const double x : {-0.9, -0.3, 0.2, 0.7}) {
    const auto same = [&](double left, double right) { EXPECT_NEAR(left, right, 1e-14) << x; };
    same(real(kLog, real(kExp, x)), x);
    same(real(kLog2, real(kExp2, x)), x);
    same(real(kLog10, std::pow(10, x)), x);
    same(real(kLog1p, real(kExpm1, x)), x);
    same(real(kAsin, real(kSin, x)), x);
    same(real(kAcos, real(kCos, x)), std::abs(x));
    same(real(kAtan, real(kTan, x)), x);
    same(real(kAtan2, std::sin(x), std::cos(x)), x);
    same(real(kAsinh, real(kSinh, x)), x);
    same(real(kAcosh, real(kCosh, x)), std::abs(x));
    same(real(kAtanh, real(kTanh, x)), x);
    same(real(kErf, x) + real(kErfc, x), 1);
    same(real(kSigmoid, x), (1 + std::tanh(x / 2)) / 2);
    same(real(kSqrt, x * x), std::abs(x));
    same(real(kRsqrt, x * x), 1 / std::abs(x));
    same(real(kPow, std::abs(x), 0.5), std::sqrt(std::abs(x)));
  }
  EXPECT_EQ(real(kErf, kInf), 1);
  EXPECT_EQ(real(kSigmoid, -1000), 0);
  EXPECT_TRUE(std::isnan(real(kSqrt, -1)));
}

TEST(Scalars, Predicates) {
  EXPECT_FALSE(predicate(kEqual, kNan, kNan));
  EXPECT_TRUE(predicate(kNotEqual, kNan, kNan));
  EXPECT_FALSE(predicate(kLessEqual, kNan, 1));
  EXPECT_TRUE(predicate(kLess, 1, 2));
  EXPECT_FALSE(predicate(kGreater, 2, 2));
  EXPECT_TRUE(predicate(kGreaterEqual, 2, 2));
  EXPECT_TRUE(predicate(kIsNan, kNan));
  EXPECT_FALSE(predicate(kIsNan, kInf));
  EXPECT_TRUE(predicate(kIsInf, -kInf));
  EXPECT_TRUE(predicate(kLogicalAnd, kNan, 0.5));
  EXPECT_FALSE(predicate(kLogicalAnd, 1, 0));
  EXPECT_TRUE(predicate(kLogicalOr, 0, 1));
  EXPECT_FALSE(predicate(kLogicalXor, 3, 1));
  EXPECT_TRUE(predicate(kLogicalNot, -0.0));
  const Number wide[2] = {{0, (int64_t{1} << 53) + 1}, {0, int64_t{1} << 53}};
  EXPECT_EQ(apply(kGreater, DType::i64, DType::b1, wide).whole, 1);  // not through double
}

TEST(Scalars, BitsAndShifts) {
  EXPECT_EQ(whole(kBitAnd, 12, 10), 8);
  EXPECT_EQ(whole(kBitOr, 12, 10), 14);
  EXPECT_EQ(whole(kBitXor, 12, 10), 6);
  EXPECT_EQ(whole(kBitNot, 0), -1);
  EXPECT_EQ(whole(kBitNot, 0, 0, DType::u8), 255);
  EXPECT_EQ(whole(kBitNot, 1, 0, DType::b1), 0);
  EXPECT_EQ(whole(kShiftLeft, 5, 64), 0);
  EXPECT_EQ(whole(kShiftLeft, 5, -1), 0);
  EXPECT_EQ(whole(kShiftLeft, 1, 31, DType::i32), INT32_MIN);
  EXPECT_EQ(whole(kShiftRight, -5, 70), -1);
  EXPECT_EQ(whole(kShiftRight, 5, -1), 0);
  EXPECT_EQ(whole(kShiftRight, -8, 1), -4);
}

TEST(Scalars, WholeArithmeticWraps) {
  EXPECT_EQ(whole(kAdd, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(whole(kSub, INT64_MIN, 1), INT64_MAX);
  EXPECT_EQ(whole(kMul, 200, 2, DType::u8), 144);
  EXPECT_EQ(whole(kNeg, INT64_MIN), INT64_MIN);
  EXPECT_EQ(whole(kAbs, -5), 5);
  EXPECT_EQ(whole(kPow, 3, 40), -6289078614652622815);
  EXPECT_EQ(whole(kPow, -1, -3), -1);
  EXPECT_EQ(whole(kPow, 2, -1), 0);
}

TEST(Scalars, SelectBoundedAndCast) {
  const Number choice[3] = {{0, 1}, {2.5, 0}, {3.5, 0}}, other[3] = {{0, 0}, {2.5, 0}, {3.5, 0}};
  EXPECT_EQ(apply(kSelect, DType::f32, DType::f32, choice).real, 2.5);
  EXPECT_EQ(apply(kSelect, DType::f32, DType::f32, other).real, 3.5);
  const Number index[2] = {{0, 7}, {0, 4}};
  EXPECT_EQ(apply(kBounded, DType::i64, DType::i64, index).whole, 7);
  const auto to_whole = [](double value, DType dtype) {
    const Number number{value, 0};
    return wrap_to(dtype, apply(kCast, DType::f32, dtype, &number).whole);
  };
  EXPECT_EQ(to_whole(-3.9, DType::i32), -3);
  EXPECT_EQ(to_whole(300, DType::u8), 44);
  EXPECT_EQ(to_whole(-1, DType::u8), 255);
  EXPECT_EQ(to_whole(kNan, DType::b1), 1);
  EXPECT_EQ(to_whole(0.5, DType::b1), 1);
  EXPECT_EQ(to_whole(kInf, DType::i64), INT64_MAX);
  const Number large{0, 3};
  EXPECT_EQ(apply(kCast, DType::i64, DType::f16, &large).real, 3.0);
  EXPECT_EQ(apply(kCast, DType::i64, DType::b1, &large).whole, 1);
}

TEST(Folds, BeginWithWhatChangesNothing) {
  for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const DType dtype : {DType::f32, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
      const Number seven{7, 7}, kept = fold(reduce, dtype, identity(reduce, dtype), seven);
      EXPECT_EQ(is_real(dtype) ? kept.real : static_cast<double>(wrap_to(dtype, kept.whole)), 7)
          << name_of(reduce) << kw::name_of(dtype);
      const Number first = identity(reduce, dtype);
      if (!is_real(dtype)) { EXPECT_EQ(wrap_to(dtype, first.whole), first.whole); }
    }
  }
  for (const int64_t value : {0, 1}) {
    EXPECT_EQ(fold(ReduceOp::kAny, DType::b1, identity(ReduceOp::kAny, DType::b1), {0, value}).whole, value);
    EXPECT_EQ(fold(ReduceOp::kAll, DType::b1, identity(ReduceOp::kAll, DType::b1), {0, value}).whole, value);
  }
  EXPECT_TRUE(std::isnan(fold(ReduceOp::kMax, DType::f32, {kNan, 0}, {1, 0}).real));
}

}  // namespace
}  // namespace kw::kernel
