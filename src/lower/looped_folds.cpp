#include "lower/looped_folds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/scalar_values.hpp"

namespace kw::lower {

using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::kNoValue;
using tile::Value;
using Axis = kernel::Symbol;

namespace {

ReduceOp extreme_of(ReduceOp reduce) { return reduce == ReduceOp::kArgMin ? ReduceOp::kMin : ReduceOp::kMax; }

// A weight by which all points' values can be added without a sum larger than the largest: a power of two.
double scale_of(double points) { return std::exp2(std::ceil(std::log2(std::max(points, 1.0)))); }

}  // namespace

std::vector<kernel::ExprId> first_siblings(const kernel::Kernel& kernel) {
  std::vector<kernel::ExprId> first;
  const auto is_sibling = [](const kernel::Expr& one, const kernel::Expr& other) {
    return other.kind == kernel::ExprKind::kReduce && one.reduce == other.reduce && one.operands == other.operands &&
           one.axes == other.axes;
  };
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const auto found = Values::is_compound(kernel.exprs[id])
                           ? std::find_if(kernel.exprs.begin(), kernel.exprs.begin() + static_cast<long>(id),
                                          [&](const auto& other) { return is_sibling(kernel.exprs[id], other); })
                           : kernel.exprs.begin() + static_cast<long>(id);
    first.push_back(static_cast<kernel::ExprId>(found - kernel.exprs.begin()));
  }
  return first;
}

LoopedFold::LoopedFold(Values& values, kernel::ExprId fold, bool first)
    : values_(values),
      emission_(values.emission),
      fold_(values.kernel.exprs[fold]),
      lanes_(values.lanes_of(values.operands_axes(fold_))),
      dtype_(values.kernel.exprs[fold_.operands[0]].dtype),
      first_(first) {
  if (fold_.reduce == ReduceOp::kMoments || combines_moments()) {
    start_moments();
  } else if (folds_exponentials()) {
    add(values_.component_name(fold_, 0), values_.identity_tile({dtype_, lanes_}, ReduceOp::kMax));
    add(values_.component_name(fold_, 1), values_.identity_tile({dtype_, lanes_}, ReduceOp::kSum));
  } else {
    start_place();
  }
}

void LoopedFold::add(const std::string& name, Value value) {
  names.push_back(name);
  kept.push_back(value);
}

Value LoopedFold::constant(double number) { return emission_.constant({dtype_, {}}, number); }

Value LoopedFold::where(Value mask, Value value, Value otherwise, const std::string& name) {
  if (mask == kNoValue) return value;
  return emission_.op(ScalarOp::kSelect, {mask, value, otherwise}, emission_.type(value).dtype, name);
}

void LoopedFold::advance() {
  if (fold_.reduce == ReduceOp::kMoments) advance_moments();
  else if (combines_moments()) advance_combined_moments();
  else if (folds_exponentials()) advance_max_sum_exp();
  else advance_place();
}

std::vector<Value> LoopedFold::finish() {
  if (fold_.reduce == ReduceOp::kMoments) return finish_moments();
  if (combines_moments()) return finish_combined_moments();
  return folds_exponentials() ? finish_max_sum_exp() : finish_place();
}

Value LoopedFold::operand(size_t place, ReduceOp reduce) {
  kernel::Expr simple = fold_;
  simple.reduce = reduce;
  return values_.masked(simple, values_.value_of(fold_.operands[place]), values_.beyond(fold_.operands[place]));
}

// --- Moments ---

std::vector<Axis> LoopedFold::padded_axes() const {
  std::vector<Axis> padded;
  for (Axis axis : fold_.axes)
    if (values_.mapped.axes[axis].padded) padded.push_back(axis);
  return padded;
}

// One number for all lanes, or two, are fewer registers than one a lane, and fewer divisions.
LoopedFold::Counted LoopedFold::counted() const {
  const std::vector<Axis> padded = padded_axes();
  if (padded.empty()) return Counted::kTogether;
  if (padded.size() > 1 || !values_.is_looped(padded[0])) return Counted::kByLane;
  const auto loops = std::count_if(fold_.axes.begin(), fold_.axes.end(),
                                   [&](Axis axis) { return values_.is_looped(axis); });
  return loops == 1 && first_ ? Counted::kButForTheEnd : Counted::kButForEnds;
}

void LoopedFold::start_moments() {
  counted_ = combines_moments() ? Counted::kByLane : counted();
  const std::string mean = values_.component_name(fold_, 0);
  const Value zeros = values_.identity_tile({dtype_, lanes_}, ReduceOp::kSum);
  add(mean, zeros);
  add(values_.component_name(fold_, 1), zeros);
  if (combines_moments()) return add(mean + "_count", zeros);
  add(mean + "_count", counted_ == Counted::kByLane
                           ? values_.identity_tile({dtype_, values_.lanes_of(padded_axes())}, ReduceOp::kSum)
                           : constant(0.0));
  if (counted_ == Counted::kButForEnds) add(mean + "_whole_blocks", constant(0.0));
}

Value LoopedFold::meets_last_block() {
  const MappedAxis& axis = values_.mapped.axes[padded_axes()[0]];
  const int64_t end = *kernel::as_constant(axis.extent) % axis.width;
  return emission_.op(ScalarOp::kLess,
                      {emission_.index(kernel::symbol_index(axis.lane), DType::i32), emission_.index(end, DType::i32)},
                      DType::b1, "in_last_block");
}

void LoopedFold::advance_moments() {
  const std::string mean_name = values_.component_name(fold_, 0);
  const Value value = values_.value_of(fold_.operands[0]), mask = values_.mask_of(fold_.axes), mean = kept[0];
  const Value delta = where(mask, emission_.op(ScalarOp::kSub, {value, mean}, dtype_), constant(0.0),
                            mean_name + "_delta");
  const Value met = counted_ == Counted::kByLane ? emission_.cast(mask, dtype_) : constant(1.0);
  kept[2] = emission_.op(ScalarOp::kAdd, {kept[2], met}, dtype_, mean_name + "_count_next");
  const auto share_of = [&](Value count, bool may_be_none) {
    if (may_be_none) count = emission_.op(ScalarOp::kMaximum, {count, constant(1.0)}, dtype_);
    return emission_.op(ScalarOp::kReciprocal, {count}, dtype_, mean_name + "_share");
  };
  Value share = share_of(kept[2], counted_ == Counted::kByLane);
  if (counted_ == Counted::kButForEnds) {
    const MappedAxis& axis = values_.mapped.axes[padded_axes()[0]];
    const tile::Index end = kernel::symbol_index(axis.outer) + tile::Index(axis.width);
    const DType type = emission_.type_for({end, axis.extent});
    const Value whole = emission_.op(ScalarOp::kLessEqual,
                                     {emission_.index(end, type), emission_.index(axis.extent, type)}, DType::b1);
    kept[3] = emission_.op(ScalarOp::kAdd, {kept[3], where(whole, constant(1.0), constant(0.0))}, dtype_,
                           mean_name + "_whole_blocks_next");
    share = where(meets_last_block(), share, share_of(kept[3], true), mean_name + "_share");
  }
  // The difference of two shares, not the share of a difference, which overflows between the largest values of either
  // sign.
  const Value moved = emission_.op(ScalarOp::kAdd,
                                   {mean, emission_.op(ScalarOp::kSub,
                                                       {emission_.op(ScalarOp::kMul, {value, share}, dtype_),
                                                        emission_.op(ScalarOp::kMul, {mean, share}, dtype_)},
                                                       dtype_)},
                                   dtype_, mean_name + "_next");
  kept[0] = where(mask, moved, mean, mean_name + "_next");
  const Value squares = emission_.op(ScalarOp::kMul, {delta, emission_.op(ScalarOp::kSub, {value, kept[0]}, dtype_)},
                                     dtype_);
  // Whatever stands beyond the end: nothing times an infinity is NaN.
  const std::optional<double> beyond = values_.beyond(fold_.operands[0]);
  const bool vanishes = beyond && std::isfinite(*beyond);
  kept[1] = emission_.op(ScalarOp::kAdd, {kept[1], vanishes ? squares : where(mask, squares, constant(0.0))}, dtype_,
                         values_.component_name(fold_, 1) + "_next");
}

Value LoopedFold::count_in_all() {
  double iterations = 1, whole = 1;
  for (Axis axis : fold_.axes) {
    const MappedAxis& one = values_.mapped.axes[axis];
    if (!values_.is_looped(axis)) continue;
    const int64_t extent = *kernel::as_constant(one.extent);
    const int64_t blocks = (extent + one.width - 1) / one.width, full = extent / one.width;
    iterations *= static_cast<double>(blocks);
    whole *= static_cast<double>(full);
  }
  if (counted_ == Counted::kByLane) return kept[2];
  if (counted_ == Counted::kTogether) return constant(iterations);
  return where(meets_last_block(), constant(iterations), constant(whole), values_.component_name(fold_, 0) + "_counts");
}

std::vector<Value> LoopedFold::finish_moments() {
  double points = values_.folded_points(fold_);
  const Value counts = count_in_all();
  Value weight = counts;
  if (counted_ == Counted::kTogether) {  // the mean of the lanes' means
    points = lanes_that_meet();
    weight = kNoValue;
  }
  return around(weighted_mean(weight, points), counts);
}

Value LoopedFold::weighted_mean(Value weight, double points) {
  const std::string mean_name = values_.component_name(fold_, 0);
  const double scale = scale_of(points);
  if (weight == kNoValue) weight = scale == 1.0 ? kNoValue : constant(1 / scale);
  else if (scale != 1.0) weight = emission_.op(ScalarOp::kMul, {weight, constant(1 / scale)}, dtype_);
  Value mean = kept[0];
  if (weight != kNoValue) mean = emission_.op(ScalarOp::kMul, {mean, weight}, dtype_);
  // Beyond the end no lane has met a point, so that nothing is masked.
  mean = values_.fold_lanes_of(fold_, ReduceOp::kSum, mean, scale == points ? mean_name : mean_name + "_share");
  if (scale != points) mean = emission_.op(ScalarOp::kDiv, {mean, constant(points / scale)}, dtype_, mean_name);
  return mean;
}

std::vector<Value> LoopedFold::around(Value mean, Value counts) {
  const std::string mean_name = values_.component_name(fold_, 0), squares_name = values_.component_name(fold_, 1);
  const Value shift = emission_.op(ScalarOp::kSub, {kept[0], mean}, dtype_, mean_name + "_shift");
  const Value moved = emission_.op(ScalarOp::kMul, {emission_.op(ScalarOp::kMul, {counts, shift}, dtype_), shift},
                                   dtype_);
  const Value squares = emission_.op(ScalarOp::kAdd, {kept[1], moved}, dtype_);
  return {mean, values_.fold_lanes_of(fold_, ReduceOp::kSum, squares, squares_name)};
}

// --- Moments of parts ---

void LoopedFold::advance_combined_moments() {
  const auto binary = [&](ScalarOp op, Value left, Value right, const std::string& name = "") {
    return emission_.op(op, {left, right}, dtype_, name);
  };
  const std::string mean_name = values_.component_name(fold_, 0);
  const Value part = operand(2, ReduceOp::kSum), mean = kept[0], count = kept[2];
  const Value delta = binary(ScalarOp::kSub, operand(0, ReduceOp::kSum), mean, mean_name + "_delta");
  const Value all = binary(ScalarOp::kAdd, count, part, mean_name + "_count_next");
  const Value share = binary(ScalarOp::kDiv, part, binary(ScalarOp::kMaximum, all, constant(1.0)),
                             mean_name + "_share");
  kept[0] = binary(ScalarOp::kAdd, mean, binary(ScalarOp::kMul, delta, share), mean_name + "_next");
  const Value apart = binary(ScalarOp::kMul, binary(ScalarOp::kMul, delta, delta), count);
  const Value squares = binary(ScalarOp::kAdd, operand(1, ReduceOp::kSum), binary(ScalarOp::kMul, apart, share));
  kept[1] = binary(ScalarOp::kAdd, kept[1], squares, values_.component_name(fold_, 1) + "_next");
  kept[2] = all;
}

std::vector<Value> LoopedFold::finish_combined_moments() {
  const std::string mean_name = values_.component_name(fold_, 0);
  const kernel::Expr& size = values_.kernel.exprs[fold_.operands[2]];
  const Value counts = kept[2];
  if (size.kind == kernel::ExprKind::kConstant) {
    if (!padded_axes().empty())
      return around(weighted_mean(counts, values_.folded_points(fold_) * size.number), counts);
    return around(weighted_mean(kNoValue, lanes_that_meet()), counts);
  }
  // Shares of one, so that no sum is larger than the largest value.
  const Value all = values_.fold_lanes_of(fold_, ReduceOp::kSum, counts, mean_name + "_count");
  const Value some = emission_.op(ScalarOp::kMaximum, {all, constant(1.0)}, dtype_);
  const Value share = emission_.op(ScalarOp::kDiv, {counts, some}, dtype_);
  const Value shares = emission_.op(ScalarOp::kMul, {kept[0], share}, dtype_);
  return around(values_.fold_lanes_of(fold_, ReduceOp::kSum, shares, mean_name), counts);
}

double LoopedFold::lanes_that_meet() const {
  double lanes = 1;
  for (tile::Symbol lane : values_.lanes_of(fold_.axes))
    lanes *= static_cast<double>(tile::width_of(values_.mapped.program, lane));
  return lanes;
}

// --- A maximum and the sum of exponentials below it ---

void LoopedFold::advance_max_sum_exp() {
  const std::string largest_name = values_.component_name(fold_, 0), sum_name = values_.component_name(fold_, 1);
  const bool combines = fold_.reduce == ReduceOp::kCombineMaxSumExp;
  const Value value = operand(0, ReduceOp::kMax), largest = kept[0], sum = kept[1];
  const auto binary = [&](ScalarOp op, Value left, Value right) { return emission_.op(op, {left, right}, dtype_); };
  // One exponential serves, whichever of the two is the larger. Equal infinities have no difference.
  const Value distance = emission_.op(ScalarOp::kAbs, {binary(ScalarOp::kSub, value, largest)}, dtype_);
  const Value below = emission_.op(ScalarOp::kExp, {binary(ScalarOp::kSub, constant(0.0), distance)}, dtype_);
  const Value same = emission_.op(ScalarOp::kEqual, {value, largest}, DType::b1),
              larger = emission_.op(ScalarOp::kGreater, {value, largest}, DType::b1);
  const Value rescale = where(same, constant(1.0), below, "rescale");
  const Value weight = combines ? operand(1, ReduceOp::kSum) : constant(1.0);
  const Value grown = binary(ScalarOp::kAdd, binary(ScalarOp::kMul, sum, rescale), weight);
  const Value added = combines ? binary(ScalarOp::kMul, weight, rescale) : rescale;
  kept[1] = where(larger, grown, binary(ScalarOp::kAdd, sum, added), sum_name + "_next");
  kept[0] = emission_.op(ScalarOp::kMaximum, {largest, value}, dtype_, largest_name + "_next");
}

std::vector<Value> LoopedFold::finish_max_sum_exp() {
  const std::string largest_name = values_.component_name(fold_, 0), sum_name = values_.component_name(fold_, 1);
  const Value largest = values_.fold_lanes_of(fold_, ReduceOp::kMax, kept[0], largest_name);
  const Value difference = emission_.op(ScalarOp::kSub, {kept[0], largest}, dtype_, "difference");
  const Value power = emission_.op(ScalarOp::kExp, {difference}, dtype_, "exponential");
  const Value share = emission_.op(ScalarOp::kMul, {kept[1], power}, dtype_);
  return {largest, values_.fold_lanes_of(fold_, ReduceOp::kSum, share, sum_name)};
}

// --- Places ---

// Does a lane meet its places in ascending order, from its own number on?
bool LoopedFold::keeps_first_place() const {
  return first_ && fold_.axes.size() == 1 && values_.is_looped(fold_.axes[0]) &&
         values_.mapped.axes[fold_.axes[0]].lane >= 0;
}

// Among the points of the axes in their order, the last of which varies fastest.
tile::Index LoopedFold::place() const {
  tile::Index place, stride(1);
  for (size_t at = fold_.axes.size(); at-- > 0;) {
    const MappedAxis& axis = values_.mapped.axes[fold_.axes[at]];
    place = place + axis.whole * stride;
    stride = stride * axis.extent;
  }
  return place;
}

void LoopedFold::start_place() {
  const DType type = emission_.type_for({place()});
  const std::string name = fold_.name.empty() ? std::string(kernel::name_of(fold_.reduce)) : fold_.name;
  add(name + "_value", values_.identity_tile({dtype_, lanes_}, extreme_of(fold_.reduce)));
  if (keeps_first_place()) {
    // A row of the identity alone has its place there.
    const tile::Symbol lane = values_.mapped.axes[fold_.axes[0]].lane;
    return add(name, emission_.broadcast(emission_.index(kernel::symbol_index(lane), type), lanes_));
  }
  add(name, values_.identity_tile({type, lanes_}, ReduceOp::kMin));
}

void LoopedFold::advance_place() {
  const bool floating = is_floating(dtype_), largest = fold_.reduce == ReduceOp::kArgMax;
  const Value value = values_.masked(fold_, values_.value_of(fold_.operands[0]), values_.beyond(fold_.operands[0]));
  const Value best = kept[0], best_place = kept[1];
  const Value here = emission_.index(place(), emission_.type(best_place).dtype);
  const auto holds = [&](ScalarOp op, Value left, Value right, const std::string& name = "") {
    return emission_.op(op, {left, right}, DType::b1, name);
  };
  const auto is_nan = [&](Value of) { return emission_.op(ScalarOp::kIsNan, {of}, DType::b1); };
  Value stays;
  if (keeps_first_place()) {
    // What a lane holds stays unless it is beaten.
    stays = holds(largest ? ScalarOp::kGreaterEqual : ScalarOp::kLessEqual, best, value,
                  floating ? "holds" : names[0] + "_stays");
    if (floating) stays = holds(ScalarOp::kLogicalOr, stays, is_nan(best), names[0] + "_stays");
  } else {
    Value same = holds(ScalarOp::kEqual, best, value),
          better = holds(largest ? ScalarOp::kGreater : ScalarOp::kLess, best, value);
    if (floating) {
      same = holds(ScalarOp::kLogicalOr, same, holds(ScalarOp::kLogicalAnd, is_nan(best), is_nan(value)));
      better = holds(ScalarOp::kLogicalOr, better, is_nan(best));
    }
    stays = emission_.op(ScalarOp::kSelect, {same, holds(ScalarOp::kLess, best_place, here), better}, DType::b1,
                         names[0] + "_stays");
  }
  kept[0] = where(stays, best, value, names[0] + "_next");
  kept[1] = where(stays, best_place, here, names[1] + "_next");
}

// The first place of the extreme among the lanes; NaN is one.
std::vector<Value> LoopedFold::finish_place() {
  const Value extreme = values_.fold_lanes_of(fold_, extreme_of(fold_.reduce), kept[0], names[0]);
  if (extreme == kept[0]) return {emission_.cast(kept[1], fold_.dtype)};
  const std::string extreme_name(kernel::name_of(extreme_of(fold_.reduce)));
  Value is_it = emission_.op(ScalarOp::kEqual, {kept[0], extreme}, DType::b1, "is_" + extreme_name);
  if (is_floating(dtype_))
    is_it = emission_.op(ScalarOp::kLogicalOr, {is_it, emission_.op(ScalarOp::kIsNan, {kept[0]}, DType::b1)}, DType::b1,
                         "is_" + extreme_name);
  const DType type = emission_.type(kept[1]).dtype;
  const Value candidates = where(is_it, kept[1], values_.identity_tile({type, {}}, ReduceOp::kMin),
                                 names[1] + "_candidates");
  return {emission_.cast(values_.fold_lanes_of(fold_, ReduceOp::kMin, candidates, names[1]), fold_.dtype)};
}

}  // namespace kw::lower
