#include "emit/cpu/statements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "emit/cpu/guard_scope.hpp"
#include "emit/cpu/kernel_frame.hpp"
#include "emit/cpu/loop_nest.hpp"
#include "emit/cpu/program_starts.hpp"
#include "emit/cpu/reductions.hpp"
#include "emit/cpu/scatters.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;
using namespace precedence;

namespace {

constexpr size_t kLongText = 88;  // an expression longer than this gets a name of its own

class KernelPrinter {
 public:
  KernelPrinter(const Part& part, HelperSet& helpers, Touches& touches)
      : simplified_(part.simplified),
        kernel_(simplified_.kernel),
        nest_(part.nest),
        helpers_(helpers),
        touches_(touches) {}

  // The function's statements. `buffers` becomes the buffers' names in it.
  std::string print(std::vector<std::string>& buffers) {
    name_everything();
    writer_.indent();
    open_programs();
    starts_.print(buffers_, axes_, names_, writer_);
    for (int phase = 0; phase <= nest_.last_phase; ++phase) print_phase(phase);
    if (!withheld_.empty())
      print_nest(nest_.form == LoopForm::kColumns ? std::vector<int>{nest_.vector_axis} : std::vector<int>{},
                 withheld_);
    writer_.close_all();
    buffers = buffers_;
    return constants(kernel_, nest_, axes_, blocks_, writer_.text()) + writer_.text();
  }

 private:
  // --- Names and the frame ---

  void name_everything() {
    for (const Buffer& buffer : kernel_.buffers) buffers_.push_back(names_.fresh(buffer.name, "_tensor"));
    for (const Axis& axis : kernel_.axes) {
      axes_.variables.push_back(names_.fresh(axis.name, "_index"));
      axes_.extents.push_back(names_.fresh(constant_name(axis.name, "Count")));
    }
    const auto name_block = [&](int axis, const std::string& kind) {
      const std::string& name = kernel_.axes[axis].name;
      blocks_[axis] = {names_.fresh(constant_name(name, kind)), names_.fresh("first_" + name),
                       names_.fresh("end_" + name)};
    };
    for (const AxisBlock& block : nest_.blocks) name_block(block.axis, "Block");
    expr_names_.resize(kernel_.exprs.size());
  }

  const std::string& name_of(ExprId id) {
    std::string& name = expr_names_[id];
    if (name.empty()) {
      const Expr& expr = kernel_.exprs[id];
      name = names_.fresh(expr.name.empty() ? noun_for(expr, kernel_) : expr.name);
    }
    return name;
  }

  // --- Loops over programs ---

  bool vector_blocked() const { return nest_.vector_axis >= 0 && blocks_.count(nest_.vector_axis) > 0; }
  int64_t extent(int axis) const { return kernel_.axes[axis].extent; }

  void open_programs() {
    const bool shared = nest_.threading == Threading::kPrograms &&
                        !(nest_.program_axes.empty() && nest_.blocks.empty());
    if (shared) {
      const std::string collapse = nest_.collapse > 1 ? fmt::format(" collapse({})", nest_.collapse) : "";
      writer_.line("#pragma omp parallel for" + collapse + " num_threads(threads) schedule(static)");
    }
    if (nest_.threading == Threading::kOwners)
      scatters_.open_owners(nest_.vector_axis >= 0 ? extent(nest_.vector_axis) : 1);
    for (int axis : nest_.program_axes) open_loop(axis);
    for (const AxisBlock& block : nest_.blocks) {
      const BlockNames& names = blocks_.at(block.axis);
      writer_.open(fmt::format("for (int64_t {0} = 0; {0} < {1}; {0} += {2})", names.first, axes_.extents[block.axis],
                               names.size));
    }
    for (const AxisBlock& block : nest_.blocks) {
      const BlockNames& names = blocks_.at(block.axis);
      const std::string sum = names.first + " + " + names.size;
      const bool exact = extent(block.axis) % block.size == 0;
      writer_.line(fmt::format("const int64_t {} = {};", names.end,
                               exact ? sum : "std::min(" + sum + ", " + axes_.extents[block.axis] + ")"));
    }
  }

  std::string first_of(int axis) const { return blocks_.count(axis) ? blocks_.at(axis).first : "0"; }
  std::string end_of(int axis) const { return blocks_.count(axis) ? blocks_.at(axis).end : axes_.extents[axis]; }

  void open_loop(int axis, const Bounds& bounds = {}) {
    const bool whole = bounds.first.empty();
    const char* counter = axis == nest_.vector_axis && nest_.short_counter ? "int32_t" : "int64_t";
    writer_.open(fmt::format("for ({3} {0} = {1}; {0} < {2}; ++{0})", axes_.variables[axis],
                             whole ? first_of(axis) : bounds.first, whole ? end_of(axis) : bounds.end, counter));
  }

  std::string element_of(const Access& access, const Text* gathered = nullptr) const {
    return starts_.element(access, buffers_[access.buffer], axes_, gathered);
  }

  // --- Phases ---

  bool over_reduce_axes(const std::vector<bool>& axes) const {
    return std::any_of(nest_.reduce_axes.begin(), nest_.reduce_axes.end(), [&](int axis) { return axes[axis]; });
  }

  bool over_vector_axis(const std::vector<bool>& axes) const {
    return nest_.vector_axis >= 0 && axes[nest_.vector_axis];
  }

  void print_phase(int phase) {
    std::vector<Sink> outside, inside;
    for (size_t index = 0; index < kernel_.stores.size(); ++index) {
      const Store& store = kernel_.stores[index];
      if (nest_.phase[store.value] != phase) continue;
      const bool looped = nest_.form == LoopForm::kPointwise || over_reduce_axes(axes_of(kernel_, nest_, store));
      (looped ? inside : store.last ? withheld_ : outside).push_back({Sink::kStore, static_cast<int>(index)});
    }
    std::vector<ExprId> reduces;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (nest_.needed[id] && kernel_.exprs[id].kind == ExprKind::kReduce && nest_.phase[id] == phase + 1)
        reduces.push_back(static_cast<ExprId>(id));
    for (ExprId id : reduces) inside.push_back({Sink::kFold, id});

    const bool columns = nest_.form == LoopForm::kColumns;
    const std::vector<int> across = columns ? std::vector<int>{nest_.vector_axis} : std::vector<int>{};
    if (!outside.empty()) print_nest(across, outside);
    if (inside.empty()) return;
    for (const Sink& kept : keeps_of(phase, inside)) {
      inside.push_back(kept);
      declare_kept(kept.id);
    }
    if (columns) print_column_values(inside);
    for (ExprId id : reduces) accumulators_.emplace(id, declare(id));
    std::vector<int> loops = nest_.reduce_axes;
    if (columns || (nest_.form == LoopForm::kPointwise && nest_.vector_axis >= 0)) loops.push_back(nest_.vector_axis);
    print_nest(loops, inside);
    for (ExprId id : reduces) finish(id);
  }

  // Kept expressions that the phase's loops compute: reached from the sinks and not yet in their arrays.
  std::vector<Sink> keeps_of(int phase, const std::vector<Sink>& sinks) const {
    std::vector<Sink> keeps;
    const std::vector<bool> reached = reached_from(sinks);
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (reached[id] && nest_.kept[id] && nest_.phase[id] <= phase)
        keeps.push_back({Sink::kKeep, static_cast<int>(id)});
    return keeps;
  }

  bool is_available(ExprId id) const { return available_.count(id) > 0; }
  std::vector<bool> reached_from(const std::vector<Sink>& sinks) const {
    return cpu::reached_from(kernel_, sinks, [&](ExprId id) { return is_available(id); });
  }

  // The axes of the reduction (and the columns) along which a kept value differs: the dimensions of its array.
  std::vector<int> dimensions_of(ExprId id) const {
    std::vector<int> dimensions;
    for (int axis : nest_.reduce_axes)
      if (nest_.axes[id][axis]) dimensions.push_back(axis);
    if (nest_.form == LoopForm::kColumns && over_vector_axis(nest_.axes[id])) dimensions.push_back(nest_.vector_axis);
    return dimensions;
  }

  std::string column_position() const {
    const std::string& variable = axes_.variables[nest_.vector_axis];
    return vector_blocked() ? variable + " - " + blocks_.at(nest_.vector_axis).first : variable;
  }

  const std::string& column_count() const {
    return vector_blocked() ? blocks_.at(nest_.vector_axis).size : axes_.extents[nest_.vector_axis];
  }

  void declare_kept(ExprId id) {
    const std::string array = names_.fresh("kept_" + name_of(id));
    std::vector<std::string> sizes;
    Text index{"", kPrimary};
    for (int axis : dimensions_of(id)) {
      const bool column = axis == nest_.vector_axis && nest_.form == LoopForm::kColumns;
      const std::string size = column ? column_count() : axes_.extents[axis];
      const std::string position = column ? column_position() : axes_.variables[axis];
      index = index.text.empty() ? Text{position, kPrimary}
                                 : Text{within(index, kAdd + 1) + " * " + size + " + " + position, kAdd};
      sizes.push_back(size);
    }
    writer_.line(
        fmt::format("alignas(64) {} {}[{}];", storage_type(kernel_.exprs[id].dtype), array, join(sizes, " * ")));
    kept_[id] = array + "[" + index.text + "]";
  }

  // Values that differ along the columns but not along the reduction, as arrays, so that the loops over the reduction
  // do not compute them again.
  void print_column_values(const std::vector<Sink>& sinks) {
    std::vector<Sink> values = column_values(kernel_, nest_, sinks, reached_from(sinks));
    if (values.empty()) return;
    for (const Sink& value : values) {
      column_values_.insert(value.id);
      writer_.line(fmt::format("alignas(64) {} {}[{}];", value_type(kernel_.exprs[value.id].dtype), name_of(value.id),
                               column_count()));
    }
    // What may refuse an index branches, which would keep everything in its loop out of SIMD.
    const auto cannot_refuse = [&](const Sink& value) { return !may_refuse(kernel_, reached_from({value})); };
    const auto refusing = std::stable_partition(values.begin(), values.end(), cannot_refuse);
    const std::vector<Sink> plain(values.begin(), refusing);
    if (!plain.empty()) print_nest({nest_.vector_axis}, plain);
    if (refusing != values.end()) print_nest({nest_.vector_axis}, std::vector<Sink>(refusing, values.end()));
  }

  // --- Reductions ---

  Accumulator declare(ExprId id) {
    const Expr& expr = kernel_.exprs[id];
    const bool columns = nest_.form == LoopForm::kColumns;
    Accumulator accumulator = make_accumulator(expr, kernel_.exprs[expr.operands[0]].dtype, columns,
                                               simplified_.short_folds);
    accumulator.variable = accumulator.holds_result ? name_of(id) : names_.fresh("wide_" + name_of(id));
    if (accumulator.tracks_nan) accumulator.nan_flag = names_.fresh(accumulator.variable + "_is_nan");
    accumulator.element = columns ? accumulator.variable + "[" + column_position() + "]" : accumulator.variable;
    for (const std::string& line : accumulator.definition(columns ? column_count() : "")) writer_.line(line);
    return accumulator;
  }

  // After the loops: the result in a variable of its own dtype, or for columns the text that reads it from the array.
  void finish(ExprId id) {
    const Expr& expr = kernel_.exprs[id];
    const Accumulator& accumulator = accumulators_.at(id);
    if (accumulator.tracks_nan)
      writer_.line(fmt::format("if ({}) {} = NAN;", accumulator.nan_flag, accumulator.variable));
    const Text result = accumulator.result_text({accumulator.element, kPrimary}, expr.dtype, helpers_);
    const bool read_in_place = nest_.form == LoopForm::kColumns || accumulator.holds_result ||
                               is_only_stored(kernel_, nest_, id);
    if (!read_in_place)
      writer_.line(fmt::format("const {} {} = {};", value_type(expr.dtype), name_of(id), result.text));
    available_[id] = read_in_place ? result : Text{name_of(id), kPrimary};
  }

  // --- One nest of loops ---

  void print_nest(const std::vector<int>& loops, const std::vector<Sink>& sinks) {
    ++touches_.nest;
    const Placement placement = place(kernel_, nest_, loops, sinks, [&](ExprId id) { return is_available(id); });
    const std::vector<Guard> guards = common_guards(kernel_, sinks);
    int deepest = 0;
    for (const Sink& sink : sinks) deepest = std::max(deepest, depth_of(kernel_, nest_, sink, loops));
    for (int depth = 0; depth <= deepest; ++depth) {
      std::vector<ExprId> locals;
      if (depth > 0) {
        const int axis = loops[depth - 1];
        Bounds bounds = axis == nest_.vector_axis
                            ? guards_.bounds_within(guards, loops, depth, {first_of(axis), end_of(axis)}, axes_)
                            : Bounds{};
        if (const ExprId stop = stop_of(kernel_, sinks, axis);
            stop != kNoExpr && available_.count(stop) && !column_values_.count(stop))
          bounds = {"0", value(stop).text};
        print_pragma(loops, depth, deepest, sinks);
        open_loop(loops[depth - 1], bounds);
        if (axis != nest_.vector_axis) guards_.skip_outside(guards, loops, depth, axes_);
      }
      for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
        if (!placement.reached[id] || placement.depth[id] != depth) continue;
        if (!wants_local(static_cast<ExprId>(id), placement)) continue;
        print_local(static_cast<ExprId>(id));
        locals.push_back(static_cast<ExprId>(id));
      }
      if (depth > 0 && depth < deepest)
        scatters_.skip_others(placement, depth,
                              [&](ExprId id) { return is_available(id) ? &available_.at(id) : nullptr; });
      for (const bool last : {false, true})
        for (const Sink& sink : sinks)
          if (depth_of(kernel_, nest_, sink, loops) == depth &&
              last == (sink.kind == Sink::kStore && kernel_.stores[sink.id].last))
            print_sink(sink);
      if (depth > 0) scopes_.push_back(locals);
    }
    for (int depth = deepest; depth > 0; --depth) {
      writer_.close();
      for (ExprId id : scopes_.back())
        if (!column_values_.count(id)) available_.erase(id);
      scopes_.pop_back();
    }
    guards_.clear();
    ++touches_.nest;
    for (const Sink& sink : sinks)
      if (sink.kind == Sink::kKeep)
        available_[sink.id] = cast_text({kept_.at(sink.id), kPrimary}, storage_dtype(sink.id),
                                        kernel_.exprs[sink.id].dtype, helpers_);
  }

  // --- Values in a nest ---

  // What a fold takes in: outside its guards, what changes nothing.
  Text counted(const Expr& fold, ExprId operand) {
    const Text text = value(operand);
    const std::string guard = guards_.remaining(fold.access.guards, axes_);
    if (guard.empty()) return text;
    return {guard + " ? " + within(text, kOr) + " : " + identity_text(fold.reduce, kernel_.exprs[operand].dtype),
            kChoice};
  }

  DType storage_dtype(ExprId id) const {
    return kernel_.exprs[id].dtype == DType::b1 ? DType::u8 : kernel_.exprs[id].dtype;
  }

  bool wants_local(ExprId id, const Placement& placement) {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind == ExprKind::kConstant || expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScatter)
      return false;
    if (column_values_.count(id)) return true;
    const bool hoisted = placement.deepest_user[id] > placement.depth[id];
    if (expr.kind == ExprKind::kIndex)
      return placement.uses[id] > 1 && index_text(kernel_, expr.access.index, axes_).precedence != kPrimary;
    if (placement.uses[id] > 1 || hoisted) return true;
    // Of two updates that read each other's old contents, the second must not find the first's new ones.
    if (is_load(expr))
      return std::count_if(kernel_.stores.begin(), kernel_.stores.end(),
                           [](const Store& store) { return store.last; }) > 1;
    return !expr.name.empty() || value(id).text.size() > kLongText;
  }

  void print_local(ExprId id) {
    const Text text = value(id);
    const std::string& name = name_of(id);
    if (column_values_.count(id)) {
      available_[id] = {name + "[" + column_position() + "]", kPrimary};
      writer_.line(available_[id].text + " = " + text.text + ";");
      return;
    }
    writer_.line(fmt::format("const {} {} = {};", value_type(kernel_.exprs[id].dtype), name, text.text));
    available_[id] = {name, kPrimary};
  }

  // The innermost loop runs in SIMD; the outermost is shared among the threads where the programs are not.
  void print_pragma(const std::vector<int>& loops, int depth, int deepest, const std::vector<Sink>& sinks) {
    const bool simd = depth == deepest && loops[depth - 1] == nest_.vector_axis;
    const bool whole = nest_.form == LoopForm::kPointwise && nest_.program_axes.empty() && nest_.blocks.empty();
    const bool over_reduction = nest_.threading == Threading::kReduction && loops[0] != nest_.vector_axis;
    const bool shared = depth == 1 && ((nest_.threading == Threading::kPrograms && whole) ||
                                       (nest_.threading == Threading::kReduction &&
                                        (over_reduction || nest_.form == LoopForm::kRows)));
    if (!simd && !shared) return;
    std::vector<std::string> clauses;
    if (nest_.form == LoopForm::kRows || shared) clauses = reduction_clauses(sinks);
    if (shared) clauses.push_back("num_threads(threads) schedule(static)");
    const std::string head = std::string("#pragma omp") + (shared ? " parallel for" : "") + (simd ? " simd" : "");
    const std::string line = clauses.empty() ? head : head + " " + join(clauses, " ");
    writer_.line(line.size() <= 120 ? line : head + " \\\n    " + join(clauses, " \\\n    "));
  }

  std::vector<std::string> reduction_clauses(const std::vector<Sink>& sinks) const {
    std::vector<const Accumulator*> folded;
    for (const Sink& sink : sinks)
      if (sink.kind == Sink::kFold) folded.push_back(&accumulators_.at(sink.id));
    return cpu::reduction_clauses(folded, nest_.form == LoopForm::kColumns ? "[:" + column_count() + "]" : "");
  }

  void print_sink(const Sink& sink) {
    switch (sink.kind) {
      case Sink::kStore: print_store(kernel_.stores[sink.id]); break;
      case Sink::kKeep: writer_.line(kept_.at(sink.id) + " = " + value(sink.id).text + ";"); break;
      case Sink::kColumnValue: break;  // print_local has assigned it
      case Sink::kFold: {
        const Expr& expr = kernel_.exprs[sink.id];
        const Text operand = counted(expr, expr.operands[0]);
        const DType dtype = kernel_.exprs[expr.operands[0]].dtype;
        for (const std::string& line : accumulators_.at(sink.id).fold(operand, dtype, helpers_)) writer_.line(line);
      }
    }
  }

  void print_store(const Store& store) {
    const Access& access = store.access;
    if (const Expr* expr = scatter_of(kernel_, store))
      return scatters_.print(store, value(expr->operands[0]), value(expr->operands[1]),
                             [&](const Text& place) { return element_of(access, &place); });
    touches_.writes[access.buffer].insert(touches_.nest);
    const Text stored = cast_text(value(store.value), kernel_.exprs[store.value].dtype,
                                  kernel_.buffers[access.buffer].dtype, helpers_);
    const std::string line = element_of(access) + " = " + stored.text + ";";
    const std::string guard = guards_.remaining(access.guards, axes_);
    writer_.line(guard.empty() ? line : "if (" + guard + ") " + line);
  }

  // --- Values ---

  Text value(ExprId id) {
    const auto found = available_.find(id);
    if (found != available_.end()) return found->second;
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind == ExprKind::kConstant) return constant_text(expr, helpers_);
    if (expr.kind == ExprKind::kIndex)
      return cast_text(index_text(kernel_, expr.access.index, axes_), DType::i64, expr.dtype, helpers_);
    if (is_load(expr)) return load(expr);
    std::vector<Text> operands;
    std::vector<DType> types;
    for (ExprId operand : expr.operands) {
      operands.push_back(value(operand));
      types.push_back(kernel_.exprs[operand].dtype);
    }
    return op_text(expr, operands, types, helpers_);
  }

  Text load(const Expr& expr) {
    const Access& access = expr.access;
    touches_.reads[access.buffer].insert(touches_.nest);
    const DType dtype = kernel_.buffers[access.buffer].dtype;
    std::string guard = guards_.remaining(access.guards, axes_);
    std::optional<Text> offset;
    if (expr.kind == ExprKind::kGather) {
      offset = value(expr.operands[0]);
      if (expr.operands.size() > 1) guard += (guard.empty() ? "" : " && ") + within(value(expr.operands[1]), kAnd);
    }
    const Text element{element_of(access, offset ? &*offset : nullptr), kPrimary};
    const Text loaded = cast_text(element, dtype == DType::b1 ? DType::u8 : dtype, expr.dtype, helpers_);
    if (guard.empty()) return loaded;
    return {guard + " ? " + within(loaded, kOr) + " : " + literal(access.otherwise, expr.dtype, helpers_).text,
            kChoice};
  }

  const Simplified& simplified_;
  const Kernel& kernel_;
  const LoopNest& nest_;
  HelperSet& helpers_;
  CodeWriter writer_;
  Names names_;
  AxisNames axes_;
  std::vector<std::string> buffers_, expr_names_;
  BlocksByAxis blocks_;
  ProgramStarts starts_{kernel_, nest_};
  std::map<ExprId, Text> available_;  // what a variable or an array in scope holds
  std::set<ExprId> column_values_;    // expressions that have an array over the columns
  std::map<ExprId, std::string> kept_;
  std::map<ExprId, Accumulator> accumulators_;
  std::vector<std::vector<ExprId>> scopes_;
  GuardScope guards_{kernel_, writer_, names_};
  ScatterPrinter scatters_{kernel_, buffers_, axes_, writer_, names_, helpers_};
  std::vector<Sink> withheld_;  // stores outside the loops that come last
  Touches& touches_;
};

}  // namespace

std::string print_statements(const Part& part, HelperSet& helpers, std::vector<std::string>& buffers,
                             Touches& touches) {
  return KernelPrinter(part, helpers, touches).print(buffers);
}

}  // namespace kw::cpu
