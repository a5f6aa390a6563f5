#include "plan/index_math.hpp"

#include <algorithm>

#include "kernel/digits.hpp"
#include "support/error.hpp"

namespace kw::plan {

std::vector<kernel::SymbolRange> ranges_of_axes(std::span<const int64_t> extents) {
  std::vector<kernel::SymbolRange> ranges;
  ranges.reserve(extents.size());
  for (int64_t extent : extents) ranges.push_back({0, std::max<int64_t>(extent - 1, 0), 1});
  return ranges;
}

Index axis_index(int axis, SymbolRanges ranges) {
  return ranges[axis].high == 0 ? Index(0) : kernel::symbol_index(axis);
}

Index add(const Index& left, const Index& right, SymbolRanges ranges) {
  return kernel::joined_digits(left, right, ranges);
}

std::optional<Index> floor_divide(const Index& index, int64_t divisor, SymbolRanges ranges) {
  auto division = kernel::divide_digits(index, divisor, ranges);
  if (!division) return std::nullopt;
  return std::move(division->quotient);
}

std::optional<Index> modulo(const Index& index, int64_t divisor, SymbolRanges ranges) {
  auto division = kernel::divide_digits(index, divisor, ranges);
  if (!division) return std::nullopt;
  return std::move(division->remainder);
}

Index dot(const Coords& coords, const Shape& strides, int64_t offset, SymbolRanges ranges) {
  KW_ASSERT(coords.size() == strides.size(), "coordinates and strides differ in rank");
  Index sum(offset);
  for (size_t dim = 0; dim < coords.size(); ++dim) sum = sum + coords[dim] * strides[dim];
  return kernel::joined_digits(sum, 0, ranges);
}

Index linearise(const Coords& coords, const Shape& shape, SymbolRanges ranges) {
  return dot(coords, contiguous_strides(shape), 0, ranges);
}

std::optional<Coords> delinearise(const Index& position, const Shape& shape, SymbolRanges ranges) {
  Coords coords(shape.size());
  Index rest = position;
  size_t first = 0;  // the outermost dimension larger than 1 takes what is left, undivided
  while (first < shape.size() && shape[first] == 1) ++first;
  for (size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] == 1) continue;
    if (dim == first) {
      coords[dim] = rest;
      break;
    }
    auto division = kernel::divide_digits(rest, shape[dim], ranges);
    if (!division) return std::nullopt;
    coords[dim] = std::move(division->remainder);
    rest = std::move(division->quotient);
  }
  return coords;
}

std::optional<Coords> reshape(const Coords& coords, const Shape& from, const Shape& to, SymbolRanges ranges) {
  if (from == to) return coords;
  return delinearise(linearise(coords, from, ranges), to, ranges);
}

bool less(const Coords& left, const Coords& right) {
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                      [](const Index& a, const Index& b) { return kernel::compare(a, b) < 0; });
}

}  // namespace kw::plan
