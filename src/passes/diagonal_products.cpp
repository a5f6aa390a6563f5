#include "passes/diagonal_products.hpp"

#include <optional>

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

class DiagonalProducts {
 public:
  explicit DiagonalProducts(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      const bool is_mm = node.op == "aten.mm.default";
      if (!is_mm && node.op != "aten.matmul.default") return false;
      const ValueId left = node.value("self"), right = node.value(is_mm ? "mat2" : "other");
      const TensorType result = type(node.results[0]);
      if (left == kNoValue || right == kNoValue || !is_product_type(result.dtype) || !result.is_contiguous())
        return false;
      std::optional<Term> scaled;
      if (const auto diagonal = diagonal_of(right); diagonal && type(left).rank() >= 2)
        scaled = times(left, type(left).rank() - 1, value(*diagonal));
      else if (const auto rows = diagonal_of(left); rows && type(right).rank() == 2)
        scaled = times(right, 0, view(value(*rows), {type(*rows).shape[0], 1}));
      if (!scaled || scaled->type().dtype != result.dtype || scaled->type().shape != result.shape) return false;
      rewriter_.adopt(node.results[0], contiguous(*scaled).id(), NumericTag::kExact);
      return true;
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  Term value(ValueId id) { return {rewriter_, id}; }

  static bool is_product_type(DType dtype) {
    return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  }

  // What stands on the diagonal of a matrix that diag made.
  std::optional<ValueId> diagonal_of(ValueId id) const {
    const Node* node = rewriter_.producer(id);
    if (!node || node->op != "aten.diag_embed.default" || type(id).rank() != 2 || node->integer("offset", 0) != 0)
      return std::nullopt;
    const ValueId self = node->value("self");
    return self == kNoValue ? std::nullopt : std::optional(self);
  }

  static Term as(const Term& term, DType dtype) {
    return term.type().dtype == dtype ? term : term.call("_to_copy.default", {{"dtype", Argument(dtype)}});
  }

  // `matrix`, along whose `axis` the product folds, times what it meets on the diagonal.
  Term times(ValueId matrix, int64_t axis, const Term& diagonal) {
    const Term elements = value(matrix);
    const Term is_finite = as(elements.apply("isfinite"), DType::f32);
    const Term others = sum(is_finite, {axis}, true) - is_finite;
    const auto all = static_cast<double>(type(matrix).shape[axis] - 1);
    const Term scaled = elements * diagonal + 0.0;
    return where(less(others, all), as(is_finite - is_finite, scaled.type().dtype) / 0.0, scaled);
  }

  Term contiguous(const Term& term) {
    TensorType wanted = term.type();
    wanted.strides = contiguous_strides(wanted.shape);
    return term.type().is_contiguous()
               ? term
               : value(rewriter_.emit("aten.clone.default", {{"self", ValueRef{term.id()}}}, wanted));
  }

  Rewriter rewriter_;
};

}  // namespace

RewriteCounts diagonal_products(Graph& graph) { return DiagonalProducts(graph).run(); }

}  // namespace kw
