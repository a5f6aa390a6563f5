#include "targets/cpu/regions.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "targets/cpu/simplify.hpp"

namespace kw::cpu {

using namespace plan::flat;

namespace {

constexpr int64_t kWorthCutting = 256;  // points of a kernel
constexpr size_t kMostRegions = 16;
constexpr int64_t kShortestRun = 32;  // elements: a shorter piece of contiguous memory costs more than a mask

using Cuts = std::map<int, std::set<int64_t>>;  // axis → places within it

bool is_true(const Expr& expr) { return expr.integer != 0 || expr.number != 0.0; }
bool is_known(const Expr& expr) { return expr.kind == ExprKind::kConstant && expr.dtype == DType::b1; }

Expr known(bool value) {
  Expr expr;
  expr.dtype = DType::b1;
  expr.integer = value;
  expr.number = value;
  return expr;
}

// The value of an integer expression as an index over the axes, where it is one; `forms` are those of the expressions
// before it.
std::optional<Index> form_of(const Expr& expr, const std::vector<std::optional<Index>>& forms) {
  if (expr.dtype != DType::i32 && expr.dtype != DType::i64) return std::nullopt;
  if (expr.kind == ExprKind::kIndex) return expr.access.index;
  if (expr.kind == ExprKind::kConstant) return Index(expr.integer);
  if (expr.kind != ExprKind::kOp) return std::nullopt;
  for (ExprId operand : expr.operands)
    if (!forms[operand]) return std::nullopt;
  const auto operand = [&](size_t i) -> const Index& { return *forms[expr.operands[i]]; };
  switch (expr.op) {
    case ScalarOp::kCast: return operand(0);
    case ScalarOp::kAdd: return operand(0) + operand(1);
    case ScalarOp::kSub: return operand(0) - operand(1);
    case ScalarOp::kMul:
      if (!kernel::as_constant(operand(0)) && !kernel::as_constant(operand(1))) return std::nullopt;
      return operand(0) * operand(1);
    default: return std::nullopt;
  }
}

bool compares(ScalarOp op) { return op >= ScalarOp::kEqual && op <= ScalarOp::kGreaterEqual; }

// left − right of a comparison of indices.
std::optional<Index> difference_of(const Expr& expr, const std::vector<std::optional<Index>>& forms) {
  if (expr.kind != ExprKind::kOp || !compares(expr.op) || !forms[expr.operands[0]] || !forms[expr.operands[1]])
    return std::nullopt;
  return *forms[expr.operands[0]] - *forms[expr.operands[1]];
}

// What the comparison of `difference` with 0 says, where it says the same everywhere.
std::optional<bool> answer_of(ScalarOp op, const kernel::Interval& difference) {
  const auto [lowest, highest] = difference;
  const auto decide = [&](bool always, bool never) {
    return always ? std::optional(true) : never ? std::optional(false) : std::nullopt;
  };
  switch (op) {
    case ScalarOp::kEqual: return decide(lowest == 0 && highest == 0, lowest > 0 || highest < 0);
    case ScalarOp::kNotEqual: return decide(lowest > 0 || highest < 0, lowest == 0 && highest == 0);
    case ScalarOp::kLess: return decide(highest < 0, lowest >= 0);
    case ScalarOp::kLessEqual: return decide(highest <= 0, lowest > 0);
    case ScalarOp::kGreater: return decide(lowest > 0, highest <= 0);
    case ScalarOp::kGreaterEqual: return decide(lowest >= 0, highest < 0);
    default: return std::nullopt;
  }
}

// --- Where to cut ---

int64_t floor_quotient(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor != 0 && (value < 0) != (divisor < 0));
}

template <typename Visit>
void for_each_index(const Kernel& kernel, Visit&& visit) {
  const auto visit_access = [&](const Access& access) {
    visit(access.index);
    for (const Guard& guard : access.guards) visit(guard.index);
  };
  for (const Expr& expr : kernel.exprs)
    if (expr.kind != ExprKind::kConstant && expr.kind != ExprKind::kOp) visit_access(expr.access);
  for (const Store& store : kernel.stores) visit_access(store.access);
}

bool is_walked_plainly(const Kernel& kernel, int axis) {
  bool plain = true;
  for_each_index(kernel, [&](const Index& index) {
    for (const kernel::Digit& digit : kernel::digits_of(index))
      plain = plain && (digit.axis != axis || digit.is_plain());
  });
  return plain;
}

class Conditions {
 public:
  explicit Conditions(const Kernel& kernel) : kernel_(kernel) {
    for (const Expr& expr : kernel.exprs) {
      forms_.push_back(form_of(expr, forms_));
      if (is_load(expr)) note(expr.access.guards);
      if (const auto difference = difference_of(expr, forms_)) {
        const bool equality = expr.op == ScalarOp::kEqual || expr.op == ScalarOp::kNotEqual;
        const bool includes = expr.op == ScalarOp::kLess || expr.op == ScalarOp::kGreaterEqual;
        if (equality || includes) note(*difference, 0);
        if (equality || !includes) note(*difference, 1);
      }
    }
    for (const Store& store : kernel.stores) note(store.access.guards);
  }

  Cuts worth_taking() const {
    Cuts taken;
    size_t regions = 1;
    for (const auto& [axis, places] : cuts_) {
      const bool contiguous = std::any_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const Store& store) {
        return stride_along(store.access.index, axis) == 1;
      });
      if (!is_walked_plainly(kernel_, axis) || regions * (places.size() + 1) > kMostRegions) continue;
      if (contiguous && shortest_piece(axis, places) < kShortestRun && !is_looked_up_along(axis)) continue;
      regions *= places.size() + 1;
      taken[axis] = places;
    }
    return taken;
  }

 private:
  void note(const std::vector<Guard>& guards) {
    for (const Guard& guard : guards) {
      note(guard.index, guard.lower);
      note(guard.index, guard.upper);
    }
  }

  // The place along the index's one axis where it reaches `bound`, or falls below it.
  void note(const Index& index, int64_t bound) {
    const std::vector<kernel::Digit> digits = kernel::digits_of(index);
    if (digits.size() != 1 || !digits[0].is_plain()) return;
    const int axis = digits[0].axis;
    const int64_t step = digits[0].coefficient;
    const int64_t distance = bound - index.constant;
    const int64_t place = step > 0 ? -floor_quotient(-distance, step) : floor_quotient(-distance, -step) + 1;
    if (place > 0 && place < kernel_.axes[axis].extent && kernel_.axes[axis].kind == AxisKind::kParallel)
      cuts_[axis].insert(place);
  }

  int64_t shortest_piece(int axis, const std::set<int64_t>& places) const {
    int64_t before = 0, shortest = kernel_.axes[axis].extent;
    for (int64_t place : places) {
      shortest = std::min(shortest, place - before);
      before = place;
    }
    return std::min(shortest, kernel_.axes[axis].extent - before);
  }

  // Does a Gather stand for loads side by side along the axis, but for the cuts?
  bool is_looked_up_along(int axis) const {
    const auto axes = axes_of_exprs(kernel_);
    std::vector<bool> computed(kernel_.exprs.size(), true);  // from the axes alone
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      computed[id] = !is_load(expr) && std::all_of(expr.operands.begin(), expr.operands.end(),
                                                   [&](ExprId operand) { return computed[operand]; });
      if (expr.kind == ExprKind::kGather && computed[expr.operands[0]] && axes[expr.operands[0]][axis]) return true;
    }
    return false;
  }

  const Kernel& kernel_;
  std::vector<std::optional<Index>> forms_;
  Cuts cuts_;
};

// --- One region ---

// The axis from `first` to before `end`, counted from 0.
void narrow(Kernel& kernel, int axis, int64_t first, int64_t end) {
  const auto move = [&](Index& index) { index.constant += first * stride_along(index, axis); };
  const auto move_access = [&](Access& access) {
    move(access.index);
    for (Guard& guard : access.guards) move(guard.index);
  };
  for (Expr& expr : kernel.exprs)
    if (expr.kind != ExprKind::kConstant && expr.kind != ExprKind::kOp) move_access(expr.access);
  for (Store& store : kernel.stores) move_access(store.access);
  kernel.axes[axis].extent = end - first;
}

class Folder {
 public:
  explicit Folder(Kernel kernel) : kernel_(std::move(kernel)), ranges_(ranges_of(kernel_.axes)) {}

  // What the axes' extents decide, decided; without what is then not needed.
  Kernel run() {
    for (const Expr& old : kernel_.exprs) moved_.push_back(fold(old));
    for (Store& store : kernel_.stores) {
      store.value = moved_[store.value];
      drop_certain(store.access.guards);
    }
    std::erase_if(kernel_.stores, [&](const Store& store) { return never_holds(store.access.guards); });
    keep_needed();
    return std::move(kernel_);
  }

 private:
  ExprId insert(Expr expr) {
    forms_.push_back(form_of(expr, forms_));
    exprs_.push_back(std::move(expr));
    return static_cast<ExprId>(exprs_.size() - 1);
  }

  ExprId fold(const Expr& old) {
    Expr expr = old;
    for (ExprId& operand : expr.operands) operand = moved_[operand];
    if (is_load(expr)) return fold_load(std::move(expr));
    if (expr.kind != ExprKind::kOp) return insert(std::move(expr));
    if (const auto difference = difference_of(expr, forms_))
      if (const auto answer = answer_of(expr.op, range_of(*difference, ranges_))) return insert(known(*answer));
    const auto decided = [&](size_t i) { return is_known(exprs_[expr.operands[i]]); };
    const auto holds = [&](size_t i) { return is_true(exprs_[expr.operands[i]]); };
    if (expr.op == ScalarOp::kSelect && decided(0)) return expr.operands[holds(0) ? 1 : 2];
    if (expr.op == ScalarOp::kLogicalNot && decided(0)) return insert(known(!holds(0)));
    const bool both = expr.op == ScalarOp::kLogicalAnd, either = expr.op == ScalarOp::kLogicalOr;
    for (size_t i = 0; (both || either) && expr.dtype == DType::b1 && i < 2; ++i) {
      if (!decided(i)) continue;
      if (holds(i) == either) return insert(known(either));
      if (exprs_[expr.operands[1 - i]].dtype == DType::b1) return expr.operands[1 - i];
    }
    return insert(std::move(expr));
  }

  ExprId fold_load(Expr expr) {
    drop_certain(expr.access.guards);
    const bool conditional = expr.kind == ExprKind::kGather && expr.operands.size() > 1 &&
                             is_known(exprs_[expr.operands[1]]);
    if (never_holds(expr.access.guards) || (conditional && !is_true(exprs_[expr.operands[1]])))
      return insert(otherwise_of(expr));
    if (conditional) expr.operands.pop_back();
    if (expr.kind == ExprKind::kGather && expr.operands.size() == 1 && forms_[expr.operands[0]]) {
      expr.access.index = expr.access.index + *forms_[expr.operands[0]];
      expr.kind = ExprKind::kLoad;
      expr.operands.clear();
    }
    return insert(std::move(expr));
  }

  static Expr otherwise_of(const Expr& load) {
    Expr expr;
    expr.dtype = load.dtype;
    expr.number = load.access.otherwise;
    if (!is_floating(load.dtype)) expr.integer = static_cast<int64_t>(load.access.otherwise);
    return expr;
  }

  void drop_certain(std::vector<Guard>& guards) const {
    std::erase_if(guards, [&](const Guard& guard) {
      const kernel::Interval range = range_of(guard.index, ranges_);
      return range.low >= guard.lower && range.high < guard.upper;
    });
  }

  bool never_holds(const std::vector<Guard>& guards) const {
    return std::any_of(guards.begin(), guards.end(), [&](const Guard& guard) {
      const kernel::Interval range = range_of(guard.index, ranges_);
      return range.high < guard.lower || range.low >= guard.upper;
    });
  }

  void keep_needed() {
    std::vector<bool> needed(exprs_.size(), false);
    for (const Store& store : kernel_.stores) needed[store.value] = true;
    for (size_t id = exprs_.size(); id-- > 0;)
      if (needed[id])
        for (ExprId operand : exprs_[id].operands) needed[operand] = true;
    std::vector<ExprId> place(exprs_.size(), kNoExpr);
    kernel_.exprs.clear();
    for (size_t id = 0; id < exprs_.size(); ++id) {
      if (!needed[id]) continue;
      for (ExprId& operand : exprs_[id].operands) operand = place[operand];
      place[id] = static_cast<ExprId>(kernel_.exprs.size());
      kernel_.exprs.push_back(std::move(exprs_[id]));
    }
    for (Store& store : kernel_.stores) store.value = place[store.value];
  }

  Kernel kernel_;
  const std::vector<kernel::SymbolRange> ranges_;
  std::vector<Expr> exprs_;
  std::vector<std::optional<Index>> forms_;
  std::vector<ExprId> moved_;
};

// Do all indices go on along `outer` where `inner` ends?
bool lie_behind_each_other(const Kernel& kernel, int outer, int inner) {
  if (kernel.axes[outer].extent <= 1 || kernel.axes[inner].extent <= 1 || !is_walked_plainly(kernel, outer) ||
      !is_walked_plainly(kernel, inner))
    return false;
  bool together = true;
  for_each_index(kernel, [&](const Index& index) {
    together = together && stride_along(index, outer) == stride_along(index, inner) * kernel.axes[inner].extent;
  });
  return together;
}

void merge(Simplified& region, int outer, int inner) {
  Kernel& kernel = region.kernel;
  kernel.axes[inner].name = "element";
  kernel.axes[inner].extent *= kernel.axes[outer].extent;
  std::vector<Index> replacement;
  for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis)
    replacement.push_back(axis == outer ? Index(0) : kernel::symbol_index(axis - (axis > outer)));
  kernel.axes.erase(kernel.axes.begin() + outer);
  const std::vector<kernel::SymbolRange> ranges = ranges_of(kernel.axes);
  const auto rewrite = [&](Index& index) { index = kernel::replace_digits(index, replacement, ranges).value(); };
  const auto rewrite_access = [&](Access& access) {
    rewrite(access.index);
    for (Guard& guard : access.guards) rewrite(guard.index);
  };
  for (Expr& expr : kernel.exprs) rewrite_access(expr.access);
  for (Store& store : kernel.stores) rewrite_access(store.access);
  int& contiguous = region.hints.contiguous_axis;
  if (contiguous == outer) contiguous = inner;
  if (contiguous > outer) --contiguous;
}

void merge_axes(Simplified& region) {
  const Kernel& kernel = region.kernel;
  for (int outer = 0; outer < static_cast<int>(kernel.axes.size()); ++outer)
    for (int inner = 0; inner < static_cast<int>(kernel.axes.size()); ++inner) {
      if (outer == inner || !lie_behind_each_other(kernel, outer, inner)) continue;
      merge(region, outer, inner);
      return merge_axes(region);
    }
}

bool is_pointwise(const Kernel& kernel) {
  return std::all_of(kernel.axes.begin(), kernel.axes.end(),
                     [](const Axis& axis) { return axis.kind == AxisKind::kParallel; });
}

}  // namespace

std::vector<Simplified> regions_of(const Simplified& whole) {
  const Kernel& kernel = whole.kernel;
  int64_t points = 1;
  for (const Axis& axis : kernel.axes) points *= axis.extent;
  const Cuts cuts = is_pointwise(kernel) && !scatters(kernel) && points >= kWorthCutting
                        ? Conditions(kernel).worth_taking()
                        : Cuts{};
  std::vector<Simplified> regions{whole};
  for (const auto& [axis, places] : cuts) {
    std::vector<Simplified> cut;
    for (const Simplified& region : regions) {
      int64_t first = 0;
      const auto add_until = [&](int64_t end) {
        cut.push_back(region);
        narrow(cut.back().kernel, axis, first, end);
        first = end;
      };
      for (int64_t place : places) add_until(place);
      add_until(kernel.axes[axis].extent);
    }
    regions = std::move(cut);
  }
  if (regions.size() == 1) return regions;
  for (Simplified& region : regions) {
    region.kernel = Folder(std::move(region.kernel)).run();
    drop_unit_axes(region.kernel);
    merge_axes(region);
  }
  std::erase_if(regions, [](const Simplified& region) { return region.kernel.stores.empty(); });
  return regions;
}

}  // namespace kw::cpu
