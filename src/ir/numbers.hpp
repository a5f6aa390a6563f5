// Numbers as tensors hold them.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "ir/graph.hpp"

namespace kw {

// A bool, an integer or a double: what an element of a tensor, or a Python number, is.
bool is_number(const Argument& argument);
double as_double(const Argument& number);

// The number that a tensor of `dtype` holds when it is given `number`: rounded to nearest even, overflowing to
// infinity, truncated to an integer. nullopt where PyTorch's answer depends on the machine (an integer out of range) or
// the type is complex or an 8-bit float.
std::optional<Argument> number_in(DType dtype, const Argument& number);

// Whether `dtype` holds it without rounding.
bool holds_exactly(DType dtype, const Argument& number);

// By their bits: 0 and −0 are two numbers, a NaN is itself.
inline bool same_bits(double left, double right) {
  return std::bit_cast<uint64_t>(left) == std::bit_cast<uint64_t>(right);
}

}  // namespace kw
