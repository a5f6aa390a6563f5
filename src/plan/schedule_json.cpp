#include "plan/schedule_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/error.hpp"
#include "support/json_numbers.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"

namespace kw {

using nlohmann::ordered_json;

namespace {

template <typename T>
T whole(const ordered_json& value) {
  if (const auto number = whole_number<T>(value)) return *number;
  throw Error(ErrorKind::kUser, "this is not a schedule: " + value.dump() + " is no whole number, or too large a one");
}

void check_words(const ordered_json& json, const std::string& what, const std::vector<std::string>& words) {
  for (const auto& [word, value] : json.items()) {
    if (std::find(words.begin(), words.end(), word) != words.end()) continue;
    const std::string near = nearest(word, words);
    throw Error(ErrorKind::kUser, "this is not a schedule: " + what + " has no '" + word + "'",
                (near.empty() ? "" : "Did you mean '" + near + "'? ") + "It has " + join(words, ", ") + ".");
  }
}

std::map<std::string, std::string> kernels_from_json(const ordered_json& json, const std::string& group) {
  std::map<std::string, std::string> kernels;
  if (!json.is_object())
    throw Error(ErrorKind::kUser, "this is not a schedule: the kernels of " + group + " are no object: " + json.dump());
  for (const auto& [name, schedule] : json.items()) kernels[name] = schedule.dump();
  return kernels;
}

}  // namespace

std::string schedule_to_json(const Schedule& schedule, int indent) {
  ordered_json json = {{"target", schedule.target}, {"groups", ordered_json::array()}};
  if (schedule.graphs) json["graphs"] = true;
  for (const auto& group : schedule.groups) {
    ordered_json one = {{"nodes", group.nodes}, {"scheduler", group.scheduler}, {"parameters", ordered_json::object()}};
    for (const auto& [name, value] : group.parameters) one["parameters"][name] = value;
    for (const auto& [name, text] : group.kernels) one["kernels"][name] = ordered_json::parse(text);
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
    check_words(json, "it", {"target", "groups", "graphs"});
    for (const auto& one : json.at("groups")) {
      GroupSchedule group;
      const std::string name = "group " + std::to_string(schedule.groups.size());
      check_words(one, name, {"nodes", "scheduler", "parameters", "kernels"});
      for (const auto& node : one.at("nodes")) group.nodes.push_back(whole<NodeId>(node));
      group.scheduler = one.at("scheduler").get<std::string>();
      group.parameters = parameters_from_json(one.at("parameters"));
      if (one.contains("kernels")) group.kernels = kernels_from_json(one["kernels"], name);
      schedule.groups.push_back(std::move(group));
    }
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorKind::kUser, std::string("this is not a schedule: ") + error.what());
  }
  return schedule;
}

Schedule schedule_from_file(const std::string& path) {
  try {
    const std::string text = read_file(path);
    const ordered_json json = ordered_json::parse(text, nullptr, false);
    const bool is_report = json.is_object() && json.contains("schedule") && !json.contains("groups");
    return schedule_from_json(is_report ? json["schedule"].dump() : text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser) throw;
    ErrorText text = error.text();
    if (text.where.empty()) text.where = path;
    throw Error(ErrorKind::kUser, std::move(text));
  }
}

}  // namespace kw
