#include "measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace kw {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kFewest = 6;  // below it no pair of order statistics reaches 95 %
constexpr int kResamples = 2000;
constexpr double kFalseDifference = 0.01;   // on either side
constexpr double kBetweenProcesses = 1.03;  // medians of one kernel in two processes: where its memory lies, for one
constexpr double kFewSamplesMargin = 1.1;  // beyond which even three samples on each side, all apart, tell a difference

// xorshift64* (Vigna, 2016): the same on every platform, which the standard distributions are not.
class Random {
 public:
  size_t below(size_t count) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<size_t>(((state_ * 0x2545F4914F6CDD1Dull) >> 33) * count >> 31);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15ull;
};

double median_of(std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  const double upper = values[middle];
  if (values.size() % 2) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle)) + upper) / 2;
}

// The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %; order statistics k and n+1-k (from 1) bound the median.
size_t order_statistic(size_t count) {
  const double n = static_cast<double>(count);
  double below = 0.0;
  size_t k = 0;
  while (k < count / 2) {
    const double i = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
    if (below > 0.025) break;
    ++k;
  }
  return std::max<size_t>(k, 1);
}

// Whether so many of `count` fair coins falling on one side is rarer than kFalseDifference.
bool rare(size_t heads, size_t count) {
  const double n = static_cast<double>(count);
  double at_least = 0.0;
  for (size_t k = heads; k <= count; ++k) {
    const double i = static_cast<double>(k);
    at_least += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
  }
  return at_least <= kFalseDifference;
}

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return kNone;
  std::vector<double> values(samples.begin(), samples.end());
  return median_of(values);
}

Estimate median_estimate(std::span<const double> samples) {
  if (samples.empty()) return {kNone, kNone, kNone};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const size_t k = sorted.size() < kFewest ? 1 : order_statistic(sorted.size());
  return {median(samples), sorted[k - 1], sorted[sorted.size() - k]};
}

Speedup speedup(std::span<const double> baseline, std::span<const double> ours) {
  if (baseline.empty() || ours.empty()) return {{kNone, kNone, kNone}, Difference::kNone};
  Speedup result;
  result.ratio.value = median(baseline) / median(ours);
  Estimate certain = result.ratio;  // the interval by which a difference is said
  const bool paired = baseline.size() == ours.size();
  if (std::min(baseline.size(), ours.size()) < kFewest) {
    result.ratio.low = std::ranges::min(baseline) / std::ranges::max(ours);
    result.ratio.high = std::ranges::max(baseline) / std::ranges::min(ours);
    certain.low = result.ratio.low / kFewSamplesMargin;
    certain.high = result.ratio.high * kFewSamplesMargin;
  } else {
    Random random;
    std::vector<double> ratios, base(baseline.size()), mine(ours.size());
    for (int resample = 0; resample < kResamples; ++resample) {
      for (size_t index = 0; index < base.size(); ++index) {
        const size_t pick = random.below(base.size());
        base[index] = baseline[pick];
        if (paired) mine[index] = ours[pick];
      }
      for (size_t index = 0; !paired && index < mine.size(); ++index) mine[index] = ours[random.below(mine.size())];
      ratios.push_back(median_of(base) / median_of(mine));
    }
    std::ranges::sort(ratios);
    result.ratio.low = percentile(ratios, 0.025);
    result.ratio.high = percentile(ratios, 0.975);
    certain.low = percentile(ratios, kFalseDifference / 2) / kBetweenProcesses;
    certain.high = percentile(ratios, 1 - kFalseDifference / 2) * kBetweenProcesses;
  }
  result.detectable = std::max(certain.value / certain.low, certain.high / certain.value) - 1;
  const bool rounds = paired && baseline.size() >= kFewest;
  size_t faster = 0, slower = 0;
  for (size_t index = 0; rounds && index < ours.size(); ++index) {
    faster += ours[index] < baseline[index];
    slower += ours[index] > baseline[index];
  }
  if (certain.low > 1.0 && (!rounds || rare(faster, faster + slower))) result.difference = Difference::kFaster;
  if (certain.high < 1.0 && (!rounds || rare(slower, faster + slower))) result.difference = Difference::kSlower;
  return result;
}

std::string_view name_of(Difference difference) {
  switch (difference) {
    case Difference::kFaster: return "faster";
    case Difference::kSlower: return "slower";
    case Difference::kNone: return "no difference";
  }
  return "no difference";
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return kNone;
  double sum = 0.0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

double fast_p(std::span<const double> speedups, double threshold) {
  if (speedups.empty()) return kNone;
  const auto above = std::ranges::count_if(speedups, [&](double value) { return value > threshold; });
  return static_cast<double>(above) / static_cast<double>(speedups.size());
}

nlohmann::ordered_json to_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
}

nlohmann::ordered_json to_json(const Speedup& speedup) {
  nlohmann::ordered_json json = to_json(speedup.ratio);
  json["difference"] = std::string(name_of(speedup.difference));
  json["detectable"] = speedup.detectable;
  return json;
}

}  // namespace kw
