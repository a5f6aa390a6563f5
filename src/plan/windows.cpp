#include "plan/windows.hpp"

#include <algorithm>
#include <limits>

#include "plan/op_table.hpp"
#include "plan/unfolded.hpp"

namespace kw::plan {

namespace {

// A setting for each spatial dimension, where one number may stand for all and none for `fallback`.
std::optional<IntList> settings(const Node& node, std::string_view name, size_t count, const IntList& fallback) {
  IntList values = node.integers(name);
  if (values.empty()) return fallback;
  if (values.size() == 1) values.resize(count, values[0]);
  if (values.size() != count) return std::nullopt;
  return values;
}

bool set_windows(const Node& node, std::vector<WindowDim>& dims) {
  const size_t count = dims.size();
  const auto kernel = settings(node, "kernel_size", count, {});
  if (!kernel || kernel->size() != count) return false;
  const auto stride = settings(node, "stride", count, *kernel);
  const auto padding = settings(node, "padding", count, IntList(count, 0));
  const auto dilation = settings(node, "dilation", count, IntList(count, 1));
  if (!stride || !padding || !dilation) return false;
  for (size_t dim = 0; dim < count; ++dim) {
    WindowDim& one = dims[dim];
    one.kernel = (*kernel)[dim];
    one.stride = (*stride)[dim];
    one.padding = (*padding)[dim];
    one.dilation = (*dilation)[dim];
    // A window may step over the whole input: its largest element then lies where only PyTorch's own loops would look.
    if (one.padding > 0 && one.dilation > one.input && node.results.size() > 1) return false;
    if (one.kernel < 1 || one.stride < 1 || one.dilation < 1 || one.padding < 0) return false;
  }
  return true;
}

// Where the output's length divides the input's, adaptive windows are ordinary ones.
bool set_adaptive_windows(std::vector<WindowDim>& dims) {
  constexpr int64_t kMostWindows = 1 << 20;  // their sizes are looked at one by one
  for (WindowDim& one : dims) {
    if (one.output < 1 || one.output > kMostWindows) return false;
    one.uneven = one.input % one.output != 0;
    one.kernel = one.stride = one.input / one.output;
    for (int64_t window = 0; one.uneven && window < one.output; ++window) {
      const int64_t start = window * one.input / one.output,
                    end = ((window + 1) * one.input + one.output - 1) / one.output;
      one.kernel = std::max(one.kernel, end - start);
    }
  }
  return true;
}

// PyTorch keeps the width's number first in two dimensions and last in three.
bool set_fractional_windows(const Graph& graph, const Node& node, Window& window) {
  const size_t count = window.dims.size();
  const auto kernel = settings(node, "kernel_size", count, {});
  window.samples = node.value("random_samples");
  if (!kernel || kernel->size() != count || window.samples == kNoValue) return false;
  const TensorType &samples = graph.type(window.samples), &input = graph.type(window.operand);
  const int64_t leading = input.rank() - static_cast<int64_t>(count);
  if (leading < 1 || leading > 2 || samples.rank() != 3 || !is_floating(samples.dtype) ||
      samples.shape[2] != static_cast<int64_t>(count))
    return false;
  if (samples.shape[1] != input.shape[leading - 1] || samples.shape[0] < (leading == 2 ? input.shape[0] : 1))
    return false;
  // Its CPU kernels compute in the tensor's own type, those for GPUs in at least single precision.
  window.start_dtype = samples.dtype == DType::f64 || samples.device == "cpu" ? samples.dtype : DType::f32;
  for (size_t dim = 0; dim < count; ++dim) {
    WindowDim& one = window.dims[dim];
    one.kernel = (*kernel)[dim];
    if (one.kernel < 1 || one.kernel > one.input || one.output < 1 || one.input > std::numeric_limits<int32_t>::max())
      return false;
    one.sample = static_cast<int64_t>(count == 2 ? count - 1 - dim : dim);
  }
  return true;
}

Index fractional_start(const Window& window, const WindowDim& dim, const Coords& point, const Index& output,
                       Lookups& lookups) {
  Lookup lookup;
  lookup.kind = LookupKind::kFractionalStart;
  lookup.extent = dim.input - dim.kernel + 1;
  lookup.index = window.samples;
  lookup.coords = sample_at(window, dim, point);
  lookup.position = output;
  lookup.shift = dim.output;
  lookup.work = window.start_dtype;
  return lookups.add(std::move(lookup));
}

}  // namespace

bool Window::covers_input() const {
  return kind != Kind::kUnfolded && std::all_of(dims.begin(), dims.end(), [](const WindowDim& one) {
           return one.output == 1 && one.padding == 0 && one.kernel == one.input &&
                  (one.dilation == 1 || one.kernel == 1);
         });
}

bool Window::uneven() const {
  return std::any_of(dims.begin(), dims.end(), [](const WindowDim& one) { return one.uneven; });
}

Shape Window::kernel_shape() const {
  Shape shape;
  for (const WindowDim& one : dims) shape.push_back(one.kernel);
  return shape;
}

std::optional<Window> window_of(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.rule == OpRule::kCol2im) return unfolded_of(graph, node);
  const bool fractional = info.rule == OpRule::kFractionalMax,
             adaptive = info.rule == OpRule::kAdaptiveMax || info.rule == OpRule::kAdaptiveAverage,
             largest = info.rule == OpRule::kMaxPool || info.rule == OpRule::kAdaptiveMax || fractional;
  if (!largest && info.rule != OpRule::kAveragePool && info.rule != OpRule::kAdaptiveAverage) return std::nullopt;
  const auto count = static_cast<size_t>(spatial_axes(info));
  Window window;
  window.kind = largest ? Window::Kind::kMax : Window::Kind::kAverage;
  window.operand = node.value("self");
  if (count == 0 || window.operand == kNoValue || node.results.empty() || node.results[0] == kNoValue)
    return std::nullopt;
  const TensorType &input = graph.type(window.operand), &output = graph.type(node.results[0]);
  if (!is_floating(input.dtype) || input.rank() != output.rank() || input.shape.size() < count) return std::nullopt;
  const size_t leading = input.shape.size() - count;
  for (size_t dim = leading; dim < input.shape.size(); ++dim)
    window.dims.push_back({.input = input.shape[dim], .output = output.shape[dim]});
  if (fractional) return set_fractional_windows(graph, node, window) ? std::optional(window) : std::nullopt;
  if (adaptive ? !set_adaptive_windows(window.dims) : !set_windows(node, window.dims)) return std::nullopt;
  window.counts_padding = adaptive || node.boolean("count_include_pad", true);
  const Argument* divisor = node.find("divisor_override");
  if (divisor && !std::holds_alternative<None>(*divisor)) window.divisor = node.integer("divisor_override", 0);
  return window;
}

WindowEnds ends_of(const WindowDim& dim, const Index& output, Lookups& lookups) {
  Lookup lookup;
  lookup.kind = LookupKind::kWindowStart;
  lookup.extent = dim.input;
  lookup.position = output;
  lookup.shift = dim.output;
  Index start = lookups.add(lookup);
  lookup.kind = LookupKind::kWindowEnd;
  lookup.extent = dim.input + 1;
  return {std::move(start), lookups.add(std::move(lookup))};
}

Coords sample_at(const Window& window, const WindowDim& dim, const Coords& point) {
  const size_t leading = point.size() - 2 * window.dims.size();
  return {leading == 2 ? point[0] : Index{}, point[leading - 1], Index(dim.sample)};
}

WindowElement element_at(const Window& window, const Coords& point, Lookups& lookups) {
  if (window.kind == Window::Kind::kUnfolded) return unfolded_at(window, point, lookups);
  const size_t count = window.dims.size(), leading = point.size() - 2 * count;
  WindowElement element;
  element.coords.assign(point.begin(), point.begin() + static_cast<int64_t>(leading));
  for (size_t dim = 0; dim < count; ++dim) {
    const WindowDim& one = window.dims[dim];
    if (one.uneven) {
      const auto [start, end] = ends_of(one, point[leading + dim], lookups);
      const SymbolRanges ranges = lookups.ranges();
      Index position = add(start, point[leading + count + dim], ranges);
      element.guards.push_back({add(position, end * -1, ranges), std::numeric_limits<int64_t>::min(), 0});
      element.coords.push_back(std::move(position));
      continue;
    }
    if (one.sample >= 0) {
      const Index start = fractional_start(window, one, point, point[leading + dim], lookups);
      element.coords.push_back(add(start, point[leading + count + dim], lookups.ranges()));
      continue;
    }
    const SymbolRanges ranges = lookups.ranges();
    const Index offset = point[leading + count + dim] * one.dilation;
    Index position = add(point[leading + dim] * one.stride, offset, ranges);
    position.constant -= one.padding;
    const Interval range = range_of(position, ranges);
    if (range.low < 0 || range.high >= one.input) element.guards.push_back({position, 0, one.input});
    element.coords.push_back(std::move(position));
  }
  return element;
}

}  // namespace kw::plan
