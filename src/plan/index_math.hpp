// Quasi-affine index algebra over a kernel's axes: constant + Σ coefficient · ((axis / divisor) % modulus), each axis
// in [0, extent). Every function returns a normalised index (terms sorted, merged, simplified by the extents), so that
// equal indices compare equal. What the form cannot express gives nullopt: the caller then does not fuse.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/flat_kernel.hpp"

namespace kw::plan {

using flat::Index;
using flat::IndexTerm;
using Coords = std::vector<Index>;         // one index per dimension of a tensor
using Extents = std::span<const int64_t>;  // one extent per axis

struct Range {
  int64_t low = 0, high = 0;  // inclusive
};

Index constant_index(int64_t value);
Index axis_index(int axis, Extents extents);
Index normalise(Index index, Extents extents);
Index add(const Index& left, const Index& right, Extents extents);
Index scale(const Index& index, int64_t factor, Extents extents);
Range range_of(const Index& index, Extents extents);
bool is_constant(const Index& index);

// floor(index / divisor) and index mod divisor, for divisor > 0.
std::optional<Index> floor_divide(const Index& index, int64_t divisor, Extents extents);
std::optional<Index> modulo(const Index& index, int64_t divisor, Extents extents);

// Σ coords[i] · strides[i] + offset.
Index dot(const Coords& coords, const Shape& strides, int64_t offset, Extents extents);
// Row-major position of `coords` in `shape`, and back.
Index linearise(const Coords& coords, const Shape& shape, Extents extents);
std::optional<Coords> delinearise(const Index& position, const Shape& shape, Extents extents);
// Coordinates in `to` of the element at `coords` in `from`; both have the same number of elements.
std::optional<Coords> reshape(const Coords& coords, const Shape& from, const Shape& to, Extents extents);

// Replaces each axis by an index over the axes with `extents`.
std::optional<Index> substitute(const Index& index, std::span<const Index> replacement, Extents extents);

// Total order, for maps keyed by coordinates.
bool less(const Index& left, const Index& right);
bool less(const Coords& left, const Coords& right);

}  // namespace kw::plan
