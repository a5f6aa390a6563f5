// A report (docs/json.md) in words, for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kw::cli {

std::string optimize_text(const nlohmann::ordered_json& report);
std::string generate_text(const nlohmann::ordered_json& report);
std::string edits_text(const nlohmann::ordered_json& report);
std::string verify_text(const nlohmann::ordered_json& report);
std::string measure_text(const nlohmann::ordered_json& report);
std::string device_text(const nlohmann::ordered_json& report);

}  // namespace kw::cli
