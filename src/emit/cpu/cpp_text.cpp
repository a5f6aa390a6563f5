#include "emit/cpu/cpp_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using kernel::ScalarOp;
using namespace precedence;

namespace {

Text call(const std::string& function, const std::vector<Text>& arguments) {
  std::vector<std::string> texts;
  for (const Text& argument : arguments) texts.push_back(argument.text);
  return {function + "(" + join(texts, ", ") + ")", kPrimary};
}

Text binary(const Text& left, const std::string& symbol, const Text& right, int level) {
  return {within(left, level) + " " + symbol + " " + within(right, level + 1), level};
}

Text prefix(const std::string& symbol, const Text& operand) {
  const std::string inner = within(operand, kUnary);
  return {symbol + (inner.starts_with(symbol) ? "(" + inner + ")" : inner), kUnary};
}

std::string shortest_float(float value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Text floating_literal(double value, bool single) {
  if (std::isnan(value)) return {"NAN", kPrimary};
  if (single) value = static_cast<float>(value);  // 4e38 is infinity
  if (std::isinf(value)) return value > 0 ? Text{"INFINITY", kPrimary} : Text{"-INFINITY", kUnary};
  const std::string text = single ? shortest_float(static_cast<float>(value)) + "f" : format_double(value);
  return {text, text[0] == '-' ? kUnary : kPrimary};
}

// C++ computes with narrow integers as int; the result has to wrap like the dtype.
Text narrowed(Text value, DType dtype) {
  if (dtype != DType::i16 && dtype != DType::i8 && dtype != DType::u8) return value;
  return {"static_cast<" + value_type(dtype) + ">(" + value.text + ")", kPrimary};
}

// Narrow floats are stored as bits and computed with in float.
std::string narrow_name(DType dtype) {
  return std::string(torch_name(dtype)).substr(std::string_view("torch.").size());
}

// A function of vector_math.h for floats, of the C++ library for doubles.
Text math_call(const std::string& name, const std::vector<Text>& operands, DType dtype, HelperSet& helpers) {
  if (dtype == DType::f32 && has_helper(name)) {
    helpers.insert(name);
    return call(name + "_f32", operands);
  }
  if (name == "sigmoid") return {"1.0 / (1.0 + std::exp(" + prefix("-", operands[0]).text + "))", kMultiply};
  return call("std::" + name, operands);
}

Text helper_call(const std::string& name, const std::vector<Text>& operands, DType dtype, HelperSet& helpers) {
  helpers.insert(name);
  return call(is_floating(dtype) ? name : name + "<" + value_type(dtype) + ">", operands);
}

std::string one_of(DType dtype) { return dtype == DType::f64 ? "1.0" : "1.0f"; }

Text arithmetic(ScalarOp op, const std::vector<Text>& a, DType dtype, HelperSet& helpers) {
  const bool floating = is_floating(dtype), boolean = dtype == DType::b1;
  switch (op) {
    case ScalarOp::kAdd:
      return boolean ? binary(a[0], "||", a[1], kOr) : narrowed(binary(a[0], "+", a[1], kAdd), dtype);
    case ScalarOp::kSub: return narrowed(binary(a[0], "-", a[1], kAdd), dtype);
    case ScalarOp::kMul:
      return boolean ? binary(a[0], "&&", a[1], kAnd) : narrowed(binary(a[0], "*", a[1], kMultiply), dtype);
    case ScalarOp::kDiv:
      return floating ? binary(a[0], "/", a[1], kMultiply) : helper_call("truncating_quotient", a, dtype, helpers);
    case ScalarOp::kFloorDiv:
      return helper_call(floating ? "floating_floor_quotient" : "integer_floor_quotient", a, dtype, helpers);
    case ScalarOp::kTruncDiv:
      return floating ? call("std::trunc", {binary(a[0], "/", a[1], kMultiply)})
                      : helper_call("truncating_quotient", a, dtype, helpers);
    case ScalarOp::kRemainder: return helper_call(floating ? "floating_modulo" : "integer_modulo", a, dtype, helpers);
    case ScalarOp::kFmod: return floating ? call("std::fmod", a) : helper_call("integer_fmod", a, dtype, helpers);
    case ScalarOp::kNeg: return narrowed(prefix("-", a[0]), dtype);
    case ScalarOp::kAbs:
      return floating ? call("std::fabs", a)
                      : (dtype == DType::u8 || boolean ? a[0] : narrowed(call("std::abs", a), dtype));
    case ScalarOp::kSign: return helper_call("sign", a, dtype, helpers);
    case ScalarOp::kReciprocal: return binary({one_of(dtype), kPrimary}, "/", a[0], kMultiply);
    case ScalarOp::kRsqrt: return binary({one_of(dtype), kPrimary}, "/", call("std::sqrt", a), kMultiply);
    case ScalarOp::kMinimum: return helper_call("minimum", a, dtype, helpers);
    case ScalarOp::kMaximum: return helper_call("maximum", a, dtype, helpers);
    case ScalarOp::kFmin: return helper_call("smaller_number", a, dtype, helpers);
    case ScalarOp::kFmax: return helper_call("larger_number", a, dtype, helpers);
    case ScalarOp::kFma:
      if (!floating) return narrowed(binary(binary(a[0], "*", a[1], kMultiply), "+", a[2], kAdd), dtype);
      helpers.insert("multiply_add");
      return call("multiply_add", a);
    default: break;
  }
  KW_ASSERT(false, "not arithmetic");
}

Text rounding_or_math(ScalarOp op, const std::vector<Text>& a, DType dtype, HelperSet& helpers) {
  const bool floating = is_floating(dtype);
  switch (op) {
    case ScalarOp::kFloor: return floating ? call("std::floor", a) : a[0];
    case ScalarOp::kCeil: return floating ? call("std::ceil", a) : a[0];
    case ScalarOp::kTrunc: return floating ? call("std::trunc", a) : a[0];
    case ScalarOp::kRound: return floating ? call("std::nearbyint", a) : a[0];
    case ScalarOp::kSqrt: return call("std::sqrt", a);
    case ScalarOp::kExp: return math_call("exp", a, dtype, helpers);
    case ScalarOp::kExp2: return math_call("exp2", a, dtype, helpers);
    case ScalarOp::kExpm1: return math_call("expm1", a, dtype, helpers);
    case ScalarOp::kLog: return math_call("log", a, dtype, helpers);
    case ScalarOp::kLog2: return math_call("log2", a, dtype, helpers);
    case ScalarOp::kLog10: return math_call("log10", a, dtype, helpers);
    case ScalarOp::kLog1p: return math_call("log1p", a, dtype, helpers);
    case ScalarOp::kSin: return math_call("sin", a, dtype, helpers);
    case ScalarOp::kCos: return math_call("cos", a, dtype, helpers);
    case ScalarOp::kTan: return math_call("tan", a, dtype, helpers);
    case ScalarOp::kAsin: return math_call("asin", a, dtype, helpers);
    case ScalarOp::kAcos: return math_call("acos", a, dtype, helpers);
    case ScalarOp::kAtan: return math_call("atan", a, dtype, helpers);
    case ScalarOp::kAtan2: return math_call("atan2", a, dtype, helpers);
    case ScalarOp::kSinh: return math_call("sinh", a, dtype, helpers);
    case ScalarOp::kCosh: return math_call("cosh", a, dtype, helpers);
    case ScalarOp::kTanh: return math_call("tanh", a, dtype, helpers);
    case ScalarOp::kAsinh: return math_call("asinh", a, dtype, helpers);
    case ScalarOp::kAcosh: return math_call("acosh", a, dtype, helpers);
    case ScalarOp::kAtanh: return math_call("atanh", a, dtype, helpers);
    case ScalarOp::kErf: return math_call("erf", a, dtype, helpers);
    case ScalarOp::kErfc: return math_call("erfc", a, dtype, helpers);
    case ScalarOp::kSigmoid: return math_call("sigmoid", a, dtype, helpers);
    case ScalarOp::kLogAddExp: return helper_call("log_add_exp", a, dtype, helpers);
    case ScalarOp::kPow:
      return floating ? math_call("pow", a, dtype, helpers) : helper_call("integer_power", a, dtype, helpers);
    default: return arithmetic(op, a, dtype, helpers);
  }
}

Text as_boolean(const Text& value, DType dtype, HelperSet& helpers) {
  return cast_text(value, dtype, DType::b1, helpers);
}

Text relation(const std::vector<Text>& a, const std::string& symbol, int level) {
  return binary(a[0], symbol, a[1], level);
}

// Comparison, logic and bits; `dtype` is that of the operands.
Text logical(ScalarOp op, const std::vector<Text>& a, DType dtype, HelperSet& helpers) {
  const auto boolean = [&](size_t i) { return as_boolean(a[i], dtype, helpers); };
  switch (op) {
    case ScalarOp::kEqual: return relation(a, "==", kEquality);
    case ScalarOp::kNotEqual: return relation(a, "!=", kEquality);
    case ScalarOp::kLess: return relation(a, "<", kRelation);
    case ScalarOp::kLessEqual: return relation(a, "<=", kRelation);
    case ScalarOp::kGreater: return relation(a, ">", kRelation);
    case ScalarOp::kGreaterEqual: return relation(a, ">=", kRelation);
    case ScalarOp::kIsNan: return is_floating(dtype) ? call("std::isnan", a) : Text{"false", kPrimary};
    case ScalarOp::kIsInf: return is_floating(dtype) ? call("std::isinf", a) : Text{"false", kPrimary};
    case ScalarOp::kLogicalAnd: return binary(boolean(0), "&&", boolean(1), kAnd);
    case ScalarOp::kLogicalOr: return binary(boolean(0), "||", boolean(1), kOr);
    case ScalarOp::kLogicalXor: return binary(boolean(0), "!=", boolean(1), kEquality);
    case ScalarOp::kLogicalNot: return prefix("!", boolean(0));
    case ScalarOp::kBitAnd:
      return dtype == DType::b1 ? binary(a[0], "&&", a[1], kAnd) : narrowed(binary(a[0], "&", a[1], kBitAnd), dtype);
    case ScalarOp::kBitOr:
      return dtype == DType::b1 ? binary(a[0], "||", a[1], kOr) : narrowed(binary(a[0], "|", a[1], kBitOr), dtype);
    case ScalarOp::kBitXor:
      return dtype == DType::b1 ? binary(a[0], "!=", a[1], kEquality)
                                : narrowed(binary(a[0], "^", a[1], kBitXor), dtype);
    case ScalarOp::kBitNot: return dtype == DType::b1 ? prefix("!", a[0]) : narrowed(prefix("~", a[0]), dtype);
    case ScalarOp::kShiftLeft: return helper_call("shift_left", a, dtype, helpers);
    case ScalarOp::kShiftRight: return helper_call("shift_right", a, dtype, helpers);
    default: break;
  }
  KW_ASSERT(false, "not a logical operation");
}

bool is_logical(ScalarOp op) { return op >= ScalarOp::kEqual && op <= ScalarOp::kShiftRight; }

}  // namespace

std::string within(const Text& text, int least) { return text.precedence >= least ? text.text : "(" + text.text + ")"; }

std::string storage_type(DType dtype) { return dtype == DType::b1 ? "uint8_t" : value_type(dtype); }

std::string value_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16:
    case DType::bf16: return "uint16_t";
    case DType::f8e4m3fn:
    case DType::f8e5m2: return "uint8_t";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::i16: return "int16_t";
    case DType::i8: return "int8_t";
    case DType::u8: return "uint8_t";
    case DType::b1: return "bool";
    default: break;
  }
  throw Error(ErrorKind::kUser, "the cpu target has no kernels for " + std::string(torch_name(dtype)),
              "Leave such operations to PyTorch.");
}

Text literal(double value, DType dtype, HelperSet& helpers) {
  if (dtype == DType::f64) return floating_literal(value, false);
  if (dtype == DType::f32) return floating_literal(value, true);
  if (is_narrow_float(dtype)) return cast_text(floating_literal(value, true), DType::f32, dtype, helpers);
  if (dtype == DType::b1) return {value != 0.0 ? "true" : "false", kPrimary};
  const std::string text = std::to_string(static_cast<int64_t>(value));
  return {text, text[0] == '-' ? kUnary : kPrimary};
}

Text constant_text(DType dtype, double number, int64_t integer, HelperSet& helpers) {
  if (is_floating(dtype)) return literal(number, dtype, helpers);
  if (dtype == DType::b1) return {integer != 0 || number != 0.0 ? "true" : "false", kPrimary};
  if (integer == INT64_MIN) return {"INT64_MIN", kPrimary};
  return {std::to_string(integer), integer < 0 ? kUnary : kPrimary};
}

Text cast_text(const Text& value, DType from, DType to, HelperSet& helpers) {
  if (from == to) return value;
  if (is_narrow_float(from)) {
    helpers.insert(narrow_name(from));
    return cast_text(call("float_of_" + narrow_name(from), {value}), DType::f32, to, helpers);
  }
  if (is_narrow_float(to)) {
    helpers.insert(narrow_name(to));
    return call(narrow_name(to) + "_of_float", {cast_text(value, from, DType::f32, helpers)});
  }
  if (to == DType::b1)
    return binary(value, "!=", {from == DType::f32 ? "0.0f" : (from == DType::f64 ? "0.0" : "0"), kPrimary}, kEquality);
  // PyTorch converts to uint8 through a wider integer, so that -1.0 becomes 255.
  if (to == DType::u8 && is_floating(from))
    return cast_text(cast_text(value, from, DType::i64, helpers), DType::i64, to, helpers);
  return {"static_cast<" + value_type(to) + ">(" + value.text + ")", kPrimary};
}

Text op_text(ScalarOp op, DType dtype, const std::vector<Text>& operands, const std::vector<DType>& types,
             HelperSet& helpers) {
  if (op == ScalarOp::kCast) return cast_text(operands[0], types[0], dtype, helpers);
  if (op == ScalarOp::kBounded) {
    helpers.insert("bounded");
    return call("bounded", {operands[0], operands[1], {"refused", kPrimary}});
  }
  if (op == ScalarOp::kSelect)
    return {within(operands[0], kOr) + " ? " + within(operands[1], kOr) + " : " + within(operands[2], kOr), kChoice};

  std::vector<Text> values = operands;
  DType computed = types[0];
  for (size_t i = 0; i < values.size(); ++i)
    if (is_narrow_float(types[i])) {
      values[i] = cast_text(values[i], types[i], DType::f32, helpers);
      computed = DType::f32;
    }
  if (is_logical(op)) return logical(op, values, computed, helpers);
  const DType result = is_narrow_float(dtype) ? DType::f32 : dtype;
  return cast_text(rounding_or_math(op, values, result, helpers), result, dtype, helpers);
}

}  // namespace kw::cpu
