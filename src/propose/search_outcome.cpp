#include "propose/search_outcome.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plan/schedule_json.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;
using State = search::Outcome::State;

namespace {

constexpr std::array kStates = {State::kMeasured, State::kPruned, State::kFailed};

const char* name_of(State state) {
  return state == State::kMeasured ? "measured" : state == State::kPruned ? "stopped" : "failed";
}

Json trial_json(const SearchTrial& one) {
  Json json = {{"change", one.change},
               {"state", name_of(one.state)},
               {"ratio", or_null(one.ratio)},
               {"best", one.best},
               {"reused", one.is_reused}};
  put_text(json, "reason", one.reason);
  return json;
}

SearchTrial trial_from_json(const Json& json) {
  SearchTrial trial{.change = text_of(json, "change"),
                    .state = State::kFailed,
                    .ratio = figure_of(json, "ratio"),
                    .best = figure_of(json, "best").value_or(1),
                    .is_reused = flag_of(json, "reused"),
                    .reason = text_of(json, "reason")};
  const std::string state = text_of(json, "state");
  for (const State one : kStates)
    if (state == name_of(one)) trial.state = one;
  return trial;
}

SearchProgress progress_from_json(const Json& json) {
  return {.seconds = figure_of(json, "seconds").value_or(0),
          .tried = count_of(json, "tried").value_or(0),
          .speedup = figure_of(json, "speedup").value_or(1),
          .change = text_of(json, "change")};
}

}  // namespace

SearchOutcome outcome_of(const search::SearchResult& result, int evaluations, double seconds) {
  SearchOutcome outcome{.budget_seconds = 0,
                        .evaluations = evaluations,
                        .seconds = seconds,
                        .seed = 0,
                        .tried = result.standing.tried,
                        .pruned = result.standing.pruned,
                        .failed = result.standing.failed,
                        .reused = result.standing.reused,
                        .is_exhausted = result.exhausted,
                        .speedup = 1 / result.ratio,
                        .history = {},
                        .trials = {},
                        .schedule = schedule_to_json(result.schedule)};
  for (const search::Progressed& one : result.history)
    outcome.history.push_back({one.seconds, one.tried, 1 / one.ratio, one.change});
  double best = 1;
  for (const search::Trial& one : result.trials) {
    const search::Outcome& made = one.outcome;
    if (made.state == State::kMeasured) best = std::min(best, made.ratio);
    outcome.trials.push_back({.change = one.change,
                              .state = made.state,
                              .ratio = made.ratio > 0 ? std::optional(made.ratio) : std::nullopt,
                              .best = best,
                              .is_reused = made.reused,
                              .reason = made.reason});
  }
  return outcome;
}

Json to_json(const SearchOutcome& outcome) {
  Json history = Json::array(), trials = Json::array();
  for (const SearchProgress& one : outcome.history)
    history.push_back(
        {{"seconds", one.seconds}, {"tried", one.tried}, {"speedup", one.speedup}, {"change", one.change}});
  for (const SearchTrial& one : outcome.trials) trials.push_back(trial_json(one));
  Json schedule = Json::parse(outcome.schedule, nullptr, false);
  if (schedule.is_discarded()) schedule = nullptr;
  return {{"budget_seconds", outcome.budget_seconds},
          {"evaluations", outcome.evaluations},
          {"seconds", outcome.seconds},
          {"seed", outcome.seed},
          {"tried", outcome.tried},
          {"pruned", outcome.pruned},
          {"failed", outcome.failed},
          {"reused", outcome.reused},
          {"exhausted", outcome.is_exhausted},
          {"speedup", or_null(outcome.speedup)},
          {"history", std::move(history)},
          {"trials", std::move(trials)},
          {"schedule", std::move(schedule)}};
}

std::optional<SearchOutcome> search_outcome_from_json(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  SearchOutcome outcome{.budget_seconds = figure_of(json, "budget_seconds").value_or(0),
                        .evaluations = count_of(json, "evaluations").value_or(0),
                        .seconds = figure_of(json, "seconds").value_or(0),
                        .seed = static_cast<uint64_t>(count_of(json, "seed").value_or(0)),
                        .tried = count_of(json, "tried").value_or(0),
                        .pruned = count_of(json, "pruned").value_or(0),
                        .failed = count_of(json, "failed").value_or(0),
                        .reused = count_of(json, "reused").value_or(0),
                        .is_exhausted = flag_of(json, "exhausted"),
                        .speedup = figure_of(json, "speedup"),
                        .history = {},
                        .trials = {},
                        .schedule = {}};
  if (const Json& schedule = member(json, "schedule"); schedule.is_object()) outcome.schedule = schedule.dump();
  for (const Json& one : rows_of(json, "history")) outcome.history.push_back(progress_from_json(one));
  for (const Json& one : rows_of(json, "trials")) outcome.trials.push_back(trial_from_json(one));
  return outcome;
}

}  // namespace kw
