#include "passes/rewriter.hpp"

#include <numeric>

#include "ir/infer.hpp"
#include "ir/op_registry.hpp"
#include "support/error.hpp"

namespace kw {

std::string_view name_of(NumericTag tag) {
  constexpr std::string_view names[] = {"exact", "reassociating"};
  return names[static_cast<size_t>(tag)];
}

NumericTag RewriteCounts::worst() const { return by_tag[1] > 0 ? NumericTag::kReassociates : NumericTag::kExact; }

Rewriter::Rewriter(Graph& graph) : graph_(graph), replaced_(graph.values.size()) {
  KW_ASSERT(graph.groups.empty(), "a graph is not rewritten after fusion");
  std::iota(replaced_.begin(), replaced_.end(), 0);
}

std::vector<Node>& Rewriter::begin() {
  old_nodes_ = std::move(graph_.nodes);
  graph_.nodes.clear();
  graph_.nodes.reserve(old_nodes_.size());
  return old_nodes_;
}

void Rewriter::enter(Node& node) {
  bool moved = false;
  for_each_operand(node, [&](ValueId& id) {
    moved = moved || resolve(id) != id || moved_.contains(id);
    id = resolve(id);
  });
  location_ = node.location;
  entered_ = Rewrite{};
  entered_.first = static_cast<NodeId>(graph_.nodes.size());
  counted_before_ = counts_.by_tag;
  // A view of what lies elsewhere by now does so too.
  if (!moved || class_of(node.op) != OpClass::kView || node.results.size() != 1) return;
  const auto type = infer_view(graph_, node);
  if (!type || *type == graph_.type(node.results[0])) return;
  graph_.values[node.results[0]].type = *type;
  moved_.insert(node.results[0]);
}

void Rewriter::keep(Node&& node) {
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (node.results[i] == kNoValue) continue;
    graph_.values[node.results[i]].producer = id;
    graph_.values[node.results[i]].result_index = static_cast<int>(i);
  }
  graph_.nodes.push_back(std::move(node));
}

void Rewriter::note(NodeId visited) {
  if (counts_.by_tag == counted_before_) return;
  constexpr auto kMoves = static_cast<size_t>(NumericTag::kReassociates);
  entered_.tag = counts_.by_tag[kMoves] > counted_before_[kMoves] ? NumericTag::kReassociates : NumericTag::kExact;
  entered_.visited = visited;
  entered_.last = static_cast<NodeId>(graph_.nodes.size());
  counts_.places.push_back(std::move(entered_));
}

void Rewriter::finish() {
  for (auto& output : graph_.outputs)
    if (output.value != kNoValue) output.value = resolve(output.value);
  renumber(graph_);
}

const Node* Rewriter::producer(ValueId id) const {
  const NodeId node = graph_.values[id].producer;
  return node == kNoNode ? nullptr : &graph_.nodes[node];
}

std::string Rewriter::unique_name(std::string_view wanted) {
  if (names_.empty())
    for (const auto& value : graph_.values) names_.emplace(value.name, 0);
  std::string name(wanted);
  for (auto& c : name)
    if (c == '.') c = '_';
  const auto [taken, fresh] = names_.emplace(name, 0);
  if (fresh) return name;
  std::string candidate;
  do candidate = name + "_" + std::to_string(++taken->second);
  while (names_.contains(candidate));
  names_.emplace(candidate, 0);
  return candidate;
}

ValueId Rewriter::emit(std::string op, std::vector<NamedArgument> arguments, std::string_view name) {
  Node node{std::move(op), std::move(arguments), {kNoValue}, ""};
  TensorType type;
  if (const auto view = class_of(node.op) == OpClass::kView ? infer_view(graph_, node) : std::nullopt) {
    type = *view;
  } else {
    const Inference inferred = infer(graph_, node);
    KW_ASSERT(inferred.problem.empty(), "a pass wrote " + node.op + ": " + inferred.problem);
    KW_ASSERT(!inferred.results.empty() && inferred.results[0].shape && inferred.results[0].dtype,
              "a pass wrote " + node.op + ", whose type cannot be inferred");
    type.dtype = *inferred.results[0].dtype;
    type.shape = *inferred.results[0].shape;
    type.strides = contiguous_strides(type.shape);
    bool first = true;
    for_each_operand(node, [&](ValueId operand) {
      const TensorType& from = graph_.type(operand);
      // As PyTorch does: pointwise results lie in memory as their dense operand of the same shape.
      if (class_of(node.op) == OpClass::kPointwise && from.shape == type.shape && from.is_dense() && first)
        type.strides = from.strides;
      if (from.rank() > 0 || first) type.device = from.device;
      first = false;
    });
  }
  return emit(std::move(node.op), std::move(node.arguments), std::move(type), name);
}

ValueId Rewriter::emit(std::string op, std::vector<NamedArgument> arguments, TensorType type, std::string_view name,
                       size_t unread) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  graph_.values.push_back({unique_name(name.empty() ? base_name(op) : name), std::move(type), kNoNode, 0});
  std::vector<ValueId> results(1 + unread, kNoValue);
  results[0] = id;
  keep(Node{std::move(op), std::move(arguments), std::move(results), location_});
  return id;
}

std::vector<ValueId> Rewriter::emit_all(std::string op, std::vector<NamedArgument> arguments,
                                        std::vector<std::pair<std::string, TensorType>> results) {
  std::vector<ValueId> ids;
  for (auto& [name, type] : results) {
    ids.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back({unique_name(name), std::move(type), kNoNode, static_cast<int>(ids.size()) - 1});
  }
  keep(Node{std::move(op), std::move(arguments), ids, location_});
  return ids;
}

void Rewriter::define(ValueId result, std::string op, std::vector<NamedArgument> arguments) {
  keep(Node{std::move(op), std::move(arguments), {result}, location_});
}

void Rewriter::replace(ValueId result, ValueId with, NumericTag tag) {
  KW_ASSERT(type(result).shape == type(with).shape && type(result).dtype == type(with).dtype,
            "%" + graph_.values[result].name + " is replaced by a value of another type");
  replaced_[result] = with;
  entered_.with = graph_.values[with].name;
  counts_.add(tag);
}

bool same_place(const TensorType& left, const TensorType& right) {
  if (left.dtype != right.dtype || left.shape != right.shape || left.offset != right.offset ||
      left.device != right.device)
    return false;
  for (size_t axis = 0; axis < left.shape.size(); ++axis)
    if (left.shape[axis] != 1 && left.strides[axis] != right.strides[axis]) return false;
  return true;
}

Reads::Reads(const Graph& graph) : counts_(graph.values.size(), 0) {
  for (const auto& node : graph.nodes) for_each_operand(node, [&](ValueId id) { ++counts_[id]; });
  for (const auto& output : graph.outputs)
    if (output.value != kNoValue) ++counts_[output.value];
}

Sharing::Sharing(const Graph& graph)
    : escapes_(escaping_values(graph)),
      is_output_(graph.is_output()),
      is_input_(graph.values.size(), false),
      roots_(storage_roots(graph)) {
  for (const auto& input : graph.inputs) is_input_[input.value] = true;
}

bool Sharing::merge(const Graph& graph, ValueId copy, ValueId source) {
  if (!same_place(graph.type(source), graph.type(copy))) return false;
  const auto known = [&](ValueId id) { return static_cast<size_t>(id) < roots_.size(); };
  if (known(copy) && !escapes_[copy]) return true;
  if (!known(copy) || !known(source) || graph.type(source) != graph.type(copy)) return false;
  const ValueId root = roots_[source];
  if (escapes_[root] || is_input_[root]) return false;
  escapes_[root] = true;
  return true;
}

void Rewriter::adopt(ValueId result, ValueId emitted, NumericTag tag) {
  KW_ASSERT(type(result).shape == type(emitted).shape && type(result).dtype == type(emitted).dtype,
            "%" + graph_.values[result].name + " is replaced by a value of another type");
  Node& node = graph_.nodes.back();
  KW_ASSERT(node.results.size() == 1 && node.results[0] == emitted, "only the last emitted value can be adopted");
  node.results[0] = result;
  graph_.values[result].producer = static_cast<NodeId>(graph_.nodes.size()) - 1;
  counts_.add(tag);
}

std::vector<bool> escaping_values(const Graph& graph) {
  std::vector<bool> escapes(graph.values.size(), false);
  for (const auto& output : graph.outputs)
    if (output.value != kNoValue) escapes[output.value] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (class_of(node.op) != OpClass::kView) continue;
    bool any = false;
    for (const ValueId id : node.results) any = any || (id != kNoValue && escapes[id]);
    if (any) for_each_operand(node, [&](ValueId id) { escapes[id] = true; });
  }
  return escapes;
}

std::vector<ValueId> storage_roots(const Graph& graph) {
  std::vector<ValueId> roots(graph.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const auto& node : graph.nodes) {
    if (class_of(node.op) != OpClass::kView) continue;
    ValueId operand = kNoValue;
    for_each_operand(node, [&](ValueId id) {
      if (operand == kNoValue) operand = id;
    });
    for (const ValueId id : node.results)
      if (id != kNoValue && operand != kNoValue) roots[id] = roots[operand];
  }
  return roots;
}

}  // namespace kw
