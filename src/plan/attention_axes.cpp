#include "plan/attention_axes.hpp"

#include <algorithm>

namespace kw::plan {

std::vector<PieceOfHead> pieces_of_head(KernelDraft& draft, const std::string& name, int64_t extent, int64_t widest) {
  std::vector<PieceOfHead> made;
  for (int64_t first = 0; first < extent; first += widest) {
    const int64_t size = std::min(widest, extent - first);
    const kernel::Symbol axis = first > 0 && size == widest ? made[0].axis
                                                            : draft.axis(first == 0 ? name : name + "_of_rest", size);
    made.push_back({axis, first});
  }
  return made;
}

std::vector<int64_t> lanes_of_pieces(int64_t extent, int64_t widest) {
  std::vector<int64_t> lanes = {widest};
  if (extent > widest && extent % widest != 0)
    lanes.push_back(std::max(next_power_of_two(extent % widest), kLeastRowsOfDot));
  return lanes;
}

ProductSymbols along(ProductSymbols scores, const PieceOfHead& features) {
  scores.depth = features.axis;
  scores.first_depth = features.first;
  return scores;
}

AttentionSymbols at(AttentionSymbols symbols, const PieceOfHead& columns) {
  symbols.values.column = columns.axis;
  symbols.values.first_column = columns.first;
  return symbols;
}

}  // namespace kw::plan
