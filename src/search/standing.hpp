// The groups of one schedule by what they are taken to cost: which of them a change can make a difference to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "search/catalogue.hpp"

namespace kw::search {

struct GroupStanding {
  std::vector<GroupEntry*> entries;  // nullptr: nothing to choose
  std::vector<double> seconds;
  std::vector<std::vector<size_t>> alike;  // per group: those of the same work and parameters, itself the first of
                                           // them; empty for the others
  std::vector<size_t> worth;  // the most expensive first, one of those that are alike; not those that together make
                              // less than a tenth of the time
  double total = 0;
};

GroupStanding standing_of(Catalogue& catalogue, const Schedule& schedule);

// A group by its last operation: "softmax".
std::string label(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace kw::search
