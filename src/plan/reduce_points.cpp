#include "plan/reduce_points.hpp"

#include <algorithm>

#include "plan/bags.hpp"
#include "plan/windows.hpp"

namespace kw::plan {

namespace {

// The first places of sorted rows.
bool is_shorter(const ReduceSpec& spec, const Shape& result) {
  if (result.size() != spec.domain.size() || !spec.sorted) return false;
  bool shorter = false;
  for (size_t dim = 0; dim < result.size(); ++dim) {
    if (result[dim] > spec.domain[dim] || (result[dim] < spec.domain[dim] && !spec.reduced[dim])) return false;
    shorter = shorter || result[dim] < spec.domain[dim];
  }
  return shorter;
}

}  // namespace

std::optional<Coords> reduce_result_coords(const ReduceSpec& spec, const Coords& point, const Shape& result,
                                           SymbolRanges ranges) {
  const int64_t elements = product(result);
  if (elements == product(spec.domain)) return reshape(point, spec.domain, result, ranges);
  if (is_shorter(spec, result)) return point;
  if (elements != spec.kept_elements()) return std::nullopt;
  Coords kept;
  Shape kept_shape;
  for (size_t dim = 0; dim < spec.domain.size(); ++dim)
    if (!spec.reduced[dim]) {
      kept.push_back(point[dim]);
      kept_shape.push_back(spec.domain[dim]);
    }
  return reshape(kept, kept_shape, result, ranges);
}

std::optional<int64_t> scan_shift(const ReduceSpec& spec, const Coords& at, const Coords& wanted) {
  int64_t shift = 0;
  for (size_t dim = 0; dim < at.size(); ++dim) {
    const std::optional<int64_t> difference = kernel::as_constant(at[dim] - wanted[dim]);
    if (!difference || *difference < 0 || (*difference > 0 && !spec.reduced[dim])) return std::nullopt;
    shift += *difference;
  }
  return shift;
}

std::optional<std::vector<Pull>> pull_reduce(const Graph& graph, NodeId id, const ReduceSpec& spec, const Coords& point,
                                             Lookups& lookups) {
  const Node& node = graph.nodes[id];
  if (const auto bags = spec.windowed ? bags_of(graph, node) : std::nullopt)
    return bag_element_at(*bags, point, lookups).pulls(*bags, point);
  if (spec.windowed) {
    const Window window = *window_of(graph, node);
    WindowElement element = element_at(window, point, lookups);
    std::vector<Pull> pulls = {{spec.operands[0], std::move(element.coords), std::move(element.guards)}};
    for (const WindowDim& dim : window.dims)
      if (dim.sample >= 0) pulls.push_back({window.samples, sample_at(window, dim, point), {}});
    return pulls;
  }
  const Shape& input = graph.type(spec.operands[0]).shape;
  const auto input_coords = reshape(point, spec.domain, input, lookups.ranges());
  if (!input_coords) return std::nullopt;
  const OpRule rule = rule_of(node);
  const bool trailing = rule == OpRule::kLayerNorm || rule == OpRule::kRmsNorm;
  std::vector<Pull> pulls;
  bool good = true;
  for_each_operand(node, [&](ValueId operand) {
    const Shape& shape = graph.type(operand).shape;
    if (std::find(spec.operands.begin(), spec.operands.end(), operand) != spec.operands.end() && shape == input) {
      pulls.push_back({operand, *input_coords, {}});
    } else if (trailing && shape.size() <= input.size()) {
      pulls.push_back(
          {operand, Coords(input_coords->end() - static_cast<int64_t>(shape.size()), input_coords->end()), {}});
    } else if (shape.size() == 1 && input.size() > 1 && shape[0] == input[1]) {  // one number per channel
      pulls.push_back({operand, {(*input_coords)[1]}, {}});
    } else if (shape.size() <= input.size()) {
      pulls.push_back({operand, broadcast(*input_coords, input, shape), {}});
    } else {
      good = false;
    }
  });
  if (!good) return std::nullopt;
  return pulls;
}

}  // namespace kw::plan
