// Scalar operations as Triton expressions: which Python text computes one operation on operands that are already text.
#pragma once

#include <string>
#include <vector>

#include "ir/types.hpp"
#include "kernel/operations.hpp"
#include "tile/program.hpp"

namespace kw::triton {

// How tightly a piece of Python text binds; higher binds tighter.
enum class Binding { kLoosest, kCompare, kBitOr, kBitXor, kBitAnd, kShift, kAdd, kMultiply, kUnary, kAtom };

struct Text {
  std::string text;
  Binding binding = Binding::kAtom;
  bool constant = false;              // a Python literal, not a Triton value
  std::string_view full = "tl.full";  // the function that makes Triton's value of a literal
};

std::string wrap(const Text& text, Binding at_least);  // in parentheses where it binds less tightly than asked

std::string_view dtype_name(DType dtype);    // "tl.float32"
std::string_view pointer_name(DType dtype);  // "*fp32", as signatures of kernels spell it
Text literal(DType dtype, double number, int64_t integer, std::string_view full = "tl.full");
std::string scalar(const Text& literal, DType dtype);  // "tl.full((), 1, tl.int32)"
std::string typed(const Text& operand, DType dtype);   // a literal as a Triton scalar of that type; anything else as it
                                                       // is

// What the operation needs to know beyond its operands' text.
struct Operation {
  kernel::ScalarOp op;
  DType dtype;          // of the result
  DType operand_dtype;  // of the last operand
  tile::Exactness exactness = tile::Exactness::kUsual;
  bool nonnegative = false;  // integer operands, or the base of a power, are known not to be negative
};

// `helpers` collects the names of functions from helpers.hpp that the text calls; `uses_libdevice` is set when it calls
// libdevice.
Text operation_text(const Operation& operation, const std::vector<Text>& operands, std::vector<std::string>& helpers);

}  // namespace kw::triton
