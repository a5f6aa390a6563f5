// Accurate, branch-free scalar math that compilers vectorise in `#pragma omp simd` loops (AVX2, AVX-512, NEON) without
// -ffast-math. This file is text to kernels: helper_sections.cpp cuts it at the markers, and a kernel gets the sections
// it calls.
//   //@ NAME [: sections it needs, each defined further up]
//
// Largest error over all 2^32 floats, in units in the last place against the exact result; subnormal results and those
// near overflow count like any other, NaN, infinities and signs of zero are right. With FMA (without: below 2);
// tests/unit/test_vector_math.cpp repeats a dense sample.
//   exp 0.98   exp2 0.87   expm1 1.44   log 0.89   log2 1.05   log10 1.27   log1p 1.63
//   tanh 1.40  erf 1.02    sigmoid 1.97 sin 1.50   cos 1.50    pow 0.51 (20 million random pairs in range)
// Polynomials are minimax fits, their coefficients rounded to float one after the other.
//@ inline
#define INLINE inline __attribute__((always_inline))
//@ bits : inline
INLINE float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
//@ bits64 : inline
INLINE double double_of_bits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE uint64_t bits_of_double(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
//@ multiply_add : inline
// a·b + c, rounded once where the processor can do so at full speed.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
INLINE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE float multiply_add(float a, float b, float c) { return a * b + c; }
INLINE double multiply_add(double a, double b, double c) { return a * b + c; }
#endif
//@ round_and_scale : bits
// Adding kRoundToInteger leaves the nearest integer n, plus 254, in the low bits of a float; subtracting it again
// leaves n.
static constexpr float kRoundToInteger = 12582912.0f + 254.0f;  // 1.5·2^23 + 254

// value · 2^n for -252 <= n <= 254, where `shifted` is n + kRoundToInteger: two factors, so that neither overflows and
// a subnormal result is rounded once. Their exponents' biases are the 254.
INLINE float scale_by_power_of_two(float value, float shifted) {
  const uint32_t bits = bits_of_float(shifted);
  const uint32_t half = bits >> 1;
  return value * float_of_bits(half << 23) * float_of_bits((bits - half) << 23);
}
//@ exp_terms : bits multiply_add round_and_scale
// e^x = 2^n · (1 + r + p · r²), with shifted = n + kRoundToInteger and |r| <= ln(2)/2.
struct ExpTerms {
  float r, p, shifted;
};

// e^x = 2^n · mantissa.
struct ExpParts {
  float mantissa, shifted;
};

INLINE ExpTerms exp_terms(float x) {
  const float shifted = multiply_add(x, 1.44269504f, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  float r = multiply_add(n, -0.693145752f, x);
  r = multiply_add(n, -1.42860677e-06f, r);
  float p = 1.97426949e-04f;
  p = multiply_add(p, r, 1.39359338e-03f);
  p = multiply_add(p, r, 8.33356939e-03f);
  p = multiply_add(p, r, 4.16664556e-02f);
  p = multiply_add(p, r, 1.66666657e-01f);
  p = multiply_add(p, r, 0.5f);
  return {r, p, shifted};
}
//@ exp_parts : exp_terms
INLINE ExpParts exp_parts(float x) {
  const ExpTerms terms = exp_terms(x);
  const float sum = 1.0f + terms.r;
  const float lost = terms.r - (sum - 1.0f);
  return {sum + multiply_add(terms.p, terms.r * terms.r, lost), terms.shifted};
}
//@ quick_exp_parts : exp_terms
// Three instructions less, a fifth of a unit less exact.
INLINE ExpParts quick_exp_parts(float x) {
  const ExpTerms terms = exp_terms(x);
  return {multiply_add(terms.p, terms.r * terms.r, terms.r) + 1.0f, terms.shifted};
}
//@ exp : quick_exp_parts
// Clamped one bound after the other, which are two instructions.
INLINE float exp_f32(float x) {
  const float from_below = x < -104.0f ? -104.0f : x;
  const ExpParts parts = quick_exp_parts(from_below > 89.0f ? 89.0f : from_below);
  return scale_by_power_of_two(parts.mantissa, parts.shifted);
}
//@ exp_in_range : exp_parts
// e^x for |x| <= 87, where neither overflow nor subnormals need care.
INLINE float exp_in_range(float x) {
  const ExpParts parts = exp_parts(x);
  return parts.mantissa * float_of_bits((bits_of_float(parts.shifted) - 127u) << 23);
}
//@ exp2 : bits multiply_add round_and_scale
INLINE float exp2_f32(float x) {
  const float clamped = x < -151.0f ? -151.0f : (x > 129.0f ? 129.0f : x);
  const float shifted = clamped + kRoundToInteger;
  const float r = clamped - (shifted - kRoundToInteger);
  float p = 1.44514643e-05f;
  p = multiply_add(p, r, 1.54532565e-04f);
  p = multiply_add(p, r, 1.33375078e-03f);
  p = multiply_add(p, r, 9.61808488e-03f);
  p = multiply_add(p, r, 5.55040538e-02f);
  p = multiply_add(p, r, 2.40226507e-01f);
  p = multiply_add(p, r, 6.93147182e-01f);
  p = multiply_add(p, r, 1.0f);
  return scale_by_power_of_two(p, shifted);
}
//@ expm1 : bits multiply_add round_and_scale
// e^x - 1 = 2^n · (e^r - 1) + (2^n - 1).
INLINE float expm1_f32(float x) {
  const float clamped = x < -18.0f ? -18.0f : (x > 89.0f ? 89.0f : x);
  const float shifted = multiply_add(clamped, 1.44269504f, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  float r = multiply_add(n, -0.693145752f, clamped);
  r = multiply_add(n, -1.42860677e-06f, r);
  float p = 1.97677509e-04f;
  p = multiply_add(p, r, 1.39332283e-03f);
  p = multiply_add(p, r, 8.33354052e-03f);
  p = multiply_add(p, r, 4.16664854e-02f);
  p = multiply_add(p, r, 1.66666657e-01f);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p, r * r, r);
  // Half of 2^n, since 2^128 is infinite. n = 0 keeps -0 and subnormals.
  const float half_scale = float_of_bits((bits_of_float(shifted) - bits_of_float(kRoundToInteger) + 126u) << 23);
  const float scaled = 2.0f * multiply_add(half_scale, p, half_scale - 0.5f);
  return n == 0.0f ? (x == 0.0f ? x : p) : scaled;
}
//@ log_parts : bits multiply_add
// x = 2^exponent · (1 + fraction) with 2/3 <= 1 + fraction < 4/3, and log(1 + fraction) = fraction + tail. For finite x
// > 0.
struct LogParts {
  float exponent, fraction, tail;
};

INLINE float log_tail(float f) {
  float p = 1.19557656e-01f;
  p = multiply_add(p, f, -1.28335238e-01f);
  p = multiply_add(p, f, 1.07702434e-01f);
  p = multiply_add(p, f, -1.21985979e-01f);
  p = multiply_add(p, f, 1.43026605e-01f);
  p = multiply_add(p, f, -1.66793585e-01f);
  p = multiply_add(p, f, 1.99996829e-01f);
  p = multiply_add(p, f, -2.49998257e-01f);
  p = multiply_add(p, f, 3.33333343e-01f);
  p = multiply_add(p, f, -0.5f);
  return f * f * p;
}

INLINE LogParts log_parts(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const uint32_t bits = bits_of_float(subnormal ? x * 8388608.0f : x) - 0x3f2aaaabu;
  const float exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (subnormal ? 23.0f : 0.0f);
  const float fraction = float_of_bits((bits & 0x007fffffu) + 0x3f2aaaabu) - 1.0f;
  return {exponent, fraction, log_tail(fraction)};
}
//@ log_limits : inline
// `finite` where x is finite and positive, else the logarithm's limit: log(0) = -inf, log(inf) = inf, NaN below 0.
INLINE float with_log_limits(float x, float finite) {
  const float limit = x == 0.0f ? -__builtin_inff() : (x < 0.0f ? __builtin_nanf("") : x);
  return x > 0.0f && x < __builtin_inff() ? finite : limit;
}
//@ log : log_parts log_limits
INLINE float log_f32(float x) {
  const LogParts parts = log_parts(x);
  const float low = multiply_add(parts.exponent, 1.42860677e-06f, parts.tail);
  return with_log_limits(x, multiply_add(parts.exponent, 0.693145752f, parts.fraction + low));
}
//@ log_of_base : log_parts log_limits
// exponent · (exponent_high + exponent_low) + log(1 + fraction) · (factor_high + factor_low), with the leading product
// and sum kept to twice the precision.
INLINE float log_of_base(float x, float exponent_high, float exponent_low, float factor_high, float factor_low) {
  const LogParts parts = log_parts(x);
  const float product = parts.fraction * factor_high;
  const float product_error = multiply_add(parts.fraction, factor_high, -product);
  const float high = parts.exponent * exponent_high;
  const float sum = high + product;
  const float sum_error = parts.exponent == 0.0f ? 0.0f : product - (sum - high);
  float low = multiply_add(parts.tail, factor_high, product_error);
  low = multiply_add(parts.fraction, factor_low, low);
  low = multiply_add(parts.exponent, exponent_low, low + sum_error);
  return with_log_limits(x, sum + low);
}
//@ log2 : log_of_base
INLINE float log2_f32(float x) { return log_of_base(x, 1.0f, 0.0f, 1.44269502f, 1.92596303e-08f); }
//@ log10 : log_of_base
INLINE float log10_f32(float x) {
  return log_of_base(x, 0.301025391f, 4.60503907e-06f, 0.434294492f, -1.01030298e-08f);
}
//@ log1p : log_parts log_limits
// log(u) with u = 1 + x rounded, and what the rounding lost put back into the fraction.
INLINE float log1p_f32(float x) {
  const float u = 1.0f + x;
  const float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  const uint32_t bits = bits_of_float(u) - 0x3f2aaaabu;
  const int32_t exponent = static_cast<int32_t>(bits) >> 23;
  const float unscale = float_of_bits(static_cast<uint32_t>(127 - (exponent > 126 ? 126 : exponent)) << 23);
  const float fraction = multiply_add(lost, unscale, float_of_bits((bits & 0x007fffffu) + 0x3f2aaaabu) - 1.0f);
  const float low = multiply_add(static_cast<float>(exponent), 1.42860677e-06f, log_tail(fraction));
  const float finite = multiply_add(static_cast<float>(exponent), 0.693145752f, fraction + low);
  return x == 0.0f ? x : with_log_limits(u, finite);
}
//@ tanh : exp_in_range
INLINE float tanh_f32(float x) {
  const float magnitude = __builtin_fabsf(x);
  const float square = x * x;
  float p = 2.18521710e-03f;
  p = multiply_add(p, square, -8.22141953e-03f);
  p = multiply_add(p, square, 2.17176620e-02f);
  p = multiply_add(p, square, -5.39497100e-02f);
  p = multiply_add(p, square, 1.33332282e-01f);
  p = multiply_add(p, square, -3.33333313e-01f);
  const float near_zero = multiply_add(p * square, magnitude, magnitude);
  const float bounded = magnitude > 10.0f ? 10.0f : magnitude;
  const float far = 1.0f - 2.0f / (exp_in_range(2.0f * bounded) + 1.0f);
  return __builtin_copysignf(magnitude < 0.6f ? near_zero : far, x);
}
//@ sigmoid : quick_exp_parts
// 1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below: neither overflows. The exponential is at most 1: one factor of 2^(n
// + 64), then 2^-64. What rounding the denominator lost is put back.
INLINE float sigmoid_f32(float x) {
  const float magnitude = -__builtin_fabsf(x);
  const ExpParts parts = quick_exp_parts(magnitude < -104.0f ? -104.0f : magnitude);
  const float decay = parts.mantissa * float_of_bits((bits_of_float(parts.shifted) - 63u) << 23) * 0x1p-64f;
  const float denominator = 1.0f + decay;
  const float lost = decay - (denominator - 1.0f);
  const float quotient = (x < 0.0f ? decay : 1.0f) / denominator;
  const float inverse = multiply_add(denominator, -0.5f, 1.5f);  // of the denominator, which is in [1, 2]: good to an
                                                                 // eighth
  return multiply_add(-quotient * lost, inverse, quotient);
}
//@ erf : exp_in_range
// Near zero an odd polynomial; beyond it 1 - e^(-x - x·q(x)).
INLINE float erf_f32(float x) {
  const float magnitude = __builtin_fabsf(x);
  const float square = x * x;
  float p = 7.99731715e-05f;
  p = multiply_add(p, square, -8.04990472e-04f);
  p = multiply_add(p, square, 5.19241393e-03f);
  p = multiply_add(p, square, -2.68557332e-02f);
  p = multiply_add(p, square, 1.12836257e-01f);
  p = multiply_add(p, square, -3.76126289e-01f);
  p = multiply_add(p, square, 1.28379166e-01f);
  const float near_zero = multiply_add(p, x, x);
  const float t = magnitude > 4.0f ? 4.0f : magnitude;
  float q = 1.12309435e-05f;
  q = multiply_add(q, t, -3.22803331e-04f);
  q = multiply_add(q, t, 3.64246778e-03f);
  q = multiply_add(q, t, -2.37621013e-02f);
  q = multiply_add(q, t, 1.06236942e-01f);
  q = multiply_add(q, t, 6.35151267e-01f);
  q = multiply_add(q, t, 1.28648505e-01f);
  const float far = 1.0f - exp_in_range(-multiply_add(q, t, t));
  return magnitude < 0.93f ? near_zero : __builtin_copysignf(far, x);
}
//@ reduce_angle : bits bits64 multiply_add
// magnitude = quadrant · π/2 + angle with |angle| <= π/4.
struct ReducedAngle {
  float angle;
  uint32_t quadrant;
};

// Below 2^20 π/2 is subtracted in two parts, the first of 33 bits so that its multiple is exact (Cody and Waite).
// Above, the bits of 2/π that matter for the argument's exponent are multiplied in fixed point (Payne and Hanek). They
// are shifted out of 64-bit words, 24 zeros in front: a table of them would be gathered from, which took longer than
// all the rest.
constexpr uint64_t kTwoOverPi[4] = {0x000000a2f9836e4e, 0x441529fc2757d1f5, 0x34ddc0db6295993c, 0x439041fe5163abde};

INLINE ReducedAngle reduce_angle(float magnitude) {
  const double kRoundToInteger = 6755399441055744.0;  // 1.5·2^52
  const double x = magnitude;
  const double shifted = multiply_add(x, 0x1.45f306dc9c883p-1, kRoundToInteger);
  const double n = shifted - kRoundToInteger;
  const double small_angle = multiply_add(n, -0x1.0b4611a626331p-34, multiply_add(n, -0x1.921fb54400000p+0, x));

  const uint32_t bits = bits_of_float(magnitude);
  const uint64_t mantissa = static_cast<uint64_t>(((bits & 0x007fffffu) | 0x00800000u) << ((bits >> 23) & 7u));
  const uint64_t skipped = (bits >> 23) & 56u;  // bits of the first word that weigh whole turns
  const bool later = (bits >> 29) & 1u;
  const uint64_t first = later ? kTwoOverPi[1] : kTwoOverPi[0];
  const uint64_t second = later ? kTwoOverPi[2] : kTwoOverPi[1];
  const uint64_t third = later ? kTwoOverPi[3] : kTwoOverPi[2];
  const uint64_t leading = first << skipped | second >> 1 >> (63u - skipped);
  const uint64_t trailing = (second << skipped | third >> 1 >> (63u - skipped)) >> 32;
  const uint64_t fixed = mantissa * leading + (mantissa * trailing >> 32);
  const uint64_t quarter = (fixed + (1ull << 61)) >> 62;
  const uint64_t rest = fixed - (quarter << 62);
  const int32_t low_word = static_cast<int32_t>(static_cast<uint32_t>(rest));
  const int32_t high_word = static_cast<int32_t>(
      static_cast<uint32_t>((rest - static_cast<uint64_t>(static_cast<int64_t>(low_word))) >> 32));
  const double large_angle = (high_word * 4294967296.0 + low_word) * 0x1.921fb54442d18p-62;

  const bool small = magnitude < 1048576.0f;
  return {static_cast<float>(small ? small_angle : large_angle),
          static_cast<uint32_t>(small ? bits_of_double(shifted) : quarter) & 3u};
}
//@ sine_cosine : reduce_angle
// sin(angle + quadrant · π/2), NaN where x is not finite.
INLINE float sine_of_reduced(float angle, uint32_t quadrant, float x) {
  const float square = angle * angle;
  float s = 2.83280610e-06f;
  s = multiply_add(s, square, -1.98530790e-04f);
  s = multiply_add(s, square, 8.33337940e-03f);
  s = multiply_add(s, square, -1.66666672e-01f);
  const float sine = multiply_add(s * square, angle, angle);
  float c = 2.44323383e-05f;
  c = multiply_add(c, square, -1.38873095e-03f);
  c = multiply_add(c, square, 4.16666456e-02f);
  c = multiply_add(c, square, -0.5f);
  const float cosine = multiply_add(c, square, 1.0f);
  const float value = (quadrant & 1u) != 0 ? cosine : sine;
  const float finite = float_of_bits(bits_of_float(value) ^ ((quadrant & 2u) << 30));
  return __builtin_fabsf(x) < __builtin_inff() ? finite : __builtin_nanf("");
}
//@ sin : sine_cosine
INLINE float sin_f32(float x) {
  const ReducedAngle reduced = reduce_angle(__builtin_fabsf(x));
  const float value = sine_of_reduced(reduced.angle, reduced.quadrant, x);
  return float_of_bits(bits_of_float(value) ^ (bits_of_float(x) & 0x80000000u));
}
//@ cos : sine_cosine
INLINE float cos_f32(float x) {
  const ReducedAngle reduced = reduce_angle(__builtin_fabsf(x));
  return sine_of_reduced(reduced.angle, reduced.quadrant + 1u, x);
}
//@ pow : bits bits64 multiply_add
// 2^(y · log2|x|) in double precision; the sign of x returns for odd y. Special cases as in C.
INLINE float pow_f32(float x, float y) {
  const float magnitude = __builtin_fabsf(x);
  const bool subnormal = magnitude < 1.17549435e-38f;
  const uint32_t bits = bits_of_float(subnormal ? magnitude * 8388608.0f : magnitude) - 0x3f3504f3u;
  const int32_t x_exponent = (static_cast<int32_t>(bits) >> 23) - (subnormal ? 23 : 0);
  const double mantissa = float_of_bits((bits & 0x007fffffu) + 0x3f3504f3u);
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  double p = 0x1.21bd700d5adcbp-2;
  p = multiply_add(p, square, 0x1.47947f2374683p-2);
  p = multiply_add(p, square, 0x1.a61a33c7508ffp-2);
  p = multiply_add(p, square, 0x1.2776c28d4d5e1p-1);
  p = multiply_add(p, square, 0x1.ec709dc5412e9p-1);
  p = multiply_add(p, square, 0x1.71547652b824fp+1);
  const double log2_x = multiply_add(p, s, static_cast<double>(x_exponent));

  const double kRoundToInteger = 6755399441055744.0;
  const double product = y * log2_x;
  const double clamped = product < -200.0 ? -200.0 : (product > 200.0 ? 200.0 : product);
  const double shifted = clamped + kRoundToInteger;
  const double r = clamped - (shifted - kRoundToInteger);
  double q = 0x1.00f1aeac0938dp-16;
  q = multiply_add(q, r, 0x1.445f1b14e16b2p-13);
  q = multiply_add(q, r, 0x1.5d8722deec31bp-10);
  q = multiply_add(q, r, 0x1.3b29f030aa32bp-7);
  q = multiply_add(q, r, 0x1.c6b08df515145p-5);
  q = multiply_add(q, r, 0x1.ebfbe07b84735p-3);
  q = multiply_add(q, r, 0x1.62e42fef7b185p-1);
  q = multiply_add(q, r, 1.0);
  const double scale = double_of_bits((bits_of_double(shifted) + 1023u) << 52);
  const float finite = static_cast<float>(q * scale);

  // What depends on y alone stays in floats and bit masks: GCC does not vectorise a loop around conditions that do not
  // vary in it.
  const float infinity = __builtin_inff();
  const float half_y = 0.5f * y;
  const uint32_t odd = static_cast<uint32_t>(__builtin_truncf(y) == y) &
                       static_cast<uint32_t>(__builtin_truncf(half_y) != half_y);
  const float of_zero = y > 0.0f ? 0.0f : infinity;
  const float of_infinity = y > 0.0f ? infinity : 0.0f;
  const float of_negative = __builtin_truncf(y) == y ? 0.0f : __builtin_nanf("");
  const float nan_of_y = y != y ? y : 0.0f;
  float result = magnitude == 1.0f ? 1.0f : finite;
  result = magnitude == 0.0f ? of_zero : (magnitude == infinity ? of_infinity : result);
  result = (x < 0.0f && magnitude < infinity ? result + of_negative : result) + nan_of_y;
  result = float_of_bits(bits_of_float(result) | ((odd << 31) & bits_of_float(x)));
  result = x != x ? x : result;
  const float exponent = x == 1.0f ? 0.0f : y;
  return exponent == 0.0f ? 1.0f : result;
}
//@ bfloat16 : bits
INLINE float float_of_bfloat16(uint16_t value) { return float_of_bits(static_cast<uint32_t>(value) << 16); }

// Rounds to nearest, ties to even.
INLINE uint16_t bfloat16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(value != value ? 0x7fc0u : rounded >> 16);
}
//@ float16 : bits
// The exponent moves by a multiplication, which also normalises subnormals.
INLINE float float_of_float16(uint16_t value) {
  const uint32_t magnitude = static_cast<uint32_t>(value & 0x7fffu) << 13;
  const uint32_t finite = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
  const uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
  return float_of_bits(bits | static_cast<uint32_t>(value & 0x8000u) << 16);
}

// Rounds to nearest, ties to even. Adding 0.5 rounds a subnormal result to its last bit.
INLINE uint16_t float16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x37fff001u + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>((magnitude >= 0x47800000u ? special : finite) | ((bits >> 16) & 0x8000u));
}
//@ float8_e5m2 : bits float16
INLINE float float_of_float8_e5m2(uint8_t value) { return float_of_float16(static_cast<uint16_t>(value << 8)); }

// Rounds to nearest, ties to even. Adding 128 rounds a subnormal result to its last bit.
INLINE uint8_t float8_e5m2_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x37f00001u + ((magnitude >> 21) & 1u)) >> 21;
  const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 128.0f) - 0x43000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7fu : 0x7cu;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return static_cast<uint8_t>((magnitude >= 0x47800000u ? special : finite) | ((bits >> 24) & 0x80u));
}
//@ float8_e4m3fn : bits float16
// The bits of half precision with an exponent that is 8 too small; there is no infinity.
INLINE float float_of_float8_e4m3fn(uint8_t value) {
  const float magnitude = float_of_float16(static_cast<uint16_t>((value & 0x7fu) << 7)) * 256.0f;
  const uint32_t bits = (value & 0x7fu) == 0x7fu ? 0x7fc00000u : bits_of_float(magnitude);
  return float_of_bits(bits | static_cast<uint32_t>(value & 0x80u) << 24);
}

// Rounds to nearest, ties to even; the largest number stands for all beyond it. Adding 2^14 rounds a subnormal result.
INLINE uint8_t float8_e4m3fn_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x3bf80001u + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 16384.0f) - 0x46800000u;
  const uint32_t finite = magnitude < 0x3c800000u ? subnormal : normal;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7fu : 0x7eu;
  return static_cast<uint8_t>((magnitude >= 0x43e00000u ? special : finite) | ((bits >> 24) & 0x80u));
}
