// What Scan expressions become: tl.cumsum and tl.associative_scan inside a block, and between the blocks of a loop a
// carry, which is as wide as the rows of the tile.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "emit/python_text.hpp"
#include "emit/triton/kernel_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

int64_t next_power_of_two(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

bool is_name(const std::string& text) { return text.find_first_of(" (") == std::string::npos; }

// The names that "a, b = …" defines.
std::vector<std::string> defined_by(const std::string& line) {
  const size_t equals = line.find(" = ");
  if (equals == std::string::npos) return {};
  std::vector<std::string> names;
  for (size_t begin = 0; begin < equals;) {
    const size_t end = std::min(line.find(", ", begin), equals);
    names.push_back(line.substr(begin, end - begin));
    begin = end + 2;
  }
  return std::all_of(names.begin(), names.end(), [](const std::string& name) { return python::is_identifier(name); })
             ? names
             : std::vector<std::string>{};
}

}  // namespace

// The values that one scan keeps: the running value, and for extremes with positions where it stands.
std::vector<std::string> KernelPrinter::carries(ExprId id) {
  std::vector<std::string> names;
  for (size_t component = 0; component < kernel_.exprs[id].operands.size(); ++component) {
    const std::string key = fmt::format("carry.{}.{}", siblings_of(kernel_, id)[0], component);
    if (!derived_names_.contains(key)) derived_names_[key] = fresh(component == 0 ? "carry" : "carry_at", "");
    names.push_back(derived_names_[key]);
  }
  return names;
}

void KernelPrinter::init_scan(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  std::vector<bool> axes(kernel_.axes.size(), false);
  for (ExprId operand : expr.operands)
    for (size_t axis = 0; axis < axes.size(); ++axis)
      axes[axis] = axes[axis] || (axes_[operand][axis] && !is_serial(kernel_.axes[axis]));
  bool scalar = dimensions_.count == 0 || (dimensions_.count == 1 && is_dimension(scan_axis_of(kernel_)));
  if (dimensions_.count == 1 && !scalar) {
    scalar = true;
    for (size_t axis = 0; axis < axes.size(); ++axis) scalar = scalar && !(axes[axis] && is_dimension(axis));
  }
  // A network's is in every place of the row.
  const std::string shape = expr.network ? full_tile(id) : scalar ? "()" : tile_shape(axes);
  const std::vector<std::string> names = carries(id);
  const DType dtype = kernel_.exprs[expr.operands[0]].dtype;
  if (names.size() == 1) return start(names[0], identity_text(expr.reduce, dtype, 0), dtype, shape);
  // Values of a type, since a function of ours compares them.
  line(fmt::format("{} = tl.full({}, {}, {})", names[0], shape, identity_text(expr.reduce, dtype, 0),
                   dtype_name(dtype)));
  line(fmt::format("{} = tl.full({}, -1, {})", names[1], shape, dtype_name(kernel_.exprs[expr.operands[1]].dtype)));
}

// The operands over the whole block, with the identity in padded lanes that a reversed scan meets first.
std::vector<std::string> KernelPrinter::scan_operands(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const bool padded_first = kernel_.axes[scan_axis_of(kernel_)].reversed;
  std::vector<std::string> values;
  for (size_t position = 0; position < expr.operands.size(); ++position) {
    const ExprId operand = expr.operands[position];
    std::string text;
    if (padded_first && position == 0) text = operand_tile(id, 0);
    else if (folds() && !varies_along_reduce_tile(operand)) text = broadcast_operand(id, position);
    else text = value_text(operand).text;
    // A tuple's parts must have one shape.
    if (expr.operands.size() > 1 && dimensions_.count > 1 && folds())
      text = fmt::format("tl.broadcast_to({}, {})", text, full_tile(id));
    if (!is_name(text)) {
      const std::string name = fresh(position == 0 ? "step" : "step_at", "");
      line(fmt::format("{} = {}", name, text));
      text = name;
    }
    values.push_back(text);
  }
  return values;
}

std::string KernelPrinter::combined(ExprId id, const std::vector<std::string>& before,
                                    const std::vector<std::string>& after) {
  const Expr& expr = kernel_.exprs[id];
  const std::string nan = is_floating(kernel_.exprs[expr.operands[0]].dtype) ? ", propagate_nan=tl.PropagateNan.ALL"
                                                                             : "";
  const bool largest = expr.reduce == ReduceOp::kMax;
  if (before.size() > 1) {
    const std::string helper = largest ? "later_larger_at" : "later_smaller_at";
    helpers_.insert(helper);
    return fmt::format("{}({}, {}, {}, {})", helper, before[0], before[1], after[0], after[1]);
  }
  switch (expr.reduce) {
    case ReduceOp::kSum: return fmt::format("{} + {}", before[0], after[0]);
    case ReduceOp::kProd: return fmt::format("{} * {}", before[0], after[0]);
    case ReduceOp::kMax:
    case ReduceOp::kMin:
      return fmt::format("tl.{}({}, {}{})", largest ? "maximum" : "minimum", before[0], after[0], nan);
    case ReduceOp::kLogSumExp:
      helpers_.insert("log_add_exp");
      return fmt::format("log_add_exp({}, {})", before[0], after[0]);
    default:
      throw Error(ErrorKind::kInternal, "kernel " + kernel_.name + ": a Scan that the Triton printer does not know");
  }
}

// The function that combines two of the scan's values, as tl.reduce and tl.associative_scan call it.
std::string KernelPrinter::scan_helper(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const bool largest = expr.reduce == ReduceOp::kMax, with_position = expr.operands.size() > 1;
  std::string helper = largest ? "larger" : "smaller";
  if (with_position) helper = largest ? "later_larger_at" : "later_smaller_at";
  else if (expr.reduce == ReduceOp::kSum) helper = "add";
  else if (expr.reduce == ReduceOp::kProd) helper = "multiply";
  else if (expr.reduce == ReduceOp::kLogSumExp) helper = "log_add_exp";
  helpers_.insert(helper);
  return helper;
}

std::string KernelPrinter::scanned_block(ExprId id, const std::vector<std::string>& values) {
  const int dimension = dimensions_.of_axis[scan_axis_of(kernel_)];
  const ReduceOp reduce = kernel_.exprs[id].reduce;
  if (reduce == ReduceOp::kSum || reduce == ReduceOp::kProd)
    return fmt::format("tl.{}({}, axis={})", reduce == ReduceOp::kSum ? "cumsum" : "cumprod", values[0], dimension);
  const std::string tile = values.size() == 1 ? values[0] : "(" + join(values, ", ") + ")";
  return fmt::format("tl.associative_scan({}, axis={}, combine_fn={})", tile, dimension, scan_helper(id));
}

std::string KernelPrinter::folded_block(ExprId id, const std::vector<std::string>& values) {
  const bool floating = is_floating(kernel_.exprs[kernel_.exprs[id].operands[0]].dtype);
  const ReduceOp reduce = kernel_.exprs[id].reduce;
  if (values.size() == 1 && reduce == ReduceOp::kSum) return fold(values[0], "tl.sum");
  if (values.size() == 1 && !floating && reduce == ReduceOp::kMax) return fold(values[0], "tl.max");
  if (values.size() == 1 && !floating && reduce == ReduceOp::kMin) return fold(values[0], "tl.min");
  return fold(values.size() == 1 ? values[0] : "(" + join(values, ", ") + ")", "combine_fn=" + scan_helper(id));
}

// The block's products after what is carried; where there is a loop, what is carried on.
void KernelPrinter::network(ExprId id, const std::vector<std::string>& values,
                            const std::vector<std::string>& running) {
  const int axis = scan_axis_of(kernel_), dimension = dimensions_.of_axis[axis];
  const bool carries_on = is_loop_axis(axis);
  const std::string carried = carries_on ? carries(id)[0] : "1.0";
  helpers_.insert("multiply_in_order");
  line(fmt::format("{} = multiply_in_order({}, {}, axis={}, STEPS={})", running[0], values[0], carried, dimension,
                   std::bit_width(static_cast<uint64_t>(kernel_.axes[axis].block)) - 1));
  if (!carries_on) return;
  helpers_.insert("last_in_row");
  line(fmt::format("{} = last_in_row({}, axis={})", carried, running[0], dimension));
}

// The lines of a loop's body, for several blocks at once: what stands before the first Scan for all of them, so that
// their reads are under way together, then the rest for one after the other.
std::vector<std::string> KernelPrinter::read_ahead(const std::vector<std::string>& lines, size_t scan_line, int axis) {
  std::set<std::string> carried, own = {axis_names_[axis]};
  for (const auto& [key, name] : derived_names_)
    if (key.starts_with("carry.")) carried.insert(name);
  for (const std::string& one : lines)
    for (const std::string& name : defined_by(one))
      if (!carried.contains(name)) own.insert(name);
  std::vector<std::string> before, after;
  for (int64_t block = 0; block < kernel_.axes[axis].ahead; ++block) {
    std::vector<std::pair<std::string, std::string>> names;
    for (const std::string& name : own) names.emplace_back(name, fresh(fmt::format("{}_{}", name, block), ""));
    const auto renamed = [&](std::string text) {
      for (const auto& [from, to] : names) {
        text = python::rename_word(text, from, to);
        // A keyword keeps its name.
        for (size_t at = text.find(", " + to + "="); at != std::string::npos; at = text.find(", " + to + "=", at))
          text.replace(at + 2, to.size(), from);
      }
      return text;
    };
    const std::string blocks = block == 0 ? ""
                                          : fmt::format(" + {}{}", block == 1 ? "" : std::to_string(block) + " * ",
                                                        block_name(axis));
    before.push_back(fmt::format("{} = {}", renamed(axis_names_[axis]),
                                 wide(axis, fmt::format("{}_start{} + {}", axis_names_[axis], blocks, lanes(axis)))));
    for (size_t at = 0; at < lines.size(); ++at) (at < scan_line ? before : after).push_back(renamed(lines[at]));
  }
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

void KernelPrinter::scan(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  if (is_sort(expr)) return sort(id);
  const int axis = scan_axis_of(kernel_);
  if (!scan_line_) scan_line_ = scopes_.back().lines.size();
  const std::vector<std::string> values = scan_operands(id);
  std::vector<std::string> running;
  for (size_t component = 0; component < expr.operands.size(); ++component)
    running.push_back(component_name(id, static_cast<int>(component)));
  const auto assign = [&](const std::vector<std::string>& names, const std::string& text) {
    line(fmt::format("{} = {}", join(names, ", "), text));
  };
  if (expr.network) {
    network(id, values, running);
  } else if (!is_loop_axis(axis)) {
    assign(running, is_dimension(axis) ? scanned_block(id, values) : join(values, ", "));
  } else if (!is_dimension(axis)) {
    const std::vector<std::string> before = carries(id);
    assign(before, combined(id, before, values));
    assign(running, join(before, ", "));
  } else {
    const std::vector<std::string> before = carries(id);
    std::vector<std::string> block = running, total;
    for (std::string& name : block) name = fresh(name + "_in_block", "");
    if (values.size() == 1) {
      assign(running, combined(id, before, {scanned_block(id, values)}));
      assign(before, combined(id, before, {folded_block(id, values)}));
    } else {
      for (const std::string& name : before) total.push_back(fresh(name + "_step", ""));
      assign(block, scanned_block(id, values));
      assign(running, combined(id, before, block));
      assign(total, folded_block(id, values));
      assign(before, combined(id, before, total));
    }
  }
  for (ExprId sibling : siblings_of(kernel_, id)) bind(sibling);
}

// Each element and its place become one whole number, in whose order the row is to stand; so equals keep their order
// and one network moves both.
void KernelPrinter::sort(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const int axis = scan_axis_of(kernel_);
  const Axis& row = kernel_.axes[axis];
  const bool down = expr.reduce == ReduceOp::kSortDown, with_places = expr.operands.size() > 1;
  const std::string tile = full_tile(id), flag = down ? "True" : "False";
  KW_ASSERT(!with_places || size_of(kernel_.exprs[expr.operands[0]].dtype) < 8,
            "kernel " + kernel_.name + ": 64-bit elements leave no room for their places");
  std::string value = value_text(expr.operands[0]).text;
  // A row of equal elements is one number yet.
  if (axes_[expr.operands[0]] != axes_[id]) value = fmt::format("tl.broadcast_to({}, {})", value, tile);
  const std::string places = axis_names_[axis], numbers = fresh("numbers", "");
  helpers_.insert({"order_of", "value_of"});
  if (with_places) helpers_.insert({"packed_with_places", "elements_of", "places_of"});
  else helpers_.insert("order_in_row");
  line(fmt::format("{} = {}({}, {}, {}, {})", numbers, with_places ? "packed_with_places" : "order_in_row", value,
                   places, row.extent, flag));
  const int64_t first = next_power_of_two(expr.integer);
  if (picks_one_by_one(kernel_, expr)) {
    helpers_.insert("pick_lowest");
    line(fmt::format("{0} = pick_lowest({0}, {1}, {2})", numbers, places, expr.integer));
  } else {
    helpers_.insert("lowest_first");
    line(fmt::format("{0} = lowest_first({0}, {1})", numbers, expr.integer == 0 || 2 * first > row.block ? 0 : first));
  }
  const std::string_view type = dtype_name(kernel_.exprs[expr.operands[0]].dtype);
  if (with_places) line(fmt::format("{} = elements_of({}, {}, {})", component_name(id, 0), numbers, type, flag));
  else line(fmt::format("{} = value_of({}, 0, {}, {})", component_name(id, 0), numbers, type, flag));
  if (with_places) line(fmt::format("{} = places_of({})", component_name(id, 1), numbers));
  for (ExprId sibling : siblings_of(kernel_, id)) bind(sibling);
}

}  // namespace kw::triton
