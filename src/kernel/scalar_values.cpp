#include "kernel/scalar_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "support/error.hpp"

namespace kw::kernel {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// --- Rounding ---

// A binary floating format without its sign.
struct FloatFormat {
  int significant;   // bits, the leading one included
  int least_normal;  // exponent of the smallest normal number
  double largest;
  bool saturates;  // instead of overflowing to infinity
};

FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {11, -14, 65504.0, false};
    case DType::bf16: return {8, -126, 0x1.FEp127, false};
    case DType::f8e4m3fn: return {4, -6, 448.0, true};
    case DType::f8e5m2: return {3, -14, 57344.0, false};
    default: fail_internal(__FILE__, __LINE__, "no narrow floating type");
  }
}

// To a multiple of the unit in the last place, ties to even: what nearbyint does, after exact scaling.
double round_to_bits(double value, int significant, int least_normal) {
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent - 1), 2^exponent)
  const int unit = std::max(exponent - 1, least_normal) - (significant - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

double round_to_format(const FloatFormat& format, double value) {
  if (std::isnan(value)) return value;
  double rounded = std::isinf(value) ? value : round_to_bits(value, format.significant, format.least_normal);
  if (std::abs(rounded) <= format.largest) return rounded;
  return std::copysign(format.saturates ? format.largest : kInfinite, value);
}

// --- Integers, which wrap instead of overflowing ---

int64_t add_wrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t multiply_wrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t negate_wrapped(int64_t a) { return static_cast<int64_t>(0 - static_cast<uint64_t>(a)); }

int64_t truncating_quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? negate_wrapped(a) : a / b;
}

int64_t truncating_rest(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

bool rounds_down(int64_t rest, int64_t divisor) { return rest != 0 && (rest < 0) != (divisor < 0); }

// PyTorch's: 0 or ±1 for negative exponents.
int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = multiply_wrapped(result, base);
    base = multiply_wrapped(base, base);
  }
  return result;
}

int bits_of(DType dtype) { return dtype == DType::b1 ? 1 : static_cast<int>(8 * size_of(dtype)); }

// Shifts by less than 0 or by all the bits and more are PyTorch's too: nothing is left but the sign.
int64_t shift_left(DType dtype, int64_t value, int64_t by) {
  if (by < 0 || by >= bits_of(dtype)) return 0;
  return static_cast<int64_t>(static_cast<uint64_t>(value) << by);
}

int64_t shift_right(DType dtype, int64_t value, int64_t by) {
  const int64_t most = bits_of(dtype) - 1;
  return value >> (by < 0 || by > most ? most : by);
}

int64_t on_wholes(ScalarOp op, DType dtype, int64_t a, int64_t b) {
  switch (op) {
    case ScalarOp::kAdd: return add_wrapped(a, b);
    case ScalarOp::kSub: return add_wrapped(a, negate_wrapped(b));
    case ScalarOp::kMul: return multiply_wrapped(a, b);
    case ScalarOp::kDiv:
    case ScalarOp::kTruncDiv: return truncating_quotient(a, b);
    case ScalarOp::kFloorDiv: return truncating_quotient(a, b) - rounds_down(truncating_rest(a, b), b);
    case ScalarOp::kRemainder: {
      const int64_t rest = truncating_rest(a, b);
      return rounds_down(rest, b) ? rest + b : rest;
    }
    case ScalarOp::kFmod: return truncating_rest(a, b);
    case ScalarOp::kNeg: return negate_wrapped(a);
    case ScalarOp::kAbs: return a < 0 ? negate_wrapped(a) : a;
    case ScalarOp::kSign: return (a > 0) - (a < 0);
    case ScalarOp::kMinimum:
    case ScalarOp::kFmin: return std::min(a, b);
    case ScalarOp::kMaximum:
    case ScalarOp::kFmax: return std::max(a, b);
    case ScalarOp::kPow: return power(a, b);
    case ScalarOp::kBitAnd: return a & b;
    case ScalarOp::kBitOr: return a | b;
    case ScalarOp::kBitXor: return a ^ b;
    case ScalarOp::kBitNot: return dtype == DType::b1 ? a == 0 : ~a;
    case ScalarOp::kShiftLeft: return shift_left(dtype, a, b);
    case ScalarOp::kShiftRight: return shift_right(dtype, a, b);
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound: return a;
    default: fail_internal(__FILE__, __LINE__, "no operation of integers: " + std::string(name_of(op)));
  }
}

// --- Reals ---

// PyTorch's c10::div_floor_floating: exact where a / b would round up to a whole number.
double floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

double remainder_of_floor(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

// Two equal infinities stay; NaN wins.
double log_add_exp(double a, double b) {
  if (a == b) return a + std::log(2.0);
  return (std::isnan(a) || a > b ? a : b) + std::log1p(std::exp(-std::abs(a - b)));
}

double on_reals(ScalarOp op, double a, double b, double c) {
  switch (op) {
    case ScalarOp::kAdd: return a + b;
    case ScalarOp::kSub: return a - b;
    case ScalarOp::kMul: return a * b;
    case ScalarOp::kDiv: return a / b;
    case ScalarOp::kFloorDiv: return floor_quotient(a, b);
    case ScalarOp::kTruncDiv: return std::trunc(a / b);
    case ScalarOp::kRemainder: return remainder_of_floor(a, b);
    case ScalarOp::kFmod: return std::fmod(a, b);
    case ScalarOp::kNeg: return -a;
    case ScalarOp::kAbs: return std::abs(a);
    case ScalarOp::kSign: return (a > 0) - (a < 0);  // 0 for NaN, as PyTorch has it
    case ScalarOp::kReciprocal: return 1.0 / a;
    case ScalarOp::kMinimum: return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
    case ScalarOp::kMaximum: return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
    case ScalarOp::kFmin: return std::fmin(a, b);
    case ScalarOp::kFmax: return std::fmax(a, b);
    case ScalarOp::kFma: return std::fma(a, b, c);
    case ScalarOp::kFloor: return std::floor(a);
    case ScalarOp::kCeil: return std::ceil(a);
    case ScalarOp::kTrunc: return std::trunc(a);
    case ScalarOp::kRound: return std::nearbyint(a);
    case ScalarOp::kRoundTf32: return round_to_tf32(a);
    case ScalarOp::kExp: return std::exp(a);
    case ScalarOp::kExp2: return std::exp2(a);
    case ScalarOp::kExpm1: return std::expm1(a);
    case ScalarOp::kLog: return std::log(a);
    case ScalarOp::kLog2: return std::log2(a);
    case ScalarOp::kLog10: return std::log10(a);
    case ScalarOp::kLog1p: return std::log1p(a);
    case ScalarOp::kSqrt: return std::sqrt(a);
    case ScalarOp::kRsqrt: return 1.0 / std::sqrt(a);
    case ScalarOp::kSin: return std::sin(a);
    case ScalarOp::kCos: return std::cos(a);
    case ScalarOp::kTan: return std::tan(a);
    case ScalarOp::kAsin: return std::asin(a);
    case ScalarOp::kAcos: return std::acos(a);
    case ScalarOp::kAtan: return std::atan(a);
    case ScalarOp::kAtan2: return std::atan2(a, b);
    case ScalarOp::kSinh: return std::sinh(a);
    case ScalarOp::kCosh: return std::cosh(a);
    case ScalarOp::kTanh: return std::tanh(a);
    case ScalarOp::kAsinh: return std::asinh(a);
    case ScalarOp::kAcosh: return std::acosh(a);
    case ScalarOp::kAtanh: return std::atanh(a);
    case ScalarOp::kErf: return std::erf(a);
    case ScalarOp::kErfc: return std::erfc(a);
    case ScalarOp::kSigmoid: return 1.0 / (1.0 + std::exp(-a));
    case ScalarOp::kLogAddExp: return log_add_exp(a, b);
    case ScalarOp::kPow: return std::pow(a, b);
    default: fail_internal(__FILE__, __LINE__, "no operation of real numbers: " + std::string(name_of(op)));
  }
}

// --- Predicates ---

template <typename T>
bool compared(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::kEqual: return a == b;
    case ScalarOp::kNotEqual: return a != b;
    case ScalarOp::kLess: return a < b;
    case ScalarOp::kLessEqual: return a <= b;
    case ScalarOp::kGreater: return a > b;
    case ScalarOp::kGreaterEqual: return a >= b;
    case ScalarOp::kLogicalAnd: return (a != 0) && (b != 0);
    case ScalarOp::kLogicalOr: return (a != 0) || (b != 0);
    case ScalarOp::kLogicalXor: return (a != 0) != (b != 0);
    case ScalarOp::kLogicalNot: return a == 0;
    default: fail_internal(__FILE__, __LINE__, "no predicate: " + std::string(name_of(op)));
  }
}

bool holds(ScalarOp op, DType dtype, const Number& a, const Number& b) {
  const bool real = is_real(dtype);
  if (op == ScalarOp::kIsNan) return real && std::isnan(a.real);
  if (op == ScalarOp::kIsInf) return real && std::isinf(a.real);
  return real ? compared(op, a.real, b.real) : compared(op, a.whole, b.whole);
}

// Truncates. PyTorch leaves NaN and what is out of range to the machine: here 0 and the nearest number, as on a GPU.
int64_t truncated(DType dtype, double value) {
  if (std::isnan(value)) return 0;
  if (dtype == DType::b1) return value != 0;
  const bool wide = dtype == DType::i64;
  const double low = wide ? -0x1p63 : -0x1p31, past = wide ? 0x1p63 : 0x1p31;
  if (value < low) return wide ? INT64_MIN : INT32_MIN;
  if (value >= past) return wide ? INT64_MAX : INT32_MAX;
  return static_cast<int64_t>(value);
}

Number converted(DType from, DType to, const Number& value) {
  if (is_real(from)) {
    if (is_real(to)) return {value.real, 0};
    return {0.0, to == DType::b1 ? value.real != 0 : truncated(to, value.real)};
  }
  if (is_real(to)) return {static_cast<double>(value.whole), 0};
  return {0.0, to == DType::b1 ? value.whole != 0 : wrap_to(to, value.whole)};
}

int64_t smallest_of(DType dtype) {
  if (dtype == DType::b1 || dtype == DType::u8) return 0;
  return dtype == DType::i64 ? INT64_MIN : -(int64_t{1} << (bits_of(dtype) - 1));
}

int64_t largest_of(DType dtype) {
  if (dtype == DType::b1) return 1;
  if (dtype == DType::u8) return 255;
  return ~smallest_of(dtype);
}

}  // namespace

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64: return value;
    case DType::f32: return static_cast<double>(static_cast<float>(value));
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3fn:
    case DType::f8e5m2: return round_to_format(format_of(dtype), value);
    default: fail_internal(__FILE__, __LINE__, "no floating type: " + std::string(kw::name_of(dtype)));
  }
}

int64_t wrap_to(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::i64: return value;
    case DType::i32: return static_cast<int32_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::i8: return static_cast<int8_t>(value);
    case DType::u8: return static_cast<uint8_t>(value);
    case DType::b1: return value != 0;
    default: fail_internal(__FILE__, __LINE__, "no integral type: " + std::string(kw::name_of(dtype)));
  }
}

// A sign, the exponent above that of the least normal number, and the significant bits but for the leading one.
uint8_t byte_of_float8(DType dtype, double value) {
  const FloatFormat format = format_of(dtype);
  const int fraction_bits = format.significant - 1;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7F;
  const double size = std::abs(round_to_format(format, value));
  if (size == 0) return sign;
  if (std::isinf(size)) return sign | 0x7C;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int steps = std::max(exponent - 1, format.least_normal) - format.least_normal;  // 0: the numbers below, too
  const auto units = static_cast<int>(std::ldexp(size, fraction_bits - format.least_normal - steps));
  return static_cast<uint8_t>(sign | ((steps << fraction_bits) + units));
}

double round_to_tf32(double value) {
  if (std::isnan(value)) return value;
  constexpr uint32_t kHalf = 1U << 12, kKept = ~((1U << 13) - 1);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(static_cast<float>(value)) + kHalf) & kKept);
}

Number apply(ScalarOp op, DType operand_type, DType result_type, const Number* operands) {
  if (op == ScalarOp::kCast) return converted(operand_type, result_type, operands[0]);
  if (op == ScalarOp::kSelect) return operands[0].whole != 0 ? operands[1] : operands[2];
  if (op == ScalarOp::kBounded) return operands[0];
  const int arity = arity_of(op);
  const Number second = arity > 1 ? operands[1] : Number(), third = arity > 2 ? operands[2] : Number();
  if (is_predicate(op)) return {0.0, holds(op, operand_type, operands[0], second)};
  if (is_real(operand_type)) return {on_reals(op, operands[0].real, second.real, third.real), 0};
  return {0.0, on_wholes(op, operand_type, operands[0].whole, second.whole)};
}

Number fold(ReduceOp reduce, DType dtype, const Number& left, const Number& right) {
  const Number both[2] = {left, right};
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum: return apply(ScalarOp::kAdd, dtype, dtype, both);
    case ReduceOp::kProd: return apply(ScalarOp::kMul, dtype, dtype, both);
    case ReduceOp::kMax: return apply(ScalarOp::kMaximum, dtype, dtype, both);
    case ReduceOp::kMin: return apply(ScalarOp::kMinimum, dtype, dtype, both);
    case ReduceOp::kLogSumExp: return apply(ScalarOp::kLogAddExp, dtype, dtype, both);
    case ReduceOp::kAny: return apply(ScalarOp::kLogicalOr, dtype, DType::b1, both);
    case ReduceOp::kAll: return apply(ScalarOp::kLogicalAnd, dtype, DType::b1, both);
    default: fail_internal(__FILE__, __LINE__, "no simple fold: " + std::string(name_of(reduce)));
  }
}

bool stands_before(ReduceOp sort, DType dtype, const Number& left, const Number& right) {
  const Number &low = sort == ReduceOp::kSortDown ? right : left, &high = sort == ReduceOp::kSortDown ? left : right;
  if (!is_real(dtype)) return low.whole < high.whole;
  return !std::isnan(low.real) && (std::isnan(high.real) || low.real < high.real);
}

bool takes_over(ReduceOp extreme, DType dtype, const Number& next, const Number& best) {
  const bool largest = extreme == ReduceOp::kMax;
  if (!is_real(dtype)) return largest ? next.whole >= best.whole : next.whole <= best.whole;
  return std::isnan(next.real) || (largest ? next.real >= best.real : next.real <= best.real);
}

Number identity(ReduceOp reduce, DType dtype) {
  const std::optional<double> value = identity_of(reduce);
  KW_ASSERT(value, "no simple fold: " + std::string(name_of(reduce)));
  if (is_real(dtype)) return {*value, 0};
  if (reduce == ReduceOp::kMax) return {0.0, smallest_of(dtype)};
  if (reduce == ReduceOp::kMin) return {0.0, largest_of(dtype)};
  return {0.0, static_cast<int64_t>(*value)};
}

}  // namespace kw::kernel
