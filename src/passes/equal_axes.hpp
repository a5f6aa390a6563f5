// Along which axes a value's elements are all the same: where something was expanded, and what pointwise operators made
// of it.
#pragma once

#include <vector>

#include "passes/rewriter.hpp"

namespace kw {

using AxisSet = std::vector<bool>;  // per axis

class EqualAxes {
 public:
  explicit EqualAxes(const Graph& graph);
  // Axes of one element are among them. Empty for a value that the graph did not have when this was made.
  const AxisSet& of(ValueId id) const;
  size_t size() const { return axes_.size(); }  // how many values that were

 private:
  AxisSet found(const Graph& graph, const Node& node) const;
  std::vector<AxisSet> axes_;
};

// `value` with one element along `axes`, along which its elements are the same: computed from what it was computed
// from.
ValueId narrowed(Rewriter& rewriter, ValueId value, const AxisSet& axes);

}  // namespace kw
