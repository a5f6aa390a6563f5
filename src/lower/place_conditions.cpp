#include "lower/place_conditions.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::Index;
using kernel::ScalarOp;

// A whole number that is made of axes and constants.
std::optional<Index> index_of(const kernel::Kernel& kernel, ExprId id) {
  const Expr& expr = kernel.exprs[id];
  if (expr.kind == ExprKind::kIndex) return expr.index;
  if (is_floating(expr.dtype)) return std::nullopt;
  if (expr.kind == ExprKind::kConstant) return Index(expr.integer);
  if (expr.kind != ExprKind::kOp) return std::nullopt;
  if (expr.op == ScalarOp::kCast && size_of(expr.dtype) >= 4) return index_of(kernel, expr.operands[0]);
  if (expr.op != ScalarOp::kAdd && expr.op != ScalarOp::kSub) return std::nullopt;
  const auto left = index_of(kernel, expr.operands[0]), right = index_of(kernel, expr.operands[1]);
  if (!left || !right) return std::nullopt;
  return expr.op == ScalarOp::kAdd ? *left + *right : *left - *right;
}

bool is_zero(const Expr& expr) {
  return expr.kind == ExprKind::kConstant && (is_floating(expr.dtype) ? expr.number == 0.0 : expr.integer == 0);
}

// What both say.
void add(std::vector<Index>& all, const std::vector<Index>& more) { all.insert(all.end(), more.begin(), more.end()); }

// What is asked where an expression takes another in; nullopt: it nowhere does.
using Asked = std::optional<std::vector<Index>>;

class Uses {
 public:
  Uses(const kernel::Kernel& kernel, const std::vector<ExprId>& used) : kernel_(kernel), used_(used) {}

  std::vector<Index> of_stores() {
    Asked asked;
    for (const kernel::Store& store : kernel_.stores) {
      Asked of_store = of(store.value);
      if (of_store && store.access.mask != kernel::kNoExpr) add(*of_store, asked_of_places(kernel_, store.access.mask));
      for (const ExprId part : kernel::inputs_of(store.access)) join(of_store, of(part));
      join(asked, of_store);
    }
    return asked.value_or(std::vector<Index>{});
  }

 private:
  // Either of two may take it in: what both ask.
  static void join(Asked& asked, const Asked& other) {
    if (!other) return;
    if (!asked) asked = other;
    else std::erase_if(*asked, [&](const Index& one) { return std::count(other->begin(), other->end(), one) == 0; });
  }

  Asked of(ExprId id) {
    if (id == kernel::kNoExpr) return std::nullopt;
    if (std::count(used_.begin(), used_.end(), id) > 0) return std::vector<Index>{};
    const auto [found, is_new] = known_.try_emplace(id);
    if (!is_new) return found->second;
    const Asked asked = of_expr(kernel_.exprs[id]);
    known_[id] = asked;
    return asked;
  }

  Asked of_expr(const Expr& expr) {
    // A state has taken in what an earlier step made, whatever this one asks.
    if (expr.kind == ExprKind::kState) return std::vector<Index>{};
    Asked asked;
    if (expr.kind != ExprKind::kOp || expr.op != ScalarOp::kSelect) {
      for (const ExprId input : kernel::inputs_of(expr)) join(asked, of(input));
      return asked;
    }
    for (const bool otherwise : {false, true}) {
      Asked of_choice = of(expr.operands[otherwise ? 2 : 1]);
      if (of_choice) add(*of_choice, asked_of_places(kernel_, expr.operands[0], otherwise));
      join(asked, of_choice);
    }
    join(asked, of(expr.operands[0]));
    return asked;
  }

  const kernel::Kernel& kernel_;
  const std::vector<ExprId>& used_;
  std::map<ExprId, Asked> known_;
};

}  // namespace

std::vector<Index> asked_of_places(const kernel::Kernel& kernel, ExprId condition, bool not_) {
  const Expr& expr = kernel.exprs[condition];
  if (expr.kind != ExprKind::kOp) return {};
  const auto both = [&] {
    std::vector<Index> asked = asked_of_places(kernel, expr.operands[0], not_);
    add(asked, asked_of_places(kernel, expr.operands[1], not_));
    return asked;
  };
  switch (expr.op) {
    case ScalarOp::kLogicalNot: return asked_of_places(kernel, expr.operands[0], !not_);
    case ScalarOp::kLogicalAnd: return not_ ? std::vector<Index>{} : both();
    case ScalarOp::kLogicalOr: return not_ ? both() : std::vector<Index>{};
    case ScalarOp::kCast: return asked_of_places(kernel, expr.operands[0], not_);
    // A mask of ones and zeros, as tril and triu make one: not 0 where both conditions hold.
    case ScalarOp::kSelect: return !not_ && is_zero(kernel.exprs[expr.operands[2]]) ? both() : std::vector<Index>{};
    case ScalarOp::kEqual:
    case ScalarOp::kNotEqual:
      if (!is_zero(kernel.exprs[expr.operands[1]])) return {};
      return asked_of_places(kernel, expr.operands[0], not_ != (expr.op == ScalarOp::kEqual));
    default: break;
  }
  const bool less = expr.op == ScalarOp::kLess || expr.op == ScalarOp::kLessEqual,
             greater = expr.op == ScalarOp::kGreater || expr.op == ScalarOp::kGreaterEqual;
  if (!less && !greater) return {};
  const auto left = index_of(kernel, expr.operands[0]), right = index_of(kernel, expr.operands[1]);
  if (!left || !right) return {};
  const bool smaller_first = less != not_;
  const bool or_equal = (expr.op == ScalarOp::kLessEqual || expr.op == ScalarOp::kGreaterEqual) != not_;
  return {(smaller_first ? *right - *left : *left - *right) - Index(or_equal ? 0 : 1)};
}

std::vector<Index> asked_where_used(const kernel::Kernel& kernel, const std::vector<ExprId>& used) {
  return Uses(kernel, used).of_stores();
}

}  // namespace kw::lower
