// Which combinations of a group's parameters are worth a look, by a cost that a model gives them.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "search/catalogue.hpp"

namespace kw::search {

struct Priced {
  double cost = 0;
  plan::Parameters parameters;
};

constexpr size_t kMostPriced = 512;  // combinations of one group, each of which is lowered for it

// Combinations of a group's parameters whose cost is finite, the lowest first: all there are, or, where they are more
// than kMostPriced, those that are met on the way down from `now`, the defaults and some that are spread over the
// space. `known`: costs of earlier calls, which count among these.
std::vector<Priced> likeliest(const GroupEntry& entry, const plan::Parameters& now,
                              const std::function<double(const plan::Parameters&)>& cost,
                              const std::map<plan::Parameters, double>& known = {});

}  // namespace kw::search
