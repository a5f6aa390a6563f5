// Values as members of a JSON object: json_fields.hpp the other way round.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kw {

template <typename Value>
nlohmann::ordered_json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

// A member only where there is a value.
template <typename Value>
void put(nlohmann::ordered_json& json, const char* name, const std::optional<Value>& value) {
  if (value) json[name] = *value;
}

inline void put_text(nlohmann::ordered_json& json, const char* name, const std::string& text) {
  if (!text.empty()) json[name] = text;
}

// An object, in the order of the pairs.
template <typename Value>
nlohmann::ordered_json by_name(const std::vector<std::pair<std::string, Value>>& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}

inline nlohmann::ordered_json by_number(const std::map<int, double>& figures) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [number, figure] : figures) json[std::to_string(number)] = figure;
  return json;
}

}  // namespace kw
