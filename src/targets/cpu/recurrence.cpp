// Recurrent layers on a CPU: each thread walks all steps of some samples, and nobody waits for anybody.
#include <algorithm>

#include "plan/linear_steps.hpp"
#include "plan/recurrence_loops.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kUnitsOfVector = 16;  // floats of the widest SIMD registers
constexpr int64_t kMostUnits = 1024;    // a gate's weights are one tile
constexpr int64_t kMostRowsOfProducts = 512;
constexpr int64_t kMostElements = 256;  // of a block whose steps are linear

const ParameterTable& recurrence_blocks() {
  static const ParameterTable table({
      {.name = "samples", .least = 1, .most = 256, .unsaid = 8, .powers_of_two = false, .tried = {1, 2, 4, 8, 16, 32}},
      {.name = "block_rows",
       .least = 1,
       .most = 1024,
       .unsaid = 256,
       .powers_of_two = false,
       .tried = {64, 128, 256, 512}},
      {.name = "block_columns", .least = 16, .most = 1024, .unsaid = 64, .tried = {32, 64, 128}},
  });
  return table;
}

bool takes_recurrence(const LoweredGroup& group) {
  const Recurrence& one = *group.recurrence;
  return one.linear || (one.dtype == DType::f32 && one.hidden <= kMostUnits);
}

// Every thread gets as many samples as the others, or one more.
Parameters default_recurrence_blocks(const LoweredGroup& group, const DeviceDescription& device) {
  const Recurrence& one = *group.recurrence;
  const int64_t threads = std::max<int64_t>(device.units, 1);
  if (one.linear) {
    const int64_t elements = ceil_divide(ceil_divide(one.hidden, threads), kUnitsOfVector) * kUnitsOfVector;
    return {{"samples", std::min(elements, kMostElements)}};
  }
  const int64_t blocks = ceil_divide(one.batch, threads * 16) * threads;
  return {{"samples", ceil_divide(one.batch, blocks)},
          {"block_rows", std::clamp<int64_t>(one.steps * one.batch, 1, kMostRowsOfProducts)},
          {"block_columns", 64}};
}

std::vector<ParameterRange> space_of_recurrences(const LoweredGroup&, const DeviceDescription&) {
  return recurrence_blocks().ranges();
}

ScheduledGroup lower_recurrence(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const ParameterTable& table = recurrence_blocks();
  const Recurrence& one = *group.recurrence;
  if (one.linear) return linear_step_kernel(group, {.lanes = table.read(parameters, "samples")});
  return recurrence_loops(group, {.samples = std::min(table.read(parameters, "samples"), one.batch),
                                  .rows = table.read(parameters, "block_rows"),
                                  .columns = table.read(parameters, "block_columns"),
                                  .vector = kUnitsOfVector});
}

}  // namespace

const Scheduler& recurrence_scheduler() {
  static const Scheduler scheduler{kRecurrenceScheduler.name, GroupWork::kRecurrences,   takes_recurrence,
                                   recurrence_blocks,         default_recurrence_blocks, space_of_recurrences,
                                   lower_recurrence};
  return scheduler;
}

}  // namespace kw::cpu
