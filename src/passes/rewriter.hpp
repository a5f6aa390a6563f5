// Rewriting a graph in one walk over its nodes: O(n), however many nodes change.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// How a rewrite may move the result: not at all, or by the order of rounding. The pipeline holds each pass to its tag.
enum class NumericTag { kExact, kReassociates };
std::string_view name_of(NumericTag tag);

// Where a rule rewrote.
struct Rewrite {
  NumericTag tag = NumericTag::kExact;
  NodeId visited = kNoNode;    // the node that the rule was asked about, in the graph before the pass
  NodeId first = 0, last = 0;  // what was written for it, in the graph behind the pass; `last` is behind the last
  std::string with;            // the name of the value that is read in its place, where that is another one
};

struct RewriteCounts {
  std::array<int64_t, 2> by_tag{};  // indexed by NumericTag
  std::vector<Rewrite> places;      // of a pass that is one walk of a Rewriter; empty for others
  void add(NumericTag tag) { ++by_tag[static_cast<size_t>(tag)]; }
  int64_t total() const { return by_tag[0] + by_tag[1]; }
  NumericTag worst() const;
};

class Rewriter {
 public:
  explicit Rewriter(Graph& graph);

  // Visits the nodes in order. The node's operands are already the replaced ones; what `rule` emits stands in front of
  // it. `rule` returns whether the node goes (all its results replaced or unused); otherwise it stays, as the rule left
  // it.
  template <typename Rule>  // bool(Node&)
  RewriteCounts run(Rule&& rule) {
    NodeId visited = 0;
    for (auto& node : begin()) {
      enter(node);
      if (!rule(node)) keep(std::move(node));
      note(visited++);
    }
    finish();
    return counts_;
  }

  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  // The node that yields `id` in the rewritten graph; nullptr for an input. Valid until the next node is emitted or
  // kept.
  const Node* producer(ValueId id) const;

  // A new node with one result. Without a type the result's is inferred (an operator that infer.hpp does not know is
  // our bug). The name is made unique; without one it is the operator's. `unread`: results behind the first that nobody
  // reads.
  ValueId emit(std::string op, std::vector<NamedArgument> arguments, std::string_view name = "");
  ValueId emit(std::string op, std::vector<NamedArgument> arguments, TensorType type, std::string_view name = "",
               size_t unread = 0);

  // With several results, each with its name and type.
  std::vector<ValueId> emit_all(std::string op, std::vector<NamedArgument> arguments,
                                std::vector<std::pair<std::string, TensorType>> results);

  // A new node that yields an old one's result, which keeps its name and type; the old node goes.
  void define(ValueId result, std::string op, std::vector<NamedArgument> arguments);

  // As replace(), where `emitted` comes from emit(): its node takes over the old result itself, with name and strides.
  void adopt(ValueId result, ValueId emitted, NumericTag tag);

  // Every later reader of `result`, and every output, reads `with`. Their shapes and element types agree.
  void replace(ValueId result, ValueId with, NumericTag tag = NumericTag::kExact);
  void count(NumericTag tag) { counts_.add(tag); }

 private:
  std::vector<Node>& begin();
  void enter(Node& node);
  void keep(Node&& node);
  void note(NodeId visited);
  void finish();
  ValueId resolve(ValueId id) const { return static_cast<size_t>(id) < replaced_.size() ? replaced_[id] : id; }
  std::string unique_name(std::string_view wanted);

  Graph& graph_;
  std::vector<Node> old_nodes_;
  std::vector<ValueId> replaced_;
  std::unordered_set<ValueId> moved_;           // views whose place in memory has changed
  std::unordered_map<std::string, int> names_;  // taken, with the last suffix tried
  std::string location_;
  RewriteCounts counts_;
  Rewrite entered_;                          // of the node that is visited
  std::array<int64_t, 2> counted_before_{};  // by tag, when it was entered
};

// How many operands and outputs name each value, as the graph is when it is made. Later values are read by nobody.
class Reads {
 public:
  explicit Reads(const Graph& graph);
  int of(ValueId id) const { return static_cast<size_t>(id) < counts_.size() ? counts_[id] : 0; }
  bool is_once(ValueId id) const { return of(id) == 1; }

 private:
  std::vector<int> counts_;
};

// Which copies may go: unless somebody can tell the two memories apart because both are outputs, or one is an input,
// which the caller keeps and an output may overwrite. Knows the values that the graph has when it is made; asks nothing
// of later ones but their name.
class Sharing {
 public:
  explicit Sharing(const Graph& graph);
  // Whether `copy` may become `source` itself. Their types lie in the same places (same_place()). Says yes only if it
  // is then done.
  bool merge(const Graph& graph, ValueId copy, ValueId source);
  bool is_output(ValueId id) const { return static_cast<size_t>(id) < is_output_.size() && is_output_[id]; }

 private:
  std::vector<bool> escapes_, is_output_, is_input_;
  std::vector<ValueId> roots_;
};

// The same elements in the same places of memory; strides of axes of one do not matter.
bool same_place(const TensorType& left, const TensorType& right);

// Per value: it, or a view of it, is an output, so that its memory must not be shared with another output's or an
// input's.
std::vector<bool> escaping_values(const Graph& graph);

// Per value: the value whose memory it lies in: through view-class nodes down to an input or a node that writes memory.
std::vector<ValueId> storage_roots(const Graph& graph);

}  // namespace kw
