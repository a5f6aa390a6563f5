// Loops that load for several iterations at once, so that these loads are under way together.
#pragma once

#include "lower/axes.hpp"

namespace kw::lower {

// The loop over this variable takes `ahead` iterations at a time: what none of them carries is computed for all of
// them, then the rest for one after the other. Throws kUser, with the kernel's name, where the iterations are no
// multiple of that many, where the loop holds others, or where it loads what it stores.
void read_ahead(tile::Program& program, tile::Symbol variable, int64_t ahead);

}  // namespace kw::lower
