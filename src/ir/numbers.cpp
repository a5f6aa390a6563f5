#include "ir/numbers.hpp"

#include <cmath>
#include <limits>

namespace kw {
namespace {

// Round to nearest even at `precision` bits after the leading one, with exponents in [least, most].
double round_binary(double value, int precision, int least, int most) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, precision - exponent)), exponent - precision);
  if (rounded != 0.0 && std::ilogb(rounded) > most)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded == 0.0 ? std::copysign(0.0, value) : rounded;
}

std::optional<Argument> to_integer(DType dtype, const Argument& number) {
  int64_t value = 0;
  if (const auto* real = std::get_if<double>(&number)) {
    if (!(std::abs(*real) < 0x1p63)) return std::nullopt;
    value = static_cast<int64_t>(*real);
  } else {
    value = std::holds_alternative<bool>(number) ? std::get<bool>(number) : std::get<int64_t>(number);
  }
  const int bits = static_cast<int>(8 * size_of(dtype));
  const bool is_signed = dtype != DType::u8;
  if (bits < 64) {
    const int64_t most = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1, least = is_signed ? -most - 1 : 0;
    if (value < least || value > most) return std::nullopt;
  }
  return value;
}

}  // namespace

bool is_number(const Argument& argument) {
  return std::holds_alternative<bool>(argument) || std::holds_alternative<int64_t>(argument) ||
         std::holds_alternative<double>(argument);
}

double as_double(const Argument& number) {
  if (const auto* real = std::get_if<double>(&number)) return *real;
  if (const auto* integer = std::get_if<int64_t>(&number)) return static_cast<double>(*integer);
  return std::get<bool>(number);
}

std::optional<Argument> number_in(DType dtype, const Argument& number) {
  if (dtype == DType::b1) return Argument(as_double(number) != 0.0);
  if (is_integral(dtype)) return to_integer(dtype, number);
  const double value = as_double(number);
  if (dtype == DType::f64) return value;
  // PyTorch goes through float32 on the way to 16 bits.
  const double single = static_cast<float>(value);
  if (dtype == DType::f32) return single;
  if (dtype == DType::bf16) return round_binary(single, 7, -126, 127);
  if (dtype == DType::f16) return round_binary(single, 10, -14, 15);
  return std::nullopt;
}

bool holds_exactly(DType dtype, const Argument& number) {
  const auto held = number_in(dtype, number);
  if (!held) return false;
  const auto* integer = std::get_if<int64_t>(&number);
  if (integer && std::abs(*integer) > (int64_t{1} << 53)) return std::holds_alternative<int64_t>(*held);
  const double before = as_double(number), after = as_double(*held);
  return before == after || (std::isnan(before) && std::isnan(after));
}

}  // namespace kw
