// The iteration domain of a fusion group: its axes, and for each value where in the domain its elements are computed.
// analyse() decides whether a set of nodes can be one kernel; it runs the whole index algebra of the lowering, without
// building expressions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.hpp"
#include "plan/index_math.hpp"
#include "plan/op_table.hpp"
#include "plan/pull.hpp"
#include "plan/sorts.hpp"

namespace kw::plan {

// What is asked of a graph again and again, computed once.
struct GraphFacts {
  GraphFacts(const Graph& graph, const GraphForms& forms);  // of the target that is planned for

  const Graph& graph;
  SortForms sorts;
  std::vector<NodeKind> kinds;               // per node
  std::vector<ValueId> roots;                // per value: storage_roots
  std::vector<std::vector<NodeId>> readers;  // per root: the nodes other than views that read it or a view of it
  std::vector<bool> escapes;                 // per root: it or a view of it is a graph output
  std::vector<bool> rounded;                 // per value: its last places say nothing (rounded_values.hpp)

  bool reads_places(NodeId sort, const SortSpec& spec) const;  // does anything need to know where a sort's elements
                                                               // stood?
};

struct Domain {
  std::vector<int64_t> extents;  // parallel axes, then reduce axes
  int parallel = 0;              // number of parallel axes
  bool scans = false;  // what follows is one scan axis, which may be longer than the scans (cat before a cumsum's
                       // result)
  std::map<ValueId, Coords> seeds;          // coordinates of a value's element at a point of the domain
  std::map<NodeId, Coords> reduce_points;   // per reduce or scan node: coordinates in its ReduceSpec's domain
  std::map<NodeId, Coords> scatter_points;  // per scatter node: coordinates in its ScatterSpec's domain
  std::vector<ValueId> outputs;             // values to store: read outside the group, or graph outputs
  std::map<ValueId, int64_t> first_places;  // outputs that end before the scan axis: how many of its points they have
                                            // (topk)

  bool has_reduction() const { return parallel < static_cast<int>(extents.size()); }
  int64_t parallel_elements() const;
  int64_t reduced_elements() const;
};

// Results that something outside of `nodes` (ascending) reads, or that are graph outputs.
std::vector<ValueId> outputs_of(const GraphFacts& facts, std::span<const NodeId> nodes);

// `nodes` ascending; views are not listed. `outputs`: what the kernel stores, outputs_of(nodes) when left out.
// nullopt: these nodes cannot be one kernel.
std::optional<Domain> analyse(const GraphFacts& facts, std::span<const NodeId> nodes,
                              const std::vector<ValueId>* outputs = nullptr);

}  // namespace kw::plan
