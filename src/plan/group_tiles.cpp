#include "plan/group_tiles.hpp"

#include <algorithm>

#include "lower/pipeline.hpp"
#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/embedding.hpp"
#include "plan/scheduled_draft.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

// Has a program a block of elements along which nothing is folded, beside parts that are? These parts take few
// registers, and what comes after would wait for its loads.
bool computes_beside_folds(const GroupKernel& kernel, const lower::KernelSchedule& schedule) {
  const std::vector<std::vector<bool>> axes = kernel::dependences(kernel);
  for (int axis = 0; axis < kernel.parallel; ++axis) {
    if (schedule.axes[axis].width == 1) continue;
    const bool folded_along = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const auto& expr) {
      return expr.kind == ExprKind::kReduce &&
             std::any_of(expr.operands.begin(), expr.operands.end(), [&](auto operand) { return axes[operand][axis]; });
    });
    if (!folded_along) return true;
  }
  return false;
}

// Would what is loaded at the start, of rows that a program has whole, take most of a thread's registers? Then what
// only a later round of folds needs is loaded then. `tile`: points of a block; `max_registers`: 0 where all may be
// taken.
bool fill_registers(const GroupKernel& kernel, double tile, int warps, int max_registers) {
  constexpr double kOfUnit = 65536, kMost = 255, kShare = 0.75;
  const double threads = 32.0 * warps;
  const double registers = max_registers > 0 ? max_registers : std::min(kMost, kOfUnit / threads);
  const auto axes = kernel::dependences(kernel);
  const std::vector<bool> needed = values_of(kernel);
  int loads = 0;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const bool is_long = std::any_of(axes[id].begin() + kernel.parallel, axes[id].end(), [](bool one) { return one; });
    loads += needed[id] && is_load(kernel.exprs[id]) && is_long;
  }
  return loads > 1 && tile / threads * loads >= kShare * registers;
}

bool is_walked(const lower::AxisSchedule& axis) { return axis.mapping == lower::Mapping::kLoop; }

bool delays_loads(const GroupKernel& kernel, const lower::KernelSchedule& schedule) {
  if (std::any_of(schedule.axes.begin(), schedule.axes.end(), is_walked)) return false;
  double tile = 1;
  for (const lower::AxisSchedule& axis : schedule.axes) tile *= static_cast<double>(axis.width);
  return fill_registers(kernel, tile, schedule.warps, schedule.max_registers);
}

class Embedder {
 public:
  Embedder(LoweredGroup group, lower::KernelSchedule schedule)
      : group_(std::move(group)),
        schedule_(std::move(schedule)),
        draft_(group_.kernel.name, group_.kernel.doc),
        uses_(group_.kernel.exprs.size()) {}

  ScheduledTiles run() {
    const GroupKernel& kernel = group_.kernel;
    KW_ASSERT(schedule_.axes.size() == kernel.symbols.size(),
              "kernel '" + kernel.name + "' has axes without a schedule");
    add_buffers();
    std::vector<kernel::Symbol> folded;
    for (int axis = 0; axis < axis_count(kernel); ++axis) {
      const int64_t extent = extent_of(kernel, axis);
      if (extent == 1 && !is_serial(kernel, axis)) {
        axes_.emplace_back(0);
        continue;
      }
      const kernel::Symbol symbol = draft_.mapped(kernel.symbols[axis].name, extent, schedule_.axes[axis]);
      axes_.push_back(kernel::symbol_index(symbol));
      if (is_serial(kernel, axis) && scan_axis_of(kernel) != axis) folded.push_back(symbol);
    }
    folds_ = !folded.empty();
    const auto place = [](int buffer, const kernel::Index& index) { return KernelDraft::access(buffer, {index}); };
    Embedding embedding(draft_.build, kernel, axes_, {}, place, folded);
    for (const Store& store : kernel.stores)
      for (ExprId part : made_of(kernel, store)) name_all(embedding, part);
    for (const Store& store : kernel.stores) embedding.store(store);
    return lowered(draft_, words());
  }

 private:
  void add_buffers() {
    const GroupKernel& kernel = group_.kernel;
    for (size_t buffer = 0; buffer < kernel.buffers.size(); ++buffer) {
      const kernel::Buffer& one = kernel.buffers[buffer];
      const int made = draft_.buffer(one.name, one.dtype, {elements_of(one)}, {},
                                     role_of(kernel, static_cast<int>(buffer)), group_.buffers[buffer]);
      draft_.build.align(made, one.alignment);
    }
  }

  // Of the axes that are left, with what the kernel tells.
  lower::KernelSchedule words() const {
    const GroupKernel& kernel = group_.kernel;
    lower::KernelSchedule words = schedule_;
    words.axes = draft_.schedule.axes;
    for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis)
      words.serpentine |= scan_axis_of(kernel) != axis && is_walked(schedule_.axes[axis]);
    words.loads_first = !words.wide_accesses &&
                        (!delays_loads(kernel, schedule_) || computes_beside_folds(kernel, schedule_));
    words.approximate = group_.is_rounded ||
                        std::all_of(kernel.stores.begin(), kernel.stores.end(), [&](const auto& store) {
                          const DType dtype = kernel.buffers[store.access.buffer].dtype;
                          return dtype == DType::f16 || dtype == DType::bf16;
                        });
    return words;
  }

  // Operands before users. Expressions keep the names that they have; those used more than once have one, and beside
  // folds all have.
  void name_all(Embedding& embedding, ExprId id) {
    if (++uses_[id] == 1)
      for (ExprId part : made_of(group_.kernel, group_.kernel.exprs[id])) name_all(embedding, part);
    const Expr& expr = group_.kernel.exprs[id];
    const bool folds = expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan,
               is_op = expr.kind == ExprKind::kOp;
    if (uses_[id] > 2 || (expr.name.empty() && !folds && (!is_op || (uses_[id] < 2 && !folds_)))) return;
    const kernel::ExprId embedded = embedding.expr(id);
    const kernel::Expr& now = draft_.build.kernel().exprs[embedded];
    if (now.name.empty() && now.kind != kernel::ExprKind::kConstant && now.kind != kernel::ExprKind::kIndex)
      draft_.named(expr.name.empty() ? noun_for(expr, group_.kernel) : expr.name, embedded);
  }

  LoweredGroup group_;
  const lower::KernelSchedule schedule_;  // of all axes
  ScheduledDraft draft_;
  std::vector<kernel::Index> axes_;  // what each of the kernel's is
  std::vector<int> uses_;            // [expression]
  bool folds_ = false;
};

// Naming adds an axis of one point where there is no parallel one.
void name_all_axes(GroupKernel& kernel, lower::KernelSchedule& schedule) {
  name_axes(kernel);
  if (schedule.axes.size() < kernel.symbols.size()) schedule.axes.insert(schedule.axes.begin(), lower::AxisSchedule{});
}

}  // namespace

lower::AxisSchedule in_blocks(const GroupKernel& kernel, int axis, int64_t width) {
  const int64_t extent = extent_of(kernel, axis);
  const bool whole = is_serial(kernel, axis) || (extent > 0 && width >= extent);
  return {.mapping = whole ? lower::Mapping::kTile : lower::Mapping::kGrid, .width = width};
}

lower::AxisSchedule in_loop(int64_t width) { return {.mapping = lower::Mapping::kLoop, .width = width, .stages = 1}; }

lower::KernelSchedule in_single_points(const GroupKernel& kernel, int64_t warps) {
  lower::KernelSchedule schedule;
  for (int axis = 0; axis < axis_count(kernel); ++axis)
    schedule.axes.push_back(
        in_blocks(kernel, axis, is_serial(kernel, axis) ? next_power_of_two(extent_of(kernel, axis)) : 1));
  schedule.warps = static_cast<int>(warps);
  return schedule;
}

ScheduledTiles as_tiles(LoweredGroup group, lower::KernelSchedule schedule) {
  name_all_axes(group.kernel, schedule);
  if (is_bags(group)) name_bags(group.kernel);
  else if (is_sliding(group)) name_windows(group.kernel);
  return Embedder(std::move(group), std::move(schedule)).run();
}

ScheduledTiles as_cooperative_tiles(LoweredGroup group, lower::KernelSchedule schedule, std::vector<Scratch>& scratch) {
  name_all_axes(group.kernel, schedule);
  ScheduledTiles tiles = Embedder(std::move(group), std::move(schedule)).run();
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
