// Graph → KernelIR for one fusion group: expressions, loads and stores over the group's domain, one axis per dimension,
// not yet scheduled.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "emit/kernel_ir.hpp"
#include "plan/domain.hpp"
#include "plan/product.hpp"

namespace kw::plan {

struct LoweredGroup {
  kernel_ir::Kernel kernel;      // no blocks chosen, no body
  std::vector<ValueId> buffers;  // per kernel buffer: the graph value whose storage it is (kNoValue: scratch)
  bool windowed = false;         // its reductions fold sliding windows or bags
  bool bags = false;             // only the data tell how many elements each of them folds
  // Of a group with a matrix product: the kernel is what follows it, and loads the product where it would lie.
  std::optional<Product> product;
};

// nullopt when the nodes cannot be one kernel (analyse() says so, or an op has no expression).
std::optional<LoweredGroup> lower_group(const GraphFacts& facts, std::span<const NodeId> nodes,
                                        const std::vector<ValueId>& outputs);

// "rms_norm_gelu_kernel" and "Computes rms_norm, gelu." from the group's ops.
std::string kernel_name(const Graph& graph, std::span<const NodeId> nodes);
std::string kernel_doc(const Graph& graph, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);

}  // namespace kw::plan
