// Seconds of a CPU kernel by the loops that will be printed (emit/cpu/loop_nest.hpp).
#include "targets/cpu/cost.hpp"

#include <algorithm>
#include <cmath>

#include "emit/cpu/parts.hpp"

namespace kw::cpu {

using namespace kernel_ir;

namespace {

constexpr MemoryRules kMemory{.in_blocks = false, .line_bytes = 64, .lost_bytes = 0};
constexpr double kScattered = 2;  // instructions for an element of an access that SIMD cannot take side by side

class LoopsEstimation {
 public:
  LoopsEstimation(cpu::Part part, const KernelEstimate& moved, const DeviceDescription& device)
      : part_(std::move(part)), moved_(moved), device_(device) {}

  double seconds() const {
    const bool threads = nest_.threading != cpu::Threading::kNone;
    const double units = threads ? units_at_work() : 1;
    const double instructions = loops() + programs() * (kProgramCycles + kFoldCycles * folds()) + carried();
    const double bandwidth = device_.copy_bytes_per_second *
                             std::clamp(units / static_cast<double>(device_.units), std::min(1.0, kOneCoreShare), 1.0);
    const double cache_rate = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                                 : 4 * device_.copy_bytes_per_second;
    const double memory = moved_.memory_bytes / bandwidth + (moved_.cache_bytes + read_again()) / cache_rate;
    const double synchronise = !threads                          ? 0
                               : device_.synchronise_seconds > 0 ? device_.synchronise_seconds
                                                                 : kSynchroniseSeconds;
    const double arithmetic = instructions / (units * kInstructionsPerSecond);
    // Less than either hides the other entirely.
    return std::max(memory, arithmetic) + 0.2 * std::min(memory, arithmetic) + synchronise;
  }

 private:
  double extent(int axis) const { return static_cast<double>(kernel_.axes[axis].extent); }

  double programs() const {
    double count = 1;
    for (const int axis : nest_.program_axes) count *= extent(axis);
    for (const cpu::AxisBlock& block : nest_.blocks)
      count *= std::ceil(extent(block.axis) / static_cast<double>(block.size));
    return count;
  }

  // The last round of programs leaves cores idle.
  double units_at_work() const {
    const double units = static_cast<double>(device_.units);
    const bool one_loop = nest_.program_axes.empty() && nest_.blocks.empty();
    if (nest_.threading == cpu::Threading::kReduction || one_loop) return units;
    return programs() / std::ceil(programs() / units);
  }

  double points(const std::vector<bool>& axes) const {
    double count = 1;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis]) count *= extent(static_cast<int>(axis));
    return count;
  }

  bool varies(ExprId id) const { return nest_.vector_axis >= 0 && nest_.axes[id][nest_.vector_axis]; }

  // 1: neighbours lie side by side along the SIMD loop.
  int64_t stride(const Index& index) const {
    int64_t stride = 0;
    for (const IndexTerm& term : index.terms)
      if (term.axis == nest_.vector_axis) stride += term.divisor == 1 && term.modulus == 0 ? term.coefficient : 2;
    return stride;
  }

  double access_cost(const Index& index) const {
    const int64_t step = stride(index);
    return step == 0 || step == 1 ? 1 / lanes() : kScattered;
  }

  double lanes() const { return std::max(1.0, static_cast<double>(device_.vector_bytes) / 4); }

  double loops() const {
    double total = 0;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      if (!nest_.needed[id]) continue;
      std::vector<bool> axes = nest_.axes[id];
      double each = cpu::cost_of(expr) / (varies(static_cast<ExprId>(id)) ? lanes() : 1);
      if (expr.kind == ExprKind::kReduce) {
        for (const ExprId operand : expr.operands)
          for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axes[axis] || nest_.axes[operand][axis];
        each = (is_floating(expr.dtype) ? 2 : 1) / (nest_.vector_axis >= 0 ? lanes() : 1);  // floats are added up in
                                                                                            // double
        if (columns_leave_the_nearest_cache()) each *= 2;
      } else if (is_load(expr)) {
        each = varies(static_cast<ExprId>(id)) ? access_cost(expr.access.index) : 1;
      }
      total += each * points(axes) * std::max(1, nest_.times[id]);
      if (nest_.kept[id]) total += 2 * points(axes) / lanes();
    }
    for (const Store& store : kernel_.stores)
      total += access_cost(store.access.index) * points(axes_of_access(kernel_, store.access));
    return total;
  }

  double folds() const {
    double count = 0;
    if (nest_.form == cpu::LoopForm::kRows)
      for (size_t id = 0; id < kernel_.exprs.size(); ++id)
        count += nest_.needed[id] && kernel_.exprs[id].kind == ExprKind::kReduce;
    return count;
  }

  double block_columns() const {
    const int64_t block = nest_.block_of(nest_.vector_axis);
    return block > 0 ? static_cast<double>(block) : extent(nest_.vector_axis);
  }

  bool columns_leave_the_nearest_cache() const {
    if (nest_.form != cpu::LoopForm::kColumns) return false;
    double bytes = 0;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (nest_.needed[id] && kernel_.exprs[id].kind == ExprKind::kReduce) bytes += 8 * block_columns();
    return bytes > kNearBytes / 2;
  }

  // A block of columns that is walked again when it has left the core's cache; and short rows of a block, of which the
  // lines at their ends are shared.
  double read_again() const {
    if (nest_.form != cpu::LoopForm::kColumns) return 0;
    double rows = 1;
    for (const int axis : nest_.reduce_axes) rows *= extent(axis);
    double again = 0, most = 0;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      if (!nest_.needed[id] || !is_load(kernel_.exprs[id])) continue;
      const double size = static_cast<double>(size_of(kernel_.exprs[id].dtype)), bytes = points(nest_.axes[id]) * size;
      if (rows * block_columns() * size > static_cast<double>(device_.unit_cache_bytes) / 2)
        again += bytes * std::max(0, nest_.times[id] - 1);
      again += bytes * 32 / (block_columns() * size);
      most = std::max(most, bytes);
    }
    return std::min(again, 8 * most);
  }

  // A walk waits for each addition; rows side by side wait together.
  double carried() const {
    const int scan = scan_axis_of(kernel_);
    if (scan < 0) return 0;
    double walked = 1;
    for (const Axis& axis : kernel_.axes) walked *= static_cast<double>(axis.extent);
    double together = lanes();
    if (nest_.form == cpu::LoopForm::kScanRows) {
      const int64_t rows = nest_.row_axis < 0 ? 1 : nest_.block_of(nest_.row_axis);
      together = rows > 0 ? static_cast<double>(rows) : extent(nest_.row_axis);
      const double piece = static_cast<double>(nest_.piece > 0 ? nest_.piece : kernel_.axes[scan].extent);
      // Pieces that leave the nearest cache are fetched again, short ones begin anew each time.
      walked *= (together * piece * 4 > kNearBytes ? 1.5 : 1.0) + 32 / piece + together / 64;
    }
    return kCarryCycles * walked / std::max(1.0, together);
  }

  const cpu::Part part_;
  const Kernel& kernel_ = part_.simplified.kernel;
  const cpu::LoopNest& nest_ = part_.nest;
  const KernelEstimate& moved_;
  const DeviceDescription& device_;
};

}  // namespace

KernelEstimate estimate_of(const Kernel& kernel, const DeviceDescription& device) {
  KernelWork work = work_of(kernel, device, kMemory);
  work.estimate.seconds = LoopsEstimation(whole_of(work.kernel), work.estimate, device).seconds();
  return work.estimate;
}

}  // namespace kw::cpu
