#include "passes/loops.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "ir/op_registry.hpp"
#include "passes/recurrences.hpp"
#include "passes/slices.hpp"

namespace kw {
namespace {

// The slice among a node's operands, if it has one that the whole tensor may take the place of.
struct Mapped {
  std::string argument;
  Slice slice;
};

std::optional<Mapped> mapped_slice(const Rewriter& rewriter, const Node& node) {
  if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue || !is_pure(node) ||
      !rewriter.type(node.results[0]).is_contiguous())
    return std::nullopt;
  const bool is_linear = node.op == "aten.linear.default";
  std::string argument = "input";
  if (!is_linear) {
    if (class_of(node.op) != OpClass::kPointwise || base_name(node.op) == "clone") return std::nullopt;
    int operands = 0;
    for (const NamedArgument& one : node.arguments) {
      if (std::holds_alternative<ValueList>(one.value)) return std::nullopt;
      if (!std::holds_alternative<ValueRef>(one.value)) continue;
      argument = one.name;
      ++operands;
    }
    if (operands != 1) return std::nullopt;
  }
  const ValueId operand = node.value(argument);
  const auto slice = slice_of(rewriter, operand);
  const TensorType& type = rewriter.type(operand);
  if (!slice || type.rank() == 0 || (is_linear && type.rank() < 2)) return std::nullopt;
  if (!is_linear && rewriter.type(node.results[0]).shape != type.shape) return std::nullopt;
  return Mapped{argument, *slice};
}

// The same operator on every slice of a tensor.
class MappedSlices {
 public:
  explicit MappedSlices(Graph& graph) : rewriter_(graph) {
    for (const Node& node : graph.nodes)
      if (const auto mapped = mapped_slice(rewriter_, node)) add(node, *mapped);
  }

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.results.size() != 1) return false;
      const auto found = places_.find(node.results[0]);
      if (found == places_.end()) return false;
      Loop& loop = loops_[found->second.first];
      const int64_t count = std::ssize(loop.results);
      if (std::find(loop.results.begin(), loop.results.end(), kNoValue) != loop.results.end()) return false;
      const ValueId result = node.results[0];
      if (loop.whole == kNoValue) emit(loop, node, count);
      rewriter_.replace(result, emit_slice(rewriter_, loop.whole, found->second.second), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  struct Loop {
    Slice first;
    std::string argument;
    std::vector<NamedArgument> arguments;  // but for the slice
    std::vector<ValueId> results;          // by the slice's index; kNoValue: there is none
    ValueId whole = kNoValue;
  };

  static std::vector<NamedArgument> without(std::vector<NamedArgument> arguments, const std::string& name) {
    for (NamedArgument& argument : arguments)
      if (argument.name == name) argument.value = None{};
    return arguments;
  }

  void add(const Node& node, const Mapped& mapped) {
    std::vector<size_t>& alike = by_slices_[{node.op, mapped.slice.whole, mapped.slice.dim}];
    const auto arguments = without(node.arguments, mapped.argument);
    auto found = std::find_if(alike.begin(), alike.end(),
                              [&](size_t loop) { return loops_[loop].arguments == arguments; });
    if (found == alike.end()) {
      const auto length = static_cast<size_t>(rewriter_.type(mapped.slice.whole).shape[mapped.slice.dim]);
      if (length < 2) return;
      alike.push_back(loops_.size());
      loops_.push_back({{mapped.slice.whole, mapped.slice.dim, 0},
                        mapped.argument,
                        arguments,
                        std::vector<ValueId>(length, kNoValue)});
      found = alike.end() - 1;
    }
    // A second of the same slice stays: it is cse's.
    ValueId& place = loops_[*found].results[mapped.slice.index];
    if (place != kNoValue) return;
    place = node.results[0];
    places_[place] = {*found, mapped.slice.index};
  }

  void emit(Loop& loop, const Node& node, int64_t count) {
    std::vector<NamedArgument> arguments = node.arguments;
    // The operand as it is by now.
    const Slice slice = *slice_of(rewriter_, node.value(loop.argument));
    const ValueId all = emit_slices(rewriter_, {slice.whole, slice.dim, 0}, count);
    for (NamedArgument& argument : arguments)
      if (argument.name == loop.argument) argument.value = ValueRef{all};
    TensorType type = rewriter_.type(node.results[0]);
    type.shape.insert(type.shape.begin(), count);
    type.strides = contiguous_strides(type.shape);
    type.offset = 0;
    loop.whole = rewriter_.emit(node.op, std::move(arguments), std::move(type));
  }

  Rewriter rewriter_;
  std::vector<Loop> loops_;
  std::map<std::tuple<std::string, ValueId, int64_t>, std::vector<size_t>> by_slices_;
  std::map<ValueId, std::pair<size_t, int64_t>> places_;  // of a result: its loop, and which slice it is
};

// All slices of a tensor, in order, one after the other: the tensor with its axis in another place.
class JoinedSlices {
 public:
  explicit JoinedSlices(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.op != "aten.cat.default") return false;
      const auto* parts = std::get_if<ValueList>(node.find("tensors"));
      if (parts == nullptr || parts->ids.size() < 2) return false;
      auto last = slice_of(rewriter_, parts->ids[0]);
      if (!last || last->index != 0) return false;
      const Slice first = *last;
      for (size_t part = 1; part < parts->ids.size(); ++part) {
        const auto next = slice_of(rewriter_, parts->ids[part]);
        if (!next || !last->is_before(*next)) return false;
        last = next;
      }
      const ValueId result = node.results[0];
      const TensorType& whole = rewriter_.type(first.whole);
      if (std::ssize(parts->ids) != whole.shape[first.dim] || !rewriter_.type(result).is_contiguous() ||
          rewriter_.type(result).dtype != whole.dtype || whole.rank() < 2)
        return false;
      rewriter_.replace(result, joined(first, node.integer("dim", 0), result));
      return true;
    });
  }

 private:
  ValueId joined(const Slice& first, int64_t dim, ValueId result) {
    const Shape shape = rewriter_.type(result).shape;
    if (dim < 0) dim += std::ssize(shape);
    IntList order(rewriter_.type(first.whole).shape.size());
    std::iota(order.begin(), order.end(), 0);
    order.erase(order.begin() + first.dim);
    order.insert(order.begin() + dim, first.dim);
    ValueId moved = emit_permuted(rewriter_, first.whole, order);
    if (!rewriter_.type(moved).is_contiguous()) {
      TensorType type = rewriter_.type(moved);
      type.strides = contiguous_strides(type.shape);
      type.offset = 0;
      moved = rewriter_.emit(
          "aten.clone.default",
          {{"self", ValueRef{moved}}, {"memory_format", Keyword{"memory_format", "contiguous_format"}}},
          std::move(type));
    }
    return rewriter_.emit("aten.view.default", {{"self", ValueRef{moved}}, {"size", shape}});
  }

  Rewriter rewriter_;
};

// Which outputs lie in whose memory.
class OutputMemory {
 public:
  explicit OutputMemory(const Graph& graph) : roots_(storage_roots(graph)) {
    for (const GraphOutput& output : graph.outputs) outputs_.push_back(output.value);
    for (const ValueId value : outputs_) {
      is_input_.push_back(value != kNoValue && graph.values[roots_[value]].producer == kNoNode);
      is_part_.push_back(value != kNoValue && graph.type(value).elements() < graph.type(roots_[value]).elements());
    }
  }

  bool share(size_t one, size_t other) const {
    return outputs_[one] != kNoValue && outputs_[other] != kNoValue && roots_[outputs_[one]] == roots_[outputs_[other]];
  }
  bool is_input(size_t output) const { return is_input_[output]; }
  bool is_part(size_t output) const { return is_part_[output]; }

 private:
  std::vector<ValueId> roots_, outputs_;
  std::vector<bool> is_input_, is_part_;
};

// Copies of outputs that were tensors of their own before, and are parts of others, or other outputs' memory, by now.
void own_outputs(Graph& graph, const OutputMemory& before) {
  const OutputMemory now(graph);
  for (size_t output = 0; output < graph.outputs.size(); ++output) {
    bool shares = (now.is_input(output) && !before.is_input(output)) ||
                  (now.is_part(output) && !before.is_part(output));
    for (size_t other = 0; other < output; ++other)
      shares = shares || (now.share(output, other) && !before.share(output, other));
    if (!shares) continue;
    ValueId& value = graph.outputs[output].value;
    TensorType type = graph.type(value);
    type.offset = 0;
    const auto copy = static_cast<ValueId>(graph.values.size());
    graph.nodes.push_back({"aten.clone.default", {{"self", ValueRef{value}}}, {copy}, ""});
    std::string name = graph.values[value].name + "_copy";
    const auto is_taken = [&](const Value& one) { return one.name == name; };
    while (std::any_of(graph.values.begin(), graph.values.end(), is_taken)) name += "_";
    graph.values.push_back({std::move(name), std::move(type), kNoNode, 0});
    value = copy;
  }
  link_producers(graph);
}

}  // namespace

RewriteCounts loops(Graph& graph) {
  RewriteCounts counts;
  const auto add = [&](const RewriteCounts& more) {
    for (size_t tag = 0; tag < counts.by_tag.size(); ++tag) counts.by_tag[tag] += more.by_tag[tag];
    return more.total() > 0;
  };
  const OutputMemory before(graph);
  bool changed = true;
  while (changed) {
    if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_slicing)) break;
    changed = add(MappedSlices(graph).run());
    changed = add(recurrences(graph)) || changed;
    changed = add(JoinedSlices(graph).run()) || changed;
  }
  if (counts.total() > 0) own_outputs(graph, before);
  return counts;
}

}  // namespace kw
