// Coordinates in tensors, as indices made of digits (kernel/digits.hpp) over axes whose ranges are known: along these
// the planner fuses. What leaves the form is nullopt, and the caller then does not fuse.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/types.hpp"
#include "kernel/digits.hpp"

namespace kw::plan {

using kernel::Index;
using kernel::Interval;
using kernel::SymbolRanges;
using Coords = std::vector<Index>;  // one index per dimension of a tensor

std::vector<kernel::SymbolRange> ranges_of_axes(std::span<const int64_t> extents);
Index axis_index(int axis, SymbolRanges ranges);  // 0 along an axis of one point
Index add(const Index& left, const Index& right, SymbolRanges ranges);

// floor(index / divisor) and index mod divisor, for divisor > 0.
std::optional<Index> floor_divide(const Index& index, int64_t divisor, SymbolRanges ranges);
std::optional<Index> modulo(const Index& index, int64_t divisor, SymbolRanges ranges);

// Σ coords[i] · strides[i] + offset.
Index dot(const Coords& coords, const Shape& strides, int64_t offset, SymbolRanges ranges);
// Row-major position of `coords` in `shape`, and back.
Index linearise(const Coords& coords, const Shape& shape, SymbolRanges ranges);
std::optional<Coords> delinearise(const Index& position, const Shape& shape, SymbolRanges ranges);
// Coordinates in `to` of the element at `coords` in `from`; both have the same number of elements.
std::optional<Coords> reshape(const Coords& coords, const Shape& from, const Shape& to, SymbolRanges ranges);

// Total order, for maps keyed by coordinates.
bool less(const Coords& left, const Coords& right);

}  // namespace kw::plan
