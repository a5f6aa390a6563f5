#include "passes/extremes_first.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/numbers.hpp"
#include "ir/op_registry.hpp"

namespace kw {
namespace {

constexpr size_t kMostOfChain = 16;  // nodes

// [axis] Does the node fold along it? nullopt where it is no such node.
std::optional<std::vector<bool>> folded_axes(const Node& node, size_t rank) {
  const std::string_view name = base_name(node.op);
  std::vector<bool> axes(rank, false);
  for (const size_t pooled : {1, 2, 3})
    if (const std::string pool = std::to_string(pooled) + "d"; name == "max_pool" + pool) {
      if (rank < pooled) return std::nullopt;
      std::fill(axes.end() - static_cast<std::ptrdiff_t>(pooled), axes.end(), true);
      return axes;
    }
  if (name != "amax" && name != "amin") return std::nullopt;
  const IntList dims = node.integers("dim");
  if (dims.empty()) axes.assign(rank, true);
  for (const int64_t dim : dims) axes[static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim)] = true;
  return axes;
}

// Bounded from below: where a tensor is added, the sum is NaN for the largest if it is so for any. Above, `exp` is not
// bounded: of it and an infinity, the sum may be NaN for another than the smallest.
bool is_expensive(const Node& node) {
  const std::string_view name = base_name(node.op);
  return name == "tanh" || name == "sigmoid" || name == "exp" || name == "erf" || name == "atan";
}

class ExtremesFirst {
 public:
  explicit ExtremesFirst(Graph& graph) : rewriter_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) { return move(node); });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  bool move(Node& node) {
    const ValueId self = node.value("self");
    if (self == kNoValue || !node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue)
      return false;
    const auto folded = folded_axes(node, type(self).shape.size());
    if (!folded) return false;
    const bool keeps_axes = type(node.results[0]).shape.size() == folded->size();
    const std::vector<Node> chain = chain_before(self, *folded, keeps_axes, base_name(node.op) == "amin");
    if (chain.empty()) return false;
    node.set("self", ValueRef{chain.back().value("self")});
    ValueId value = rewriter_.emit(node.op, node.arguments, TensorType(type(node.results[0])), "extreme");
    for (size_t at = chain.size(); at-- > 0;) {
      Node moved = chain[at];
      moved.set("self", ValueRef{value});
      if (at == 0) rewriter_.define(node.results[0], moved.op, moved.arguments);
      else value = rewriter_.emit(moved.op, moved.arguments);
    }
    rewriter_.count(NumericTag::kReassociates);
    return true;
  }

  // From the one that yields `value` down to the deepest expensive function.
  std::vector<Node> chain_before(ValueId value, const std::vector<bool>& folded, bool keeps_axes, bool smallest) const {
    std::vector<Node> chain;
    bool adds_tensor = false;
    size_t last_expensive = 0;
    while (chain.size() < kMostOfChain && reads_.is_once(value)) {
      const Node* node = rewriter_.producer(value);
      if (!node || !rises(*node, folded, keeps_axes)) break;
      if (smallest && adds_tensor && base_name(node->op) == "exp") break;
      adds_tensor = adds_tensor || node->value("other") != kNoValue;
      chain.push_back(*node);
      if (is_expensive(*node)) last_expensive = chain.size();
      value = node->value("self");
    }
    chain.resize(last_expensive);
    return chain;
  }

  // Is it nondecreasing in its operand `self`, whose type is the result's?
  bool rises(const Node& node, const std::vector<bool>& folded, bool keeps_axes) const {
    const ValueId self = node.value("self");
    if (self == kNoValue || !node.op.starts_with("aten.") || node.results.size() != 1 ||
        type(self).shape != type(node.results[0]).shape || type(self).dtype != type(node.results[0]).dtype ||
        !is_floating(type(self).dtype))
      return false;
    const std::string_view name = base_name(node.op);
    if (is_expensive(node) || name == "relu") return true;
    const Argument* other = node.find("other");
    if (!other) return false;
    if (is_number(*other)) {
      const double number = as_double(*other);
      if (name == "mul" || name == "div") return std::isfinite(number) && number > 0 && !node.find("rounding_mode");
      return (name == "add" || name == "sub") && std::isfinite(number);
    }
    const auto* tensor = std::get_if<ValueRef>(other);
    return tensor && (name == "add" || name == "sub") && is_same_along(type(tensor->id), folded, keeps_axes) &&
           type(tensor->id).dtype == type(self).dtype;
  }

  static bool is_same_along(const TensorType& added, const std::vector<bool>& folded, bool keeps_axes) {
    if (added.shape.empty()) return true;
    if (!keeps_axes || added.shape.size() > folded.size()) return false;
    for (size_t back = 1; back <= added.shape.size(); ++back)
      if (folded[folded.size() - back] && added.shape[added.shape.size() - back] != 1) return false;
    return true;
  }

  Rewriter rewriter_;
  const Reads reads_;
};

}  // namespace

RewriteCounts extremes_first(Graph& graph) { return ExtremesFirst(graph).run(); }

}  // namespace kw
