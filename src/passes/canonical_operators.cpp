#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "ir/op_rows.hpp"
#include "passes/canonicalise.hpp"

namespace kw {
namespace {

// Same arguments, another overload. PyTorch takes a number where these want a tensor; comparisons and remainders want
// their .Scalar overload for it.
const std::unordered_map<std::string_view, std::string_view>& overloads() {
  static const std::unordered_map<std::string_view, std::string_view> table = {
      {"add.Scalar", "add.Tensor"},
      {"sub.Scalar", "sub.Tensor"},
      {"mul.Scalar", "mul.Tensor"},
      {"div.Scalar", "div.Tensor"},
      {"div.Scalar_mode", "div.Tensor_mode"},
      {"softmax.default", "softmax.int"},
      {"log_softmax.default", "log_softmax.int"},
      {"bitwise_left_shift.Scalar", "bitwise_left_shift.Tensor_Scalar"},
      {"bitwise_right_shift.Scalar", "bitwise_right_shift.Tensor_Scalar"},
      {"max.other", "maximum.default"},
      {"min.other", "minimum.default"},
      {"max.default", "amax.default"},
      {"min.default", "amin.default"},
  };
  return table;
}

Argument argument_of(const Node& node, std::string_view name) {
  const Argument* found = node.find(name);
  return found ? *found : Argument(None{});
}

struct Operators {
  Node& node;
  CanonicalContext& context;
  Rewriter& rewriter = context.rewriter;

  const TensorType& result() const { return rewriter.type(node.results[0]); }

  // The node becomes another operator of the same value; its result keeps name and type.
  bool become(std::string op, std::vector<NamedArgument> arguments) {
    node.op = "aten." + std::move(op);
    std::erase_if(arguments,
                  [](const NamedArgument& argument) { return std::holds_alternative<None>(argument.value); });
    node.arguments = std::move(arguments);
    rewriter.count(NumericTag::kExact);
    return false;
  }

  // alpha · other; left out where it is one.
  NamedArgument alpha() const {
    const double value = node.number("alpha", 1.0);
    return {"alpha", value == 1.0 ? Argument(None{}) : argument_of(node, "alpha")};
  }

  // x² and x³ as PyTorch's kernels compute them; x^½ likewise.
  bool pow_by_number() {
    const double exponent = node.number("exponent", 0.0);
    const ValueId self = node.value("self");
    if (self == kNoValue || rewriter.type(self).dtype != result().dtype) return false;
    if (exponent == 2.0) return become("mul.Tensor", {{"self", ValueRef{self}}, {"other", ValueRef{self}}});
    if (!is_floating(result().dtype)) return false;
    if (exponent == 3.0) {
      const ValueId square = rewriter.emit("aten.mul.Tensor", {{"self", ValueRef{self}}, {"other", ValueRef{self}}},
                                           result(), "square");
      return become("mul.Tensor", {{"self", ValueRef{square}}, {"other", ValueRef{self}}});
    }
    if (exponent == 0.5) return become("sqrt.default", {{"self", ValueRef{self}}});
    if (exponent == -0.5) return become("rsqrt.default", {{"self", ValueRef{self}}});
    return false;
  }

  bool factory(double value) {
    Argument number = value;
    if (is_integral(result().dtype)) number = static_cast<int64_t>(value);
    if (result().dtype == DType::b1) number = value != 0.0;
    return filled(std::move(number));
  }

  bool filled(Argument number) {
    if (!std::holds_alternative<double>(number) && !std::holds_alternative<int64_t>(number) &&
        !std::holds_alternative<bool>(number))
      return false;
    TensorType made = result();
    if (!made.is_contiguous() && !made.is_dense()) return false;
    IntList order(made.rank()), back(made.rank());
    std::iota(order.begin(), order.end(), 0);
    const bool in_order = made.is_contiguous();
    if (!in_order)
      std::ranges::stable_sort(order, std::greater{}, [&](int64_t axis) { return result().strides[axis]; });
    for (size_t place = 0; place < order.size(); ++place) {
      made.shape[place] = result().shape[order[place]];
      back[order[place]] = static_cast<int64_t>(place);
    }
    made.strides = contiguous_strides(made.shape);
    std::vector<NamedArgument> arguments = {{"size", made.shape},
                                            {"fill_value", std::move(number)},
                                            {"dtype", made.dtype},
                                            {"device", Keyword{"device", made.device}}};
    if (in_order) return become("full.default", std::move(arguments));
    const ValueId full = rewriter.emit("aten.full.default", std::move(arguments), made, "full");
    return become("permute.default", {{"self", ValueRef{full}}, {"dims", back}});
  }

  bool arange() {
    const Argument start = argument_of(node, "start"), step = argument_of(node, "step");
    return become("arange.start_step", {{"start", std::holds_alternative<None>(start) ? Argument(int64_t{0}) : start},
                                        {"end", argument_of(node, "end")},
                                        {"step", std::holds_alternative<None>(step) ? Argument(int64_t{1}) : step},
                                        {"dtype", result().dtype},
                                        {"device", Keyword{"device", result().device}}});
  }

  // var and std name their divisor n − correction in three ways.
  bool spread(const std::string& name, std::string_view overload) {
    if (overload == "correction") return false;
    const auto correction = static_cast<int64_t>(node.boolean("unbiased", true));
    return become(name + ".correction", {{"self", argument_of(node, "self")},
                                         {"dim", argument_of(node, "dim")},
                                         {"correction", correction},
                                         {"keepdim", argument_of(node, "keepdim")}});
  }

  bool over_all(std::string op) {
    const ValueId self = node.value("self");
    IntList axes(rewriter.type(self).rank());
    std::iota(axes.begin(), axes.end(), 0);
    return become(std::move(op), {{"self", ValueRef{self}}, {"dim", axes}, {"dtype", argument_of(node, "dtype")}});
  }

  bool vector_norm() {
    const Argument* p = node.find("p");
    if (p && std::holds_alternative<std::string>(*p)) return false;
    return become("linalg_vector_norm.default",
                  {{"self", argument_of(node, "self")},
                   {"ord", p && !std::holds_alternative<None>(*p) ? *p : Argument(int64_t{2})},
                   {"dim", node.integers("dim").empty() ? Argument(None{}) : argument_of(node, "dim")},
                   {"keepdim", argument_of(node, "keepdim")},
                   {"dtype", argument_of(node, "dtype")}});
  }

  // max.dim of which only the values are read.
  bool extreme(const std::string& name) {
    if (node.results.size() == 2 && node.results[1] != kNoValue && context.reads[node.results[1]] > 0) return false;
    node.results.resize(1);
    return become(name + ".default", {{"self", argument_of(node, "self")},
                                      {"dim", node.integers("dim")},
                                      {"keepdim", argument_of(node, "keepdim")}});
  }

  // In evaluation the slope is no random number.
  bool rrelu() {
    const bool noise_is_read = node.results.size() > 1 && node.results[1] != kNoValue &&
                               context.reads[node.results[1]] > 0;
    if (node.boolean("training", false) || noise_is_read) return false;
    node.results.resize(1);
    return become("leaky_relu.default",
                  {{"self", argument_of(node, "self")},
                   {"negative_slope", (node.number("lower", 0.125) + node.number("upper", 1.0 / 3.0)) / 2}});
  }

  bool softmax(const std::string& name) {
    const Argument dtype = node.boolean("half_to_float", false) ? Argument(DType::f32) : argument_of(node, "dtype");
    return become(name + ".int",
                  {{"self", argument_of(node, "self")}, {"dim", argument_of(node, "dim")}, {"dtype", dtype}});
  }

  // A row of tensors along a new axis is a row along an axis of one.
  bool stack() {
    const auto* tensors = node.find("tensors") ? std::get_if<ValueList>(node.find("tensors")) : nullptr;
    if (!tensors || tensors->ids.empty()) return false;
    int64_t dim = node.integer("dim", 0);
    if (dim < 0) dim += result().rank();
    ValueList slabs;
    for (const ValueId id : tensors->ids) {
      Shape size = rewriter.type(id).shape;
      size.insert(size.begin() + dim, 1);
      TensorType slab = rewriter.type(id);
      slab.strides.insert(slab.strides.begin() + dim, dim < slab.rank() ? slab.shape[dim] * slab.strides[dim] : 1);
      slab.shape = size;
      slabs.ids.push_back(rewriter.emit("aten.view.default", {{"self", ValueRef{id}}, {"size", size}}, slab, "slab"));
    }
    return become("cat.default", {{"tensors", slabs}, {"dim", dim}});
  }

  bool run() {
    const std::string op = node.op.substr(5);
    const std::string name(base_name(node.op));
    const std::string_view overload = std::string_view(op).substr(std::min(op.size(), name.size() + 1));
    const auto self = [&] { return argument_of(node, "self"); };

    std::string respelled = op;
    if (const auto synonym = op_synonyms().find(name); synonym != op_synonyms().end())
      respelled = std::string(synonym->second) + "." + std::string(overload);
    if (const auto other = overloads().find(respelled); other != overloads().end()) respelled = other->second;
    if (respelled != op) {
      node.op = "aten." + respelled;
      rewriter.count(NumericTag::kExact);
    }
    if (name == "rsub") return become("sub.Tensor", {{"self", argument_of(node, "other")}, {"other", self()}, alpha()});
    if (op == "floor_divide.default" || op == "floor_divide.Scalar")
      return become("div.Tensor_mode",
                    {{"self", self()}, {"other", argument_of(node, "other")}, {"rounding_mode", "floor"}});
    if (op == "div.Tensor_mode" && node.text("rounding_mode").empty())
      return become("div.Tensor", {{"self", self()}, {"other", argument_of(node, "other")}});
    if (op == "sum.default") return over_all("sum.dim_IntList");
    if (op == "mean.default") return over_all("mean.dim");
    if (name == "square" && rewriter.type(node.value("self")).dtype == result().dtype)
      return become("mul.Tensor", {{"self", self()}, {"other", self()}});
    if (op == "pow.Tensor_Scalar") return pow_by_number();
    if (name == "clamp_min" && overload == "default")
      return become("clamp.default", {{"self", self()}, {"min", argument_of(node, "min")}});
    if (name == "clamp_max" && overload == "default") {
      node.op = "aten.clamp.default";
      rewriter.count(NumericTag::kExact);
      return false;
    }
    if (name == "hardtanh" && is_floating(result().dtype))
      return become("clamp.default",
                    {{"self", self()}, {"min", node.number("min_val", -1.0)}, {"max", node.number("max_val", 1.0)}});
    if (name == "relu6" && is_floating(result().dtype))
      return become("clamp.default", {{"self", self()}, {"min", 0.0}, {"max", 6.0}});
    if (name == "rrelu_with_noise_functional") return rrelu();
    if (op == "max.dim") return extreme("amax");
    if (op == "min.dim") return extreme("amin");
    if (op == "_softmax.default") return softmax("softmax");
    if (op == "_log_softmax.default") return softmax("log_softmax");
    if (name == "var" || name == "std" || name == "var_mean" || name == "std_mean") return spread(name, overload);
    if (op == "norm.Scalar" || op == "norm.ScalarOpt_dim" || op == "norm.ScalarOpt_dim_dtype" ||
        op == "norm.ScalarOpt_dtype")
      return vector_norm();
    if (op == "zeros.default" || op == "zeros_like.default" || op == "new_zeros.default") return factory(0.0);
    if (op == "ones.default" || op == "ones_like.default" || op == "new_ones.default") return factory(1.0);
    if (op == "full_like.default" || op == "new_full.default") return filled(argument_of(node, "fill_value"));
    if (op == "fill.Scalar") return filled(argument_of(node, "value"));
    if (op == "scalar_tensor.default") return filled(argument_of(node, "s"));
    if (op == "arange.default" || op == "arange.start") return arange();
    if (op == "stack.default") return stack();
    return false;
  }
};

}  // namespace

bool canonicalise_operator(Node& node, CanonicalContext& context) {
  if (node.results[0] == kNoValue) return false;
  return Operators{node, context}.run();
}

}  // namespace kw
