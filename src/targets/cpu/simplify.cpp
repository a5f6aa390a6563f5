#include "targets/cpu/simplify.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "kernel/builder.hpp"
#include "plan/axes.hpp"
#include "support/error.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

// --- Splitting axes ---

// The positions at which the indices cut the axis: {1, …, extent}, each a multiple of the one before; {1, extent} where
// it cannot be split.
std::vector<int64_t> cuts_of(const GroupKernel& kernel, int axis) {
  const int64_t extent = extent_of(kernel, axis);
  std::set<int64_t> cuts{1, extent};
  for_each_index(kernel, [&](const Index& index) {
    for (const kernel::Digit& digit : kernel::digits_of(index)) {
      if (digit.axis != axis) continue;
      cuts.insert(digit.divisor);
      if (digit.modulus) cuts.insert(digit.divisor * digit.modulus);
    }
  });
  std::vector<int64_t> chain(cuts.begin(), cuts.end());
  for (size_t i = 1; i < chain.size(); ++i)
    if (chain[i] % chain[i - 1] != 0) return {1, extent};
  return chain;
}

std::string name_of_part(const std::string& axis, size_t part, size_t parts) {
  if (part + 1 == parts) return "inner_" + axis;
  if (part == 0) return "outer_" + axis;
  return "middle_" + axis + (parts > 3 ? "_" + std::to_string(part) : "");
}

// Replaces axis by chain.size() − 1 axes, outermost first.
void split_axis(GroupKernel& kernel, LoopHints& hints, int axis, const std::vector<int64_t>& chain) {
  const size_t parts = chain.size() - 1;
  const int shift = static_cast<int>(parts) - 1;
  if (hints.contiguous_axis == axis) hints.contiguous_axis = -1;
  if (hints.contiguous_axis > axis) hints.contiguous_axis += shift;
  std::vector<kernel::SymbolInfo> axes;
  std::vector<Index> replacement;
  for (int old = 0; old < axis_count(kernel); ++old) {
    const kernel::SymbolInfo& whole = kernel.symbols[old];
    if (old != axis) {
      replacement.push_back(kernel::symbol_index(static_cast<int>(axes.size())));
      axes.push_back(whole);
      continue;
    }
    Index sum;
    for (size_t part = 0; part < parts; ++part) {
      const int64_t low = chain[parts - part - 1];
      sum = sum + kernel::symbol_index(static_cast<int>(axes.size())) * low;
      axes.push_back(axis_of(name_of_part(whole.name, part, parts), chain[parts - part] / low));
    }
    replacement.push_back(std::move(sum));
  }
  const int parallel = kernel.parallel + (is_serial(kernel, axis) ? 0 : shift);
  KW_ASSERT(replace_axes(kernel, std::move(axes), parallel, replacement), "an axis is cut where its digits are");
}

void split_axes(GroupKernel& kernel, LoopHints& hints) {
  for (int axis = axis_count(kernel) - 1; axis >= 0; --axis) {
    if (extent_of(kernel, axis) <= 1 || axis == scan_axis_of(kernel)) continue;  // a scan walks one loop
    const std::vector<int64_t> chain = cuts_of(kernel, axis);
    if (chain.size() > 2) split_axis(kernel, hints, axis, chain);
  }
}

// --- Joining axes ---

// Stride of an access along the axis; 0 also where it depends on the axis otherwise than by a multiple.
int64_t plain_stride(const Index& index, int axis) {
  for (const kernel::Digit& digit : kernel::digits_of(index))
    if (digit.axis == axis && !digit.is_plain()) return 0;
  return kernel::stride_along(index, axis);
}

// `inner` becomes the end of `outer`: outer · extent + inner. Where an index has both in that ratio they are one term.
void join_axes(GroupKernel& kernel, LoopHints& hints, int outer, int inner) {
  const int64_t extent = extent_of(kernel, inner);
  std::vector<kernel::SymbolInfo> axes = kernel.symbols;
  std::string name = axes[outer].name;
  const std::string part = "outer_";
  if (name.starts_with(part) && axes[inner].name == "inner_" + name.substr(part.size()))
    name = name.substr(part.size());
  axes[outer] = axis_of(name, extent_of(axes[outer]) * extent);
  axes.erase(axes.begin() + inner);
  const int place = outer - (outer > inner);
  std::vector<kernel::SymbolRange> ranges(axes.size());
  ranges[place] = axes[place].range;
  const Index joined = kernel::symbol_index(place);
  std::vector<Index> replacement;
  for (int old = 0; old < axis_count(kernel); ++old)
    replacement.push_back(old == outer   ? kernel::floor_divide(joined, extent, ranges)
                          : old == inner ? kernel::modulo(joined, extent, ranges)
                                         : kernel::symbol_index(old - (old > inner)));
  const int parallel = kernel.parallel - 1;
  KW_ASSERT(replace_axes(kernel, std::move(axes), parallel, replacement), "the inner axis is cut where it divides");
  if (hints.contiguous_axis == inner) hints.contiguous_axis = -1;
  if (hints.contiguous_axis > inner) --hints.contiguous_axis;
}

bool can_gather(const GroupKernel& kernel) {
  return std::all_of(kernel.buffers.begin(), kernel.buffers.end(),
                     [](const kernel::Buffer& buffer) { return size_of(buffer.dtype) >= 4; });
}

// A parallel axis along which all stores are contiguous but that is short goes on along the axis that continues it in
// memory, where there is one: gathered loads then cost less than a short loop.
bool join_short_axis(GroupKernel& kernel, LoopHints& hints) {
  const auto strides_are = [&](int axis, int64_t stride) {
    return std::all_of(kernel.stores.begin(), kernel.stores.end(),
                       [&](const Store& store) { return plain_stride(index_of(store.access), axis) == stride; });
  };
  for (int inner = 0; inner < axis_count(kernel); ++inner) {
    const int64_t extent = extent_of(kernel, inner);
    if (extent <= 1 || extent >= kShort || !strides_are(inner, 1)) continue;
    bool divides = true;
    for_each_index(kernel, [&](const Index& index) {
      for (const kernel::Digit& digit : kernel::digits_of(index))
        divides = divides && (digit.axis != inner || extent % digit.divisor == 0);
    });
    for (int outer = 0; divides && outer < axis_count(kernel); ++outer) {
      if (outer == inner || extent_of(kernel, outer) <= 1 || !strides_are(outer, extent)) continue;
      join_axes(kernel, hints, outer, inner);
      return true;
    }
  }
  return false;
}

void join_short_axes(GroupKernel& kernel, LoopHints& hints) {
  if (kernel.stores.empty() || !can_gather(kernel) || scatters(kernel)) return;
  if (kernel.parallel < axis_count(kernel)) return;
  while (join_short_axis(kernel, hints)) continue;
}

// --- Expressions ---

class Expander {
 public:
  Expander(const GroupKernel& source, const LoopHints& hints) : source_(source) {
    result_.kernel = source;
    result_.hints = hints;
    result_.kernel.exprs.clear();
    for (int axis = source.parallel; axis < axis_count(source); ++axis)
      if (is_folded(source, axis)) folded_.push_back(axis);
    for (const kernel::Symbol axis : folded_) reduced_elements_ *= extent_of(source, axis);
  }

  Simplified run() {
    std::vector<ExprId> moved;
    for (const Expr& old : source_.exprs) {
      Expr expr = old;
      kernel::renumber(expr, moved);
      moved.push_back(expr.kind == ExprKind::kReduce ? expand(expr) : intern(std::move(expr)));
    }
    for (Store& store : result_.kernel.stores) {
      store.value = moved[store.value];
      kernel::renumber(store.access, moved);
      const DType stored = result_.kernel.buffers[store.access.buffer].dtype;
      const Expr& value = result_.kernel.exprs[store.value];
      const bool narrowed = value.kind == ExprKind::kOp && value.op == ScalarOp::kCast && value.dtype == stored;
      const ExprId wide = narrowed ? value.operands[0] : store.value;
      const ExprId unwidened = is_narrow_float(stored) && dtype(wide) == DType::f32 ? without_widening(wide, stored)
                                                                                    : kNoExpr;
      if (unwidened != kNoExpr) store.value = unwidened;
    }
    return std::move(result_);
  }

 private:
  ExprId intern(Expr expr) {
    const std::string name = expr.name;
    const ExprId id = table_.insert(result_.kernel, std::move(expr));
    if (std::string& known = result_.kernel.exprs[id].name; known.empty()) known = name;
    return id;
  }

  // What is only moved and chosen, in the 16 or 8 bits that it was loaded with and is stored with; kNoExpr where
  // something is computed.
  ExprId without_widening(ExprId id, DType narrow) {
    const Expr expr = result_.kernel.exprs[id];
    if (expr.kind == ExprKind::kConstant && expr.number == 0.0) return constant(expr.number, narrow);
    if (expr.kind != ExprKind::kOp) return kNoExpr;
    if (expr.op == ScalarOp::kCast) return dtype(expr.operands[0]) == narrow ? expr.operands[0] : kNoExpr;
    if (expr.op != ScalarOp::kSelect) return kNoExpr;
    const ExprId yes = without_widening(expr.operands[1], narrow);
    const ExprId no = yes == kNoExpr ? kNoExpr : without_widening(expr.operands[2], narrow);
    return no == kNoExpr ? kNoExpr : op(ScalarOp::kSelect, narrow, {expr.operands[0], yes, no}, expr.name);
  }

  DType dtype(ExprId id) const { return result_.kernel.exprs[id].dtype; }

  ExprId constant(double number, DType dtype) {
    Expr expr;
    expr.dtype = dtype;
    expr.number = number;
    return intern(std::move(expr));
  }

  ExprId op(ScalarOp op, DType dtype, std::vector<ExprId> operands, std::string name = "") {
    Expr expr;
    expr.kind = ExprKind::kOp;
    expr.op = op;
    expr.dtype = dtype;
    expr.operands = std::move(operands);
    expr.name = std::move(name);
    return intern(std::move(expr));
  }

  ExprId cast(ExprId id, DType to, const std::string& name = "") {
    return dtype(id) == to ? id : op(ScalarOp::kCast, to, {id}, name);
  }

  ExprId reduce(ReduceOp op, DType dtype, std::vector<ExprId> operands, std::string name = "") {
    Expr expr;
    expr.kind = ExprKind::kReduce;
    expr.reduce = op;
    expr.dtype = dtype;
    expr.operands = std::move(operands);
    expr.axes = folded_;
    expr.name = std::move(name);
    return intern(std::move(expr));
  }

  ExprId expand(const Expr& expr) {
    const ExprId x = expr.operands[0];
    if (expr.reduce == ReduceOp::kAny || expr.reduce == ReduceOp::kAll) return any_or_all(expr);
    if (expr.access.mask != kNoExpr) return intern(expr);
    const bool from_f64 = dtype(x) == DType::f64;
    switch (expr.reduce) {
      case ReduceOp::kSum:
        return reduce(sum_of(from_f64 && !result_.hints.folds_inside), expr.dtype, expr.operands, expr.name);
      case ReduceOp::kMax: return extreme(ReduceOp::kMax, expr.dtype, x, expr.name);
      case ReduceOp::kMin: return extreme(ReduceOp::kMin, expr.dtype, x, expr.name);
      case ReduceOp::kArgMax: return place_of(extreme(ReduceOp::kMax, dtype(x), x, ""), expr);
      case ReduceOp::kArgMin: return place_of(extreme(ReduceOp::kMin, dtype(x), x, ""), expr);
      case ReduceOp::kMaxSumExp: return max_sum_exp(expr);
      case ReduceOp::kCombineMaxSumExp: return combine_max_sum_exp(expr);
      case ReduceOp::kMoments: return moments(expr);
      case ReduceOp::kCombineMoments: return combine_moments(expr);
      default: return intern(expr);
    }
  }

  // Double precision is enough for anything but f64 itself.
  static ReduceOp sum_of(bool is_extended) { return is_extended ? ReduceOp::kExtendedSum : ReduceOp::kSum; }

  ExprId extreme(ReduceOp op, DType dtype, ExprId x, const std::string& name) {
    if (dtype != DType::b1) return reduce(op, dtype, {x}, name);
    Expr fold;
    fold.reduce = op == ReduceOp::kMax ? ReduceOp::kAny : ReduceOp::kAll;
    fold.dtype = dtype;
    fold.operands = {x};
    fold.name = name;
    return any_or_all(fold);
  }

  // Any is the largest of 0 and 1, all the smallest. Of nothing, any does not hold and all does.
  ExprId any_or_all(const Expr& expr) {
    const ExprId x = expr.operands[0];
    const ExprId holds = dtype(x) == DType::b1 ? x : op(ScalarOp::kNotEqual, DType::b1, {x, whole(0, dtype(x))});
    Expr fold;
    fold.kind = ExprKind::kReduce;
    fold.reduce = expr.reduce == ReduceOp::kAny ? ReduceOp::kMax : ReduceOp::kMin;
    fold.dtype = DType::i32;
    fold.name = expr.reduce == ReduceOp::kAny ? "any_holds" : "all_hold";
    fold.operands = {cast(holds, DType::i32)};
    fold.access.mask = expr.access.mask;
    fold.axes = folded_;
    const ExprId extreme = intern(std::move(fold));
    return cast(op(ScalarOp::kGreater, DType::b1, {extreme, whole(0, DType::i32)}, expr.name), expr.dtype);
  }

  // The first place where the extreme stands, or NaN.
  ExprId place_of(ExprId extreme, const Expr& expr) {
    const ExprId x = expr.operands[0];
    ExprId is_there = op(ScalarOp::kEqual, DType::b1, {x, extreme});
    if (is_floating(dtype(x)))
      is_there = op(ScalarOp::kLogicalOr, DType::b1, {is_there, op(ScalarOp::kNotEqual, DType::b1, {x, x})});
    const DType narrow = reduced_elements_ <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    const ExprId chosen = op(ScalarOp::kSelect, narrow,
                             {is_there, folded_place(narrow), whole(reduced_elements_, narrow)});
    const std::string name = expr.name.empty() ? "place" : expr.name;
    return cast(reduce(ReduceOp::kMin, narrow, {chosen}, name), expr.dtype);
  }

  // The place of an element among all that are folded.
  ExprId folded_place(DType dtype) {
    Expr place;
    place.kind = ExprKind::kIndex;
    place.dtype = dtype;
    int64_t size = 1;
    for (auto axis = folded_.rbegin(); axis != folded_.rend(); ++axis) {
      const int64_t extent = extent_of(source_, *axis);
      if (extent > 1) place.index = kernel::symbol_index(*axis) * size + place.index;
      size *= extent;
    }
    return intern(std::move(place));
  }

  ExprId whole(int64_t number, DType dtype) {
    Expr expr;
    expr.dtype = dtype;
    expr.integer = number;
    return intern(std::move(expr));
  }

  ExprId max_sum_exp(const Expr& expr) {
    const ExprId x = cast(expr.operands[0], expr.dtype);
    const ExprId largest = reduce(ReduceOp::kMax, expr.dtype, {x}, expr.component == 0 ? expr.name : "");
    if (expr.component == 0) return largest;
    const ExprId exponential = op(ScalarOp::kExp, expr.dtype, {op(ScalarOp::kSub, expr.dtype, {x, largest})});
    return reduce(sum_of(expr.dtype == DType::f64), expr.dtype, {exponential}, expr.name);
  }

  // Σ sum_i · e^(max_i − max). A part of -inf alone weighs nothing, though its own sum is NaN.
  ExprId combine_max_sum_exp(const Expr& expr) {
    const ExprId part_max = expr.operands[0], part_sum = expr.operands[1];
    const ExprId largest = reduce(ReduceOp::kMax, expr.dtype, {part_max}, expr.component == 0 ? expr.name : "");
    if (expr.component == 0) return largest;
    const ExprId rescale = op(ScalarOp::kExp, expr.dtype, {op(ScalarOp::kSub, expr.dtype, {part_max, largest})});
    const ExprId is_empty = op(ScalarOp::kEqual, DType::b1, {part_max, constant(-__builtin_inf(), dtype(part_max))});
    const ExprId rescaled = op(ScalarOp::kMul, expr.dtype, {part_sum, rescale});
    const ExprId weight = op(ScalarOp::kSelect, expr.dtype, {is_empty, constant(0.0, expr.dtype), rescaled});
    return reduce(sum_of(expr.dtype == DType::f64), expr.dtype, {weight}, expr.name);
  }

  ExprId moments(const Expr& expr) {
    if (dtype(expr.operands[0]) == DType::f64 || reduced_elements_ == 0) return moments_of_f64(expr);
    // One pass, shifted by the first element x0: with d = x − x0, mean = x0 + Σd/n and Σ(x − mean)² = Σd² − (Σd)²/n.
    // Since x0 is one of the elements, the difference loses at most a factor n + 1 of double's precision; equal
    // elements give exactly 0.
    const ExprId count = constant(static_cast<double>(reduced_elements_), DType::f64);
    const ExprId shift = cast(finite_or_zero(at_first_position(expr.operands[0])), DType::f64, "shift");
    const ExprId deviation = op(ScalarOp::kSub, DType::f64, {cast(expr.operands[0], DType::f64), shift}, "deviation");
    const ExprId total = reduce(ReduceOp::kSum, DType::f64, {deviation}, "deviation_sum");
    const ExprId average = op(ScalarOp::kDiv, DType::f64, {total, count});
    if (expr.component == 0) return cast(op(ScalarOp::kAdd, DType::f64, {shift, average}), expr.dtype, expr.name);
    const ExprId squares = reduce(ReduceOp::kSum, DType::f64, {op(ScalarOp::kMul, DType::f64, {deviation, deviation})},
                                  "square_sum");
    const ExprId difference = op(ScalarOp::kSub, DType::f64,
                                 {squares, op(ScalarOp::kMul, DType::f64, {total, average})});
    return cast(op(ScalarOp::kMaximum, DType::f64, {difference, constant(0.0, DType::f64)}), expr.dtype, expr.name);
  }

  ExprId moments_of_f64(const Expr& expr) {
    const ExprId x = cast(expr.operands[0], DType::f64);
    const ExprId total = reduce(ReduceOp::kExtendedSum, DType::f64, {x});
    const ExprId mean = op(ScalarOp::kDiv, DType::f64,
                           {total, constant(static_cast<double>(reduced_elements_), DType::f64)}, "exact_mean");
    if (expr.component == 0) return cast(mean, expr.dtype, expr.name);
    const ExprId deviation = op(ScalarOp::kSub, DType::f64, {x, mean}, "deviation");
    const ExprId square = op(ScalarOp::kMul, DType::f64, {deviation, deviation});
    return cast(reduce(ReduceOp::kExtendedSum, DType::f64, {square}, "exact_squares"), expr.dtype, expr.name);
  }

  // The expression where all reduce axes are 0.
  ExprId at_first_position(ExprId id) {
    Expr expr = result_.kernel.exprs[id];
    if (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kConstant) return id;
    const auto drop = [&](Index& index) {
      std::erase_if(index.terms,
                    [&](const kernel::IndexTerm& term) { return is_folded(source_, kernel::digit_of(term)->axis); });
    };
    drop(expr.index);
    for (kernel::Coordinate& coordinate : expr.access.coordinates) {
      drop(coordinate.index);
      if (coordinate.value != kNoExpr) coordinate.value = at_first_position(coordinate.value);
    }
    if (expr.access.mask != kNoExpr) expr.access.mask = at_first_position(expr.access.mask);
    for (ExprId& operand : expr.operands) operand = at_first_position(operand);
    if (kernel::is_same(expr, result_.kernel.exprs[id])) return id;
    if (!expr.name.empty()) expr.name = "first_" + expr.name;
    return intern(std::move(expr));
  }

  ExprId finite_or_zero(ExprId x) {
    const ExprId zero = constant(0.0, dtype(x));
    const ExprId is_finite = op(ScalarOp::kEqual, DType::b1, {op(ScalarOp::kSub, dtype(x), {x, x}), zero});
    return op(ScalarOp::kSelect, dtype(x), {is_finite, x, zero});
  }

  // mean = Σ count_i · mean_i / Σ count_i;  m2 = Σ (m2_i + count_i · (mean_i − mean)²).
  ExprId combine_moments(const Expr& expr) {
    const bool from_f64 = dtype(expr.operands[0]) == DType::f64;
    const ExprId part_mean = cast(expr.operands[0], DType::f64), part_m2 = cast(expr.operands[1], DType::f64);
    const ExprId part_count = cast(expr.operands[2], DType::f64);
    const ExprId count = reduce(ReduceOp::kSum, DType::f64, {part_count});
    const ExprId weighted = op(ScalarOp::kMul, DType::f64, {part_count, part_mean});
    const ExprId mean = op(ScalarOp::kDiv, DType::f64, {reduce(sum_of(from_f64), DType::f64, {weighted}), count},
                           "exact_mean");
    if (expr.component == 0) return cast(mean, expr.dtype, expr.name);
    const ExprId deviation = op(ScalarOp::kSub, DType::f64, {part_mean, mean}, "deviation");
    const ExprId between = op(ScalarOp::kMul, DType::f64,
                              {part_count, op(ScalarOp::kMul, DType::f64, {deviation, deviation})});
    const ExprId square = op(ScalarOp::kAdd, DType::f64, {part_m2, between});
    return cast(reduce(sum_of(from_f64), DType::f64, {square}, "exact_squares"), expr.dtype, expr.name);
  }

  const GroupKernel& source_;
  Simplified result_;
  kernel::ExprTable table_;
  std::vector<kernel::Symbol> folded_;
  int64_t reduced_elements_ = 1;
};

}  // namespace

void drop_unit_axes(GroupKernel& kernel) {
  std::vector<Index> replacement;
  for (int axis = 0; axis < axis_count(kernel); ++axis)
    replacement.push_back(extent_of(kernel, axis) <= 1 ? Index(0) : kernel::symbol_index(axis));
  KW_ASSERT(replace_axes(kernel, kernel.symbols, kernel.parallel, replacement), "axes of one point leave indices");
}

Simplified simplify(const GroupKernel& kernel, const LoopHints& hints) {
  GroupKernel copy = kernel;
  LoopHints moved = hints;
  drop_unit_axes(copy);
  split_axes(copy, moved);
  join_short_axes(copy, moved);
  return Expander(copy, moved).run();
}

}  // namespace kw::cpu
