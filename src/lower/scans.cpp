#include "lower/scans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "kernel/scalar_values.hpp"
#include "support/error.hpp"

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
using Axis = kernel::Symbol;

namespace {

// A few extremes of long rows take fewer instructions one by one than a sorting network does; of short ones, fewer are
// few.
constexpr int64_t kLongRow = 512, kFewOfLong = 16, kFewOfShort = 8;

bool is_along(const Expr& scan) { return kernel::takes_along(scan.reduce) && scan.operands.size() == 2; }

size_t components_of(const Expr& scan) {
  return static_cast<size_t>(kernel::components_of_scan(scan.reduce, scan.operands.size()));
}

std::vector<std::string> names_of(const Values& values, const Expr& scan) {
  std::vector<std::string> names;
  for (size_t component = 0; component < components_of(scan); ++component)
    names.push_back(values.component_name(scan, static_cast<int>(component)));
  return names;
}

std::vector<TileType> types_of(Values& values, const Expr& scan, const std::vector<Value>& operands,
                               const Values::Lanes& lanes) {
  std::vector<TileType> types;
  for (size_t component = 0; component < components_of(scan); ++component)
    types.push_back({is_along(scan) ? values.emission.type(operands[component]).dtype : scan.dtype, lanes});
  return types;
}

// Lanes beyond the end come last where a row is sorted: their elements are the last of all, and the last of equals.
Value last_beyond_end(Values& values, const Expr& sort, Value operand) {
  const Value mask = values.mask_of(sort.axes);
  if (mask == kNoValue) return operand;
  const bool up = sort.reduce == ReduceOp::kSortUp;
  const DType dtype = values.emission.type(operand).dtype;
  const kernel::Number last = kernel::identity(up ? ReduceOp::kMin : ReduceOp::kMax, dtype);
  Instruction constant;
  constant.kind = Kind::kConstant;
  constant.number = up ? std::numeric_limits<double>::quiet_NaN() : last.real;
  constant.integer = last.whole;
  const Value beyond = values.emission.add(std::move(constant), {{dtype, {}}}, "last")[0];
  return values.emission.op(ScalarOp::kSelect, {mask, operand, beyond}, dtype, "to_sort");
}

// As tiles of the same lanes. Only a walk from the end meets lanes beyond it before others.
std::vector<Value> operands_of(Values& values, const Expr& scan) {
  Emission& emission = values.emission;
  std::vector<Value> operands;
  Values::Lanes lanes = values.lanes_of(scan.axes);
  for (ExprId operand : scan.operands) {
    operands.push_back(values.value_of(operand));
    lanes = united(lanes, emission.type(operands.back()).lanes);
  }
  if (values.mapped.axes[scan.axes[0]].lane < 0) return operands;
  for (Value& operand : operands) operand = emission.broadcast(operand, lanes);
  if (kernel::is_sort(scan.reduce)) operands[0] = last_beyond_end(values, scan, operands[0]);
  else if (scan.reversed) operands[0] = values.masked(scan, operands[0], std::nullopt);
  return operands;
}

tile::ScanWay way_of(const Values& values, const Expr& scan) {
  const MappedAxis& axis = values.mapped.axes[scan.axes[0]];
  if (scan.reduce == ReduceOp::kProd && axis.network && !scan.reversed) return tile::ScanWay::kNetwork;
  if (!kernel::is_sort(scan.reduce) || !is_along(scan)) return tile::ScanWay::kFree;
  const auto length = kernel::as_constant(axis.extent);
  return length && picks_one_by_one(scan.integer, *length) ? tile::ScanWay::kPicked : tile::ScanWay::kFree;
}

std::vector<Value> scan_lanes(Values& values, const Expr& scan, std::vector<Value> operands,
                              const std::vector<std::string>& names) {
  Instruction instruction;
  instruction.kind = Kind::kScan;
  instruction.reduce = scan.reduce;
  instruction.reversed = scan.reversed;
  instruction.integer = scan.integer;
  instruction.way = way_of(values, scan);
  instruction.from = values.mapped.axes[scan.axes[0]].lane;
  const std::vector<TileType> types = types_of(values, scan, operands, values.emission.type(operands[0]).lanes);
  instruction.operands = std::move(operands);
  return values.emission.add(std::move(instruction), types, names);
}

std::vector<Value> fold_of_block(Values& values, const Expr& scan, const std::vector<Value>& operands,
                                 const std::vector<std::string>& names) {
  Instruction fold;
  fold.kind = Kind::kFold;
  fold.reduce = scan.reduce;
  fold.operands = operands;
  fold.lanes = {values.mapped.axes[scan.axes[0]].lane};
  Values::Lanes kept = values.emission.type(operands[0]).lanes;
  std::erase(kept, fold.lanes[0]);
  const std::vector<TileType> types = types_of(values, scan, operands, kept);
  return values.emission.add(std::move(fold), types, names);
}

std::vector<std::string> with_ending(std::vector<std::string> names, const std::string& ending) {
  for (std::string& name : names) name += ending;
  return names;
}

}  // namespace

bool picks_one_by_one(int64_t first, int64_t length) {
  return first > 0 && first <= (length >= kLongRow ? kFewOfLong : kFewOfShort);
}

std::vector<Value> scan_block(Values& values, const Expr& scan) {
  std::vector<Value> operands = operands_of(values, scan);
  if (values.mapped.axes[scan.axes[0]].lane >= 0)
    return scan_lanes(values, scan, std::move(operands), names_of(values, scan));
  // A row of one element.
  if (scan.reduce == ReduceOp::kArgMax || scan.reduce == ReduceOp::kArgMin)
    return {values.emission.constant({scan.dtype, {}}, 0.0)};
  return operands;
}

// --- Along a loop ---

LoopedScan::LoopedScan(Values& values, const Expr& scan)
    : values_(values), emission_(values.emission), scan_(scan), depth_(emission_.depth() + 1) {
  std::vector<bool> axes = values.operands_axes(scan);
  axes[scan.axes[0]] = is_network();
  const Values::Lanes lanes = values.lanes_of(axes);
  carried = {values.identity_tile({values.kernel.exprs[scan.operands[0]].dtype, lanes}, scan.reduce)};
  names = {"carry"};
  if (!is_along(scan)) return;
  carried.push_back(emission_.constant({values.kernel.exprs[scan.operands[1]].dtype, lanes}, -1.0));
  names.emplace_back("carry_at");
}

bool LoopedScan::is_network() const {
  return way_of(values_, scan_) == tile::ScanWay::kNetwork && values_.mapped.axes[scan_.axes[0]].lane >= 0;
}

const std::vector<Value>& LoopedScan::running() {
  if (!running_.empty()) return running_;
  const MappedAxis& axis = values_.mapped.axes[scan_.axes[0]];
  if (is_network()) advance_network();
  else if (axis.in_order && axis.lane >= 0) advance_in_order();
  else advance();
  return running_;
}

void LoopedScan::advance() {
  const std::vector<std::string> names = names_of(values_, scan_);
  const std::vector<Value> operands = operands_of(values_, scan_);
  if (values_.mapped.axes[scan_.axes[0]].lane < 0) {
    running_ = after_carried(operands, names);
    return carry_on(running_);
  }
  running_ = after_carried(scan_lanes(values_, scan_, operands, with_ending(names, "_in_block")), names);
  carry_on(after_carried(fold_of_block(values_, scan_, operands, with_ending(names, "_of_block")),
                         with_ending(this->names, "_next")));
}

void LoopedScan::carry_on(const std::vector<Value>& next) {
  if (emission_.depth_of(next[0]) > depth_)
    values_.refuse(fmt::format("a {} walks axis '{}', but what it folds varies in a loop inside that one",
                               kernel::name_of(scan_.reduce), values_.name_of(scan_.axes[0])),
                   "Put the loops of what it folds before it in 'nest'.");
  std::copy(next.begin(), next.end(), carried.begin());
}

// Of equals the later one is the extreme, and the later NaN.
std::vector<Value> LoopedScan::after_carried(const std::vector<Value>& block, const std::vector<std::string>& names) {
  const DType dtype = emission_.type(carried[0]).dtype;
  if (!is_along(scan_)) return {emission_.op(*kernel::step_of(scan_.reduce), {carried[0], block[0]}, dtype, names[0])};
  const ScalarOp reaches = scan_.reduce == ReduceOp::kMax ? ScalarOp::kGreaterEqual : ScalarOp::kLessEqual;
  Value takes_over = emission_.op(reaches, {block[0], carried[0]}, DType::b1);
  if (is_floating(dtype))
    takes_over = emission_.op(ScalarOp::kLogicalOr, {takes_over, emission_.op(ScalarOp::kIsNan, {block[0]}, DType::b1)},
                              DType::b1, "takes_over");
  std::vector<Value> all;
  for (size_t component = 0; component < block.size(); ++component)
    all.push_back(emission_.op(ScalarOp::kSelect, {takes_over, block[component], carried[component]},
                               emission_.type(block[component]).dtype, names[component]));
  return all;
}

// Beyond the end nothing is met.
void LoopedScan::advance_in_order() {
  std::vector<Value> operands = operands_of(values_, scan_);
  if (!scan_.reversed) operands[0] = values_.masked(scan_, operands[0], std::nullopt);
  Instruction scan;
  scan.kind = Kind::kScan;
  scan.reduce = scan_.reduce;
  scan.reversed = scan_.reversed;
  scan.way = tile::ScanWay::kAfter;
  scan.from = values_.mapped.axes[scan_.axes[0]].lane;
  std::vector<TileType> types = types_of(values_, scan_, operands, emission_.type(operands[0]).lanes);
  Values::Lanes rows = emission_.type(operands[0]).lanes;
  std::erase(rows, scan.from);
  const size_t components = types.size();
  std::vector<std::string> names = names_of(values_, scan_);
  for (size_t component = 0; component < components; ++component) {
    types.push_back({types[component].dtype, rows});
    names.push_back(this->names[component] + "_next");
    operands.push_back(emission_.broadcast(carried[component], rows));
  }
  scan.operands = std::move(operands);
  const std::vector<Value> made = emission_.add(std::move(scan), types, names);
  const auto middle = made.begin() + static_cast<std::ptrdiff_t>(components);
  running_.assign(made.begin(), middle);
  carry_on({middle, made.end()});
}

void LoopedScan::advance_network() {
  const tile::Symbol lane = values_.mapped.axes[scan_.axes[0]].lane;
  const Value operand = operands_of(values_, scan_)[0];
  const DType dtype = emission_.type(operand).dtype;
  const Value is_first = emission_.op(
      ScalarOp::kEqual, {emission_.index(kernel::symbol_index(lane), DType::i32), emission_.index(0, DType::i32)},
      DType::b1, "is_first");
  const Value entering = emission_.op(ScalarOp::kSelect,
                                      {is_first, emission_.op(ScalarOp::kMul, {operand, carried[0]}, dtype), operand},
                                      dtype, "entering");
  running_ = scan_lanes(values_, scan_, {entering}, names_of(values_, scan_));
  Instruction last;
  last.kind = Kind::kScan;
  last.reduce = ReduceOp::kFirst;
  last.reversed = true;
  last.from = lane;
  last.operands = running_;
  carry_on(emission_.add(std::move(last), {emission_.type(running_[0])}, "carry_next"));
}

// --- Which scans a loop has ---

Value Values::scan(ExprId id) {
  const Expr& expr = kernel.exprs[id];
  const auto component = static_cast<size_t>(expr.component);
  if (!is_looped(expr.axes[0])) return scan_block(*this, expr)[component];
  const auto found = looped_scans_.find(first_scan_like(expr));
  KW_ASSERT(found != looped_scans_.end(), "a scan is used outside of its loop");
  return found->second->running()[component];
}

ExprId Values::first_scan_like(const Expr& scan) const {
  const auto found = std::find_if(kernel.exprs.begin(), kernel.exprs.end(), [&](const Expr& other) {
    return other.kind == ExprKind::kScan && other.reduce == scan.reduce && other.operands == scan.operands &&
           other.axes == scan.axes && other.reversed == scan.reversed && other.integer == scan.integer;
  });
  return static_cast<ExprId>(found - kernel.exprs.begin());
}

void Values::collect_scans(ExprId id, Axis along, std::set<ExprId>& seen, std::set<ExprId>& found) const {
  if (!seen.insert(id).second || is_known(id)) return;
  const Expr& expr = kernel.exprs[id];
  if (expr.kind == ExprKind::kScan && expr.axes[0] == along) found.insert(first_scan_like(expr));
  for (ExprId input : kernel::inputs_of(expr)) collect_scans(input, along, seen, found);
}

std::vector<LoopedScan*> Values::begin_scans(const std::vector<ExprId>& roots, const MappedLoop& loop) {
  std::set<ExprId> seen, found;
  for (ExprId root : roots) collect_scans(root, loop.axes[0], seen, found);
  std::vector<LoopedScan*> begun;
  for (ExprId id : found) {
    auto& scan = looped_scans_[id];
    scan = std::make_unique<LoopedScan>(*this, kernel.exprs[id]);
    begun.push_back(scan.get());
  }
  return begun;
}

void Values::refuse_scan(ExprId id) const {
  const Expr& scan = kernel.exprs[id];
  const Axis axis = scan.axes[0];
  if (!is_looped(axis)) return;
  const std::string what = fmt::format("a {} walks axis '{}', ", kernel::name_of(scan.reduce), name_of(axis));
  if (!kernel::step_of(scan.reduce)) refuse(what + "which is a loop", "Give it a tile.");
  const auto loop = std::find_if(mapped.nest.begin(), mapped.nest.end(), [&](const MappedLoop& one) {
    return std::find(one.axes.begin(), one.axes.end(), axis) != one.axes.end();
  });
  if (loop->axes.size() > 1) refuse(what + "which is walked together with others", "Give it a loop of its own.");
  if (loop->bounded) refuse(what + "which is bounded");
  if (mapped.serpentine) refuse(what + "which may not turn round, as serpentine has it");
  for (const Expr& other : kernel.exprs) {
    const bool along = std::find(other.axes.begin(), other.axes.end(), axis) != other.axes.end();
    if (!along || other.kind == ExprKind::kDot) continue;
    if (other.kind == ExprKind::kScan ? other.reversed != scan.reversed : scan.reversed && !is_simple(other))
      refuse(what + "which something else has to walk the other way", "Give it a tile.");
  }
}

}  // namespace kw::lower
