#include "lower/arrange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "lower/cooperative.hpp"
#include "lower/dead_code.hpp"
#include "lower/looped_folds.hpp"
#include "lower/needed.hpp"
#include "lower/online.hpp"
#include "lower/scans.hpp"
#include "lower/values.hpp"
#include "tile/box.hpp"

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::TileType;
using tile::Value;
using Axis = kernel::Symbol;
using Lanes = std::vector<tile::Symbol>;

// What a block has still to do: a store, a step of a fold over looped axes, or a state's next value.
struct Goal {
  enum class Kind { kStore, kAccumulate, kNext };
  Kind kind = Kind::kStore;
  int which = 0;  // the store, expression or state
};

class Arranger {
 public:
  Arranger(const kernel::Kernel& kernel, const KernelSchedule& schedule)
      : values_(kernel, schedule), first_sibling_(first_siblings(kernel)) {}

  Mapped run() {
    refuse_what_cannot_be_kept();
    std::vector<Goal> goals;
    for (size_t store = 0; store < values_.kernel.stores.size(); ++store)
      goals.push_back({Goal::Kind::kStore, static_cast<int>(store)});
    arrange_block(goals);
    values_.mapped.program.body = values_.emission.finish();
    remove_dead_code(values_.mapped.program);
    return std::move(values_.mapped);
  }

 private:
  void refuse_what_cannot_be_kept() const {
    if (values_.mapped.serpentine && !values_.kernel.states.empty())
      values_.refuse("states are carried along an axis, so that no walk of it may turn round");
    refuse_cooperative_folds(values_);
    for (const Expr& expr : values_.kernel.exprs) {
      const bool scan = expr.kind == ExprKind::kScan;
      if (expr.kind != ExprKind::kReduce && expr.kind != ExprKind::kDot && !scan) continue;
      for (Axis axis : expr.axes) {
        const MappedAxis& mapped = values_.mapped.axes[axis];
        if (mapped.mapping == Mapping::kGrid && !mapped.cooperative)
          values_.refuse(fmt::format("axis '{}' is folded, so blocks cannot share it out", values_.name_of(axis)),
                         "Give it a tile or a loop, or make it cooperative.");
        if (scan) values_.refuse_scan(static_cast<ExprId>(&expr - values_.kernel.exprs.data()));
        if (!scan && !depends_on_operand(expr, axis))
          values_.refuse(fmt::format("a fold over axis '{}' of what does not depend on it", values_.name_of(axis)));
      }
      if (expr.kind == ExprKind::kReduce && expr.reduce == ReduceOp::kExtendedSum && values_.folds_a_loop(expr))
        values_.refuse("an extended sum is folded along a loop", "Give its axes tiles.");
      if (values_.is_place(expr) && expr.axes.size() > 1 && !values_.folds_a_loop(expr))
        values_.refuse(fmt::format("a {} over several axes", kernel::name_of(expr.reduce)));
    }
    for (const kernel::Buffer& buffer : values_.kernel.buffers)
      if (buffer.role == kernel::BufferRole::kInOut) refuse_unordered(buffer);
    for (const kernel::Store& store : values_.kernel.stores) refuse_empty_grid(store);
  }

  // Without blocks there is no store, though it does not depend on the axis that has no points.
  void refuse_empty_grid(const kernel::Store& store) const {
    const std::vector<bool> axes = axes_of(store);
    for (Axis axis : kernel::axes_of(values_.kernel)) {
      const MappedAxis& mapped = values_.mapped.axes[axis];
      if (mapped.mapping == Mapping::kGrid && !axes[axis] &&
          kernel::range_of(mapped.extent, tile::ranges_of(values_.mapped.program)).low < 1)
        values_.refuse(fmt::format("axis '{}' may have no points, and a store that does not depend on it no blocks",
                                   values_.name_of(axis)),
                       "Give it a tile or a loop.");
    }
  }

  // The axes whose points store.
  std::vector<bool> axes_of(const kernel::Store& store) const {
    return kernel::dependences(values_.kernel, store, values_.depends);
  }

  // What is read and written in one kernel is read before: only where every element is read by who writes it.
  void refuse_unordered(const kernel::Buffer& buffer) const {
    const int place = static_cast<int>(&buffer - values_.kernel.buffers.data());
    for (const kernel::Store& store : values_.kernel.stores) {
      if (store.access.buffer != place) continue;
      for (const Expr& expr : values_.kernel.exprs)
        if (expr.kind == ExprKind::kLoad && expr.access.buffer == place &&
            (expr.access.coordinates != store.access.coordinates || !values_.mapped.nest.empty()))
          values_.refuse(fmt::format("'{}' is read and written, and not element by element in one pass", buffer.name));
    }
  }

  bool depends_on_operand(const Expr& expr, Axis axis) const {
    return std::any_of(expr.operands.begin(), expr.operands.end(),
                       [&](ExprId id) { return values_.depends[id][axis]; });
  }

  bool is_open(Axis axis) const { return std::find(open_.begin(), open_.end(), axis) != open_.end(); }

  std::vector<ExprId> roots_of(const Goal& goal) const {
    if (goal.kind == Goal::Kind::kAccumulate) return values_.kernel.exprs[goal.which].operands;
    if (goal.kind == Goal::Kind::kNext) return {values_.kernel.states[goal.which].next};
    std::vector<ExprId> roots = kernel::inputs_of(values_.kernel.stores[goal.which].access);
    roots.push_back(values_.kernel.stores[goal.which].value);
    return roots;
  }

  std::vector<ExprId> roots_of(const std::vector<Goal>& goals) const {
    std::vector<ExprId> roots;
    for (const Goal& goal : goals)
      for (ExprId root : roots_of(goal)) roots.push_back(root);
    return roots;
  }

  // Loops that a goal needs open and that are not, outermost first.
  std::vector<const MappedLoop*> missing_loops(const Goal& goal) const {
    std::vector<bool> axes(values_.kernel.symbols.size());
    const auto mark = [&](const std::vector<bool>& more) {
      for (size_t axis = 0; axis < axes.size(); ++axis)
        if (more[axis]) axes[axis] = true;
    };
    for (ExprId root : roots_of(goal)) mark(values_.depends[root]);
    if (goal.kind == Goal::Kind::kStore) mark(axes_of(values_.kernel.stores[goal.which]));
    std::vector<const MappedLoop*> missing;
    for (const MappedLoop& loop : values_.mapped.nest) {
      const auto needed = std::count_if(loop.axes.begin(), loop.axes.end(), [&](Axis axis) { return axes[axis]; });
      if (needed == 0 || is_open(loop.axes[0])) continue;
      for (Axis axis : loop.axes)
        if (!axes[axis])
          values_.refuse(fmt::format("axis '{}' is walked together with others by a value that does not depend on it",
                                     values_.name_of(axis)),
                         "Give it a loop of its own.");
      missing.push_back(&loop);
    }
    return missing;
  }

  // Can the fold be begun at this depth: do its loops enclose nothing that it depends on?
  bool begins_here(ExprId id) const {
    const Expr& expr = values_.kernel.exprs[id];
    for (const MappedLoop& loop : values_.mapped.nest)
      for (Axis axis : loop.axes) {
        if (values_.depends[id][axis] && !is_open(axis)) return false;
        if (std::find(expr.axes.begin(), expr.axes.end(), axis) == expr.axes.end() || !is_open(axis)) continue;
        values_.refuse(fmt::format("axis '{}' is folded inside its own loop", values_.name_of(axis)),
                       "Put the loops of what the fold depends on before it in 'nest'.");
      }
    return true;
  }

  void collect_folds(ExprId id, std::set<ExprId>& seen, std::set<ExprId>& found) const {
    if (!seen.insert(id).second || values_.is_known(id) || walked_.contains(first_sibling_[id])) return;
    const Expr& expr = values_.kernel.exprs[id];
    if (values_.folds_a_loop(expr) && begins_here(id)) found.insert(first_sibling_[id]);
    for (ExprId input : kernel::inputs_of(expr)) collect_folds(input, seen, found);
    // Initial values are computed before the loop, so that what they fold is, too.
    if (expr.kind == ExprKind::kState && !is_open(values_.kernel.states[expr.state].along)) {
      collect_folds(values_.kernel.states[expr.state].initial, seen, found);
      collect_folds(values_.kernel.states[expr.state].next, seen, found);
    }
  }

  std::set<ExprId> folds_of(const std::vector<ExprId>& roots) const {
    std::set<ExprId> seen, found;
    for (ExprId root : roots) collect_folds(root, seen, found);
    return found;
  }

  // How many of the folds that begin here must be over before each of them, ascending; what is folded in its maximum's
  // walk goes with that.
  std::map<ExprId, int> phases_of(const std::set<ExprId>& folds) {
    std::map<ExprId, int> phases;
    for (ExprId id : folds) {  // inputs come first
      int phase = 0;
      const std::set<ExprId> before = folds_of(values_.kernel.exprs[id].operands);
      for (ExprId other : before) phase = std::max(phase, phases[other] + 1);
      if (const auto online = walked_with(id, before, phases)) {
        online_[id] = *online;
        phase = phases[online->maximum];
      }
      phases[id] = phase;
    }
    return phases;
  }

  // The maximum with which a sum can be folded in one walk.
  std::optional<OnlineSum> walked_with(ExprId id, const std::set<ExprId>& before,
                                       const std::map<ExprId, int>& phases) const {
    const Expr& expr = values_.kernel.exprs[id];
    const auto loop = std::find_if(expr.axes.begin(), expr.axes.end(),
                                   [&](Axis axis) { return values_.is_looped(axis); });
    if (loop == expr.axes.end() || !values_.mapped.axes[*loop].online) return std::nullopt;
    const std::optional<OnlineSum> online = online_sum(values_.kernel, id);
    if (!online || !before.contains(online->maximum)) return std::nullopt;
    for (ExprId other : before)
      if (other != online->maximum && phases.at(other) >= phases.at(online->maximum)) return std::nullopt;
    const auto looped = [&](const Expr& one) {
      std::vector<Axis> axes;
      for (Axis axis : one.axes)
        if (values_.is_looped(axis)) axes.push_back(axis);
      return axes;
    };
    const std::vector<Axis> axes = looped(expr);
    if (axes.size() != 1 || axes != looped(values_.kernel.exprs[online->maximum])) return std::nullopt;
    for (size_t axis = 0; axis < values_.depends[id].size(); ++axis)
      if (values_.depends[online->maximum][axis] && !values_.depends[id][axis]) return std::nullopt;
    return online;
  }

  void arrange_block(const std::vector<Goal>& goals) {
    const std::set<ExprId> folds = folds_of(roots_of(goals));
    const std::map<ExprId, int> phases = phases_of(folds);
    int last = 0;
    for (const auto& [id, phase] : phases) last = std::max(last, phase + 1);
    for (ExprId id : folds) start(id, phases.at(id) == 0);
    std::vector<Goal> here;
    std::vector<std::vector<Goal>> looped(last + 1);
    for (ExprId id : folds) looped[phases.at(id)].push_back({Goal::Kind::kAccumulate, id});
    for (const Goal& goal : goals) {
      if (missing_loops(goal).empty()) {
        here.push_back(goal);
        continue;
      }
      int phase = 0;
      for (ExprId id : folds_of(roots_of(goal))) phase = std::max(phase, phases.at(id) + 1);
      looped[phase].push_back(goal);
    }
    if (values_.mapped.loads_first && open_.empty()) load_first(goals);
    if (open_.empty()) fold_shared_rows(values_, roots_of(goals));
    for (const std::vector<Goal>& phase : looped) {
      arrange_loops(phase);
      for (const Goal& goal : phase)
        if (goal.kind == Goal::Kind::kAccumulate && folds.contains(goal.which)) finish(goal.which);
    }
    for (const Goal& goal : here) reach(goal);
  }

  // What these goals load outside of loops, from places that no fold tells.
  void load_first(const std::vector<Goal>& goals) {
    std::vector<bool> needed(values_.kernel.exprs.size()), waits(values_.kernel.exprs.size());
    for (ExprId root : roots_of(goals)) needed[root] = true;
    for (size_t id = needed.size(); id-- > 0;)
      if (needed[id] && !values_.folds_a_loop(values_.kernel.exprs[id]))
        for (ExprId input : kernel::inputs_of(values_.kernel.exprs[id])) needed[input] = true;
    for (size_t id = 0; id < needed.size(); ++id) {
      const Expr& expr = values_.kernel.exprs[id];
      waits[id] = values_.folds_a_loop(expr) || values_.folds_shared_row(expr) || expr.kind == ExprKind::kState ||
                  values_.varies_in_loops(static_cast<ExprId>(id));
      for (ExprId input : kernel::inputs_of(expr)) waits[id] = waits[id] || waits[input];
      if (needed[id] && !waits[id] && expr.kind == ExprKind::kLoad) values_.value_of(static_cast<ExprId>(id));
    }
  }

  // Each loop that comes first for some of them.
  void arrange_loops(const std::vector<Goal>& goals) {
    for (const MappedLoop& loop : values_.mapped.nest) {
      std::vector<Goal> inside;
      for (const Goal& goal : goals)
        if (const auto missing = missing_loops(goal); !missing.empty() && missing[0] == &loop) inside.push_back(goal);
      if (!inside.empty()) arrange_loop(loop, std::move(inside));
    }
  }

  void arrange_loop(const MappedLoop& mapped, std::vector<Goal> goals) {
    Instruction loop;
    loop.kind = Kind::kFor;
    loop.symbol = mapped.variable;
    loop.end = mapped.end;
    loop.step = mapped.step;
    loop.stages = mapped.stages;
    loop.unrolled = mapped.unrolled;
    loop.shared = mapped.shared;
    loop.simd = mapped.simd;
    std::vector<int> states;
    std::set<ExprId> seen;
    for (ExprId root : roots_of(goals)) collect_states(root, mapped.axes[0], states, seen);
    std::vector<Value*> carried;
    std::vector<std::string> names;
    for (const Goal& goal : goals) {
      if (goal.kind != Goal::Kind::kAccumulate) continue;
      if (const auto several = several_.find(goal.which); several != several_.end()) {
        for (Value& value : several->second.kept) carried.push_back(&value);
        for (const std::string& name : several->second.names) names.push_back(name + "_lanes");
        continue;
      }
      carried.push_back(&accumulators_[goal.which]);
      names.push_back(noun_of(values_.kernel.exprs[goal.which]) + (keeps_lanes(goal.which) ? "_lanes" : ""));
    }
    for (int state : states) {
      begin_state(state);
      carried.push_back(&carried_states_[state]);
      names.push_back(values_.kernel.states[state].name);
      goals.push_back({Goal::Kind::kNext, state});
    }
    for (LoopedScan* scan : values_.begin_scans(roots_of(goals), mapped)) {
      for (Value& value : scan->carried) carried.push_back(&value);
      names.insert(names.end(), scan->names.begin(), scan->names.end());
      loop.reversed = scan->is_reversed();
    }
    if (mapped.bounded) {
      const auto folds = only_folds(goals);
      loop.end = bound_of(values_, mapped, folds);
      loop.begin = start_of(values_, mapped, *folds);
    }
    if (mapped.stops) loop.until = stop_of_loop(only_folds(goals).value_or(std::vector<ExprId>{}), mapped.axes[0]);
    if ((mapped.shared || mapped.simd) && !carried.empty())
      values_.refuse(fmt::format("the loop of axis '{}' carries values, so its iterations follow one another",
                                 values_.name_of(mapped.axes[0])),
                     "Leave threads and simd to the other axes.");
    for (Value* value : carried) loop.operands.push_back(*value);
    values_.emission.open(mapped.variable);
    values_.open();
    open_.insert(open_.end(), mapped.axes.begin(), mapped.axes.end());
    for (const Goal& goal : goals)
      if (goal.kind == Goal::Kind::kAccumulate) walked_.insert(goal.which);
    for (size_t i = 0; i < carried.size(); ++i)
      *carried[i] = redefined(*carried[i], names[i] + "_so_far", loop.arguments);
    for (int state : states) values_.set_state(state, carried_states_[state]);
    arrange_block(goals);
    for (Value* value : carried) loop.yields.push_back(*value);
    for (const Goal& goal : goals)
      if (goal.kind == Goal::Kind::kAccumulate) walked_.erase(goal.which);
    open_.resize(open_.size() - mapped.axes.size());
    values_.close();
    loop.body = values_.emission.close();
    for (size_t i = 0; i < carried.size(); ++i) *carried[i] = redefined(*carried[i], names[i], loop.results);
    values_.emission.add_here(std::move(loop));
  }

  // Of a loop that nothing but folds: those. nullopt where it does more.
  static std::optional<std::vector<ExprId>> only_folds(const std::vector<Goal>& goals) {
    std::vector<ExprId> folds;
    for (const Goal& goal : goals) {
      if (goal.kind != Goal::Kind::kAccumulate) return std::nullopt;
      folds.push_back(goal.which);
    }
    return folds;
  }

  // Where the data say that folds have all they need, at every point of the block; kNoValue where they do not say it
  // before the loop.
  Value stop_of_loop(const std::vector<ExprId>& folds, Axis axis) {
    const ExprId stop = stop_of(values_.kernel, folds, axis);
    if (stop == kernel::kNoExpr || !folds_of({stop}).empty()) return tile::kNoValue;
    const std::vector<Axis> axes = kernel::axes_of(values_.kernel);
    const bool is_known = std::none_of(axes.begin(), axes.end(), [&](Axis one) {
      return values_.depends[stop][one] && values_.is_looped(one) && !is_open(one);
    });
    return is_known ? latest_of(values_, values_.value_of(stop)) : tile::kNoValue;
  }

  // Another value of the same type, one of a loop's arguments or results.
  Value redefined(Value value, const std::string& name, std::vector<Value>& among) {
    among.push_back(values_.emission.define(name, values_.emission.type(value)));
    return among.back();
  }

  static std::string noun_of(const Expr& fold) {
    if (!fold.name.empty()) return fold.name;
    return fold.kind == ExprKind::kDot ? "product" : std::string(kernel::name_of(fold.reduce));
  }

  void collect_states(ExprId id, Axis along, std::vector<int>& states, std::set<ExprId>& seen) const {
    if (!seen.insert(id).second || values_.is_known(id)) return;
    const Expr& expr = values_.kernel.exprs[id];
    if (expr.kind == ExprKind::kState && values_.kernel.states[expr.state].along == along &&
        std::find(states.begin(), states.end(), expr.state) == states.end()) {
      states.push_back(expr.state);
      collect_states(values_.kernel.states[expr.state].next, along, states, seen);
    }
    for (ExprId input : kernel::inputs_of(expr)) collect_states(input, along, states, seen);
  }

  void begin_state(int which) {
    const kernel::State& state = values_.kernel.states[which];
    for (Axis axis : state.axes)
      if (values_.is_looped(axis) && !is_open(axis))
        values_.refuse(
            fmt::format("state '{}' is carried along '{}' past the loop of axis '{}'", state.name,
                        values_.name_of(state.along), values_.name_of(axis)),
            fmt::format("Give '{}' a grid or a tile, or put its loop first in 'nest'.", values_.name_of(axis)));
    carried_states_[which] = values_.emission.broadcast(values_.value_of(state.initial), values_.lanes_of(state.axes));
  }

  // Are elements kept apart until the loops are over, lane by lane?
  bool keeps_lanes(ExprId id) const {
    return !online_.contains(id) && !is_maximum(id) && !values_.is_tile_dot(values_.kernel.exprs[id]);
  }

  bool is_maximum(ExprId id) const {
    return std::any_of(online_.begin(), online_.end(), [&](const auto& pair) { return pair.second.maximum == id; });
  }

  Lanes accumulator_lanes(ExprId id) const {
    return values_.lanes_of(keeps_lanes(id) ? values_.operands_axes(values_.kernel.exprs[id]) : values_.depends[id]);
  }

  // `first`: no loops over its axes come before.
  void start(ExprId id, bool first) {
    const Expr& expr = values_.kernel.exprs[id];
    if (LoopedFold::fits(expr)) {
      values_.check_size({expr.dtype, accumulator_lanes(id)}, id);
      several_.erase(id);
      several_.emplace(id, LoopedFold(values_, id, first));
      return;
    }
    std::optional<Values::WholeLanes> whole;
    if (values_.is_tile_dot(expr)) whole.emplace(values_);
    const ReduceOp reduce = expr.kind == ExprKind::kDot ? ReduceOp::kSum : expr.reduce;
    TileType type{expr.dtype, accumulator_lanes(id)};
    values_.check_size(type, id);
    accumulators_[id] = values_.identity_tile(type, reduce);
  }

  void accumulate(ExprId id) {
    if (const auto several = several_.find(id); several != several_.end()) return several->second.advance();
    const Expr& expr = values_.kernel.exprs[id];
    Value total = accumulators_.at(id);
    if (const auto online = online_.find(id); online != online_.end()) {
      Value change = changes_.at(online->second.maximum);
      if (const ExprId factor = online->second.factor; factor != kernel::kNoExpr)
        change = values_.emission.op(ScalarOp::kMul, {change, values_.value_of(factor)},
                                     values_.emission.type(change).dtype);
      const DType dtype = values_.emission.type(change).dtype;
      const Value rescale = values_.emission.op(online->second.power, {change}, dtype, "rescale");
      total = values_.emission.op(ScalarOp::kMul, {total, rescale}, expr.dtype);
    }
    if (values_.is_tile_dot(expr)) {
      accumulators_[id] = values_.tile_dot(id, total);
      return;
    }
    if (expr.kind == ExprKind::kDot && expr.dtype == DType::f32 && values_.folds_single_points(expr)) {
      accumulators_[id] = values_.add_product(expr, total, noun_of(expr) + "_next");
      return;
    }
    Value operand = values_.fold_operand(expr);
    if (!keeps_lanes(id)) operand = values_.fold_lanes(expr, operand, noun_of(expr) + "_of_block");
    Value result = values_.emission.op(*kernel::step_of(expr.reduce), {total, operand}, expr.dtype,
                                       noun_of(expr) + "_next");
    accumulators_[id] = result;
    if (is_maximum(id)) use_maximum(id, total, result);
  }

  // While a maximum is folded, what depends on it takes the largest so far. A row that is -inf so far has no
  // differences: exp(x - 0) is 0 there, as it will be once anything is larger.
  void use_maximum(ExprId id, Value before, Value now) {
    const DType dtype = values_.kernel.exprs[id].dtype;
    const Value lowest = values_.emission.constant({dtype, {}}, -std::numeric_limits<double>::infinity());
    const Value none = values_.emission.op(ScalarOp::kEqual, {now, lowest}, DType::b1, "none_yet");
    const Value safe = values_.emission.op(ScalarOp::kSelect, {none, values_.emission.constant({dtype, {}}, 0.0), now},
                                           dtype, "shift");
    changes_[id] = values_.emission.op(ScalarOp::kSub, {before, safe}, dtype, "change");
    values_.know(id, safe);
  }

  void finish(ExprId id) {
    const Expr& expr = values_.kernel.exprs[id];
    if (const auto several = several_.find(id); several != several_.end()) {
      const std::vector<Value> components = several->second.finish();
      for (size_t other = 0; other < first_sibling_.size(); ++other)
        if (first_sibling_[other] == id)
          values_.know(static_cast<ExprId>(other), components[values_.kernel.exprs[other].component]);
      return;
    }
    Value value = accumulators_.at(id);
    if (keeps_lanes(id)) value = values_.fold_lanes(expr, value, noun_of(expr));
    if (values_.is_tile_dot(expr)) value = values_.behind_product(value);
    if (const auto online = online_.find(id); online != online_.end())
      value = without_rows_of_nothing(online->second.maximum, value);
    values_.know(id, value);
  }

  // exp(-inf - -inf) is NaN: a sum over such a row is, too, if the row has elements.
  Value without_rows_of_nothing(ExprId maximum, Value sum) {
    const DType dtype = values_.emission.type(sum).dtype;
    const Value largest = accumulators_.at(maximum);
    const Value lowest = values_.emission.constant({values_.emission.type(largest).dtype, {}},
                                                   -std::numeric_limits<double>::infinity());
    Value none = values_.emission.op(ScalarOp::kEqual, {largest, lowest}, DType::b1, "all_lowest");
    for (Axis axis : values_.kernel.exprs[maximum].axes) {
      const tile::Index& extent = values_.mapped.axes[axis].extent;
      if (kernel::range_of(extent, tile::ranges_of(values_.mapped.program)).low > 0) continue;
      const DType type = values_.emission.type_for({extent});
      none = values_.emission.both(
          none,
          values_.emission.op(ScalarOp::kLess, {values_.emission.index(0, type), values_.emission.index(extent, type)},
                              DType::b1));
    }
    const Value missing = values_.emission.constant({dtype, {}}, std::numeric_limits<double>::quiet_NaN());
    return values_.emission.op(ScalarOp::kSelect, {none, missing, sum}, dtype, values_.mapped.program.values[sum].name);
  }

  void reach(const Goal& goal) {
    switch (goal.kind) {
      case Goal::Kind::kAccumulate: return accumulate(goal.which);
      case Goal::Kind::kNext: {
        const kernel::State& state = values_.kernel.states[goal.which];
        carried_states_[goal.which] = values_.emission.broadcast(values_.value_of(state.next),
                                                                 values_.lanes_of(state.axes));
        return;
      }
      case Goal::Kind::kStore: return store(values_.kernel.stores[goal.which]);
    }
  }

  // Does the bulk copy engine take the store, if it is asked to: a box that leaves its buffer where its axes end, of
  // which no other block has a part?
  bool is_box(const kernel::Store& store, const std::vector<bool>& axes) {
    if (!values_.mapped.bulk_stores || store.combines || store.access.mask != kernel::kNoExpr || !open_.empty() ||
        !values_.leaves_with_its_axes(store.access, axes))
      return false;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (!axes[axis] && values_.kernel.symbols[axis].kind == kernel::SymbolKind::kAxis &&
          values_.mapped.axes[axis].mapping == Mapping::kGrid)
        return false;
    const tile::Access access = values_.translate(store.access, tile::kNoValue);
    return tile::lanes_of(values_.mapped.program, access).size() > 1 &&
           tile::box_of(values_.mapped.program, access).has_value();
  }

  void store(const kernel::Store& store) {
    const std::vector<bool> axes = axes_of(store);
    Value mask = values_.mask_of(axes);
    // Blocks along an axis on which the store does not depend would all do it: the first does.
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const MappedAxis& mapped = values_.mapped.axes[axis];
      if (axes[axis] || values_.kernel.symbols[axis].kind != kernel::SymbolKind::kAxis ||
          mapped.mapping != Mapping::kGrid)
        continue;
      const tile::Index block = kernel::symbol_index(mapped.outer);
      const DType dtype = values_.emission.type_for({block});
      mask = values_.emission.both(
          mask, values_.emission.op(ScalarOp::kEqual,
                                    {values_.emission.index(block, dtype), values_.emission.index(0, dtype)}, DType::b1,
                                    "first"));
    }
    Instruction instruction;
    instruction.kind = Kind::kStore;
    if (is_box(store, axes)) {
      instruction.access = values_.translate(store.access, tile::kNoValue);
      instruction.mode = tile::CopyMode::kBulk;
    } else {
      instruction.access = values_.translate(store.access, mask);
    }
    const Value value = values_.value_of(store.value);
    const Lanes lanes = united(values_.emission.type(value).lanes, values_.lanes_of(store.over));
    instruction.operands = {values_.emission.broadcast(value, lanes)};
    instruction.combines = store.combines;
    instruction.reduce = store.reduce;
    instruction.in_order = values_.mapped.in_order && kernel::is_decided_by_data(store.access);
    values_.emission.add_here(std::move(instruction));
  }
  Values values_;
  const std::vector<ExprId> first_sibling_;  // [expression] folds stand for all their components by the first of these
  std::vector<Axis> open_;                   // looped axes that are open
  std::set<ExprId> walked_;                  // what these loops fold
  std::map<ExprId, Value> accumulators_;
  std::map<ExprId, LoopedFold> several_;  // folds of which lanes keep several values
  std::map<ExprId, Value> changes_;       // maximum → what it was before this iteration less what it is now
  std::map<ExprId, OnlineSum> online_;    // of sums that are walked with their maximum
  std::map<int, Value> carried_states_;   // [state] before a step, and after it
};

}  // namespace

Mapped arrange(const kernel::Kernel& kernel, const KernelSchedule& schedule) {
  return Arranger(kernel, schedule).run();
}

}  // namespace kw::lower
