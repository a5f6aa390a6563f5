// How one simple reduction is accumulated: its start, how a value is folded in, and how the result is read.
// Compound reductions are gone by then (simplify.hpp).
#pragma once

#include <string>
#include <vector>

#include "emit/cpu/cpp_text.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

struct Accumulator {
  kernel_ir::ReduceOp reduce;
  std::string type, start;
  std::string clause;         // of `#pragma omp … reduction(clause : variable)`
  bool holds_result = false;  // the variable itself is the result
  bool tracks_nan = false;    // OpenMP's max and min lose NaN, so rows note it in a flag
  std::string variable, nan_flag;
  std::string element;  // the variable, or the element of its array that belongs to a column

  // The variable with its start: one, or an array of `columns` (C++ text).
  std::vector<std::string> definition(const std::string& columns) const;

  // Statements that fold an operand, of dtype `from`, into `element`.
  std::vector<std::string> fold(const Text& operand, DType from, HelperSet& helpers) const;

  // `stored`, the accumulated value, as `dtype`.
  Text result_text(const Text& stored, DType dtype, HelperSet& helpers) const;
};

// OpenMP's clauses that combine the threads' accumulators; `section` of each, "" where they are variables.
std::vector<std::string> reduction_clauses(const std::vector<const Accumulator*>& accumulators,
                                           const std::string& section);

// `plain`: of few elements, added in the result's own precision.
Accumulator make_accumulator(const kernel_ir::Expr& reduce, DType operand, bool columns, bool plain = false);

// What changes nothing when a simple reduction folds it in.
std::string identity_text(kernel_ir::ReduceOp reduce, DType dtype);

bool reads_operand_twice(const kernel_ir::Expr& reduce);

}  // namespace kw::cpu
