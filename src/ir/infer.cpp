#include "ir/infer.hpp"

#include <algorithm>

#include "ir/op_registry.hpp"
#include "ir/promote.hpp"
#include "ir/text.hpp"

namespace kw {
namespace {

struct Inferrer {
  const Graph& graph;
  const Node& node;
  const OpInfo& info = op_info(node.op);
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

  std::optional<DType> promoted() const {
    return result_type(graph, node, {"self", "other", "min", "max", "exponent", "tensor1", "tensor2"});
  }

  std::optional<DType> pointwise_dtype() const {
    const DType own = first()->dtype;
    const auto floating = [&]() -> std::optional<DType> {
      const auto dtype = promoted();
      return dtype && !is_integral(*dtype) && *dtype != DType::b1 ? dtype : std::nullopt;
    };
    switch (info.rule) {
      case OpRule::kPromote:
      case OpRule::kPower: return promoted();
      case OpRule::kSquare: return own == DType::b1 ? DType::i64 : own;
      case OpRule::kFloating: return floating();
      case OpRule::kQuotient: return node.text("rounding_mode").empty() ? floating() : promoted();
      case OpRule::kCompare:
      case OpRule::kLogical: return DType::b1;
      case OpRule::kMagnitude: return is_floating(own) || is_integral(own) ? std::optional(own) : std::nullopt;
      case OpRule::kCast:
        return gives_dtype() ? dtype_argument() : operand("other") ? operand("other")->dtype : std::optional(own);
      default: return own;
    }
  }

  // A result of the first operand's shape, or of all operands' common one.
  void pointwise(bool broadcasts) {
    if (!first()) return;
    Shape shape = first()->shape;
    if (broadcasts)
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
    const bool is_any = info.rule == OpRule::kAny || info.rule == OpRule::kAll;
    const bool keeps_all = is_any && node.find("dim") && node.integers("dim").empty() &&
                           !std::holds_alternative<None>(*node.find("dim"));
    if (!self || is_complex || keeps_all) return;  // norms of complex numbers are real; any(dim=[]) folds nothing
    const auto shape = reduced(self->shape, node.integers("dim"), node.boolean("keepdim", false));
    const DType own = self->dtype, widened = is_integral(own) || own == DType::b1 ? DType::i64 : own;
    switch (info.rule) {
      case OpRule::kSum:
      case OpRule::kProd: return result(shape, gives_dtype() ? dtype_argument() : widened);
      case OpRule::kMean:
      case OpRule::kNorm: return result(shape, gives_dtype() ? dtype_argument() : own);
      case OpRule::kArgMax:
      case OpRule::kArgMin:
      case OpRule::kCountNonzero: return result(shape, DType::i64);
      case OpRule::kAny:
      case OpRule::kAll: return result(shape, own == DType::u8 ? DType::u8 : DType::b1);
      case OpRule::kLogSumExp: return result(shape, is_floating(own) ? std::optional(own) : std::nullopt);
      case OpRule::kMaxAt:
      case OpRule::kMinAt: result(shape, own); return result(shape, DType::i64);
      case OpRule::kMinMax:
      case OpRule::kVarMean:
      case OpRule::kStdMean: result(shape, own); return result(shape, own);
      default: return result(shape, own);
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

  void product(int64_t rank) {
    for (const auto& [left, right] : {std::pair("mat1", "mat2"), {"batch1", "batch2"}, {"self", "mat2"}})
      if (operand(left)) return product_of(operand(left), operand(right), rank);
  }

  void affine() {
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
    const bool transposed = info.name.find("transpose") != std::string_view::npos || node.boolean("transposed", false);
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

  void padded() {
    const TensorType* self = operand("self");
    const IntList pad = node.integers("pad");
    if (!self || pad.size() % 2 || pad.size() / 2 > self->shape.size()) return;
    Shape shape = self->shape;
    for (size_t i = 0; i < pad.size() / 2; ++i) shape[shape.size() - 1 - i] += pad[2 * i] + pad[2 * i + 1];
    result(shape, self->dtype);
  }

  void joined() {
    const Argument* tensors = node.find("tensors");
    if (!tensors || !std::holds_alternative<ValueList>(*tensors)) return;
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

  void pair_loss() {
    const TensorType *self = operand("self"), *target = operand("target");
    if (!self || !target) return;
    result(node.integer("reduction", 1) == 0 ? broadcast(self->shape, target->shape) : Shape{}, std::nullopt);
  }

  void factory() {
    const TensorType* self = operand("self");
    if (!self && !node.find("size")) return;
    result(node.find("size") ? node.integers("size") : self->shape,
           gives_dtype() || !self ? dtype_argument() : std::optional(self->dtype));
  }

  void scan() {
    if (info.rule != OpRule::kMaxAt && info.rule != OpRule::kMinAt) like_first();
  }

  void by_rule() {
    if (broadcasts_operands(info.rule)) return pointwise(true);
    if (folds_axes(info.rule)) return info.op_class == OpClass::kScan ? scan() : reduction();
    if (normalises(info.rule)) return like_first();
    switch (info.rule) {
      case OpRule::kCast:
      case OpRule::kKeep:
      case OpRule::kPerChannel:
      case OpRule::kSame:
      case OpRule::kFlip:
      case OpRule::kRoll: return pointwise(false);
      case OpRule::kPad: return padded();
      case OpRule::kCat: return joined();
      case OpRule::kPairLoss: return pair_loss();
      case OpRule::kZeros:
      case OpRule::kOnes:
      case OpRule::kFull: return factory();
      case OpRule::kScalarTensor: return result(Shape{}, dtype_argument());
      case OpRule::kProduct: return product(2);
      case OpRule::kBatchedProduct: return product(3);
      case OpRule::kAffine: return affine();
      default: return;
    }
  }

  Inference run() {
    if (info.op_class == OpClass::kConvolution) convolution();
    else if (info.op_class == OpClass::kView) view();
    else by_rule();
    return std::move(out);
  }
};

}  // namespace

Inference infer(const Graph& graph, const Node& node) { return Inferrer{graph, node}.run(); }

}  // namespace kw
