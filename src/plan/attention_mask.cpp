#include "plan/attention_mask.hpp"

#include <algorithm>
#include <cmath>

#include "plan/product_lowering.hpp"

namespace kw::plan {
namespace {

bool is_lowest(const Expr& expr) {
  return expr.kind == ExprKind::kConstant && std::isinf(expr.number) && expr.number < 0;
}

// [expr] Is the expression, or what it is made of, among those that `is` names?
template <typename Is>
std::vector<bool> made_with(const GroupKernel& kernel, Is&& is) {
  std::vector<bool> with(kernel.exprs.size());
  for (size_t id = 0; id < with.size(); ++id) {
    with[id] = is(kernel.exprs[id]);
    for (ExprId part : made_of(kernel, kernel.exprs[id])) with[id] = with[id] || with[part];
  }
  return with;
}

}  // namespace

std::optional<MaskedScores> masked_scores(const Attention& attention) {
  const LoweredGroup& scores = *attention.scores;
  if (scores.kernel.stores.size() != 1) return std::nullopt;
  const int product = product_buffer(scores);
  const std::vector<bool> of_scores = made_with(
      scores.kernel, [&](const Expr& expr) { return is_load(expr) && expr.access.buffer == product; });
  ExprId id = scores.kernel.stores[0].value;
  const auto& exprs = scores.kernel.exprs;
  while (exprs[id].kind == ExprKind::kOp && exprs[id].op == ScalarOp::kCast && is_floating(exprs[id].dtype))
    id = exprs[id].operands[0];
  const Expr& select = exprs[id];
  if (select.kind != ExprKind::kOp || select.op != ScalarOp::kSelect || of_scores[select.operands[0]])
    return std::nullopt;
  if (is_lowest(exprs[select.operands[1]])) return MaskedScores{select.operands[0], false};
  if (is_lowest(exprs[select.operands[2]])) return MaskedScores{select.operands[0], true};
  return std::nullopt;
}

bool is_masked_by_places(const Attention& attention) {
  if (attention.is_causal) return true;
  const auto masked = masked_scores(attention);
  if (!masked) return false;
  return !made_with(attention.scores->kernel, is_load)[masked->condition];
}

int64_t conditions_of_mask(const LoweredGroup& group) {
  const Attention& attention = *group.attention;
  const Product& scores = *attention.scores->product;
  int64_t count = 1;
  if (attention.mask) {
    for (size_t axis = 0; axis < scores.batch.size(); ++axis)
      if (attention.mask->batch[axis] != 0) count *= scores.batch[axis];
    return attention.mask->column == 0 ? 0 : count * (attention.mask->row == 0 ? 1 : scores.rows) * scores.columns;
  }
  const auto masked = masked_scores(attention);
  if (!masked) return 0;
  const GroupKernel& kernel = attention.scores->kernel;
  std::vector<bool> used(kernel.exprs.size()), varies(kernel.symbols.size());
  used[masked->condition] = true;
  for (ExprId id = masked->condition + 1; id-- > 0;) {
    if (!used[id]) continue;
    const Expr& expr = kernel.exprs[id];
    for (ExprId part : made_of(kernel, expr)) used[part] = true;
    for (int axis = 0; axis < axis_count(kernel); ++axis)
      varies[axis] = varies[axis] || kernel::uses(expr.index, axis) ||
                     (is_load(expr) && uses_axis(kernel, expr.access, axis));
  }
  for (int axis = 0; axis < axis_count(kernel); ++axis)
    if (varies[axis]) count *= extent_of(kernel, axis);
  return count;
}

}  // namespace kw::plan
