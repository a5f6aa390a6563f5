#include "run/worth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "run/generate.hpp"
#include "run/optimize.hpp"
#include "support/text.hpp"

namespace kw {

namespace {

constexpr double kSearchWorthTrying = 30;  // seconds beyond timing that --budget is advised to leave for a search

// As a shell reads it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kHarmless = "_-./:=,+@%";
  const auto plain = [&](unsigned char c) {
    return std::isalnum(c) || kHarmless.find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// The options that decide what is asked, as far as they are not the defaults.
template <typename Options>
std::string command_of(const char* name, const Options& options) {
  const Options defaults;
  std::string text = std::string("kw ") + name + " " + quoted(options.problem);
  const auto add = [&](const char* option, const std::string& value, const std::string& usual) {
    if (value != usual) text += std::string(" ") + option + " " + quoted(value);
  };
  add("-o", options.output, defaults.output);
  add("--target", options.target, defaults.target);
  add("--size", options.size, defaults.size);
  add("--policy", options.policy, defaults.policy);
  add("--baseline", join(options.baselines, ","), join(defaults.baselines, ","));
  if (options.force) text += " --force";
  return text;
}

// Has a search, whoever asked for it, left nothing to try?
bool nothing_left_to_try(const Searches& searches) {
  return (searches.search && searches.search->is_exhausted) || (searches.rescue && searches.rescue->is_exhausted);
}

}  // namespace

bool too_slow(const Measurement& made, double least) {
  const auto& eager = made.speedup_over(Contender::kEager);
  return eager && eager->ratio.high < least;
}

double speedup_over_eager(const Measurement& made) {
  const auto& eager = made.speedup_over(Contender::kEager);
  return eager ? eager->ratio.value : 0;
}

std::vector<Advice> advice_for(const OptimizeOptions& options, const Searches& searches) {
  std::vector<Advice> advice;
  const std::string command = command_of("optimize", options);
  const double search = std::max(kSearchWorthTrying, 2 * options.search_seconds());
  if (!nothing_left_to_try(searches))
    advice.push_back({fmt::format("{} --budget {:.0f}", command, kTimingSeconds + search),
                      fmt::format("searches other schedules for {:.0f} s", search)});
  const bool usual = options.budget_seconds == OptimizeOptions().budget_seconds;
  const std::string budget = usual ? "" : fmt::format(" --budget {:g}", options.budget_seconds);
  if (options.min_speedup > 0)
    advice.push_back({command + budget + " --min-speedup 0", "writes it all the same, from the archive"});
  return advice;
}

std::vector<Advice> advice_for(const GenerateOptions& options) {
  std::vector<Advice> advice = {{command_of("optimize", options), "has the compiler make the kernels"}};
  const std::string model = " --model " + quoted(options.model.model);
  if (options.min_speedup > 0)
    advice.push_back({command_of("generate", options) + model + " --min-speedup 0", "writes it all the same"});
  return advice;
}

Worth::BesideEager beside_eager(const Measurement& made) {
  if (!made.speedup_over(Contender::kEager)) return Worth::BesideEager::kNotTimed;
  return too_slow(made, kNotSlower) ? Worth::BesideEager::kSlower : Worth::BesideEager::kNotSlower;
}

bool decide(Report& report, double min_speedup, const std::vector<Advice>& advice) {
  const Measurement& made = report.timing.measured;
  const bool written = !too_slow(made, min_speedup), slower = too_slow(made, kNotSlower);
  Worth& worth = report.worth;
  worth.min_speedup = min_speedup;
  worth.beside_eager = beside_eager(made);
  worth.written = written;
  worth.advice = !written || slower ? advice : std::vector<Advice>{};
  if (!written) report.candidate.clear();
  return written;
}

}  // namespace kw
