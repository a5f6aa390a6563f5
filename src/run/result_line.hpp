// One line of results.jsonl (docs/json.md), as far as a suite's summary reads it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "run/report.hpp"

namespace kw {

struct ResultLine {
  std::string problem, name, category;
  std::optional<std::string> error;  // what an error says, where the run ended in one
  std::string reason;                // of the report, or the error with its place
  Report report;

  const std::string& title() const { return name.empty() ? problem : name; }
};

// Fields that are missing or of another type are as if they were not there.
ResultLine result_line_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
