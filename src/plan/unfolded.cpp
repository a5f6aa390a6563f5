#include "plan/unfolded.hpp"

#include <numeric>

#include "plan/op_table.hpp"

namespace kw::plan {

namespace {

// stride and dilation without what divides both: only every `common`-th place of a dimension has a window at all.
struct Steps {
  int64_t common = 1, stride = 1, dilation = 1;
};

Steps steps_of(const WindowDim& dim) {
  const int64_t common = std::gcd(dim.stride, dim.dilation);
  return {common, dim.stride / common, dim.dilation / common};
}

// index / divisor or index % divisor of what is never negative, looked up where the algebra does not have it.
Index divided(const Index& index, int64_t divisor, LookupKind kind, Lookups& lookups) {
  const bool quotient = kind == LookupKind::kQuotient;
  if (const auto known = quotient ? floor_divide(index, divisor, lookups.ranges())
                                  : modulo(index, divisor, lookups.ranges()))
    return *known;
  Lookup lookup;
  lookup.kind = kind;
  lookup.extent = quotient ? range_of(index, lookups.ranges()).high / divisor + 1 : divisor;
  lookup.position = index;
  lookup.shift = divisor;
  return lookups.add(std::move(lookup));
}

// The number by which `value` times it leaves 1 when divided by `modulus`; they have no common divisor.
int64_t inverse(int64_t value, int64_t modulus) {
  for (int64_t candidate = 1; candidate < modulus; ++candidate)
    if (value * candidate % modulus == 1) return candidate;
  return modulus == 1 ? 0 : 1;
}

}  // namespace

std::optional<Window> unfolded_of(const Graph& graph, const Node& node) {
  constexpr int64_t kLongest = 1 << 12;  // strides that are still searched for an inverse
  const IntList kernel = node.integers("kernel_size"), dilation = node.integers("dilation"),
                padding = node.integers("padding"), stride = node.integers("stride");
  Window window;
  window.kind = Window::Kind::kUnfolded;
  window.operand = node.value("self");
  if (rule_of(node) != OpRule::kCol2im || window.operand == kNoValue || node.results.empty() ||
      node.results[0] == kNoValue)
    return std::nullopt;
  if (kernel.size() != 2 || dilation.size() != 2 || padding.size() != 2 || stride.size() != 2) return std::nullopt;
  const TensorType &columns = graph.type(window.operand), &image = graph.type(node.results[0]);
  if (!is_floating(columns.dtype) || image.rank() < 3 || columns.rank() != image.rank() - 1) return std::nullopt;
  int64_t windows = 1;
  for (size_t dim = 0; dim < 2; ++dim) {
    WindowDim one{.output = image.shape[image.shape.size() - 2 + dim],
                  .stride = stride[dim],
                  .padding = padding[dim],
                  .dilation = dilation[dim]};
    one.size = kernel[dim];
    if (one.size < 1 || one.stride < 1 || one.stride > kLongest || one.dilation < 1 || one.padding < 0)
      return std::nullopt;
    const int64_t room = one.output + 2 * one.padding - one.dilation * (one.size - 1) - 1, apart = steps_of(one).stride;
    if (room < 0) return std::nullopt;
    one.input = room / one.stride + 1;
    one.kernel = (one.size + apart - 1) / apart;
    windows *= one.input;
    window.dims.push_back(one);
  }
  const int64_t channels = image.shape[image.shape.size() - 3];
  if (columns.shape.back() != windows || columns.shape[columns.shape.size() - 2] != channels * kernel[0] * kernel[1])
    return std::nullopt;
  return window;
}

WindowElement unfolded_at(const Window& window, const Coords& point, Lookups& lookups) {
  const size_t leading = point.size() - 4;
  WindowElement element;
  Index row = point[leading - 1] * (window.dims[0].size * window.dims[1].size), column;
  for (size_t dim = 0; dim < 2; ++dim) {
    const WindowDim& one = window.dims[dim];
    const Steps steps = steps_of(one);
    Index place = point[leading + dim];
    place.constant += one.padding;
    if (steps.common > 1) {
      element.guards.push_back({divided(place, steps.common, LookupKind::kRemainder, lookups), 0, 1});
      place = divided(place, steps.common, LookupKind::kQuotient, lookups);
    }
    // The first offset that reaches the place, and its window: place = stride · first_window + dilation · first
    const Index first = divided(place * inverse(steps.dilation % steps.stride, steps.stride), steps.stride,
                                LookupKind::kRemainder, lookups);
    // Raised by as much as the first offset may take, so that nothing negative is divided.
    const int64_t raised = kernel::as_constant(first) || steps.dilation == 1 ? 0 : steps.dilation;
    Index beside = place;
    if (raised != 0 || kernel::as_constant(first)) beside = add(place, first * -steps.dilation, lookups.ranges());
    beside.constant += raised * steps.stride;
    Index first_window = divided(beside, steps.stride, LookupKind::kQuotient, lookups);
    first_window.constant -= raised;
    const SymbolRanges ranges = lookups.ranges();
    const Index& number = point[leading + 2 + dim];
    const Index offset = add(first, number * steps.stride, ranges),
                of = add(first_window, number * -steps.dilation, ranges);
    const auto need = [&](const Index& index, int64_t end) {
      const Interval range = range_of(index, ranges);
      if (range.low < 0 || range.high >= end) element.guards.push_back({index, 0, end});
    };
    need(offset, one.size);
    need(of, one.input);
    row = add(row, offset * (dim == 0 ? window.dims[1].size : 1), ranges);
    column = add(column, of * (dim == 0 ? window.dims[1].input : 1), ranges);
  }
  element.coords.assign(point.begin(), point.begin() + static_cast<int64_t>(leading) - 1);
  element.coords.push_back(std::move(row));
  element.coords.push_back(std::move(column));
  return element;
}

}  // namespace kw::plan
