#include "lower/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <cmath>

#include "kernel/scalar_values.hpp"
#include "lower/scans.hpp"
#include "support/error.hpp"
#include "tile/box.hpp"

namespace kw::lower {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Instruction;
using tile::kNoValue;
using tile::Kind;
using tile::TileType;
using tile::Value;

namespace {

// Of a tile: Triton's limit. What SIMD of a CPU walks need not be held whole.
constexpr int64_t kMostElements = 1 << 20;
constexpr int64_t kMostOfLoops = int64_t{1} << 31;  // of a CPU: a row that is sorted lies in memory
// Of each side of a tensor-core product in Triton.
constexpr int64_t kLeastDotSide = 16;

// The fold whose identity stands in lanes beyond the end: for a place, that of the extreme which stands there.
ReduceOp simple_of(ReduceOp reduce) {
  if (reduce == ReduceOp::kArgMax) return ReduceOp::kMax;
  return reduce == ReduceOp::kArgMin ? ReduceOp::kMin : reduce;
}

}  // namespace

Values::Values(const kernel::Kernel& described, const KernelSchedule& schedule)
    : kernel(described),
      mapped(map_axes(described, schedule)),
      emission(mapped.program),
      depends(kernel::dependences(described)),
      program_(mapped.program),
      padding_(described, mapped),
      known_(1),
      has_last_(std::any_of(mapped.axes.begin(), mapped.axes.end(), [](const auto& axis) { return axis.last >= 0; })) {
  refuse_what_cannot_be_last();
}

Values::~Values() = default;

bool Values::is_known(ExprId id) const {
  return std::any_of(known_.begin(), known_.end(), [&](const auto& scope) { return scope.contains({id, whole_}); });
}

// Lanes are whole where a product is made, and others everywhere else.
void Values::refuse_what_cannot_be_last() const {
  for (Axis axis : kernel::axes_of(kernel)) {
    if (mapped.axes[axis].last < 0) continue;
    std::vector<bool> folded(kernel.exprs.size());  // [expression] is there a fold, scan or state in it?
    for (size_t id = 0; id < kernel.exprs.size(); ++id) {
      const Expr& expr = kernel.exprs[id];
      const bool along = std::find(expr.axes.begin(), expr.axes.end(), axis) != expr.axes.end();
      if (expr.kind == ExprKind::kState || (along && (expr.kind == ExprKind::kScan || is_place(expr))))
        refuse(
            fmt::format("axis '{}' is the last, but not only stored and folded by sums and extremes", name_of(axis)));
      for (ExprId input : kernel::inputs_of(expr)) {
        if (folded[input] && expr.kind == ExprKind::kDot)
          refuse(fmt::format("axis '{}' is the last, but a product is made of what is folded", name_of(axis)));
        if (folded[input]) folded[id] = true;
      }
      if (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kDot || expr.kind == ExprKind::kScan)
        folded[id] = true;
    }
  }
}

void Values::refuse(const std::string& what, const std::string& hint) const { cannot_schedule(kernel, what, hint); }

void cannot_schedule(const kernel::Kernel& kernel, const std::string& what, const std::string& hint) {
  ErrorText text;
  text.message = fmt::format("kernel '{}' cannot be scheduled so: {}", kernel.name, what);
  text.hint = hint;
  text.code = "bad-schedule";
  throw Error(ErrorKind::kUser, std::move(text));
}

bool Values::is_looped(Axis axis) const {
  return kernel.symbols[axis].kind == kernel::SymbolKind::kAxis && mapped.axes[axis].mapping == Mapping::kLoop;
}

Values::Lanes Values::lanes_of(const std::vector<bool>& axes) const {
  Lanes lanes;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis] && is_last(mapped.axes[axis])) {
      lanes.push_back(mapped.axes[axis].last);
      if (mapped.axes[axis].remainder >= 0) lanes.push_back(mapped.axes[axis].remainder);
    } else if (axes[axis] && mapped.axes[axis].lane >= 0) {
      lanes.push_back(mapped.axes[axis].lane);
    }
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());  // of axes within others
  return lanes;
}

Values::Lanes Values::lanes_of(const std::vector<Axis>& axes) const {
  std::vector<bool> marked(kernel.symbols.size());
  for (Axis axis : axes) marked[axis] = true;
  return lanes_of(marked);
}

std::vector<bool> Values::operands_axes(const Expr& expr) const {
  std::vector<bool> axes(kernel.symbols.size());
  for (ExprId operand : expr.operands)
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (depends[operand][axis]) axes[axis] = true;
  return axes;
}

bool Values::is_place(const Expr& expr) {
  return expr.kind == ExprKind::kReduce && (expr.reduce == ReduceOp::kArgMax || expr.reduce == ReduceOp::kArgMin);
}

bool Values::is_compound(const Expr& fold) {
  return fold.kind == ExprKind::kReduce && kernel::components_of(fold.reduce) == 2;
}

// Folded in any order, one element after the other, from an identity.
bool Values::is_simple(const Expr& expr) {
  return expr.kind == ExprKind::kDot || kernel::identity_of(expr.reduce).has_value();
}

bool Values::folds_a_loop(const Expr& expr) const {
  return (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kDot) &&
         std::any_of(expr.axes.begin(), expr.axes.end(), [&](Axis axis) { return is_looped(axis); });
}

bool Values::folds_shared_row(const Expr& expr) const {
  return std::any_of(expr.axes.begin(), expr.axes.end(), [&](Axis axis) { return mapped.axes[axis].cooperative; });
}

bool Values::varies_in_loops(ExprId id) const {
  const std::vector<Axis> axes = kernel::axes_of(kernel);
  return std::any_of(axes.begin(), axes.end(), [&](Axis axis) { return depends[id][axis] && is_looped(axis); });
}

void Values::check_size(const TileType& type, ExprId id) const {
  int64_t elements = 1;
  for (tile::Symbol lane : type.lanes) elements *= tile::width_of(program_, lane);
  const bool loops = program_.grid.empty() && std::any_of(program_.symbols.begin(), program_.symbols.end(),
                                                          [](const tile::SymbolInfo& symbol) { return symbol.simd; });
  const int64_t most = loops ? kMostOfLoops : kMostElements;
  if (elements > most)
    refuse(fmt::format("a tile of '{}' has {} elements, and {} are the most",
                       kernel.exprs[id].name.empty() ? "a value" : kernel.exprs[id].name, elements, most));
}

Value Values::identity_tile(const TileType& type, ReduceOp reduce) {
  Instruction constant;
  constant.kind = Kind::kConstant;
  const kernel::Number identity = kernel::identity(reduce, type.dtype);
  constant.number = identity.real;
  constant.integer = identity.whole;
  return emission.add(std::move(constant), {type}, "neutral")[0];
}

Value Values::state_value(const Expr& expr) {
  const kernel::State& state = kernel.states[expr.state];
  Value value = states_.at(expr.state);
  for (size_t place = 0; place < state.axes.size(); ++place) {
    const Axis owned = state.axes[place];
    const auto read = kernel::as_symbol(expr.access.coordinates[place].index);
    if (read && *read == owned) continue;
    const MappedAxis& from = mapped.axes[owned];
    const auto is_whole_tile = [](const MappedAxis& axis) { return axis.mapping == Mapping::kTile && !axis.unrolled; };
    if (!read || !is_whole_tile(from) || !is_whole_tile(mapped.axes[*read]) || from.width != mapped.axes[*read].width)
      refuse(fmt::format("state '{}' is read where another block or iteration has it", state.name),
             fmt::format("Give axis '{}', and the axis along which it is read, a tile of the same width, not unrolled.",
                         name_of(owned)));
    if (from.lane < 0) continue;
    Instruction relabel;
    relabel.kind = Kind::kRelabel;
    relabel.operands = {value};
    relabel.from = from.lane;
    relabel.to = mapped.axes[*read].lane;
    Lanes lanes = emission.type(value).lanes;
    std::replace(lanes.begin(), lanes.end(), relabel.from, relabel.to);
    std::sort(lanes.begin(), lanes.end());
    value = emission.add(std::move(relabel), {{state.dtype, lanes}}, state.name)[0];
  }
  return value;
}

// What a fold takes from each lane: its operand, and its identity beyond the end of what it folds.
Value Values::fold_operand(const Expr& expr) {
  Value operand = value_of(expr.operands[0]);
  if (expr.kind == ExprKind::kDot) {
    const Value left = emission.cast(operand, expr.dtype),
                right = emission.cast(value_of(expr.operands[1]), expr.dtype);
    operand = emission.op(ScalarOp::kMul, {left, right}, expr.dtype);
  }
  return masked(expr, operand, padding_.value(expr.operands[0]));
}

Value Values::add_product(const Expr& expr, Value total, const std::string& name) {
  const Value left = emission.cast(value_of(expr.operands[0]), expr.dtype),
              right = emission.cast(value_of(expr.operands[1]), expr.dtype);
  return emission.op(ScalarOp::kFma, {left, right, total}, expr.dtype, name);
}

Value Values::masked(const Expr& expr, Value operand, std::optional<double> beyond, const std::string& name) {
  operand = emission.broadcast(operand, united(emission.type(operand).lanes, lanes_of(expr.axes)));
  const ReduceOp reduce = simple_of(expr.kind == ExprKind::kDot ? ReduceOp::kSum : expr.reduce);
  const Value mask = mask_of(expr.axes);
  if (mask == kNoValue || !kernel::identity_of(reduce)) return operand;
  const DType dtype = emission.type(operand).dtype;
  const kernel::Number identity = kernel::identity(reduce, dtype);
  if (beyond && *beyond == (kernel::is_real(dtype) ? identity.real : static_cast<double>(identity.whole)))
    return operand;
  return emission.op(ScalarOp::kSelect, {mask, operand, identity_tile({dtype, {}}, reduce)}, dtype,
                     name.empty() ? program_.values[operand].name : name);
}

// Half as many bits are chosen where the choice comes first.
Value Values::masked_before_widening(const Expr& fold) {
  ExprId operand = fold.operands[0];
  const Expr& cast = kernel.exprs[operand];
  const bool is_padded = std::any_of(fold.axes.begin(), fold.axes.end(),
                                     [&](Axis axis) { return mapped.axes[axis].padded; });
  const bool widens = is_padded && cast.kind == ExprKind::kOp && cast.op == ScalarOp::kCast &&
                      cast.dtype == DType::f64 && kernel.exprs[cast.operands[0]].dtype == DType::f32 &&
                      !is_known(operand);
  if (widens) operand = cast.operands[0];
  const Value inside = masked(fold, value_of(operand), padding_.value(operand));
  return widens ? emission.op(ScalarOp::kCast, {inside}, cast.dtype, cast.name) : inside;
}

Value Values::fold_lanes(const Expr& expr, Value operand, const std::string& name) {
  Instruction fold;
  fold.kind = Kind::kFold;
  fold.reduce = expr.kind == ExprKind::kDot ? ReduceOp::kSum : expr.reduce;
  fold.operands = {operand};
  const Lanes folded = lanes_of(expr.axes);
  Lanes kept;
  for (tile::Symbol lane : emission.type(operand).lanes)
    (std::find(folded.begin(), folded.end(), lane) == folded.end() ? kept : fold.lanes).push_back(lane);
  if (fold.lanes.empty() && is_simple(expr)) return operand;
  if (fold.lanes.empty() && is_place(expr)) return emission.constant({expr.dtype, {}}, 0.0);  // the only one
  const std::vector<TileType> types(kernel::components_of(fold.reduce), {expr.dtype, kept});
  return emission.add(std::move(fold), types, name)[expr.component];
}

// Two operands with a side of their own each and one lane in common that is summed, all long enough.
bool Values::is_tile_dot(const Expr& expr) const {
  if (expr.kind != ExprKind::kDot) return false;
  const WholeLanes whole(*this);
  const Lanes left = lanes_of(depends[expr.operands[0]]), right = lanes_of(depends[expr.operands[1]]),
              folded = lanes_of(expr.axes);
  const auto has = [](const Lanes& lanes, tile::Symbol lane) {
    return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
  };
  const int64_t least = mapped.narrow_products ? 1 : kLeastDotSide;
  const auto own = [&](const Lanes& lanes, const Lanes& others) {
    int sides = 0;
    for (tile::Symbol lane : lanes)
      if (!has(others, lane) && !has(folded, lane) && tile::width_of(program_, lane) >= least) ++sides;
    return sides;
  };
  return folded.size() == 1 && has(left, folded[0]) && has(right, folded[0]) &&
         tile::width_of(program_, folded[0]) >= least && own(left, right) == 1 && own(right, left) == 1;
}

Value Values::dot(Value total, Value left, Value right, tile::DotPrecision precision, const std::string& name) {
  Instruction dot;
  dot.kind = Kind::kDot;
  dot.operands = {total, left, right};
  dot.precision = precision;
  return emission.add(std::move(dot), {emission.type(total)}, name)[0];
}

Value Values::tile_dot(ExprId id, Value total) {
  const WholeLanes whole(*this);
  const Expr& expr = kernel.exprs[id];
  const bool f32 = kernel.exprs[expr.operands[0]].dtype == DType::f32;
  const bool full = !f32 || expr.precision == kernel::Precision::kFull;
  const auto exact = f32 && mapped.scheme == Scheme::kFp16x3 ? tile::DotPrecision::kFp16x3 : tile::DotPrecision::kIeee;
  const auto precision = full                                           ? exact
                         : expr.precision == kernel::Precision::kTf32   ? tile::DotPrecision::kTf32
                         : expr.precision == kernel::Precision::kTf32x3 ? tile::DotPrecision::kTf32x3
                                                                        : tile::DotPrecision::kBf16x6;
  const Value nothing = emission.constant({expr.dtype, lanes_of(depends[id])}, 0.0);
  if (total == kNoValue) total = nothing;
  const Value left = zero_beyond(expr, value_of(expr.operands[0]));
  const Value right = zero_beyond(expr, value_of(expr.operands[1]));
  return dot(total, left, right, precision, expr.name.empty() ? "product" : expr.name);
}

Value Values::zero_beyond(const Expr& expr, Value value) {
  const Value mask = mask_of(expr.axes);
  if (mask == kNoValue || emission.is_zero_where_masked(value)) return value;
  const DType dtype = emission.type(value).dtype;
  return emission.op(ScalarOp::kSelect, {mask, value, emission.constant({dtype, {}}, 0.0)}, dtype,
                     program_.values[value].name);
}

// Holds where these axes have not reached their ends; kNoValue where all lanes are inside.
Value Values::mask_of(const std::vector<Axis>& axes) {
  Value mask = kNoValue;
  for (Axis axis : axes) {
    const MappedAxis& one = mapped.axes[axis];
    if (!one.padded) continue;
    const tile::Index& index = is_last(one) ? one.index : one.whole;
    const DType dtype = emission.type_for({index, one.extent});
    mask = emission.both(
        mask, emission.op(ScalarOp::kLess, {emission.index(index, dtype), emission.index(one.extent, dtype)}, DType::b1,
                          name_of(axis) + "_inside"));
  }
  return mask;
}

Value Values::mask_of(const std::vector<bool>& axes) {
  std::vector<Axis> marked;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) marked.push_back(static_cast<Axis>(axis));
  return mask_of(marked);
}

tile::Access Values::translate(const kernel::Access& access, Value mask) {
  tile::Access result;
  result.buffer = access.buffer;
  result.otherwise = access.otherwise;
  for (const kernel::Coordinate& coordinate : access.coordinates)
    result.coordinates.push_back({mapped.translate(coordinate.index, whole_),
                                  coordinate.value == kernel::kNoExpr ? kNoValue : value_of(coordinate.value)});
  result.mask = mask;
  if (access.mask != kernel::kNoExpr) result.mask = emission.both(result.mask, value_of(access.mask));
  return result;
}

Value Values::behind_product(Value value) {
  for (const MappedAxis& axis : mapped.axes) {
    TileType type = emission.type(value);
    const auto found = std::find(type.lanes.begin(), type.lanes.end(), axis.lane);
    if (axis.last < 0 || found == type.lanes.end()) continue;
    const tile::Symbol faster = axis.inner >= 0 ? axis.inner : axis.remainder;
    Instruction renamed;
    renamed.kind = faster < 0 ? Kind::kRelabel : Kind::kSplit;
    renamed.operands = {value};
    renamed.from = axis.lane;
    if (faster < 0) renamed.to = axis.last;
    else renamed.lanes = {axis.last, faster};
    *found = axis.last;
    if (faster >= 0) type.lanes.push_back(faster);
    std::sort(type.lanes.begin(), type.lanes.end());
    const std::string name = program_.values[value].name + "_turned";
    value = emission.add(std::move(renamed), {type}, name)[0];
  }
  return value;
}

Value Values::value_of(ExprId id) {
  for (size_t depth = known_.size(); depth-- > 0;)
    if (const auto found = known_[depth].find({id, whole_}); found != known_[depth].end()) return found->second;
  const Value value = compute(id);
  check_size(emission.type(value), id);
  known_[emission.depth_of(value)][{id, whole_}] = value;
  return value;
}

Value Values::compute(ExprId id) {
  const Expr& expr = kernel.exprs[id];
  switch (expr.kind) {
    case ExprKind::kConstant: {
      Instruction constant;
      constant.kind = Kind::kConstant;
      constant.number = expr.number;
      constant.integer = expr.integer;
      return emission.add(std::move(constant), {{expr.dtype, {}}}, expr.name.empty() ? "constant" : expr.name)[0];
    }
    case ExprKind::kIndex: return emission.index(mapped.translate(expr.index, whole_), expr.dtype);
    case ExprKind::kLoad: return load(expr);
    case ExprKind::kOp: {
      std::vector<Value> operands;
      for (ExprId operand : expr.operands) operands.push_back(value_of(operand));
      return emission.op(expr.op, std::move(operands), expr.dtype, expr.name);
    }
    case ExprKind::kReduce: {
      KW_ASSERT(!folds_a_loop(expr) && !folds_shared_row(expr), "a fold is used before it is known");
      if (is_compound(expr)) return compound_fold(expr);
      return fold_lanes(expr, masked_before_widening(expr),
                        expr.name.empty() ? std::string(kernel::name_of(expr.reduce)) : expr.name);
    }
    case ExprKind::kDot: {
      KW_ASSERT(!folds_a_loop(expr), "a dot over a loop is used before it is known");
      if (!is_tile_dot(expr)) return fold_lanes(expr, fold_operand(expr), expr.name.empty() ? "product" : expr.name);
      return behind_product(tile_dot(id, kNoValue));
    }
    case ExprKind::kScan: return scan(id);
    case ExprKind::kState: return state_value(expr);
  }
  return kNoValue;
}

Value Values::load(const Expr& expr) {
  const std::vector<bool> axes = kernel::dependences(kernel, expr.access, depends);
  Instruction load;
  load.kind = Kind::kLoad;
  // A producer copies what the loop of its consumers walks, and nothing else.
  const bool may_be_bulk = mapped.bulk[expr.access.buffer] && (mapped.consumers.count == 1 || is_walked(axes));
  if (may_be_bulk && says_within(expr.access, expr.access.mask) && leaves_with_its_axes(expr.access, axes)) {
    kernel::Access unmasked = expr.access;
    unmasked.mask = kernel::kNoExpr;
    load.access = translate(unmasked, kNoValue);
    if (tile::lanes_of(program_, load.access).size() > 1 && tile::box_of(program_, load.access))
      load.mode = tile::CopyMode::kBulk;
  }
  if (load.mode == tile::CopyMode::kPlain) load.access = translate(expr.access, mask_of(axes));
  if (const auto otherwise = padding_.otherwise(static_cast<ExprId>(&expr - kernel.exprs.data())))
    load.access.otherwise = *otherwise;
  const Lanes lanes = tile::lanes_of(program_, load.access);
  const std::string name = expr.name.empty() ? program_.buffers[expr.access.buffer].name + "_tile" : expr.name;
  return emission.add(std::move(load), {{expr.dtype, lanes}}, name)[0];
}

bool Values::is_walked(const std::vector<bool>& axes) const {
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis] && mapped.axes[axis].mapping == Mapping::kLoop && mapped.axes[axis].outer >= 0) return true;
  return false;
}

bool Values::says_within(const kernel::Access& access, ExprId mask) const {
  if (mask == kernel::kNoExpr) return true;
  const Expr& condition = kernel.exprs[mask];
  if (condition.kind != ExprKind::kOp) return false;
  const auto says = [&](ExprId operand) { return says_within(access, operand); };
  if (condition.op == ScalarOp::kLogicalAnd)
    return std::all_of(condition.operands.begin(), condition.operands.end(), says);
  if (condition.op != ScalarOp::kLess) return false;
  const Expr &place = kernel.exprs[condition.operands[0]], &end = kernel.exprs[condition.operands[1]];
  if (place.kind != ExprKind::kIndex || end.kind != ExprKind::kConstant) return false;
  const std::vector<kernel::Index>& shape = kernel.buffers[access.buffer].shape;
  for (size_t dimension = 0; dimension < shape.size(); ++dimension)
    if (access.coordinates[dimension].index == place.index && shape[dimension] == kernel::Index(end.integer))
      return true;
  return false;
}

bool Values::leaves_with_its_axes(const kernel::Access& access, const std::vector<bool>& axes) const {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis] || !mapped.axes[axis].padded) continue;
    const auto is_its_own = [&](size_t dimension) {
      const kernel::Index& index = access.coordinates[dimension].index;
      const kernel::Index& shape = kernel.buffers[access.buffer].shape[dimension];
      if (kernel::as_symbol(index) == static_cast<Axis>(axis))
        return mapped.translate(shape) == mapped.axes[axis].extent;
      // Or blocks of so many elements, of which those beyond the last begin beyond the buffer.
      const auto linear = kernel::linear_in(index, static_cast<Axis>(axis));
      if (!linear) return false;
      const int64_t width = kernel::as_constant(linear->coefficient).value_or(0),
                    extent = kernel::as_constant(kernel.symbols[axis].extent).value_or(0),
                    end = kernel::as_constant(shape).value_or(std::numeric_limits<int64_t>::max());
      return width > 0 && width * extent >= end && kernel::range_of(linear->rest, kernel::ranges_of(kernel)).low >= 0;
    };
    bool found = false;
    for (size_t dimension = 0; dimension < access.coordinates.size(); ++dimension)
      found = found || is_its_own(dimension);
    if (!found) return false;
  }
  return true;
}

}  // namespace kw::lower
