// Accuracy of vector_math.h against the C library in double precision, over every 211th float (20 million, all
// exponents and both signs), and special values. The bounds are those the header publishes for all 2^32 floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "emit/runtime/cpu/vector_math.h"

namespace {

using Loop = void (*)(const float*, float*, int);
using Reference = double (*)(double);

#define VECTOR_LOOP(name)                                                          \
  void name##_loop(const float* x, float* out, int count) {                        \
    _Pragma("omp simd") for (int i = 0; i < count; ++i) out[i] = name##_f32(x[i]); \
  }
// clang-format off
VECTOR_LOOP(exp)
VECTOR_LOOP(exp2)
VECTOR_LOOP(expm1)
VECTOR_LOOP(log)
VECTOR_LOOP(log2)
VECTOR_LOOP(log10)
VECTOR_LOOP(log1p)
VECTOR_LOOP(tanh)
VECTOR_LOOP(erf)
VECTOR_LOOP(sigmoid)
VECTOR_LOOP(sin)
VECTOR_LOOP(cos)
// clang-format on

struct Function {
  const char* name;
  Loop loop;
  Reference reference;
  double bound;
};

const Function kFunctions[] = {
    {"exp", exp_loop, std::exp, 0.98},
    {"exp2", exp2_loop, std::exp2, 0.87},
    {"expm1", expm1_loop, std::expm1, 1.44},
    {"log", log_loop, std::log, 0.89},
    {"log2", log2_loop, std::log2, 1.05},
    {"log10", log10_loop, std::log10, 1.27},
    {"log1p", log1p_loop, std::log1p, 1.63},
    {"tanh", tanh_loop, std::tanh, 1.40},
    {"erf", erf_loop, std::erf, 1.02},
    {"sigmoid", sigmoid_loop, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }, 1.97},
    {"sin", sin_loop, std::sin, 1.50},
    {"cos", cos_loop, std::cos, 1.50},
};

// Distance in units in the last place of the result; infinite where one is NaN, infinite or a zero of the other sign
// and the other is not.
double ulps(float got, double wanted) {
  const float rounded = static_cast<float>(wanted);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0.0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got) || wanted == 0.0)
    return rounded == got && std::signbit(rounded) == std::signbit(got) ? 0.0 : INFINITY;
  int exponent;
  std::frexp(wanted, &exponent);
  return std::fabs(got - wanted) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// What the header publishes holds with FMA; without, two units.
double bound_of(const Function& function) {
#ifdef __FMA__
  return function.bound;
#else
  return std::max(function.bound, 2.0);
#endif
}

class VectorMath : public testing::TestWithParam<Function> {};

void pow_loop(const float* x, const float* y, float* out, int count) {
#pragma omp simd
  for (int i = 0; i < count; ++i) out[i] = pow_f32(x[i], y[i]);
}

}  // namespace

TEST_P(VectorMath, StaysWithinItsBound) {
  const Function& function = GetParam();
  constexpr uint32_t kStride = 211;
  constexpr int kChunk = 4096;
  std::vector<float> x(kChunk), out(kChunk);
  double worst = 0.0;
  float worst_at = 0.0f;
  for (uint64_t start = 0; start < (1ull << 32); start += uint64_t{kChunk} * kStride) {
    int count = 0;
    for (; count < kChunk && start + uint64_t(count) * kStride < (1ull << 32); ++count) {
      const uint32_t bits = static_cast<uint32_t>(start + uint64_t(count) * kStride);
      std::memcpy(&x[count], &bits, sizeof bits);
    }
    function.loop(x.data(), out.data(), count);
    for (int i = 0; i < count; ++i) {
      const double error = ulps(out[i], function.reference(x[i]));
      if (error > worst) worst = error, worst_at = x[i];
    }
  }
  EXPECT_LE(worst, bound_of(function)) << "at " << worst_at;
}

TEST_P(VectorMath, KeepsSpecialValues) {
  const Function& function = GetParam();
  const std::vector<float> x = {0.0f,  -0.0f,  INFINITY, -INFINITY,      NAN,           1.0f,
                                -1.0f, 1e-45f, -1e-45f,  1.1754942e-38f, 3.4028235e38f, -3.4028235e38f};
  std::vector<float> out(x.size());
  function.loop(x.data(), out.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_LE(ulps(out[i], function.reference(x[i])), bound_of(function)) << x[i] << " gave " << out[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMath, testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(VectorMathPow, AgreesWithTheLibrary) {
  const float special[] = {0.0f,     -0.0f,       INFINITY,   -INFINITY,   NAN,         1.0f,      -1.0f,   0.5f,
                           -0.5f,    2.0f,        -2.0f,      3.0f,        -3.0f,       1e-40f,    -1e-40f, 3.4e38f,
                           -3.4e38f, 16777217.0f, 8388607.0f, -8388607.0f, 0.99999994f, 1.0000001f};
  for (float x : special)
    for (float y : special) {
      float out;
      pow_loop(&x, &y, &out, 1);
      EXPECT_LE(ulps(out, std::pow(double(x), double(y))), 0.51) << x << "^" << y;
    }
  std::mt19937_64 random(1);
  constexpr int kChunk = 4096;
  std::vector<float> x(kChunk), y(kChunk), out(kChunk);
  double worst = 0.0;
  for (int chunk = 0; chunk < 1000; ++chunk) {
    for (int i = 0; i < kChunk; ++i) {
      const uint64_t bits = random();
      const uint32_t low = static_cast<uint32_t>(bits) & 0x7fffffffu;
      std::memcpy(&x[i], &low, sizeof low);
      // An exponent that keeps the result in range, or nearly so.
      y[i] = static_cast<float>((static_cast<double>(bits >> 32) / 4294967296.0 * 290.0 - 150.0) /
                                std::log2(static_cast<double>(x[i])));
    }
    pow_loop(x.data(), y.data(), out.data(), kChunk);
    for (int i = 0; i < kChunk; ++i) worst = std::max(worst, ulps(out[i], std::pow(double(x[i]), double(y[i]))));
  }
  EXPECT_LE(worst, 0.51);
}

TEST(HalfPrecision, EveryFloat16ReadsBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = float_of_float16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE((bits & 0x7c00u) == 0x7c00u && (bits & 0x3ffu) != 0);
    } else {
      EXPECT_EQ(float16_of_float(value), bits);
    }
  }
}

TEST(HalfPrecision, RoundsToNearestEven) {
  EXPECT_EQ(float16_of_float(65504.0f), 0x7bff);
  EXPECT_EQ(float16_of_float(65519.996f), 0x7bff);
  EXPECT_EQ(float16_of_float(65520.0f), 0x7c00);
  EXPECT_EQ(float16_of_float(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float16_of_float(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(float16_of_float(0x1p-25f), 0x0000);
  EXPECT_EQ(float16_of_float(0x1.8p-24f), 0x0002);
  EXPECT_EQ(float16_of_float(-INFINITY), 0xfc00);
  EXPECT_EQ(bfloat16_of_float(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bfloat16_of_float(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(bfloat16_of_float(INFINITY), 0x7f80);
  EXPECT_EQ(bfloat16_of_float(3.4028235e38f), 0x7f80);
  EXPECT_TRUE(std::isnan(float_of_bfloat16(bfloat16_of_float(NAN))));
}
