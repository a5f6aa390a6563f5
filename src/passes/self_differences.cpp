#include "passes/self_differences.hpp"

#include <cmath>
#include <optional>

#include "ir/op_registry.hpp"
#include "passes/linear_maps.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestRows = 16;  // of a product that is worth a sum of its matrix

class SelfDifferences {
 public:
  explicit SelfDifferences(Graph& graph) : rewriter_(graph), reads_(graph), is_of_model_(graph.values.size()) {
    for (const auto& input : graph.inputs)
      is_of_model_[input.value] = input.kind == InputKind::kParameter || input.kind == InputKind::kBuffer;
  }

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.op != "aten.sub.Tensor" || node.number("alpha", 1.0) != 1.0) return false;
      const ValueId self = node.value("self");
      if (self == kNoValue || !is_itself(self, node.value("other")) || reads_.of(self) != 2) return false;
      const TensorType result = type(node.results[0]);
      const auto map = map_below(self);
      if (!map || !result.is_contiguous() || result.shape != type(self).shape) return false;
      rewriter_.adopt(node.results[0], in_shape(nothing_of(*map), result).id(), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  Term value(ValueId id) { return {rewriter_, id}; }

  const Node* made_by(ValueId id, std::string_view op) const {
    const Node* node = id == kNoValue ? nullptr : rewriter_.producer(id);
    return node && node->op == op ? node : nullptr;
  }

  Term in_shape(const Term& term, const TensorType& wanted) {
    if (term.type().shape == wanted.shape) return term;
    return value(rewriter_.emit("aten.clone.default", {{"self", ValueRef{view(term, wanted.shape).id()}}}, wanted));
  }

  // Is `other` the value, or the value + 0, as its mean over an axis of one element is?
  bool is_itself(ValueId id, ValueId other) const {
    if (other == id) return true;
    const Node* sum = made_by(other, "aten.add.Tensor");
    return sum && sum->value("self") == id && sum->value("other") == kNoValue && sum->number("other", 1.0) == 0.0 &&
           reads_.is_once(other);
  }

  bool is_of_model(ValueId id) const {
    for (const Node* node = rewriter_.producer(id); node && class_of(node->op) == OpClass::kView;
         node = rewriter_.producer(id))
      id = node->value("self");
    return static_cast<size_t>(id) < is_of_model_.size() && is_of_model_[id];
  }

  // The map whose outputs `extreme` is the largest or smallest of.
  std::optional<LinearMap> map_below(ValueId extreme) const {
    const Node* fold = made_by(extreme, "aten.amax.default");
    if (!fold) fold = made_by(extreme, "aten.amin.default");
    const ValueId outputs = fold ? fold->value("self") : kNoValue;
    const Node* product = outputs == kNoValue ? nullptr : rewriter_.producer(outputs);
    if (!product || !reads_.is_once(outputs)) return std::nullopt;
    const int64_t last = type(outputs).rank() - 1;
    const IntList axes = fold->integers("dim");
    if (axes.size() != 1 || (axes[0] != last && axes[0] != -1)) return std::nullopt;
    const auto map = linear_map_of(rewriter_.graph(), *product);
    if (!map || type(outputs).elements() < kFewestRows * type(outputs).shape[last] || !std::isfinite(map->alpha) ||
        !std::isfinite(map->beta) || map->alpha == 0.0)
      return std::nullopt;
    const bool is_fixed = is_of_model(map->right) && (map->addend == kNoValue || is_of_model(map->addend));
    return is_fixed && (map->addend == kNoValue || type(map->addend).rank() <= 1) ? map : std::nullopt;
  }

  // 0 for each row whose outputs are finite, NaN for others.
  Term nothing_of(const LinearMap& map) {
    const auto nothing = [&](ValueId id, IntList axes, bool keep) {
      return sum(value(id) - value(id), std::move(axes), keep);
    };
    const Term rows = nothing(map.left, {type(map.left).rank() - 1}, true);
    const Term both = rows + nothing(map.right, {0, 1}, false);
    return map.addend == kNoValue ? both : both + nothing(map.addend, all_axes(value(map.addend)), false);
  }

  Rewriter rewriter_;
  const Reads reads_;
  std::vector<bool> is_of_model_;  // [value]
};

}  // namespace

RewriteCounts self_differences(Graph& graph) { return SelfDifferences(graph).run(); }

}  // namespace kw
