#include "plan/schedule_json.hpp"

#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/json_numbers.hpp"

namespace kw {

using nlohmann::ordered_json;

namespace {

template <typename T>
T whole(const ordered_json& value) {
  if (const auto number = whole_number<T>(value)) return *number;
  throw Error(ErrorKind::kUser, "this is not a schedule: " + value.dump() + " is no whole number, or too large a one");
}

}  // namespace

std::string schedule_to_json(const Schedule& schedule, int indent) {
  ordered_json json = {{"target", schedule.target}, {"groups", ordered_json::array()}};
  if (schedule.graphs) json["graphs"] = true;
  for (const auto& group : schedule.groups) {
    ordered_json one = {{"nodes", group.nodes}, {"scheduler", group.scheduler}, {"parameters", ordered_json::object()}};
    for (const auto& [name, value] : group.parameters) one["parameters"][name] = value;
    json["groups"].push_back(std::move(one));
  }
  return json.dump(indent);
}

std::map<std::string, int64_t> parameters_from_json(const ordered_json& json) {
  if (!json.is_object())
    throw Error(ErrorKind::kUser, "this is not a schedule: a group's parameters are no object: " + json.dump());
  std::map<std::string, int64_t> parameters;
  for (const auto& [name, value] : json.items()) parameters[name] = whole<int64_t>(value);
  return parameters;
}

Schedule schedule_from_json(std::string_view text) {
  Schedule schedule;
  try {
    const ordered_json json = ordered_json::parse(text);
    schedule.target = json.at("target").get<std::string>();
    schedule.graphs = json.value("graphs", false);
    for (const auto& one : json.at("groups")) {
      GroupSchedule group;
      for (const auto& node : one.at("nodes")) group.nodes.push_back(whole<NodeId>(node));
      group.scheduler = one.at("scheduler").get<std::string>();
      group.parameters = parameters_from_json(one.at("parameters"));
      schedule.groups.push_back(std::move(group));
    }
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorKind::kUser, std::string("this is not a schedule: ") + error.what());
  }
  return schedule;
}

}  // namespace kw
