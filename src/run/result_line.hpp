// One line of results.jsonl (docs/json.md): a problem, and what became of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "run/report.hpp"
#include "support/error.hpp"

namespace kw {

struct ResultLine {
  std::string problem, name, category;
  std::string key;             // JSON: what must agree for a later run to skip the problem; empty: none was given
  Report report;               // where the run ended in an error, its verdict, reason and seconds alone
  std::optional<Error> error;  // that the run ended in
  std::string error_text;      // the same as a person is shown it; may be empty

  const std::string& title() const { return name.empty() ? problem : name; }
  std::string reason() const;  // of the report, or the error with its place
};

nlohmann::ordered_json to_json(const ResultLine& line);
std::string to_text(const ResultLine& line);  // the JSON in one line, without its end

// Fields that are missing or of another type are as if they were not there.
ResultLine result_line_from_json(const nlohmann::ordered_json& json);
std::optional<ResultLine> result_line_from_text(std::string_view text);  // none where it is no JSON object

}  // namespace kw
