#include "passes/mutations.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ir/infer.hpp"

namespace kw {
namespace {

class OutputCopies {
 public:
  explicit OutputCopies(Graph& graph) : graph_(graph), roots_(storage_roots(graph)) {
    for (const Value& value : graph.values) names_.insert(value.name);
  }

  RewriteCounts run() {
    std::set<ValueId> written;
    for (GraphOutput& output : graph_.outputs) {
      if (output.kind == OutputKind::kUser) continue;
      const ValueId target = input_of(output);
      if (target == kNoValue || output.value == target) continue;
      const ValueId root = roots_[output.value];
      if (root == target || written.contains(root)) output.value = copy_of(output.value);
      written.insert(target);
    }
    for (GraphOutput& output : graph_.outputs)
      if (output.kind == OutputKind::kUser && output.value != kNoValue &&
          output.value < static_cast<ValueId>(roots_.size()) && written.contains(roots_[output.value]))
        output.value = copy_of(output.value);
    if (!copies_.empty()) {
      link_producers(graph_);
      renumber(graph_);
    }
    RewriteCounts counts;
    for (size_t count = 0; count < copies_.size(); ++count) counts.add(NumericTag::kExact);
    return counts;
  }

 private:
  ValueId input_of(const GraphOutput& output) const {
    const auto input = std::find_if(graph_.inputs.begin(), graph_.inputs.end(), [&](const GraphInput& one) {
      return one.target == output.target &&
             (one.kind == InputKind::kUser) == (output.kind == OutputKind::kInputMutation);
    });
    return input == graph_.inputs.end() ? kNoValue : input->value;
  }

  // The same view of a copy of the input, so that it lies in memory as it did.
  ValueId copy_of(ValueId value) {
    if (const auto known = copies_.find(value); known != copies_.end()) return known->second;
    const NodeId producer = graph_.values[value].producer;
    const bool is_view = producer != kNoNode && graph_.nodes[producer].results.size() == 1;
    Node node = is_view ? graph_.nodes[producer]
                        : Node{"aten.clone.default", {{"self", ValueRef{value}}}, {kNoValue}, ""};
    TensorType type = graph_.type(value);
    if (is_view) {
      const ValueId base = node.value("self");
      const ValueId copied = copy_of(base);
      node.set("self", ValueRef{copied});
      type.offset += graph_.type(copied).offset - graph_.type(base).offset;
      if (graph_.type(copied).strides != graph_.type(base).strides)
        if (const auto inferred = infer_view(graph_, node)) type = *inferred;
    } else {
      type.offset = 0;
      if (!type.is_dense()) type.strides = contiguous_strides(type.shape);
    }
    const auto id = static_cast<ValueId>(graph_.values.size());
    graph_.values.push_back(
        {fresh(graph_.values[value].name + "_before"), std::move(type), static_cast<NodeId>(graph_.nodes.size()), 0});
    node.results[0] = id;
    graph_.nodes.push_back(std::move(node));
    return copies_[value] = id;
  }

  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int count = 2; !names_.insert(name).second; ++count) name = wanted + "_" + std::to_string(count);
    return name;
  }

  Graph& graph_;
  std::vector<ValueId> roots_;
  std::set<std::string> names_;
  std::map<ValueId, ValueId> copies_;  // by what is copied
};

}  // namespace

RewriteCounts mutations(Graph& graph) {
  const bool writes = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                  [](const GraphOutput& output) { return output.kind != OutputKind::kUser; });
  return writes ? OutputCopies(graph).run() : RewriteCounts{};
}

}  // namespace kw
