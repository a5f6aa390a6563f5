// The groups of a graph's nodes while fusion works on them: who reads from whom, and which of them are better one.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/domain.hpp"

namespace kw {

constexpr int kMostGroupedNodes = 96;  // of a group
// Arithmetic repeated for every element when a small producer joins a larger consumer.
constexpr int kMostInlinedWeight = 48;

struct Group {
  std::vector<NodeId> nodes;  // ascending; empty once merged into another
  int64_t elements = 1;       // of the domain
  int level = 0;              // greater than that of every group it reads from
  bool fusable = false;
};

class Grouping {
 public:
  Grouping(const Graph& graph, const GraphForms& forms);

  int add(NodeId node);  // as a group of its own
  // Two groups become one, if a kernel can be made of both and is worth while. Returns the group that holds `left`'s
  // nodes afterwards.
  int try_merge(int left, int right);
  // Do nodes pay as one kernel that `a` and `b` were before?
  bool worthwhile(const plan::Domain& domain, const std::vector<NodeId>& nodes, const Group& a, const Group& b) const;
  // Behind a change of its nodes, so that levels stay above those of what is read.
  void raise(int group);

  // Bytes that a kernel of these nodes moves, and its launch.
  double traffic(const std::vector<NodeId>& nodes) const;
  bool is_light(NodeId node) const;       // computed element by element
  bool is_spread(ValueId root) const;     // made by a spread node (spread_weight)
  bool slides(const Group& group) const;  // computes what it reads again and again

  // Groups that `node` reads from (or must follow).
  template <typename Visit>
  void for_each_source(NodeId node, Visit&& visit) const {
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      const NodeId producer = graph.values[facts.roots[operand]].producer;
      if (producer != kNoNode) visit(group_of[producer]);
    });
    if (previous_random_[node] != kNoNode) visit(group_of[previous_random_[node]]);
  }

  template <typename Visit>
  void for_each_reader(int group, Visit&& visit) const {
    for (NodeId node : groups[group].nodes) {
      for (ValueId result : graph.nodes[node].results)
        if (result != kNoValue)
          for (NodeId reader : facts.readers[result])
            if (group_of[reader] >= 0 && group_of[reader] != group) visit(group_of[reader]);
      if (next_random_[node] != kNoNode && group_of[next_random_[node]] >= 0 && group_of[next_random_[node]] != group)
        visit(group_of[next_random_[node]]);
    }
  }

  const Graph& graph;
  const plan::GraphFacts facts;
  std::vector<Group> groups;
  std::vector<int> group_of;  // [node]; −1: not placed yet
  // [node] The arithmetic of a spread node's element; −1: it is none. Its result is one that broadcasting makes of much
  // less, with little arithmetic (a mask of positions, a comparison of each row's label with all classes): wherever it
  // is wanted it is computed, like a view, and never worth a place in a group of its own.
  std::vector<int> spread_weight;

 private:
  void find_order_of_random_nodes();
  void find_spread_nodes();
  int level_below(const std::vector<NodeId>& nodes, int own) const;
  void raise(int group, int level);
  bool reaches(int from, int to) const;
  int weight_of(const std::vector<NodeId>& nodes) const;
  bool costs_more_than_stored(const Group& part, const Group& other, const std::vector<NodeId>& both,
                              int64_t elements) const;
  bool feeds(const std::vector<NodeId>& producers, const std::vector<NodeId>& readers) const;

  std::vector<NodeId> previous_random_, next_random_;  // [node]
};

}  // namespace kw
