#include "passes/linear_sums.hpp"

#include <optional>

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestRows = 16;  // of a product that is worth a sum of its matrix

class LinearSums {
 public:
  explicit LinearSums(Graph& graph) : rewriter_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
      const std::string_view name = base_name(node.op);
      if (name == "sum" || name == "mean") return reduction(node, name == "mean");
      return name == "avg_pool1d" && pooling(node);
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  bool is_read_once(ValueId id) const { return reads_.is_once(id); }

  const Node* producer(ValueId id) const {
    const Node* node = id == kNoValue ? nullptr : rewriter_.producer(id);
    return node && node->op.starts_with("aten.") && node->results.size() == 1 ? node : nullptr;
  }

  static bool is_single_or_double(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

  // A product's operands, by the axis of `right` along which its outputs lie.
  struct Map {
    ValueId left = kNoValue, right = kNoValue, addend = kNoValue;
    double alpha = 1.0, beta = 1.0;
    int64_t outputs = 0;  // axis of right
  };

  std::optional<Map> map_of(const Node& node) const {
    const std::string_view name = base_name(node.op);
    Map map;
    if (name == "linear") {
      map = {node.value("input"), node.value("weight"), node.value("bias")};
      map.outputs = 0;
    } else if (name == "mm" || name == "matmul") {
      map = {node.value("self"), node.value(name == "mm" ? "mat2" : "other")};
      map.outputs = 1;
    } else if (name == "addmm") {
      map = {node.value("mat1"), node.value("mat2"), node.value("self"), node.number("alpha", 1.0),
             node.number("beta", 1.0)};
      map.outputs = 1;
    } else {
      return std::nullopt;
    }
    if (map.left == kNoValue || map.right == kNoValue || type(map.right).rank() != 2 || type(map.left).rank() < 2 ||
        map.beta == 0.0)
      return std::nullopt;
    const TensorType& left = type(map.left);
    return left.elements() < kFewestRows * left.shape.back() ? std::nullopt : std::optional(map);
  }

  // --- Sums and means over the outputs ---

  Term reduce(const Term& term, int64_t axis, bool is_mean, bool keep) const {
    return term.call(is_mean ? "mean.dim" : "sum.dim_IntList",
                     {{"dim", Argument(IntList{axis})}, {"keepdim", Argument(keep)}});
  }

  Term value(ValueId id) { return {rewriter_, id}; }

  // The sum (mean) over the last axis, of which `count` elements are broadcast from the value; the axis is kept.
  Term reduced(ValueId id, int64_t count, bool is_mean) {
    const TensorType& of = type(id);
    if (of.rank() > 0 && of.shape.back() == count) return reduce(value(id), of.rank() - 1, is_mean, true);
    return is_mean ? value(id) : value(id) * Term(static_cast<double>(count));
  }

  // Of a value that is linear in products which nothing else reads: its sum (mean) over the last axis, without the
  // products. nullopt where there is no such product in it.
  std::optional<Term> without_products(ValueId id, bool is_mean) {
    const Node* node = producer(id);
    if (node == nullptr || !is_read_once(id) || !is_single_or_double(type(id).dtype) || type(id).rank() == 0)
      return std::nullopt;
    const std::string_view name = base_name(node->op);
    const int64_t count = type(id).shape.back();
    if (const auto map = map_of(*node)) return of_product(*map, count, is_mean);
    const bool scales = name == "mul" || name == "div";
    if (scales || name == "neg") {
      const ValueId other = node->value("other"), self = node->value("self");
      if (other != kNoValue || !keeps_shape(self, id) || !node->text("rounding_mode").empty()) return std::nullopt;
      const double factor = node->number("other", 1.0);
      const auto inner = without_products(self, is_mean);
      if (!inner) return std::nullopt;
      if (name == "neg") return -*inner;
      return name == "mul" ? *inner * Term(factor) : *inner / Term(factor);
    }
    if (name == "add" || name == "sub") return of_sum(*node, id, is_mean);
    return std::nullopt;
  }

  bool keeps_shape(ValueId operand, ValueId result) const {
    return operand != kNoValue && type(operand).shape == type(result).shape &&
           type(operand).dtype == type(result).dtype;
  }

  std::optional<Term> of_sum(const Node& node, ValueId id, bool is_mean) {
    const double sign = (base_name(node.op) == "sub" ? -1.0 : 1.0) * node.number("alpha", 1.0);
    const int64_t count = type(id).shape.back();
    bool has_product = false;
    const auto side = [&](std::string_view name) -> std::optional<Term> {
      const ValueId operand = node.value(name);
      if (operand == kNoValue) return Term(node.number(name, 0.0) * (is_mean ? 1.0 : static_cast<double>(count)));
      if (type(operand).dtype != type(id).dtype) return std::nullopt;
      const auto inner = keeps_shape(operand, id) ? without_products(operand, is_mean) : std::nullopt;
      has_product = has_product || inner;
      return inner ? *inner : reduced(operand, count, is_mean);
    };
    const auto left = side("self"), right = side("other");
    if (!left || !right || !has_product) return std::nullopt;
    if (sign == 1.0) return *left + *right;
    return sign == -1.0 ? *left - *right : *left + *right * Term(sign);
  }

  std::optional<Term> of_product(const Map& map, int64_t count, bool is_mean) {
    if (type(map.left).dtype != type(map.right).dtype) return std::nullopt;
    const Term matrix = reduce(value(map.right), map.outputs, is_mean, false);
    Term result = reduce(value(map.left) * matrix, type(map.left).rank() - 1, false, true);
    if (map.alpha != 1.0) result = result * Term(map.alpha);
    if (map.addend == kNoValue) return result;
    const Term addend = reduced(map.addend, count, is_mean);
    return result + (map.beta == 1.0 ? addend : addend * Term(map.beta));
  }

  bool reduction(const Node& node, bool is_mean) {
    const ValueId self = node.value("self");
    const TensorType result = type(node.results[0]);
    if (self == kNoValue || type(self).rank() < 2 || result.dtype != type(self).dtype || !result.is_contiguous())
      return false;
    const int64_t last = type(self).rank() - 1;
    const IntList axes = node.integers("dim");
    if (axes.size() != 1 || (axes[0] != last && axes[0] != -1)) return false;
    const auto sum = without_products(self, is_mean);
    if (!sum) return false;
    rewriter_.adopt(node.results[0], in_shape(*sum, result).id(), NumericTag::kReassociates);
    return true;
  }

  Term in_shape(const Term& term, const TensorType& wanted) {
    if (term.type().shape == wanted.shape) return term;
    return value(rewriter_.emit("aten.clone.default", {{"self", ValueRef{view(term, wanted.shape).id()}}}, wanted));
  }

  // --- Averages over windows of outputs ---

  bool pooling(const Node& node) {
    const ValueId self = node.value("self");
    const IntList kernel = node.integers("kernel_size"), stride = node.integers("stride", kernel);
    const TensorType result = type(node.results[0]);
    if (self == kNoValue || kernel.size() != 1 || (!stride.empty() && stride != kernel) ||
        node.integers("padding", {0}) != IntList{0} || !is_single_or_double(result.dtype))
      return false;
    ValueId product = self;
    const Node* made = producer(product);
    if (made && base_name(made->op) == "view" && is_read_once(product)) {
      product = made->value("self");
      made = producer(product);
    }
    if (!made || !is_read_once(product)) return false;
    const auto map = map_of(*made);
    const int64_t outputs = type(self).shape.back(), width = kernel[0];
    if (!map || base_name(made->op) != "linear" || outputs % width != 0 || width < 2 ||
        type(product).shape.back() != outputs || type(map->right).shape[0] != outputs)
      return false;
    const auto averaged = [&](ValueId id) {
      Shape split = type(id).shape;
      split[0] = outputs / width;
      split.insert(split.begin() + 1, width);
      return reduce(view(value(id), split), 1, true, false);
    };
    const Term matrix = averaged(map->right);
    std::vector<NamedArgument> arguments = {{"input", ValueRef{map->left}}, {"weight", ValueRef{matrix.id()}}};
    if (map->addend != kNoValue) arguments.push_back({"bias", ValueRef{averaged(map->addend).id()}});
    TensorType narrow = type(product);
    narrow.shape.back() = outputs / width;
    narrow.strides = contiguous_strides(narrow.shape);
    const Term pooled = value(rewriter_.emit("aten.linear.default", std::move(arguments), narrow, "pooled"));
    rewriter_.adopt(node.results[0], in_shape(pooled, result).id(), NumericTag::kReassociates);
    return true;
  }

  Rewriter rewriter_;
  Reads reads_;
};

}  // namespace

RewriteCounts linear_sums(Graph& graph) { return LinearSums(graph).run(); }

}  // namespace kw
