#include "ir/infer.hpp"

#include <algorithm>
#include <unordered_map>

#include "ir/op_registry.hpp"
#include "ir/promote.hpp"
#include "ir/text.hpp"

namespace kw {
namespace {

// How the element type of a pointwise result follows from its arguments.
enum class DTypeRule {
  kPromote,   // result_type of self, other and the bounds
  kFloating,  // the same, where that is floating; otherwise the default dtype
  kBool,
  kFirst,  // that of the first operand
};

const std::unordered_map<std::string_view, DTypeRule>& pointwise_rules() {
  using enum DTypeRule;
  static const auto rules = [] {
    std::unordered_map<std::string_view, DTypeRule> rules;
    const auto add = [&](DTypeRule rule, std::initializer_list<std::string_view> names) {
      for (const auto name : names) rules.emplace(name, rule);
    };
    add(kPromote,
        {"add",        "sub",         "mul",   "rsub",      "maximum",      "minimum",   "max",  "min",
         "fmax",       "fmin",        "clamp", "clamp_min", "clamp_max",    "remainder", "fmod", "bitwise_and",
         "bitwise_or", "bitwise_xor", "pow",   "where",     "floor_divide", "addcmul"});
    add(kFloating, {"exp",   "exp2", "expm1", "log",     "log2",       "log10", "log1p", "sqrt",   "rsqrt", "sin",
                    "cos",   "tan",  "asin",  "acos",    "atan",       "sinh",  "cosh",  "tanh",   "asinh", "acosh",
                    "atanh", "erf",  "erfc",  "sigmoid", "reciprocal", "xlogy", "atan2", "addcdiv"});
    add(kBool, {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or",
                "logical_xor", "logical_not"});
    add(kFirst, {"neg",         "abs",    "relu",        "relu6", "hardtanh",    "leaky_relu",     "gelu",
                 "silu",        "mish",   "softplus",    "elu",   "hardsigmoid", "hardswish",      "floor",
                 "ceil",        "trunc",  "round",       "sign",  "clone",       "contiguous",     "masked_fill",
                 "bitwise_not", "square", "log_sigmoid", "fill",  "copy",        "lift_fresh_copy"});
    return rules;
  }();
  return rules;
}

struct Inferrer {
  const Graph& graph;
  const Node& node;
  std::string_view name = base_name(node.op);
  Inference out = {};

  const TensorType* operand(std::string_view argument) const {
    const ValueId id = node.value(argument);
    return id == kNoValue ? nullptr : &graph.type(id);
  }

  const TensorType* first() const {
    const TensorType* found = nullptr;
    for_each_operand(node, [&](ValueId id) {
      if (!found) found = &graph.type(id);
    });
    return found;
  }

  void result(std::optional<Shape> shape, std::optional<DType> dtype) {
    out.results.push_back({std::move(shape), dtype});
  }

  void contradict(const Shape& left, std::string_view why, const Shape& right) {
    const auto text = [](const Shape& shape) {
      return print(TensorType{DType::f32, shape, contiguous_strides(shape)}).substr(3);
    };
    out.problem = text(left) + std::string(why) + text(right);
  }

  std::optional<DType> dtype_argument() const {
    const Argument* argument = node.find("dtype");
    const auto* dtype = argument ? std::get_if<DType>(argument) : nullptr;
    return dtype ? std::optional(*dtype) : std::nullopt;
  }

  bool gives_dtype() const { return node.find("dtype") && !std::holds_alternative<None>(*node.find("dtype")); }

  // --- Pointwise ---

  std::optional<DType> pointwise_dtype() const {
    if (name == "abs" && !is_floating(first()->dtype) && !is_integral(first()->dtype))
      return std::nullopt;  // of complex numbers it is real
    if (name == "_to_copy" || name == "to")
      return gives_dtype() ? dtype_argument() : name == "_to_copy" ? std::optional(first()->dtype) : std::nullopt;
    const auto promoted = [&] {
      return result_type(graph, node, {"self", "other", "min", "max", "exponent", "tensor1", "tensor2"});
    };
    const auto floating = [&]() -> std::optional<DType> {
      const auto dtype = promoted();
      return dtype && !is_integral(*dtype) && *dtype != DType::b1 ? dtype : std::nullopt;
    };
    if (name == "div")
      return node.find("rounding_mode") && !node.text("rounding_mode").empty() ? promoted() : floating();
    const auto rule = pointwise_rules().find(name);
    if (rule == pointwise_rules().end()) return std::nullopt;
    switch (rule->second) {
      case DTypeRule::kPromote: return promoted();
      case DTypeRule::kFloating: return floating();
      case DTypeRule::kBool: return DType::b1;
      case DTypeRule::kFirst: return first()->dtype;
    }
    return std::nullopt;
  }

  void pointwise() {
    if (!first()) return;
    const bool keeps_first = name == "copy" || name == "fill" || name == "type_as";
    if (keeps_first) return result(first()->shape, pointwise_dtype());
    if (!pointwise_rules().contains(name) && name != "_to_copy" && name != "div") return;
    Shape shape = first()->shape;
    for_each_operand(node, [&](ValueId id) {
      const auto common = broadcast(shape, graph.type(id).shape);
      if (common) shape = *common;
      else contradict(shape, " does not broadcast with ", graph.type(id).shape);
    });
    result(shape, pointwise_dtype());
  }

  // --- Reductions ---

  std::optional<Shape> reduced(const Shape& shape, const IntList& axes, bool keep) {
    const auto rank = static_cast<int64_t>(shape.size());
    std::vector<bool> folded(std::max<size_t>(shape.size(), 1), axes.empty());
    for (const int64_t axis : axes) {
      const auto normal = normalise_axis(axis, rank);
      if (!normal) {
        out.problem = "axis " + std::to_string(axis) + " of a tensor with " + std::to_string(rank) + " axes";
        return std::nullopt;
      }
      folded[*normal] = true;
    }
    Shape kept;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (!folded[axis]) kept.push_back(shape[axis]);
      else if (keep) kept.push_back(1);
    }
    return kept;
  }

  void reduction() {
    const TensorType* self = operand("self");
    const bool is_complex = self && (self->dtype == DType::c64 || self->dtype == DType::c128);
    const bool keeps_all = (name == "any" || name == "all") && node.find("dim") && node.integers("dim").empty() &&
                           !std::holds_alternative<None>(*node.find("dim"));
    if (!self || is_complex || keeps_all) return;  // norms of complex numbers are real; any(dim=[]) folds nothing
    const auto shape = reduced(self->shape, node.integers("dim"), node.boolean("keepdim", false));
    const auto widened = is_integral(self->dtype) || self->dtype == DType::b1 ? DType::i64 : self->dtype;
    if (name == "sum" || name == "prod") return result(shape, gives_dtype() ? dtype_argument() : widened);
    if (name == "mean" || name == "linalg_vector_norm")
      return result(shape, gives_dtype() ? dtype_argument() : std::optional(self->dtype));
    if (name == "amax" || name == "amin") return result(shape, self->dtype);
    if (name == "argmax" || name == "argmin") return result(shape, DType::i64);
    if (name == "any" || name == "all") return result(shape, self->dtype == DType::u8 ? DType::u8 : DType::b1);
    if (name == "var" || name == "std") return result(shape, self->dtype);
    if (name == "logsumexp") return result(shape, is_floating(self->dtype) ? std::optional(self->dtype) : std::nullopt);
    if ((name == "max" || name == "min") && node.find("dim")) {
      result(shape, self->dtype);
      return result(shape, DType::i64);
    }
    if (name == "max" || name == "min") return result(shape, self->dtype);
    if (name == "var_mean" || name == "std_mean") {
      result(shape, self->dtype);
      return result(shape, self->dtype);
    }
  }

  // --- Products ---

  void product_of(const TensorType* left, const TensorType* right, int64_t rank) {
    if (!left || !right) return;
    if (left->rank() != rank || right->rank() != rank || left->shape[rank - 1] != right->shape[rank - 2] ||
        (rank == 3 && left->shape[0] != right->shape[0]))
      return contradict(left->shape, " cannot be multiplied by ", right->shape);
    Shape shape = left->shape;
    shape.back() = right->shape.back();
    result(shape, node.find("out_dtype") ? std::nullopt : std::optional(left->dtype));
  }

  void contraction() {
    if (name == "mm") return product_of(operand("self"), operand("mat2"), 2);
    if (name == "bmm") return product_of(operand("self"), operand("mat2"), 3);
    if (name == "addmm") return product_of(operand("mat1"), operand("mat2"), 2);
    if (name == "baddbmm") return product_of(operand("batch1"), operand("batch2"), 3);
    if (name != "linear") return;
    const TensorType *input = operand("input"), *weight = operand("weight");
    if (!input || !weight || input->shape.empty() || weight->rank() > 2 || weight->shape.empty()) return;
    if (input->shape.back() != weight->shape.back())
      return contradict(input->shape, " cannot be multiplied by the transpose of ", weight->shape);
    Shape shape = input->shape;
    shape.pop_back();
    if (weight->rank() == 2) shape.push_back(weight->shape.front());
    result(shape, input->dtype);
  }

  void convolution() {
    const TensorType* input = operand("input");
    const TensorType* weight = operand("weight");
    if (!input || !weight || weight->rank() < 3) return;
    const int64_t axes = weight->rank() - 2;
    const bool batched = input->rank() == axes + 2;
    if (!batched && input->rank() != axes + 1)
      return contradict(input->shape, " cannot be convolved with ", weight->shape);
    const bool transposed = name.find("transpose") != std::string_view::npos || node.boolean("transposed", false);
    const int64_t groups = node.integer("groups", 1);
    if (groups < 1 || !node.text("padding").empty()) return;  // "same" and "valid" stay without a rule
    const int64_t channels = input->shape[batched ? 1 : 0];
    if (channels == 0) return;  // PyTorch then answers with no channels either, whatever the weight has
    if (channels != (transposed ? weight->shape[0] : weight->shape[1] * groups))
      return contradict(input->shape, " has the wrong number of channels for ", weight->shape);
    const auto each = [&](const char* argument, int64_t fallback) {
      IntList list = node.integers(argument, {fallback});
      list.resize(axes, list.empty() ? fallback : list.back());
      return list;
    };
    const IntList stride = each("stride", 1), padding = each("padding", 0), dilation = each("dilation", 1),
                  extra = each("output_padding", 0);
    Shape shape;
    if (batched) shape.push_back(input->shape[0]);
    shape.push_back(transposed ? weight->shape[1] * groups : weight->shape[0]);
    for (int64_t axis = 0; axis < axes; ++axis) {
      const int64_t size = input->shape[axis + (batched ? 2 : 1)],
                    window = dilation[axis] * (weight->shape[axis + 2] - 1) + 1;
      shape.push_back(transposed ? (size - 1) * stride[axis] - 2 * padding[axis] + window + extra[axis]
                                 : (size + 2 * padding[axis] - window) / stride[axis] + 1);
    }
    result(shape, input->dtype);
  }

  // --- The rest ---

  void data_movement() {
    const TensorType* self = operand("self");
    if (name == "flip" || name == "roll" || name == "tril" || name == "triu") {
      if (self) result(self->shape, self->dtype);
      return;
    }
    if (name == "constant_pad_nd" && self) {
      Shape shape = self->shape;
      const IntList pad = node.integers("pad");
      if (pad.size() % 2 || pad.size() / 2 > shape.size()) return;
      for (size_t i = 0; i < pad.size() / 2; ++i) shape[shape.size() - 1 - i] += pad[2 * i] + pad[2 * i + 1];
      return result(shape, self->dtype);
    }
    const Argument* tensors = node.find("tensors");
    if (name != "cat" || !tensors || !std::holds_alternative<ValueList>(*tensors)) return;
    std::optional<Shape> joined;
    for (const ValueId id : std::get<ValueList>(*tensors).ids) {
      const Shape& shape = graph.type(id).shape;
      if (shape == Shape{0}) continue;  // PyTorch's old empty tensor joins anything
      const auto axis = normalise_axis(node.integer("dim", 0), static_cast<int64_t>(shape.size()));
      if (!axis || shape.empty()) return;
      if (!joined) {
        joined = shape;
        continue;
      }
      if (shape.size() != joined->size()) return contradict(*joined, " cannot be joined to ", shape);
      (*joined)[*axis] += shape[*axis];
    }
    result(joined, result_type(graph, node, {"tensors"}));
  }

  void view() {
    const TensorType* self = first();
    if (!self || node.results.size() != 1) return;
    if (const auto type = infer_view(graph, node)) result(type->shape, type->dtype);
  }

  void like_first() {
    if (const TensorType* self = first()) result(self->shape, gives_dtype() ? dtype_argument() : std::nullopt);
  }

  Inference run() {
    switch (class_of(node.op)) {
      case OpClass::kPointwise: pointwise(); break;
      case OpClass::kReduction: reduction(); break;
      case OpClass::kView: view(); break;
      case OpClass::kContraction: contraction(); break;
      case OpClass::kConvolution: convolution(); break;
      case OpClass::kDataMovement: data_movement(); break;
      case OpClass::kScan:
        if (name != "cummax" && name != "cummin" && name != "cumulative_trapezoid") like_first();
        break;
      case OpClass::kNormalisation:
        if (name.ends_with("softmax") || name == "layer_norm" || name == "group_norm" || name == "batch_norm" ||
            name == "instance_norm")
          like_first();
        break;
      case OpClass::kFactory:
        if (name == "full" || name == "zeros" || name == "ones") result(node.integers("size"), dtype_argument());
        if (name == "scalar_tensor") result(Shape{}, dtype_argument());
        if (name == "full_like" || name == "zeros_like" || name == "ones_like")
          result(first()->shape, gives_dtype() ? dtype_argument() : std::optional(first()->dtype));
        break;
      default: break;
    }
    return std::move(out);
  }
};

}  // namespace

Inference infer(const Graph& graph, const Node& node) { return Inferrer{graph, node}.run(); }

}  // namespace kw
