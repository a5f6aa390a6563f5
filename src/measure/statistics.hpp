// Statistics over raw timing samples. Deterministic: equal samples give equal figures, bootstrap included.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

namespace kw {

// A figure with its 95 % confidence interval.
struct Estimate {
  double value = 0.0, low = 0.0, high = 0.0;
};

double median(std::span<const double> samples);  // NaN for none

// The median and the interval between two order statistics that covers the true one with at least 95 % (binomial, so of
// any distribution); with fewer than six samples, from the least to the greatest.
Estimate median_estimate(std::span<const double> samples);

enum class Difference { kFaster, kSlower, kNone };

struct Speedup {
  Estimate ratio;                             // baseline's time over ours: 2 is twice as fast
  Difference difference = Difference::kNone;  // kNone where a kernel against itself might look like this more often
                                              // than once in a hundred times
  double detectable = 0.0;  // how far from 1 the ratio would have had to be for a difference: 0.03 for 3 %
};

// Ratio of the medians, with a percentile bootstrap (2000 resamples, fixed seed). Samples of equal count are taken as
// rounds, resampled in pairs, so that a drift of the clock cancels. A difference is said where 1 is outside of the
// interval of 99 % by more than one kernel's times differ between processes (3 %) and, of rounds, the sign test agrees
// (one in a hundred on either side), since a bootstrap of few samples is too sure of itself.
Speedup speedup(std::span<const double> baseline, std::span<const double> ours);

std::string_view name_of(Difference difference);  // "faster", "slower", "no difference"

// exp of the mean logarithm; values must be positive. NaN for none.
double geometric_mean(std::span<const double> values);

// The share of `speedups` (0 for a failed problem) that are above `threshold`, the fast_p of KernelBench; fast_0 is the
// share of passes.
double fast_p(std::span<const double> speedups, double threshold);

nlohmann::ordered_json to_json(const Estimate& estimate);
nlohmann::ordered_json to_json(const Speedup& speedup);

// Not slower than eager: an interval is that of one run, and two runs of one library kernel may be 3 % apart.
inline constexpr double kNotSlower = 0.97;

}  // namespace kw
