#include "passes/product_chains.hpp"

#include <optional>

#include "passes/linear_maps.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr double kLeastGain = 2.0;  // of multiplications: kernels are as many as before

class ProductChains {
 public:
  explicit ProductChains(Graph& graph) : rewriter_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      const auto outer = linear_map_of(rewriter_.graph(), node);
      if (!outer) return false;
      const TensorType result = type(node.results[0]);
      if (!result.is_contiguous()) return false;
      auto product = from_left(*outer);
      if (!product) product = from_right(untransposed(*outer));
      if (!product) return false;
      rewriter_.adopt(node.results[0], with_addend(*product, *outer).id(), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  Term value(ValueId id) { return {rewriter_, id}; }

  // The product that the value is, where nothing else reads it.
  std::optional<LinearMap> inner(ValueId id) const {
    const Node* node = rewriter_.producer(id);
    const auto map = node && reads_.is_once(id) ? linear_map_of(rewriter_.graph(), *node) : std::nullopt;
    return map && map->alpha == 1.0 && map->beta == 1.0 ? map : std::nullopt;
  }

  // The matrix of which the value is a view with its axes exchanged.
  std::optional<ValueId> transpose_of(ValueId id) const {
    const Node* view = rewriter_.producer(id);
    const bool exchanges = view && view->op == "aten.permute.default" && view->integers("dims") == IntList{1, 0};
    return exchanges ? std::optional(view->value("self")) : std::nullopt;
  }

  LinearMap untransposed(LinearMap map) const {
    const auto matrix = reads_.is_once(map.right) ? transpose_of(map.right) : std::nullopt;
    if (!matrix) return map;
    map.right = *matrix;
    map.outputs = map.inputs();
    return map;
  }

  static bool pays(double now, double then) { return now >= kLeastGain * then; }

  double rows(ValueId left) const {
    return static_cast<double>(type(left).elements()) / static_cast<double>(type(left).shape.back());
  }
  double inputs(const LinearMap& map) const { return static_cast<double>(type(map.right).shape[map.inputs()]); }
  double outputs(const LinearMap& map) const { return static_cast<double>(type(map.right).shape[map.outputs]); }

  Term transposed(ValueId matrix) {
    if (const auto other = transpose_of(matrix)) return value(*other);
    return value(matrix).call("permute.default", {{"dims", Argument(IntList{1, 0})}});
  }
  // A map's matrix with its outputs first, as a linear layer's weight has them.
  Term weight(const LinearMap& map) { return map.outputs == 0 ? value(map.right) : transposed(map.right); }
  static Term linear(const Term& input, const Term& weight) {
    return Term::operation("linear.default", {{"input", input}, {"weight", weight}});
  }

  // (A B + b) C = A (B C) + b C
  std::optional<Term> from_left(const LinearMap& outer) {
    const auto map = inner(outer.left);
    if (!map) return std::nullopt;
    const bool has_bias = map->addend != kNoValue;
    if (has_bias && (type(map->addend).rank() != 1 || type(map->addend).shape[0] != type(outer.left).shape.back()))
      return std::nullopt;
    const double m = rows(map->left), k = inputs(*map), n = outputs(*map), p = outputs(outer);
    if (!pays(m * n * (k + p), k * p * (n + m) + (has_bias ? n * p : 0.0))) return std::nullopt;
    const Term second = weight(outer);
    const Term product = linear(value(map->left), second.call("mm.default", {{"mat2", weight(*map)}}));
    return has_bias ? product + sum(second * value(map->addend), {1}) : product;
  }

  // A (B C) = (A B) C; of a linear layer whose weight is B C, A (B C)ᵀ = (A Cᵀ) Bᵀ
  std::optional<Term> from_right(const LinearMap& outer) {
    const auto map = inner(outer.right);
    if (!map || map->addend != kNoValue || type(map->left).rank() != 2) return std::nullopt;
    const double m = rows(outer.left), k = inputs(outer), n = inputs(*map), p = outputs(outer);
    if (!pays(k * p * (n + m), m * n * (k + p))) return std::nullopt;
    if (outer.outputs == 1) return linear(linear(value(outer.left), transposed(map->left)), weight(*map));
    const Term inputs_last = map->outputs == 1 ? value(map->right) : transposed(map->right);
    return linear(linear(value(outer.left), inputs_last), value(map->left));
  }

  Term with_addend(Term product, const LinearMap& map) {
    if (map.alpha != 1.0) product = product * Term(map.alpha);
    if (map.addend == kNoValue) return product;
    return product + (map.beta == 1.0 ? value(map.addend) : value(map.addend) * Term(map.beta));
  }

  Rewriter rewriter_;
  const Reads reads_;
};

}  // namespace

RewriteCounts product_chains(Graph& graph) { return ProductChains(graph).run(); }

}  // namespace kw
