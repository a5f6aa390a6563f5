#include "plan/attention.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/group_names.hpp"
#include "plan/kept_weights.hpp"
#include "plan/product_lowering.hpp"

namespace kw::plan {
namespace {

bool is_softmax(const Node& node) { return rule_of(node) == OpRule::kSoftmax || rule_of(node) == OpRule::kSafeSoftmax; }

bool is_cast(const Node& node) {
  const std::string_view name = base_name(node);
  return name == "_to_copy" || name == "to" || name == "clone" || name == "contiguous";
}

// Does the value, in the order of its dimensions, have its root's elements in the order of memory?
bool lies_like_its_root(const GraphFacts& facts, ValueId value) {
  const TensorType &type = facts.graph.type(value), &root = facts.graph.type(facts.roots[value]);
  return type.is_contiguous() && root.is_dense() && type.offset == root.offset && type.elements() == root.elements();
}

class AttentionLowering {
 public:
  AttentionLowering(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs)
      : facts_(facts), graph_(facts.graph), nodes_(nodes), outputs_(outputs) {}

  std::optional<LoweredGroup> run() {
    const auto found = attention_among(facts_, nodes_);
    if (!found) return std::nullopt;
    return found->scores == kNoNode ? of_operator(found->values) : of_products(*found);
  }

 private:
  bool is_in_group(NodeId node) const { return std::binary_search(nodes_.begin(), nodes_.end(), node); }

  // The group's nodes that the value depends on, other than through `but_for`.
  void collect_before(ValueId value, NodeId but_for, std::set<NodeId>& before) const {
    const NodeId producer = graph_.values[value].producer;
    if (producer == kNoNode || producer == but_for) return;
    const bool view = facts_.kinds[producer] == NodeKind::kView;
    if (!view && (!is_in_group(producer) || !before.insert(producer).second)) return;
    for_each_operand(graph_.nodes[producer], [&](ValueId operand) { collect_before(operand, but_for, before); });
  }

  std::set<NodeId> before(ValueId value, NodeId but_for = kNoNode) const {
    std::set<NodeId> found;
    collect_before(value, but_for, found);
    return found;
  }

  bool reads(NodeId node, const std::set<NodeId>& producers) const {
    bool found = false;
    for_each_operand(graph_.nodes[node], [&](ValueId operand) {
      found = found || producers.contains(graph_.values[facts_.roots[operand]].producer);
    });
    return found;
  }

  static bool fits(const Product& scores, const Product& values) {
    return scores.batch == values.batch && scores.rows == values.rows && scores.columns == values.depth;
  }

  // Do blocks have heads of so many features? Wider ones of few rows, once heads share keys as they can.
  static bool fits_blocks(const Product& scores, const Product& values, bool has_softmax) {
    const int64_t widest = std::max(scores.depth, values.columns),
                  few = values.right.dtype == DType::f32 ? kFewRows : kFewRowsInHalves;
    return widest <= kWidestHead || (has_softmax && widest <= kWidestHeadOfFew && values.rows <= few);
  }

  // Where each head has one query, those of the heads that share keys and values are rows of one product.
  static void share_keys(Product& scores, Product& values, Attention& attention) {
    if (attention.is_causal) return;  // the place of a query is its row
    std::vector<ProductOperand*> by_row = {&scores.left, &values.left};
    for (auto* one : {&scores.addend, &values.addend, &attention.mask})
      if (*one) by_row.push_back(&**one);
    while (values.rows == 1 && !values.batch.empty() && scores.right.batch.back() == 0 &&
           values.right.batch.back() == 0) {
      for (ProductOperand* operand : by_row) {
        if (operand->batch.empty()) continue;  // weights that no tensor holds
        operand->row = operand->batch.back();
        operand->batch.pop_back();
      }
      for (Product* product : {&scores, &values}) {
        if (!product->strides.empty()) product->strides.erase(product->strides.end() - 2);
        product->right.batch.pop_back();
        product->rows = product->batch.back();
        product->batch.pop_back();
      }
    }
  }

  // --- The operator ---

  std::optional<LoweredGroup> of_operator(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const ValueId query = node.value("query"), key = node.value("key"), value = node.value("value");
    if (query == kNoValue || key == kNoValue || value == kNoValue || node.results.size() != 1 ||
        node.number("dropout_p", 0.0) != 0.0)
      return std::nullopt;
    const TensorType &q = graph_.type(query), &k = graph_.type(key), &v = graph_.type(value),
                     &result = graph_.type(node.results[0]);
    const int64_t rank = q.rank();
    const bool is_float = q.dtype == DType::f32 || q.dtype == DType::f16 || q.dtype == DType::bf16;
    if (!is_float || rank < 3 || k.rank() != rank || v.rank() != rank || k.dtype != q.dtype || v.dtype != q.dtype ||
        result.dtype != q.dtype || result.elements() == 0 || !result.is_dense() || k.shape[rank - 2] == 0 ||
        q.shape.back() == 0)
      return std::nullopt;

    Product scores, values;
    values.node = id;
    values.result = node.results[0];
    values.rows = scores.rows = q.shape[rank - 2];
    values.depth = scores.columns = k.shape[rank - 2];
    scores.depth = q.shape.back();
    values.columns = v.shape.back();
    scores.alpha = node.number("scale", 1.0 / std::sqrt(static_cast<double>(scores.depth)));
    scores.batch.assign(q.shape.begin(), q.shape.end() - 2);
    int64_t shared = 1;
    if (node.boolean("enable_gqa", false)) shared = share_heads(q, k, v, scores.batch);
    if (shared == 0) return std::nullopt;
    values.batch = scores.batch;
    values.strides = split_heads(result, shared, false).strides;
    const auto place = [&](ValueId operand, bool is_shared) -> std::optional<ProductOperand> {
      const auto strides = batch_strides(split_heads(graph_.type(operand), shared, is_shared), 2, scores.batch);
      if (!strides) return std::nullopt;
      ProductOperand made = placed(facts_, operand);
      made.batch = *strides;
      return made;
    };
    const auto left = place(query, false), right = place(key, true), middle = place(value, true);
    if (!left || !right || !middle) return std::nullopt;
    scores.left = named(*left, "q");
    scores.left.row = q.strides[rank - 2];
    scores.left.depth = q.strides.back();
    scores.right = named(*right, "k");
    scores.right.column = k.strides[rank - 2];
    scores.right.depth = k.strides.back();
    values.right = named(*middle, "v");
    values.right.depth = v.strides[rank - 2];
    values.right.column = v.strides.back();
    values.left.dtype = q.dtype;
    if (!fits(scores, values)) return std::nullopt;

    Attention attention;
    attention.is_causal = node.boolean("is_causal", false);
    attention.nothing_is_zero = true;
    if (const ValueId mask = node.value("attn_mask"); mask != kNoValue) {
      Shape wanted(q.shape.begin(), q.shape.end() - 2);
      wanted.insert(wanted.end(), {scores.rows, scores.columns});
      const auto strides = batch_strides(graph_.type(mask), 0, wanted);
      if (!strides) return std::nullopt;
      TensorType spread = graph_.type(mask);
      spread.shape = wanted;
      spread.strides = *strides;
      spread = split_heads(spread, shared, false);
      attention.mask = named(placed(facts_, mask), "mask");
      attention.mask->batch.assign(spread.strides.begin(), spread.strides.end() - 2);
      attention.mask->row = spread.strides[spread.rank() - 2];
      attention.mask->column = spread.strides.back();
    }
    share_keys(scores, values, attention);
    if (!fits_blocks(scores, values, true)) return std::nullopt;
    LoweredGroup before;
    before.product = std::move(scores);
    attention.scores = std::make_shared<const LoweredGroup>(std::move(before));
    std::vector<NodeId> after(nodes_.begin(), nodes_.end());
    std::erase(after, id);
    return finished(std::move(attention), std::move(values), std::move(after));
  }

  static ProductOperand named(ProductOperand operand, std::string name) {
    operand.name = std::move(name);
    return operand;
  }

  // Of operands whose queries have a multiple of the keys' heads: those of one head of keys become an axis of their
  // own in `batch`. Returns how many; 0 where the sizes do not fit.
  static int64_t share_heads(const TensorType& q, const TensorType& k, const TensorType& v, Shape& batch) {
    const int64_t rank = q.rank(), heads = q.shape[rank - 3], of_keys = k.shape[rank - 3];
    if (of_keys == 0 || heads % of_keys != 0 || v.shape[rank - 3] != of_keys) return 0;
    if (heads == of_keys) return 1;
    batch.back() = of_keys;
    batch.push_back(heads / of_keys);
    return heads / of_keys;
  }

  static TensorType split_heads(TensorType type, int64_t shared, bool is_shared) {
    if (shared == 1) return type;
    const auto place = static_cast<std::ptrdiff_t>(type.rank() - 2);
    const int64_t stride = type.strides[place - 1];
    type.strides.insert(type.strides.begin() + place, is_shared ? 0 : stride);
    type.shape.insert(type.shape.begin() + place, is_shared ? 1 : shared);
    if (!is_shared) {
      type.shape[place - 1] /= shared;
      type.strides[place - 1] = stride * shared;
    }
    return type;
  }

  // --- Two products, and a softmax or not ---

  std::optional<LoweredGroup> of_products(const AttentionNodes& found) const {
    auto scores = product_of(facts_, found.scores, true), values = product_of(facts_, found.values, true);
    if (!scores || !values) return std::nullopt;
    const auto [weights, middle] = factors_of(graph_.nodes[found.values]);
    const ValueId operand = found.softmax == kNoNode ? weights : softmax_operand(graph_.nodes[found.softmax]);
    if (operand == kNoValue || !has_scores_of(graph_.type(operand), *values) || !fits(*scores, *values) ||
        !lies_like_its_root(facts_, operand) || !lies_like_its_root(facts_, weights) || !is_dense(*values))
      return std::nullopt;

    const std::set<NodeId> before_softmax = before(operand), before_values = before(weights);
    if (!before_softmax.contains(found.scores)) return std::nullopt;
    std::vector<NodeId> first(before_softmax.begin(), before_softmax.end()), after;
    std::erase(first, found.scores);
    if (reads(found.scores, {nodes_.begin(), nodes_.end()}) ||
        is_in_group(graph_.values[facts_.roots[middle]].producer))
      return std::nullopt;
    for (NodeId node : nodes_) {
      if (before_values.contains(node) || node == found.values) continue;
      if (reads(node, before_values)) return std::nullopt;
      after.push_back(node);
    }
    for (ValueId output : outputs_)
      if (before_values.contains(graph_.values[facts_.roots[output]].producer)) return std::nullopt;

    Attention attention;
    share_keys(*scores, *values, attention);
    if (!fits_blocks(*scores, *values, found.softmax != kNoNode)) return std::nullopt;
    if (found.softmax != kNoNode) {
      auto kept = weights_behind(found, *scores, facts_.roots[weights]);
      if (!kept) return std::nullopt;
      attention.weights = *std::move(kept);
    }
    auto lowered = lower_after_product(facts_, first, *scores, {facts_.roots[operand]});
    if (!lowered || folded_dimension(*lowered) || lowered->kernel.stores.size() != 1 || !stores_at_its_places(*lowered))
      return std::nullopt;
    scores->left.name = "q";
    scores->right.name = "k";
    values->right.name = "v";
    lowered->product = std::move(scores);
    attention.scores = std::make_shared<const LoweredGroup>(std::move(*lowered));
    attention.has_softmax = found.softmax != kNoNode;
    attention.nothing_is_zero = attention.has_softmax && rule_of(graph_.nodes[found.softmax]) == OpRule::kSafeSoftmax;
    return finished(std::move(attention), std::move(*values), after);
  }

  // What stands between the softmax and the product with the values, `weights`.
  std::optional<KeptWeights> weights_behind(const AttentionNodes& found, const Product& scores, ValueId weights) const {
    const std::set<NodeId> behind = before(weights, found.softmax);
    if (behind.contains(found.scores)) return std::nullopt;
    if (std::all_of(behind.begin(), behind.end(), [&](NodeId node) { return keeps_places(node); }))
      return KeptWeights{};
    Product softmax = scores;
    softmax.node = found.softmax;
    softmax.result = graph_.nodes[found.softmax].results[0];
    softmax.strides.clear();
    softmax.left.dtype = graph_.type(softmax.result).dtype;
    if (!graph_.type(softmax.result).is_contiguous()) return std::nullopt;
    const std::vector<NodeId> nodes(behind.begin(), behind.end());
    auto lowered = lower_after_product(facts_, nodes, softmax, {weights});
    if (!lowered || !stores_at_its_places(*lowered)) return std::nullopt;
    return kept_weights(*std::move(lowered));
  }

  // kNoValue where it is not over the last axis.
  ValueId softmax_operand(const Node& softmax) const {
    const ValueId self = softmax.value("self"), operand = self == kNoValue ? softmax.value("input") : self;
    if (operand == kNoValue) return kNoValue;
    const int64_t dim = softmax.integer("dim", -1);
    return dim == -1 || dim == graph_.type(operand).rank() - 1 ? operand : kNoValue;
  }

  // Whatever its batch axes are: those of the products may be split into groups of heads.
  static bool has_scores_of(const TensorType& type, const Product& values) {
    return type.rank() > 1 && type.shape.back() == values.depth && type.shape[type.rank() - 2] == values.rows &&
           type.elements() == values.batches() * values.rows * values.depth;
  }

  // Does the product read each of its left operand's elements, in the order of memory?
  static bool is_dense(const Product& product) {
    int64_t next = product.rows * product.depth;
    for (size_t axis = product.batch.size(); axis-- > 0; next *= product.batch[axis])
      if (product.batch[axis] != 1 && product.left.batch[axis] != next) return false;
    return product.left.row == product.depth && product.left.depth == 1;
  }

  // Is it a cast or copy whose elements stay in their order?
  bool keeps_places(NodeId id) const {
    const Node& node = graph_.nodes[id];
    bool keeps = is_cast(node) && node.results.size() == 1 && graph_.type(node.results[0]).is_contiguous();
    for_each_operand(node, [&](ValueId operand) { keeps = keeps && lies_like_its_root(facts_, operand); });
    return keeps;
  }

  // Does the group store each element where its product's would be?
  static bool stores_at_its_places(const LoweredGroup& group) {
    const int product = product_buffer(group);
    return std::all_of(group.kernel.exprs.begin(), group.kernel.exprs.end(), [&](const Expr& expr) {
      return !is_load(expr) || expr.access.buffer != product ||
             index_of(expr.access) == index_of(group.kernel.stores[0].access);
    });
  }

  // --- Both ---

  std::optional<LoweredGroup> finished(Attention attention, Product values, std::vector<NodeId> after) const {
    std::optional<LoweredGroup> group = lower_after_product(facts_, after, values, outputs_);
    if (!group || folded_dimension(*group)) return std::nullopt;
    group->product = std::move(values);
    group->attention = std::move(attention);
    group->kernel.name = kernel_name(graph_, nodes_);
    group->kernel.doc = kernel_doc(graph_, nodes_, outputs_);
    return group;
  }

  const GraphFacts& facts_;
  const Graph& graph_;
  const std::span<const NodeId> nodes_;
  const std::vector<ValueId>& outputs_;
};

}  // namespace

bool is_attention_operator(const Node& node) {
  return node.op.starts_with("aten.") && base_name(node) == "scaled_dot_product_attention";
}

NodeId softmax_before(const GraphFacts& facts, std::span<const NodeId> nodes, ValueId value) {
  const NodeId producer = facts.graph.values[value].producer;
  if (producer == kNoNode || !std::binary_search(nodes.begin(), nodes.end(), producer)) return kNoNode;
  const Node& node = facts.graph.nodes[producer];
  if (is_softmax(node)) return producer;
  NodeId found = kNoNode;
  if (is_cast(node) || facts.kinds[producer] == NodeKind::kPointwise)
    for_each_operand(node, [&](ValueId operand) {
      if (found == kNoNode) found = softmax_before(facts, nodes, facts.roots[operand]);
    });
  return found;
}

std::optional<AttentionNodes> attention_among(const GraphFacts& facts, std::span<const NodeId> nodes) {
  std::vector<NodeId> products, operators, softmaxes;
  for (NodeId node : nodes) {
    if (is_softmax(facts.graph.nodes[node])) softmaxes.push_back(node);
    if (facts.kinds[node] != NodeKind::kExtern) continue;
    (is_attention_operator(facts.graph.nodes[node]) ? operators : products).push_back(node);
  }
  if (operators.size() == 1 && products.empty() && softmaxes.empty())
    return AttentionNodes{kNoNode, kNoNode, operators[0]};
  if (!operators.empty() || products.size() != 2 || softmaxes.size() > 1) return std::nullopt;
  const NodeId softmax = softmaxes.empty() ? kNoNode : softmaxes[0];
  const auto values = product_of(facts, products[1]);
  if (!values || softmax_before(facts, nodes, values->left.root) != softmax) return std::nullopt;
  return AttentionNodes{products[0], softmax, products[1]};
}

std::optional<LoweredGroup> lower_attention(const GraphFacts& facts, std::span<const NodeId> nodes,
                                            const std::vector<ValueId>& outputs) {
  return AttentionLowering(facts, nodes, outputs).run();
}

}  // namespace kw::plan
