// Values that are computed again by each group that reads them, where that spares storing them.
#pragma once

#include <vector>

#include "passes/grouping.hpp"

namespace kw {

// [group] Its nodes and those that it computes again. Groups that nothing reads any more lose their nodes.
std::vector<std::vector<NodeId>> with_repeated_values(Grouping& groups);

}  // namespace kw
