#include "run/summary.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "run/worth.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kThresholds[] = {0, 0.5, 0.8, 1, 1.5, 2, 5};
constexpr const char* kBaselines[] = {"eager", "compile"};

struct Interval {
  double value = 0, low = 0, high = 0;
};

std::optional<Interval> speedup_of(const Json& line, const char* baseline) {
  if (!line.contains("speedup") || !line["speedup"].is_object() || !line["speedup"].contains(baseline))
    return std::nullopt;
  const Json& figure = line["speedup"][baseline];
  if (!figure.is_object() || !figure.contains("value") || !figure["value"].is_number()) return std::nullopt;
  const double value = figure["value"];
  return Interval{value, figure.value("low", value), figure.value("high", value)};
}

bool passed(const Json& line) { return line.value("verdict", "") == "pass"; }

Json against(const std::vector<const Json*>& lines, const char* baseline) {
  std::map<double, int> faster;
  double log_sum = 0;
  int measured = 0, wins = 0, losses = 0, slower_than_097 = 0;
  for (const Json* line : lines) {
    if (!passed(*line)) continue;
    const auto speedup = speedup_of(*line, baseline);
    if (!speedup) {
      ++faster[0];
      continue;
    }
    ++measured;
    log_sum += std::log(speedup->value);
    wins += speedup->low > 1;
    losses += speedup->high < 1;
    slower_than_097 += speedup->value < 0.97;
    for (const double threshold : kThresholds) faster[threshold] += threshold == 0 || speedup->value > threshold;
  }
  Json fast = Json::object();
  for (const double threshold : kThresholds)
    fast[fmt::format("{}", threshold)] = lines.empty() ? 0.0
                                                       : static_cast<double>(faster[threshold]) /
                                                             static_cast<double>(lines.size());
  Json out = {{"measured", measured},
              {"fast_p", fast},
              {"geometric_mean", nullptr},
              {"wins", wins},
              {"losses", losses},
              {"no_difference", measured - wins - losses},
              {"below_0.97", slower_than_097}};
  if (measured) out["geometric_mean"] = std::exp(log_sum / measured);
  return out;
}

// Of a language model: the mean over all problems; one that has no figure (the file does not load) counts as 0. Only
// the k that all the others have. Also best@k, the geometric mean of theirs.
void add_pass_at_k(Json& out, const std::vector<const Json*>& lines) {
  std::map<int, std::pair<double, int>> sums, best;  // of the logarithms
  int sampled = 0, judged = 0;
  for (const Json* line : lines) {
    if (!line->contains("pass_at_k")) continue;
    ++sampled;
    judged += line->value("judged", 0);
    for (const auto& [k, share] : (*line)["pass_at_k"].items()) {
      auto& [sum, count] = sums[std::stoi(k)];
      sum += share.get<double>();
      ++count;
    }
    if (!line->contains("best_at_k")) continue;
    for (const auto& [k, speedup] : (*line)["best_at_k"].items()) {
      auto& [sum, count] = best[std::stoi(k)];
      sum += std::log(speedup.get<double>());
      ++count;
    }
  }
  if (sampled == 0) return;
  out["samples"] = judged;
  out["pass_at_k"] = Json::object();
  for (const auto& [k, sum] : sums)
    if (sum.second == sampled) out["pass_at_k"][std::to_string(k)] = sum.first / static_cast<double>(lines.size());
  for (const auto& [k, sum] : best)
    if (sum.second == sampled)
      out["best_at_k"][std::to_string(k)] = std::exp(sum.first / static_cast<double>(lines.size()));
}

// Where a model came after the compiler: whose candidates were kept, and what each proposer had right and cost.
void add_proposers(Json& out, const std::vector<const Json*>& lines) {
  for (const Json* line : lines) {
    if (!line->contains("proposers")) continue;
    for (const Json& one : (*line)["proposers"]) {
      Json& sums = out["proposers"][one.value("proposer", "")];
      if (sums.is_null()) sums = {{"problems", 0}, {"kept", 0}, {"seconds", 0.0}};
      const auto add = [&](const char* field, const Json& value) {
        if (value.is_number_integer()) sums[field] = sums.value(field, int64_t{0}) + value.get<int64_t>();
        else if (value.is_number()) sums[field] = sums.value(field, 0.0) + value.get<double>();
      };
      add("problems", 1);
      add("kept", passed(*line) && one.value("proposer", "") == line->value("winner", "") ? 1 : 0);
      for (const char* field : {"seconds", "judged", "passed", "answers", "evaluated", "cost"})
        if (one.contains(field)) add(field, one[field]);
      if (one.contains("tokens"))
        add("tokens_read", one["tokens"]["prompt"]), add("tokens_written", one["tokens"]["completion"]);
    }
  }
}

Json group_figures(const std::vector<const Json*>& lines) {
  int correct = 0, emitted = 0, kernels = 0, kernels_compiled = 0;
  for (const Json* line : lines) {
    correct += passed(*line);
    emitted += line->value("verdict", "") == "emitted";
    if (line->contains("compiled") && (*line)["compiled"].is_object()) {
      kernels += (*line)["compiled"].value("kernels", 0);
      kernels_compiled += (*line)["compiled"].value("ok", 0);
    }
  }
  Json out = {{"problems", lines.size()}, {"correct", correct}};
  if (emitted) out["emitted"] = emitted;
  if (kernels) out["kernels_compiled"] = {{"ok", kernels_compiled}, {"of", kernels}};
  for (const char* baseline : kBaselines) out[baseline] = against(lines, baseline);
  add_pass_at_k(out, lines);
  add_proposers(out, lines);
  return out;
}

// Kernels that spill registers, and how many bytes of each thread's.
void add_spilling(Json& spilling, const Json& line) {
  if (!line.contains("compiled") || !line["compiled"].is_object() || !line["compiled"].contains("each")) return;
  for (const Json& kernel : line["compiled"]["each"])
    if (kernel.contains("spills") && kernel["spills"].is_number() && kernel["spills"] > 0)
      spilling.push_back({{"problem", line.value("name", line.value("problem", ""))},
                          {"kernel", kernel.value("name", "")},
                          {"bytes", kernel["spills"]},
                          {"registers", kernel["registers"]}});
}

// Right, and slower than eager beyond the noise of the timing.
void add_slower(Json& slower, const Json& line) {
  const auto speedup = speedup_of(line, "eager");
  if (passed(line) && speedup && speedup->high < kNotSlower)
    slower.push_back({{"problem", line.value("name", line.value("problem", ""))},
                      {"speedup", speedup->value},
                      {"high", speedup->high}});
}

std::string reason_of(const Json& line) {
  if (line.contains("error") && line["error"].is_object()) {
    const std::string where = line["error"].value("where", "");
    return line["error"].value("message", "") + (where.empty() ? "" : " (" + where + ")");
  }
  return line.value("reason", "");
}

std::string figure(const Json& value, const char* format) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : "-";
}

}  // namespace

Json summarise(const std::vector<Json>& lines) {
  std::vector<const Json*> all;
  std::map<std::string, std::vector<const Json*>> categories;
  Json failures = Json::array(), spilling = Json::array(), noisy = Json::array(), slower = Json::array();
  for (const Json& line : lines) {
    all.push_back(&line);
    categories[line.value("category", "")].push_back(&line);
    add_spilling(spilling, line);
    add_slower(slower, line);
    if (line.contains("noise") && line["noise"].value("noisy", false))
      noisy.push_back(
          {{"problem", line.value("problem", "")}, {"reasons", line["noise"].value("reasons", Json::array())}});
    const std::string verdict = line.value("verdict", "");
    if (verdict != "pass" && verdict != "emitted")
      failures.push_back({{"problem", line.value("problem", "")},
                          {"category", line.value("category", "")},
                          {"verdict", verdict},
                          {"reason", reason_of(line)}});
  }
  Json by_category = Json::object();
  for (const auto& [name, members] : categories) by_category[name.empty() ? "." : name] = group_figures(members);
  return {{"all", group_figures(all)},
          {"categories", by_category},
          {"slower", slower},
          {"spilling", spilling},
          {"noisy", noisy},
          {"failures", failures}};
}

std::string summary_text(const Json& summary) {
  std::string text;
  const auto row = [&](const std::string& name, const Json& group) {
    const bool emit_only = group.contains("emitted");
    text += fmt::format("{:<24} {:>8} {:>8}", name, group["problems"].get<int>(),
                        emit_only ? group["emitted"].get<int>() : group["correct"].get<int>());
    for (const char* baseline : kBaselines) {
      if (emit_only) break;
      const Json& figures = group[baseline];
      text += fmt::format("  {:>8} {:>4} {:>4} {:>4}", figure(figures["geometric_mean"], "{:.2f}x"),
                          figures["wins"].get<int>(), figures["no_difference"].get<int>(),
                          figures["losses"].get<int>());
    }
    text += "\n";
  };
  const Json& all = summary["all"];
  text += fmt::format("{:<24} {:>8} {:>8}", "category", "problems", all.contains("emitted") ? "emitted" : "correct");
  if (!all.contains("emitted"))
    for (const char* baseline : kBaselines)
      text += fmt::format("  {:>8} {:>4} {:>4} {:>4}", baseline, "won", "even", "lost");
  text += "\n";
  for (const auto& [name, group] : summary["categories"].items()) row(name, group);
  if (summary["categories"].size() > 1) row("all", all);
  for (const char* baseline : kBaselines) {
    if (all[baseline]["measured"] == 0) continue;
    text += fmt::format("\nfast_p against {:<8}", baseline);
    for (const auto& [threshold, share] : all[baseline]["fast_p"].items())
      text += fmt::format("  {}: {:.3f}", threshold, share.get<double>());
  }
  if (all.contains("pass_at_k")) {
    text += fmt::format("\n{} samples", all["samples"].get<int>());
    for (const auto& [k, share] : all["pass_at_k"].items())
      text += fmt::format("  pass@{}: {:.1f}%", k, 100 * share.get<double>());
    if (all.contains("best_at_k")) {
      text += "\nover eager, which stands in for what did not pass";
      for (const auto& [k, speedup] : all["best_at_k"].items())
        text += fmt::format("  best@{}: {:.2f}x", k, speedup.get<double>());
    }
  }
  if (all.contains("proposers"))
    for (const auto& [name, sums] : all["proposers"].items()) {
      text += fmt::format("\nproposer {:<20} kept for {} of {}", name, sums["kept"].get<int>(),
                          sums["problems"].get<int>());
      if (sums.contains("evaluated"))
        text += fmt::format(", {} of {} answers evaluated", sums["evaluated"].get<int>(), sums["answers"].get<int>());
      else if (sums.contains("judged"))
        text += fmt::format(", {} of {} answers right", sums["passed"].get<int>(), sums["judged"].get<int>());
      if (sums.contains("tokens_read"))
        text += fmt::format(", {} tokens", sums["tokens_read"].get<int64_t>() + sums["tokens_written"].get<int64_t>());
      if (sums.contains("cost")) text += fmt::format(" for {:.4g}", sums["cost"].get<double>());
      text += fmt::format(", {:.0f} s", sums["seconds"].get<double>());
    }
  if (all.contains("kernels_compiled"))
    text += fmt::format("\n{} of {} kernels compiled to machine code", all["kernels_compiled"]["ok"].get<int>(),
                        all["kernels_compiled"]["of"].get<int>());
  if (const Json& spilling = summary["spilling"]; !spilling.empty()) {
    text += fmt::format("\n{} kernel{} spill{} registers:", spilling.size(), spilling.size() == 1 ? "" : "s",
                        spilling.size() == 1 ? "s" : "");
    const char* separator = " ";
    for (const Json& kernel : spilling) {
      text += fmt::format("{}{}/{} {} B", separator, kernel["problem"].get<std::string>(),
                          kernel["kernel"].get<std::string>(), kernel["bytes"].get<int64_t>());
      separator = ", ";
    }
  }
  if (const Json& slower = summary["slower"]; !slower.empty()) {
    text += fmt::format("\n{} verified but slower than eager:", slower.size());
    const char* separator = " ";
    for (const Json& one : slower) {
      text += fmt::format("{}{} {:.2f}x", separator, one["problem"].get<std::string>(), one["speedup"].get<double>());
      separator = ", ";
    }
  }
  if (const Json& noisy = summary["noisy"]; !noisy.empty()) {
    text += fmt::format("\n{} timed while the machine was too noisy:", noisy.size());
    for (const Json& one : noisy)
      text += fmt::format("\n  {:<40} {}", one["problem"].get<std::string>(), one["reasons"][0].get<std::string>());
  }
  const Json& failures = summary["failures"];
  if (!failures.empty()) text += fmt::format("\n\n{} without a verified module:", failures.size());
  for (const Json& failure : failures)
    text += fmt::format("\n  {:<40} {}", failure["problem"].get<std::string>(), failure["reason"].get<std::string>());
  return text + "\n";
}

}  // namespace kw
