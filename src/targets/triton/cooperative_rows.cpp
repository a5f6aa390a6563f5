#include "targets/triton/cooperative_rows.hpp"

#include <algorithm>
#include <limits>

#include "plan/axes.hpp"
#include "plan/estimate.hpp"
#include "plan/embedding.hpp"
#include "plan/group_tiles.hpp"

namespace kw::triton {

using namespace plan;

namespace {

constexpr int64_t kThreads = 128;
// Registers for a block's elements, with as many again for what is computed from them: 128 threads hold 8192 elements
// in 64 registers each. 0.92 of a copy's speed for softmax rows of 393,216 on an H200; twice as many threads or
// elements are slower.
constexpr int64_t kElements = 8192;
constexpr int64_t kLeastElements = 1024;

bool combines(const Expr& expr) {
  const bool known = expr.reduce == ReduceOp::kSum || expr.reduce == ReduceOp::kProd || expr.reduce == ReduceOp::kMax ||
                     expr.reduce == ReduceOp::kMin || expr.reduce == ReduceOp::kMoments ||
                     expr.reduce == ReduceOp::kMaxSumExp;
  return known && (expr.dtype == DType::f32 || expr.dtype == DType::f64);
}

// Slots for each program's partial results, 0 where some cannot be combined.
int64_t partial_slots(const GroupKernel& kernel, int64_t& reductions, DType& dtype) {
  int64_t slots = 0;
  reductions = 0;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const auto& expr = kernel.exprs[id];
    if (expr.kind != ExprKind::kReduce ||
        siblings_of(kernel, static_cast<ExprId>(id)).front() != static_cast<ExprId>(id))
      continue;
    if (!combines(expr) || (reductions > 0 && expr.dtype != dtype)) return 0;
    dtype = expr.dtype;
    ++reductions;
    slots += expr.reduce == ReduceOp::kMoments ? 3 : expr.reduce == ReduceOp::kMaxSumExp ? 2 : 1;
  }
  return slots;
}

// Do blocks of the innermost axis fill the outer axes' steps, so that no index has to be divided?
bool keeps_axes(const GroupKernel& kernel, int64_t block) {
  const int64_t inner = extent_of(kernel.symbols.back());
  return inner % block == 0 || inner >= 8 * block;
}

int64_t programs_for_row(const GroupKernel& kernel, int64_t block) {
  if (!keeps_axes(kernel, block)) return ceil_divide(reduce_points(kernel), block);
  return reduce_points(kernel) / extent_of(kernel.symbols.back()) *
         ceil_divide(extent_of(kernel.symbols.back()), block);
}

// Two programs of 128 threads run on a multiprocessor even where each thread takes 255 registers.
int64_t sure_to_run(const DeviceDescription& device) { return 2 * device.units; }

// Arithmetic on each element, before its row's results are known and once they are.
struct Weights {
  double before = 0, after = 0;
};

Weights weights_of(const GroupKernel& kernel) {
  const auto axes = kernel::dependences(kernel);
  std::vector<bool> after(kernel.exprs.size(), false);
  const std::vector<bool> values = values_of(kernel);
  Weights weights;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const auto& expr = kernel.exprs[id];
    after[id] = expr.kind == ExprKind::kReduce;
    for (ExprId part : made_of(kernel, expr)) after[id] = after[id] || after[part];
    if (values[id] && expr.kind == ExprKind::kOp && axes[id].back())
      (after[id] ? weights.after : weights.before) += weight_of(expr);
  }
  return weights;
}

// A block of 64 elements a thread leaves 16 registers: room for a softmax's exponential and quotient, or a sigmoid
// behind a norm.
constexpr double kNeedsRoom = 18;

// What is computed of each element before it is folded takes registers at once: a GELU before a group norm took 0.77 of
// the time with a quarter of the elements, a SiLU 0.81 with half of them.
int64_t block_for(double weight_before) {
  return weight_before >= 24 ? kElements / 4 : weight_before >= 10 ? kElements / 2 : kElements;
}

// Elements' places then take more registers than their values: a batch norm over planes of 56 x 56 took 0.68 ms so, two
// passes take half.
bool divides_indices(const GroupKernel& kernel, int64_t block) {
  return reduce_points(kernel) != extent_of(kernel.symbols.back()) && !keeps_axes(kernel, block);
}

}  // namespace

int64_t choose_cooperative_block(const GroupKernel& kernel, int kept_loads, const DeviceDescription& device) {
  int64_t reductions = 0;
  DType dtype = DType::f32;
  if (partial_slots(kernel, reductions, dtype) == 0 || !can_embed(kernel)) return 0;
  int64_t block = kElements / next_power_of_two(std::max(1, kept_loads)) / (dtype == DType::f64 ? 2 : 1);
  if (block < kLeastElements || divides_indices(kernel, block) || programs_for_row(kernel, block) > sure_to_run(device))
    return 0;
  const Weights weights = weights_of(kernel);
  if (weights.after >= kNeedsRoom && block > kLeastElements &&
      programs_for_row(kernel, block / 2) <= sure_to_run(device))
    block /= 2;
  while (block > block_for(weights.before) && programs_for_row(kernel, block / 2) <= sure_to_run(device)) block /= 2;
  // Few rows: smaller blocks, so that every multiprocessor has some.
  while (block > kLeastElements && parallel_points(kernel) * programs_for_row(kernel, block) < 4 * device.units &&
         programs_for_row(kernel, block / 2) <= sure_to_run(device))
    block /= 2;
  return programs_for_row(kernel, block) < 2 ? 0 : block;
}

std::optional<ScheduledTiles> spread_rows(LoweredGroup group, int64_t block, const DeviceDescription& device,
                                          std::vector<Scratch>& scratch) {
  GroupKernel& kernel = group.kernel;
  int64_t reductions = 0;
  DType dtype = DType::f32;
  const int64_t slots = partial_slots(kernel, reductions, dtype);
  if (slots == 0 || !can_embed(kernel)) return std::nullopt;
  const int parallel = kernel.parallel;
  if (!keeps_axes(kernel, block)) flatten(kernel, parallel, axis_count(kernel) - 1);
  const int64_t per_row = programs_for_row(kernel, block), rows = parallel_points(kernel);
  if (per_row < 2 || per_row > sure_to_run(device) || rows * per_row * slots > std::numeric_limits<int32_t>::max())
    return std::nullopt;
  lower::KernelSchedule schedule = in_single_points(kernel, kThreads / 32);
  schedule.cache_hints = true;
  for (int axis = parallel; axis < axis_count(kernel); ++axis)
    schedule.axes[axis] = {
        .mapping = lower::Mapping::kGrid, .width = axis + 1 == axis_count(kernel) ? block : 1, .cooperative = true};
  // Six programs a multiprocessor instead of five: group norm over rows of 2 M elements in 4.3 ms instead of 5.2. With
  // masks, or another tensor of the row's length, that many would spill.
  const auto axes = kernel::dependences(kernel);
  int loads = 0;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) loads += is_load(kernel.exprs[id]) && axes[id].back();
  if (extent_of(kernel.symbols.back()) % block == 0 && loads == 1) schedule.max_registers = 80;
  return as_cooperative_tiles(std::move(group), std::move(schedule), scratch);
}

}  // namespace kw::triton
