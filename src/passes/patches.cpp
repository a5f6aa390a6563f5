#include "passes/patches.hpp"

#include <algorithm>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

class Patches {
 public:
  explicit Patches(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) { return is_taken(node) && rewrite(node); });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  static bool all_are(const Node& node, const char* name, int64_t fallback, int64_t wanted) {
    const IntList list = node.integers(name, {fallback});
    return std::all_of(list.begin(), list.end(), [&](int64_t one) { return one == wanted; });
  }

  bool is_taken(const Node& node) const {
    if (node.op != "aten.conv1d.default" && node.op != "aten.conv2d.default" && node.op != "aten.conv3d.default")
      return false;
    const ValueId input = node.value("input"), weight = node.value("weight");
    if (input == kNoValue || weight == kNoValue || !node.text("padding").empty()) return false;
    const TensorType &x = type(input), &w = type(weight), &y = type(node.results[0]);
    const auto is_plain = [&](const TensorType& one) {
      return one.dtype == w.dtype && one.is_contiguous() && one.rank() == w.rank() && one.elements() > 0;
    };
    if ((w.dtype != DType::f32 && w.dtype != DType::f64) || !is_plain(x) || !is_plain(w) || !is_plain(y) ||
        node.integer("groups", 1) != 1 || !all_are(node, "padding", 0, 0) || !all_are(node, "dilation", 1, 1))
      return false;
    const int64_t dims = w.rank() - 2;
    IntList stride = node.integers("stride", {1});
    if (stride.size() == 1) stride.resize(dims, stride.front());
    int64_t taps = 1;
    for (int64_t dim = 0; dim < dims; ++dim) {
      const int64_t kernel = w.shape[dim + 2], length = x.shape[dim + 2];
      if (length % kernel != 0 || (kernel != stride[dim] && kernel != length)) return false;
      taps *= kernel;
    }
    return taps > 1;
  }

  ValueId view(ValueId of, Shape shape) {
    return rewriter_.emit("aten.view.default", {{"self", ValueRef{of}}, {"size", IntList(shape.begin(), shape.end())}});
  }

  ValueId permuted(ValueId of, IntList order) {
    return rewriter_.emit("aten.permute.default", {{"self", ValueRef{of}}, {"dims", std::move(order)}});
  }

  ValueId dense(ValueId of) {
    TensorType wanted = type(of);
    wanted.strides = contiguous_strides(wanted.shape);
    return rewriter_.emit("aten.clone.default", {{"self", ValueRef{of}}}, wanted);
  }

  bool rewrite(Node& node) {
    const ValueId input = node.value("input"), weight = node.value("weight"), bias = node.value("bias");
    const Shape x = type(input).shape, w = type(weight).shape;
    const auto dims = static_cast<int64_t>(w.size()) - 2;
    // [sample, channel, patch, tap, …] to [sample, patch, …, channel, tap, …].
    Shape apart = {x[0], x[1]}, result = {x[0]};
    IntList order = {0}, back = {0, dims + 1};
    int64_t rows = x[0];
    for (int64_t dim = 0; dim < dims; ++dim) {
      const int64_t count = x[dim + 2] / w[dim + 2];
      apart.insert(apart.end(), {count, w[dim + 2]});
      order.push_back(2 + 2 * dim);
      back.push_back(1 + dim);
      result.push_back(count);
      rows *= count;
    }
    order.push_back(1);
    for (int64_t dim = 0; dim < dims; ++dim) order.push_back(3 + 2 * dim);
    result.push_back(w[0]);
    const int64_t depth = type(weight).elements() / w[0];
    const ValueId taken_apart = permuted(view(input, apart), order);
    const ValueId laid_out = view(type(taken_apart).is_contiguous() ? taken_apart : dense(taken_apart), {rows, depth});
    std::vector<NamedArgument> arguments = {{"input", ValueRef{laid_out}},
                                            {"weight", ValueRef{view(weight, {w[0], depth})}}};
    if (bias != kNoValue) arguments.push_back({"bias", ValueRef{bias}});
    const ValueId product = rewriter_.emit("aten.linear.default", std::move(arguments));
    rewriter_.adopt(node.results[0], dense(permuted(view(product, result), back)), NumericTag::kReassociates);
    return true;
  }

  Rewriter rewriter_;
};

}  // namespace

RewriteCounts patches(Graph& graph, const GraphForms& forms) {
  return forms.patches_as_products ? Patches(graph).run() : RewriteCounts{};
}

}  // namespace kw
