// Between which numbers a value's elements lie, as far as the operators above it say. NaN stands outside: nothing is
// said of it.
#pragma once

#include <limits>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Bound {
  double low = -kInfinity;  // +0: never below +0, and never −0
  double high = kInfinity;
  bool is_whole = false;  // every element is an integer or infinite
  // Where low is −0: zeros are what a maximum with 0 made of them, so that another such maximum leaves them. (Whether
  // one makes +0 of −0 is the device's affair.)
  bool zeros_are_clamped = false;

  bool never_below_zero() const;  // and never −0
  bool relu_changes_nothing() const { return never_below_zero() || (low >= 0.0 && zeros_are_clamped); }
};

// Floats only, learnt node by node in order; what was not learnt has no bounds.
class Bounds {
 public:
  void learn(const Graph& graph, const Node& node);
  Bound of(ValueId id) const { return static_cast<size_t>(id) < known_.size() ? known_[id] : Bound{}; }

 private:
  Bound found(const Graph& graph, const Node& node) const;
  std::vector<Bound> known_;
};

}  // namespace kw
