#include "run/result_line.hpp"

#include <nlohmann/json.hpp>

#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

ResultLine result_line_from_json(const Json& json) {
  ResultLine line{.problem = text_of(json, "problem"),
                  .name = text_of(json, "name"),
                  .category = text_of(json, "category"),
                  .error = std::nullopt,
                  .reason = text_of(json, "reason"),
                  .report = report_from_json(json)};
  if (const Json& error = member(json, "error"); error.is_object()) {
    const std::string where = text_of(error, "where");
    line.error = text_of(error, "message");
    line.reason = *line.error + (where.empty() ? "" : " (" + where + ")");
  }
  return line;
}

}  // namespace kw
