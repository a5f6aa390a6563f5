#include "plan/op_table.hpp"

#include <string>

#include "ir/op_registry.hpp"
#include "plan/bags.hpp"
#include "plan/scatters.hpp"
#include "plan/sorts.hpp"
#include "plan/windows.hpp"

namespace kw::plan {

namespace {

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

bool tensors_are_expressible(const Graph& graph, const Node& node, const OpInfo& info) {
  bool good = true;
  const std::string* device = nullptr;
  auto check = [&](ValueId value) {
    const TensorType& type = graph.type(value);
    if (is_complex(type.dtype) || type.elements() == 0 || (is_eight_bit_float(type.dtype) && !info.takes_float8))
      good = false;
    if (device && *device != type.device) good = false;  // a scalar on the host is PyTorch's to fetch
    device = &type.device;
  };
  for_each_operand(node, check);
  for (size_t i = 0; i < node.results.size(); ++i) {
    // Statistics that inference leaves empty; GraphFacts sees to it that nothing reads them.
    if (node.results[i] == kNoValue || (i > 0 && graph.type(node.results[i]).elements() == 0)) continue;
    check(node.results[i]);
  }
  return good;
}

DType dtype_of(const Graph& graph, const Node& node, std::string_view argument) {
  const ValueId value = node.value(argument);
  return value == kNoValue ? DType::f32 : graph.type(value).dtype;
}

// Strides of a view of `type` with another shape, where one exists (PyTorch's computeStride).
bool reshape_is_alias(const TensorType& from, const Shape& to) {
  size_t dim = from.shape.size();
  size_t target = to.size();
  while (dim > 0) {
    int64_t chunk = from.shape[dim - 1];
    const int64_t inner = from.strides[dim - 1];
    int64_t expected = inner * chunk;
    --dim;
    while (dim > 0 && (from.shape[dim - 1] == 1 || from.strides[dim - 1] == expected)) {
      chunk *= from.shape[dim - 1];
      expected *= from.shape[dim - 1];
      --dim;
    }
    int64_t taken = 1;
    while (target > 0 && (taken < chunk || to[target - 1] == 1)) taken *= to[--target];
    if (taken != chunk) return false;
  }
  return true;
}

bool is_alias(const Graph& graph, const Node& node, std::string_view base) {
  ValueId source = node.value("self");
  if (source == kNoValue) return false;
  const TensorType& type = graph.type(source);
  if (graph.type(node.results[0]).dtype != type.dtype) return false;  // the bits of another type
  if (base == "contiguous") return type.is_contiguous();
  if (base == "reshape" || base == "flatten" || base == "reshape_as" || base == "unflatten" ||
      base == "_reshape_alias") {
    return graph.type(node.results[0]).offset == type.offset &&
           reshape_is_alias(type, graph.type(node.results[0]).shape);
  }
  return true;
}

int64_t loss_reduction(const Node& node) { return node.integer("reduction", 1); }  // 0 none, 1 mean, 2 sum

bool folds(const OpInfo& info) {
  return info.lowering == Lowering::kFold || info.lowering == Lowering::kFoldOrElements;
}

bool fill_is_expressible(const Graph& graph, const Node& node, std::string_view base) {
  const TensorType& type = graph.type(node.results[0]);
  return base != "linspace" || ((type.dtype == DType::f32 || type.dtype == DType::f64) &&
                                node.value("start") == kNoValue && node.value("end") == kNoValue);
}

bool pointwise_is_expressible(const Graph& graph, const Node& node, std::string_view base) {
  const TensorType& result = graph.type(node.results[0]);
  if (base == "pow") {  // integer powers only for a constant exponent
    const Argument* exponent = node.find("exponent");
    const bool constant = exponent && !std::holds_alternative<ValueRef>(*exponent);
    return is_floating(result.dtype) || (constant && node.value("self") != kNoValue &&
                                         node.number("exponent", -1) >= 0 && node.number("exponent", -1) <= 8);
  }
  if (base == "div" || base == "divide") return true;
  if (base == "round") return node.integer("decimals", 0) == 0;
  if (base == "pad") return node.text("mode", "constant") == "constant";
  if (base == "cat" || base == "concat" || base == "stack") {
    const Argument* tensors = node.find("tensors");
    const auto* list = tensors ? std::get_if<ValueList>(tensors) : nullptr;
    if (!list || list->ids.empty() || list->ids.size() > 4)
      return false;  // a longer chain of selects costs every element more than a copy
    for (ValueId id : list->ids)
      if (id == kNoValue || graph.type(id).shape.size() != graph.type(list->ids[0]).shape.size()) return false;
    return true;
  }
  if (base == "slice_scatter") return node.integer("step", 1) == 1;
  if (class_of(node.op) == OpClass::kLoss)
    return loss_reduction(node) == 0 && node.value("weight") == kNoValue && node.value("pos_weight") == kNoValue;
  if (base == "bitwise_not") return dtype_of(graph, node, "self") != DType::f32;
  if (base == "dropout") return !node.boolean("train", true) || node.number("p", 0.5) == 0.0;
  if (base == "batch_norm") return !node.boolean("training", true);
  if (base == "instance_norm") return !node.boolean("use_input_stats", true);
  if (base == "embedding") return is_index(graph, node.value("indices"));
  if (base == "index_select" || base == "gather")
    return is_index(graph, node.value("index")) && graph.type(node.value("self")).rank() > 0;
  if (base == "index" || base == "_unsafe_index") {
    const Argument* indices = node.find("indices");
    const auto* list = indices ? std::get_if<ValueList>(indices) : nullptr;
    if (!list || !std::all_of(list->ids.begin(), list->ids.end(),
                              [&](ValueId id) { return id == kNoValue || is_index(graph, id); }))
      return false;
    // PyTorch's shape functions and its kernels disagree on the strides that a dense but permuted tensor with
    // dimensions of one element ends in.
    bool ones = std::find(result.shape.begin(), result.shape.end(), 1) != result.shape.end();
    for_each_operand(node, [&](ValueId id) {
      ones = ones ||
             std::find(graph.type(id).shape.begin(), graph.type(id).shape.end(), 1) != graph.type(id).shape.end();
    });
    return !ones || graph.type(node.value("self")).is_contiguous();
  }
  if (base == "where") return node.value("condition") != kNoValue && node.find("self") != nullptr;
  if (base == "to") return node.value("self") != kNoValue;
  return true;
}

std::vector<int64_t> dims_of(const Node& node, int64_t rank) {
  std::vector<int64_t> dims = node.integers("dim");
  if (dims.empty())
    for (int64_t dim = 0; dim < rank; ++dim) dims.push_back(dim);
  return dims;
}

ReduceSpec over_dims(const Graph& graph, ValueId operand, const std::vector<int64_t>& dims) {
  ReduceSpec spec;
  spec.domain = graph.type(operand).shape;
  spec.reduced.assign(spec.domain.size(), false);
  for (int64_t dim : dims)
    if (const auto at = wrap_dim(dim, spec.domain.size()); at < static_cast<int64_t>(spec.domain.size()))
      spec.reduced[at] = true;
  spec.operands = {operand};
  return spec;
}

std::optional<ReduceSpec> normalisation_spec(const Graph& graph, const Node& node, std::string_view base) {
  const ValueId input = node.value("input") != kNoValue ? node.value("input") : node.value("self");
  if (input == kNoValue) return std::nullopt;
  const Shape& shape = graph.type(input).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> dims;
  if (base == "layer_norm" || base == "native_layer_norm" || base == "rms_norm" || base == "_fused_rms_norm") {
    const auto count = static_cast<int64_t>(node.integers("normalized_shape").size());
    if (count == 0 || count > rank) return std::nullopt;
    for (int64_t dim = rank - count; dim < rank; ++dim) dims.push_back(dim);
    return over_dims(graph, input, dims);
  }
  if (rank < 2) return std::nullopt;
  if (base == "group_norm" || base == "native_group_norm") {
    const int64_t groups = node.integer(base == "group_norm" ? "num_groups" : "group", 1);
    if (groups <= 0 || shape[1] % groups != 0) return std::nullopt;
    ReduceSpec spec;
    spec.domain = {shape[0], groups, shape[1] / groups};
    spec.domain.insert(spec.domain.end(), shape.begin() + 2, shape.end());
    spec.reduced.assign(spec.domain.size(), true);
    spec.reduced[0] = spec.reduced[1] = false;
    spec.operands = {input};
    return spec;
  }
  if (base == "instance_norm") {
    if (!node.boolean("use_input_stats", true) || node.value("running_mean") != kNoValue ||
        node.value("running_var") != kNoValue || rank < 3)
      return std::nullopt;
    for (int64_t dim = 2; dim < rank; ++dim) dims.push_back(dim);
    return over_dims(graph, input, dims);
  }
  // Batch normalisation with the batch's statistics. The variants that write running statistics in place are the
  // library's.
  if (!node.boolean("training", true)) return std::nullopt;
  const bool functional = base == "_native_batch_norm_legit_functional";
  if (!functional && node.value("running_mean") != kNoValue) return std::nullopt;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != 1) dims.push_back(dim);
  return over_dims(graph, input, dims);
}

std::optional<ReduceSpec> window_spec(const Graph& graph, const Node& node) {
  const auto window = window_of(graph, node);
  if (!window) return std::nullopt;
  if (window->covers_input()) {
    std::vector<int64_t> dims;
    for (size_t dim = 0; dim < window->dims.size(); ++dim) dims.push_back(-1 - static_cast<int64_t>(dim));
    return over_dims(graph, window->operand, dims);
  }
  ReduceSpec spec;
  spec.domain = graph.type(node.results[0]).shape;
  spec.reduced.assign(spec.domain.size(), false);
  for (const WindowDim& dim : window->dims) {
    spec.domain.push_back(dim.kernel);
    spec.reduced.push_back(true);
  }
  spec.operands = {window->operand};
  spec.windowed = true;
  return spec;
}

std::optional<ReduceSpec> bag_spec(const Graph& graph, const Node& node) {
  const auto bags = bags_of(graph, node);
  if (!bags) return std::nullopt;
  ReduceSpec spec;
  spec.domain = {bags->count, graph.type(bags->table).shape[1], bags->entries};
  spec.reduced = {false, false, true};
  spec.operands = {bags->table};
  spec.windowed = true;
  return spec;
}

}  // namespace

int64_t ReduceSpec::kept_elements() const {
  int64_t count = 1;
  for (size_t dim = 0; dim < domain.size(); ++dim) count *= reduced[dim] ? 1 : domain[dim];
  return count;
}

int64_t ReduceSpec::reduced_elements() const {
  int64_t count = 1;
  for (size_t dim = 0; dim < domain.size(); ++dim) count *= reduced[dim] ? domain[dim] : 1;
  return count;
}

std::optional<ReduceSpec> reduce_spec(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const std::string_view base = base_name(node);
  const OpInfo& info = op_info(node.op);
  if (!folds(info)) return std::nullopt;
  if (base.find("_pool") != std::string_view::npos || base == "col2im") return window_spec(graph, node);
  if (base.starts_with("_embedding_bag")) return bag_spec(graph, node);
  if (info.op_class == OpClass::kLoss) {
    if (loss_reduction(node) == 0) return std::nullopt;
    const ValueId input = node.value("self"), target = node.value("target");
    if (input == kNoValue || target == kNoValue) return std::nullopt;
    const TensorType &left = graph.type(input), &right = graph.type(target);
    if (left.shape != right.shape || node.value("weight") != kNoValue || node.value("pos_weight") != kNoValue)
      return std::nullopt;
    ReduceSpec spec = over_dims(graph, input, dims_of(Node{}, left.rank()));
    spec.operands.push_back(target);
    return spec;
  }
  if (base.ends_with("_norm") || base.starts_with("_native_batch_norm")) {
    if (base != "linalg_vector_norm" && base != "frobenius_norm") return normalisation_spec(graph, node, base);
  }
  const ValueId input = node.value("self");
  if (input == kNoValue) return std::nullopt;
  const TensorType& type = graph.type(input);
  if (base == "norm" || base == "linalg_vector_norm") {
    if (!is_floating(type.dtype)) return std::nullopt;
    if (const Argument* order = node.find(base == "norm" ? "p" : "ord");
        order && std::holds_alternative<std::string>(*order))
      return std::nullopt;
  }
  if ((base == "mean" || base == "var" || base == "std" || base == "var_mean" || base == "std_mean" ||
       base == "logsumexp" || base.ends_with("softmax")) &&
      !is_floating(graph.type(node.results[0]).dtype))
    return std::nullopt;
  if ((base == "var" || base == "var_mean" || base == "std" || base == "std_mean" || base == "logsumexp") &&
      !is_floating(type.dtype))
    return std::nullopt;
  return over_dims(graph, input, dims_of(node, type.rank()));
}

std::optional<ReduceSpec> scan_spec(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const Lowering lowering = op_info(node.op).lowering;
  if (lowering == Lowering::kSort) {
    const auto sort = sort_spec(graph, node);
    if (!sort) return std::nullopt;
    ReduceSpec spec = over_dims(graph, sort->operand, {sort->dim});
    spec.sorted = true;
    return spec;
  }
  const ValueId input = node.value("self");
  if (lowering != Lowering::kCumulative || input == kNoValue || !node.find("dim")) return std::nullopt;
  const DType dtype = graph.type(node.results[0]).dtype;
  const bool extreme = base_name(node).starts_with("cumm");
  if (!extreme && dtype == DType::b1) return std::nullopt;
  if (base_name(node) == "logcumsumexp" && (!is_floating(dtype) || graph.type(input).dtype != dtype))
    return std::nullopt;
  return over_dims(graph, input, {node.integer("dim", 0)});
}

bool is_index(const Graph& graph, ValueId value) {
  return value != kNoValue && (graph.type(value).dtype == DType::i64 || graph.type(value).dtype == DType::i32);
}

NodeKind classify(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!node.op.starts_with("aten.") || node.results.empty() || node.results[0] == kNoValue) return NodeKind::kExtern;
  const std::string_view base = base_name(node);
  const OpInfo& info = op_info(node.op);
  // Chains of views keep their strides as captured, so complex and empty ones are as free as any.
  if (info.lowering == Lowering::kAlias && is_alias(graph, node, base)) return NodeKind::kView;
  if (!tensors_are_expressible(graph, node, info)) return NodeKind::kExtern;
  switch (info.lowering) {
    case Lowering::kLibrary: return NodeKind::kExtern;
    case Lowering::kAlias:  // a reshape that copies
      return base == "view" && node.find("dtype") ? NodeKind::kExtern : NodeKind::kPointwise;
    case Lowering::kFill: return fill_is_expressible(graph, node, base) ? NodeKind::kFactory : NodeKind::kExtern;
    case Lowering::kFold: return reduce_spec(graph, id) ? NodeKind::kReduce : NodeKind::kExtern;
    case Lowering::kFoldOrElements:
      if (reduce_spec(graph, id)) return NodeKind::kReduce;
      [[fallthrough]];
    case Lowering::kElements:
      return pointwise_is_expressible(graph, node, base) ? NodeKind::kPointwise : NodeKind::kExtern;
    case Lowering::kCumulative:
    case Lowering::kSort: return scan_spec(graph, id) ? NodeKind::kScan : NodeKind::kExtern;
    case Lowering::kScatter: return scatter_spec(graph, id) ? NodeKind::kScatter : NodeKind::kExtern;
  }
  return NodeKind::kExtern;
}

int arithmetic_weight(const Node& node) { return op_info(node.op).arithmetic_weight; }

ValueId storage_root(const Graph& graph, ValueId value) {
  while (graph.values[value].producer != kNoNode) {
    const NodeId producer = graph.values[value].producer;
    if (classify(graph, producer) != NodeKind::kView) break;
    value = graph.nodes[producer].value("self");
  }
  return value;
}

}  // namespace kw::plan
