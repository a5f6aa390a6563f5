// Loops whose iterations threads share: of a nest of them nothing stands between one loop and the next.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// What stands beside a shared loop in the body of another moves into it, where that is all that the body does: every
// iteration of the inner one then computes it, and threads can share the iterations of both together.
void join_shared_loops(tile::Program& program);

// How many loops, this one first, threads share together: each is all that the one around it does.
int shared_together(const tile::Instruction& loop);

}  // namespace kw::lower
