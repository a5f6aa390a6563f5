#include "passes/convolution_sums.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestPositions = 16;  // of a convolution whose sum over them is worth other kernels
constexpr int64_t kFewestFilters = 4;
constexpr int64_t kMostBorder = 8;  // lines of the image that not all taps meet
constexpr int64_t kWidestWindow = 8;

struct Convolution {
  ValueId input = kNoValue, weight = kNoValue, bias = kNoValue, result = kNoValue;
  std::string op;
  bool transposed = false;
  int64_t dims = 0;
  IntList stride, padding, dilation, output_padding;

  int64_t filter_axis() const { return transposed ? 1 : 0; }
};

// Lines of the image at its beginning and end that a tap does not meet.
struct Border {
  int64_t before = 0, behind = 0;
  bool operator==(const Border&) const = default;
};

int64_t floor_of(int64_t value, int64_t divisor) { return value / divisor - (value < 0 && value % divisor != 0); }
int64_t ceil_of(int64_t value, int64_t divisor) { return -floor_of(-value, divisor); }

class ConvolutionSums {
 public:
  explicit ConvolutionSums(Graph& graph) : rewriter_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
      const std::string_view name = base_name(node.op);
      const ValueId self = node.value("self");
      if (self == kNoValue || type(node.results[0]).dtype != type(self).dtype) return false;
      const auto scaled = scaled_convolution(self);
      if (!scaled) return false;
      std::optional<Term> sum;
      if (name == "sum" || name == "mean") {
        sum = reduced(scaled->first, axes_of(node), name == "mean");
      } else if (name.starts_with("adaptive_avg_pool")) {
        const IntList size = node.integers("output_size");
        if (std::all_of(size.begin(), size.end(), [](int64_t length) { return length == 1; }))
          sum = over_positions(scaled->first, all_positions(scaled->first), true);
      } else if (name.starts_with("avg_pool")) {
        sum = pooled(scaled->first, node);
      }
      if (!sum) return false;
      const Term result = scaled->second == 1.0 ? *sum : *sum * Term(scaled->second);
      const TensorType wanted = type(node.results[0]);
      rewriter_.adopt(node.results[0], in_shape(result, wanted).id(), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  Term value(ValueId id) { return {rewriter_, id}; }
  bool is_read_once(ValueId id) const { return reads_.is_once(id); }

  const Node* producer(ValueId id) const {
    const Node* node = id == kNoValue ? nullptr : rewriter_.producer(id);
    return node && node->op.starts_with("aten.") && node->results.size() == 1 ? node : nullptr;
  }

  static IntList each(const Node& node, const char* name, int64_t fallback, int64_t dims) {
    IntList list = node.integers(name, {fallback});
    if (list.size() == 1) list.resize(static_cast<size_t>(dims), list.front());
    return list;
  }

  std::optional<Convolution> convolution_of(const Node& node) const {
    const std::string_view name = base_name(node.op);
    Convolution made;
    made.op = node.op;
    made.transposed = name.starts_with("conv_transpose");
    made.input = node.value("input");
    made.weight = node.value("weight");
    made.bias = node.value("bias");
    made.result = node.results[0];
    if ((!made.transposed && name != "conv1d" && name != "conv2d" && name != "conv3d") || made.input == kNoValue ||
        made.weight == kNoValue || !node.text("padding").empty() || node.integer("groups", 1) != 1)
      return std::nullopt;
    const TensorType &x = type(made.input), &w = type(made.weight), &y = type(made.result);
    made.dims = w.rank() - 2;
    if (x.rank() != w.rank() || y.rank() != w.rank() || x.elements() == 0 || y.elements() == 0 || x.dtype != y.dtype ||
        w.dtype != x.dtype || (x.dtype != DType::f32 && x.dtype != DType::f64))
      return std::nullopt;
    made.stride = each(node, "stride", 1, made.dims);
    made.padding = each(node, "padding", 0, made.dims);
    made.dilation = each(node, "dilation", 1, made.dims);
    made.output_padding = each(node, "output_padding", 0, made.dims);
    return made;
  }

  // The convolution that the value is, times a number, where nothing else reads anything of it.
  std::optional<std::pair<Convolution, double>> scaled_convolution(ValueId id) const {
    double factor = 1.0;
    while (const Node* node = producer(id)) {
      if (!is_read_once(id)) return std::nullopt;
      if (const auto convolution = convolution_of(*node)) return std::pair{*convolution, factor};
      const std::string_view name = base_name(node->op);
      const bool multiplies = name == "mul", divides = name == "div" && node->text("rounding_mode").empty();
      if ((!multiplies && !divides) || node->value("other") != kNoValue || node->value("self") == kNoValue ||
          type(node->value("self")).dtype != type(id).dtype)
        return std::nullopt;
      const double other = node->number("other", 1.0);
      factor = multiplies ? factor * other : factor / other;
      id = node->value("self");
    }
    return std::nullopt;
  }

  // Those of a sum or mean, counted from the first; empty where it is over all.
  IntList axes_of(const Node& node) const {
    IntList axes = node.integers("dim");
    for (int64_t& axis : axes) axis += axis < 0 ? type(node.value("self")).rank() : 0;
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  std::optional<Term> reduced(const Convolution& one, const IntList& axes, bool is_mean) {
    if (axes == IntList{1}) return over_filters(one, is_mean);
    const bool of_positions = std::all_of(axes.begin(), axes.end(), [](int64_t axis) { return axis >= 2; });
    return of_positions && !axes.empty() ? over_positions(one, axes, is_mean) : std::nullopt;
  }

  static Term reduce(const Term& term, int64_t axis, bool is_mean, bool keep) {
    return term.call(is_mean ? "mean.dim" : "sum.dim_IntList",
                     {{"dim", Argument(IntList{axis})}, {"keepdim", Argument(keep)}});
  }

  static Term slice(const Term& term, int64_t axis, int64_t start, int64_t end) {
    return term.call("slice.Tensor", {{"dim", Argument(axis)}, {"start", Argument(start)}, {"end", Argument(end)}});
  }

  Term in_shape(const Term& term, const TensorType& wanted) {
    const bool same = term.type().shape == wanted.shape;
    if (same && term.type().strides == wanted.strides) return term;
    const ValueId shaped = same ? term.id() : view(term, wanted.shape).id();
    return value(rewriter_.emit("aten.clone.default", {{"self", ValueRef{shaped}}}, wanted));
  }

  Term contiguous(const Term& term) {
    TensorType wanted = term.type();
    wanted.strides = contiguous_strides(wanted.shape);
    return term.type().is_contiguous()
               ? term
               : value(rewriter_.emit("aten.clone.default", {{"self", ValueRef{term.id()}}}, wanted));
  }

  // An image whose infinities are NaN. Where they meet taps or filters of both signs, as they nearly always do, eager's
  // sum is NaN; the sum of those has one sign.
  Term without_infinities(ValueId image) {
    const Term x = value(image);
    return x + (x - x);
  }

  // The convolution of an image with other filters and strides, without a bias.
  Term convolved(const Convolution& one, const Term& image, const Term& filters, const IntList& stride, Shape shape) {
    TensorType made = type(one.result);
    made.shape = std::move(shape);
    made.strides = contiguous_strides(made.shape);
    std::vector<NamedArgument> arguments = {{"input", ValueRef{image.id()}}, {"weight", ValueRef{filters.id()}}};
    arguments.push_back({"stride", stride});
    arguments.push_back({"padding", one.padding});
    if (one.transposed) arguments.push_back({"output_padding", one.output_padding});
    arguments.push_back({"dilation", one.dilation});
    return value(rewriter_.emit(one.op, std::move(arguments), made, "summed"));
  }

  // --- Over the filters ---

  std::optional<Term> over_filters(const Convolution& one, bool is_mean) {
    Shape shape = type(one.result).shape;
    if (shape[1] < kFewestFilters) return std::nullopt;
    shape[1] = 1;
    const Term filter = reduce(value(one.weight), one.filter_axis(), is_mean, true);
    const Term sum = convolved(one, without_infinities(one.input), filter, one.stride, std::move(shape));
    return one.bias == kNoValue ? sum : sum + reduce(value(one.bias), 0, is_mean, false);
  }

  // --- Over windows of positions ---

  std::optional<Term> pooled(const Convolution& one, const Node& node) {
    const IntList window = each(node, "kernel_size", 1, one.dims), step = node.integers("stride", window);
    const IntList padding = each(node, "padding", 0, one.dims);
    if (one.transposed || (!step.empty() && step != window) || node.integer("divisor_override", 0) != 0 ||
        node.boolean("ceil_mode", false) ||
        std::any_of(padding.begin(), padding.end(), [](int64_t lines) { return lines != 0; }))
      return std::nullopt;
    Shape shape = type(one.result).shape;
    IntList stride = one.stride;
    Term filters = value(one.weight);
    double positions = 1.0;
    bool is_less = false;
    for (int64_t dim = 0; dim < one.dims; ++dim) {
      const int64_t width = window[dim], axis = dim + 2;
      if (width > kWidestWindow || (width > 1 && one.dilation[dim] != 1)) return std::nullopt;
      is_less = is_less || (width > 1 && type(one.weight).shape[axis] > one.stride[dim]);
      filters = widened(filters, axis, width, one.stride[dim]);
      stride[dim] *= width;
      shape[axis] /= width;
      positions *= static_cast<double>(width);
    }
    if (!is_less) return std::nullopt;
    const Term sum = convolved(one, without_infinities(one.input), filters / Term(positions), stride, std::move(shape));
    return one.bias == kNoValue ? sum : sum + of_channels(one.bias, one.dims);
  }

  // Σ over `width` neighbouring positions, `stride` image lines apart: the filters' taps at as many distances.
  Term widened(const Term& filters, int64_t axis, int64_t width, int64_t stride) {
    if (width == 1) return filters;
    std::optional<Term> sum;
    for (int64_t place = 0; place < width; ++place) {
      IntList pad(static_cast<size_t>(2 * (filters.type().rank() - axis)), 0);  // of the last dimension first
      pad[pad.size() - 2] = place * stride;
      pad[pad.size() - 1] = (width - 1 - place) * stride;
      const Term shifted = filters.call("constant_pad_nd.default", {{"pad", Argument(pad)}});
      sum = sum ? *sum + shifted : shifted;
    }
    return *sum;
  }

  Term of_channels(ValueId bias, int64_t dims) {
    Shape shape(static_cast<size_t>(dims + 1), 1);
    shape[0] = type(bias).elements();
    return view(value(bias), shape);
  }

  // --- Over all positions of some dimensions ---

  static IntList all_positions(const Convolution& one) {
    IntList axes(static_cast<size_t>(one.dims));
    std::iota(axes.begin(), axes.end(), 2);
    return axes;
  }

  // The taps along `axes` become channels of a convolution of the other dimensions, or of a product where none is left.
  std::optional<Term> over_positions(const Convolution& one, const IntList& axes, bool is_mean) {
    const TensorType w = type(one.weight), y = type(one.result);
    int64_t positions = 1;
    std::vector<std::vector<Border>> borders;
    for (int64_t axis : axes) {
      positions *= y.shape[axis];
      const auto of_taps = borders_of(one, axis - 2);
      if (!of_taps) return std::nullopt;
      borders.push_back(*of_taps);
    }
    if (positions < kFewestPositions) return std::nullopt;
    // The innermost dimension first, which leaves less for the others to read.
    Term sums = value(one.input);
    for (size_t place = axes.size(); place-- > 0;) sums = summed(sums, axes[place], borders[place]);
    // Taps that meet the same are not summed: an infinity that meets taps of both signs is NaN.
    Shape taps = sums.type().shape;
    for (int64_t axis : axes) taps[axis] = w.shape[axis];
    if (taps != sums.type().shape) sums = sums.call("expand.default", {{"size", Argument(taps)}});
    const Term product = without(one, axes, sums);
    const auto count = static_cast<double>(positions);
    const Term sum = is_mean ? product / Term(count) : product;
    if (one.bias == kNoValue) return sum;
    const Term bias = of_channels(one.bias, one.dims - static_cast<int64_t>(axes.size()));
    return sum + (is_mean ? bias : bias * Term(count));
  }

  // The convolution of `image`, whose positions along `axes` are taps' and become channels.
  Term without(const Convolution& one, const IntList& axes, const Term& image) {
    const Term weight = value(one.weight);
    const auto is_summed = [&](int64_t axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    // Axes in front, those along which the channels lie, and the others.
    const auto merged = [&](const Term& term, IntList order, size_t channel) {
      order.insert(order.begin() + static_cast<int64_t>(channel) + 1, axes.begin(), axes.end());
      for (int64_t axis = 2; axis < term.type().rank(); ++axis)
        if (!is_summed(axis)) order.push_back(axis);
      const Term moved = contiguous(term.call("permute.default", {{"dims", Argument(order)}}));
      Shape shape = moved.type().shape;
      const auto first = shape.begin() + static_cast<int64_t>(channel) + 1,
                 last = first + static_cast<int64_t>(axes.size());
      shape[channel] = std::accumulate(first, last, shape[channel], std::multiplies<>());
      shape.erase(first, last);
      return view(moved, shape);
    };
    const Term channels = merged(image, {0, 1}, 1);
    if (static_cast<int64_t>(axes.size()) == one.dims) {
      const Term matrix = merged(weight, one.transposed ? IntList{1, 0} : IntList{0, 1}, 1);
      return Term::operation("linear.default", {{"input", channels}, {"weight", matrix}});
    }
    Convolution rest = one;
    rest.dims = one.dims - static_cast<int64_t>(axes.size());
    rest.op = (one.transposed ? "aten.conv_transpose" : "aten.conv") + std::to_string(rest.dims) + "d" +
              (one.transposed && rest.dims > 1 ? ".input" : ".default");
    TensorType made = type(one.result);
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      made.shape.erase(made.shape.begin() + *axis);
      for (IntList* list : {&rest.stride, &rest.padding, &rest.dilation, &rest.output_padding})
        list->erase(list->begin() + *axis - 2);
    }
    // Filters of a transposed convolution lie behind the channels.
    const Term filters = one.transposed ? merged(weight, {0, 1}, 0) : merged(weight, {0, 1}, 1);
    return convolved(rest, channels, filters, rest.stride, made.shape);
  }

  // What each tap along a dimension does not meet of the image, where that is some lines at its borders only.
  std::optional<std::vector<Border>> borders_of(const Convolution& one, int64_t dim) const {
    const int64_t input = type(one.input).shape[dim + 2], output = type(one.result).shape[dim + 2],
                  taps = type(one.weight).shape[dim + 2];
    if (!one.transposed && one.stride[dim] != 1) return std::nullopt;
    std::vector<Border> borders;
    int64_t before = 0, behind = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t shift = tap * one.dilation[dim] - one.padding[dim];
      // Output position = stride · input position + shift of a transposed one, else input position − shift.
      const int64_t first = one.transposed ? ceil_of(-shift, one.stride[dim]) : shift,
                    last = one.transposed ? floor_of(output - 1 - shift, one.stride[dim]) : output - 1 + shift;
      borders.push_back({std::clamp<int64_t>(first, 0, input), input - 1 - std::clamp<int64_t>(last, -1, input - 1)});
      before = std::max(before, borders.back().before);
      behind = std::max(behind, borders.back().behind);
    }
    if (before + behind >= input || before + behind > kMostBorder) return std::nullopt;
    return borders;
  }

  // Sums along an axis: one for each tap, or one for all where they meet the same.
  Term summed(const Term& of, int64_t axis, const std::vector<Border>& borders) {
    int64_t before = 0, behind = 0;
    for (const Border& border : borders) {
      before = std::max(before, border.before);
      behind = std::max(behind, border.behind);
    }
    const int64_t length = of.type().shape[axis];
    const auto lines = [&](int64_t start, int64_t end) {
      const Term some = start == 0 && end == length ? of : slice(of, axis, start, end);
      return end - start == 1 ? some : reduce(some, axis, false, true);
    };
    const Term inner = lines(before, length - behind);
    std::vector<std::pair<Border, Term>> made;
    const auto of_border = [&](const Border& border) {
      for (const auto& [same, term] : made)
        if (same == border) return term;
      Term sum = inner;
      if (border.before < before) sum = sum + lines(border.before, before);
      if (border.behind < behind) sum = sum + lines(length - behind, length - border.behind);
      made.emplace_back(border, sum);
      return sum;
    };
    if (std::all_of(borders.begin(), borders.end(), [&](const Border& one) { return one == borders[0]; }))
      return of_border(borders[0]);
    ValueList parts;
    TensorType together = inner.type();
    together.shape[axis] = static_cast<int64_t>(borders.size());
    together.strides = contiguous_strides(together.shape);
    for (const Border& border : borders) parts.ids.push_back(of_border(border).id());
    return value(rewriter_.emit("aten.cat.default", {{"tensors", parts}, {"dim", axis}}, together));
  }

  Rewriter rewriter_;
  Reads reads_;
};

}  // namespace

RewriteCounts convolution_sums(Graph& graph) { return ConvolutionSums(graph).run(); }

}  // namespace kw
