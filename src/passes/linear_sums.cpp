#include "passes/linear_sums.hpp"

#include <algorithm>
#include <optional>

#include "ir/op_registry.hpp"
#include "passes/linear_maps.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestRows = 16;  // of a product that is worth a sum of its matrix, or that are summed

// A sum or mean of a product, or of what is linear in it, whose axes are kept: over its outputs (its last axis), each
// times a weight where there are any, or over some of its rows' axes.
struct Fold {
  bool is_mean = false;
  bool of_outputs = true;
  IntList axes;  // ascending
  Shape shape;   // of what is folded
  std::optional<Term> weights;

  int64_t count() const {
    int64_t elements = 1;
    for (const int64_t axis : axes) elements *= shape[axis];
    return elements;
  }
};

class LinearSums {
 public:
  explicit LinearSums(Graph& graph) : rewriter_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
      const std::string_view name = base_name(node.op);
      if (name == "sum" || name == "mean") return reduction(node, name == "mean");
      if (name == "mv" || name == "matmul") return dot(node, node.value(name == "mv" ? "vec" : "other"));
      return name == "avg_pool1d" && pooling(node);
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  bool is_read_once(ValueId id) const { return reads_.is_once(id); }
  Term value(ValueId id) { return {rewriter_, id}; }

  const Node* producer(ValueId id) const {
    const Node* node = id == kNoValue ? nullptr : rewriter_.producer(id);
    return node && node->op.starts_with("aten.") && node->results.size() == 1 ? node : nullptr;
  }

  static bool is_single_or_double(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

  std::optional<LinearMap> map_of(const Node& node) const {
    const auto map = linear_map_of(rewriter_.graph(), node);
    if (!map) return std::nullopt;
    const TensorType& left = type(map->left);
    return left.elements() < kFewestRows * left.shape.back() ? std::nullopt : map;
  }

  // --- Sums and means over outputs or rows ---

  static Term reduce(const Term& term, IntList axes, bool is_mean, bool keep) {
    return term.call(is_mean ? "mean.dim" : "sum.dim_IntList",
                     {{"dim", Argument(std::move(axes))}, {"keepdim", Argument(keep)}});
  }

  // Of a number added to each of the elements.
  static Term folded(double number, const Fold& fold) {
    if (fold.is_mean && !fold.weights) return number;
    if (!fold.weights) return number * static_cast<double>(fold.count());
    return in_mean(reduce(*fold.weights, {0}, false, true) * Term(number), fold);
  }

  // A weighted sum where the mean is wanted.
  static Term in_mean(const Term& sum, const Fold& fold) {
    return fold.is_mean ? sum / Term(static_cast<double>(fold.count())) : sum;
  }

  // Of a value that is broadcast to the fold's shape.
  Term folded(ValueId id, const Fold& fold) {
    const TensorType& of = type(id);
    IntList axes;
    int64_t times = 1;
    for (const int64_t axis : fold.axes) {
      const int64_t own = axis + of.rank() - static_cast<int64_t>(fold.shape.size());
      if (own >= 0 && of.shape[own] == fold.shape[axis]) axes.push_back(own);
      else times *= fold.shape[axis];
    }
    if (fold.weights && axes.empty()) return in_mean(value(id) * reduce(*fold.weights, {0}, false, true), fold);
    if (fold.weights) return in_mean(reduce(value(id) * *fold.weights, axes, false, true), fold);
    const Term some = axes.empty() ? value(id) : reduce(value(id), axes, fold.is_mean, true);
    return fold.is_mean || times == 1 ? some : some * Term(static_cast<double>(times));
  }

  // The fold of a value that is linear in products which nothing else reads, without the products. nullopt where there
  // is no such product in it.
  std::optional<Term> without_products(ValueId id, const Fold& fold) {
    const Node* node = producer(id);
    if (node == nullptr || !is_read_once(id) || !is_single_or_double(type(id).dtype) || type(id).rank() == 0)
      return std::nullopt;
    const std::string_view name = base_name(node->op);
    if (const auto map = map_of(*node)) return fold.of_outputs ? of_outputs(*map, fold) : of_rows(*map, fold);
    if (name == "neg" || name == "mul" || name == "div") return of_scaled(Node(*node), id, fold);
    if (name == "add" || name == "sub") return of_sum(Node(*node), id, fold);
    return std::nullopt;
  }

  bool keeps_shape(ValueId operand, ValueId result) const {
    return operand != kNoValue && type(operand).shape == type(result).shape &&
           type(operand).dtype == type(result).dtype;
  }

  std::optional<Term> of_scaled(const Node& node, ValueId id, const Fold& fold) {
    const std::string_view name = base_name(node.op);
    const ValueId self = node.value("self"), other = node.value("other");
    if (!node.text("rounding_mode").empty()) return std::nullopt;
    if (other != kNoValue) {
      if (name != "mul" || !fold.of_outputs) return std::nullopt;
      if (keeps_shape(self, id) && weighs_outputs(other, fold)) return without_products(self, weighted(fold, other));
      if (keeps_shape(other, id) && weighs_outputs(self, fold)) return without_products(other, weighted(fold, self));
      return std::nullopt;
    }
    if (!keeps_shape(self, id)) return std::nullopt;
    const double factor = node.number("other", 1.0);
    const auto inner = without_products(self, fold);
    if (!inner) return std::nullopt;
    if (name == "neg") return -*inner;
    return name == "mul" ? *inner * Term(factor) : *inner / Term(factor);
  }

  // Is it one number for each output?
  bool weighs_outputs(ValueId id, const Fold& fold) const {
    return id != kNoValue && type(id).rank() > 0 && type(id).shape.back() == fold.shape.back() &&
           type(id).elements() == fold.shape.back();
  }

  Fold weighted(const Fold& fold, ValueId weights) {
    Fold other = fold;
    const Term vector = type(weights).rank() == 1 ? value(weights) : view(value(weights), {fold.shape.back()});
    other.weights = fold.weights ? *fold.weights * vector : vector;
    return other;
  }

  std::optional<Term> of_sum(const Node& node, ValueId id, const Fold& fold) {
    const double sign = (base_name(node.op) == "sub" ? -1.0 : 1.0) * node.number("alpha", 1.0);
    bool has_product = false;
    const auto side = [&](std::string_view name) -> std::optional<Term> {
      const ValueId operand = node.value(name);
      if (operand == kNoValue) return folded(node.number(name, 0.0), fold);
      if (type(operand).dtype != type(id).dtype) return std::nullopt;
      const auto inner = keeps_shape(operand, id) ? without_products(operand, fold) : std::nullopt;
      has_product = has_product || inner;
      return inner ? *inner : folded(operand, fold);
    };
    const auto left = side("self"), right = side("other");
    if (!left || !right || !has_product) return std::nullopt;
    if (sign == 1.0) return *left + *right;
    return sign == -1.0 ? *left - *right : *left + *right * Term(sign);
  }

  Term with_addend(Term product, const LinearMap& map, const Fold& fold) {
    if (map.alpha != 1.0) product = product * Term(map.alpha);
    if (map.addend == kNoValue) return product;
    const Term addend = folded(map.addend, fold);
    return product + (map.beta == 1.0 ? addend : addend * Term(map.beta));
  }

  std::optional<Term> of_outputs(const LinearMap& map, const Fold& fold) {
    const int64_t inputs = type(map.left).rank() - 1;
    Term matrix = value(map.right);
    if (fold.weights) matrix = matrix * (map.outputs == 0 ? view(*fold.weights, {fold.count(), 1}) : *fold.weights);
    matrix = reduce(matrix, {map.outputs}, fold.is_mean, false);
    return with_addend(reduce(value(map.left) * matrix, {inputs}, false, true), map, fold);
  }

  // Of the sums of the rows.
  std::optional<Term> of_rows(const LinearMap& map, const Fold& fold) {
    const Term rows = reduce(value(map.left), fold.axes, fold.is_mean, true);
    if (map.outputs == 0)
      return with_addend(Term::operation("linear.default", {{"input", rows}, {"weight", value(map.right)}}), map, fold);
    if (rows.type().rank() == 2) return with_addend(rows.call("mm.default", {{"mat2", value(map.right)}}), map, fold);
    TensorType type = rows.type();
    type.shape.back() = this->type(map.right).shape[1];
    type.strides = contiguous_strides(type.shape);
    const ValueId product = rewriter_.emit("aten.matmul.default",
                                           {{"self", ValueRef{rows.id()}}, {"other", ValueRef{map.right}}}, type);
    return with_addend(value(product), map, fold);
  }

  bool reduction(const Node& node, bool is_mean) {
    const ValueId self = node.value("self");
    const TensorType result = type(node.results[0]);
    if (self == kNoValue || type(self).rank() < 2 || result.dtype != type(self).dtype || !result.is_contiguous())
      return false;
    const auto sum = reduced(self, axes_of(node), is_mean);
    if (!sum) return false;
    rewriter_.adopt(node.results[0], in_shape(*sum, result).id(), NumericTag::kReassociates);
    return true;
  }

  // Ascending, counted from the first; all where none are given.
  IntList axes_of(const Node& node) const {
    const int64_t rank = type(node.value("self")).rank();
    IntList axes = node.integers("dim");
    for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
    if (axes.empty())
      for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  // Outputs before rows: what is left of the product is one column.
  std::optional<Term> reduced(ValueId id, IntList axes, bool is_mean) {
    Fold fold{is_mean, true, {}, type(id).shape, std::nullopt};
    const int64_t last = type(id).rank() - 1;
    if (axes.back() != last) {
      fold.of_outputs = false;
      fold.axes = std::move(axes);
      return fold.count() < kFewestRows ? std::nullopt : without_products(id, fold);
    }
    fold.axes = {last};
    const auto sum = without_products(id, fold);
    axes.pop_back();
    return !sum || axes.empty() ? sum : std::optional(reduce(*sum, axes, is_mean, true));
  }

  // The product with one more vector.
  bool dot(const Node& node, ValueId vector) {
    const ValueId self = node.value("self");
    const TensorType result = type(node.results[0]);
    if (self == kNoValue || vector == kNoValue || type(vector).rank() != 1 || type(self).rank() < 2 ||
        type(self).dtype != type(vector).dtype || !result.is_contiguous())
      return false;
    const Fold fold{false, true, {type(self).rank() - 1}, type(self).shape, value(vector)};
    const auto sum = without_products(self, fold);
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
      return reduce(view(value(id), split), {1}, true, false);
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
