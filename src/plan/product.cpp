#include "plan/product.hpp"

#include <algorithm>

#include "plan/rounded_values.hpp"

namespace kw::plan {
namespace {

struct Names {
  std::string_view op, left, right, addend;
};
constexpr Names kProducts[] = {{"mm", "self", "mat2", ""},        {"bmm", "self", "mat2", ""},
                               {"matmul", "self", "other", ""},   {"linear", "input", "weight", "bias"},
                               {"addmm", "mat1", "mat2", "self"}, {"baddbmm", "batch1", "batch2", "self"}};

const Names* find_names(const Node& node) {
  const auto found = std::find_if(std::begin(kProducts), std::end(kProducts),
                                  [&](const Names& one) { return one.op == base_name(node); });
  return found == std::end(kProducts) || !node.op.starts_with("aten.") ? nullptr : found;
}

std::optional<ProductOperand> placed_addend(const GraphFacts& facts, ValueId value, const TensorType& result) {
  const TensorType& type = facts.graph.type(value);
  const auto strides = batch_strides(type, 0, result.shape);
  if (!strides || strides->size() < 2) return std::nullopt;
  ProductOperand addend = placed(facts, value);
  addend.batch.assign(strides->begin(), strides->end() - 2);
  addend.row = (*strides)[strides->size() - 2];
  addend.column = strides->back();
  return addend;
}

class BatchAxes {
 public:
  explicit BatchAxes(Product& product) : product_(product) {}

  // Fewer axes, and longer rows: every axis less is a division less for each block.
  void simplify() {
    for (size_t axis = product_.batch.size(); axis-- > 0;)
      if (product_.batch[axis] == 1) drop(axis);
    while (!product_.batch.empty() && are_rows()) {
      product_.rows *= product_.batch.back();
      drop(product_.batch.size() - 1);
    }
    for (size_t axis = product_.batch.size(); axis-- > 1;)
      if (walks_as_one(axis)) {
        product_.batch[axis] *= product_.batch[axis - 1];
        drop(axis - 1);
      }
  }

 private:
  template <typename Visit>
  void for_each_operand_of(const Visit& visit) {
    visit(product_.left);
    visit(product_.right);
    if (product_.addend) visit(*product_.addend);
  }

  void drop(size_t axis) {
    const auto erase = [&](Shape& shape) { shape.erase(shape.begin() + static_cast<int64_t>(axis)); };
    erase(product_.batch);
    for_each_operand_of([&](ProductOperand& operand) { erase(operand.batch); });
  }

  bool are_rows() {
    bool good = product_.right.batch.back() == 0;
    const auto continues = [&](const ProductOperand& operand) {
      return operand.batch.back() == product_.rows * operand.row;
    };
    good = good && continues(product_.left);
    return good && (!product_.addend || continues(*product_.addend));
  }

  bool walks_as_one(size_t axis) {
    bool good = true;
    for_each_operand_of([&](const ProductOperand& operand) {
      good = good && operand.batch[axis - 1] == operand.batch[axis] * product_.batch[axis];
    });
    return good;
  }

  Product& product_;
};

}  // namespace

ProductOperand placed(const GraphFacts& facts, ValueId value) {
  ProductOperand operand;
  operand.root = facts.roots[value];
  operand.dtype = facts.graph.type(value).dtype;
  operand.name = facts.graph.values[operand.root].name;
  const TensorType& root = facts.graph.type(operand.root);
  operand.aligned = root.offset * size_of(root.dtype) % 16 == 0;
  operand.offset = facts.graph.type(value).offset - facts.graph.type(operand.root).offset;
  return operand;
}

std::optional<Shape> batch_strides(const TensorType& type, int64_t inner, const Shape& batch) {
  const int64_t own = type.rank() - inner, more = static_cast<int64_t>(batch.size()) - own;
  if (more < 0) return std::nullopt;
  Shape strides(batch.size(), 0);
  for (int64_t dim = 0; dim < own; ++dim) {
    if (type.shape[dim] != 1 && type.shape[dim] != batch[more + dim]) return std::nullopt;
    strides[more + dim] = type.shape[dim] == 1 ? 0 : type.strides[dim];
  }
  return strides;
}

double Product::flops() const {
  return 2.0 * static_cast<double>(batches()) * static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(depth);
}

Shape Product::result_shape() const {
  Shape shape = batch;
  shape.insert(shape.end(), {rows, columns});
  return shape;
}

Shape Product::result_strides() const { return strides.empty() ? contiguous_strides(result_shape()) : strides; }

Factors factors_of(const Node& node) {
  const Names* names = find_names(node);
  return names == nullptr ? Factors{} : Factors{node.value(names->left), node.value(names->right)};
}

std::optional<Product> product_of(const GraphFacts& facts, NodeId id, bool all_axes) {
  const Graph& graph = facts.graph;
  const Node& node = graph.nodes[id];
  const Names* names = find_names(node);
  if (names == nullptr || node.results.size() != 1) return std::nullopt;
  const auto [left, right] = factors_of(node);
  if (left == kNoValue || right == kNoValue) return std::nullopt;
  const TensorType &a = graph.type(left), &b = graph.type(right), &result = graph.type(node.results[0]);
  const bool is_float = a.dtype == DType::f32 || a.dtype == DType::f16 || a.dtype == DType::bf16;
  const bool is_linear = names->op == "linear";
  if (!is_float || b.dtype != a.dtype || result.dtype != a.dtype || a.rank() < 2 || b.rank() < 2 ||
      (is_linear && b.rank() != 2) || result.rank() < 2 || result.elements() == 0 || !result.is_contiguous() ||
      a.device != b.device || a.device != result.device)
    return std::nullopt;

  Product product;
  product.node = id;
  product.result = node.results[0];
  product.batch.assign(result.shape.begin(), result.shape.end() - 2);
  product.rows = result.shape[result.rank() - 2];
  product.columns = result.shape.back();
  product.depth = a.shape.back();
  if (product.depth == 0) return std::nullopt;
  const auto left_batch = batch_strides(a, 2, product.batch), right_batch = batch_strides(b, 2, product.batch);
  if (!left_batch || !right_batch) return std::nullopt;
  product.left = placed(facts, left);
  product.left.batch = *left_batch;
  product.left.row = a.strides[a.rank() - 2];
  product.left.depth = a.strides.back();
  product.right = placed(facts, right);
  product.right.batch = *right_batch;
  product.right.column = is_linear ? b.strides[0] : b.strides.back();
  product.right.depth = is_linear ? b.strides[1] : b.strides[b.rank() - 2];
  if (const ValueId addend = names->addend.empty() ? kNoValue : node.value(names->addend); addend != kNoValue) {
    product.addend = placed_addend(facts, addend, result);
    if (!product.addend || product.addend->dtype != a.dtype) return std::nullopt;
  }
  product.alpha = node.number("alpha", 1.0);
  product.beta = node.number("beta", 1.0);
  // PyTorch reads nothing of an addend that counts for nothing.
  if (product.beta == 0.0) product.addend.reset();
  product.rounded = rounds_operands(graph, node);
  if (!all_axes) BatchAxes(product).simplify();
  return product;
}

NodeId product_among(const GraphFacts& facts, std::span<const NodeId> nodes) {
  NodeId found = kNoNode;
  for (NodeId node : nodes) {
    if (facts.kinds[node] != NodeKind::kExtern) continue;
    if (found != kNoNode || !product_of(facts, node)) return kNoNode;
    found = node;
  }
  return found;
}

}  // namespace kw::plan
