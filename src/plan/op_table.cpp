#include "plan/op_table.hpp"

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/op_registry.hpp"
#include "plan/bags.hpp"
#include "plan/scatters.hpp"
#include "plan/sorts.hpp"
#include "plan/windows.hpp"

namespace kw::plan {

namespace {

using NameSet = std::unordered_set<std::string_view>;

const NameSet kViews = {"view",
                        "_unsafe_view",
                        "reshape",
                        "flatten",
                        "unflatten",
                        "squeeze",
                        "unsqueeze",
                        "expand",
                        "expand_as",
                        "broadcast_to",
                        "view_as",
                        "permute",
                        "transpose",
                        "swapaxes",
                        "movedim",
                        "t",
                        "numpy_T",
                        "mT",
                        "slice",
                        "select",
                        "narrow",
                        "split",
                        "split_with_sizes",
                        "chunk",
                        "unbind",
                        "alias",
                        "detach",
                        "diagonal",
                        "unfold",
                        "as_strided",
                        "contiguous",
                        "reshape_as",
                        "_reshape_alias",
                        "unsafe_split",
                        "unsafe_chunk",
                        "tensor_split"};

const NameSet kFactories = {"full",      "zeros", "ones",      "arange",   "scalar_tensor", "zeros_like", "ones_like",
                            "full_like", "eye",   "new_zeros", "new_ones", "new_full",      "linspace"};

// Weight of one element: 1 for what a core does in a cycle, more for what takes a polynomial.
const std::unordered_map<std::string_view, int> kPointwiseWeights = {{"add", 1},
                                                                     {"sub", 1},
                                                                     {"rsub", 1},
                                                                     {"mul", 1},
                                                                     {"multiply", 1},
                                                                     {"subtract", 1},
                                                                     {"div", 2},
                                                                     {"divide", 2},
                                                                     {"true_divide", 2},
                                                                     {"floor_divide", 4},
                                                                     {"remainder", 4},
                                                                     {"fmod", 4},
                                                                     {"pow", 6},
                                                                     {"square", 1},
                                                                     {"neg", 1},
                                                                     {"negative", 1},
                                                                     {"abs", 1},
                                                                     {"absolute", 1},
                                                                     {"sign", 1},
                                                                     {"sgn", 1},
                                                                     {"reciprocal", 2},
                                                                     {"sqrt", 3},
                                                                     {"rsqrt", 3},
                                                                     {"exp", 4},
                                                                     {"exp2", 4},
                                                                     {"expm1", 6},
                                                                     {"log", 5},
                                                                     {"log2", 5},
                                                                     {"log10", 5},
                                                                     {"log1p", 6},
                                                                     {"sin", 20},
                                                                     {"cos", 20},
                                                                     {"tan", 24},
                                                                     {"asin", 8},
                                                                     {"acos", 8},
                                                                     {"atan", 8},
                                                                     {"atan2", 10},
                                                                     {"sinh", 8},
                                                                     {"cosh", 8},
                                                                     {"tanh", 6},
                                                                     {"asinh", 10},
                                                                     {"acosh", 10},
                                                                     {"atanh", 10},
                                                                     {"erf", 8},
                                                                     {"erfc", 8},
                                                                     {"sigmoid", 5},
                                                                     {"log_sigmoid", 10},
                                                                     {"relu", 1},
                                                                     {"relu6", 1},
                                                                     {"leaky_relu", 1},
                                                                     {"prelu", 1},
                                                                     {"_prelu_kernel", 1},
                                                                     {"gelu", 10},
                                                                     {"silu", 6},
                                                                     {"mish", 14},
                                                                     {"softplus", 10},
                                                                     {"softsign", 3},
                                                                     {"elu", 6},
                                                                     {"celu", 6},
                                                                     {"selu", 6},
                                                                     {"hardswish", 3},
                                                                     {"hardsigmoid", 2},
                                                                     {"hardtanh", 1},
                                                                     {"threshold", 1},
                                                                     {"hardshrink", 1},
                                                                     {"softshrink", 1},
                                                                     {"tanhshrink", 7},
                                                                     {"logit", 8},
                                                                     {"clamp", 1},
                                                                     {"clip", 1},
                                                                     {"clamp_min", 1},
                                                                     {"clamp_max", 1},
                                                                     {"maximum", 1},
                                                                     {"minimum", 1},
                                                                     {"fmax", 1},
                                                                     {"fmin", 1},
                                                                     {"where", 1},
                                                                     {"masked_fill", 1},
                                                                     {"lerp", 2},
                                                                     {"addcmul", 2},
                                                                     {"addcdiv", 3},
                                                                     {"xlogy", 6},
                                                                     {"hypot", 4},
                                                                     {"eq", 1},
                                                                     {"ne", 1},
                                                                     {"lt", 1},
                                                                     {"le", 1},
                                                                     {"gt", 1},
                                                                     {"ge", 1},
                                                                     {"isnan", 1},
                                                                     {"isinf", 1},
                                                                     {"isfinite", 1},
                                                                     {"logical_and", 1},
                                                                     {"logical_or", 1},
                                                                     {"logical_xor", 1},
                                                                     {"logical_not", 1},
                                                                     {"bitwise_and", 1},
                                                                     {"bitwise_or", 1},
                                                                     {"bitwise_xor", 1},
                                                                     {"bitwise_not", 1},
                                                                     {"bitwise_left_shift", 1},
                                                                     {"bitwise_right_shift", 1},
                                                                     {"__and__", 1},
                                                                     {"__or__", 1},
                                                                     {"__xor__", 1},
                                                                     {"nan_to_num", 2},
                                                                     {"floor", 1},
                                                                     {"ceil", 1},
                                                                     {"trunc", 1},
                                                                     {"round", 1},
                                                                     {"frac", 2},
                                                                     {"_to_copy", 1},
                                                                     {"to", 1},
                                                                     {"type_as", 1},
                                                                     {"clone", 0},
                                                                     {"lift_fresh_copy", 0},
                                                                     {"copy", 0},
                                                                     {"fill", 0},
                                                                     {"deg2rad", 1},
                                                                     {"rad2deg", 1},
                                                                     {"tril", 1},
                                                                     {"triu", 1},
                                                                     {"cat", 1},
                                                                     {"concat", 1},
                                                                     {"stack", 1},
                                                                     {"constant_pad_nd", 1},
                                                                     {"pad", 1},
                                                                     {"flip", 0},
                                                                     {"repeat", 0},
                                                                     {"im2col", 2},
                                                                     {"slice_scatter", 1},
                                                                     {"select_scatter", 1},
                                                                     {"embedding", 1},
                                                                     {"index_select", 1},
                                                                     {"gather", 1},
                                                                     {"index", 1},
                                                                     {"_unsafe_index", 1},
                                                                     {"reflection_pad1d", 2},
                                                                     {"reflection_pad2d", 3},
                                                                     {"reflection_pad3d", 4},
                                                                     {"replication_pad1d", 2},
                                                                     {"replication_pad2d", 3},
                                                                     {"replication_pad3d", 4},
                                                                     {"_pad_circular", 3},
                                                                     {"roll", 2},
                                                                     {"diag_embed", 2},
                                                                     {"upsample_nearest1d", 2},
                                                                     {"upsample_nearest2d", 3},
                                                                     {"upsample_nearest3d", 4},
                                                                     {"_upsample_nearest_exact1d", 2},
                                                                     {"_upsample_nearest_exact2d", 3},
                                                                     {"_upsample_nearest_exact3d", 4},
                                                                     {"upsample_linear1d", 8},
                                                                     {"upsample_bilinear2d", 16},
                                                                     {"upsample_trilinear3d", 32},
                                                                     {"upsample_bicubic2d", 48},
                                                                     {"mse_loss", 2},
                                                                     {"l1_loss", 2},
                                                                     {"smooth_l1_loss", 4},
                                                                     {"huber_loss", 4},
                                                                     {"kl_div", 8},
                                                                     {"binary_cross_entropy", 12},
                                                                     {"binary_cross_entropy_with_logits", 12},
                                                                     {"soft_margin_loss", 10},
                                                                     {"batch_norm", 4},
                                                                     {"_native_batch_norm_legit_no_training", 4},
                                                                     {"instance_norm", 4},
                                                                     {"dropout", 0},
                                                                     {"alias_copy", 0},
                                                                     {"detach_copy", 0}};

const NameSet kReductions = {"sum",
                             "mean",
                             "amax",
                             "amin",
                             "prod",
                             "any",
                             "all",
                             "var",
                             "std",
                             "var_mean",
                             "std_mean",
                             "logsumexp",
                             "linalg_vector_norm",
                             "norm",
                             "frobenius_norm",
                             "argmax",
                             "argmin",
                             "max",
                             "min",
                             "aminmax",
                             "softmax",
                             "_softmax",
                             "log_softmax",
                             "_log_softmax",
                             "_safe_softmax",
                             "layer_norm",
                             "native_layer_norm",
                             "rms_norm",
                             "_fused_rms_norm",
                             "group_norm",
                             "native_group_norm",
                             "instance_norm",
                             "batch_norm",
                             "native_batch_norm",
                             "_native_batch_norm_legit",
                             "_native_batch_norm_legit_functional",
                             "mse_loss",
                             "l1_loss",
                             "smooth_l1_loss",
                             "huber_loss",
                             "kl_div",
                             "binary_cross_entropy",
                             "binary_cross_entropy_with_logits",
                             "soft_margin_loss",
                             "count_nonzero",
                             "max_pool1d",
                             "max_pool2d",
                             "max_pool3d",
                             "max_pool1d_with_indices",
                             "max_pool2d_with_indices",
                             "max_pool3d_with_indices",
                             "avg_pool1d",
                             "avg_pool2d",
                             "avg_pool3d",
                             "adaptive_avg_pool1d",
                             "adaptive_avg_pool2d",
                             "adaptive_avg_pool3d",
                             "_adaptive_avg_pool2d",
                             "_adaptive_avg_pool3d",
                             "adaptive_max_pool1d",
                             "adaptive_max_pool2d",
                             "adaptive_max_pool3d",
                             "fractional_max_pool2d",
                             "fractional_max_pool3d",
                             "col2im",
                             "_embedding_bag",
                             "_embedding_bag_forward_only"};

const NameSet kScans = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"};

const NameSet kLosses = {"mse_loss",
                         "l1_loss",
                         "smooth_l1_loss",
                         "huber_loss",
                         "kl_div",
                         "binary_cross_entropy",
                         "binary_cross_entropy_with_logits",
                         "soft_margin_loss"};

const NameSet kRandom = {"rand",
                         "randn",
                         "rand_like",
                         "randn_like",
                         "randint",
                         "randint_like",
                         "randperm",
                         "bernoulli",
                         "normal",
                         "uniform",
                         "dropout",
                         "native_dropout",
                         "feature_dropout",
                         "alpha_dropout",
                         "multinomial",
                         "exponential",
                         "poisson",
                         "rrelu",
                         "rrelu_with_noise",
                         "rrelu_with_noise_functional",
                         "normal_functional",
                         "geometric",
                         "cauchy",
                         "log_normal",
                         "feature_alpha_dropout",
                         "scaled_dot_product_attention",
                         "lstm",
                         "gru",
                         "rnn_tanh",
                         "rnn_relu",
                         "kw.rnn_steps",
                         "multi_head_attention_forward"};

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

// 8-bit floats have no arithmetic in PyTorch: they are cast and moved.
const NameSet kOfEightBitFloats = {"_to_copy",        "to",   "type_as", "clone",         "contiguous",    "copy",
                                   "lift_fresh_copy", "view", "reshape", "flatten",       "cat",           "concat",
                                   "stack",           "flip", "repeat",  "slice_scatter", "select_scatter"};

bool tensors_are_expressible(const Graph& graph, const Node& node) {
  const bool takes_eight_bits = kOfEightBitFloats.contains(base_name(node));
  bool good = true;
  const std::string* device = nullptr;
  auto check = [&](ValueId value) {
    const TensorType& type = graph.type(value);
    if (is_complex(type.dtype) || type.elements() == 0 || (is_eight_bit_float(type.dtype) && !takes_eight_bits))
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
  if (base.starts_with("binary_cross_entropy"))
    return node.value("weight") == kNoValue && node.value("pos_weight") == kNoValue;
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
  if (base == "max" || base == "min") return overload_name(node) == "other";
  return true;
}

int64_t loss_reduction(const Node& node) { return node.integer("reduction", 1); }  // 0 none, 1 mean, 2 sum

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

std::string_view base_name(const Node& node) { return kw::base_name(node.op); }

std::string_view overload_name(const Node& node) {
  const size_t dot = node.op.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(node.op).substr(dot + 1);
}

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
  if (!kReductions.contains(base)) return std::nullopt;
  if (base.find("_pool") != std::string_view::npos || base == "col2im") return window_spec(graph, node);
  if (base.starts_with("_embedding_bag")) return bag_spec(graph, node);
  if (kLosses.contains(base)) {
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
  if (input == kNoValue || node.value("other") != kNoValue) return std::nullopt;
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
  if (const auto sort = sort_spec(graph, node)) {
    ReduceSpec spec = over_dims(graph, sort->operand, {sort->dim});
    spec.sorted = true;
    return spec;
  }
  const ValueId input = node.value("self");
  if (!kScans.contains(base_name(node)) || input == kNoValue || !node.find("dim")) return std::nullopt;
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

OpClass classify(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!node.op.starts_with("aten.") || node.results.empty() || node.results[0] == kNoValue) return OpClass::kExtern;
  const std::string_view base = base_name(node);
  // Chains of views keep their strides as captured, so complex and empty ones are as free as any.
  if (kViews.contains(base) && is_alias(graph, node, base)) return OpClass::kView;
  if (!tensors_are_expressible(graph, node)) return OpClass::kExtern;
  if (base == "view" && node.find("dtype")) return OpClass::kExtern;
  if (kViews.contains(base)) return OpClass::kPointwise;  // a reshape that copies
  if (kFactories.contains(base)) {
    const TensorType& type = graph.type(node.results[0]);
    const bool evenly = base == "linspace" && ((type.dtype != DType::f32 && type.dtype != DType::f64) ||
                                               node.value("start") != kNoValue || node.value("end") != kNoValue);
    return type.elements() == 0 || evenly ? OpClass::kExtern : OpClass::kFactory;
  }
  if (reduce_spec(graph, id)) return OpClass::kReduce;
  if (scan_spec(graph, id)) return OpClass::kScan;
  if (scatter_spec(graph, id)) return OpClass::kScatter;
  if ((kPointwiseWeights.contains(base) || base == "max" || base == "min") &&
      pointwise_is_expressible(graph, node, base)) {
    if (kLosses.contains(base) && loss_reduction(node) != 0) return OpClass::kExtern;
    if (base == "bitwise_not" && dtype_of(graph, node, "self") == DType::f32) return OpClass::kExtern;
    return OpClass::kPointwise;
  }
  return OpClass::kExtern;
}

bool is_random(const Node& node) {
  return kRandom.contains(base_name(node)) || node.op.find("rng") != std::string::npos;
}

int arithmetic_weight(const Node& node) {
  const auto found = kPointwiseWeights.find(base_name(node));
  return found == kPointwiseWeights.end() ? 4 : found->second;
}

ValueId storage_root(const Graph& graph, ValueId value) {
  while (graph.values[value].producer != kNoNode) {
    const NodeId producer = graph.values[value].producer;
    if (classify(graph, producer) != OpClass::kView) break;
    value = graph.nodes[producer].value("self");
  }
  return value;
}

}  // namespace kw::plan
