// What a search came to, for the report: `search`, `rescue`, `relief` and `proposed` of docs/json.md.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "search/search.hpp"

namespace kw {

struct SearchTrial {
  std::string change;
  search::Outcome::State state = search::Outcome::State::kFailed;
  std::optional<double> ratio;  // to the first candidate's time, as far as it was timed
  double best = 1.0;            // of all that were measured so far
  bool is_reused = false;
  std::string reason;  // of a failure

  std::optional<double> measured_ratio() const {
    return state == search::Outcome::State::kMeasured ? ratio : std::nullopt;
  }
};

// The search when it had found something better than all before.
struct SearchProgress {
  double seconds = 0.0;
  int64_t tried = 0;
  double speedup = 1.0;
  std::string change;
};

struct SearchOutcome {
  double budget_seconds = 0.0;
  int64_t evaluations = 0;  // that were asked for; 0 of a search by time
  double seconds = 0.0;
  uint64_t seed = 0;
  int64_t tried = 0, pruned = 0, failed = 0, reused = 0;
  bool is_exhausted = false;
  std::optional<double> speedup;  // over the first candidate
  std::vector<SearchProgress> history;
  std::vector<SearchTrial> trials;
  std::string schedule;  // the winner's, as JSON
};

SearchOutcome outcome_of(const search::SearchResult& result, int evaluations, double seconds);

nlohmann::ordered_json to_json(const SearchOutcome& outcome);

// Nothing of what is no object; what is missing or of another type is as if it were not there.
std::optional<SearchOutcome> search_outcome_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
