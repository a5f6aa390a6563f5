#include "plan/linear_attention.hpp"

#include <algorithm>
#include <set>

#include "plan/axes.hpp"
#include "plan/digit_strides.hpp"
#include "plan/embedding.hpp"
#include "plan/group_names.hpp"
#include "plan/product_lowering.hpp"

namespace kw::plan {
namespace {

std::vector<NodeId> products_among(const GraphFacts& facts, std::span<const NodeId> nodes) {
  std::vector<NodeId> products;
  for (NodeId node : nodes)
    if (facts.kinds[node] == NodeKind::kExtern) products.push_back(node);
  return products;
}

ValueId right_root(const GraphFacts& facts, NodeId node) {
  const ValueId right = factors_of(facts.graph.nodes[node]).right;
  return right == kNoValue ? kNoValue : facts.roots[right];
}

// The batch is one number, whose digits are the product's axes.
OperandPlaces places_of(const Product& product, const ProductOperand& operand, bool left) {
  OperandPlaces places{operand.root, operand.offset, {}, {}, {}};
  for (size_t axis = 0; axis < product.batch.size(); ++axis)
    places.batch.push_back({product.batch[axis], operand.batch[axis]});
  places.outer.push_back(left ? DigitStride{product.rows, operand.row} : DigitStride{product.columns, operand.column});
  places.depth.push_back({product.depth, operand.depth});
  return places;
}

bool is_plain(const Product& product) { return product.alpha == 1.0 && !product.addend && product.strides.empty(); }

class LinearAttentionLowering {
 public:
  LinearAttentionLowering(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs)
      : facts_(facts), graph_(facts.graph), nodes_(nodes), outputs_(outputs) {
    after_.insert(nodes.begin(), nodes.end());
  }

  std::optional<LoweredGroup> run() {
    const SummaryNodes found = summary_among(facts_, nodes_);
    if (found.summary == kNoNode) return std::nullopt;
    const auto summary = product_of(facts_, found.summary, true), values = product_of(facts_, found.values, true);
    if (!summary || !values || !is_plain(*summary) || !is_plain(*values)) return std::nullopt;
    one_.rows = summary->rows;
    one_.columns = summary->columns;
    one_.keys = summary->depth;
    batches_ = summary->batches();
    if (!reads_summary(*summary, *values) || std::max(one_.rows, one_.columns) > kWidestSummary) return std::nullopt;
    left_ = in_memory(places_of(*summary, summary->left, true));
    right_ = in_memory(places_of(*summary, summary->right, false));
    query_ = in_memory(places_of(*values, values->left, true));
    features_ = values->depth;
    queries_ = values->rows;
    for (NodeId node : {found.summary, found.values}) after_.erase(node);
    find_weight();
    for (auto [operand, places] : {std::pair{&one_.left, &left_}, {&one_.right, &right_}, {&one_.query, &query_}})
      if (!take_operand(*operand, *places)) return std::nullopt;
    return finished(*values);
  }

 private:
  bool is_in_group(NodeId node) const { return std::binary_search(nodes_.begin(), nodes_.end(), node); }
  OperandPlaces in_memory(OperandPlaces places) const { return before_copies(facts_, std::move(places), nodes_); }

  bool reads_summary(const Product& summary, const Product& values) {
    if (values.batches() != batches_ || values.right.offset != 0) return false;
    const OperandPlaces places = places_of(values, values.right, false);
    const int64_t rows = summary.rows, columns = summary.columns;
    if (!same_places(places.batch, {{batches_, rows * columns}})) return false;
    const auto is = [&](int64_t depth, int64_t depth_stride, int64_t column, int64_t column_stride) {
      return values.depth == depth && values.columns == column && same_places(places.depth, {{depth, depth_stride}}) &&
             same_places(places.outer, {{column, column_stride}});
    };
    one_.transposed = !is(rows, columns, columns, 1);
    return !one_.transposed || is(columns, 1, rows, columns);
  }

  // --- Weights ---

  // Without one, all that is left stands behind the product.
  void find_weight() {
    for (NodeId sum : nodes_) {
      if (!is_sum_of_keys(sum)) continue;
      for (NodeId node : nodes_) {
        if (!(facts_.kinds[node] == NodeKind::kExtern ? is_weight_product(node, graph_.nodes[sum].results[0])
                                                      : is_weight_sum(node, graph_.nodes[sum].results[0])))
          continue;
        one_.weight = graph_.nodes[node].results[0];
        after_.erase(sum);
        after_.erase(node);
        return;
      }
    }
  }

  bool is_plain_sum(NodeId id) const {
    const Node& node = graph_.nodes[id];
    return facts_.kinds[id] == NodeKind::kReduce && base_name(node) == "sum" && node.value("self") != kNoValue &&
           node.results.size() == 1 && graph_.type(node.results[0]).is_contiguous() &&
           graph_.type(node.results[0]).dtype == graph_.type(node.value("self")).dtype;
  }

  // The dimensions that a sum folds, and the others.
  struct Dims {
    std::vector<int64_t> folded, kept;
  };
  Dims dims_of(NodeId sum) const {
    const Node& node = graph_.nodes[sum];
    const int64_t rank = graph_.type(node.value("self")).rank();
    std::set<int64_t> folded;
    for (int64_t dim : node.integers("dim")) folded.insert(wrap_dim(dim, rank));
    Dims dims;
    for (int64_t dim = 0; dim < rank; ++dim)
      (folded.empty() || folded.contains(dim) ? dims.folded : dims.kept).push_back(dim);
    return dims;
  }

  // Of the operand whose features queries meet: summed over all keys, a number for each feature of each head.
  bool is_sum_of_keys(NodeId id) const {
    if (!is_plain_sum(id)) return false;
    const ValueId self = graph_.nodes[id].value("self");
    Dims dims = dims_of(id);
    if (dims.kept.empty()) return false;
    const int64_t feature = dims.kept.back();
    dims.kept.pop_back();
    const TensorType& type = graph_.type(self);
    return in_memory(places_in(facts_, self, type.strides, type.shape, dims.kept, feature, dims.folded)) ==
           (one_.transposed ? right_ : left_);
  }

  OperandPlaces places_of_sum(ValueId sum) const { return {sum, 0, {{batches_, features_}}, {}, {{features_, 1}}}; }

  // queries · sum, a product with a vector.
  bool is_weight_product(NodeId id, ValueId sum) {
    const auto product = product_of(facts_, id, true);
    if (!product || !is_plain(*product) || product->columns != 1 || product->rows != queries_ ||
        product->batches() != batches_)
      return false;
    OperandPlaces right = places_of(*product, product->right, false);
    right.outer.clear();
    if (!(in_memory(places_of(*product, product->left, true)) == query_) || !(right == places_of_sum(sum)))
      return false;
    weight_places_ = {{batches_ * queries_, 1}};
    return true;
  }

  // (queries * sum).sum(-1)
  bool is_weight_sum(NodeId id, ValueId sum) {
    if (!is_plain_sum(id)) return false;
    const ValueId multiplied = graph_.nodes[id].value("self");
    const NodeId mul = graph_.values[multiplied].producer;
    const Dims dims = dims_of(id);
    if (mul == kNoNode || !after_.contains(mul) || base_name(graph_.nodes[mul]) != "mul" || dims.folded.size() != 1)
      return false;
    const ValueId self = graph_.nodes[mul].value("self"), other = graph_.nodes[mul].value("other");
    if (self == kNoValue || other == kNoValue || !is_read_by_alone(multiplied, id)) return false;
    for (auto [query, factor] : {std::pair{self, other}, {other, self}})
      for (int64_t row : dims.kept)
        if (facts_.roots[factor] == sum && is_weighted_by(dims, row, query, factor, multiplied)) {
          after_.erase(mul);
          return true;
        }
    return false;
  }

  bool is_read_by_alone(ValueId value, NodeId reader) const {
    return !facts_.escapes[value] && facts_.readers[value] == std::vector<NodeId>{reader};
  }

  bool is_weighted_by(const Dims& dims, int64_t row, ValueId query, ValueId sum, ValueId multiplied) {
    const TensorType& type = graph_.type(multiplied);
    const auto of_query = batch_strides(graph_.type(query), 0, type.shape),
               of_sum = batch_strides(graph_.type(sum), 0, type.shape);
    if (!of_query || !of_sum || ((*of_sum)[row] != 0 && type.shape[row] > 1) ||
        graph_.type(query).dtype != type.dtype || graph_.type(sum).dtype != type.dtype)
      return false;
    std::vector<int64_t> batch = dims.kept;
    std::erase(batch, row);
    if (!(in_memory(places_in(facts_, query, *of_query, type.shape, batch, row, dims.folded)) == query_) ||
        !(places_in(facts_, sum, *of_sum, type.shape, batch, -1, dims.folded) == places_of_sum(facts_.roots[sum])))
      return false;
    Shape kept;
    for (int64_t dim : dims.kept) kept.push_back(type.shape[dim]);
    const Shape strides = contiguous_strides(kept);
    DigitStride of_row;
    weight_places_.clear();
    for (size_t place = 0; place < kept.size(); ++place) {
      const DigitStride digit{kept[place], strides[place]};
      if (dims.kept[place] == row) of_row = digit;
      else weight_places_.push_back(digit);
    }
    weight_places_.push_back(of_row);
    return true;
  }

  // Is the weight that the group's kernel loads that of the query whose result it makes?
  bool weighs_its_query(const LoweredGroup& group) const {
    if (one_.weight == kNoValue) return true;
    const GroupKernel& kernel = group.kernel;
    const std::vector<int64_t> distances = distances_in_product(group);
    std::vector<size_t> farthest;
    for (size_t axis = 0; axis < kernel.symbols.size(); ++axis)
      if (extent_of(kernel.symbols[axis]) > 1) farthest.push_back(axis);
    std::sort(farthest.begin(), farthest.end(), [&](size_t a, size_t b) { return distances[a] > distances[b]; });
    const int64_t columns = group.product->columns;
    for (const Expr& expr : kernel.exprs) {
      if (!is_load(expr) || group.buffers[expr.access.buffer] != one_.weight) continue;
      const Index& index = index_of(expr.access);
      if (index.constant != 0 || expr.access.mask != kNoExpr || lookup_of(expr.access) != kNoExpr) return false;
      for (const kernel::Digit& digit : kernel::digits_of(index))
        if (!digit.is_plain()) return false;
      DigitStrides places;
      for (size_t axis : farthest) {
        const int64_t extent = extent_of(kernel.symbols[axis]),
                      stride = kernel::stride_along(index, static_cast<kernel::Symbol>(axis));
        if (distances[axis] % columns == 0) places.push_back({extent, stride});
        else if (stride != 0 || distances[axis] * extent > columns) return false;
      }
      if (!same_places(places, weight_places_)) return false;
    }
    return true;
  }

  // --- Operands ---

  void collect_makers(ValueId value, std::set<NodeId>& makers) const {
    const NodeId producer = graph_.values[value].producer;
    if (producer == kNoNode) return;
    const bool view = facts_.kinds[producer] == NodeKind::kView;
    if (!view && (!is_in_group(producer) || !makers.insert(producer).second)) return;
    for_each_operand(graph_.nodes[producer], [&](ValueId operand) { collect_makers(operand, makers); });
  }

  bool take_operand(LinearOperand& operand, const OperandPlaces& places) {
    const TensorType& root = graph_.type(places.root);
    operand.memory = placed(facts_, places.root);
    operand.memory.offset = places.offset;
    operand.batch = places.batch;
    operand.outer = places.outer;
    operand.depth = places.depth;
    for (int64_t dim = 0; dim < root.rank(); ++dim) operand.elements += (root.shape[dim] - 1) * root.strides[dim];
    std::set<NodeId> makers;
    collect_makers(places.root, makers);
    if (makers.empty()) return true;
    const std::vector<NodeId> nodes(makers.begin(), makers.end());
    if (places.offset != 0 || std::any_of(nodes.begin(), nodes.end(), [&](NodeId node) {
          return facts_.kinds[node] != NodeKind::kPointwise && facts_.kinds[node] != NodeKind::kFactory;
        }))
      return false;
    std::optional<LoweredGroup> made = lower_group(facts_, nodes, {places.root});
    if (!made || made->product || folds(made->kernel) || !can_make_image(made->kernel)) return false;
    coalesce(made->kernel);
    operand.producer = ImageProducer{.group = std::make_shared<const LoweredGroup>(*std::move(made))};
    for (NodeId node : nodes) after_.erase(node);
    return root.is_dense() &&
           covers(operand.producer->group->kernel, operand.producer->image_store(places.root).access, root.elements());
  }

  // --- What follows ---

  // Copies that operands are read past are nobody's any more.
  void leave_out_copies() {
    for (NodeId node : nodes_) {
      if (!after_.contains(node) || !is_copy(facts_, node)) continue;
      const ValueId copy = graph_.nodes[node].results[0];
      const auto& readers = facts_.readers[copy];
      if (!facts_.escapes[copy] && std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
            return is_in_group(reader) && !after_.contains(reader);
          }))
        after_.erase(node);
    }
  }

  // Of the group's own values, do the nodes behind the products read these alone?
  bool reads_results_alone(ValueId result) const {
    bool good = true;
    for (NodeId node : after_)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        const NodeId maker = graph_.values[root].producer;
        good = good && (maker == kNoNode || !is_in_group(maker) || after_.contains(maker) || root == result ||
                        root == one_.weight);
      });
    return good;
  }

  std::optional<LoweredGroup> finished(const Product& values) {
    leave_out_copies();
    if (!reads_results_alone(values.result)) return std::nullopt;
    for (ValueId output : outputs_)
      if (output != values.result && !after_.contains(graph_.values[output].producer)) return std::nullopt;
    Product product = values;
    product.batch = {batches_};
    product.left.batch = product.right.batch = {0};
    const std::vector<NodeId> after(after_.begin(), after_.end());
    std::optional<LoweredGroup> group = lower_after_product(facts_, after, product, outputs_);
    if (!group || folds(group->kernel) || group->statistics || !weighs_its_query(*group)) return std::nullopt;
    group->linear_attention = std::move(one_);
    group->kernel.name = kernel_name(graph_, nodes_);
    group->kernel.doc = kernel_doc(graph_, nodes_, outputs_);
    return group;
  }

  const GraphFacts& facts_;
  const Graph& graph_;
  const std::span<const NodeId> nodes_;
  const std::vector<ValueId>& outputs_;
  std::set<NodeId> after_;  // nodes that nothing else has taken
  LinearAttention one_;
  OperandPlaces left_, right_, query_;
  DigitStrides weight_places_;  // of all heads' queries, as one number
  int64_t batches_ = 1, features_ = 1, queries_ = 1;
};

}  // namespace

SummaryNodes summary_among(const GraphFacts& facts, std::span<const NodeId> nodes) {
  const std::vector<NodeId> products = products_among(facts, nodes);
  if (products.size() != 2 && products.size() != 3) return {};
  SummaryNodes found;
  for (NodeId summary : products)
    for (NodeId values : products) {
      if (facts.graph.nodes[summary].results.size() != 1 || right_root(facts, values) == kNoValue ||
          right_root(facts, values) != facts.graph.nodes[summary].results[0])
        continue;
      if (found.summary != kNoNode) return {};
      found = {summary, values};
    }
  return found;
}

std::optional<LoweredGroup> lower_linear_attention(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                   const std::vector<ValueId>& outputs) {
  return LinearAttentionLowering(facts, nodes, outputs).run();
}

}  // namespace kw::plan
