#include "emit/in_place.hpp"

#include <algorithm>
#include <set>

#include "ir/memory.hpp"

namespace kw {
namespace {

using kernel::Kernel;

// The kernel's one store to `buffer`; nullptr where there is none, or more.
const kernel::Store* only_store(const Kernel& kernel, int buffer) {
  const kernel::Store* only = nullptr;
  for (const kernel::Store& store : kernel.stores) {
    if (store.access.buffer != buffer) continue;
    if (only) return nullptr;
    only = &store;
  }
  return only;
}

// An axis that the store's index leaves out has several programs, or several turns of a loop, on one element: the
// later would read what the earlier wrote.
bool is_stored_once(const Kernel& kernel, const kernel::Store& store) {
  const std::vector<bool> indexed = axes_of_access(kernel, store.access), varies = axes_of_exprs(kernel)[store.value];
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis) {
    const kernel::Axis& one = kernel.axes[axis];
    if (!indexed[axis] && one.extent > 1 && (one.kind == kernel::AxisKind::kParallel || one.cooperative ||
        varies[axis])) return false;
  }
  return true;
}

// Every load of `old_buffer` reads the element that this program's only store to `new_buffer` writes.
bool reads_what_it_writes(const Kernel& kernel, int old_buffer, int new_buffer) {
  const kernel::Store* store = only_store(kernel, new_buffer);
  if (!store || !store->access.guards.empty() || kernel::scatter_of(kernel, *store) != nullptr ||
      !is_stored_once(kernel, *store)) return false;
  for (const kernel::Store& other : kernel.stores)
    if (other.access.buffer == old_buffer) return false;
  std::vector<bool> depends(kernel.exprs.size(), false);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const kernel::Expr& expr = kernel.exprs[id];
    for (kernel::ExprId operand : expr.operands) depends[id] = depends[id] || depends[operand];
    if (depends[id] && expr.kind == kernel::ExprKind::kScan) return false;   // printed in loops of its own
    if (!kernel::is_load(expr)) continue;
    if (expr.access.buffer == new_buffer) return false;
    if (expr.access.buffer != old_buffer) continue;
    if (!store->last || expr.kind == kernel::ExprKind::kGather || !expr.access.guards.empty() ||
        !(expr.access.index == store->access.index)) return false;
    depends[id] = true;
  }
  return true;
}

class Finder {
 public:
  Finder(const Graph& graph, const Program& program, const TargetPrinter& target) : graph_(graph), program_(program),
      target_(target) {
    for (size_t index = 0; index < program.steps.size(); ++index) {
      const auto note = [&](const std::string& name) { uses_[name].push_back(index); };
      if (const auto* step = std::get_if<KernelStep>(&program.steps[index]))
        for (const std::string& name : step->tensors) note(name);
      if (const auto* step = std::get_if<ViewStep>(&program.steps[index])) {
        note(step->base);
        viewed_.insert(step->base);
      }
      if (const auto* step = std::get_if<ExternStep>(&program.steps[index]))
        for_each_operand(graph.nodes[step->node], [&](ValueId value) {
          note(graph.values[value].name);
          if (may_be_its_operand(graph.nodes[step->node])) viewed_.insert(graph.values[value].name);
        });
      if (const auto* step = std::get_if<AllocateStep>(&program.steps[index]))
        allocated_.insert(step->name.empty() ? graph.values[step->value].name : step->name);
    }
  }

  std::map<ValueId, ValueId> run() {
    std::map<ValueId, ValueId> result;
    for (const auto& [made, held] : updates_of(graph_))
      if (may_share(held, made)) result[made] = held;
    return result;
  }

 private:
  // A kernel stores to the old tensor itself, and the new value is a name for it. A view of the input as it was is
  // written to by nobody.
  bool written_into(const std::string& old_name, ValueId new_value) const {
    bool stored = false, named = false;
    for (const Step& step : program_.steps) {
      if (const auto* view = std::get_if<ViewStep>(&step)) named = named || (view->value == new_value &&
          view->base == old_name);
      if (const auto* call = std::get_if<KernelStep>(&step))
        for (size_t at = 0; at < call->tensors.size(); ++at)
          stored = stored || (call->tensors[at] == old_name &&
              program_.kernels[call->kernel].buffers[at].role != kernel::BufferRole::kInput);
    }
    return stored && named;
  }

  bool may_share(ValueId old_value, ValueId new_value) const {
    const TensorType &from = graph_.type(old_value), &to = graph_.type(new_value);
    if (from.dtype != to.dtype || from.shape != to.shape || from.strides != to.strides || from.device != to.device ||
        !from.is_dense()) return false;
    const std::string &old_name = graph_.values[old_value].name, &new_name = graph_.values[new_value].name;
    if (!allocated_.contains(new_name)) return written_into(old_name, new_value);
    const auto writes = uses_.find(new_name);
    if (writes == uses_.end() || writes->second.size() != 1) return false;
    const size_t writer = writes->second[0];
    const auto* step = std::get_if<KernelStep>(&program_.steps[writer]);
    if (step == nullptr) return false;
    for (int64_t offset : step->offsets)
      if (offset != 0) return false;
    // A view, or a result that is the tensor itself, might be read after the write.
    if (const auto reads = uses_.find(old_name); reads != uses_.end() && (reads->second.back() > writer ||
        viewed_.contains(old_name))) return false;
    const auto position = [&](const std::string& name) { return static_cast<int>(std::find(step->tensors.begin(),
        step->tensors.end(), name) - step->tensors.begin()); };
    const auto times = [&](const std::string& name) { return std::count(step->tensors.begin(), step->tensors.end(),
        name); };
    if (times(new_name) != 1 || times(old_name) > 1) return false;
    const Kernel& kernel = program_.kernels[step->kernel];
    const int old_buffer = times(old_name) == 1 ? position(old_name) : -1, new_buffer = position(new_name);
    return reads_what_it_writes(kernel, old_buffer, new_buffer) && (old_buffer < 0 ||
        target_.reads_before_it_writes(kernel, old_buffer, new_buffer));
  }

  const Graph& graph_;
  const Program& program_;
  const TargetPrinter& target_;
  std::map<std::string, std::vector<size_t>> uses_;   // by steps, in order
  std::set<std::string> allocated_, viewed_;
};

}  // namespace

std::map<ValueId, ValueId> in_place_mutations(const Graph& graph, const Program& program,
    const TargetPrinter& target) { return Finder(graph, program, target).run(); }

}  // namespace kw
