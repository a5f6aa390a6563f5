// pass@k from n samples of which c passed (Chen et al. 2021, "Evaluating Large Language Models Trained on Code"): the
// share of the sets of k among the n that hold at least one that passed, 1 − C(n − c, k) / C(n, k).
#pragma once

#include <optional>
#include <vector>

namespace kw::llm {

// None where there are fewer than k samples.
std::optional<double> pass_at_k(int samples, int passed, int k);

// best@k in the same way: the mean over the sets of k samples of the best value among them; `values` holds one for each
// sample. None where there are fewer than k.
std::optional<double> best_at_k(std::vector<double> values, int k);

}  // namespace kw::llm
