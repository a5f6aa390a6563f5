// The space of schedules: from one schedule, those that differ in one decision. Parameters of a group (tiles, warps,
// splits) and the grouping itself (a group cut in two, two joined, a value stored instead of computed again, or the
// other way round) are neighbours alike.
#pragma once

#include <string>
#include <vector>

#include "search/catalogue.hpp"

namespace kw::search {

struct Move {
  Schedule schedule;
  std::string change;  // "softmax: num_warps 8", "cut after mul", "join add and relu"
  bool regroups = false;
  double seconds = 0;  // of the whole schedule, by the cost model
};

// All three look at the groups that cost most, and leave out those that together make less than a tenth of the time: a
// graph of a thousand nodes has as many neighbours as one of twenty.

// What a change of parameters is called: "num_warps 8, r_block 256".
std::string text_of(const plan::Parameters& parameters, const plan::Parameters& before);

// One parameter of one group set to another of its values; and an operation that is a kernel of ours as a library call,
// or the other way round.
std::vector<Move> parameter_moves(Catalogue& catalogue, const Schedule& schedule);

// Per group, the `most` combinations of all parameters that the cost model likes best, of those that `likeliest` looks
// at; parameters that say the same to the scheduler stand once.
std::vector<Move> promising_moves(Catalogue& catalogue, const Schedule& schedule, int most);

// Other groupings, at most `most` of each kind. Only those that are kernels throughout.
std::vector<Move> grouping_moves(Catalogue& catalogue, const Schedule& schedule, int most);

}  // namespace kw::search
