// Normalisation by statistics of the tensor itself, taken apart: what folds the tensor, and what it normalises
// element by element.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/domain.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw::plan {

// The nodes of a group, ascending.
struct StatisticsApart {
  std::vector<NodeId> before;      // element by element: what is folded is made by them
  std::vector<NodeId> statistics;  // means and variances, and what follows from them alone (new running statistics)
  std::vector<NodeId> after;       // all else: pointwise
};

// nullopt where the group folds anything but means and variances, folds a result of its own folds, or has nothing else
// to do.
std::optional<StatisticsApart> statistics_apart(const GraphFacts& facts, std::span<const NodeId> nodes);

// The same of the means and variances of one tensor, or of what is made of it element by element; other folds, and
// what has to do with them, are among the rest, which may be nothing. nullopt where there are none.
std::optional<StatisticsApart> statistics_of(const GraphFacts& facts, std::span<const NodeId> nodes, ValueId tensor);

// The schedule with that group as two: one that stores the statistics, and what others read of what is folded, and a
// pointwise group behind it, which makes that again. nullopt where it cannot be taken apart so. The two read the tensor
// once more than the one would: this is worth it where a neighbour takes one of them in.
std::optional<Schedule> with_statistics_apart(const GraphFacts& facts, const Schedule& schedule, size_t group,
                                              const DeviceDescription& device);

}  // namespace kw::plan
