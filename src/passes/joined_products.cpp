#include "passes/joined_products.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/infer.hpp"
#include "ir/memory.hpp"
#include "ir/op_registry.hpp"
#include "passes/dead_code.hpp"
#include "passes/linear_maps.hpp"
#include "passes/slices.hpp"
#include "plan/traffic.hpp"

namespace kw {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, at which kernels' wide loads begin

// A product with one of the module's own matrices.
struct Layer {
  ValueId input = kNoValue, result = kNoValue;
  ValueId weight = kNoValue, bias = kNoValue;  // inputs of the graph
  int64_t axis = 0;                            // of the weight, along which its outputs lie
  int64_t outputs = 0;
};

// Which layers of a graph can be one.
class Finder {
 public:
  Finder(const Graph& graph, int64_t most_rows)
      : graph_(graph), most_rows_(most_rows), moved_(graph), escapes_(escaping_values(graph)) {
    const std::set<ValueId> written = written_inputs(graph);
    for (const GraphInput& input : graph.inputs)
      if ((input.kind == InputKind::kParameter || input.kind == InputKind::kBuffer) && !written.contains(input.value))
        own_.insert(input.value);
    const std::vector<bool> live = live_nodes(graph);
    readers_.resize(graph.values.size());
    for (size_t at = 0; at < graph.nodes.size(); ++at)
      if (live[at]) for_each_operand(graph.nodes[at], [&](ValueId id) { readers_[id].push_back(&graph.nodes[at]); });
  }

  std::vector<std::vector<Layer>> run() {
    std::map<std::pair<ValueId, int64_t>, std::vector<Layer>> by_input;
    for (const Node& node : graph_.nodes)
      if (const auto layer = layer_of(node); layer && can_be_columns(*layer))
        by_input[{layer->input, layer->axis}].push_back(*layer);
    std::vector<std::vector<Layer>> found;
    for (auto& [key, layers] : by_input)
      if (layers.size() > 1 && is_kept(layers)) found.push_back(std::move(layers));
    return found;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_.type(id); }

  bool is_read_once(ValueId id) const { return readers_[id].size() == 1 && !escapes_[id]; }

  std::optional<Layer> layer_of(const Node& node) const {
    const auto map = product_by_matrix(graph_, node);
    if (!map || map->alpha != 1.0 || map->beta != 1.0 || !is_read_once(map->right)) return std::nullopt;
    Layer layer{map->left, node.results[0], map->right, map->addend, map->outputs};
    if (const NodeId turn = graph_.values[layer.weight].producer; turn != kNoNode) {
      const Node& view = graph_.nodes[turn];
      if (view.op != "aten.permute.default" || view.integers("dims") != IntList{1, 0}) return std::nullopt;
      layer.weight = view.value("self");
      layer.axis = map->inputs();
    }
    if (!own_.contains(layer.weight) || !is_read_once(layer.weight)) return std::nullopt;
    layer.outputs = type(layer.weight).shape[layer.axis];
    const bool has_vector = layer.bias == kNoValue || (own_.contains(layer.bias) && is_vector_of(layer));
    return has_vector && is_small(layer) ? std::optional(layer) : std::nullopt;
  }

  bool is_vector_of(const Layer& layer) const {
    return type(layer.bias).shape == Shape{layer.outputs} && type(layer.bias).dtype == type(layer.weight).dtype;
  }

  // Few rows, and columns that begin where whole rows of them are aligned.
  bool is_small(const Layer& layer) const {
    const TensorType &input = type(layer.input), &result = type(layer.result);
    if (input.elements() == 0 || result.elements() == 0 || !result.is_contiguous()) return false;
    return input.elements() / input.shape.back() <= most_rows_ && result.dtype == input.dtype &&
           layer.outputs * size_of(result.dtype) % kAlignment == 0;
  }

  // Are all views of the result views as well where rows are further apart? Others would have to be copies.
  bool can_be_columns(const Layer& layer) {
    if (escapes_[layer.result] || readers_[layer.result].empty()) return false;
    TensorType& columns = moved_.values[layer.result].type;
    for (int64_t axis = 0; axis + 1 < columns.rank(); ++axis) columns.strides[axis] *= 2;
    return are_views(layer.result);
  }

  bool are_views(ValueId moved) {
    return std::all_of(readers_[moved].begin(), readers_[moved].end(), [&](const Node* reader) {
      if (class_of(reader->op) != OpClass::kView) return true;
      // as_strided says where in memory its elements lie.
      if (reader->op == "aten.as_strided.default" || reader->results.size() != 1) return false;
      const auto viewed = infer_view(moved_, *reader);
      if (!viewed) return false;
      moved_.values[reader->results[0]].type = *viewed;
      return are_views(reader->results[0]);
    });
  }

  // Only so much is kept between calls.
  bool is_kept(const std::vector<Layer>& layers) const {
    int64_t bytes = 0;
    for (const Layer& layer : layers) bytes += type(layer.weight).bytes();
    return bytes >= plan::kWorthKeeping;
  }

  const Graph& graph_;
  const int64_t most_rows_;
  Graph moved_;  // the types of what is made of columns
  const std::vector<bool> escapes_;
  std::set<ValueId> own_;                          // what the module has, and forward does not change
  std::vector<std::vector<const Node*>> readers_;  // [value] once for each operand that names it
};

class JoinedProducts {
 public:
  JoinedProducts(Graph& graph, const std::vector<std::vector<Layer>>& found) : rewriter_(graph), found_(found) {
    for (size_t group = 0; group < found.size(); ++group)
      for (const Layer& layer : found[group]) group_of_[layer.result] = group;
  }

  RewriteCounts run() {
    std::vector<ValueId> products(found_.size(), kNoValue);
    return rewriter_.run([&](Node& node) {
      const auto group = node.results.empty() ? group_of_.end() : group_of_.find(node.results[0]);
      if (group == group_of_.end()) return false;
      ValueId& product = products[group->second];
      if (product == kNoValue)
        product = joined(product_by_matrix(rewriter_.graph(), node)->left, found_[group->second]);
      rewriter_.replace(node.results[0], columns_of(product, node.results[0]), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  ValueId joined(ValueId input, const std::vector<Layer>& layers) {
    ValueList weights, biases;
    for (const Layer& layer : layers) weights.ids.push_back(layer.weight);
    const bool has_bias = std::any_of(layers.begin(), layers.end(),
                                      [](const Layer& one) { return one.bias != kNoValue; });
    for (const Layer& layer : layers)
      if (has_bias) biases.ids.push_back(layer.bias == kNoValue ? zeros(layer) : layer.bias);
    const int64_t axis = layers[0].axis;
    ValueId weight = concatenated(std::move(weights), axis, "joined_weight");
    if (axis == 1) weight = emit_permuted(rewriter_, weight, {1, 0});
    std::vector<NamedArgument> arguments = {{"input", ValueRef{input}}, {"weight", ValueRef{weight}}};
    if (has_bias) arguments.push_back({"bias", ValueRef{concatenated(std::move(biases), 0, "joined_bias")}});
    return rewriter_.emit("aten.linear.default", std::move(arguments), "joined");
  }

  ValueId concatenated(ValueList parts, int64_t dim, std::string_view name) {
    return rewriter_.emit("aten.cat.default", {{"tensors", std::move(parts)}, {"dim", dim}}, name);
  }

  // Negative, so that nothing changes with them.
  ValueId zeros(const Layer& layer) {
    TensorType made = rewriter_.type(layer.weight);
    made.shape = {layer.outputs};
    made.strides = {1};
    made.offset = 0;
    return rewriter_.emit(
        "aten.full.default",
        {{"size", made.shape}, {"fill_value", -0.0}, {"dtype", made.dtype}, {"device", Keyword{"device", made.device}}},
        made, "no_bias");
  }

  // Of the joined product those that were the layer's result.
  ValueId columns_of(ValueId product, ValueId result) {
    int64_t begin = 0;
    for (const Layer& layer : found_[group_of_.at(result)]) {
      if (layer.result == result) {
        const int64_t last = rewriter_.type(product).rank() - 1;
        return rewriter_.emit(
            "aten.slice.Tensor",
            {{"self", ValueRef{product}}, {"dim", last}, {"start", begin}, {"end", begin + layer.outputs}},
            rewriter_.graph().values[result].name);
      }
      begin += layer.outputs;
    }
    return kNoValue;
  }

  Rewriter rewriter_;
  const std::vector<std::vector<Layer>>& found_;
  std::map<ValueId, size_t> group_of_;  // a layer's result → its place in `found_`
};

}  // namespace

RewriteCounts joined_products(Graph& graph, const GraphForms& forms) {
  if (graph.training || forms.rows_of_joined_products == 0) return {};
  const std::vector<std::vector<Layer>> found = Finder(graph, forms.rows_of_joined_products).run();
  return found.empty() ? RewriteCounts{} : JoinedProducts(graph, found).run();
}

}  // namespace kw
