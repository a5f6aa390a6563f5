#include "support/json_fields.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

template <typename Value, typename IsOne>
std::vector<std::pair<std::string, Value>> values_by_name(const Json& json, const char* name, const IsOne& is_one) {
  std::vector<std::pair<std::string, Value>> read;
  const Json& values = member(json, name);
  if (!values.is_object()) return read;
  for (const auto& [key, value] : values.items())
    if (is_one(value)) read.emplace_back(key, value.template get<Value>());
  return read;
}

}  // namespace

const Json& member(const Json& json, const char* name) {
  static const Json nothing;
  if (!json.is_object()) return nothing;
  const auto found = json.find(name);
  return found == json.end() ? nothing : *found;
}

const Json& rows_of(const Json& json, const char* name) {
  static const Json none = Json::array();
  const Json& rows = member(json, name);
  return rows.is_array() ? rows : none;
}

std::string text_of(const Json& json, const char* name) { return text_where_told(json, name).value_or(""); }

bool flag_of(const Json& json, const char* name) { return flag_where_told(json, name).value_or(false); }

std::optional<std::string> text_where_told(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

std::optional<bool> flag_where_told(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<double> figure_of(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<int64_t> count_of(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_number() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::vector<std::string> texts_of(const Json& json, const char* name) {
  std::vector<std::string> texts;
  for (const Json& value : rows_of(json, name))
    if (value.is_string()) texts.push_back(value.get<std::string>());
  return texts;
}

std::vector<std::pair<std::string, int64_t>> counts_of(const Json& json, const char* name) {
  return values_by_name<int64_t>(json, name, [](const Json& value) { return value.is_number(); });
}

std::vector<std::pair<std::string, double>> figures_by_name(const Json& json, const char* name) {
  return values_by_name<double>(json, name, [](const Json& value) { return value.is_number(); });
}

std::vector<std::pair<std::string, std::string>> texts_by_name(const Json& json, const char* name) {
  return values_by_name<std::string>(json, name, [](const Json& value) { return value.is_string(); });
}

std::optional<std::map<int, double>> figures_by_number(const Json& json, const char* name) {
  const Json& values = member(json, name);
  if (!values.is_object()) return std::nullopt;
  std::map<int, double> read;
  for (const auto& [key, value] : values.items()) {
    int number = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error == std::errc() && end == key.data() + key.size() && value.is_number()) read[number] = value.get<double>();
  }
  return read;
}

}  // namespace kw
