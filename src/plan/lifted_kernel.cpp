#include "plan/lifted_kernel.hpp"

#include <algorithm>

#include "lower/pipeline.hpp"
#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/lift.hpp"
#include "plan/scheduled_draft.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel_ir::AxisKind;

// Of what a kernel writes, it reads nothing (owns_destination in domain.hpp). Where it scatters it leaves the rest as
// it was.
kernel::BufferRole role_of(const kernel_ir::Kernel& kernel, int buffer) {
  kernel::BufferRole role = kernel::BufferRole::kInput;
  for (const kernel_ir::Store& store : kernel.stores) {
    if (store.access.buffer != buffer) continue;
    const bool keeps = role == kernel::BufferRole::kInOut || kernel_ir::scatter_of(kernel, store);
    role = keeps ? kernel::BufferRole::kInOut : kernel::BufferRole::kOutput;
  }
  const bool reads = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const kernel_ir::Expr& expr) {
    return kernel_ir::is_load(expr) && expr.access.buffer == buffer;
  });
  KW_ASSERT(!reads || role == kernel::BufferRole::kInput, "kernel '" + kernel.name + "' reads what it writes");
  return role;
}

// `unrolled` axes only as far as loops may be written out.
lower::AxisSchedule schedule_of(const kernel_ir::Axis& axis, int stages) {
  const bool unrolled = axis.unrolled && axis.extent <= tile::kMostUnrolled;
  if (unrolled) return {.mapping = lower::Mapping::kLoop, .width = axis.block, .unrolled = true};
  if (axis.looped) return {.mapping = lower::Mapping::kLoop, .width = axis.block, .stages = stages};
  const bool whole = axis.kind != AxisKind::kParallel || (axis.extent > 0 && axis.block >= axis.extent);
  return {.mapping = whole ? lower::Mapping::kTile : lower::Mapping::kGrid, .width = axis.block};
}

// Has a program a block of elements along which nothing is folded, beside parts that are? These parts take few
// registers, and what comes after would wait for its loads.
bool computes_beside_folds(const kernel_ir::Kernel& kernel) {
  const std::vector<std::vector<bool>> axes = kernel_ir::axes_of_exprs(kernel);
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis) {
    if (kernel.axes[axis].kind != AxisKind::kParallel || kernel.axes[axis].block == 1) continue;
    const bool folded_along = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const auto& expr) {
      return expr.kind == kernel_ir::ExprKind::kReduce &&
             std::any_of(expr.operands.begin(), expr.operands.end(), [&](auto operand) { return axes[operand][axis]; });
    });
    if (!folded_along) return true;
  }
  return false;
}

class Lifter {
 public:
  Lifter(LoweredGroup group, const Walk& walk, bool cooperative = false)
      : group_(std::move(group)),
        walk_(walk),
        cooperative_(cooperative),
        draft_(group_.kernel.name, group_.kernel.doc),
        uses_(group_.kernel.exprs.size()) {}

  ScheduledTiles run() {
    const kernel_ir::Kernel& kernel = group_.kernel;
    add_buffers();
    std::vector<kernel::Symbol> folded;
    folds_ = std::any_of(kernel.axes.begin(), kernel.axes.end(),
                         [](const kernel_ir::Axis& axis) { return axis.kind == AxisKind::kReduce; });
    for (const kernel_ir::Axis& axis : kernel.axes) {
      const bool folds = axis.kind == AxisKind::kReduce;
      if (axis.extent == 1 && axis.kind == AxisKind::kParallel) {
        axes_.emplace_back(0);
        continue;
      }
      lower::AxisSchedule schedule = schedule_of(axis, kernel.num_stages);
      if (folds && cooperative_)
        schedule = {.mapping = lower::Mapping::kGrid, .width = axis.block, .cooperative = true};
      if (axis.kind == AxisKind::kScan) {
        schedule.network = walk_.network;
        schedule.ahead = axis.looped ? walk_.ahead : 1;
      }
      schedule.stops = walk_.stops && folds && axis.looped && !schedule.unrolled;
      const kernel::Symbol symbol = draft_.mapped(axis.name, axis.extent, schedule);
      axes_.push_back(kernel::symbol_index(symbol));
      if (folds) folded.push_back(symbol);
    }
    const auto place = [](int buffer, const kernel::Index& index) { return KernelDraft::access(buffer, {index}); };
    Lift lift(draft_.build, kernel, axes_, {}, place, folded);
    for (const kernel_ir::Store& store : kernel.stores) name_all(lift, store.value);
    for (const bool last : {false, true})
      for (const kernel_ir::Store& store : kernel.stores)
        if (store.last == last) lift.store(store, unseen_by(store));
    draft_.schedule.warps = kernel.num_warps;
    draft_.schedule.max_registers = kernel.max_registers;
    // What neighbouring windows share is for the cache to keep, as it does by itself.
    const bool slides = std::any_of(kernel.axes.begin(), kernel.axes.end(),
                                    [](const kernel_ir::Axis& axis) { return axis.unrolled; });
    draft_.schedule.cache_hints = (folds_ && !slides) || kernel_ir::scan_axis_of(kernel) >= 0;
    draft_.schedule.serpentine = std::any_of(kernel.axes.begin(), kernel.axes.end(), [](const kernel_ir::Axis& axis) {
      return axis.looped && axis.kind == AxisKind::kReduce;
    });
    // What is loaded late must not have been written before.
    const auto last_stores = std::count_if(kernel.stores.begin(), kernel.stores.end(),
                                           [](const kernel_ir::Store& store) { return store.last; });
    draft_.schedule.loads_first = last_stores > 1 || (!walk_.wide_accesses && (!kernel_ir::delays_loads(kernel) ||
                                                                               computes_beside_folds(kernel)));
    draft_.schedule.approximate = std::all_of(kernel.stores.begin(), kernel.stores.end(), [&](const auto& store) {
      const DType dtype = kernel.buffers[store.access.buffer].dtype;
      return dtype == DType::f16 || dtype == DType::bf16;
    });
    draft_.schedule.wide_accesses = walk_.wide_accesses;
    return lowered(draft_, draft_.schedule);
  }

 private:
  void add_buffers() {
    const kernel_ir::Kernel& kernel = group_.kernel;
    for (size_t buffer = 0; buffer < kernel.buffers.size(); ++buffer) {
      const kernel_ir::Buffer& one = kernel.buffers[buffer];
      const int made = draft_.buffer(one.name, one.dtype, {one.elements}, {}, role_of(kernel, static_cast<int>(buffer)),
                                     group_.buffers[buffer]);
      if (!one.aligned) draft_.build.align(made, size_of(one.dtype));
    }
  }

  // The axes on which neither the place nor the value of a scatter depends.
  std::vector<kernel::Symbol> unseen_by(const kernel_ir::Store& store) const {
    const std::vector<bool> of_value = kernel_ir::axes_of_exprs(group_.kernel)[store.value],
                            of_place = kernel_ir::axes_of_access(group_.kernel, store.access);
    std::vector<kernel::Symbol> unseen;
    for (size_t axis = 0; axis < axes_.size() && kernel_ir::scatter_of(group_.kernel, store); ++axis)
      if (const auto symbol = kernel::as_symbol(axes_[axis]); symbol && !of_value[axis] && !of_place[axis])
        unseen.push_back(*symbol);
    return unseen;
  }

  // Operands before users. Expressions keep the names that they have; those used more than once have one, and beside
  // folds all have.
  void name_all(Lift& lift, kernel_ir::ExprId id) {
    if (++uses_[id] == 1)
      for (kernel_ir::ExprId operand : group_.kernel.exprs[id].operands) name_all(lift, operand);
    const kernel_ir::Expr& expr = group_.kernel.exprs[id];
    if (expr.kind == kernel_ir::ExprKind::kScatter) return;  // a store's way, not a value
    const bool folds = expr.kind == kernel_ir::ExprKind::kReduce || expr.kind == kernel_ir::ExprKind::kScan,
               is_op = expr.kind == kernel_ir::ExprKind::kOp;
    if (uses_[id] > 2 || (expr.name.empty() && !folds && (!is_op || (uses_[id] < 2 && !folds_)))) return;
    const kernel::ExprId lifted = lift.expr(id);
    const kernel::Expr& now = draft_.build.kernel().exprs[lifted];
    if (now.name.empty() && now.kind != kernel::ExprKind::kConstant && now.kind != kernel::ExprKind::kIndex)
      draft_.named(expr.name.empty() ? kernel_ir::noun_for(expr, group_.kernel) : expr.name, lifted);
  }

  LoweredGroup group_;
  const Walk walk_;
  const bool cooperative_;
  ScheduledDraft draft_;
  std::vector<kernel::Index> axes_;  // what each of the kernel's is
  std::vector<int> uses_;            // [expression]
  bool folds_ = false;
};

}  // namespace

ScheduledTiles as_tiles(LoweredGroup group, const Walk& walk) {
  name_axes(group.kernel);
  if (is_bags(group)) name_bags(group.kernel);
  else if (is_sliding(group)) name_windows(group.kernel);
  return Lifter(std::move(group), walk).run();
}

ScheduledTiles as_cooperative_tiles(LoweredGroup group, std::vector<Scratch>& scratch) {
  name_axes(group.kernel);
  ScheduledTiles tiles = Lifter(std::move(group), {}, true).run();
  for (size_t buffer = tiles.buffers.size(); buffer < tiles.program.buffers.size(); ++buffer) {
    const tile::Buffer& one = tiles.program.buffers[buffer];
    Scratch tensor;
    tensor.name = one.name;
    tensor.type.dtype = one.dtype;
    for (const kernel::Index& size : one.shape) tensor.type.shape.push_back(kernel::as_constant(size).value());
    tensor.type.strides = {1};
    tensor.zeros = tile::counts_blocks(tiles.program, static_cast<int>(buffer));
    scratch.push_back(std::move(tensor));
    tiles.buffers.push_back(-static_cast<int>(scratch.size()));
    tiles.offsets.push_back(0);
  }
  return tiles;
}

}  // namespace kw::plan
