#include "toy/schedulers.hpp"

#include <algorithm>

#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/group_tiles.hpp"
#include "support/error.hpp"
#include "toy/printer.hpp"

namespace kw::toy {

using namespace plan;

namespace {

bool can_print(const LoweredGroup& group) {
  const std::vector<bool> values = values_of(group.kernel);
  return std::ranges::all_of(group.kernel.exprs, [&](const Expr& expr) {
    if (!values[&expr - group.kernel.exprs.data()]) return true;
    switch (expr.kind) {
      case ExprKind::kConstant:
      case ExprKind::kIndex: return true;
      case ExprKind::kLoad: return !looks_up(expr);
      case ExprKind::kReduce: return toy::can_print(expr.reduce) && expr.access.mask == kNoExpr;
      case ExprKind::kOp: return toy::can_print(expr.op);
      default: return false;
    }
  });
}

bool takes_elements(const LoweredGroup& group) { return is_pointwise(group) && can_print(group); }
bool takes_rows(const LoweredGroup& group) { return is_reduction(group) && can_print(group); }

const ParameterTable& chunks() {
  static const ParameterTable table({
      {.name = "chunk", .least = 1, .most = 1024, .unsaid = 1, .powers_of_two = true, .tried = {1, 8, 64}},
  });
  return table;
}

// As many chunks as the device has units, where the innermost axis is long enough.
Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  const int inner = group.kernel.parallel - 1;
  const int64_t extent = inner < 0 ? 1 : extent_of(group.kernel, inner);
  return {{"chunk", std::min<int64_t>(1024, next_power_of_two(ceil_divide(extent, device.units)))}};
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription&) { return chunks().ranges(); }

// A gap of this target's: it finds only when it lowers that it cannot have so many.
constexpr int64_t kTooMany = 4099;

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const int inner = group.kernel.parallel - 1;
  if (inner >= 0 && extent_of(group.kernel, inner) == kTooMany) {
    ErrorText text;
    text.message = "kernel '" + group.kernel.name + "' cannot be scheduled so";
    text.code = "bad-schedule";
    throw Error(ErrorKind::kUser, std::move(text));
  }
  // Loops over elements, the innermost in chunks; what is folded is there whole.
  lower::KernelSchedule schedule;
  for (int axis = 0; axis < axis_count(group.kernel); ++axis)
    schedule.axes.push_back(is_serial(group.kernel, axis) ? in_blocks(group.kernel, axis, extent_of(group.kernel, axis))
                                                          : in_loop(1));
  if (inner >= 0) schedule.axes[inner].width = chunks().read(parameters, "chunk");
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> table = {
      {kPointwise, GroupWork::kElements, takes_elements, chunks, defaults, space, lower},
      {kReduction, GroupWork::kElements, takes_rows, chunks, defaults, space, lower}};
  return table;
}

}  // namespace kw::toy
