#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "run/summary.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

Json baseline_json(const BaselineFigures& figures) {
  Json fast = Json::object();
  for (size_t i = 0; i < kFastThresholds.size(); ++i) fast[fmt::format("{}", kFastThresholds[i])] = figures.fast[i];
  return {
      {"measured", figures.measured},   {"fast_p", fast},           {"geometric_mean", or_null(figures.geometric_mean)},
      {"wins", figures.wins},           {"losses", figures.losses}, {"no_difference", figures.no_difference()},
      {"below_0.97", figures.below_097}};
}

Json proposer_json(const ProposerFigures& sums) {
  Json json = {{"problems", sums.problems}, {"kept", sums.kept}, {"seconds", sums.seconds}};
  put(json, "judged", sums.judged);
  put(json, "passed", sums.passed);
  put(json, "answers", sums.answers);
  put(json, "evaluated", sums.evaluated);
  put(json, "cost", sums.cost);
  put(json, "tokens_read", sums.tokens_read);
  put(json, "tokens_written", sums.tokens_written);
  return json;
}

Json group_json(const GroupFigures& group) {
  Json json = {{"problems", group.problems}, {"correct", group.correct}};
  if (group.emitted) json["emitted"] = group.emitted;
  if (group.kernels) json["kernels_compiled"] = {{"ok", group.kernels_compiled}, {"of", group.kernels}};
  for (size_t i = 0; i < kBaselines.size(); ++i) json[name_of(kBaselines[i])] = baseline_json(group.against[i]);
  if (group.samples) {
    json["samples"] = group.samples->samples;
    json["pass_at_k"] = by_number(group.samples->pass_at_k);
    if (!group.samples->best_at_k.empty()) json["best_at_k"] = by_number(group.samples->best_at_k);
  }
  for (const auto& [name, sums] : group.proposers) json["proposers"][name] = proposer_json(sums);
  return json;
}

}  // namespace

Json to_json(const Summary& summary) {
  Json categories = Json::object(), slower = Json::array(), spilling = Json::array(), noisy = Json::array(),
       failures = Json::array();
  for (const auto& [name, group] : summary.categories) categories[name] = group_json(group);
  for (const Summary::Slower& one : summary.slower)
    slower.push_back({{"problem", one.problem}, {"speedup", one.speedup}, {"high", one.high}});
  for (const Summary::Spilling& one : summary.spilling)
    spilling.push_back({{"problem", one.problem},
                        {"kernel", one.kernel},
                        {"bytes", one.bytes},
                        {"registers", or_null(one.registers)}});
  for (const Summary::Noisy& one : summary.noisy) noisy.push_back({{"problem", one.problem}, {"reasons", one.reasons}});
  for (const Summary::Failure& one : summary.failures)
    failures.push_back(
        {{"problem", one.problem}, {"category", one.category}, {"verdict", one.verdict}, {"reason", one.reason}});
  return {{"all", group_json(summary.all)}, {"categories", categories}, {"slower", slower},
          {"spilling", spilling},           {"noisy", noisy},           {"failures", failures}};
}

}  // namespace kw
