#include "passes/statistics.hpp"

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

bool is_convolution(std::string_view base) {
  return base == "conv1d" || base == "conv2d" || base == "conv3d" || base == "conv_transpose1d" ||
         base == "conv_transpose2d" || base == "conv_transpose3d";
}

bool passes_elements_on(const Node& node) {
  return class_of(node.op) == OpClass::kPointwise || class_of(node.op) == OpClass::kView;
}

bool is_training_norm(const Node& node) {
  if (!node.op.starts_with("aten.")) return false;
  const std::string_view base = base_name(node.op);
  if (base == "_native_batch_norm_legit_functional") return node.boolean("training", true);
  return (base == "batch_norm" || base == "native_batch_norm" || base == "_native_batch_norm_legit") &&
         node.value("running_mean") == kNoValue && node.boolean("training", true);
}

// [value] Is it a convolution's result, or made of one element by element?
std::vector<bool> after_convolutions(const Graph& graph) {
  std::vector<bool> after(graph.values.size());
  for (const Node& node : graph.nodes) {
    bool reaches = is_convolution(base_name(node.op));
    if (passes_elements_on(node)) for_each_operand(node, [&](ValueId operand) { reaches = reaches || after[operand]; });
    for (ValueId result : node.results)
      if (result != kNoValue) after[result] = reaches;
  }
  return after;
}

// [value] Is it a convolution's image, or is one made of it element by element?
std::vector<bool> before_convolutions(const Graph& graph) {
  std::vector<bool> before(graph.values.size());
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (is_convolution(base_name(node->op)) && node->value("input") != kNoValue) before[node->value("input")] = true;
    if (!passes_elements_on(*node) || node->results.empty() || node->results[0] == kNoValue) continue;
    if (before[node->results[0]]) for_each_operand(*node, [&](ValueId operand) { before[operand] = true; });
  }
  return before;
}

class Expansion {
 public:
  Expansion(Rewriter& rewriter, const Node& node)
      : rewriter_(rewriter), node_(node), x_(node.value("input")), type_(rewriter.type(x_)) {}

  bool is_taken() const {
    const bool dtype = type_.dtype == DType::f32 || type_.dtype == DType::f16 || type_.dtype == DType::bf16;
    return dtype && !type_.device.starts_with("cpu") && type_.rank() >= 2 && type_.elements() > 0 && count() > 1;
  }

  void run() {
    const TensorType of_channel = {DType::f32, {type_.shape[1]}, {1}, 0, type_.device};
    ValueId operand = x_;
    if (type_.dtype != DType::f32) {
      TensorType wide = type_;
      wide.dtype = DType::f32;
      wide.offset = 0;
      if (!type_.is_dense()) wide.strides = contiguous_strides(wide.shape);
      operand = rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{x_}}, {"dtype", DType::f32}}, wide, "wide");
    }
    IntList dims = {0};
    for (int64_t dim = 2; dim < type_.rank(); ++dim) dims.push_back(dim);
    const std::vector<ValueId> found = rewriter_.emit_all(
        "aten.var_mean.correction", {{"self", ValueRef{operand}}, {"dim", dims}, {"correction", int64_t{0}}},
        {{"variance", of_channel}, {"mean", of_channel}});
    const ValueId variance = found[0], mean = found[1];
    if (node_.results.size() == 5) {
      const auto samples = static_cast<double>(count());
      if (node_.results[3] != kNoValue) update(node_.results[3], node_.value("running_mean"), mean);
      if (node_.results[4] != kNoValue)
        update(node_.results[4], node_.value("running_var"),
               (Term(rewriter_, variance) * (samples / (samples - 1.0))).id());
    }
    const auto given = [&](const char* name) {
      return node_.value(name) == kNoValue ? Argument(None{}) : Argument(ValueRef{node_.value(name)});
    };
    const ValueId result = rewriter_.emit("aten.batch_norm.default",
                                          {{"input", ValueRef{x_}},
                                           {"weight", given("weight")},
                                           {"bias", given("bias")},
                                           {"running_mean", ValueRef{mean}},
                                           {"running_var", ValueRef{variance}},
                                           {"training", false},
                                           {"momentum", 0.0},
                                           {"eps", node_.number("eps", 1e-5)},
                                           {"cudnn_enabled", true}},
                                          rewriter_.type(node_.results[0]), "normalised");
    rewriter_.adopt(node_.results[0], result, NumericTag::kReassociates);
  }

 private:
  int64_t count() const { return type_.elements() / type_.shape[1]; }  // elements of a channel

  // A running statistic moves towards the batch's by the share `momentum`.
  void update(ValueId result, ValueId running, ValueId fresh) {
    const TensorType own = rewriter_.type(result), wide = rewriter_.type(fresh);
    const auto cast = [&](ValueId value, const TensorType& to) {
      if (rewriter_.type(value).dtype == to.dtype) return value;
      return rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{value}}, {"dtype", to.dtype}});
    };
    const double momentum = node_.number("momentum", 0.1);
    const Term kept = Term(rewriter_, cast(running, wide)) * (1.0 - momentum),
               moved = Term(rewriter_, fresh) * momentum;
    const ValueId updated = cast((kept + moved).id(), own);
    rewriter_.adopt(result, updated, NumericTag::kReassociates);
  }

  Rewriter& rewriter_;
  const Node& node_;
  const ValueId x_;
  const TensorType type_;  // a copy: those of the graph move when it grows
};

}  // namespace

RewriteCounts statistics(Graph& graph) {
  const std::vector<bool> after = after_convolutions(graph), before = before_convolutions(graph);
  const auto users = graph.users();
  const auto is_output = graph.is_output();
  const auto is_read = [&](ValueId id) { return id != kNoValue && (is_output[id] || !users[id].empty()); };
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    if (!is_training_norm(node) || node.results.empty() || node.results[0] == kNoValue) return false;
    if (!after[node.value("input")] && !before[node.results[0]]) return false;
    // The statistics themselves are asked for by nobody.
    for (size_t place = 1; place < std::min<size_t>(node.results.size(), 3); ++place)
      if (is_read(node.results[place])) return false;
    Expansion expansion(rewriter, node);
    if (!expansion.is_taken()) return false;
    expansion.run();
    return true;
  });
}

}  // namespace kw
