// Bags of rows of a table (embedding_bag): sum, mean or maximum of the rows that a stretch of an index tensor names.
// Where a bag begins and ends only the data tell, so the fold runs over an axis as long as the index tensor and stops
// at the bag's own end.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"
#include "plan/index_math.hpp"
#include "plan/lookup.hpp"
#include "plan/pull.hpp"

namespace kw::plan {

struct Bags {
  enum class Mode { kSum, kMean, kMax };
  Mode mode = Mode::kSum;
  ValueId table = kNoValue, indices = kNoValue, offsets = kNoValue;
  ValueId weights = kNoValue;      // of each row; kNoValue: none
  int64_t count = 0, entries = 0;  // bags, and elements of `indices`
  int64_t rows = 0;                // of the table
  int64_t padding = -1;            // the index whose rows do not count; −1: none
  bool has_last_offset = false;    // `offsets` has the end of the last bag too
};

// nullopt: not an embedding_bag that this form has.
std::optional<Bags> bags_of(const Graph& graph, const Node& node);

// At a point of the domain (bag, column, place in the bag).
struct BagElement {
  Index start, end;  // of the bag, in `indices`
  Index row;
  Index place;                                                           // in `indices` and `weights`
  std::vector<Guard> guards;                                             // within the bag
  std::vector<Pull> pulls(const Bags& bags, const Coords& point) const;  // of every operand, the table first
};
BagElement bag_element_at(const Bags& bags, const Coords& point, Lookups& lookups);

}  // namespace kw::plan
