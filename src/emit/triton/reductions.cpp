// What Reduce expressions become: tl.sum and tl.reduce over a tile that holds the whole axis, or accumulators as wide
// as the tile that a loop updates lane by lane and one fold at the end combines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "emit/triton/kernel_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

bool is_arg(ReduceOp reduce) { return reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin; }
bool is_moments(ReduceOp reduce) { return reduce == ReduceOp::kMoments || reduce == ReduceOp::kCombineMoments; }
bool is_max_sum_exp(ReduceOp reduce) { return reduce == ReduceOp::kMaxSumExp || reduce == ReduceOp::kCombineMaxSumExp; }

bool is_simple(const std::string& text) { return text.find(' ') == std::string::npos; }
std::string factor(const std::string& text) { return is_simple(text) || text.back() == ')' ? text : "(" + text + ")"; }

}  // namespace

std::string identity_text(ReduceOp reduce, DType dtype, size_t position) {
  const bool largest = reduce == ReduceOp::kMax || reduce == ReduceOp::kArgMax;
  const bool smallest = reduce == ReduceOp::kMin || reduce == ReduceOp::kArgMin;
  if (dtype == DType::i64 && largest) return "-9223372036854775808";
  if (dtype == DType::i64 && smallest) return "9223372036854775807";
  const double value = identity_of(reduce, dtype, position);
  return literal(dtype, value, is_floating(dtype) ? 0 : static_cast<int64_t>(value)).text;
}

std::vector<int> KernelPrinter::folded_dimensions() const {
  std::vector<int> result;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (is_serial(kernel_.axes[axis]) && is_dimension(axis)) result.push_back(dimensions_.of_axis[axis]);
  std::sort(result.begin(), result.end());
  return result;
}

bool KernelPrinter::folds() const { return !folded_dimensions().empty(); }

int64_t KernelPrinter::reduced_elements() const {
  int64_t count = 1;
  for (const Axis& axis : kernel_.axes)
    if (axis.kind == AxisKind::kReduce) count *= axis.extent;
  return count;
}

// How many accumulators of one Reduce fold into one result.
int64_t KernelPrinter::folded_lanes() const {
  int64_t lanes = 1;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (is_serial(kernel_.axes[axis]) && is_dimension(axis))
      lanes *= kernel_.axes[axis].looped ? kernel_.axes[axis].block : kernel_.axes[axis].extent;
  return lanes;
}

bool KernelPrinter::varies_along_reduce_tile(ExprId id) const {
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (is_serial(kernel_.axes[axis]) && is_dimension(axis) && !axes_[id][axis]) return false;
  return true;
}

std::string KernelPrinter::full_tile(ExprId reduce) const {
  std::vector<bool> axes(kernel_.axes.size(), false);
  bool any = false;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!is_dimension(axis)) continue;
    axes[axis] = is_serial(kernel_.axes[axis]);
    for (ExprId operand : kernel_.exprs[reduce].operands) axes[axis] = axes[axis] || axes_[operand][axis];
    any = any || axes[axis];
  }
  return any ? tile_shape(axes) : "()";
}

// --- Padded lanes ---

std::string KernelPrinter::valid_mask() {
  std::vector<std::string> terms;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (padding_.padded[axis]) terms.push_back(fmt::format("{} < {}", axis_names_[axis], kernel_.axes[axis].extent));
  return mask_mark(terms, padding_.padded, "valid");
}

std::string KernelPrinter::where_valid(const std::string& text, const std::string& otherwise) {
  return padding_.any() ? fmt::format("tl.where({}, {}, {})", valid_mask(), text, otherwise) : text;
}

// Is the expression a load that yields `identity` wherever the guards do not hold?
bool KernelPrinter::yields_outside(ExprId id, const std::vector<Guard>& guards, double identity) const {
  const Expr* expr = &kernel_.exprs[id];
  if (expr->kind == ExprKind::kOp && expr->op == ScalarOp::kCast) expr = &kernel_.exprs[expr->operands[0]];
  return expr->kind == ExprKind::kLoad && expr->access.guards == guards && expr->access.otherwise == identity;
}

// The operand where the Reduce's guards hold and its lanes are no padding.
std::string KernelPrinter::where_counted(ExprId reduce, const std::string& text, const std::string& otherwise) {
  const Access& access = kernel_.exprs[reduce].access;
  std::vector<bool> axes = axes_of_access(kernel_, access);
  std::vector<std::string> terms;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (padding_.padded[axis]) {
      terms.push_back(fmt::format("{} < {}", axis_names_[axis], kernel_.axes[axis].extent));
      axes[axis] = true;
    }
  for (std::string& term : guard_terms(access)) terms.push_back(std::move(term));
  const std::string mask = mask_mark(terms, axes, "counted");
  return mask.empty() ? text : fmt::format("tl.where({}, {}, {})", mask, text, otherwise);
}

std::string KernelPrinter::broadcast_operand(ExprId reduce, size_t position) {
  const ExprId operand = kernel_.exprs[reduce].operands[position];
  const std::string text = value_text(operand).text;
  if (kernel_.exprs[operand].kind != ExprKind::kConstant)
    return fmt::format("tl.broadcast_to({}, {})", text, full_tile(reduce));
  return fmt::format("tl.full({}, {}, {})", full_tile(reduce), text, dtype_name(kernel_.exprs[operand].dtype));
}

std::string KernelPrinter::operand_tile(ExprId reduce, size_t position) {
  const Expr& expr = kernel_.exprs[reduce];
  const ExprId operand = expr.operands[position];
  const DType dtype = kernel_.exprs[operand].dtype;
  std::string text = varies_along_reduce_tile(operand) || !folds() ? value_text(operand).text : "";
  if (folds() && !varies_along_reduce_tile(operand)) text = broadcast_operand(reduce, position);
  const double identity = identity_of(expr.reduce, dtype, position);
  if (!expr.access.guards.empty() && !yields_outside(operand, expr.access.guards, identity))
    return where_counted(reduce, text, identity_text(expr.reduce, dtype, position));
  const auto& known = padding_.value[operand];
  if (!padding_.any() || (known && *known == identity)) return text;
  return where_valid(text, identity_text(expr.reduce, dtype, position));
}

// --- Folds ---

std::string KernelPrinter::fold(const std::string& text, std::string_view function) const {
  const std::vector<int> reduce_dimensions = folded_dimensions();
  const bool to_scalar = static_cast<int>(reduce_dimensions.size()) == dimensions_.count;
  const bool builtin = function.starts_with("tl.");
  const auto apply = [&](const std::string& inner, const std::string& axis) {
    if (builtin) return fmt::format("{}({}, {})", function, inner, axis);
    const size_t comma = axis.find(',');
    return fmt::format("tl.reduce({}, {}, {}{})", inner, axis.substr(0, comma), function,
                       comma == std::string::npos ? "" : axis.substr(comma));
  };
  if (to_scalar && builtin && dimensions_.count > 1) return fmt::format("{}({})", function, text);
  // Triton's interpreter folds with functions of ours along one axis at a time only.
  std::string out = text;
  for (auto at = reduce_dimensions.rbegin(); at != reduce_dimensions.rend(); ++at)
    out = apply(out, fmt::format("axis={}{}", *at, to_scalar ? "" : ", keep_dims=True"));
  return out;
}

std::string KernelPrinter::fold_with(const std::string& text, const std::string& helper) {
  if (!folds()) return text;
  helpers_.insert(helper);
  return fold(text, "combine_fn=" + helper);
}

std::string KernelPrinter::position_text() const {
  Index position;
  int64_t stride = 1;
  for (int axis = static_cast<int>(kernel_.axes.size()) - 1; axis >= 0; --axis) {
    if (kernel_.axes[axis].kind != AxisKind::kReduce) continue;
    position.terms.insert(position.terms.begin(), {axis, stride, 1, 0});
    stride *= kernel_.axes[axis].extent;
  }
  return index_text(position).text;
}

void KernelPrinter::fold_at(ExprId id, const std::string& value, const std::string& index) {
  const std::string helper = kernel_.exprs[id].reduce == ReduceOp::kArgMax ? "larger_at" : "smaller_at";
  helpers_.insert(helper);
  const std::string name = component_name(id, 0);
  std::string tuple = fmt::format("({}, {})", value, index);
  const std::vector<int> reduce_dimensions = folded_dimensions();
  if (reduce_dimensions.empty()) return line(fmt::format("{} = {}", name, index));
  const bool to_scalar = static_cast<int>(reduce_dimensions.size()) == dimensions_.count;
  for (auto at = reduce_dimensions.rbegin(); at != reduce_dimensions.rend(); ++at) {
    const std::string folded = std::next(at) == reduce_dimensions.rend() ? "_" : name + "_value";
    line(fmt::format("{}, {} = tl.reduce({}, axis={}, combine_fn={}{})", folded, name, tuple, *at, helper,
                     to_scalar ? "" : ", keep_dims=True"));
    tuple = fmt::format("({}, {})", folded, name);
  }
}

// --- Names ---

std::string KernelPrinter::component_name(ExprId id, int component) {
  for (ExprId sibling : siblings_of(kernel_, id)) {
    const Expr& expr = kernel_.exprs[sibling];
    if (expr.component != component) continue;
    if (names_[sibling].empty()) names_[sibling] = fresh(expr.name.empty() ? "folded" : expr.name, "_value");
    return names_[sibling];
  }
  static constexpr std::string_view kSuffixes[] = {"first", "second", "count"};
  const ExprId first = siblings_of(kernel_, id)[0];
  const std::string key = fmt::format("{}.{}", first, component);
  if (!derived_names_.contains(key))
    derived_names_[key] = fresh(fmt::format("{}_{}", kernel_.exprs[first].name, kSuffixes[component]), "");
  return derived_names_[key];
}

// Names of the accumulators of a looped Reduce.
std::vector<std::string> KernelPrinter::accumulators(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const auto accumulator = [&](const std::string& name) {
    const std::string key = "accumulator." + name;
    if (!derived_names_.contains(key)) derived_names_[key] = fresh(name + "_acc", "");
    return derived_names_[key];
  };
  if (is_arg(expr.reduce)) return {accumulator(component_name(id, 0) + "_value"), accumulator(component_name(id, 0))};
  if (is_moments(expr.reduce)) {
    std::vector<std::string> names = {accumulator(component_name(id, 0)), accumulator(component_name(id, 1)),
                                      accumulator(component_name(id, 0) + "_count")};
    if (const auto counts = lane_counts(id); counts && !counts->is_one)
      names.push_back(accumulator(component_name(id, 0) + "_whole_blocks"));
    return names;
  }
  if (is_max_sum_exp(expr.reduce)) return {accumulator(component_name(id, 0)), accumulator(component_name(id, 1))};
  return {folds() ? accumulator(component_name(id, 0)) : component_name(id, 0)};
}

// How many elements each lane of looped moments has met is the same for all but those that the last block leaves out:
// two numbers do for it, instead of one a lane, in registers, and a division by it.
std::optional<KernelPrinter::LaneCounts> KernelPrinter::lane_counts(ExprId id) const {
  if (kernel_.exprs[id].reduce != ReduceOp::kMoments) return std::nullopt;
  int ragged = -1, loops = 0;
  for (int axis = 0; axis < static_cast<int>(kernel_.axes.size()); ++axis) {
    loops += kernel_.axes[axis].looped;
    if (!padding_.padded[axis]) continue;
    if (ragged >= 0 || !kernel_.axes[axis].looped || !is_dimension(axis)) return std::nullopt;
    ragged = axis;
  }
  if (ragged < 0) return std::nullopt;
  // A later pass over the row may go backwards, and meets the last block first.
  return LaneCounts{ragged, loops == 1 && !is_later_round(id),
                    fmt::format("{} < {}", arange(ragged), kernel_.axes[ragged].extent % kernel_.axes[ragged].block)};
}

bool KernelPrinter::is_later_round(ExprId id) const {
  std::vector<bool> later(kernel_.exprs.size(), false);
  for (ExprId other = 0; other < id; ++other) {
    later[other] = kernel_.exprs[other].kind == ExprKind::kReduce;
    for (ExprId operand : kernel_.exprs[other].operands) later[other] = later[other] || later[operand];
  }
  return later[kernel_.exprs[id].operands[0]];
}

// Whether a looped argmax meets the places of each lane in ascending order, from the lane's number on.
bool KernelPrinter::keeps_first_place(ExprId id) const {
  if (!is_arg(kernel_.exprs[id].reduce) || is_later_round(id))
    return false;  // only the first pass over a row is sure to go forwards
  int reduce_axes = 0;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis) {
    if (kernel_.axes[axis].kind != AxisKind::kReduce) continue;
    ++reduce_axes;
    if (!kernel_.axes[axis].looped || !is_dimension(axis)) return false;
  }
  return reduce_axes == 1;
}

// --- Looped: init and accumulate ---

void KernelPrinter::start(const std::string& name, const std::string& value, DType dtype, const std::string& shape) {
  const bool zero = value == "0.0" || value == "0";
  if (shape == "()" && dtype == DType::f32) line(fmt::format("{} = {}", name, value));
  else if (zero && shape != "()") line(fmt::format("{} = tl.zeros({}, {})", name, shape, dtype_name(dtype)));
  else line(fmt::format("{} = tl.full({}, {}, {})", name, shape, value, dtype_name(dtype)));
}

void KernelPrinter::init(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const std::string shape = full_tile(id);
  const std::vector<std::string> names = accumulators(id);
  const DType operand = kernel_.exprs[expr.operands[0]].dtype;
  if (is_arg(expr.reduce)) {
    start(names[0], identity_text(expr.reduce, operand, 0), operand, shape);
    const bool wide = reduced_elements() > 2147483647;
    if (keeps_first_place(id)) {
      // Each lane starts at its own first place, where a row of the identity alone has its result.
      const auto looped = std::find_if(kernel_.axes.begin(), kernel_.axes.end(),
                                       [](const Axis& axis) { return axis.looped; });
      return line(fmt::format("{} = tl.zeros({}, {}) + {}", names[1], shape, dtype_name(wide ? DType::i64 : DType::i32),
                              arange(static_cast<int>(looped - kernel_.axes.begin()))));
    }
    start(names[1], wide ? "9223372036854775807" : "2147483647", wide ? DType::i64 : DType::i32, shape);
  } else if (is_moments(expr.reduce)) {
    const auto lane_counts = this->lane_counts(id);
    const bool counts_lanes = expr.reduce == ReduceOp::kCombineMoments || (padding_.any() && !lane_counts);
    start(names[0], "0.0", expr.dtype, shape);
    start(names[1], "0.0", expr.dtype, shape);
    start(names[2], "0.0", expr.dtype, counts_lanes ? shape : "()");
    if (lane_counts && !lane_counts->is_one) start(names[3], "0.0", expr.dtype, "()");
  } else if (is_max_sum_exp(expr.reduce)) {
    start(names[0], "float(\"-inf\")", expr.dtype, shape);
    start(names[1], "0.0", expr.dtype, shape);
  } else {
    const DType dtype = expr.reduce == ReduceOp::kAny || expr.reduce == ReduceOp::kAll ? DType::b1 : expr.dtype;
    start(names[0], identity_text(expr.reduce, dtype, 0), dtype, shape);
  }
}

void KernelPrinter::accumulate(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const std::vector<std::string> names = accumulators(id);
  const bool floating = is_floating(kernel_.exprs[expr.operands[0]].dtype);
  const std::string nan = floating ? ", propagate_nan=tl.PropagateNan.ALL" : "";
  if (is_arg(expr.reduce)) {
    const std::string helper = expr.reduce == ReduceOp::kArgMax ? "larger_at" : "smaller_at";
    if (!keeps_first_place(id)) {
      helpers_.insert(helper);
      line(fmt::format("{0}, {1} = {2}({0}, {1}, {3}, {4})", names[0], names[1], helper, operand_tile(id, 0),
                       position_text()));
      return;
    }
    // Places come in ascending order: what a lane holds stays unless it is beaten.
    const std::string keep = component_name(id, 0) + "_stays";
    std::string value = operand_tile(id, 0);
    if (!is_simple(value)) {
      line(fmt::format("{}_candidate = {}", component_name(id, 0), value));
      value = component_name(id, 0) + "_candidate";
    }
    const std::string holds = fmt::format("{} {} {}", names[0], expr.reduce == ReduceOp::kArgMax ? ">=" : "<=", value);
    line(fmt::format("{} = {}", keep, floating ? fmt::format("({0}) | ({1} != {1})", holds, names[0]) : holds));
    line(fmt::format("{0} = tl.where({1}, {0}, {2})", names[0], keep, value));
    line(fmt::format("{0} = tl.where({1}, {0}, {2})", names[1], keep, position_text()));
    return;
  }
  if (expr.reduce == ReduceOp::kMoments) {
    let(expr.operands[0]);
    const std::string value = value_text(expr.operands[0]).text;
    const std::string delta = component_name(id, 0) + "_delta";
    line(fmt::format("{} = {}", delta, where_valid(fmt::format("{} - {}", value, names[0]), "0.0")));
    const auto lane_counts = this->lane_counts(id);
    const bool counts_lanes = padding_.any() && !lane_counts;
    line(fmt::format("{} += {}", names[2],
                     counts_lanes ? fmt::format("({}).to({})", valid_mask(), dtype_name(expr.dtype)) : "1.0"));
    std::string share_text = fmt::format("1.0 / {}",
                                         counts_lanes ? fmt::format("tl.maximum({}, 1.0)", names[2]) : names[2]);
    if (lane_counts && !lane_counts->is_one) {
      line(fmt::format("{} += tl.where({} + {} <= {}, 1.0, 0.0)", names[3], block_start(lane_counts->axis),
                       block_name(lane_counts->axis), kernel_.axes[lane_counts->axis].extent));
      share_text = fmt::format("tl.where({}, {}, 1.0 / tl.maximum({}, 1.0))", lane_counts->in_last_block, share_text,
                               names[3]);
    }
    // The difference of two shares, not the share of a difference, which overflows between the largest values of either
    // sign.
    const std::string share = component_name(id, 0) + "_share";
    line(fmt::format("{} = {}", share, share_text));
    const std::string moved = fmt::format("{} + ({} * {} - {} * {})", names[0], value, share, names[0], share);
    line(fmt::format("{} = {}", names[0], where_valid(moved, names[0])));
    const std::string squares = fmt::format("{} * ({} - {})", delta, value, names[0]);
    // Whatever stands in padded lanes: nothing times an infinity is NaN.
    const auto padded = padding_.value[expr.operands[0]];
    const bool vanishes = !padding_.any() || (padded && std::isfinite(*padded));
    line(fmt::format("{} += {}", names[1], vanishes ? squares : where_valid(squares, "0.0")));
    return;
  }
  if (expr.reduce == ReduceOp::kCombineMoments) {
    const std::string base = component_name(id, 0);
    line(fmt::format("{}_part = {}", base, operand_tile(id, 2)));
    line(fmt::format("{}_delta = {} - {}", base, factor(operand_tile(id, 0)), names[0]));
    line(fmt::format("{0}_share = {0}_part / tl.maximum({1} + {0}_part, 1.0)", base, names[2]));
    line(fmt::format("{1} += {0}_delta * {0}_share", base, names[0]));
    line(fmt::format("{1} += {2} + {0}_delta * {0}_delta * {3} * {0}_share", base, names[1],
                     factor(operand_tile(id, 1)), names[2]));
    line(fmt::format("{1} += {0}_part", base, names[2]));
    return;
  }
  if (is_max_sum_exp(expr.reduce)) {
    const std::string base = component_name(id, 0);
    std::string weight = expr.reduce == ReduceOp::kCombineMaxSumExp ? operand_tile(id, 1) : "1.0";
    if (!is_simple(weight)) {
      line(fmt::format("{}_weight = {}", base, weight));
      weight = base + "_weight";
    }
    std::string value = operand_tile(id, 0);
    if (!is_simple(value)) {
      line(fmt::format("{}_value = {}", base, value));
      value = base + "_value";
    }
    line(fmt::format("{0}_rescale = tl.where({1} == {2}, 1.0, tl.exp(-tl.abs({1} - {2})))", base, value, names[0]));
    const std::string added = weight == "1.0" ? base + "_rescale"
                                              : fmt::format("{} * {}_rescale", factor(weight), base);
    line(fmt::format("{1} = tl.where({3} > {2}, {1} * {0}_rescale + {4}, {1} + {5})", base, names[1], names[0], value,
                     weight, added));
    line(fmt::format("{0} = tl.maximum({0}, {1}{2})", names[0], value, nan));
    return;
  }
  const std::string operand = operand_tile(id, 0);
  switch (expr.reduce) {
    case ReduceOp::kSum: return line(fmt::format("{} += {}", names[0], operand));
    case ReduceOp::kProd: return line(fmt::format("{} *= {}", names[0], operand));
    case ReduceOp::kMax: return line(fmt::format("{0} = tl.maximum({0}, {1}{2})", names[0], operand, nan));
    case ReduceOp::kMin: return line(fmt::format("{0} = tl.minimum({0}, {1}{2})", names[0], operand, nan));
    case ReduceOp::kAny: return line(fmt::format("{} |= {}", names[0], operand));
    case ReduceOp::kAll: return line(fmt::format("{} &= {}", names[0], operand));
    default: break;
  }
  throw Error(ErrorKind::kInternal, "kernel " + kernel_.name + ": a Reduce that the Triton printer does not know");
}

// --- Finish ---

void KernelPrinter::finish(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  bool looped = false;
  for (const Axis& axis : kernel_.axes) looped = looped || axis.looped;
  std::vector<std::string> parts;
  if (looped) parts = accumulators(id);

  if (is_arg(expr.reduce)) {
    if (!looped) {
      parts = {operand_tile(id, 0), position_text()};
      if (dimensions_.count > 1) parts[1] = fmt::format("tl.broadcast_to({}, {})", parts[1], full_tile(id));
    }
    fold_at(id, parts[0], parts[1]);
  } else if (is_moments(expr.reduce)) {
    finish_moments(id, parts);
  } else if (is_max_sum_exp(expr.reduce)) {
    finish_max_sum_exp(id, parts);
  } else {
    const std::string name = component_name(id, 0);
    const std::string value = looped ? parts[0] : operand_tile(id, 0);
    const bool floating = is_floating(kernel_.exprs[expr.operands[0]].dtype);
    std::string folded = value;
    if (folds()) {
      switch (expr.reduce) {
        case ReduceOp::kSum: folded = fold(value, "tl.sum"); break;
        case ReduceOp::kProd: folded = fold_with(value, "multiply"); break;
        case ReduceOp::kMax: folded = floating ? fold_with(value, "larger") : fold(value, "tl.max"); break;
        case ReduceOp::kMin: folded = floating ? fold_with(value, "smaller") : fold(value, "tl.min"); break;
        case ReduceOp::kAny: folded = fold(factor(value) + ".to(tl.int32)", "tl.max") + " != 0"; break;
        default: folded = fold(factor(value) + ".to(tl.int32)", "tl.min") + " != 0"; break;
      }
    }
    if (folded != name) line(fmt::format("{} = {}", name, folded));
  }
  for (ExprId sibling : siblings_of(kernel_, id)) bind(sibling);
}

// Chan, Golub and LeVeque 1983: lanes' means and squared deviations fold into the row's.
void KernelPrinter::finish_moments(ExprId id, const std::vector<std::string>& parts) {
  const Expr& expr = kernel_.exprs[id];
  const std::string mean = component_name(id, 0);
  const auto sum = [&](const std::string& text) { return folds() ? fold(text, "tl.sum") : text; };
  const auto siblings = siblings_of(kernel_, id);
  const bool wants_squares = std::any_of(siblings.begin(), siblings.end(),
                                         [&](ExprId sibling) { return kernel_.exprs[sibling].component == 1; });
  const bool combines = expr.reduce == ReduceOp::kCombineMoments;
  const Expr* size = combines ? &kernel_.exprs[expr.operands[2]] : nullptr;
  const bool equal_parts = size && size->kind == ExprKind::kConstant;

  if (parts.empty() && !combines) {
    const std::string operand = operand_tile(id, 0);
    line(fmt::format("{} = {}", mean,
                     mean_text(factor(operand), "", static_cast<double>(reduced_elements()), expr.dtype, sum)));
    if (!wants_squares) return;
    const std::string deviation = component_name(id, 1) + "_from_mean";
    line(fmt::format("{} = {}", deviation,
                     where_valid(fmt::format("{} - {}", factor(value_text(expr.operands[0]).text), mean), "0.0")));
    line(fmt::format("{} = {}", component_name(id, 1), sum(fmt::format("{0} * {0}", deviation))));
    return;
  }
  if (parts.empty() && equal_parts) {
    // Parts of equal size: the mean of means.
    const std::string part = factor(operand_tile(id, 0));
    line(fmt::format("{} = {}", mean, mean_text(part, "", static_cast<double>(reduced_elements()), expr.dtype, sum)));
    if (!wants_squares) return;
    const std::string squares = factor(value_text(expr.operands[1]).text);
    line(fmt::format("{}_shift = {} - {}", mean, factor(value_text(expr.operands[0]).text), mean));
    line(fmt::format("{} = {}", component_name(id, 1),
                     sum(where_valid(fmt::format("{1} + {2} * {0}_shift * {0}_shift", mean, squares,
                                                 literal(expr.dtype, size->number, 0).text),
                                     "0.0"))));
    return;
  }
  std::vector<std::string> values = parts;
  if (parts.empty())
    for (size_t position = 0; position < 3; ++position) values.push_back(factor(operand_tile(id, position)));
  if (const auto lane_counts = parts.empty() ? std::nullopt : this->lane_counts(id)) {
    values[2] = component_name(id, 0) + "_counts";
    line(fmt::format("{} = tl.where({}, {}, {})", values[2], lane_counts->in_last_block, parts[2],
                     lane_counts->is_one ? parts[2] + " - 1.0" : parts[3]));
  }
  if (combines && !equal_parts) {
    const std::string count = component_name(id, 2);
    line(fmt::format("{} = {}", count, sum(values[2])));
    // Shares of one, so that no sum is larger than the largest value.
    line(
        fmt::format("{} = {}", mean, sum(fmt::format("{} * ({} / tl.maximum({}, 1.0))", values[0], values[2], count))));
  } else if (!padding_.any()) {
    line(fmt::format("{} = {}", mean,
                     mean_text(values[0], "", static_cast<double>(folded_lanes()), expr.dtype, sum)));  // all lanes
                                                                                                        // have met as
                                                                                                        // many
  } else {
    const double elements = static_cast<double>(reduced_elements()) * (equal_parts ? size->number : 1.0);
    line(fmt::format("{} = {}", mean, mean_text(values[0], values[2], elements, expr.dtype, sum)));
  }
  if (!wants_squares) return;
  line(fmt::format("{}_shift = {} - {}", mean, values[0], mean));
  line(fmt::format("{} = {}", component_name(id, 1),
                   sum(fmt::format("{1} + {2} * {0}_shift * {0}_shift", mean, values[1], values[2]))));
}

// Milakov & Gimelshein 2018.
void KernelPrinter::finish_max_sum_exp(ExprId id, const std::vector<std::string>& parts) {
  const Expr& expr = kernel_.exprs[id];
  const bool weighted = !parts.empty() || expr.reduce == ReduceOp::kCombineMaxSumExp;
  const std::string largest = component_name(id, 0);
  const std::string value = parts.empty() ? factor(operand_tile(id, 0)) : parts[0];
  line(fmt::format("{} = {}", largest, fold_with(value, "larger")));
  std::string term = fmt::format("tl.exp({} - {})", value, largest);
  if (weighted) term = fmt::format("{} * {}", parts.empty() ? factor(operand_tile(id, 1)) : parts[1], term);
  line(fmt::format("{} = {}", component_name(id, 1), folds() ? fold(term, "tl.sum") : term));
}

}  // namespace kw::triton
