#include "lower/cooperative.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/scalar_values.hpp"
#include "lower/looped_folds.hpp"

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Index;
using tile::Instruction;
using tile::kNoValue;
using tile::Kind;
using tile::Value;

bool combines(const Expr& expr) {
  if (expr.kind != ExprKind::kReduce || (expr.dtype != DType::f32 && expr.dtype != DType::f64)) return false;
  switch (expr.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kMoments:
    case ReduceOp::kMaxSumExp: return true;
    default: return false;
  }
}

double power_of_two_from(double value) { return std::exp2(std::ceil(std::log2(std::max(value, 1.0)))); }

class SharedFolds {
 public:
  explicit SharedFolds(Values& values)
      : values_(values), emission_(values.emission), program_(values.mapped.program), shared_(values.mapped.shared) {
    for (tile::Symbol symbol : program_.grid) {
      const bool in_row = std::count(shared_.blocks.begin(), shared_.blocks.end(), symbol) > 0;
      const Index& count = program_.symbols[symbol].count;
      if (in_row) own_part_ = own_part_ * count + kernel::symbol_index(symbol);
      else row_ = row_ * count + kernel::symbol_index(symbol);
      (in_row ? per_row_ : rows_) = (in_row ? per_row_ : rows_) * count;
    }
  }

  void run(const std::vector<ExprId>& roots) {
    const std::vector<ExprId> first = first_siblings(values_.kernel);
    const std::vector<int> passes = passes_of(roots);
    const int last = *std::max_element(passes.begin(), passes.end());
    for (int pass = 1; pass <= last; ++pass) {
      std::vector<ExprId> folds;
      for (size_t id = 0; id < passes.size(); ++id)
        if (passes[id] == pass && values_.folds_shared_row(values_.kernel.exprs[id]) &&
            std::find(folds.begin(), folds.end(), first[id]) == folds.end())
          folds.push_back(first[id]);
      combine_parts(folds, pass - 1, first);
    }
    program_.buffers[shared_.partials].shape = {Index(slots_) * rows_ * per_row_};
    program_.buffers[shared_.counters].shape = {rows_ + Index(1)};
  }

 private:
  // [expression] How many times blocks have waited for each other before it is known; -1 where nothing needs it.
  std::vector<int> passes_of(const std::vector<ExprId>& roots) const {
    const std::vector<Expr>& exprs = values_.kernel.exprs;
    std::vector<bool> needed(exprs.size());
    for (ExprId root : roots) needed[root] = true;
    for (size_t id = exprs.size(); id-- > 0;)
      if (needed[id])
        for (ExprId input : kernel::inputs_of(exprs[id])) needed[input] = true;
    std::vector<int> passes(exprs.size(), -1);
    for (size_t id = 0; id < exprs.size(); ++id) {
      if (!needed[id]) continue;
      passes[id] = 0;
      for (ExprId input : kernel::inputs_of(exprs[id])) passes[id] = std::max(passes[id], passes[input]);
      passes[id] += values_.folds_shared_row(exprs[id]);
    }
    return passes;
  }

  void combine_parts(const std::vector<ExprId>& folds, int turn, const std::vector<ExprId>& first) {
    std::vector<std::vector<Value>> mine;
    for (ExprId id : folds) mine.push_back(part_of(values_.kernel.exprs[id]));
    int64_t slot = slots_;
    for (const std::vector<Value>& values : mine)
      for (Value value : values) store(value);
    wait(turn);
    for (size_t at = 0; at < folds.size(); ++at) {
      const Expr& fold = values_.kernel.exprs[folds[at]];
      std::vector<Value> parts;
      for (size_t component = 0; component < mine[at].size(); ++component)
        parts.push_back(load(mine[at][component], slot, component == 0 ? fold.reduce : ReduceOp::kSum,
                             name_of(fold, static_cast<int>(component)) + "_parts"));
      const std::vector<Value> results = combined(fold, parts);
      for (size_t id = 0; id < first.size(); ++id)
        if (first[id] == folds[at]) values_.know(static_cast<ExprId>(id), results[values_.kernel.exprs[id].component]);
    }
  }

  // --- What a block makes of its part ---

  std::vector<Value> part_of(const Expr& fold) {
    if (fold.reduce == ReduceOp::kMoments) return part_of_moments(fold);
    if (fold.reduce == ReduceOp::kMaxSumExp) return part_of_exponentials(fold);
    return {values_.fold_lanes(fold, values_.masked_before_widening(fold), name_of(fold, 0) + "_part")};
  }

  // Shares of the block's points, whose number is a power of two: no sum on the way is larger than the largest value.
  std::vector<Value> part_of_moments(const Expr& fold) {
    const Value value = values_.value_of(fold.operands[0]);
    const std::string mean_name = name_of(fold, 0) + "_part", squares_name = name_of(fold, 1) + "_part";
    const double points = points_of_block();
    const auto beyond = values_.beyond(fold.operands[0]);
    const Value share = points == 1 ? value : binary(ScalarOp::kMul, value, constant(1 / points), "");
    Value mean = values_.simple_fold(fold, ReduceOp::kSum, share,
                                     beyond ? std::optional(*beyond / points) : std::nullopt,
                                     is_ragged() ? mean_name + "_share" : mean_name);
    if (is_ragged()) {
      const Value count = points_of(own_part_, fold.dtype, "count_part");
      mean = binary(ScalarOp::kDiv, mean, binary(ScalarOp::kMul, count, constant(1 / points), ""), mean_name);
    }
    Expr sum = fold;
    sum.reduce = ReduceOp::kSum;
    const Value distance = binary(ScalarOp::kSub, value, mean, "difference");
    const Value inside = values_.masked(sum, distance, std::nullopt, squares_name + "_from_mean");
    return {mean,
            values_.simple_fold(fold, ReduceOp::kSum, binary(ScalarOp::kMul, inside, inside, ""), 0.0, squares_name)};
  }

  // A block of -inf alone adds nothing to its row: its exponentials are those below the lowest number.
  std::vector<Value> part_of_exponentials(const Expr& fold) {
    Expr maximum = fold;
    maximum.reduce = ReduceOp::kMax;
    maximum.component = 0;
    const Value value = values_.masked(maximum, values_.value_of(fold.operands[0]), values_.beyond(fold.operands[0]));
    const Value largest = values_.fold_lanes(maximum, value, name_of(fold, 0) + "_part");
    const double lowest = fold.dtype == DType::f64 ? std::numeric_limits<double>::lowest()
                                                   : std::numeric_limits<float>::lowest();
    const Value shift = binary(ScalarOp::kMaximum, largest, constant(lowest), "shift");
    const Value power = emission_.op(ScalarOp::kExp, {binary(ScalarOp::kSub, value, shift, "difference")}, fold.dtype,
                                     "exponential");
    return {largest, values_.simple_fold(fold, ReduceOp::kSum, power, 0.0, name_of(fold, 1) + "_part")};
  }

  // --- The row's results, of its blocks' ---

  std::vector<Value> combined(const Expr& fold, const std::vector<Value>& parts) {
    if (fold.reduce == ReduceOp::kMoments) return combined_moments(fold, parts);
    if (fold.reduce == ReduceOp::kMaxSumExp) {
      const Value largest = fold_parts(ReduceOp::kMax, parts[0], name_of(fold, 0));
      const Value difference = binary(ScalarOp::kSub, parts[0], largest, "difference");
      const Value power = emission_.op(ScalarOp::kExp, {difference}, fold.dtype, "exponential");
      return {largest, fold_parts(ReduceOp::kSum, binary(ScalarOp::kMul, parts[1], power, ""), name_of(fold, 1))};
    }
    return {fold_parts(fold.reduce, parts[0], name_of(fold, 0))};
  }

  // Chan, Golub and LeVeque 1983. How many points a part has, every block knows of all.
  std::vector<Value> combined_moments(const Expr& fold, const std::vector<Value>& parts) {
    const std::string mean_name = name_of(fold, 0);
    const double all = is_ragged() ? values_.folded_points(fold) : static_cast<double>(blocks_of_row()),
                 whole = power_of_two_from(all);
    const Value count = is_ragged() ? points_of(kernel::symbol_index(shared_.part), fold.dtype, "counts")
                                    : constant(points_of_block());
    Value weight = constant(1 / whole);
    if (is_ragged()) weight = binary(ScalarOp::kMul, count, weight, "");
    Value mean = fold_parts(ReduceOp::kSum, binary(ScalarOp::kMul, parts[0], weight, ""),
                            whole == all ? mean_name : mean_name + "_share");
    if (whole != all) mean = binary(ScalarOp::kDiv, mean, constant(all / whole), mean_name);
    const Value shift = binary(ScalarOp::kSub, parts[0], mean, mean_name + "_shift");
    const Value moved = binary(ScalarOp::kMul, binary(ScalarOp::kMul, count, shift, ""), shift, "");
    Value squares = binary(ScalarOp::kAdd, parts[1], moved, "");
    if (const Value present = is_part(); present != kNoValue)
      squares = emission_.op(ScalarOp::kSelect, {present, squares, constant(0.0)}, fold.dtype);
    return {mean, fold_parts(ReduceOp::kSum, squares, name_of(fold, 1))};
  }

  Value fold_parts(ReduceOp reduce, Value parts, const std::string& name) {
    Instruction fold;
    fold.kind = Kind::kFold;
    fold.reduce = reduce;
    fold.operands = {parts};
    fold.lanes = {shared_.part};
    tile::TileType type = emission_.type(parts);
    std::erase(type.lanes, shared_.part);
    return emission_.add(std::move(fold), {type}, name)[0];
  }

  // --- Through memory ---

  // Where a block's value is, in the slots from this one on: each has one number for every block of the grid.
  Index place(const std::vector<tile::Symbol>& lanes, int64_t slot, const Index& part) const {
    Index lane;
    for (tile::Symbol one : lanes) lane = lane * Index(tile::width_of(program_, one)) + kernel::symbol_index(one);
    return (lane + Index(slot)) * rows_ * per_row_ + row_ * per_row_ + part;
  }

  int64_t slots_for(const std::vector<tile::Symbol>& lanes) const {
    int64_t slots = 1;
    for (tile::Symbol lane : lanes) slots *= tile::width_of(program_, lane);
    return slots;
  }

  void store(Value value) {
    Instruction store;
    store.kind = Kind::kStore;
    store.operands = {value};
    store.access.buffer = shared_.partials;
    store.access.coordinates = {{place(emission_.type(value).lanes, slots_, own_part_)}};
    slots_ += slots_for(emission_.type(value).lanes);
    program_.buffers[shared_.partials].dtype = emission_.type(value).dtype;
    emission_.add_here(std::move(store));
  }

  Value load(Value mine, int64_t& slot, ReduceOp reduce, const std::string& name) {
    tile::TileType type = emission_.type(mine);
    if (reduce == ReduceOp::kMaxSumExp) reduce = ReduceOp::kMax;
    if (reduce == ReduceOp::kMoments) reduce = ReduceOp::kSum;
    Instruction load;
    load.kind = Kind::kLoad;
    load.access.buffer = shared_.partials;
    load.access.coordinates = {{place(type.lanes, slot, kernel::symbol_index(shared_.part))}};
    load.access.mask = is_part();
    load.access.otherwise = load.access.mask == kNoValue ? 0.0 : kernel::identity(reduce, type.dtype).real;
    slot += slots_for(type.lanes);
    type.lanes = united(std::move(type.lanes), {shared_.part});
    return emission_.add(std::move(load), {type}, name)[0];
  }

  void wait(int turn) {
    Instruction barrier;
    barrier.kind = Kind::kBarrier;
    barrier.scope = tile::Scope::kGrid;
    barrier.lanes = shared_.blocks;
    barrier.access.buffer = shared_.counters;
    barrier.access.coordinates = {{row_ + Index(1)}};  // behind the tickets
    barrier.index = Index(turn);
    emission_.add_here(std::move(barrier));
  }

  // --- Numbers ---

  int64_t blocks_of_row() const { return *kernel::as_constant(per_row_); }

  // Is there a part in the lane? kNoValue: in all.
  Value is_part() {
    if (tile::width_of(program_, shared_.part) == blocks_of_row()) return kNoValue;
    return emission_.op(
        ScalarOp::kLess,
        {emission_.index(kernel::symbol_index(shared_.part), DType::i32), emission_.index(per_row_, DType::i32)},
        DType::b1, "is_part");
  }

  bool is_ragged() const {
    return std::any_of(values_.mapped.axes.begin(), values_.mapped.axes.end(),
                       [](const MappedAxis& axis) { return axis.cooperative && axis.padded; });
  }

  double points_of_block() const {
    double points = 1;
    for (const MappedAxis& axis : values_.mapped.axes)
      if (axis.cooperative) points *= static_cast<double>(axis.width);
    return points;
  }

  // Points of the row that the part of this number has.
  Value points_of(const Index& part, DType dtype, const std::string& name) {
    Value count = kNoValue;
    double whole = 1;
    Index left = part;
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program_);
    for (size_t place = shared_.blocks.size(); place-- > 0;) {
      const auto axis = std::find_if(values_.mapped.axes.begin(), values_.mapped.axes.end(),
                                     [&](const MappedAxis& one) { return one.outer == shared_.blocks[place]; });
      const Index blocks = program_.symbols[shared_.blocks[place]].count;
      const Index block = place == 0 ? left : kernel::modulo(left, *kernel::as_constant(blocks), ranges);
      left = kernel::floor_divide(left, *kernel::as_constant(blocks), ranges);
      if (!axis->padded) {
        whole *= static_cast<double>(axis->width);
        continue;
      }
      const Index rest = axis->extent - block * Index(axis->width);
      const DType type = emission_.type_for({rest, Index(axis->width)});
      const Value points = emission_.op(ScalarOp::kMinimum,
                                        {emission_.index(rest, type), emission_.index(Index(axis->width), type)}, type);
      const Value counted = emission_.op(ScalarOp::kCast, {points}, dtype, name);
      count = count == kNoValue ? counted : emission_.op(ScalarOp::kMul, {count, counted}, dtype);
    }
    return whole == 1 ? count : emission_.op(ScalarOp::kMul, {count, constant(whole)}, dtype);
  }

  std::string name_of(const Expr& fold, int component) const {
    if (Values::is_compound(fold)) return values_.component_name(fold, component);
    return fold.name.empty() ? std::string(kernel::name_of(fold.reduce)) : fold.name;
  }

  Value constant(double number) { return emission_.constant({dtype(), {}}, number); }
  DType dtype() const {
    for (const Expr& expr : values_.kernel.exprs)
      if (values_.folds_shared_row(expr)) return expr.dtype;
    return DType::f32;
  }

  Value binary(ScalarOp op, Value left, Value right, const std::string& name) {
    return emission_.op(op, {left, right}, dtype(), name);
  }

  Values& values_;
  Emission& emission_;
  tile::Program& program_;
  const MappedRows& shared_;
  Index row_, own_part_;  // the block's, of these:
  Index rows_{1}, per_row_{1};
  int64_t slots_ = 0;  // so far
};

}  // namespace

void refuse_cooperative_folds(const Values& values) {
  const Expr* other = nullptr;
  for (const Expr& expr : values.kernel.exprs) {
    if (!values.folds_shared_row(expr)) continue;
    const std::string what = expr.kind == ExprKind::kReduce ? fmt::format("a {}", kernel::name_of(expr.reduce))
                             : expr.kind == ExprKind::kDot  ? "a product"
                                                            : "a scan";
    if (!combines(expr))
      values.refuse(fmt::format("{} of {} over axis '{}', a row of which blocks share", what, kw::name_of(expr.dtype),
                                values.name_of(expr.axes[0])),
                    "They share sums, products, extremes, moments and sums of exponentials, in f32 and f64.");
    if (other && other->dtype != expr.dtype) values.refuse("blocks share rows that are folded in f32 and in f64");
    other = &expr;
    for (kernel::Symbol axis : kernel::axes_of(values.kernel))
      if (values.mapped.axes[axis].cooperative != (std::count(expr.axes.begin(), expr.axes.end(), axis) > 0) &&
          values.mapped.axes[axis].mapping == Mapping::kGrid)
        values.refuse(
            fmt::format("{} is over some axes whose blocks share rows, but not over '{}'", what, values.name_of(axis)));
  }
}

void fold_shared_rows(Values& values, const std::vector<ExprId>& roots) {
  if (values.mapped.shared.part >= 0) SharedFolds(values).run(roots);
}

}  // namespace kw::lower
