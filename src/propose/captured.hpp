// A problem's graph. Where tracing it leaves a graph that makes no sense, PyTorch is asked first whether the model runs
// at all.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"
#include "judge/session.hpp"

namespace kw {

// Throws kUser with PyTorch's own message where the model cannot be run, kInternal where only tracing or reading it
// fails.
Graph captured_graph(Session& session, const std::string& problem, const std::string& size, const std::string& device);

// What PyTorch may round to TF32, as the tolerance policy has it: under "reference" as the module is captured, under
// "ieee" nothing, under "relaxed" products and convolutions. Throws kUser where that is asked of a GPU's libraries, be
// there a GPU or not, which the environment keeps from TF32.
void allow_tf32_under(std::string_view policy, std::string_view device, Graph& graph);

}  // namespace kw
