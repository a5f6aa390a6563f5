#include "plan/digit_strides.hpp"

#include <algorithm>
#include <numeric>

namespace kw::plan {
namespace {

// The digits of one number that are the dimensions of `from`, along `to`. nullopt: they end within a dimension.
std::optional<DigitStrides> moved(const DigitStrides& digits, const TensorType& from, const TensorType& to) {
  std::vector<size_t> closest;
  for (size_t dim = 0; dim < from.shape.size(); ++dim)
    if (from.shape[dim] > 1) closest.push_back(dim);
  std::sort(closest.begin(), closest.end(), [&](size_t a, size_t b) { return from.strides[a] < from.strides[b]; });
  DigitStrides made;
  for (const DigitStride& digit : digits) {
    if (digit.extent == 1) continue;
    if (digit.stride == 0) {
      made.push_back(digit);
      continue;
    }
    DigitStrides inner;  // the closest first
    int64_t left = digit.extent, distance = digit.stride;
    for (size_t dim : closest) {
      if (left == 1 || from.strides[dim] != distance) continue;
      const int64_t extent = std::min(left, from.shape[dim]);
      if (left % extent != 0) return std::nullopt;
      inner.push_back({extent, to.strides[dim]});
      left /= extent;
      distance *= extent;
    }
    if (left > 1) return std::nullopt;
    made.insert(made.end(), inner.rbegin(), inner.rend());
  }
  return made;
}

}  // namespace

DigitStrides canonical(const DigitStrides& digits) {
  DigitStrides made;
  for (const DigitStride& digit : digits) {
    if (digit.extent == 1) continue;
    if (!made.empty() && made.back().stride == digit.extent * digit.stride)
      made.back() = {made.back().extent * digit.extent, digit.stride};
    else made.push_back(digit);
  }
  return made;
}

bool same_places(const DigitStrides& one, const DigitStrides& other) { return canonical(one) == canonical(other); }

bool OperandPlaces::operator==(const OperandPlaces& other) const {
  return root == other.root && offset == other.offset && same_places(batch, other.batch) &&
         same_places(outer, other.outer) && same_places(depth, other.depth);
}

OperandPlaces places_in(const GraphFacts& facts, ValueId value, const Shape& strides, const Shape& shape,
                        std::span<const int64_t> batch, int64_t outer, std::span<const int64_t> depth) {
  const Graph& graph = facts.graph;
  OperandPlaces places;
  places.root = facts.roots[value];
  places.offset = graph.type(value).offset - graph.type(places.root).offset;
  const auto digit = [&](int64_t dim) { return DigitStride{shape[dim], strides[dim]}; };
  for (int64_t dim : batch) places.batch.push_back(digit(dim));
  if (outer >= 0) places.outer.push_back(digit(outer));
  for (int64_t dim : depth) places.depth.push_back(digit(dim));
  return places;
}

bool is_copy(const GraphFacts& facts, NodeId id) {
  const Node& node = facts.graph.nodes[id];
  const ValueId self = node.value("self");
  if (facts.kinds[id] == NodeKind::kView || self == kNoValue || node.results.size() != 1) return false;
  const TensorType &from = facts.graph.type(self), &to = facts.graph.type(node.results[0]);
  const std::string_view name = base_name(node);
  return (name == "clone" || name == "contiguous") && from.dtype == to.dtype && from.shape == to.shape &&
         from.device == to.device && to.is_dense();
}

OperandPlaces before_copies(const GraphFacts& facts, OperandPlaces places, std::span<const NodeId> copies) {
  const Graph& graph = facts.graph;
  while (true) {
    const NodeId maker = graph.values[places.root].producer;
    if (maker == kNoNode || places.offset != 0 || !std::binary_search(copies.begin(), copies.end(), maker) ||
        !is_copy(facts, maker))
      return places;
    const ValueId copied = graph.nodes[maker].value("self");
    const TensorType &from = graph.type(places.root), &to = graph.type(copied);
    const auto batch = moved(places.batch, from, to), outer = moved(places.outer, from, to),
               depth = moved(places.depth, from, to);
    if (!batch || !outer || !depth) return places;
    const ValueId root = facts.roots[copied];
    places = {root, to.offset - graph.type(root).offset, *batch, *outer, *depth};
  }
}

Index index_along(const DigitStrides& digits, const Index& number, kernel::SymbolRanges ranges) {
  const DigitStrides all = canonical(digits);
  Index index = 0;
  int64_t within = 1;
  for (auto digit = all.rbegin(); digit != all.rend(); within *= digit++->extent) {
    if (digit->stride == 0) continue;
    Index value = kernel::floor_divide(number, within, ranges);
    if (digit + 1 != all.rend()) value = kernel::modulo(value, digit->extent, ranges);
    index = index + value * Index(digit->stride);
  }
  return index;
}

}  // namespace kw::plan
