#include "plan/estimate.hpp"

#include "target/target.hpp"

namespace kw {

using namespace plan;

double weight_of(const Expr& expr) {
  if (expr.kind == ExprKind::kScan) return weight_of_scan(expr.reduce);
  if (expr.kind == ExprKind::kReduce)
    return expr.reduce == ReduceOp::kMoments || expr.reduce >= ReduceOp::kMaxSumExp ? 12 : 1;
  return expr.kind == ExprKind::kOp ? weight_of(expr.op) : 0;
}

double weight_of_scan(ReduceOp op) {
  if (kernel::is_sort(op)) return 200;
  return op == ReduceOp::kLogSumExp ? 24 : 4;
}

double weight_of(ScalarOp op) { return kernel::additions_of(op); }

KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) {
  return target_of(device).estimate(program, device);
}

double seconds_of(const tile::Program& program, const DeviceDescription& device) {
  return estimate(program, device).seconds;
}

namespace plan {

double seconds_of(const ScheduledGroup& group, const DeviceDescription& device) {
  double total = 0;
  for (const ScheduledTiles& one : group.tiles)
    total += static_cast<double>(one.repetition ? one.repetition->count : 1) *
             (device.launch_seconds + kw::seconds_of(one.program, device));
  return total;
}

}  // namespace plan

}  // namespace kw
