#include "emit/cpu/reductions.hpp"

#include <fmt/format.h>

#include <map>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;
using namespace precedence;

namespace {

// Sums and products of floats run in double: one rounding in the end, whatever the length. Extended ones run in long
// double.
std::string sum_type(DType dtype, ReduceOp reduce) {
  if (reduce == ReduceOp::kExtendedSum) return "long double";
  return is_floating(dtype) ? "double" : value_type(dtype);
}

DType compared_dtype(DType dtype) { return is_narrow_float(dtype) ? DType::f32 : dtype; }

std::string lowest(DType dtype) {
  return is_floating(dtype) ? "-INFINITY" : "std::numeric_limits<" + value_type(dtype) + ">::lowest()";
}
std::string highest(DType dtype) {
  return is_floating(dtype) ? "INFINITY" : "std::numeric_limits<" + value_type(dtype) + ">::max()";
}

}  // namespace

std::string identity_text(ReduceOp reduce, DType dtype) {
  switch (reduce) {
    case ReduceOp::kMax: return lowest(dtype);
    case ReduceOp::kMin: return highest(dtype);
    case ReduceOp::kProd: return "1";
    default: return "0";
  }
}

bool reads_operand_twice(const Expr& reduce) {
  return reduce.reduce == ReduceOp::kMax || reduce.reduce == ReduceOp::kMin;
}

Accumulator make_accumulator(const Expr& expr, DType operand, bool columns, bool plain) {
  Accumulator result;
  result.reduce = expr.reduce;
  switch (expr.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum:
    case ReduceOp::kProd:
      result.type = plain ? value_type(expr.dtype) : sum_type(expr.dtype, expr.reduce);
      result.clause = expr.reduce == ReduceOp::kProd ? "*" : "+";
      result.start = expr.reduce == ReduceOp::kProd ? (is_floating(expr.dtype) ? "1.0" : "1")
                                                    : (is_floating(expr.dtype) ? "0.0" : "0");
      result.holds_result = result.type == value_type(expr.dtype);
      return result;
    case ReduceOp::kMax:
    case ReduceOp::kMin: {
      const DType dtype = compared_dtype(operand);
      result.type = value_type(dtype);
      result.clause = expr.reduce == ReduceOp::kMax ? "max" : "min";
      result.start = expr.reduce == ReduceOp::kMax ? lowest(dtype) : highest(dtype);
      result.tracks_nan = !columns && is_floating(dtype);
      result.holds_result = dtype == expr.dtype;
      return result;
    }
    default: break;
  }
  KW_ASSERT(false, "a compound reduction reached the printer");
}

std::vector<std::string> Accumulator::definition(const std::string& columns) const {
  if (!columns.empty())
    return {fmt::format("alignas(64) {} {}[{}];", type, variable, columns),
            fmt::format("std::fill_n({}, {}, {});", variable, columns, start)};
  std::vector<std::string> lines = {fmt::format("{} {} = {};", type, variable, start)};
  if (tracks_nan) lines.push_back("int " + nan_flag + " = 0;");
  return lines;
}

std::vector<std::string> Accumulator::fold(const Text& operand, DType from, HelperSet& helpers) const {
  const DType dtype = compared_dtype(from);
  const Text value = cast_text(operand, from, dtype, helpers);
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum: return {element + " += " + value.text + ";"};
    case ReduceOp::kProd: return {element + " *= " + value.text + ";"};
    case ReduceOp::kMax:
    case ReduceOp::kMin: {
      const bool largest = reduce == ReduceOp::kMax;
      if (!tracks_nan && is_floating(dtype)) {
        const std::string function = largest ? "maximum" : "minimum";
        helpers.insert(function);
        return {element + " = " + function + "(" + element + ", " + value.text + ");"};
      }
      // Not std::max: its references make GCC select addresses and gather.
      const std::string compared = within(value, kRelation + 1);
      const std::string fold = element + " = " + compared + (largest ? " > " : " < ") + element + " ? " +
                               within(value, kChoice + 1) + " : " + element + ";";
      if (!tracks_nan) return {fold};
      return {fold, nan_flag + " |= " + compared + " != " + compared + ";"};
    }
    default: break;
  }
  KW_ASSERT(false, "a compound reduction reached the printer");
}

Text Accumulator::result_text(const Text& stored, DType dtype, HelperSet& helpers) const {
  if (holds_result) return stored;
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum:
    case ReduceOp::kProd:
      if (type == "long double") return {"static_cast<double>(" + stored.text + ")", kPrimary};
      return cast_text(stored, DType::f64, dtype, helpers);
    default: return cast_text(stored, DType::f32, dtype, helpers);
  }
}

std::vector<std::string> reduction_clauses(const std::vector<const Accumulator*>& accumulators,
                                           const std::string& section) {
  std::map<std::string, std::vector<std::string>> variables;
  for (const Accumulator* accumulator : accumulators) {
    variables[accumulator->clause].push_back(accumulator->variable + section);
    if (accumulator->tracks_nan) variables["|"].push_back(accumulator->nan_flag);
  }
  std::vector<std::string> clauses;
  for (const auto& [operation, list] : variables)
    clauses.push_back("reduction(" + operation + " : " + join(list, ", ") + ")");
  return clauses;
}

}  // namespace kw::cpu
