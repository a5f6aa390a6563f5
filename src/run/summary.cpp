#include "run/summary.hpp"

#include <algorithm>
#include <cmath>

#include "run/worth.hpp"

namespace kw {

namespace {

using Lines = std::vector<const ResultLine*>;

BaselineFigures against(const Lines& lines, Contender baseline) {
  BaselineFigures figures;
  std::array<int, kFastThresholds.size()> faster{};
  double log_sum = 0;
  for (const ResultLine* line : lines) {
    if (!line->report.passed()) continue;
    const auto& measured = line->report.timing.measured.speedup_over(baseline);
    if (!measured) {
      ++faster[0];
      continue;
    }
    const Estimate& speedup = measured->ratio;
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
    const Sampling& sampling = line->report.sampling;
    if (!sampling.pass_at_k) continue;
    ++sampled;
    figures.samples += static_cast<int>(sampling.judged);
    for (const auto& [k, share] : *sampling.pass_at_k) {
      auto& [sum, count] = sums[k];
      sum += share;
      ++count;
    }
    if (!sampling.best_at_k) continue;
    for (const auto& [k, speedup] : *sampling.best_at_k) {
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

void add_proposer(GroupFigures& group, const ProposerOutcome& one, bool kept) {
  auto found = std::find_if(group.proposers.begin(), group.proposers.end(),
                            [&](const auto& known) { return known.first == one.proposer; });
  if (found == group.proposers.end()) found = group.proposers.insert(found, std::pair{one.proposer, ProposerFigures{}});
  ProposerFigures& sums = found->second;
  ++sums.problems;
  sums.kept += kept;
  sums.seconds += one.seconds.value_or(0);
  add(sums.judged, one.judged);
  add(sums.passed, one.passed);
  add(sums.answers, one.answers);
  add(sums.evaluated, one.evaluated);
  add(sums.cost, one.cost);
  const Tokens tokens = one.tokens.value_or(Tokens{});
  add(sums.tokens_read, tokens.prompt);
  add(sums.tokens_written, tokens.completion);
}

GroupFigures figures_of(const Lines& lines) {
  GroupFigures group;
  group.problems = lines.size();
  for (const ResultLine* line : lines) {
    const Report& report = line->report;
    group.correct += report.passed();
    group.emitted += report.emitted();
    if (report.compiled) {
      group.kernels += static_cast<int>(report.compiled->kernels);
      group.kernels_compiled += static_cast<int>(report.compiled->good);
    }
    for (const ProposerOutcome& one : report.proposers)
      add_proposer(group, one, report.passed() && one.proposer == report.winner);
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
    const Report& report = line.report;
    const Measurement& made = report.timing.measured;
    const MachineCode code = report.compiled.value_or(MachineCode{});
    for (const CompiledKernel& kernel : code.each)
      if (kernel.spills.value_or(0) > 0)
        summary.spilling.push_back({line.title(), kernel.name, *kernel.spills, kernel.registers});
    if (report.passed() && too_slow(made, kNotSlower)) {
      const Estimate& ratio = made.speedup_over(Contender::kEager)->ratio;
      summary.slower.push_back({line.title(), ratio.value, ratio.high});
    }
    if (!made.noise.empty()) summary.noisy.push_back({line.problem, made.noise});
    if (!report.passed() && !report.emitted())
      summary.failures.push_back({line.problem, line.category, report.verdict, line.reason()});
  }
  for (const auto& [name, members] : categories) summary.categories[name.empty() ? "." : name] = figures_of(members);
  summary.all = figures_of(all);
  return summary;
}

}  // namespace kw
