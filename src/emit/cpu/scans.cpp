#include "emit/cpu/scans.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;
using namespace precedence;

namespace {

std::string start_of(ReduceOp op, DType dtype) {
  const bool floating = is_floating(dtype);
  const std::string limits = "std::numeric_limits<" + value_type(dtype) + ">::";
  switch (op) {
    case ReduceOp::kProd: return floating ? "1.0" : "1";
    case ReduceOp::kMax: return floating ? "-INFINITY" : limits + "lowest()";
    case ReduceOp::kMin: return floating ? "INFINITY" : limits + "max()";
    case ReduceOp::kLogSumExp: return "-INFINITY";
    default: return floating ? "0.0" : "0";
  }
}

}  // namespace

std::vector<Carry> make_carries(const Kernel& kernel, ExprId scan, const std::string& count,
                                const std::string& position, Names& names) {
  const Expr& expr = kernel.exprs[scan];
  const bool extreme = expr.reduce == ReduceOp::kMax || expr.reduce == ReduceOp::kMin;
  std::vector<Carry> carries;
  if (is_sort(expr)) return carries;
  const auto add = [&](DType dtype, const std::string& wanted, const std::string& start) {
    Carry carry;
    carry.dtype = dtype;
    const std::string name = names.fresh(wanted);
    carry.element = count.empty() ? name : name + "[" + position + "]";
    if (count.empty()) carry.declaration = {value_type(dtype) + " " + name + " = " + start + ";"};
    else
      carry.declaration = {"alignas(64) " + value_type(dtype) + " " + name + "[" + count + "];",
                           "std::fill_n(" + name + ", " + count + ", " + start + ");"};
    carries.push_back(std::move(carry));
  };
  DType dtype = kernel.exprs[expr.operands[0]].dtype;
  if (is_narrow_float(dtype)) dtype = DType::f32;
  // As PyTorch does: sums and products of floats run in double and are rounded once.
  if (!extreme && is_floating(dtype)) dtype = DType::f64;
  add(dtype, "carry", start_of(expr.reduce, dtype));
  if (expr.operands.size() > 1) add(kernel.exprs[expr.operands[1]].dtype, "carry_at", "0");
  return carries;
}

std::vector<std::string> scan_step(const Kernel& kernel, ExprId scan, const std::vector<Carry>& carries,
                                   const std::vector<Text>& operands, Names& names, HelperSet& helpers) {
  const Expr& expr = kernel.exprs[scan];
  const Carry& carry = carries[0];
  const DType from = kernel.exprs[expr.operands[0]].dtype;
  const Text next = is_narrow_float(from) ? cast_text(operands[0], from, DType::f32, helpers) : operands[0];
  const bool largest = expr.reduce == ReduceOp::kMax;
  switch (expr.reduce) {
    case ReduceOp::kSum: return {carry.element + " += " + next.text + ";"};
    case ReduceOp::kProd: return {carry.element + " *= " + next.text + ";"};
    case ReduceOp::kLogSumExp:
      helpers.insert("log_add_exp");
      return {carry.element + " = log_add_exp<double>(" + carry.element + ", " + next.text + ");"};
    case ReduceOp::kMax:
    case ReduceOp::kMin: {
      const std::string compared = within(next, kRelation + 1);
      const std::string beats = compared + (largest ? " >= " : " <= ") + carry.element;
      // NaN beats everything and nothing but NaN beats it.
      const std::string condition = is_floating(from) ? beats + " || " + compared + " != " + compared : beats;
      const auto move = [&](const std::string& when, const Carry& kept, const Text& value) {
        return kept.element + " = " + when + " ? " + within(value, kChoice + 1) + " : " + kept.element + ";";
      };
      if (carries.size() == 1) return {move(condition, carry, next)};
      const std::string moves = names.fresh("moves");
      return {"const bool " + moves + " = " + condition + ";", move(moves, carry, next),
              move(moves, carries[1], operands[1])};
    }
    default: break;
  }
  KW_ASSERT(false, "a Scan that the CPU printer does not know");
}

int64_t elements_at_a_time(const Kernel& kernel, const LoopNest& nest) {
  const auto along = [&](int axis, int64_t part) { return part ? part : kernel.axes[axis].extent; };
  return along(nest.vector_axis, nest.piece) *
         (nest.row_axis < 0 ? 1 : along(nest.row_axis, nest.block_of(nest.row_axis)));
}

PieceArray make_piece_array(DType dtype, const std::string& name, int64_t elements, const std::string& count,
                            const std::string& row_start, const std::string& position) {
  constexpr int64_t kMostStackBytes = 128 * 1024;
  const std::string type = storage_type(dtype);
  PieceArray array;
  if (elements * size_of(dtype) <= kMostStackBytes)
    array.declaration = {"alignas(64) " + type + " " + name + "[" + count + "];"};
  // Memory that is given back at each row costs its page faults each time.
  else
    array.declaration = {"static thread_local std::vector<" + type + "> " + name + "_memory(" + count + ");",
                         type + "* const " + name + " = " + name + "_memory.data();"};
  array.start = row_start.empty() ? name : name + " + " + row_start;
  array.element = name + "[" + (row_start.empty() ? "" : row_start + " + ") + position + "]";
  return array;
}

std::optional<Access> row_in_memory(const Kernel& kernel, const LoopNest& nest, ExprId load) {
  const Expr& expr = kernel.exprs[load];
  Access access = expr.access;
  if (expr.kind != ExprKind::kLoad || !access.guards.empty() || kernel.buffers[access.buffer].dtype != expr.dtype)
    return std::nullopt;
  const auto along = [&](const IndexTerm& term) { return term.axis == nest.vector_axis; };
  const auto own = std::find_if(access.index.terms.begin(), access.index.terms.end(), along);
  if (own == access.index.terms.end() || *own != IndexTerm{nest.vector_axis, 1, 1, 0}) return std::nullopt;
  if (std::erase_if(access.index.terms, along) != 1) return std::nullopt;
  return access;
}

std::string sort_call(const Kernel& kernel, ExprId sort, const std::string& values, const std::string& count,
                      const std::string& sorted, const std::string& places) {
  const Expr& expr = kernel.exprs[sort];
  const DType dtype = kernel.exprs[expr.operands[0]].dtype;
  const std::string order = dtype == DType::f16    ? "HalfOrder"
                            : dtype == DType::bf16 ? "Bfloat16Order"
                                                   : "OrderOf<" + storage_type(dtype) + ">";
  const std::string first = expr.integer == 0 ? count : std::to_string(expr.integer);
  return "sort_row<" + order + ", " + (expr.reduce == ReduceOp::kSortDown ? "true" : "false") + ", " +
         storage_type(dtype) + ", " +
         storage_type(expr.operands.size() > 1 ? kernel.exprs[expr.operands[1]].dtype : DType::i32) + ">(" + values +
         ", " + count + ", " + first + ", " + (sorted.empty() ? "nullptr" : sorted) + ", " +
         (places.empty() ? "nullptr" : places) + ");";
}

std::vector<std::vector<ExprId>> scan_levels(const Kernel& kernel, const std::vector<bool>& reached) {
  std::vector<std::vector<ExprId>> levels;
  std::vector<size_t> below(kernel.exprs.size(), 0);  // how many levels an expression needs
  std::vector<bool> listed(kernel.exprs.size(), false);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    for (ExprId operand : expr.operands) below[id] = std::max(below[id], below[operand]);
    if (expr.kind != ExprKind::kScan) continue;
    const size_t level = below[id]++;
    const ExprId first = siblings_of(kernel, static_cast<ExprId>(id)).front();
    if (!reached[id] || listed[first]) continue;
    listed[first] = true;
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].push_back(static_cast<ExprId>(id));
  }
  return levels;
}

}  // namespace kw::cpu
