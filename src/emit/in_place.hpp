// Kernels that write where they have read: a buffer's new value where the old one lies, which saves an allocation, a
// copy and a launch for each running statistic; and a result where a product or convolution lies that nothing reads
// afterwards.
#pragma once

#include <map>

#include "emit/program.hpp"
#include "emit/target_printer.hpp"

namespace kw {

// New value → the input whose memory it may take: a mutation's target of the same type that nothing else reads once its
// kernel has run, read by that kernel only at the element that the same program writes afterwards.
std::map<ValueId, ValueId> in_place_mutations(const Graph& graph, const Program& program, const TargetPrinter& target);

// Value that a kernel makes → the library's result whose memory it takes, both by name: of the same type, read by that
// kernel last, and there only at the element that is written. Empty for targets that have nothing to gain.
std::map<std::string, std::string> reused_results(const Graph& graph, const Program& program,
                                                  const TargetPrinter& target);

}  // namespace kw
