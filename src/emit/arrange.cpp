// arrange(): the order of a kernel's work, from its DAG. See kernel_ir.hpp for the rules.
#include <algorithm>
#include <set>
#include <string>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

std::string noun_for(const Expr& expr, const Kernel& kernel) {
  if (is_load(expr)) return kernel.buffers[expr.access.buffer].name;
  if (expr.kind == ExprKind::kIndex) return "position";
  if (expr.kind == ExprKind::kConstant) return "constant";
  if (expr.kind == ExprKind::kScan) {
    if (is_sort(expr)) return expr.component == 1 ? "stood_at" : "in_order";
    if (expr.component == 1) return "running_at";
    switch (expr.reduce) {
      case ReduceOp::kProd: return "running_product";
      case ReduceOp::kMax: return "running_largest";
      case ReduceOp::kMin: return "running_smallest";
      case ReduceOp::kLogSumExp: return "running_log_sum";
      default: return "running_sum";
    }
  }
  if (expr.kind == ExprKind::kReduce) {
    switch (expr.reduce) {
      case ReduceOp::kSum:
      case ReduceOp::kExtendedSum: return "total";
      case ReduceOp::kProd: return "total_product";
      case ReduceOp::kMax: return "largest";
      case ReduceOp::kMin: return "smallest";
      case ReduceOp::kAny: return "any_true";
      case ReduceOp::kAll: return "all_true";
      case ReduceOp::kArgMax: return "largest_at";
      case ReduceOp::kArgMin: return "smallest_at";
      case ReduceOp::kMoments:
      case ReduceOp::kCombineMoments: return expr.component == 0 ? "mean" : "squared_deviations";
      case ReduceOp::kMaxSumExp:
      case ReduceOp::kCombineMaxSumExp: return expr.component == 0 ? "largest" : "exponential_sum";
      case ReduceOp::kLogSumExp:
      case ReduceOp::kFirst:
      case ReduceOp::kSortUp:
      case ReduceOp::kSortDown: break;
    }
  }
  switch (expr.op) {
    case ScalarOp::kAdd: return "added";
    case ScalarOp::kSub: return "difference";
    case ScalarOp::kMul: return "product";
    case ScalarOp::kDiv: return "quotient";
    case ScalarOp::kNeg: return "negated";
    case ScalarOp::kAbs: return "magnitude";
    case ScalarOp::kExp: return "exponential";
    case ScalarOp::kLog: return "logarithm";
    case ScalarOp::kSqrt: return "root";
    case ScalarOp::kRsqrt: return "inverse_root";
    case ScalarOp::kTanh: return "tangent";
    case ScalarOp::kSigmoid: return "gate";
    case ScalarOp::kSelect: return "chosen";
    case ScalarOp::kBounded: return "place";
    case ScalarOp::kCast: return "converted";
    case ScalarOp::kEqual:
    case ScalarOp::kNotEqual:
    case ScalarOp::kLess:
    case ScalarOp::kLessEqual:
    case ScalarOp::kGreater:
    case ScalarOp::kGreaterEqual:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf: return "condition";
    default: return "value";
  }
}

namespace {

class Arranger {
 public:
  explicit Arranger(Kernel& kernel) : kernel_(kernel), axes_(axes_of_exprs(kernel)) {
    for (const Axis& axis : kernel.axes) looped_ = looped_ || axis.looped;
    for (const Expr& expr : kernel.exprs)
      if (!expr.name.empty()) names_.insert(expr.name);
  }

  void run() {
    find_needed();
    find_phases();
    if (!looped_ && delays_loads(kernel_, tile(), kernel_.num_warps, kernel_.max_registers)) delay_loads();
    kernel_.body.clear();
    for (int phase = 0; phase <= last_phase_; ++phase) arrange_phase(phase);
    for (size_t index = 0; index < kernel_.stores.size(); ++index)
      if (is_withheld(kernel_.stores[index]))
        kernel_.body.push_back({StmtKind::kStore, kNoExpr, static_cast<int>(index), {}});
  }

 private:
  const Expr& expr(ExprId id) const { return kernel_.exprs[id]; }
  bool is_reduce(ExprId id) const { return expr(id).kind == ExprKind::kReduce; }

  bool is_scan(ExprId id) const { return expr(id).kind == ExprKind::kScan; }

  bool over_serial_axes(const std::vector<bool>& axes) const {
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis] && is_serial(kernel_.axes[axis])) return true;
    return false;
  }

  double tile() const {
    double tile = 1;
    for (const Axis& axis : kernel_.axes) tile *= static_cast<double>(axis.block);
    return tile;
  }

  // Does the value have to be computed inside the loop over the reduce or scan axes?
  bool in_loop(ExprId id) const { return looped_ && over_serial_axes(axes_[id]); }
  bool in_loop(const Store& store) const {
    return looped_ && (over_serial_axes(axes_of_access(kernel_, store.access)) || in_loop(store.value));
  }

  // Stored when all phases are done. In a loop, every phase has its own, and a store stays in that of its value.
  bool is_withheld(const Store& store) const { return store.last && !in_loop(store); }

  void find_needed() {
    needed_.assign(kernel_.exprs.size(), false);
    for (const Store& store : kernel_.stores) needed_[store.value] = true;
    for (ExprId id = static_cast<ExprId>(kernel_.exprs.size()) - 1; id >= 0; --id)
      if (needed_[id])
        for (ExprId operand : expr(id).operands) needed_[operand] = true;
  }

  // phase_[e]: how many rounds of reductions must have finished before e can be computed.
  void find_phases() {
    phase_.assign(kernel_.exprs.size(), 0);
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      for (ExprId operand : kernel_.exprs[id].operands) phase_[id] = std::max(phase_[id], phase_[operand]);
      if (kernel_.exprs[id].kind == ExprKind::kReduce) ++phase_[id];
      if (needed_[id]) last_phase_ = std::max(last_phase_, phase_[id]);
    }
  }

  bool is_long_load(ExprId id) const { return is_load(expr(id)) && over_serial_axes(axes_[id]); }

  // What only a later round reads is loaded then: reductions wait for all threads, so that the assembler cannot move
  // loads behind them by itself.
  void delay_loads() {
    std::vector<int> asked(kernel_.exprs.size(), last_phase_);  // the first round that needs it
    for (const Store& store : kernel_.stores) asked[store.value] = std::min(asked[store.value], phase_[store.value]);
    for (ExprId id = static_cast<ExprId>(kernel_.exprs.size()) - 1; id >= 0; --id) {
      if (!needed_[id]) continue;
      const int round = is_reduce(id) ? phase_[id] - 1 : phase_[id] > 0 ? phase_[id] : asked[id];
      for (ExprId operand : expr(id).operands) asked[operand] = std::min(asked[operand], round);
    }
    for (ExprId id = 0; id < static_cast<ExprId>(kernel_.exprs.size()); ++id) {
      if (!needed_[id] || is_reduce(id)) continue;
      if (is_long_load(id)) phase_[id] = std::max(phase_[id], asked[id]);
      for (ExprId operand : expr(id).operands) phase_[id] = std::max(phase_[id], phase_[operand]);
    }
  }

  void arrange_phase(int phase) {
    std::vector<ExprId> reduces;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (needed_[id] && is_reduce(id) && phase_[id] == phase + 1 &&
          first_needed_sibling(id) == static_cast<ExprId>(id))
        reduces.push_back(id);
    std::vector<int> stores_inside, stores_outside;
    for (size_t index = 0; index < kernel_.stores.size(); ++index)
      if (phase_[kernel_.stores[index].value] == phase && !is_withheld(kernel_.stores[index]))
        (in_loop(kernel_.stores[index]) ? stores_inside : stores_outside).push_back(static_cast<int>(index));

    arrange_outside(phase, stores_outside);
    if (!looped_) {
      for (ExprId id : reduces) kernel_.body.push_back({StmtKind::kFinish, name(id), -1, {}});
      return;
    }
    if (reduces.empty() && stores_inside.empty()) return;
    for (ExprId id : reduces) kernel_.body.push_back({StmtKind::kInit, name(id), -1, {}});
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (begins_scan(id)) kernel_.body.push_back({StmtKind::kInit, name(id), -1, {}});
    kernel_.body.push_back(loop(reduces, stores_inside));
    for (ExprId id : reduces) kernel_.body.push_back({StmtKind::kFinish, name(id), -1, {}});
  }

  // Lets of the phase that stand outside any loop, then its stores.
  void arrange_outside(int phase, const std::vector<int>& stores) {
    const std::vector<int> uses = uses_outside();
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      if (!needed_[id] || is_reduce(id) || phase_[id] != phase || in_loop(id)) continue;
      if (begins_scan(id)) kernel_.body.push_back({StmtKind::kScan, name(id), -1, {}});
      if (!is_scan(id) && wants_let(id, uses[id], feeds_loop(id)))
        kernel_.body.push_back({StmtKind::kLet, name(id), -1, {}});
    }
    for (int store : stores) kernel_.body.push_back({StmtKind::kStore, kNoExpr, store, {}});
  }

  Stmt loop(const std::vector<ExprId>& reduces, const std::vector<int>& stores) {
    std::vector<int> uses(kernel_.exprs.size(), 0);
    for (ExprId id : reduces)
      for (ExprId operand : expr(id).operands) ++uses[operand];
    for (int store : stores) ++uses[kernel_.stores[store].value];
    for (ExprId id = static_cast<ExprId>(kernel_.exprs.size()) - 1; id >= 0; --id)
      if (uses[id] > 0 && in_loop(id))
        for (ExprId operand : expr(id).operands) ++uses[operand];
    Stmt result{StmtKind::kLoop, kNoExpr, -1, {}};
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      if (uses[id] == 0 || !in_loop(id)) continue;
      if (begins_scan(id)) result.body.push_back({StmtKind::kScan, name(id), -1, {}});
      if (!is_scan(id) && wants_let(id, uses[id], false)) result.body.push_back({StmtKind::kLet, name(id), -1, {}});
    }
    for (ExprId id : reduces) result.body.push_back({StmtKind::kAccumulate, name(id), -1, {}});
    for (int store : stores) result.body.push_back({StmtKind::kStore, kNoExpr, store, {}});
    return result;
  }

  std::vector<int> uses_outside() const {
    std::vector<int> uses(kernel_.exprs.size(), 0);
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (needed_[id] && !in_loop(id))
        for (ExprId operand : kernel_.exprs[id].operands) ++uses[operand];
    for (const Store& store : kernel_.stores) ++uses[store.value];
    return uses;
  }

  // Is it computed outside and read inside a loop?
  bool feeds_loop(ExprId id) const {
    if (!looped_) return false;
    for (size_t user = id + 1; user < kernel_.exprs.size(); ++user) {
      if (!needed_[user] || (!in_loop(user) && !is_reduce(user))) continue;
      const auto& operands = kernel_.exprs[user].operands;
      if (std::find(operands.begin(), operands.end(), id) != operands.end()) return true;
    }
    for (const Store& store : kernel_.stores)
      if (store.value == id && in_loop(store)) return true;
    return false;
  }

  bool wants_let(ExprId id, int uses, bool feeds) const {
    const Expr& one = expr(id);
    if (one.kind == ExprKind::kConstant) return false;
    return is_load(one) || !one.name.empty() || uses > 1 || feeds;
  }

  // Is it the Scan that stands for its siblings?
  bool begins_scan(ExprId id) const { return needed_[id] && is_scan(id) && first_needed_sibling(id) == id; }

  ExprId first_needed_sibling(ExprId id) const {
    for (ExprId sibling : siblings_of(kernel_, id))
      if (needed_[sibling]) return sibling;
    return id;
  }

  // Makes sure that the expression, and its siblings if it is a Reduce or Scan, have a name.
  ExprId name(ExprId id) {
    const std::vector<ExprId> all = is_reduce(id) || is_scan(id) ? siblings_of(kernel_, id) : std::vector<ExprId>{id};
    for (ExprId one : all) {
      Expr& target = kernel_.exprs[one];
      if (!target.name.empty()) continue;
      const std::string noun = noun_for(target, kernel_);
      std::string candidate = noun;
      for (int suffix = 2; !names_.insert(candidate).second; ++suffix) candidate = noun + "_" + std::to_string(suffix);
      target.name = candidate;
    }
    return id;
  }

  Kernel& kernel_;
  std::vector<std::vector<bool>> axes_;
  bool looped_ = false;
  std::set<std::string> names_;
  std::vector<bool> needed_;
  std::vector<int> phase_;
  int last_phase_ = 0;
};

}  // namespace

void arrange(Kernel& kernel) { Arranger(kernel).run(); }

bool delays_loads(const Kernel& kernel, double tile, int warps, int max_registers) {
  constexpr double kOfUnit = 65536, kMost = 255, kShare = 0.75;
  const double threads = 32.0 * warps;
  const double registers = max_registers > 0 ? max_registers : std::min(kMost, kOfUnit / threads);
  const auto axes = axes_of_exprs(kernel);
  std::vector<bool> needed(kernel.exprs.size());
  for (const Store& store : kernel.stores) needed[store.value] = true;
  int loads = 0;
  for (size_t id = kernel.exprs.size(); id-- > 0;) {
    if (!needed[id]) continue;
    for (ExprId operand : kernel.exprs[id].operands) needed[operand] = true;
    bool is_long = false;
    for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
      is_long = is_long || (axes[id][axis] && is_serial(kernel.axes[axis]));
    loads += is_load(kernel.exprs[id]) && is_long;
  }
  return loads > 1 && tile / threads * loads >= kShare * registers;
}

}  // namespace kw::kernel_ir
