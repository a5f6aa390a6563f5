// What people call an operator. The names of values and of kernels in emitted code come from here.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace kw {

// "_native_batch_norm_legit_functional" → "batch_norm", "_unsafe_view" → "view", "add" → "add". Takes base_name() of an
// operator.
std::string spoken_name(std::string_view base);

// Renames values that are called after their operator ("_softmax_3" → "softmax_3"); names stay unique.
void speak_names(Graph& graph);

}  // namespace kw
