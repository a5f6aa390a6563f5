#include "emit/in_place.hpp"

#include <algorithm>
#include <set>

namespace kw {
namespace {

using kernel::Kernel;

constexpr int64_t kThreadsOfWarp = 32;

// Whether each element of a load over the whole tile is one thread's alone. Where a tile has fewer elements than its program has threads, several read
// the same one, and one of them may do so after another has written it.
bool is_read_once(const Kernel& kernel, const std::vector<bool>& axes) {
  int64_t lanes = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) lanes *= kernel.axes[axis].block;
  return lanes >= kThreadsOfWarp * kernel.num_warps;
}

// Every load of `old_buffer` reads the element that this program's only store to `new_buffer` writes, and stands before it, outside any loop.
bool reads_before_it_writes(const Kernel& kernel, int old_buffer, int new_buffer, bool shares_tiles) {
  int store = -1;
  for (size_t index = 0; index < kernel.stores.size(); ++index) {
    if (kernel.stores[index].access.buffer == old_buffer) return false;
    if (kernel.stores[index].access.buffer != new_buffer) continue;
    if (store >= 0) return false;
    store = static_cast<int>(index);
  }
  if (store < 0) return false;
  const kernel::Access& written = kernel.stores[store].access;
  if (!written.guards.empty()) return false;
  for (const kernel::Expr& expr : kernel.exprs) {
    if (!kernel::is_load(expr)) continue;
    if (expr.access.buffer == new_buffer) return false;
    if (expr.access.buffer == old_buffer && expr.kind == kernel::ExprKind::kGather) return false;
    if (expr.access.buffer == old_buffer && !(expr.access.index == written.index && expr.access.guards.empty())) return false;
  }
  // Threads of a program share out its work in ways of the target's own: what another thread does with the old element must not matter.
  std::vector<bool> depends(kernel.exprs.size(), false);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const kernel::Expr& expr = kernel.exprs[id];
    depends[id] = expr.kind == kernel::ExprKind::kLoad && expr.access.buffer == old_buffer;
    for (kernel::ExprId operand : expr.operands) depends[id] = depends[id] || depends[operand];
    if (depends[id] && (expr.kind == kernel::ExprKind::kReduce || expr.kind == kernel::ExprKind::kScan)) return false;
  }
  const std::vector<bool> axes = axes_of_access(kernel, written);
  for (size_t index = 0; index < kernel.stores.size(); ++index)
    if (static_cast<int>(index) != store && depends[kernel.stores[index].value] && shares_tiles && !is_read_once(kernel, axes)) return false;
  // An axis that the index leaves out would have several programs on one element, the later reading what the earlier wrote.
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (!axes[axis] && kernel.axes[axis].kind == kernel::AxisKind::kParallel && kernel.axes[axis].extent > 1) return false;
  bool stored = false;
  for (const kernel::Stmt& statement : kernel.body) {
    if (statement.kind == kernel::StmtKind::kLoop) {
      for (const kernel::Stmt& inner : statement.body) {
        if (inner.kind == kernel::StmtKind::kStore && inner.store == store) return false;
        if (inner.kind == kernel::StmtKind::kLet && kernel.exprs[inner.expr].kind == kernel::ExprKind::kLoad &&
            kernel.exprs[inner.expr].access.buffer == old_buffer)
          return false;
      }
    }
    if (statement.kind == kernel::StmtKind::kStore && statement.store == store) stored = true;
    if (stored && statement.kind == kernel::StmtKind::kLet && kernel.exprs[statement.expr].kind == kernel::ExprKind::kLoad &&
        kernel.exprs[statement.expr].access.buffer == old_buffer)
      return false;
  }
  return stored;
}

class Finder {
 public:
  Finder(const Graph& graph, const Program& program, const TargetPrinter& target) : graph_(graph), program_(program), shares_tiles_(target.shares_tiles()) {
    for (size_t index = 0; index < program.steps.size(); ++index) {
      const auto note = [&](const std::string& name) { uses_[name].push_back(index); };
      if (const auto* step = std::get_if<KernelStep>(&program.steps[index])) for (const std::string& name : step->tensors) note(name);
      if (const auto* step = std::get_if<ViewStep>(&program.steps[index])) note(step->base);
      if (const auto* step = std::get_if<ExternStep>(&program.steps[index]))
        for_each_operand(graph.nodes[step->node], [&](ValueId value) { note(graph.values[value].name); });
      if (const auto* step = std::get_if<AllocateStep>(&program.steps[index])) allocated_.insert(step->name.empty() ? graph.values[step->value].name : step->name);
    }
  }

  std::map<ValueId, ValueId> run() {
    std::map<ValueId, ValueId> result;
    std::map<ValueId, int> outputs;
    for (const GraphOutput& output : graph_.outputs) ++outputs[output.value];
    for (const GraphOutput& output : graph_.outputs) {
      if (output.kind == OutputKind::kUser || outputs[output.value] != 1) continue;
      const auto input = std::find_if(graph_.inputs.begin(), graph_.inputs.end(), [&](const GraphInput& one) {
        return one.target == output.target && (one.kind == InputKind::kUser) == (output.kind == OutputKind::kInputMutation);
      });
      if (input == graph_.inputs.end() || input->value == output.value || outputs.contains(input->value)) continue;
      if (may_share(input->value, output.value)) result[output.value] = input->value;
    }
    return result;
  }

 private:
  // A kernel stores to the old tensor itself, and the new value is a name for it. A view of the input as it was is written to by nobody.
  bool written_into(const std::string& old_name, ValueId new_value) const {
    bool stored = false, named = false;
    for (const Step& step : program_.steps) {
      if (const auto* view = std::get_if<ViewStep>(&step)) named = named || (view->value == new_value && view->base == old_name);
      if (const auto* call = std::get_if<KernelStep>(&step))
        for (size_t at = 0; at < call->tensors.size(); ++at)
          stored = stored || (call->tensors[at] == old_name && program_.kernels[call->kernel].buffers[at].role != kernel::BufferRole::kInput);
    }
    return stored && named;
  }

  bool may_share(ValueId old_value, ValueId new_value) const {
    const TensorType &from = graph_.type(old_value), &to = graph_.type(new_value);
    if (from.dtype != to.dtype || from.shape != to.shape || from.strides != to.strides || from.device != to.device || !from.is_dense()) return false;
    const std::string &old_name = graph_.values[old_value].name, &new_name = graph_.values[new_value].name;
    if (!allocated_.contains(new_name)) return written_into(old_name, new_value);
    const auto writes = uses_.find(new_name);
    if (writes == uses_.end() || writes->second.size() != 1) return false;
    const size_t writer = writes->second[0];
    const auto* step = std::get_if<KernelStep>(&program_.steps[writer]);
    if (step == nullptr) return false;
    const auto position = [&](const std::string& name) {
      const auto found = std::find(step->tensors.begin(), step->tensors.end(), name);
      return found == step->tensors.end() ? -1 : static_cast<int>(found - step->tensors.begin());
    };
    for (int64_t offset : step->offsets)
      if (offset != 0) return false;
    if (const auto reads = uses_.find(old_name); reads != uses_.end())
      if (reads->second.back() > writer || has_view(old_name)) return false;
    const Kernel& kernel = program_.kernels[step->kernel];
    return reads_before_it_writes(kernel, position(old_name), position(new_name), shares_tiles_);
  }

  // A view might be read after the write.
  bool has_view(const std::string& name) const {
    return std::any_of(program_.steps.begin(), program_.steps.end(), [&](const Step& step) {
      const auto* view = std::get_if<ViewStep>(&step);
      return view != nullptr && view->base == name;
    });
  }

  const Graph& graph_;
  const Program& program_;
  bool shares_tiles_;
  std::map<std::string, std::vector<size_t>> uses_;
  std::set<std::string> allocated_;
};

}  // namespace

std::map<ValueId, ValueId> in_place_mutations(const Graph& graph, const Program& program, const TargetPrinter& target) { return Finder(graph, program, target).run(); }

}  // namespace kw
