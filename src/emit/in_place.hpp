// Mutations in place: a kernel that computes a buffer's new value from its old one may write it where the old one lies, which saves an
// allocation, a copy and a launch for each running statistic.
#pragma once

#include <map>

#include "emit/program.hpp"
#include "emit/target_printer.hpp"

namespace kw {

// New value → the input whose memory it may take: a mutation's target of the same type that nothing else reads once its kernel has run, read by that
// kernel only at the element that the same program writes afterwards.
std::map<ValueId, ValueId> in_place_mutations(const Graph& graph, const Program& program, const TargetPrinter& target);

}  // namespace kw
