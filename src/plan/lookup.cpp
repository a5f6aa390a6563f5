#include "plan/lookup.hpp"

#include <algorithm>

namespace kw::plan {

void Lookups::start(const std::vector<int64_t>& axes) {
  own_axes_ = static_cast<int>(axes.size());
  extents_ = axes;
  lookups_.clear();
}

bool Lookups::is_lookup(const Index& index) const {
  return std::any_of(index.terms.begin(), index.terms.end(),
                     [&](const IndexTerm& term) { return term.axis >= own_axes_; });
}

Index Lookups::affine_part(Index index) const {
  std::erase_if(index.terms, [&](const IndexTerm& term) { return term.axis >= own_axes_; });
  return index;
}

Index Lookups::add(Lookup lookup) {
  lookup.guards = guards;
  auto found = std::find(lookups_.begin(), lookups_.end(), lookup);
  const int axis = own_axes_ + static_cast<int>(found - lookups_.begin());
  if (found == lookups_.end()) {
    // An axis of one element would be dropped, and with it the check of what an index tensor holds.
    extents_.push_back(lookup.index == kNoValue ? lookup.extent : std::max<int64_t>(lookup.extent, 2));
    lookups_.push_back(std::move(lookup));
  }
  return axis_index(axis, extents_);
}

}  // namespace kw::plan
