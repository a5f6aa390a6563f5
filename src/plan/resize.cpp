#include "plan/resize.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/op_table.hpp"

namespace kw::plan {

namespace {

std::optional<LookupKind> kind_of(const Node& node) {
  switch (rule_of(node)) {
    case OpRule::kNearest: return LookupKind::kNearest;
    case OpRule::kNearestExact: return LookupKind::kNearestExact;
    case OpRule::kLinear: return LookupKind::kLinear;
    case OpRule::kCubic: return LookupKind::kCubic;
    default: return std::nullopt;
  }
}

std::vector<double> floats(const Node& node, std::string_view name) {
  const Argument* argument = node.find(name);
  if (!argument) return {};
  if (const auto* list = std::get_if<FloatList>(argument)) return {list->begin(), list->end()};
  if (const auto* list = std::get_if<IntList>(argument)) return {list->begin(), list->end()};
  if (std::holds_alternative<double>(*argument) || std::holds_alternative<int64_t>(*argument))
    return {node.number(name, 0.0)};
  return {};
}

// The factors that the caller gave, per spatial axis; 0 where it gave a size.
std::vector<double> factors_of(const Node& node, size_t axes) {
  std::vector<double> factors = floats(node, "scale_factors");
  if (factors.size() == axes) return factors;
  factors.assign(axes, 0.0);
  constexpr std::array<std::string_view, 3> kNames = {"scales_d", "scales_h", "scales_w"};
  for (size_t axis = 0; axis < axes; ++axis) {
    const std::string_view name = axes == 1 ? std::string_view("scales") : kNames[3 - axes + axis];
    if (const auto given = floats(node, name); !given.empty()) factors[axis] = given[0];
  }
  return factors;
}

int64_t nearest(const ResizeAxis& axis, int64_t position) {
  const auto scale = static_cast<float>(axis.scale);
  const float place = axis.kind == LookupKind::kNearestExact ? (static_cast<float>(position) + 0.5f) * scale
                                                             : static_cast<float>(position) * scale;
  return std::min<int64_t>(static_cast<int64_t>(std::floor(place)), axis.from - 1);
}

}  // namespace

std::optional<std::vector<ResizeAxis>> resize_axes(const Graph& graph, const Node& node) {
  const auto kind = kind_of(node);
  const ValueId input = node.value("input") != kNoValue ? node.value("input") : node.value("self");
  if (!kind || input == kNoValue || node.results.size() != 1) return std::nullopt;
  const TensorType &from = graph.type(input), &to = graph.type(node.results[0]);
  if (from.rank() < 3 || from.rank() != to.rank()) return std::nullopt;
  const bool weighs = *kind == LookupKind::kLinear || *kind == LookupKind::kCubic;
  if (weighs && !is_floating(from.dtype)) return std::nullopt;
  const auto axes = static_cast<size_t>(from.rank() - 2);
  const std::vector<double> factors = factors_of(node, axes);
  std::vector<ResizeAxis> result;
  for (size_t axis = 0; axis < axes; ++axis) {
    ResizeAxis one{*kind,     from.shape[axis + 2], to.shape[axis + 2], 1.0, node.boolean("align_corners", false),
                   DType::f32};
    if (weighs && from.dtype == DType::f64) one.work = DType::f64;
    if (one.aligned) one.scale = one.to > 1 ? static_cast<double>(one.from - 1) / static_cast<double>(one.to - 1) : 0.0;
    else
      one.scale = factors[axis] > 0 ? 1.0 / factors[axis] : static_cast<double>(one.from) / static_cast<double>(one.to);
    // PyTorch copies along an axis whose extent stays, whatever factor was given.
    if (one.from == one.to && !weighs) one.scale = 1.0;
    if (*kind == LookupKind::kNearest && one.to == 2 * one.from) one.scale = 0.5;
    result.push_back(one);
  }
  return result;
}

std::vector<Lookup> taps_of(const ResizeAxis& axis, const Index& position) {
  const int64_t count = axis.kind == LookupKind::kLinear ? 2 : axis.kind == LookupKind::kCubic ? 4 : 1;
  std::vector<Lookup> taps;
  for (int64_t tap = 0; tap < count; ++tap) {
    Lookup lookup;
    lookup.kind = axis.kind;
    lookup.extent = axis.from;
    lookup.position = position;
    lookup.shift = tap;
    lookup.scale = axis.scale;
    lookup.aligned = axis.aligned;
    lookup.copies = axis.from == axis.to;
    lookup.work = axis.work;
    taps.push_back(std::move(lookup));
  }
  return taps;
}

std::optional<Index> affine_nearest(const ResizeAxis& axis, const Index& position, SymbolRanges ranges) {
  const int64_t divisor = axis.to % axis.from == 0 ? axis.to / axis.from : 1;
  const int64_t factor = divisor == 1 && axis.from % axis.to == 0 ? axis.from / axis.to : 1;
  const int64_t first = nearest(axis, 0);
  for (int64_t at = 0; at < axis.to; ++at)
    if (nearest(axis, at) != at / divisor * factor + first) return std::nullopt;
  auto index = floor_divide(position, divisor, ranges);
  if (!index) return std::nullopt;
  index = *index * factor;
  index->constant += first;
  return index;
}

}  // namespace kw::plan
