#include "passes/equal_axes.hpp"

#include <algorithm>
#include <map>

#include "ir/infer.hpp"
#include "ir/op_registry.hpp"
#include "ir/promote.hpp"

namespace kw {
namespace {

// Each element of the result is made of one element of each operand, axes aligned from the back.
bool is_aligned(const Graph& graph, const Node& node) {
  if (class_of(node.op) != OpClass::kPointwise || node.results.size() != 1 || node.results[0] == kNoValue) return false;
  const Inference inferred = infer(graph, node);
  return inferred.problem.empty() && inferred.results.size() == 1 &&
         inferred.results[0].shape == graph.type(node.results[0]).shape;
}

// The axis of `from` behind each of `to`'s, where a view only adds or drops axes of one element: −1 for an added one.
// Empty for other views.
std::vector<int64_t> same_axes(const Shape& from, const Shape& to) {
  std::vector<int64_t> axes(to.size(), -1);
  size_t next = 0;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (to[axis] == 1) continue;
    while (next < from.size() && from[next] == 1) ++next;
    if (next == from.size() || from[next] != to[axis]) return {};
    axes[axis] = static_cast<int64_t>(next++);
  }
  const bool all = std::all_of(from.begin() + next, from.end(), [](int64_t size) { return size == 1; });
  return all ? axes : std::vector<int64_t>{};
}

class Narrowing {
 public:
  explicit Narrowing(Rewriter& rewriter) : rewriter_(rewriter) {}

  ValueId of(ValueId value, AxisSet axes, int depth = 0) {
    const Shape& shape = rewriter_.type(value).shape;
    bool any = false;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      axes[axis] = axes[axis] && shape[axis] != 1;
      any = any || axes[axis];
    }
    if (!any) return value;
    const auto [place, fresh] = known_.emplace(std::pair{value, axes}, kNoValue);
    if (fresh) place->second = found(value, axes, depth);
    return place->second;
  }

 private:
  // std::map keeps `place` valid while its operands are narrowed.
  std::map<std::pair<ValueId, AxisSet>, ValueId> known_;
  Rewriter& rewriter_;

  static constexpr int kDeepest = 16;

  // The axes of an operand that stand where `axes` do, counted from the back.
  AxisSet aligned(const AxisSet& axes, ValueId operand) const {
    AxisSet of_operand(rewriter_.type(operand).shape.size(), false);
    for (size_t back = 1; back <= std::min(axes.size(), of_operand.size()); ++back)
      of_operand[of_operand.size() - back] = axes[axes.size() - back];
    return of_operand;
  }

  ValueId found(ValueId value, const AxisSet& axes, int depth) {
    TensorType type = rewriter_.type(value);
    const Shape before = type.shape;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis]) type.shape[axis] = 1;
    type.strides = contiguous_strides(type.shape);
    type.offset = 0;
    if (const Node* producer = rewriter_.producer(value); producer && depth < kDeepest) {
      Node node = *producer;  // emitting moves the nodes
      const ValueId self = node.value("self");
      if (node.op == "aten.full.default") {
        node.set("size", type.shape);
        return rewriter_.emit(node.op, node.arguments, type, "narrow");
      }
      if (node.op == "aten.expand.default") {
        const ValueId source = of(self, aligned(axes, self), depth + 1);
        return rewriter_.type(source).shape == type.shape
                   ? source
                   : rewriter_.emit(node.op, {{"self", ValueRef{source}}, {"size", type.shape}}, "narrow");
      }
      if (node.op == "aten.clone.default") return of(self, axes, depth + 1);
      if (is_aligned(rewriter_.graph(), node)) {
        for_each_operand(node, [&](ValueId& operand) { operand = of(operand, aligned(axes, operand), depth + 1); });
        std::erase_if(node.arguments, [](const NamedArgument& argument) { return argument.name == "memory_format"; });
        return rewriter_.emit(node.op, node.arguments, type, "narrow");
      }
      if (node.op == "aten.permute.default") {
        const IntList order = node.integers("dims");
        AxisSet inner(axes.size(), false);
        for (size_t axis = 0; axis < axes.size(); ++axis)
          inner[*normalise_axis(order[axis], static_cast<int64_t>(axes.size()))] = axes[axis];
        return rewriter_.emit(node.op, {{"self", ValueRef{of(self, inner, depth + 1)}}, {"dims", order}}, "narrow");
      }
      if (node.op == "aten.view.default") {
        const auto from = same_axes(rewriter_.type(self).shape, before);
        if (!from.empty()) {
          AxisSet inner(rewriter_.type(self).shape.size(), false);
          for (size_t axis = 0; axis < axes.size(); ++axis)
            if (axes[axis]) inner[from[axis]] = true;
          return rewriter_.emit(node.op, {{"self", ValueRef{of(self, inner, depth + 1)}}, {"size", type.shape}},
                                "narrow");
        }
      }
    }
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis])
        value = rewriter_.emit("aten.slice.Tensor",
                               {{"self", ValueRef{value}},
                                {"dim", static_cast<int64_t>(axis)},
                                {"start", int64_t{0}},
                                {"end", int64_t{1}}},
                               "one");
    return value;
  }
};

}  // namespace

EqualAxes::EqualAxes(const Graph& graph) : axes_(graph.values.size()) {
  const auto ones = [&](ValueId id) {
    AxisSet axes(graph.type(id).shape.size());
    for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = graph.type(id).shape[axis] == 1;
    return axes;
  };
  for (const auto& input : graph.inputs) axes_[input.value] = ones(input.value);
  for (const auto& node : graph.nodes)
    for (size_t index = 0; index < node.results.size(); ++index) {
      const ValueId result = node.results[index];
      if (result == kNoValue) continue;
      axes_[result] = ones(result);
      const AxisSet more = index == 0 ? found(graph, node) : AxisSet{};
      for (size_t axis = 0; axis < more.size(); ++axis)
        if (more[axis]) axes_[result][axis] = true;
    }
}

const AxisSet& EqualAxes::of(ValueId id) const {
  static const AxisSet kNone;
  return id != kNoValue && static_cast<size_t>(id) < axes_.size() ? axes_[id] : kNone;
}

AxisSet EqualAxes::found(const Graph& graph, const Node& node) const {
  if (node.results.size() != 1) return {};
  const Shape& shape = graph.type(node.results[0]).shape;
  const ValueId self = node.value("self");
  if (node.op == "aten.full.default") return AxisSet(shape.size(), true);
  if (node.op == "aten.expand.default" || is_aligned(graph, node)) {
    AxisSet axes(shape.size(), true);
    for_each_operand(node, [&](ValueId operand) {
      const AxisSet& from = of(operand);
      for (size_t back = 1; back <= std::min(axes.size(), from.size()); ++back)
        axes[axes.size() - back] = axes[axes.size() - back] && from[from.size() - back];
    });
    return axes;
  }
  if (self == kNoValue) return {};
  const Shape& before = graph.type(self).shape;
  if (node.op == "aten.permute.default") {
    const IntList order = node.integers("dims");
    AxisSet axes(shape.size());
    for (size_t axis = 0; axis < axes.size(); ++axis)
      axes[axis] = of(self)[*normalise_axis(order[axis], static_cast<int64_t>(axes.size()))];
    return axes;
  }
  if (node.op == "aten.view.default") {
    const auto from = same_axes(before, shape);
    AxisSet axes(from.size(), true);
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (from[axis] >= 0) axes[axis] = of(self)[from[axis]];
    return axes;
  }
  if (node.op == "aten.slice.Tensor") return of(self);
  if (node.op == "aten.repeat.default") {
    AxisSet axes(shape.size(), true);
    for (size_t back = 1; back <= before.size(); ++back) axes[axes.size() - back] = of(self)[before.size() - back];
    return axes;
  }
  return {};
}

ValueId narrowed(Rewriter& rewriter, ValueId value, const AxisSet& axes) { return Narrowing(rewriter).of(value, axes); }

}  // namespace kw
