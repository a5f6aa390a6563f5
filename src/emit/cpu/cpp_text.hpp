// C++ spelling of types, constants, indices and operations; parentheses only where precedence asks for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/runtime/cpu/helper_sections.hpp"
#include "ir/types.hpp"
#include "kernel/operations.hpp"

namespace kw::cpu {

// A piece of an expression and how tightly its outermost operator binds.
struct Text {
  std::string text;
  int precedence;
};

namespace precedence {
inline constexpr int kPrimary = 16, kUnary = 15, kMultiply = 13, kAdd = 12, kShift = 11, kRelation = 9, kEquality = 8,
                     kBitAnd = 7, kBitXor = 6, kBitOr = 5, kAnd = 4, kOr = 3, kChoice = 2;
}

// The text, in parentheses unless it binds at least as tightly as `least`.
std::string within(const Text& text, int least);

std::string storage_type(DType dtype);  // of a buffer's elements: 16-bit floats are uint16_t, booleans uint8_t
std::string value_type(DType dtype);    // of a local variable: booleans are bool

// `number` where the type is floating, else `integer`.
Text constant_text(DType dtype, double number, int64_t integer, HelperSet& helpers);
Text literal(double value, DType dtype, HelperSet& helpers);

// An operation whose result is of `dtype`, on operands already spelled; adds the helpers that it calls. `types` are the
// operands' dtypes.
Text op_text(kernel::ScalarOp op, DType dtype, const std::vector<Text>& operands, const std::vector<DType>& types,
             HelperSet& helpers);

// value, of dtype `from`, as dtype `to`.
Text cast_text(const Text& value, DType from, DType to, HelperSet& helpers);

}  // namespace kw::cpu
