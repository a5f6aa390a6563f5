#include "passes/loops.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "ir/op_registry.hpp"
#include "passes/linear_steps.hpp"
#include "passes/recurrences.hpp"
#include "passes/slices.hpp"

namespace kw {
namespace {

// The slices among a node's operands, if they are all of its tensors, of one place, and the whole ones may take their
// place.
struct Mapped {
  std::vector<std::string> arguments;
  std::vector<Slice> slices;
  int64_t index() const { return slices[0].index; }
};

int64_t length(const Rewriter& rewriter, const Slice& slice) { return rewriter.type(slice.whole).shape[slice.dim]; }

std::optional<Mapped> mapped_slice(const Rewriter& rewriter, const Node& node) {
  if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue || !is_pure(node) ||
      !rewriter.type(node.results[0]).is_contiguous())
    return std::nullopt;
  const bool is_linear = node.op == "aten.linear.default";
  Mapped mapped;
  if (is_linear) {
    mapped.arguments = {"input"};
  } else {
    if (class_of(node.op) != OpClass::kPointwise || base_name(node.op) == "clone") return std::nullopt;
    for (const NamedArgument& one : node.arguments) {
      if (std::holds_alternative<ValueList>(one.value)) return std::nullopt;
      if (!std::holds_alternative<ValueRef>(one.value)) continue;
      mapped.arguments.push_back(one.name);
    }
  }
  for (const std::string& argument : mapped.arguments) {
    const ValueId operand = node.value(argument);
    const auto slice = slice_of(rewriter, operand);
    const TensorType& type = rewriter.type(operand);
    if (!slice || type.rank() == 0 || (is_linear && type.rank() < 2)) return std::nullopt;
    if (!is_linear && rewriter.type(node.results[0]).shape != type.shape) return std::nullopt;
    mapped.slices.push_back(*slice);
    const Slice& first = mapped.slices[0];
    if (slice->index != first.index || length(rewriter, *slice) != length(rewriter, first)) return std::nullopt;
  }
  return mapped.slices.empty() ? std::nullopt : std::optional(std::move(mapped));
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
    Mapped mapped;                         // of any of them
    std::vector<NamedArgument> arguments;  // but for the slices
    std::vector<ValueId> results;          // by the slices' index; kNoValue: there is none
    ValueId whole = kNoValue;
  };

  static std::vector<NamedArgument> without(std::vector<NamedArgument> arguments, const Mapped& mapped) {
    for (NamedArgument& argument : arguments)
      if (std::find(mapped.arguments.begin(), mapped.arguments.end(), argument.name) != mapped.arguments.end())
        argument.value = None{};
    return arguments;
  }

  static bool of_same_tensors(const Mapped& one, const Mapped& other) {
    return one.arguments == other.arguments &&
           std::equal(one.slices.begin(), one.slices.end(), other.slices.begin(), other.slices.end(),
                      [](const Slice& a, const Slice& b) { return a.whole == b.whole && a.dim == b.dim; });
  }

  void add(const Node& node, const Mapped& mapped) {
    std::vector<size_t>& alike = by_slices_[{node.op, mapped.slices[0].whole, mapped.slices[0].dim}];
    const auto arguments = without(node.arguments, mapped);
    auto found = std::find_if(alike.begin(), alike.end(), [&](size_t loop) {
      return loops_[loop].arguments == arguments && of_same_tensors(loops_[loop].mapped, mapped);
    });
    if (found == alike.end()) {
      const auto count = static_cast<size_t>(length(rewriter_, mapped.slices[0]));
      if (count < 2) return;
      alike.push_back(loops_.size());
      loops_.push_back({mapped, arguments, std::vector<ValueId>(count, kNoValue)});
      found = alike.end() - 1;
    }
    // A second of the same slice stays: it is cse's.
    ValueId& place = loops_[*found].results[mapped.index()];
    if (place != kNoValue) return;
    place = node.results[0];
    places_[place] = {*found, mapped.index()};
  }

  void emit(Loop& loop, const Node& node, int64_t count) {
    std::vector<NamedArgument> arguments = node.arguments;
    for (const std::string& name : loop.mapped.arguments) {
      // The operand as it is by now.
      const Slice slice = *slice_of(rewriter_, node.value(name));
      const ValueId all = emit_slices(rewriter_, {slice.whole, slice.dim, 0}, count);
      for (NamedArgument& argument : arguments)
        if (argument.name == name) argument.value = ValueRef{all};
    }
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

// Slices of a tensor, in order, one after the other: the tensor with its axis in another place.
class JoinedSlices {
 public:
  explicit JoinedSlices(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.op != "aten.cat.default") return false;
      const auto* parts = std::get_if<ValueList>(node.find("tensors"));
      if (parts == nullptr || parts->ids.size() < 2 || node.results[0] == kNoValue) return false;
      const ValueId result = node.results[0];
      if (!rewriter_.type(result).is_contiguous()) return false;
      int64_t dim = node.integer("dim", 0);
      if (dim < 0) dim += rewriter_.type(result).rank();
      const ValueList shorter = with_runs_joined(parts->ids, dim, rewriter_.type(result).dtype);
      if (shorter.ids.size() == parts->ids.size()) return false;
      rewriter_.replace(result, shorter.ids.size() == 1 ? shorter.ids[0] : concatenated(shorter, dim, result));
      return true;
    });
  }

 private:
  static constexpr int64_t kFewestOfSome = 4;

  // The slice that a part is, or shows with an axis of one place at the concatenation's.
  std::optional<Slice> slice_at(ValueId part, int64_t dim) const {
    if (auto slice = slice_of(rewriter_, part)) return slice;
    const Node* view = rewriter_.producer(part);
    if (view == nullptr || view->op != "aten.view.default") return std::nullopt;
    Shape shape = rewriter_.type(view->value("self")).shape;
    shape.insert(shape.begin() + std::min(dim, std::ssize(shape)), 1);
    return shape == rewriter_.type(part).shape ? slice_of(rewriter_, view->value("self")) : std::nullopt;
  }

  // Those that are all slices of a tensor, or a few, as one part.
  ValueList with_runs_joined(const std::vector<ValueId>& parts, int64_t dim, DType dtype) {
    ValueList made;
    for (size_t begin = 0; begin < parts.size();) {
      const auto first = slice_at(parts[begin], dim);
      size_t end = begin + 1;
      for (auto last = first; last && end < parts.size(); ++end) {
        const auto next = slice_at(parts[end], dim);
        if (!next || !last->is_before(*next) || rewriter_.type(parts[end]).shape != rewriter_.type(parts[begin]).shape)
          break;
        last = next;
      }
      const auto count = static_cast<int64_t>(end - begin);
      if (first && count > 1 && is_joined(*first, count, dtype, parts.size())) {
        Shape shape = rewriter_.type(parts[begin]).shape;
        shape[dim] *= count;
        made.ids.push_back(joined(*first, count, dim, std::move(shape)));
      } else {
        made.ids.insert(made.ids.end(), parts.begin() + static_cast<std::ptrdiff_t>(begin),
                        parts.begin() + static_cast<std::ptrdiff_t>(end));
      }
      begin = end;
    }
    return made;
  }

  bool is_joined(const Slice& first, int64_t count, DType dtype, size_t parts) const {
    const TensorType& whole = rewriter_.type(first.whole);
    if (whole.dtype != dtype || whole.rank() < 2) return false;
    const bool is_all = first.index == 0 && count == whole.shape[first.dim];
    return is_all || (count >= kFewestOfSome && static_cast<size_t>(count) < parts);
  }

  ValueId concatenated(const ValueList& parts, int64_t dim, ValueId result) {
    TensorType type = rewriter_.type(result);
    return rewriter_.emit("aten.cat.default", {{"tensors", parts}, {"dim", dim}}, std::move(type));
  }

  ValueId joined(const Slice& first, int64_t count, int64_t dim, Shape shape) {
    const ValueId whole = emit_slices(rewriter_, first, count);
    IntList order(rewriter_.type(whole).shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + dim + 1);
    ValueId moved = emit_permuted(rewriter_, whole, order);
    if (!rewriter_.type(moved).is_contiguous()) {
      TensorType type = rewriter_.type(moved);
      type.strides = contiguous_strides(type.shape);
      type.offset = 0;
      moved = rewriter_.emit(
          "aten.clone.default",
          {{"self", ValueRef{moved}}, {"memory_format", Keyword{"memory_format", "contiguous_format"}}},
          std::move(type));
    }
    return rewriter_.emit("aten.view.default", {{"self", ValueRef{moved}}, {"size", std::move(shape)}});
  }

  Rewriter rewriter_;
};

// Which outputs lie in whose memory.
class OutputMemory {
 public:
  explicit OutputMemory(const Graph& graph) : roots_(storage_roots(graph)) {
    for (const GraphOutput& output : graph.outputs) outputs_.push_back(output.value);
    for (const ValueId value : outputs_) {
      has_gaps_.push_back(value != kNoValue && !graph.type(value).is_contiguous());
      is_input_.push_back(value != kNoValue && graph.values[roots_[value]].producer == kNoNode);
      is_part_.push_back(value != kNoValue && graph.type(value).elements() < graph.type(roots_[value]).elements());
    }
  }

  bool share(size_t one, size_t other) const {
    return outputs_[one] != kNoValue && outputs_[other] != kNoValue && roots_[outputs_[one]] == roots_[outputs_[other]];
  }
  bool is_input(size_t output) const { return is_input_[output]; }
  bool is_part(size_t output) const { return is_part_[output]; }
  bool has_gaps(size_t output) const { return has_gaps_[output]; }

 private:
  std::vector<ValueId> roots_, outputs_;
  std::vector<bool> is_input_, is_part_, has_gaps_;
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
    std::vector<NamedArgument> arguments = {{"self", ValueRef{value}}};
    if (now.has_gaps(output) && !before.has_gaps(output)) {
      type.strides = contiguous_strides(type.shape);
      arguments.push_back({"memory_format", Keyword{"memory_format", "contiguous_format"}});
    }
    const auto copy = static_cast<ValueId>(graph.values.size());
    graph.nodes.push_back({"aten.clone.default", std::move(arguments), {copy}, ""});
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
    changed = add(linear_steps(graph)) || changed;
    changed = add(JoinedSlices(graph).run()) || changed;
  }
  if (counts.total() > 0) own_outputs(graph, before);
  return counts;
}

}  // namespace kw
