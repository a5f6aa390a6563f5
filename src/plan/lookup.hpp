// Coordinates that the index algebra cannot express: elements of index tensors (embedding, gather), and formulas (roll,
// reflection, resizing). Each stands in an index as one more axis behind the kernel's own, so that views, padding and
// cat are pulled through it as through any axis; the lowering replaces it by its expression.
#pragma once

#include <vector>

#include "ir/graph.hpp"
#include "plan/group_kernel.hpp"
#include "plan/index_math.hpp"

namespace kw::plan {

enum class LookupKind {
  kElement,         // the element `coords` of the tensor `index`; the caller answers for its being in range
  kWrappedElement,  // the same, where a negative one counts from the end
  kElementOr,       // the same, and `shift` where the tensor has no such element
  // Of `position`, shifted back by `shift`; what leaves the tensor comes back
  kRolled,     // at its end: `position` lies in the tensor and `shift` is not negative
  kAround,     // at its other end (circular padding)
  kReflected,  // from its border, which is not repeated
  kClamped,    // as the border
  kQuotient,
  kRemainder,  // of `position`, which is not negative, divided by `shift`
  // Of window number `position` among `shift` windows of uneven sizes over an axis (adaptive pooling)
  kWindowStart,      // its first element: ⌊position · length / shift⌋, of an axis of `extent`
  kWindowEnd,        // one past its last: ⌈(position + 1) · length / shift⌉, of an axis of `extent` − 1
  kFractionalStart,  // of windows that start where the number `coords` of the tensor `index` says (fractional pooling)
  // Of `position` in a resized axis (resize.hpp)
  kNearest,
  kNearestExact,
  kLinear,
  kCubic,  // its element number `shift`
};

struct Lookup {
  LookupKind kind = LookupKind::kElement;
  int64_t extent = 1;  // its values lie in [0, extent)
  ValueId index = kNoValue;
  Coords coords;
  Index position;
  int64_t shift = 0;
  double scale = 1.0;
  bool aligned = false;       // align_corners
  bool copies = false;        // the axis keeps its extent
  DType work = DType::f32;    // of the arithmetic on fractions
  std::vector<Guard> guards;  // where the coordinate is needed

  bool operator==(const Lookup&) const = default;
};

class Lookups {
 public:
  // The kernel's own axes come first.
  void start(SymbolRanges axes);
  int own_axes() const { return own_axes_; }
  SymbolRanges ranges() const { return ranges_; }
  bool is_lookup(const Index& index) const;
  Index affine_part(Index index) const;  // without the looked-up terms

  // The coordinate as an index of one axis; equal lookups share it.
  Index add(Lookup lookup);
  const Lookup& of_axis(int axis) const { return lookups_[static_cast<size_t>(axis - own_axes_)]; }

  // What the lookups made next are needed under.
  std::vector<Guard> guards;

 private:
  bool is_looked_up(const kernel::IndexTerm& term) const;

  int own_axes_ = 0;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<Lookup> lookups_;
};

}  // namespace kw::plan
