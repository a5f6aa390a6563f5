// Schedules whose kernels ask for fewer registers, for groups whose kernels were found to spill theirs: smaller tiles,
// more warps, or the group cut in two.
#pragma once

#include "search/moves.hpp"

namespace kw::search {

// At most `most`, the fastest first by the cost model, which sees less of spilling than the assembler: which of them is
// faster in truth has to be measured.
std::vector<Move> relief_moves(Catalogue& catalogue, const Schedule& schedule, const std::vector<size_t>& spilling,
                               int most);

}  // namespace kw::search
