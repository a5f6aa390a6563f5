#include <nlohmann/json.hpp>

#include "run/result_line.hpp"
#include "support/error_json.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr int kLineVersion = 1;

}  // namespace

std::string ResultLine::reason() const {
  if (!error) return report.reason;
  const ErrorText& text = error->text();
  return text.message + (text.where.empty() ? "" : " (" + text.where + ")");
}

Json to_json(const ResultLine& line) {
  const Json report = to_json(line.report);
  Json json = {{"version", kLineVersion}, {"problem", line.problem}, {"name", line.name}, {"category", line.category}};
  if (!line.key.empty()) json["key"] = Json::parse(line.key);
  if (line.error) {
    json["verdict"] = line.report.verdict;
    json["reason"] = line.report.reason;
    json["exit_code"] = line.error->exit_code();
    put_text(json, "text", line.error_text);
    json["error"] = to_json(*line.error);
  }
  for (const auto& [name, value] : report.items())
    if (!json.contains(name)) json[name] = value;
  return json;
}

std::string to_text(const ResultLine& line) {
  return to_json(line).dump(-1, ' ', false, Json::error_handler_t::replace);
}

ResultLine result_line_from_json(const Json& json) {
  const Json& key = member(json, "key");
  return {.problem = text_of(json, "problem"),
          .name = text_of(json, "name"),
          .category = text_of(json, "category"),
          .key = key.is_null() ? "" : key.dump(),
          .report = report_from_json(json),
          .error = error_from_json(member(json, "error")),
          .error_text = text_of(json, "text")};
}

std::optional<ResultLine> result_line_from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(result_line_from_json(json)) : std::nullopt;
}

}  // namespace kw
