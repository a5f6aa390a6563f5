// Schedules and programs as text, one line per group and per step: for `kw inspect` and golden tests. Kernels print
// apart (tile/text.hpp).
#pragma once

#include <string>

#include "emit/program.hpp"
#include "ir/graph.hpp"
#include "plan/schedule.hpp"

namespace kw {

std::string print(const Graph& graph, const Schedule& schedule);
std::string print(const Graph& graph, const Program& program);

}  // namespace kw
