#include "plan/lifted_kernel.hpp"

#include <algorithm>

#include "lower/arrange.hpp"
#include "plan/axes.hpp"
#include "plan/lift.hpp"
#include "plan/scheduled_draft.hpp"

namespace kw::plan {

namespace {

using kernel_ir::AxisKind;

// [buffer] Is it read, and written?
struct Touched {
  std::vector<bool> read, written;
};
Touched touched(const kernel_ir::Kernel& kernel) {
  Touched found{std::vector<bool>(kernel.buffers.size()), std::vector<bool>(kernel.buffers.size())};
  for (const kernel_ir::Expr& expr : kernel.exprs)
    if (kernel_ir::is_load(expr)) found.read[expr.access.buffer] = true;
  for (const kernel_ir::Store& store : kernel.stores) found.written[store.access.buffer] = true;
  return found;
}

lower::AxisSchedule schedule_of(const kernel_ir::Axis& axis) {
  const bool whole = axis.extent > 0 && axis.block >= axis.extent;
  return {.mapping = whole ? lower::Mapping::kTile : lower::Mapping::kGrid, .width = axis.block};
}

class Lifter {
 public:
  explicit Lifter(LoweredGroup group)
      : group_(std::move(group)), draft_(group_.kernel.name, group_.kernel.doc), uses_(group_.kernel.exprs.size()) {}

  ScheduledTiles run() {
    const kernel_ir::Kernel& kernel = group_.kernel;
    add_buffers();
    std::vector<kernel::Index> axes;
    for (const kernel_ir::Axis& axis : kernel.axes)
      axes.push_back(axis.extent == 1 ? kernel::Index(0)
                                      : kernel::symbol_index(draft_.mapped(axis.name, axis.extent, schedule_of(axis))));
    const auto place = [](int buffer, const kernel::Index& index) { return KernelDraft::access(buffer, {index}); };
    Lift lift(draft_.build, kernel, std::move(axes), {}, place);
    for (const kernel_ir::Store& store : kernel.stores) name_all(lift, store.value);
    for (const kernel_ir::Store& store : kernel.stores)
      draft_.build.store(lift.access(store.access), lift.expr(store.value));
    draft_.schedule.warps = kernel.num_warps;
    draft_.schedule.max_registers = kernel.max_registers;
    draft_.schedule.loads_first = true;
    draft_.schedule.approximate = std::all_of(kernel.stores.begin(), kernel.stores.end(), [&](const auto& store) {
      const DType dtype = kernel.buffers[store.access.buffer].dtype;
      return dtype == DType::f16 || dtype == DType::bf16;
    });
    ScheduledTiles tiles{lower::arrange(draft_.build.finish(), draft_.schedule), std::move(draft_.tensors),
                         std::move(draft_.offsets)};
    for (size_t buffer = 0; buffer < kernel.buffers.size(); ++buffer)
      if (!kernel.buffers[buffer].aligned)
        tiles.program.buffers[buffer].alignment = size_of(kernel.buffers[buffer].dtype);
    return tiles;
  }

 private:
  void add_buffers() {
    const kernel_ir::Kernel& kernel = group_.kernel;
    const std::vector<bool> written = touched(kernel).written;
    for (size_t buffer = 0; buffer < kernel.buffers.size(); ++buffer) {
      const kernel_ir::Buffer& one = kernel.buffers[buffer];
      draft_.buffer(one.name, one.dtype, {one.elements}, {},
                    written[buffer] ? kernel::BufferRole::kOutput : kernel::BufferRole::kInput, group_.buffers[buffer]);
    }
  }

  // Operands before users. Expressions keep the names that they have, and those used more than once have one.
  void name_all(Lift& lift, kernel_ir::ExprId id) {
    if (++uses_[id] == 1)
      for (kernel_ir::ExprId operand : group_.kernel.exprs[id].operands) name_all(lift, operand);
    const kernel_ir::Expr& expr = group_.kernel.exprs[id];
    if (uses_[id] > 2 || (expr.name.empty() && (uses_[id] < 2 || expr.kind != kernel_ir::ExprKind::kOp))) return;
    const kernel::ExprId lifted = lift.expr(id);
    const kernel::Expr& now = draft_.build.kernel().exprs[lifted];
    if (now.name.empty() && now.kind != kernel::ExprKind::kConstant && now.kind != kernel::ExprKind::kIndex)
      draft_.named(expr.name.empty() ? kernel_ir::noun_for(expr, group_.kernel) : expr.name, lifted);
  }

  LoweredGroup group_;
  ScheduledDraft draft_;
  std::vector<int> uses_;  // [expression]
};

}  // namespace

bool has_tile_form(const kernel_ir::Kernel& kernel) {
  const Touched buffers = touched(kernel);
  for (size_t buffer = 0; buffer < kernel.buffers.size(); ++buffer)
    if (buffers.read[buffer] && buffers.written[buffer]) return false;
  return can_lift(kernel) &&
         std::all_of(kernel.axes.begin(), kernel.axes.end(),
                     [](const kernel_ir::Axis& axis) { return axis.kind == AxisKind::kParallel; }) &&
         std::none_of(kernel.exprs.begin(), kernel.exprs.end(),
                      [](const kernel_ir::Expr& expr) { return expr.kind == kernel_ir::ExprKind::kReduce; });
}

ScheduledTiles as_tiles(LoweredGroup group) {
  name_axes(group.kernel);
  return Lifter(std::move(group)).run();
}

}  // namespace kw::plan
