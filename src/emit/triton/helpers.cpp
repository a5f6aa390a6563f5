#include "emit/triton/helpers.hpp"

#include <string_view>
#include <utility>

#include "support/error.hpp"

namespace kw::triton {
namespace {

constexpr std::pair<std::string_view, std::string_view> kHelpers[] = {
    {"larger", R"(@triton.jit
def larger(left, right):
    """The larger of two values; NaN wins."""
    return tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"smaller", R"(@triton.jit
def smaller(left, right):
    """The smaller of two values; NaN wins."""
    return tl.minimum(left, right, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"multiply", R"(@triton.jit
def multiply(left, right):
    return left * right
)"},
    {"larger_at", R"(@triton.jit
def larger_at(value, index, other, other_index):
    """The larger of two values and where it stands; NaN wins, the first of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index < other_index, (value > other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"smaller_at", R"(@triton.jit
def smaller_at(value, index, other, other_index):
    """The smaller of two values and where it stands; NaN wins, the first of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index < other_index, (value < other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"floor_divide", R"(@triton.jit
def floor_divide(dividend, divisor):
    """Integer division towards minus infinity; Triton's own goes towards zero."""
    quotient = dividend // divisor
    inexact = (dividend % divisor != 0) & ((dividend < 0) != (divisor < 0))
    return tl.where(inexact, quotient - 1, quotient)
)"},
    {"remainder", R"(@triton.jit
def remainder(dividend, divisor):
    """Integer remainder with the sign of the divisor; Triton's own has the dividend's."""
    rest = dividend % divisor
    return tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)
)"},
    {"remainder_float", R"(@triton.jit
def remainder_float(dividend, divisor):
    """Remainder with the sign of the divisor."""
    rest = libdevice.fmod(dividend, divisor)
    return tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)
)"},
    {"floor_divide_float", R"(@triton.jit
def floor_divide_float(dividend, divisor):
    """Floor of the exact quotient, which the rounded quotient can miss by one."""
    rest = libdevice.fmod(dividend, divisor)
    quotient = (dividend - rest) / divisor
    quotient = tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), quotient - 1, quotient)
    nearest = tl.floor(quotient)
    nearest = tl.where(quotient - nearest > 0.5, nearest + 1, nearest)
    return tl.where(divisor == 0, dividend / divisor, nearest)
)"},
    {"sign", R"(@triton.jit
def sign(value):
    return (value > 0).to(value.dtype) - (value < 0).to(value.dtype)
)"},
};

}  // namespace

std::string helper_definitions(const std::set<std::string>& names) {
  std::string out;
  size_t found = 0;
  for (const auto& [name, source] : kHelpers) {
    if (!names.contains(std::string(name))) continue;
    if (!out.empty()) out += "\n\n";
    out += source;
    ++found;
  }
  KW_ASSERT(found == names.size(), "a kernel calls a helper that does not exist");
  return out;
}

}  // namespace kw::triton
