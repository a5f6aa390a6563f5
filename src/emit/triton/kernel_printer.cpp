#include "emit/triton/kernel_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "emit/loop_stops.hpp"
#include "emit/python_text.hpp"
#include "emit/triton/helpers.hpp"
#include "emit/triton/refused_indices.hpp"
#include "emit/value_range.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

// 1 / divisor as one rounding of the type gives it.
double reciprocal_of(double divisor, DType dtype) {
  return dtype == DType::f32 ? static_cast<double>(1.0f / static_cast<float>(divisor)) : 1.0 / divisor;
}

constexpr int64_t kInt32Limit = std::numeric_limits<int32_t>::max();
constexpr int64_t kGridLimit = 65535;  // of the second and third dimension of a CUDA grid
constexpr size_t kLineWidth = 110;
constexpr size_t kInlineWidth = 72;

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string indented(const std::string& line) { return line.empty() ? line : "    " + line; }

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Axes with more than one program, innermost first.
std::vector<int> grid_axes(const Kernel& kernel) {
  std::vector<int> result;
  for (int axis = static_cast<int>(kernel.axes.size()) - 1; axis >= 0; --axis)
    if (kernel.axes[axis].kind == AxisKind::kParallel && blocks_of(kernel.axes[axis]) != 1) result.push_back(axis);
  return result;
}

bool is_flattened(const Kernel& kernel) {
  const std::vector<int> axes = grid_axes(kernel);
  if (axes.size() > 3) return true;
  for (size_t index = 1; index < axes.size(); ++index)
    if (blocks_of(kernel.axes[axes[index]]) > kGridLimit) return true;
  return false;
}

}  // namespace

std::vector<BlockConstant> block_constants(const Kernel& kernel) {
  std::vector<BlockConstant> result;
  for (const Axis& axis : kernel.axes)
    if (axis.block > 1) result.push_back({"BLOCK_" + upper(axis.name), axis.block});
  const bool converts = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const Expr& expr) {
    return expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast &&
           (is_eight_bit_float(expr.dtype) || is_eight_bit_float(kernel.exprs[expr.operands[0]].dtype));
  });
  if (converts) result.push_back({kHardwareFloat8Constant, 1});
  return result;
}

std::vector<int64_t> grid_of(const Kernel& kernel) {
  if (is_flattened(kernel)) return {program_count(kernel)};
  std::vector<int64_t> sizes;
  for (int axis : grid_axes(kernel)) sizes.push_back(blocks_of(kernel.axes[axis]));
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

KernelPrinter::KernelPrinter(const Kernel& kernel)
    : kernel_(kernel),
      axes_(axes_of_exprs(kernel)),
      padding_(find_padding(kernel, axes_)),
      dimensions_(find_tile_dimensions(kernel, axes_)),
      names_(kernel.exprs.size()),
      bound_(kernel.exprs.size(), false),
      loads_left_(kernel.exprs.size(), 0),
      cast_of_load_(kernel.exprs.size(), kNoExpr),
      wide_axis_(kernel.axes.size(), false) {
  taken_ = {"tl",
            "triton",
            "libdevice",
            "torch",
            "program",
            "larger",
            "smaller",
            "multiply",
            "larger_at",
            "smaller_at",
            "floor_divide",
            "remainder",
            "remainder_float",
            "floor_divide_float",
            "sign",
            "float_of_float8_e4m3fn",
            "float8_e4m3fn_of_float",
            "float_of_float8_e5m2",
            "float8_e5m2_of_float",
            "hardware_float8",
            "FLOAT8_SATURATES",
            "add",
            "_",
            "bounded",
            kRefusedPointer};
  taken_.insert(python::reserved_names().begin(), python::reserved_names().end());
  for (const Buffer& buffer : kernel.buffers) taken_.insert(buffer.name + "_ptr");
  for (const Axis& axis : kernel.axes) axis_names_.push_back(fresh(axis.name, "_index"));
  roughly_ = std::all_of(kernel.stores.begin(), kernel.stores.end(), [&](const Store& store) {
    const DType dtype = kernel.buffers[store.access.buffer].dtype;
    return dtype == DType::f16 || dtype == DType::bf16;
  });
  // The first term makes the sum 64 bits wide; a later one is only widened where its own product needs it.
  const auto note_wide_sum = [&](const Index& index) {
    const IndexRange range = range_of(index, kernel.axes);
    if (range.highest <= kInt32Limit && range.lowest >= -kInt32Limit) return;
    bool first = true;
    for (const IndexTerm& term : index.terms) {
      if (is_fixed(term.axis) || term.coefficient == 0) continue;
      const int64_t reach = kernel.axes[term.axis].extent + kernel.axes[term.axis].block;
      if (first || std::abs(term.coefficient) > kInt32Limit / reach) wide_axis_[term.axis] = true;
      first = false;
    }
  };
  const auto note_wide = [&](const Access& access) {
    const auto [of_program, of_lane] = split_index(access.index);
    note_wide_sum(of_program);
    note_wide_sum(of_lane);
  };
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr)) note_wide(expr.access);
  for (const Store& store : kernel.stores) note_wide(store.access);
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
    wide_axis_[axis] = wide_axis_[axis] || kernel.axes[axis].extent > kInt32Limit - kernel.axes[axis].block;

  find_what_decides();
  find_what_is_known_to_the_bit();
  std::vector<int> uses(kernel.exprs.size(), 0);
  for (const Expr& expr : kernel.exprs)
    for (ExprId operand : expr.operands) ++uses[operand];
  for (const Store& store : kernel.stores) ++uses[store.value];
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    if (expr.kind != ExprKind::kOp || expr.op != ScalarOp::kCast || expr.dtype == DType::b1) continue;
    const ExprId operand = expr.operands[0];
    if (is_load(kernel.exprs[operand]) && uses[operand] == 1) cast_of_load_[operand] = static_cast<ExprId>(id);
  }
  for (const Stmt& statement : kernel.body)
    for (const Stmt& inner : statement.body)
      if (inner.kind == StmtKind::kLet && is_load(kernel.exprs[inner.expr])) ++loads_left_[inner.expr];
  loads_ = loads_left_;
}

std::string KernelPrinter::run() {
  scopes_.push_back({});
  body(kernel_.body);
  std::vector<std::string> lines = close_scope(false);
  const std::string text = join(lines, "\n");
  std::vector<std::string> head = program_id_lines(text);
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis) {
    const bool persistent = is_serial(kernel_.axes[axis]) && !is_loop_axis(axis) && is_dimension(axis);
    if (persistent && python::has_word(text, axis_names_[axis]))
      head.push_back(fmt::format("{} = {}", axis_names_[axis], wide(axis, arange(axis))));
  }
  lines.insert(lines.begin(), head.begin(), head.end());
  if (!kernel_.doc.empty()) lines.insert(lines.begin(), "\"\"\"" + kernel_.doc + "\"\"\"");

  std::vector<std::string> parameters;
  for (const Buffer& buffer : kernel_.buffers) parameters.push_back(buffer.name + "_ptr");
  if (!sizes_held_against(kernel_).empty()) parameters.push_back(kRefusedPointer);
  for (const BlockConstant& constant : block_constants(kernel_)) parameters.push_back(constant.name + ": tl.constexpr");
  std::string signature = fmt::format("def {}({}):", kernel_.name, join(parameters, ", "));
  if (signature.size() > kLineWidth)
    signature = fmt::format("def {}(\n    {},\n):", kernel_.name, join(parameters, ",\n    "));
  std::string out = "@triton.jit\n" + signature + "\n";
  for (const std::string& one : lines) out += indented(one) + "\n";
  return out;
}

// --- Axes ---

std::string KernelPrinter::block_name(int axis) const { return "BLOCK_" + upper(kernel_.axes[axis].name); }

// Block number times block size: a start that counts down would not be known to be aligned, and the accesses would be
// narrow.
std::string KernelPrinter::block_start(int axis) const {
  const std::string& name = axis_names_[axis];
  return backwards_ ? fmt::format("{}_block * {}", name, block_name(axis)) : name + "_start";
}

std::string KernelPrinter::arange(int axis) const {
  std::string out = fmt::format("tl.arange(0, {})", block_name(axis));
  if (dimensions_.count == 1) return out;
  std::vector<std::string> parts(dimensions_.count, "None");
  parts[dimensions_.of_axis[axis]] = ":";
  return fmt::format("{}[{}]", out, join(parts, ", "));
}

std::string KernelPrinter::tile_shape(const std::vector<bool>& axes) const {
  std::vector<std::string> sizes(dimensions_.count, "1");
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (is_dimension(axis) && axes[axis]) sizes[dimensions_.of_axis[axis]] = block_name(axis);
  return "[" + join(sizes, ", ") + "]";
}

std::string KernelPrinter::wide(int axis, const std::string& text) const {
  if (!wide_axis_[axis]) return text;
  return (text.find(' ') == std::string::npos ? text : "(" + text + ")") + ".to(tl.int64)";
}

std::vector<std::string> KernelPrinter::program_id_lines(const std::string& body) const {
  std::vector<std::string> lines;
  const std::vector<int> axes = grid_axes(kernel_);
  const bool flattened = is_flattened(kernel_);
  if (flattened) lines.emplace_back("program = tl.program_id(0)");
  int64_t inner = 1;
  std::vector<std::string> definitions;
  for (size_t index = 0; index < axes.size(); ++index) {
    const int axis = axes[index];
    std::string program = fmt::format("tl.program_id({})", index);
    const int64_t blocks = blocks_of(kernel_.axes[axis]);
    if (flattened) {
      program = inner == 1 ? "program" : fmt::format("program // {}", inner);
      if (index + 1 < axes.size()) program = fmt::format("{} % {}", program, blocks);
      inner *= blocks;
    }
    if (!python::has_word(body, axis_names_[axis])) continue;
    std::string value = wide(axis, program);
    if (is_dimension(axis)) {
      if (flattened && value.find(' ') != std::string::npos && value.back() != ')') value = "(" + value + ")";
      value = fmt::format("{} * {} + {}", value, block_name(axis), arange(axis));
    }
    definitions.push_back(fmt::format("{} = {}", axis_names_[axis], value));
  }
  lines.insert(lines.end(), definitions.rbegin(), definitions.rend());
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis)
    if (kernel_.axes[axis].kind == AxisKind::kParallel && blocks_of(kernel_.axes[axis]) == 1 && is_dimension(axis) &&
        python::has_word(body, axis_names_[axis]))
      lines.push_back(fmt::format("{} = {}", axis_names_[axis], wide(axis, arange(axis))));
  return lines;
}

// What rounds to a whole number, to 8 bits or to a truth turns the last place of its operands into a whole step.
void KernelPrinter::find_what_decides() {
  decides_.assign(kernel_.exprs.size(), false);
  // Whether a value is NaN does not hang on its last place, nor whether a product or quotient is 0.
  const auto asks_for_more = [&](const Expr& expr) {
    if (expr.op != ScalarOp::kEqual && expr.op != ScalarOp::kNotEqual) return true;
    const Expr &left = kernel_.exprs[expr.operands[0]], &right = kernel_.exprs[expr.operands[1]];
    const bool scales = left.kind == ExprKind::kOp && (left.op == ScalarOp::kMul || left.op == ScalarOp::kDiv ||
                                                       left.op == ScalarOp::kReciprocal || left.op == ScalarOp::kExp);
    return expr.operands[0] != expr.operands[1] &&
           !(scales && right.kind == ExprKind::kConstant && is_floating(right.dtype) && right.number == 0.0);
  };
  const auto rounds = [&](const Expr& expr) {
    if (expr.kind == ExprKind::kReduce) return expr.reduce == ReduceOp::kArgMax || expr.reduce == ReduceOp::kArgMin;
    if (expr.kind != ExprKind::kOp) return false;
    if (expr.op == ScalarOp::kCast) return !is_floating(expr.dtype) || is_eight_bit_float(expr.dtype);
    if (expr.op == ScalarOp::kSign || (expr.op >= ScalarOp::kFloorDiv && expr.op <= ScalarOp::kFmod)) return true;
    return (expr.op >= ScalarOp::kFloor && expr.op <= ScalarOp::kRound) ||
           (expr.op >= ScalarOp::kEqual && expr.op <= ScalarOp::kGreaterEqual && asks_for_more(expr));
  };
  for (size_t id = kernel_.exprs.size(); id-- > 0;)
    if (decides_[id] || rounds(kernel_.exprs[id]))
      for (const ExprId operand : kernel_.exprs[id].operands) decides_[operand] = true;
}

// The last places of sums depend on their order, those of transcendental functions on who wrote them: a quotient by
// such need not be rounded better.
void KernelPrinter::find_what_is_known_to_the_bit() {
  to_the_bit_.assign(kernel_.exprs.size(), true);
  const auto is_rough = [&](const Expr& expr) {
    if (!is_floating(expr.dtype)) return false;
    if (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan)
      return expr.reduce != ReduceOp::kMax && expr.reduce != ReduceOp::kMin;
    const bool transcendental = expr.op >= ScalarOp::kExp && expr.op <= ScalarOp::kPow && expr.op != ScalarOp::kSqrt &&
                                expr.op != ScalarOp::kRsqrt;
    return expr.kind == ExprKind::kOp && transcendental;
  };
  for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
    const Expr& expr = kernel_.exprs[id];
    to_the_bit_[id] = !is_rough(expr);
    for (const ExprId operand : expr.operands) to_the_bit_[id] = to_the_bit_[id] && to_the_bit_[operand];
  }
}

// --- Expressions ---

Text KernelPrinter::value_text(ExprId id) {
  if (bound_[id]) return {names_[id]};
  Text text = computed_text(id);
  hoist_long(id, text);
  return text;
}

void KernelPrinter::hoist_long(ExprId id, Text& text) {
  const Expr& expr = kernel_.exprs[id];
  if (expr.kind != ExprKind::kOp || (text.text.size() <= kInlineWidth && expr.op != ScalarOp::kBounded)) return;
  if (names_[id].empty()) names_[id] = fresh(noun_for(expr, kernel_), "");
  line(fmt::format("{} = {}", names_[id], text.text));
  bind(id);
  text = {names_[id]};
}

Text KernelPrinter::computed_text(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  switch (expr.kind) {
    case ExprKind::kConstant: return literal(expr.dtype, expr.number, expr.integer);
    case ExprKind::kLoad:
    case ExprKind::kGather: return {load_text(id)};
    case ExprKind::kOp: return operation(id);
    case ExprKind::kReduce:
    case ExprKind::kScan:
    case ExprKind::kScatter: break;
    case ExprKind::kIndex: {
      const Text text = index_text(expr.access.index);
      if (text.constant || expr.dtype == DType::i32) return text;
      return {fmt::format("{}.to({})", wrap(text, Binding::kAtom), dtype_name(expr.dtype))};
    }
  }
  throw Error(ErrorKind::kInternal, "kernel " + kernel_.name + ": a Reduce or Scan is used before it is finished");
}

Text KernelPrinter::operation(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const auto kind = [&](size_t at) { return kernel_.exprs[expr.operands[at]].kind; };
  const auto small_index = [&](size_t at) {
    const IndexRange range = range_of(kernel_.exprs[expr.operands[at]].access.index, kernel_.axes);
    return kind(at) == ExprKind::kIndex && !bound_[expr.operands[at]] && range.lowest > -kInt32Limit &&
           range.highest < kInt32Limit;
  };
  const bool compares = expr.op >= ScalarOp::kEqual && expr.op <= ScalarOp::kGreaterEqual;
  // 32-bit indices need no widening for a comparison between them or a cast to something else.
  bool bare = expr.op == ScalarOp::kCast && small_index(0);
  if (compares)
    bare = (small_index(0) || kind(0) == ExprKind::kConstant) && (small_index(1) || kind(1) == ExprKind::kConstant);
  std::vector<Text> operands;
  for (ExprId operand : expr.operands) {
    const Expr& one = kernel_.exprs[operand];
    operands.push_back(bare && one.kind == ExprKind::kIndex ? index_text(one.access.index) : value_text(operand));
  }
  if (expr.op == ScalarOp::kBounded) return held_index(id, operands);
  Operation operation{expr.op, expr.dtype,
                      expr.operands.empty() ? expr.dtype : kernel_.exprs[expr.operands.back()].dtype,
                      roughly_ && !decides_[id], false};
  operation.to_the_bit = decides_[id] ||
                         (expr.op != ScalarOp::kSigmoid && !expr.operands.empty() && to_the_bit_[expr.operands.back()]);
  // PyTorch's CUDA kernels multiply by the reciprocal of a number; where a step follows, the quotient itself would be
  // another answer than theirs.
  if (expr.op == ScalarOp::kDiv && kind(1) == ExprKind::kConstant && is_floating(expr.dtype)) {
    operation.op = ScalarOp::kMul;
    operands[1] = literal(expr.dtype, reciprocal_of(kernel_.exprs[expr.operands[1]].number, expr.dtype), 0);
  }
  operation.nonnegative = std::all_of(expr.operands.begin(), expr.operands.end(), [&](ExprId operand) {
    const Expr& one = kernel_.exprs[operand];
    return one.kind == ExprKind::kConstant
               ? one.integer >= 0
               : one.kind == ExprKind::kIndex && range_of(one.access.index, kernel_.axes).lowest >= 0;
  });
  // A third of libdevice's instructions; where a step follows, its last place is the one that counts.
  if (expr.op == ScalarOp::kPow)
    operation.nonnegative = !decides_[id] && kind(0) != ExprKind::kConstant &&
                            value_range(kernel_, expr.operands[0]).low >= 0;
  // exp(x − max(x)) is at most 1, where the fast exponential's error is far below the largest result's last place.
  if (expr.op == ScalarOp::kExp) {
    const Expr& argument = kernel_.exprs[expr.operands[0]];
    if (argument.kind == ExprKind::kOp && argument.op == ScalarOp::kSub) {
      const Expr& subtrahend = kernel_.exprs[argument.operands[1]];
      const bool is_max = subtrahend.kind == ExprKind::kReduce && subtrahend.component == 0 &&
                          (subtrahend.reduce == ReduceOp::kMax || subtrahend.reduce == ReduceOp::kMaxSumExp);
      operation.roughly = operation.roughly || (is_max && subtrahend.operands[0] == argument.operands[0]);
    }
  }
  // The hardware's inverse root takes denormals for zero, which an epsilon rules out.
  if (expr.op == ScalarOp::kRsqrt) {
    const Expr& argument = kernel_.exprs[expr.operands[0]];
    for (ExprId operand : argument.operands) {
      const Expr& one = kernel_.exprs[operand];
      operation.roughly = operation.roughly || (argument.kind == ExprKind::kOp && argument.op == ScalarOp::kAdd &&
                                                one.kind == ExprKind::kConstant && one.number >= 1e-30);
    }
  }
  std::vector<std::string> helpers;
  const Text text = operation_text(operation, operands, helpers);
  helpers_.insert(helpers.begin(), helpers.end());
  return text;
}

// Lanes beyond an axis's end hold anything.
Text KernelPrinter::held_index(ExprId id, const std::vector<Text>& operands) {
  helpers_.insert("bounded");
  const std::vector<int64_t> sizes = sizes_held_against(kernel_);
  const int64_t size = kernel_.exprs[kernel_.exprs[id].operands[1]].integer;
  const auto slot = std::find(sizes.begin(), sizes.end(), size) - sizes.begin();
  const std::string pointer = slot == 0 ? kRefusedPointer : fmt::format("{} + {}", kRefusedPointer, slot);
  const std::string mask = mask_mark(overhang_terms(axes_[id]), axes_[id], "index");
  const std::string real = mask.empty() ? "" : ", " + mask;
  return {fmt::format("bounded({}, {}, {}{})", operands[0].text, operands[1].text, pointer, real)};
}

void KernelPrinter::bind(ExprId id) {
  bound_[id] = true;
  scopes_.back().bound.push_back(id);
}

void KernelPrinter::let(ExprId id) {
  if (bound_[id]) return;
  const Expr& expr = kernel_.exprs[id];
  if (is_load(expr) && cast_of_load_[id] != kNoExpr) {
    const ExprId cast = cast_of_load_[id];
    const std::string& wanted = kernel_.exprs[cast].name.empty() || kernel_.exprs[cast].name.starts_with("converted")
                                    ? expr.name
                                    : kernel_.exprs[cast].name;
    if (names_[cast].empty()) names_[cast] = fresh(wanted, "_value");
    std::vector<std::string> helpers;
    const Text converted = operation_text(
        {.op = ScalarOp::kCast, .dtype = kernel_.exprs[cast].dtype, .operand_dtype = expr.dtype}, {{load_text(id)}},
        helpers);
    helpers_.insert(helpers.begin(), helpers.end());
    line(fmt::format("{} = {}", names_[cast], converted.text));
    bind(cast);
    return;
  }
  if (names_[id].empty()) names_[id] = fresh(expr.name.empty() ? "value" : expr.name, "_value");
  line(fmt::format("{} = {}", names_[id], computed_text(id).text));
  bind(id);
}

// --- Names, scopes and statements ---

std::string KernelPrinter::fresh(const std::string& wanted, const std::string& suffix) {
  if (taken_.insert(wanted).second) return wanted;
  if (!suffix.empty() && taken_.insert(wanted + suffix).second) return wanted + suffix;
  for (int number = 2;; ++number) {
    const std::string candidate = fmt::format("{}_{}", wanted, number);
    if (taken_.insert(candidate).second) return candidate;
  }
}

void KernelPrinter::body(const std::vector<Stmt>& statements) {
  for (const Stmt& statement : statements) {
    switch (statement.kind) {
      case StmtKind::kLet: let(statement.expr); break;
      case StmtKind::kStore: store(statement.store); break;
      case StmtKind::kLoop: loop(statement); break;
      case StmtKind::kInit: init(statement.expr); break;
      case StmtKind::kScan: throw Error(ErrorKind::kInternal, "kernel " + kernel_.name + ": a Scan has no such form");
      case StmtKind::kAccumulate: accumulate(statement.expr); break;
      case StmtKind::kFinish: finish(statement.expr); break;
    }
  }
}

bool KernelPrinter::can_go_backwards() const {
  return std::all_of(kernel_.axes.begin(), kernel_.axes.end(), [](const Axis& axis) {
    return !axis.looped || (axis.block > 1 && axis.extent > axis.block && axis.extent <= kInt32Limit);
  });
}

void KernelPrinter::loop(const Stmt& statement) {
  bool reads_again = false;
  for (const Stmt& inner : statement.body)
    reads_again = reads_again || (inner.kind == StmtKind::kLet && loads_left_[inner.expr] < loads_[inner.expr]);
  const auto loop_axes = std::count_if(kernel_.axes.begin(), kernel_.axes.end(),
                                       [](const Axis& axis) { return axis.looped; });
  backwards_ = reads_again && loop_axes == 1 && !backwards_ && can_go_backwards();

  scopes_.push_back({});
  body(statement.body);
  std::vector<std::string> lines = close_scope(true);
  if (backwards_) line("# Backwards: what the pass before read last is still in the cache.");
  for (int axis = static_cast<int>(kernel_.axes.size()) - 1; axis >= 0; --axis) {
    if (!is_loop_axis(axis)) continue;
    const std::string& name = axis_names_[axis];
    const int64_t extent = kernel_.axes[axis].extent;
    std::string end = extent > kInt32Limit ? fmt::format("tl.full((), {}, tl.int64)", extent) : std::to_string(extent);
    if (const ExprId stop = stop_of_loop(statement, axis); stop != kNoExpr) {
      const bool in_tile = std::any_of(axes_[stop].begin(), axes_[stop].end(),
                                       [&, at = 0](bool used) mutable { return used & is_dimension(at++); });
      // Lanes beyond the last row may hold anything.
      end = in_tile ? fmt::format("tl.minimum(tl.max({}), {})", value_text(stop).text, end) : value_text(stop).text;
    }
    std::string head = fmt::format("for {} in range(0, {}):", name, end);
    if (backwards_ && !is_dimension(axis)) head = fmt::format("for {} in range({} - 1, -1, -1):", name, end);
    if (is_dimension(axis)) {
      const std::string block = block_name(axis);
      head = backwards_ ? fmt::format("for {}_block in range(tl.cdiv({}, {}) - 1, -1, -1):", name, end, block)
                        : fmt::format("for {}_start in range(0, {}, {}):", name, end, block);
      if (python::has_word(join(lines, "\n"), name)) {
        lines.insert(lines.begin(),
                     fmt::format("{} = {}", name, wide(axis, fmt::format("{} + {}", block_start(axis), arange(axis)))));
      }
    }
    for (std::string& one : lines) one = indented(one);
    lines.insert(lines.begin(), head);
  }
  for (const std::string& one : lines) line(one);
}

// Where all that the loop folds ends (loop_stops.hpp), if that is known before the loop.
ExprId KernelPrinter::stop_of_loop(const Stmt& statement, int axis) const {
  std::vector<ExprId> folds;
  for (const Stmt& inner : statement.body) {
    if (inner.kind == StmtKind::kStore) return kNoExpr;
    if (inner.kind == StmtKind::kAccumulate) folds.push_back(inner.expr);
  }
  const ExprId stop = stop_of(kernel_, axis, folds);
  return stop != kNoExpr && bound_[stop] ? stop : kNoExpr;
}

std::string KernelPrinter::mark_name(const Mark& mark) {
  const std::string noun = mark.is_index ? "offset" : "mask";
  int masked = 0, last = 0;
  bool one_number = true;
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis) {
    if (!mark.axes[axis]) continue;
    one_number = one_number && !is_dimension(static_cast<int>(axis));
    ++masked;
    last = static_cast<int>(axis);
  }
  if (mark.is_index && one_number && masked == 1) return fresh(axis_names_[last] + "_offset", "");
  if (mark.is_index && one_number) return taken_.insert("base").second ? "base" : fresh(mark.buffer + "_base", "");
  if (!mark.is_index && masked == 1 && dimensions_.count > 1) return fresh(axis_names_[last] + "_mask", "");
  return taken_.insert(noun).second ? noun : fresh(mark.buffer + "_" + noun, "");
}

// Takes the innermost scope's lines. Indices and masks that change in it are written where they stand, or named at its
// start when they stand twice.
std::vector<std::string> KernelPrinter::close_scope(bool loop) {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (ExprId id : scope.bound) bound_[id] = false;
  std::vector<std::string> definitions;
  for (size_t index = 0; index < marks_.size(); ++index) {
    Mark& mark = marks_[index];
    bool changes = !loop;
    for (size_t axis = 0; axis < mark.axes.size(); ++axis) changes = changes || (mark.axes[axis] && is_loop_axis(axis));
    if (!changes) continue;
    const std::string token = mark_text(index);
    int uses = 0;
    for (const std::string& one : scope.lines)
      for (size_t at = one.find(token); at != std::string::npos; at = one.find(token, at + 1)) ++uses;
    if (uses == 0) continue;
    if (uses > 1 && mark.name.empty()) { mark.name = mark_name(mark); }
    if (uses > 1) definitions.push_back(fmt::format("{} = {}", mark.name, mark.text));
    for (std::string& one : scope.lines) {
      if (uses > 1) {
        replace_all(one, "(" + token + ").", mark.name + ".");
        replace_all(one, "(" + token + ") & ", mark.name + " & ");
      }
      replace_all(one, token, uses > 1 ? mark.name : mark.text);
    }
  }
  scope.lines.insert(scope.lines.begin(), definitions.begin(), definitions.end());
  return std::move(scope.lines);
}

}  // namespace kw::triton
