#include "plan/lookup.hpp"

#include <algorithm>

#include "kernel/digits.hpp"

namespace kw::plan {

void Lookups::start(SymbolRanges axes) {
  own_axes_ = static_cast<int>(axes.size());
  ranges_.assign(axes.begin(), axes.end());
  lookups_.clear();
}

bool Lookups::is_looked_up(const kernel::IndexTerm& term) const {
  return kernel::digit_of(term).value().axis >= own_axes_;
}

bool Lookups::is_lookup(const Index& index) const {
  return std::any_of(index.terms.begin(), index.terms.end(),
                     [&](const kernel::IndexTerm& term) { return is_looked_up(term); });
}

Index Lookups::affine_part(Index index) const {
  std::erase_if(index.terms, [&](const kernel::IndexTerm& term) { return is_looked_up(term); });
  return index;
}

Index Lookups::add(Lookup lookup) {
  lookup.guards = guards;
  auto found = std::find(lookups_.begin(), lookups_.end(), lookup);
  const int axis = own_axes_ + static_cast<int>(found - lookups_.begin());
  if (found == lookups_.end()) {
    // An axis of one element would be dropped, and with it the check of what an index tensor holds.
    const int64_t extent = lookup.index == kNoValue ? lookup.extent : std::max<int64_t>(lookup.extent, 2);
    ranges_.push_back({0, std::max<int64_t>(extent - 1, 0), 1});
    lookups_.push_back(std::move(lookup));
  }
  return axis_index(axis, ranges_);
}

}  // namespace kw::plan
