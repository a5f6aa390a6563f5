#include "run/summary.hpp"

#include <algorithm>
#include <cmath>

#include "run/worth.hpp"

namespace kw {

namespace {

using Lines = std::vector<const ResultLine*>;

BaselineFigures against(const Lines& lines, const std::string& baseline) {
  BaselineFigures figures;
  std::array<int, kFastThresholds.size()> faster{};
  double log_sum = 0;
  for (const ResultLine* line : lines) {
    if (!line->passed()) continue;
    const auto found = line->speedup.find(baseline);
    if (found == line->speedup.end()) {
      ++faster[0];
      continue;
    }
    const MeasuredSpeedup& speedup = found->second;
    ++figures.measured;
    log_sum += std::log(speedup.value);
    figures.wins += speedup.low > 1;
    figures.losses += speedup.high < 1;
    figures.below_097 += speedup.value < 0.97;
    for (size_t i = 0; i < kFastThresholds.size(); ++i) faster[i] += i == 0 || speedup.value > kFastThresholds[i];
  }
  if (!lines.empty())
    for (size_t i = 0; i < kFastThresholds.size(); ++i)
      figures.fast[i] = static_cast<double>(faster[i]) / static_cast<double>(lines.size());
  if (figures.measured) figures.geometric_mean = std::exp(log_sum / figures.measured);
  return figures;
}

std::optional<SampleFigures> samples_of(const Lines& lines) {
  std::map<int, std::pair<double, int>> sums, best;  // of the logarithms
  int sampled = 0;
  SampleFigures figures;
  for (const ResultLine* line : lines) {
    if (!line->pass_at_k) continue;
    ++sampled;
    figures.samples += line->judged;
    for (const auto& [k, share] : *line->pass_at_k) {
      auto& [sum, count] = sums[k];
      sum += share;
      ++count;
    }
    if (!line->best_at_k) continue;
    for (const auto& [k, speedup] : *line->best_at_k) {
      auto& [sum, count] = best[k];
      sum += std::log(speedup);
      ++count;
    }
  }
  if (sampled == 0) return std::nullopt;
  const auto all = static_cast<double>(lines.size());
  for (const auto& [k, sum] : sums)
    if (sum.second == sampled) figures.pass_at_k[k] = sum.first / all;
  for (const auto& [k, sum] : best)
    if (sum.second == sampled) figures.best_at_k[k] = std::exp(sum.first / all);
  return figures;
}

template <typename Number>
void add(std::optional<Number>& sum, const std::optional<Number>& one) {
  if (one) sum = sum.value_or(0) + *one;
}

void add_proposer(GroupFigures& group, const ProposerLine& one, bool kept) {
  auto found = std::find_if(group.proposers.begin(), group.proposers.end(),
                            [&](const auto& known) { return known.first == one.proposer; });
  if (found == group.proposers.end()) found = group.proposers.insert(found, std::pair{one.proposer, ProposerFigures{}});
  ProposerFigures& sums = found->second;
  ++sums.problems;
  sums.kept += kept;
  sums.seconds += one.seconds;
  add(sums.judged, one.judged);
  add(sums.passed, one.passed);
  add(sums.answers, one.answers);
  add(sums.evaluated, one.evaluated);
  add(sums.cost, one.cost);
  add(sums.tokens_read, one.tokens_read);
  add(sums.tokens_written, one.tokens_written);
}

GroupFigures figures_of(const Lines& lines) {
  GroupFigures group;
  group.problems = lines.size();
  for (const ResultLine* line : lines) {
    group.correct += line->passed();
    group.emitted += line->emitted();
    group.kernels += line->kernels;
    group.kernels_compiled += line->kernels_compiled;
    for (const ProposerLine& one : line->proposers)
      add_proposer(group, one, line->passed() && one.proposer == line->winner);
  }
  for (size_t i = 0; i < kBaselines.size(); ++i) group.against[i] = against(lines, kBaselines[i]);
  group.samples = samples_of(lines);
  return group;
}

}  // namespace

Summary summarise(const std::vector<ResultLine>& lines) {
  Summary summary;
  Lines all;
  std::map<std::string, Lines> categories;
  for (const ResultLine& line : lines) {
    all.push_back(&line);
    categories[line.category].push_back(&line);
    for (const KernelLine& kernel : line.compiled)
      if (kernel.spills.value_or(0) > 0)
        summary.spilling.push_back({line.title(), kernel.name, *kernel.spills, kernel.registers});
    if (const auto eager = line.speedup.find("eager");
        line.passed() && eager != line.speedup.end() && eager->second.high < kNotSlower)
      summary.slower.push_back({line.title(), eager->second.value, eager->second.high});
    if (line.noisy) summary.noisy.push_back({line.problem, line.noise});
    if (!line.passed() && !line.emitted())
      summary.failures.push_back({line.problem, line.category, line.verdict, line.reason});
  }
  for (const auto& [name, members] : categories) summary.categories[name.empty() ? "." : name] = figures_of(members);
  summary.all = figures_of(all);
  return summary;
}

}  // namespace kw
