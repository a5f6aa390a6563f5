#include "llm/pass_at_k.hpp"

#include <algorithm>
#include <functional>

namespace kw::llm {

std::optional<double> pass_at_k(int samples, int passed, int k) {
  if (k < 1 || samples < k) return std::nullopt;
  if (samples - passed < k) return 1.0;
  // The quotient of the binomials, factor by factor: neither of them fits a number.
  double none = 1;
  for (int i = samples - passed + 1; i <= samples; ++i) none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

std::optional<double> best_at_k(std::vector<double> values, int k) {
  const int samples = static_cast<int>(values.size());
  if (k < 1 || samples < k) return std::nullopt;
  std::sort(values.begin(), values.end(), std::greater<>());
  double mean = 0, none = 1;  // none: the share of the sets that hold none of those before
  for (int i = 0; i < samples && none > 0; ++i) {
    // Of the sets without the i best, k in samples − i hold the next one.
    const double with = std::min(1.0, static_cast<double>(k) / (samples - i));
    mean += none * with * values[static_cast<size_t>(i)];
    none *= 1 - with;
  }
  return mean;
}

}  // namespace kw::llm
