// A CPU kernel keeps its ordered, merged axes. What the parameters (LoopChoices, by name) do not say of loops, threads
// and SIMD, loop_nest chooses from the accesses.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "targets/cpu/parts.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

const ParameterTable& loop_choices() {
  static const ParameterTable table = [] {
    std::vector<ParameterSpec> specs;
    for (const cpu::ChoiceLimits& limits : cpu::choice_limits())
      for (const auto& [choice, name] : kLoopChoiceNames)
        if (choice == limits.choice)
          specs.push_back({.name = name,
                           .least = 0,
                           .most = limits.most,
                           .unsaid = 0,
                           .powers_of_two = limits.powers_of_two,
                           .tried = limits.tried});
    return ParameterTable(std::move(specs));
  }();
  return table;
}

struct Prepared {
  LoweredGroup group;  // its axes in order
  LoopHints hints;
};

Prepared prepared(LoweredGroup group, const Parameters& parameters) {
  Prepared made{std::move(group), {}};
  for (const auto& [choice, name] : kLoopChoiceNames)
    made.hints.choices.*choice = loop_choices().read(parameters, name);
  GroupKernel& kernel = made.group.kernel;
  if (scatters(kernel)) put_meeting_axes_last(kernel);
  order_by_stride(kernel);
  coalesce(kernel);
  // The SIMD loop runs along the axis on which most traffic is contiguous.
  for (const auto& one : traffic_of(kernel))
    for (int axis = axis_count(kernel); axis-- > 0;)
      if (stride_along(*one.access, axis) == 1) {
        made.hints.contiguous_axis = axis;
        return made;
      }
  return made;
}

ScheduledGroup scheduled(Prepared made) {
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(made.group), made.hints));
  return result;
}

ScheduledGroup lower_elements(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  return scheduled(prepared(std::move(group), parameters));
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription&) {
  std::vector<ParameterRange> ranges;
  const Prepared made = prepared(group, {});
  for (int64_t LoopChoices::* one : cpu::choices_of(made.group.kernel, made.hints))
    for (const auto& [choice, name] : kLoopChoiceNames)
      if (choice == one) ranges.push_back(loop_choices().range(name));
  return ranges;
}

Parameters defaults(const LoweredGroup&, const DeviceDescription&) { return {}; }

// Scans are walked as their rows lie in memory.
LoweredGroup facing_forwards(LoweredGroup group) {
  if (!sorts(group.kernel)) face_forwards(group.kernel);
  return group;
}

std::vector<ParameterRange> space_of_scans(const LoweredGroup& group, const DeviceDescription& device) {
  return space(facing_forwards(group), device);
}

ScheduledGroup lower_scans(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  return scheduled(prepared(facing_forwards(std::move(group)), parameters));
}

bool starts_anywhere(const GroupKernel& kernel) {
  const int inner = kernel.parallel - 1, last = axis_count(kernel) - 1;
  const auto axes = kernel::dependences(kernel);
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const Expr& expr) {
    return looks_up(expr) && axes[lookup_of(expr.access)][inner] && std::abs(stride_along(expr.access, last)) == 1;
  });
}

// Of a scheduled kernel: the SIMD loop runs along neighbouring windows, unless those are few and long, or start
// anywhere, so that it would read single elements.
bool runs_across(const GroupKernel& kernel) {
  const int inner = kernel.parallel - 1;
  return extent_of(kernel.symbols.back()) < 8 ||
         (inner >= 0 && extent_of(kernel, inner) >= 8 && !starts_anywhere(kernel));
}

const ParameterTable& choices_of_windows() {
  static const ParameterTable table = [] {
    std::vector<ParameterSpec> specs = loop_choices().specs();
    specs.push_back({.name = "across", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}});
    return ParameterTable(std::move(specs));
  }();
  return table;
}

std::vector<ParameterRange> space_of_windows(const LoweredGroup& group, const DeviceDescription& device) {
  std::vector<ParameterRange> ranges = space(group, device);
  if (std::any_of(group.kernel.symbols.begin() + group.kernel.parallel, group.kernel.symbols.end(),
                  [](const kernel::SymbolInfo& axis) { return extent_of(axis) >= 8; })) {
    ranges.push_back(choices_of_windows().range("across"));  // shorter windows are never what the SIMD loop runs along
    ranges.back().unsaid = runs_across(prepared(group, {}).group.kernel) ? 1 : 0;
  }
  return ranges;
}

ScheduledGroup lower_windows(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  Prepared made = prepared(std::move(group), parameters);
  GroupKernel& kernel = made.group.kernel;
  const bool across = parameters.contains("across") ? parameters.at("across") != 0 : runs_across(kernel);
  made.hints.folds_inside = across && kernel.parallel < axis_count(kernel);
  name_windows(kernel);
  return scheduled(std::move(made));
}

const ParameterTable& no_choices() {
  static const ParameterTable table({});
  return table;
}

std::vector<ParameterRange> space_of_bags(const LoweredGroup&, const DeviceDescription&) { return {}; }

// The SIMD loop runs along the columns; were it to run along the bags, none could end before the longest axis does.
ScheduledGroup lower_bags(LoweredGroup group, const Parameters&, const DeviceDescription&) {
  Prepared made{std::move(group), {}};
  GroupKernel& kernel = made.group.kernel;
  order_by_stride(kernel);
  const int inner = kernel.parallel - 1, entries = axis_count(kernel) - 1;
  if (is_serial(kernel, entries)) {
    made.hints.folds_inside = inner > 0;
    if (inner == 0) made.hints.contiguous_axis = entries;
  }
  name_bags(kernel);
  return scheduled(std::move(made));
}

}  // namespace

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> table = {
      {kPointwise, GroupWork::kElements, is_pointwise, loop_choices, defaults, space, lower_elements},
      {kScan, GroupWork::kElements, is_scan, loop_choices, defaults, space_of_scans, lower_scans},
      {kBags, GroupWork::kElements, is_bags, no_choices, defaults, space_of_bags, lower_bags},
      {kSliding, GroupWork::kElements, is_sliding, choices_of_windows, defaults, space_of_windows, lower_windows},
      {kReduction, GroupWork::kElements, is_reduction, loop_choices, defaults, space, lower_elements},
      {kNormalisation, GroupWork::kElements, is_normalisation, loop_choices, defaults, space, lower_elements},
      attention_scheduler(),
      contraction_scheduler(),
      convolution_scheduler(),
      recurrence_scheduler()};
  return table;
}

}  // namespace kw::cpu
