#include "targets/cpu/regions.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "plan/axes.hpp"
#include "support/error.hpp"
#include "targets/cpu/simplify.hpp"

namespace kw::cpu {

using namespace plan;

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
  if (expr.kind == ExprKind::kIndex) return expr.index;
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

bool is_walked_plainly(const GroupKernel& kernel, int axis) {
  bool plain = true;
  for_each_index(kernel, [&](const Index& index) {
    for (const kernel::Digit& digit : kernel::digits_of(index))
      plain = plain && (digit.axis != axis || digit.is_plain());
  });
  return plain;
}

class Conditions {
 public:
  explicit Conditions(const GroupKernel& kernel) : kernel_(kernel) {
    for (const Expr& expr : kernel.exprs) {
      forms_.push_back(form_of(expr, forms_));
      if (const auto difference = difference_of(expr, forms_)) {
        const bool equality = expr.op == ScalarOp::kEqual || expr.op == ScalarOp::kNotEqual;
        const bool includes = expr.op == ScalarOp::kLess || expr.op == ScalarOp::kGreaterEqual;
        if (equality || includes) note(*difference, 0);
        if (equality || !includes) note(*difference, 1);
      }
    }
  }

  Cuts worth_taking() const {
    Cuts taken;
    size_t regions = 1;
    for (const auto& [axis, places] : cuts_) {
      const bool contiguous = std::any_of(kernel_.stores.begin(), kernel_.stores.end(),
                                          [&](const Store& store) { return stride_along(store.access, axis) == 1; });
      if (!is_walked_plainly(kernel_, axis) || regions * (places.size() + 1) > kMostRegions) continue;
      if (contiguous && shortest_piece(axis, places) < kShortestRun && !is_looked_up_along(axis)) continue;
      regions *= places.size() + 1;
      taken[axis] = places;
    }
    return taken;
  }

 private:
  // The place along the index's one axis where it reaches `bound`, or falls below it.
  void note(const Index& index, int64_t bound) {
    const std::vector<kernel::Digit> digits = kernel::digits_of(index);
    if (digits.size() != 1 || !digits[0].is_plain()) return;
    const int axis = digits[0].axis;
    const int64_t step = digits[0].coefficient;
    const int64_t distance = bound - index.constant;
    const int64_t place = step > 0 ? -floor_quotient(-distance, step) : floor_quotient(-distance, -step) + 1;
    if (place > 0 && place < extent_of(kernel_, axis) && !is_serial(kernel_, axis)) cuts_[axis].insert(place);
  }

  int64_t shortest_piece(int axis, const std::set<int64_t>& places) const {
    int64_t before = 0, shortest = extent_of(kernel_, axis);
    for (int64_t place : places) {
      shortest = std::min(shortest, place - before);
      before = place;
    }
    return std::min(shortest, extent_of(kernel_, axis) - before);
  }

  // Does a lookup stand for loads side by side along the axis, but for the cuts?
  bool is_looked_up_along(int axis) const {
    const auto axes = kernel::dependences(kernel_);
    std::vector<bool> computed(kernel_.exprs.size(), true);  // from the axes alone
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      computed[id] = !is_load(expr) && std::all_of(expr.operands.begin(), expr.operands.end(),
                                                   [&](ExprId operand) { return computed[operand]; });
      if (looks_up(expr) && computed[lookup_of(expr.access)] && axes[lookup_of(expr.access)][axis]) return true;
    }
    return false;
  }

  const GroupKernel& kernel_;
  std::vector<std::optional<Index>> forms_;
  Cuts cuts_;
};

// --- One region ---

// The axis from `first` to before `end`, counted from 0.
void narrow(GroupKernel& kernel, int axis, int64_t first, int64_t end) {
  for_each_index(kernel, [&](Index& index) { index.constant += first * kernel::stride_along(index, axis); });
  kernel.symbols[axis] = axis_of(kernel.symbols[axis].name, end - first);
}

class Folder {
 public:
  explicit Folder(GroupKernel kernel) : kernel_(std::move(kernel)), ranges_(kernel::ranges_of(kernel_)) {
    old_.swap(kernel_.exprs);
  }

  // What the axes' extents decide, decided; without what is then not needed.
  GroupKernel run() {
    for (const Expr& old : old_) moved_.push_back(fold(old));
    for (Store& store : kernel_.stores) {
      store.value = moved_[store.value];
      kernel::renumber(store.access, moved_);
      drop_certain(store.access.mask);
    }
    std::erase_if(kernel_.stores, [&](const Store& store) { return never_holds(store.access.mask); });
    kernel::drop_unused(kernel_);
    return std::move(kernel_);
  }

 private:
  ExprId insert(Expr expr) {
    forms_.push_back(form_of(expr, forms_));
    kernel_.exprs.push_back(std::move(expr));
    return static_cast<ExprId>(kernel_.exprs.size() - 1);
  }

  ExprId fold(const Expr& old) {
    Expr expr = old;
    kernel::renumber(expr, moved_);
    if (is_load(expr)) return fold_load(std::move(expr));
    if (expr.kind != ExprKind::kOp) return insert(std::move(expr));
    if (const auto difference = difference_of(expr, forms_))
      if (const auto answer = answer_of(expr.op, range_of(*difference, ranges_))) return insert(known(*answer));
    const auto decided = [&](size_t i) { return is_known(kernel_.exprs[expr.operands[i]]); };
    const auto holds = [&](size_t i) { return is_true(kernel_.exprs[expr.operands[i]]); };
    if (expr.op == ScalarOp::kSelect && decided(0)) return expr.operands[holds(0) ? 1 : 2];
    if (expr.op == ScalarOp::kLogicalNot && decided(0)) return insert(known(!holds(0)));
    const bool both = expr.op == ScalarOp::kLogicalAnd, either = expr.op == ScalarOp::kLogicalOr;
    for (size_t i = 0; (both || either) && expr.dtype == DType::b1 && i < 2; ++i) {
      if (!decided(i)) continue;
      if (holds(i) == either) return insert(known(either));
      if (kernel_.exprs[expr.operands[1 - i]].dtype == DType::b1) return expr.operands[1 - i];
    }
    return insert(std::move(expr));
  }

  ExprId fold_load(Expr expr) {
    ExprId& mask = expr.access.mask;
    if (never_holds(mask)) return insert(otherwise_of(expr));
    drop_certain(mask);
    ExprId& moved = expr.access.coordinates[0].value;
    if (moved != kNoExpr && forms_[moved] && plan::parts_of_mask(kernel_, mask).condition == kNoExpr) {
      index_of(expr.access) = index_of(expr.access) + *forms_[moved];
      moved = kNoExpr;
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

  void drop_certain(ExprId& mask) const {
    if (mask != kNoExpr && is_known(kernel_.exprs[mask])) mask = kNoExpr;
  }

  bool never_holds(ExprId mask) const {
    return mask != kNoExpr && is_known(kernel_.exprs[mask]) && !is_true(kernel_.exprs[mask]);
  }

  GroupKernel kernel_;
  const std::vector<kernel::SymbolRange> ranges_;
  std::vector<Expr> old_;
  std::vector<std::optional<Index>> forms_;
  std::vector<ExprId> moved_;
};

// Do all indices go on along `outer` where `inner` ends?
bool lie_behind_each_other(const GroupKernel& kernel, int outer, int inner) {
  if (extent_of(kernel, outer) <= 1 || extent_of(kernel, inner) <= 1 || !is_walked_plainly(kernel, outer) ||
      !is_walked_plainly(kernel, inner))
    return false;
  bool together = true;
  for_each_index(kernel, [&](const Index& index) {
    together = together &&
               kernel::stride_along(index, outer) == kernel::stride_along(index, inner) * extent_of(kernel, inner);
  });
  return together;
}

void merge(Simplified& region, int outer, int inner) {
  GroupKernel& kernel = region.kernel;
  std::vector<kernel::SymbolInfo> axes = kernel.symbols;
  axes[inner] = axis_of("element", extent_of(kernel, inner) * extent_of(kernel, outer));
  axes.erase(axes.begin() + outer);
  std::vector<Index> replacement;
  for (int axis = 0; axis < axis_count(kernel); ++axis)
    replacement.push_back(axis == outer ? Index(0) : kernel::symbol_index(axis - (axis > outer)));
  KW_ASSERT(replace_axes(kernel, std::move(axes), kernel.parallel - 1, replacement), "joined axes are walked plainly");
  int& contiguous = region.hints.contiguous_axis;
  if (contiguous == outer) contiguous = inner;
  if (contiguous > outer) --contiguous;
}

void merge_axes(Simplified& region) {
  const GroupKernel& kernel = region.kernel;
  for (int outer = 0; outer < axis_count(kernel); ++outer)
    for (int inner = 0; inner < axis_count(kernel); ++inner) {
      if (outer == inner || !lie_behind_each_other(kernel, outer, inner)) continue;
      merge(region, outer, inner);
      return merge_axes(region);
    }
}

}  // namespace

std::vector<Simplified> regions_of(const Simplified& whole) {
  const GroupKernel& kernel = whole.kernel;
  int64_t points = 1;
  for (const kernel::SymbolInfo& axis : kernel.symbols) points *= extent_of(axis);
  const bool is_pointwise = kernel.parallel == axis_count(kernel);
  const Cuts cuts = is_pointwise && !scatters(kernel) && points >= kWorthCutting ? Conditions(kernel).worth_taking()
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
      add_until(extent_of(kernel, axis));
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
