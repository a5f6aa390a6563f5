#include <fmt/format.h>

#include "run/summary.hpp"

namespace kw {

namespace {

std::string row(const std::string& name, const GroupFigures& group) {
  std::string text = fmt::format("{:<24} {:>8} {:>8}", name, group.problems,
                                 group.emitted ? group.emitted : group.correct);
  if (group.emitted) return text + "\n";
  for (const BaselineFigures& figures : group.against)
    text += fmt::format("  {:>8} {:>4} {:>4} {:>4}",
                        figures.geometric_mean ? fmt::format("{:.2f}x", *figures.geometric_mean) : "-", figures.wins,
                        figures.no_difference(), figures.losses);
  return text + "\n";
}

std::string samples_text(const SampleFigures& figures) {
  std::string text = fmt::format("\n{} samples", figures.samples);
  for (const auto& [k, share] : figures.pass_at_k) text += fmt::format("  pass@{}: {:.1f}%", k, 100 * share);
  if (figures.best_at_k.empty()) return text;
  text += "\nover eager, which stands in for what did not pass";
  for (const auto& [k, speedup] : figures.best_at_k) text += fmt::format("  best@{}: {:.2f}x", k, speedup);
  return text;
}

std::string proposer_text(const std::string& name, const ProposerFigures& sums) {
  std::string text = fmt::format("\nproposer {:<20} kept for {} of {}", name, sums.kept, sums.problems);
  if (sums.evaluated) text += fmt::format(", {} of {} answers evaluated", *sums.evaluated, sums.answers.value_or(0));
  else if (sums.judged) text += fmt::format(", {} of {} answers right", sums.passed.value_or(0), *sums.judged);
  if (sums.tokens_read) text += fmt::format(", {} tokens", *sums.tokens_read + sums.tokens_written.value_or(0));
  if (sums.cost) text += fmt::format(" for {:.4g}", *sums.cost);
  return text + fmt::format(", {:.0f} s", sums.seconds);
}

std::string spilling_text(const std::vector<Summary::Spilling>& spilling) {
  std::string text = fmt::format("\n{} kernel{} spill{} registers:", spilling.size(), spilling.size() == 1 ? "" : "s",
                                 spilling.size() == 1 ? "s" : "");
  const char* separator = " ";
  for (const Summary::Spilling& one : spilling) {
    text += fmt::format("{}{}/{} {} B", separator, one.problem, one.kernel, one.bytes);
    separator = ", ";
  }
  return text;
}

std::string slower_text(const std::vector<Summary::Slower>& slower) {
  std::string text = fmt::format("\n{} verified but slower than eager:", slower.size());
  const char* separator = " ";
  for (const Summary::Slower& one : slower) {
    text += fmt::format("{}{} {:.2f}x", separator, one.problem, one.speedup);
    separator = ", ";
  }
  return text;
}

}  // namespace

std::string summary_text(const Summary& summary) {
  const GroupFigures& all = summary.all;
  std::string text = fmt::format("{:<24} {:>8} {:>8}", "category", "problems", all.emitted ? "emitted" : "correct");
  if (!all.emitted)
    for (const Contender baseline : kBaselines)
      text += fmt::format("  {:>8} {:>4} {:>4} {:>4}", name_of(baseline), "won", "even", "lost");
  text += "\n";
  for (const auto& [name, group] : summary.categories) text += row(name, group);
  if (summary.categories.size() > 1) text += row("all", all);
  for (size_t i = 0; i < kBaselines.size(); ++i) {
    if (all.against[i].measured == 0) continue;
    text += fmt::format("\nfast_p against {:<8}", name_of(kBaselines[i]));
    for (size_t at = 0; at < kFastThresholds.size(); ++at)
      text += fmt::format("  {}: {:.3f}", kFastThresholds[at], all.against[i].fast[at]);
  }
  if (all.samples) text += samples_text(*all.samples);
  for (const auto& [name, sums] : all.proposers) text += proposer_text(name, sums);
  if (all.kernels)
    text += fmt::format("\n{} of {} kernels compiled to machine code", all.kernels_compiled, all.kernels);
  if (!summary.spilling.empty()) text += spilling_text(summary.spilling);
  if (!summary.slower.empty()) text += slower_text(summary.slower);
  if (!summary.noisy.empty()) text += fmt::format("\n{} timed while the machine was too noisy:", summary.noisy.size());
  for (const Summary::Noisy& one : summary.noisy)
    text += fmt::format("\n  {:<40} {}", one.problem, one.reasons.empty() ? "" : one.reasons.front());
  if (!summary.failures.empty()) text += fmt::format("\n\n{} without a verified module:", summary.failures.size());
  for (const Summary::Failure& one : summary.failures) text += fmt::format("\n  {:<40} {}", one.problem, one.reason);
  return text + "\n";
}

}  // namespace kw
