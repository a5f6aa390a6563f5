#include "emit/triton/expressions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "emit/runtime/triton/helpers.hpp"
#include "kernel/scalar_values.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {
namespace {

using kernel::ScalarOp;
using tile::Exactness;

struct Infix {
  std::string_view sign;
  Binding binding;
};

std::optional<Infix> infix_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd: return Infix{"+", Binding::kAdd};
    case ScalarOp::kSub: return Infix{"-", Binding::kAdd};
    case ScalarOp::kMul: return Infix{"*", Binding::kMultiply};
    case ScalarOp::kEqual: return Infix{"==", Binding::kCompare};
    case ScalarOp::kNotEqual: return Infix{"!=", Binding::kCompare};
    case ScalarOp::kLess: return Infix{"<", Binding::kCompare};
    case ScalarOp::kLessEqual: return Infix{"<=", Binding::kCompare};
    case ScalarOp::kGreater: return Infix{">", Binding::kCompare};
    case ScalarOp::kGreaterEqual: return Infix{">=", Binding::kCompare};
    case ScalarOp::kLogicalAnd:
    case ScalarOp::kBitAnd: return Infix{"&", Binding::kBitAnd};
    case ScalarOp::kLogicalOr:
    case ScalarOp::kBitOr: return Infix{"|", Binding::kBitOr};
    case ScalarOp::kLogicalXor:
    case ScalarOp::kBitXor: return Infix{"^", Binding::kBitXor};
    case ScalarOp::kShiftLeft: return Infix{"<<", Binding::kShift};
    case ScalarOp::kShiftRight: return Infix{">>", Binding::kShift};
    default: return std::nullopt;
  }
}

// Python chains comparisons, so that both sides of one need parentheses around another.
Text infix_text(const Infix& infix, const Text& left, const Text& right) {
  const auto tighter = static_cast<Binding>(static_cast<int>(infix.binding) + 1);
  const Binding at_left = infix.binding == Binding::kCompare ? tighter : infix.binding;
  const Binding at_right = infix.binding == Binding::kBitAnd || infix.binding == Binding::kBitOr ? infix.binding
                                                                                                 : tighter;
  return {fmt::format("{} {} {}", wrap(left, at_left), infix.sign, wrap(right, at_right)), infix.binding};
}

std::string_view function_of(ScalarOp op, DType dtype) {
  const bool single = dtype == DType::f32;
  switch (op) {
    case ScalarOp::kAbs: return "tl.abs";
    case ScalarOp::kFloor: return "tl.floor";
    case ScalarOp::kCeil: return "tl.ceil";
    case ScalarOp::kTrunc: return "libdevice.trunc";
    case ScalarOp::kRound: return "libdevice.rint";
    case ScalarOp::kExp: return single ? "libdevice.exp" : "tl.exp";
    case ScalarOp::kExp2: return "tl.exp2";
    case ScalarOp::kExpm1: return "libdevice.expm1";
    case ScalarOp::kLog: return "tl.log";
    case ScalarOp::kLog2: return "tl.log2";
    case ScalarOp::kLog10: return "libdevice.log10";
    case ScalarOp::kLog1p: return "libdevice.log1p";
    case ScalarOp::kSqrt: return single ? "tl.sqrt_rn" : "tl.sqrt";
    case ScalarOp::kSin: return "tl.sin";
    case ScalarOp::kCos: return "tl.cos";
    case ScalarOp::kTan: return "libdevice.tan";
    case ScalarOp::kAsin: return "libdevice.asin";
    case ScalarOp::kAcos: return "libdevice.acos";
    case ScalarOp::kAtan: return "libdevice.atan";
    case ScalarOp::kAtan2: return "libdevice.atan2";
    case ScalarOp::kSinh: return "libdevice.sinh";
    case ScalarOp::kCosh: return "libdevice.cosh";
    case ScalarOp::kTanh: return "libdevice.tanh";
    case ScalarOp::kAsinh: return "libdevice.asinh";
    case ScalarOp::kAcosh: return "libdevice.acosh";
    case ScalarOp::kAtanh: return "libdevice.atanh";
    case ScalarOp::kErf: return "tl.erf";
    case ScalarOp::kErfc: return "libdevice.erfc";
    case ScalarOp::kPow: return "libdevice.pow";
    case ScalarOp::kFma: return "tl.fma";
    default: return "";
  }
}

Text call(std::string_view function, const std::vector<Text>& operands, DType dtype, std::string_view options = "") {
  std::vector<std::string> arguments;
  for (const Text& operand : operands) arguments.push_back(typed(operand, dtype));
  return {fmt::format("{}({}{})", function, join(arguments, ", "), options)};
}

// Triton's own division of single floats is two units off at worst, PyTorch's is not.
Text quotient(const Operation& operation, const Text& dividend, const Text& divisor) {
  const DType dtype = operation.dtype;
  if (dtype == DType::f32 && operation.exactness == Exactness::kExact)
    return call("tl.div_rn", {dividend, divisor}, dtype);
  if (dtype == DType::f32 && operation.exactness == Exactness::kApproximate)
    return call("libdevice.fast_dividef", {dividend, divisor}, dtype);
  return infix_text({"/", Binding::kMultiply}, dividend, divisor);
}

Text helper(std::string_view name, const std::vector<Text>& operands, DType dtype, std::vector<std::string>& helpers) {
  helpers.emplace_back(name);
  return call(name, operands, dtype);
}

std::string eight_bit_name(DType dtype) {
  return std::string(torch_name(dtype)).substr(std::string_view("torch.").size());
}

Text cast_text(const Operation& operation, const Text& operand, std::vector<std::string>& helpers) {
  if (operation.dtype == operation.operand_dtype) return operand;
  if (is_eight_bit_float(operation.operand_dtype)) {
    helpers.emplace_back(kHardwareFloat8);
    const Text wide = helper("float_of_" + eight_bit_name(operation.operand_dtype),
                             {operand, {kHardwareFloat8Constant}}, operation.operand_dtype, helpers);
    return operation.dtype == DType::f32 ? wide
                                         : Text{fmt::format("{}.to({})", wide.text, dtype_name(operation.dtype))};
  }
  if (is_eight_bit_float(operation.dtype)) {
    const bool single = operation.operand_dtype == DType::f32;
    const Text value = single ? operand : Text{fmt::format("{}.to(tl.float32)", wrap(operand, Binding::kAtom))};
    helpers.emplace_back(kHardwareFloat8);
    return helper(eight_bit_name(operation.dtype) + "_of_float", {value, {kHardwareFloat8Constant}}, DType::f32,
                  helpers);
  }
  if (operation.dtype == DType::b1) return {wrap(operand, Binding::kAdd) + " != 0", Binding::kCompare};
  if (operand.constant) return {typed(operand, operation.dtype)};
  return {fmt::format("{}.to({})", wrap(operand, Binding::kAtom), dtype_name(operation.dtype))};
}

Text select_text(const Operation& operation, const std::vector<Text>& operands) {
  const bool literals = operands[1].constant && operands[2].constant;
  const std::string then = literals ? typed(operands[1], operation.dtype) : operands[1].text;
  return {fmt::format("tl.where({}, {}, {})", operands[0].text, then, operands[2].text)};
}

// e^(scale · operand), as the hardware's power of two: of what would be a denormal, 0. Rounding the exponent is an
// error that grows with it, which libdevice's function has not; it takes five times the instructions.
Text short_exponential(const Text& operand, double scale) {
  return {fmt::format("tl.exp2({} * {})", wrap(operand, Binding::kMultiply), format_double(scale * M_LOG2E))};
}

// Of f32: a few places of the last digit off, with less than half of libdevice's instructions and no branches (a
// sigmoid 5 for 18, tanh 13 for 22, erf 11 for 28).
std::optional<Text> short_form(const Operation& operation, const Text& operand, std::vector<std::string>& helpers) {
  if (operation.exactness != Exactness::kApproximate || operation.dtype != DType::f32) return std::nullopt;
  switch (operation.op) {
    // The same with denormals, in three instructions more: PyTorch's softmax has them, and what chooses the largest of
    // it tells them apart.
    case ScalarOp::kExp: return Text{fmt::format("tl.exp({})", operand.text)};
    case ScalarOp::kTanh: return helper("short_tanh", {operand}, operation.dtype, helpers);
    case ScalarOp::kErf: return helper("short_erf", {operand}, operation.dtype, helpers);
    case ScalarOp::kSigmoid:
      return Text{fmt::format("libdevice.fast_dividef(1.0, 1.0 + {})", short_exponential(operand, -1.0).text)};
    default: return std::nullopt;
  }
}

Text sigmoid_text(const Operation& operation, const Text& operand) {
  if (operation.dtype == DType::f64) return {fmt::format("tl.sigmoid({})", typed(operand, operation.dtype))};
  const Text denominator{fmt::format("1.0 + libdevice.exp(-{})",
                                     wrap({typed(operand, operation.dtype), operand.binding}, Binding::kUnary)),
                         Binding::kAdd};
  return quotient(operation, {"1.0", Binding::kAtom, true}, denominator);
}

// Triton divides integers as C does; Python and PyTorch round towards minus infinity.
Text division_text(const Operation& operation, const std::vector<Text>& operands, std::vector<std::string>& helpers) {
  const bool floating = is_floating(operation.dtype);
  switch (operation.op) {
    case ScalarOp::kFloorDiv:
      if (floating) return helper("floor_divide_float", operands, operation.dtype, helpers);
      if (operation.nonnegative || operation.dtype == DType::u8)
        return infix_text({"//", Binding::kMultiply}, operands[0], operands[1]);
      return helper("floor_divide", operands, operation.dtype, helpers);
    case ScalarOp::kTruncDiv: {
      if (!floating) return infix_text({"//", Binding::kMultiply}, operands[0], operands[1]);
      return {fmt::format("libdevice.trunc({})", quotient(operation, operands[0], operands[1]).text)};
    }
    case ScalarOp::kRemainder:
      if (floating) return helper("remainder_float", operands, operation.dtype, helpers);
      if (operation.nonnegative || operation.dtype == DType::u8)
        return infix_text({"%", Binding::kMultiply}, operands[0], operands[1]);
      return helper("remainder", operands, operation.dtype, helpers);
    default:
      if (floating) return call("libdevice.fmod", operands, operation.dtype);
      return infix_text({"%", Binding::kMultiply}, operands[0], operands[1]);
  }
}

Text extremum_text(const Operation& operation, const std::vector<Text>& operands) {
  const bool largest = operation.op == ScalarOp::kMaximum || operation.op == ScalarOp::kFmax;
  const bool propagates = operation.op == ScalarOp::kMaximum || operation.op == ScalarOp::kMinimum;
  const bool wants_nan = propagates && is_floating(operation.dtype);
  return call(largest ? "tl.maximum" : "tl.minimum", operands, operation.dtype,
              wants_nan ? ", propagate_nan=tl.PropagateNan.ALL" : "");
}

}  // namespace

std::string wrap(const Text& text, Binding at_least) {
  return text.binding < at_least ? "(" + text.text + ")" : text.text;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64: return "tl.float64";
    case DType::f32: return "tl.float32";
    case DType::f16: return "tl.float16";
    case DType::bf16: return "tl.bfloat16";
    case DType::f8e4m3fn:
    case DType::f8e5m2:
      return "tl.uint8";  // the byte: Triton's own conversions differ from PyTorch's beyond the largest number
    case DType::i64: return "tl.int64";
    case DType::i32: return "tl.int32";
    case DType::i16: return "tl.int16";
    case DType::i8: return "tl.int8";
    case DType::u8: return "tl.uint8";
    case DType::b1: return "tl.int1";
    default: break;
  }
  throw Error(ErrorKind::kInternal, fmt::format("Triton has no type for {}", name_of(dtype)));
}

std::string_view pointer_name(DType dtype) {
  switch (dtype) {
    case DType::f64: return "*fp64";
    case DType::f32: return "*fp32";
    case DType::f16: return "*fp16";
    case DType::bf16: return "*bf16";
    case DType::f8e4m3fn:
    case DType::f8e5m2: return "*u8";
    case DType::i64: return "*i64";
    case DType::i32: return "*i32";
    case DType::i16: return "*i16";
    case DType::i8: return "*i8";
    case DType::u8: return "*u8";
    case DType::b1: return "*i1";
    default: break;
  }
  throw Error(ErrorKind::kInternal, fmt::format("Triton has no type for {}", name_of(dtype)));
}

Text literal(DType dtype, double number, int64_t integer, std::string_view full) {
  const auto atom = [&](std::string text, bool is_signed = false) {
    return Text{std::move(text), is_signed ? Binding::kUnary : Binding::kAtom, true, full};
  };
  if (dtype == DType::b1) return atom(number != 0 || integer != 0 ? "True" : "False");
  if (is_integral(dtype)) return atom(std::to_string(integer), integer < 0);
  if (is_eight_bit_float(dtype)) return atom(std::to_string(kernel::byte_of_float8(dtype, number)));
  if (std::isnan(number)) return atom("float(\"nan\")");
  if (std::isinf(number)) return atom(number < 0 ? "float(\"-inf\")" : "float(\"inf\")");
  // Triton makes every literal that equals 0 a +0.
  if (number == 0 && std::signbit(number)) return {scalar(atom("-1.0"), dtype) + " * 0.0", Binding::kMultiply};
  return atom(format_double(number), std::signbit(number));
}

std::string scalar(const Text& literal, DType dtype) {
  return fmt::format("{}((), {}, {})", literal.full, literal.text, dtype_name(dtype));
}

std::string typed(const Text& operand, DType dtype) {
  // Triton types a bare literal as float32 or int32.
  if (!operand.constant || dtype == DType::f32 || dtype == DType::b1) return operand.text;
  return scalar(operand, dtype);
}

Text operation_text(const Operation& operation, const std::vector<Text>& operands, std::vector<std::string>& helpers) {
  const bool all_literals = std::all_of(operands.begin(), operands.end(),
                                        [](const Text& operand) { return operand.constant; });
  if (all_literals && operation.op != ScalarOp::kSelect) {
    std::vector<Text> scalars = operands;
    const DType dtype = operation.operand_dtype;
    scalars[0] = {scalar(operands[0], dtype)};
    return operation_text(operation, scalars, helpers);
  }
  if (operation.op == ScalarOp::kDiv) return quotient(operation, operands[0], operands[1]);
  if (auto infix = infix_of(operation.op)) return infix_text(*infix, operands[0], operands[1]);
  if (operation.op == ScalarOp::kPow && operation.exactness == Exactness::kApproximate)
    return helper("nonnegative_power", operands, operation.dtype, helpers);
  if (const std::optional<Text> text = short_form(operation, operands[0], helpers)) return *text;
  const std::string_view function = function_of(operation.op, operation.dtype);
  if (!function.empty()) {
    if (!is_floating(operation.dtype) && operation.op != ScalarOp::kAbs)
      throw Error(ErrorKind::kInternal,
                  fmt::format("{} of {} has no Triton form", kernel::name_of(operation.op), name_of(operation.dtype)));
    return call(function, operands, operation.dtype);
  }
  const Text& operand = operands[0];
  switch (operation.op) {
    case ScalarOp::kNeg:
      // Triton's minus is 0 - x, which loses the sign of a zero.
      if (is_floating(operation.dtype)) return {wrap(operand, Binding::kMultiply) + " * -1.0", Binding::kMultiply};
      return {"-" + wrap(operand, Binding::kUnary), Binding::kUnary};
    case ScalarOp::kReciprocal: return quotient(operation, {"1.0", Binding::kAtom, true}, operand);
    case ScalarOp::kRsqrt:
      if (operation.exactness == Exactness::kApproximate || operation.dtype != DType::f32)
        return call("tl.rsqrt", operands, operation.dtype);
      return quotient(operation, {"1.0", Binding::kAtom, true}, {fmt::format("tl.sqrt_rn({})", operand.text)});
    case ScalarOp::kRoundTf32: return helper("round_tf32", operands, operation.dtype, helpers);
    case ScalarOp::kLogAddExp: return helper("log_add_exp", operands, operation.dtype, helpers);
    case ScalarOp::kSign: return helper("sign", operands, operation.dtype, helpers);
    case ScalarOp::kSigmoid: return sigmoid_text(operation, operand);
    case ScalarOp::kIsNan: return infix_text({"!=", Binding::kCompare}, operand, operand);
    case ScalarOp::kIsInf: return {fmt::format("tl.abs({}) == float(\"inf\")", operand.text), Binding::kCompare};
    case ScalarOp::kLogicalNot:
    case ScalarOp::kBitNot: return {"~" + wrap(operand, Binding::kUnary), Binding::kUnary};
    case ScalarOp::kSelect: return select_text(operation, operands);
    case ScalarOp::kCast: return cast_text(operation, operand, helpers);
    case ScalarOp::kMinimum:
    case ScalarOp::kMaximum:
    case ScalarOp::kFmin:
    case ScalarOp::kFmax: return extremum_text(operation, operands);
    default: return division_text(operation, operands, helpers);
  }
}

}  // namespace kw::triton
