// What values are in the lanes that a folded axis's tile has beyond its end, as far as loads there can be chosen: where
// that is what the fold starts from, nothing has to be masked.
#pragma once

#include <optional>
#include <vector>

#include "lower/axes.hpp"

namespace kw::lower {

class Padding {
 public:
  // Of kernels that map and fold. Products want zeros: of kernels with products, scans and states nothing is known.
  Padding(const kernel::Kernel& kernel, const Mapped& mapped);

  // What the load yields beyond the ends of all padded axes; nullopt: it is all one, or a mask of its own says it.
  std::optional<double> otherwise(kernel::ExprId load) const { return otherwise_[load]; }
  // What the expression is there.
  std::optional<double> value(kernel::ExprId id) const { return values_[id]; }

 private:
  std::vector<std::optional<double>> otherwise_, values_;  // [expression]
};

}  // namespace kw::lower
