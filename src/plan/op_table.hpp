// What a node is to the planner, without looking at its arithmetic: its kind, what it reduces, which views are free.
// Its operator's row (ir/op_registry.hpp) says what it can be; shapes, dtypes and arguments decide.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "ir/op_registry.hpp"

namespace kw::plan {

enum class NodeKind {
  kView,       // an alias: its result is described by strides over its operand's storage
  kPointwise,  // one result element from at most one element of each operand (cat, pad and flip among them)
  kFactory,    // no tensor operand is read (full, arange, zeros_like)
  kReduce,     // folds over some axes of a domain; may also yield full-size results (softmax, layer_norm)
  kScan,       // walks one axis in order (cumsum), or sorts it; its results have its operand's shape, or a topk's are
               // shorter
  kScatter,    // writes where indices say, into memory that holds its operand (scatters.hpp)
  kExtern,     // a library call
};

// Takes shapes, dtypes and arguments into account: what the planner cannot express is kExtern.
NodeKind classify(const Graph& graph, NodeId node);
std::vector<NodeKind> kinds_of(const Graph& graph);  // [node]

// Integers that indices may be made of.
bool is_index(const Graph& graph, ValueId value);

// Rough cost of one element relative to an addition.
int arithmetic_weight(const Node& node);

// The axes a kReduce node works on: `domain` is a reshape (or the broadcast) of its operands; results have either all
// of its elements or only those of the axes that are kept.
struct ReduceSpec {
  Shape domain;
  std::vector<bool> reduced;      // per axis of the domain
  std::vector<ValueId> operands;  // those that vary over the whole domain, in argument order
  bool windowed = false;  // the domain is the result's dimensions and the offsets of a window (windows.hpp) or bag
                          // (bags.hpp); the operand is none of its reshapes

  bool sorted = false;  // a sort's: its results may be the first places alone

  int64_t kept_elements() const;
  int64_t reduced_elements() const;
};
std::optional<ReduceSpec> reduce_spec(const Graph& graph, NodeId node);

// The same of a kScan node: the one axis that it walks counts as reduced.
std::optional<ReduceSpec> scan_spec(const Graph& graph, NodeId node);

// [value] The value in whose storage it lives: itself, or what its chain of views looks into.
std::vector<ValueId> storage_roots(const Graph& graph, const std::vector<NodeKind>& kinds);

// Wraps negative dimensions.
inline int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

}  // namespace kw::plan
