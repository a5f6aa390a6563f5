// JSON form of schedules: {"target": "triton", "groups": [{"nodes": [0, 1], "scheduler": "pointwise", "parameters":
// {"block": 1024}}, …]}. A group may have "kernels": {"relu_kernel": {…}}, the schedules of single ones
// (lower/schedule.hpp).
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "plan/schedule.hpp"

namespace kw {

std::string schedule_to_json(const Schedule& schedule, int indent = -1);
Schedule schedule_from_json(std::string_view text);  // throws kUser that names what is unknown or missing
// Of a file that has one, alone or in a report (docs/json.md). Throws kUser that names the file.
Schedule schedule_from_file(const std::string& path);
// A group's parameters alone, an object of whole numbers; throws kUser.
std::map<std::string, int64_t> parameters_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
