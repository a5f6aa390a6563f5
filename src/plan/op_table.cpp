#include "plan/op_table.hpp"

#include <numeric>
#include <string>

#include "ir/devices.hpp"
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
  const std::string device = device_of(graph);
  auto check = [&](ValueId value) {
    const TensorType& type = graph.type(value);
    if (is_complex(type.dtype) || type.elements() == 0 || (is_eight_bit_float(type.dtype) && !info.takes_float8()))
      good = false;
    if (type.device != device) good = false;  // a scalar on the host is PyTorch's to fetch, and lengths are its to copy
  };
  for_each_operand(node, check);
  for (size_t i = 0; i < node.results.size(); ++i) {
    // Statistics that inference leaves empty; GraphFacts sees to it that nothing reads them.
    if (node.results[i] == kNoValue || (i > 0 && graph.type(node.results[i]).elements() == 0)) continue;
    check(node.results[i]);
  }
  return good;
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

bool is_alias(const Graph& graph, const Node& node, const OpInfo& info) {
  ValueId source = node.value("self");
  if (source == kNoValue) return false;
  const TensorType &type = graph.type(source), &result = graph.type(node.results[0]);
  if (result.dtype != type.dtype) return false;  // the bits of another type
  if (!(info.flags & kMayAlias)) return true;
  if (info.rule == OpRule::kSame) return type.is_contiguous();
  return result.offset == type.offset && reshape_is_alias(type, result.shape);
}

int64_t loss_reduction(const Node& node) { return node.integer("reduction", 1); }  // 0 none, 1 mean, 2 sum

bool fill_is_expressible(const Graph& graph, const Node& node, OpRule rule) {
  const TensorType& type = graph.type(node.results[0]);
  return rule != OpRule::kLinspace || ((type.dtype == DType::f32 || type.dtype == DType::f64) &&
                                       node.value("start") == kNoValue && node.value("end") == kNoValue);
}

bool is_joinable(const Graph& graph, const Node& node) {
  const Argument* tensors = node.find("tensors");
  const auto* list = tensors ? std::get_if<ValueList>(tensors) : nullptr;
  if (!list || list->ids.empty() || list->ids.size() > 4)
    return false;  // a longer chain of selects costs every element more than a copy
  return std::all_of(list->ids.begin(), list->ids.end(), [&](ValueId id) {
    return id != kNoValue && graph.type(id).shape.size() == graph.type(list->ids[0]).shape.size();
  });
}

bool is_indexable(const Graph& graph, const Node& node) {
  const Argument* indices = node.find("indices");
  const auto* list = indices ? std::get_if<ValueList>(indices) : nullptr;
  if (!list || !std::all_of(list->ids.begin(), list->ids.end(),
                            [&](ValueId id) { return id == kNoValue || is_index(graph, id); }))
    return false;
  // PyTorch's shape functions and its kernels disagree on the strides that a dense but permuted tensor with
  // dimensions of one element ends in.
  const auto has_one = [&](ValueId id) {
    const Shape& shape = graph.type(id).shape;
    return std::find(shape.begin(), shape.end(), 1) != shape.end();
  };
  bool ones = has_one(node.results[0]);
  for_each_operand(node, [&](ValueId id) { ones = ones || has_one(id); });
  return !ones || graph.type(node.value("self")).is_contiguous();
}

// Integer powers only for a constant exponent.
bool is_power_expressible(const Graph& graph, const Node& node) {
  const Argument* exponent = node.find("exponent");
  const bool constant = exponent && !std::holds_alternative<ValueRef>(*exponent);
  return is_floating(graph.type(node.results[0]).dtype) ||
         (constant && node.value("self") != kNoValue && node.number("exponent", -1) >= 0 &&
          node.number("exponent", -1) <= 8);
}

bool pointwise_is_expressible(const Graph& graph, const Node& node, const OpInfo& info) {
  switch (info.rule) {
    case OpRule::kPad: return node.text("mode", "constant") == "constant";
    case OpRule::kCat:
    case OpRule::kStack: return is_joinable(graph, node);
    case OpRule::kSliceScatter: return node.integer("step", 1) == 1;
    case OpRule::kPairLoss:
      return loss_reduction(node) == 0 && node.value("weight") == kNoValue && node.value("pos_weight") == kNoValue;
    case OpRule::kBatchNorm: return info.lowering == Lowering::kElements || !node.boolean("training", true);
    case OpRule::kInstanceNorm: return !node.boolean("use_input_stats", true);
    case OpRule::kEmbedding: return is_index(graph, node.value("indices"));
    case OpRule::kIndexSelect:
    case OpRule::kGather: return is_index(graph, node.value("index")) && graph.type(node.value("self")).rank() > 0;
    case OpRule::kIndex: return is_indexable(graph, node);
    case OpRule::kPower: return is_power_expressible(graph, node);
    case OpRule::kRound: return node.integer("decimals", 0) == 0;
    default: return info.op_class != OpClass::kRandom || is_pure(node);
  }
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

std::optional<ReduceSpec> normalisation_spec(const Graph& graph, const Node& node, OpRule rule) {
  const ValueId input = node.value("input") != kNoValue ? node.value("input") : node.value("self");
  if (input == kNoValue) return std::nullopt;
  const Shape& shape = graph.type(input).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> dims;
  if (rule == OpRule::kLayerNorm || rule == OpRule::kRmsNorm) {
    const auto count = static_cast<int64_t>(node.integers("normalized_shape").size());
    if (count == 0 || count > rank) return std::nullopt;
    for (int64_t dim = rank - count; dim < rank; ++dim) dims.push_back(dim);
    return over_dims(graph, input, dims);
  }
  if (rank < 2) return std::nullopt;
  if (rule == OpRule::kGroupNorm) {
    const int64_t groups = node.integer("num_groups", node.integer("group", 1));
    if (groups <= 0 || shape[1] % groups != 0) return std::nullopt;
    ReduceSpec spec;
    spec.domain = {shape[0], groups, shape[1] / groups};
    spec.domain.insert(spec.domain.end(), shape.begin() + 2, shape.end());
    spec.reduced.assign(spec.domain.size(), true);
    spec.reduced[0] = spec.reduced[1] = false;
    spec.operands = {input};
    return spec;
  }
  if (rule == OpRule::kInstanceNorm) {
    if (!node.boolean("use_input_stats", true) || node.value("running_mean") != kNoValue ||
        node.value("running_var") != kNoValue || rank < 3)
      return std::nullopt;
    for (int64_t dim = 2; dim < rank; ++dim) dims.push_back(dim);
    return over_dims(graph, input, dims);
  }
  // Batch normalisation with the batch's statistics. The variants that write running statistics in place, not as
  // results, are the library's.
  if (!node.boolean("training", true)) return std::nullopt;
  if (node.results.size() != 5 && node.value("running_mean") != kNoValue) return std::nullopt;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != 1) dims.push_back(dim);
  return over_dims(graph, input, dims);
}

std::optional<ReduceSpec> loss_spec(const Graph& graph, const Node& node) {
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
  const OpInfo& info = op_info(node.op);
  if (info.lowering != Lowering::kFold && info.lowering != Lowering::kFoldOrElements) return std::nullopt;
  const ValueId input = node.value("self");
  const auto is_float = [&](ValueId value) { return is_floating(graph.type(value).dtype); };
  switch (info.rule) {
    case OpRule::kMaxPool:
    case OpRule::kAdaptiveMax:
    case OpRule::kFractionalMax:
    case OpRule::kAveragePool:
    case OpRule::kAdaptiveAverage:
    case OpRule::kCol2im: return window_spec(graph, node);
    case OpRule::kBag: return bag_spec(graph, node);
    case OpRule::kPairLoss: return loss_spec(graph, node);
    case OpRule::kLayerNorm:
    case OpRule::kGroupNorm:
    case OpRule::kBatchNorm:
    case OpRule::kInstanceNorm:
    case OpRule::kRmsNorm: return normalisation_spec(graph, node, info.rule);
    case OpRule::kNorm:
      for (const char* order : {"p", "ord"})
        if (const Argument* given = node.find(order); given && std::holds_alternative<std::string>(*given))
          return std::nullopt;
      [[fallthrough]];
    case OpRule::kVar:
    case OpRule::kStd:
    case OpRule::kVarMean:
    case OpRule::kStdMean:
    case OpRule::kLogSumExp:
      if (input == kNoValue || !is_float(input)) return std::nullopt;
      [[fallthrough]];
    case OpRule::kMean:
    case OpRule::kSoftmax:
    case OpRule::kLogSoftmax:
    case OpRule::kSafeSoftmax:
      if (!is_float(node.results[0])) return std::nullopt;
      [[fallthrough]];
    default: break;
  }
  if (input == kNoValue) return std::nullopt;
  return over_dims(graph, input, dims_of(node, graph.type(input).rank()));
}

std::optional<ReduceSpec> scan_spec(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const OpInfo& info = op_info(node.op);
  if (info.lowering == Lowering::kSort) {
    const auto sort = sort_spec(graph, node);
    if (!sort) return std::nullopt;
    ReduceSpec spec = over_dims(graph, sort->operand, {sort->dim});
    spec.sorted = true;
    return spec;
  }
  const ValueId input = node.value("self");
  if (info.lowering != Lowering::kCumulative || input == kNoValue || !node.find("dim")) return std::nullopt;
  const DType dtype = graph.type(node.results[0]).dtype;
  const bool extreme = info.rule == OpRule::kMaxAt || info.rule == OpRule::kMinAt;
  if (!extreme && dtype == DType::b1) return std::nullopt;
  if (info.rule == OpRule::kLogSumExp && (!is_floating(dtype) || graph.type(input).dtype != dtype)) return std::nullopt;
  return over_dims(graph, input, {node.integer("dim", 0)});
}

bool is_index(const Graph& graph, ValueId value) {
  return value != kNoValue && (graph.type(value).dtype == DType::i64 || graph.type(value).dtype == DType::i32);
}

NodeKind classify(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!node.op.starts_with("aten.") || node.results.empty() || node.results[0] == kNoValue) return NodeKind::kExtern;
  const OpInfo& info = op_info(node.op);
  // Chains of views keep their strides as captured, so complex and empty ones are as free as any.
  if (info.lowering == Lowering::kAlias && is_alias(graph, node, info)) return NodeKind::kView;
  if (!tensors_are_expressible(graph, node, info)) return NodeKind::kExtern;
  switch (info.lowering) {
    case Lowering::kLibrary: return NodeKind::kExtern;
    case Lowering::kAlias:  // a reshape that copies
      return info.rule == OpRule::kReshape && node.find("dtype") ? NodeKind::kExtern : NodeKind::kPointwise;
    case Lowering::kFill: return fill_is_expressible(graph, node, info.rule) ? NodeKind::kFactory : NodeKind::kExtern;
    case Lowering::kFold: return reduce_spec(graph, id) ? NodeKind::kReduce : NodeKind::kExtern;
    case Lowering::kFoldOrElements:
      if (reduce_spec(graph, id)) return NodeKind::kReduce;
      [[fallthrough]];
    case Lowering::kElements:
      return pointwise_is_expressible(graph, node, info) ? NodeKind::kPointwise : NodeKind::kExtern;
    case Lowering::kCumulative:
    case Lowering::kSort: return scan_spec(graph, id) ? NodeKind::kScan : NodeKind::kExtern;
    case Lowering::kScatter: return scatter_spec(graph, id) ? NodeKind::kScatter : NodeKind::kExtern;
  }
  return NodeKind::kExtern;
}

int arithmetic_weight(const Node& node) { return op_info(node.op).arithmetic_weight; }

std::vector<NodeKind> kinds_of(const Graph& graph) {
  std::vector<NodeKind> kinds;
  kinds.reserve(graph.nodes.size());
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) kinds.push_back(classify(graph, id));
  return kinds;
}

std::vector<ValueId> storage_roots(const Graph& graph, const std::vector<NodeKind>& kinds) {
  std::vector<ValueId> roots(graph.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (size_t id = 0; id < kinds.size(); ++id) {
    if (kinds[id] != NodeKind::kView) continue;
    const Node& node = graph.nodes[id];
    for (const ValueId result : node.results)
      if (result != kNoValue) roots[result] = roots[node.value("self")];
  }
  return roots;
}

}  // namespace kw::plan
