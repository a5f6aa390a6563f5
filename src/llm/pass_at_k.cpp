#include "llm/pass_at_k.hpp"

namespace kw::llm {

std::optional<double> pass_at_k(int samples, int passed, int k) {
  if (k < 1 || samples < k) return std::nullopt;
  if (samples - passed < k) return 1.0;
  // The quotient of the binomials, factor by factor: neither of them fits a number.
  double none = 1;
  for (int i = samples - passed + 1; i <= samples; ++i) none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

}  // namespace kw::llm
