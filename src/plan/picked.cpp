#include "plan/picked.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace kw::plan {

namespace {

// Shorter rows are folded in fewer instructions than a scattered load takes.
constexpr int64_t kShortestAxis = 32;

// Expressions as they are at one place of an axis, which an expression names.
class AtPlace {
 public:
  AtPlace(GroupBuilder& build, int axis, ExprId place)
      : build_(build), axis_(axis), place_(place), varies_(kernel::dependences(build.kernel())) {}

  // kNoExpr: not expressible.
  ExprId at(ExprId id) {
    if (id >= static_cast<ExprId>(varies_.size()) || !varies_[id][axis_]) return id;
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Expr expr = build_.expr(id);  // a copy: what is inserted may move it
    const ExprId answer = computed(expr);
    known_.emplace(id, answer);
    return answer;
  }

 private:
  // `index` is left without the axis' terms, whose sum this is.
  ExprId moved(Index& index) {
    std::vector<kernel::Digit> digits = kernel::digits_of(index);
    std::erase_if(digits, [&](const kernel::Digit& digit) { return digit.axis != axis_; });
    int64_t reach = 0;
    for (const kernel::Digit& digit : digits) reach += std::abs(digit.coefficient) * extent_of(build_.kernel(), axis_);
    const DType dtype = reach <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    ExprId sum = kNoExpr;
    for (const kernel::Digit& term : digits) {
      ExprId part = build_.cast(dtype, place_);
      if (term.divisor != 1) part = build_.op(ScalarOp::kFloorDiv, {part, build_.constant(dtype, term.divisor)});
      if (term.modulus != 0) part = build_.op(ScalarOp::kRemainder, {part, build_.constant(dtype, term.modulus)});
      part = build_.mul(part, build_.constant(dtype, term.coefficient));
      sum = sum == kNoExpr ? part : build_.add(sum, part);
    }
    std::erase_if(index.terms, [&](const kernel::IndexTerm& term) { return kernel::digit_of(term)->axis == axis_; });
    return sum;
  }

  ExprId computed(Expr expr) {
    if (expr.kind == ExprKind::kIndex) {
      const ExprId along = moved(expr.index);
      const ExprId rest = build_.index(expr.index, expr.dtype);
      const ExprId part = build_.cast(expr.dtype, along);
      return build_.is_constant(rest, 0.0) ? part : build_.add(part, rest);
    }
    if (is_load(expr)) return loaded(std::move(expr));
    if (expr.kind != ExprKind::kOp) return kNoExpr;
    for (ExprId& operand : expr.operands)
      if ((operand = at(operand)) == kNoExpr) return kNoExpr;
    expr.name.clear();
    return build_.insert(std::move(expr));
  }

  ExprId loaded(Expr expr) {
    const MaskParts parts = parts_of_mask(build_.kernel(), expr.access.mask);
    if (parts.guards != kNoExpr && varies_[parts.guards][axis_]) return kNoExpr;
    ExprId& lookup = expr.access.coordinates[0].value;
    if (lookup != kNoExpr && (lookup = at(lookup)) == kNoExpr) return kNoExpr;
    if (parts.condition != kNoExpr) {
      const ExprId condition = at(parts.condition);
      if (condition == kNoExpr) return kNoExpr;
      expr.access.mask = build_.both(parts.guards, condition);
    }
    Index& index = index_of(expr.access);
    if (kernel::uses(index, axis_)) {
      const ExprId by = moved(index);
      if (lookup == kNoExpr) lookup = by;
      else if (build_.dtype(by) == build_.dtype(lookup)) lookup = build_.add(lookup, by);
      else lookup = build_.add(build_.cast(DType::i64, lookup), build_.cast(DType::i64, by));
    }
    expr.name.clear();
    return build_.insert(std::move(expr));
  }

  GroupBuilder& build_;
  int axis_;
  ExprId place_;
  std::vector<std::vector<bool>> varies_;
  std::map<ExprId, ExprId> known_;
};

// The one reduce axis; -1 where there are several.
int reduce_axis_of(const GroupKernel& kernel) {
  return kernel.parallel + 1 == axis_count(kernel) ? kernel.parallel : -1;
}

bool is_position(const Expr& expr, int axis) {
  return expr.kind == ExprKind::kIndex && kernel::as_symbol(expr.index) == axis;
}

}  // namespace

std::optional<ExprId> picked_sum(GroupBuilder& build, ExprId operand) {
  const int axis = reduce_axis_of(build.kernel());
  if (axis < 0 || extent_of(build.kernel(), axis) < kShortestAxis) return std::nullopt;
  const Expr choice = build.expr(operand);
  if (choice.kind != ExprKind::kOp || choice.op != ScalarOp::kSelect) return std::nullopt;
  const Expr condition = build.expr(choice.operands[0]);
  if (condition.kind != ExprKind::kOp || condition.op != ScalarOp::kEqual) return std::nullopt;
  if (!build.is_constant(choice.operands[2], 0.0)) return std::nullopt;
  ExprId number = condition.operands[0], position = condition.operands[1];
  if (is_position(build.expr(number), axis)) std::swap(number, position);
  if (!is_position(build.expr(position), axis)) return std::nullopt;
  if (!is_integral(build.dtype(number)) || build.dtype(number) == DType::b1) return std::nullopt;
  if (kernel::dependences(build.kernel())[number][axis]) return std::nullopt;

  if (size_of(build.dtype(number)) < 4) number = build.cast(DType::i32, number);  // too narrow for the extent
  const DType dtype = build.dtype(number);
  const ExprId none = build.constant(dtype, 0), end = build.constant(dtype, extent_of(build.kernel(), axis));
  const ExprId begins = build.op(ScalarOp::kGreaterEqual, {number, none});
  const ExprId ends = build.op(ScalarOp::kLess, {number, end});
  const ExprId inside = build.op(ScalarOp::kLogicalAnd, {begins, ends});
  build.name(inside, "inside");
  const ExprId value = AtPlace(build, axis, build.select(inside, number, none)).at(choice.operands[1]);
  if (value == kNoExpr) return std::nullopt;
  return build.select(inside, value, build.constant(build.dtype(value), 0.0));
}

}  // namespace kw::plan
