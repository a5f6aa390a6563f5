#include "passes/rows_first.hpp"

#include "plan/op_table.hpp"

namespace kw {
namespace {

constexpr int64_t kLeastRow = 32;  // elements: shorter ones are not worth a kernel of their own

using Axes = std::vector<bool>;

// For each value the axes along which its elements share a reduction's result: those that softmax works on, or that
// keepdim left with one element.
class RowAxes {
 public:
  explicit RowAxes(const Graph& graph) : graph_(graph), axes_(graph.values.size()) {
    for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) visit(node);
  }
  const Axes& of(ValueId value) const { return axes_[value]; }

 private:
  void visit(NodeId id) {
    const plan::NodeKind kind = plan::classify(graph_, id);
    for (ValueId result : graph_.nodes[id].results) {
      if (result == kNoValue) continue;
      const size_t rank = graph_.type(result).shape.size();
      Axes axes(rank, false);
      if (kind == plan::NodeKind::kPointwise || base_name(graph_.nodes[id]) == "expand") {
        for_each_operand(graph_.nodes[id], [&](ValueId operand) {
          const Axes& from = axes_[operand];
          for (size_t back = 1; back <= std::min(rank, from.size()); ++back)
            axes[rank - back] = axes[rank - back] || from[from.size() - back];
        });
      } else if (kind == plan::NodeKind::kReduce) {
        const auto spec = plan::reduce_spec(graph_, id);
        if (spec && !spec->windowed && spec->domain.size() == rank) axes = spec->reduced;
      }
      axes_[result] = std::move(axes);
    }
  }

  const Graph& graph_;
  std::vector<Axes> axes_;
};

bool folds_in_any_order(const Node& node) {
  const std::string_view name = base_name(node);
  return name == "sum" || name == "mean" || name == "amax" || name == "amin";
}

// The axes to fold first; empty where the node stays.
IntList rows_within(const Graph& graph, NodeId id, const RowAxes& rows) {
  const Node& node = graph.nodes[id];
  const ValueId self = node.value("self");
  if (!folds_in_any_order(node) || self == kNoValue || node.results.size() != 1 ||
      !is_floating(graph.type(self).dtype) || !is_floating(graph.type(node.results[0]).dtype))
    return {};
  const auto spec = plan::reduce_spec(graph, id);
  const Shape& shape = graph.type(self).shape;
  if (!spec || spec->windowed || spec->domain != shape || rows.of(self).size() != shape.size()) return {};
  IntList found;
  int64_t row = 1, others = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const bool is_row = rows.of(self)[axis];
    if (is_row && !spec->reduced[axis]) return {};
    if (is_row) found.push_back(static_cast<int64_t>(axis));
    if (spec->reduced[axis]) (is_row ? row : others) *= shape[axis];
  }
  return row >= kLeastRow && others > 1 ? found : IntList{};
}

}  // namespace

RewriteCounts rows_first(Graph& graph) {
  std::vector<IntList> first(graph.values.size());  // by the reduction's result
  {
    const RowAxes rows(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id)
      if (plan::classify(graph, id) == plan::NodeKind::kReduce) {
        IntList axes = rows_within(graph, id, rows);
        if (!axes.empty()) first[graph.nodes[id].results[0]] = std::move(axes);
      }
  }
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    const ValueId result = node.results.empty() ? kNoValue : node.results[0];
    if (result == kNoValue || static_cast<size_t>(result) >= first.size() || first[result].empty()) return false;
    std::vector<NamedArgument> arguments = {
        {"self", ValueRef{node.value("self")}}, {"dim", first[result]}, {"keepdim", true}};
    const std::string name(base_name(node));
    const std::string op = name == "sum"    ? "aten.sum.dim_IntList"
                           : name == "mean" ? "aten.mean.dim"
                                            : "aten." + name + ".default";
    // Sums of half precision stay in single until the last.
    const DType dtype = rewriter.type(result).dtype;
    const bool narrow = (name == "sum" || name == "mean") && size_of(dtype) < 4;
    const DType working = size_of(dtype) < 4 ? DType::f32 : dtype;
    if ((name == "sum" || name == "mean") && working != rewriter.type(node.value("self")).dtype)
      arguments.push_back({"dtype", working});
    node.set("self", ValueRef{rewriter.emit(op, std::move(arguments), name + "_of_rows")});
    if (narrow) {
      std::vector<NamedArgument> rest = node.arguments;
      std::erase_if(rest, [](const NamedArgument& argument) { return argument.name == "dtype"; });
      rest.push_back({"dtype", working});
      const ValueId whole = rewriter.emit(node.op, std::move(rest), name + "_of_all");
      rewriter.define(result, "aten._to_copy.default", {{"self", ValueRef{whole}}, {"dtype", dtype}});
    }
    rewriter.count(NumericTag::kReassociates);
    return narrow;
  });
}

}  // namespace kw
