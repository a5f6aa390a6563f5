#include "plan/kernel_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "plan/device_limits.hpp"
#include "support/error.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw {
namespace {

using Sources = std::vector<std::shared_ptr<const lower::Source>>;

// Of a group's kernels, in order: their own names, numbered where several have the same.
std::vector<std::string> names_of(const Sources& sources) {
  std::vector<std::string> names;
  std::map<std::string, int> times;
  for (const auto& source : sources) {
    const int time = ++times[source->kernel.name];
    names.push_back(source->kernel.name + (time > 1 ? "_" + std::to_string(time) : ""));
  }
  return names;
}

bool is_cooperative(const lower::KernelSchedule& schedule) {
  return std::any_of(schedule.axes.begin(), schedule.axes.end(), [](const auto& axis) { return axis.cooperative; });
}

[[noreturn]] void bad_schedule(const std::string& what, const std::string& hint) {
  throw Error(
      ErrorKind::kUser,
      ErrorText{.message = what, .where = {}, .source = {}, .hint = hint, .detail = {}, .code = "bad-schedule"});
}

}  // namespace

Schedule with_kernel_schedules(Schedule schedule, const Program& program) {
  for (size_t group = 0; group < program.group_sources.size(); ++group) {
    const Sources& sources = program.group_sources[group];
    const std::vector<std::string> names = names_of(sources);
    for (size_t at = 0; at < names.size(); ++at)
      schedule.groups[group].kernels[names[at]] = to_json(sources[at]->schedule, sources[at]->kernel).dump();
  }
  return schedule;
}

namespace plan {

void reschedule(ScheduledGroup& made, const std::map<std::string, std::string>& kernels,
                const DeviceDescription& device, const std::string& group) {
  if (kernels.empty()) return;
  Sources sources;
  for (const ScheduledTiles& one : made.tiles) sources.push_back(one.source);
  const std::vector<std::string> names = names_of(sources);
  for (const auto& [name, text] : kernels) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string near = nearest(name, names);
      bad_schedule(
          fmt::format("{} has no kernel '{}'", group, name),
          fmt::format("{}Its kernels are {}.", near.empty() ? "" : "Did you mean '" + near + "'? ", join(names, ", ")));
    }
    const auto place = static_cast<size_t>(found - names.begin());
    ScheduledTiles& tiles = made.tiles[place];
    const lower::KernelSchedule& before = tiles.source->schedule;
    try {
      lower::KernelSchedule now = lower::parse_schedule(
          std::string_view(text), tiles.source->kernel,
          target_of(device).is_host() ? lower::Widths::kAny : lower::Widths::kPowersOfTwo);
      if (now == before) continue;
      const bool shares_launch = tiles.by_last || (place + 1 < made.tiles.size() && made.tiles[place + 1].by_last);
      if (shares_launch || is_cooperative(before) || is_cooperative(now) || now.steps_inside != before.steps_inside)
        bad_schedule("its blocks wait for each other, for which its scheduler has laid out memory",
                     "Change the scheduler's parameters instead.");
      tiles.source = std::make_shared<const lower::Source>(lower::Source{tiles.source->kernel, std::move(now)});
      tiles.program = lower::to_tiles(tiles.source->kernel, tiles.source->schedule);
      check_limits(tiles.program, device);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      bad_schedule(fmt::format("{}, kernel '{}': {}", group, name, error.text().message), error.text().hint);
    }
  }
}

}  // namespace plan

}  // namespace kw
