#include "plan/scan_ops.hpp"

#include <limits>

#include "plan/op_table.hpp"

namespace kw::plan {

namespace {

ReduceOp operation_of(const Node& node) {
  switch (rule_of(node)) {
    case OpRule::kProd: return ReduceOp::kProd;
    case OpRule::kMaxAt: return ReduceOp::kMax;
    case OpRule::kMinAt: return ReduceOp::kMin;
    case OpRule::kLogSumExp: return ReduceOp::kLogSumExp;
    default: return ReduceOp::kSum;
  }
}

// Small integers wrap when they are stored; in between they would only be slower.
DType scan_dtype(DType dtype) {
  if (dtype == DType::b1 || dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i16) return DType::i32;
  return compute_dtype(dtype);
}

ExprId identity(GroupBuilder& build, ReduceOp op, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool wide = dtype == DType::i64;
  const int64_t lowest = wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  const int64_t highest = wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  switch (op) {
    case ReduceOp::kProd: return build.constant(dtype, 1);
    case ReduceOp::kMax:
    case ReduceOp::kLogSumExp:
      return is_floating(dtype) ? build.constant(dtype, -infinity) : build.constant(dtype, lowest);
    case ReduceOp::kMin: return is_floating(dtype) ? build.constant(dtype, infinity) : build.constant(dtype, highest);
    default: return build.constant(dtype, 0);
  }
}

}  // namespace

std::optional<double> scan_identity(const Graph& graph, NodeId id) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Node& node = graph.nodes[id];
  const bool floating = is_floating(graph.type(node.value("self")).dtype);
  switch (operation_of(node)) {
    case ReduceOp::kSum: return 0.0;
    case ReduceOp::kProd: return 1.0;
    case ReduceOp::kMin: return floating ? std::optional(infinity) : std::nullopt;
    default: return floating ? std::optional(-infinity) : std::nullopt;
  }
}

ExprId scan_of_one(GroupBuilder& build, const Graph& graph, NodeId id, int result, ExprId operand) {
  const DType dtype = compute_dtype(graph.type(graph.nodes[id].results[result]).dtype);
  return result == 1 ? build.constant(dtype, 0) : build.cast(dtype, operand);
}

ExprId lower_scan(const ScanContext& context) {
  GroupBuilder& k = context.build;
  const Node& node = context.graph.nodes[context.id];
  const ReduceOp op = operation_of(node);
  const bool extreme = op == ReduceOp::kMax || op == ReduceOp::kMin;
  const DType value_dtype = context.graph.type(node.results[0]).dtype;
  const DType dtype = scan_dtype(value_dtype);
  // dtype= casts before the scan: a float that becomes an integer loses its fraction first.
  ExprId operand = k.cast(dtype, extreme ? context.operand : k.cast(compute_dtype(value_dtype), context.operand));
  if (context.inside != kNoExpr) operand = k.select(context.inside, operand, identity(k, op, dtype));
  std::vector<ExprId> operands = {operand};
  if (context.with_positions) {
    const bool wide = product(context.graph.type(node.results[0]).shape) > std::numeric_limits<int32_t>::max();
    operands.push_back(k.index(context.position, wide ? DType::i64 : DType::i32));
  }
  if (context.result == 1) return k.cast(DType::i64, k.scan(op, operands, 1));
  return k.cast(compute_dtype(value_dtype), k.scan(op, operands));
}

}  // namespace kw::plan
