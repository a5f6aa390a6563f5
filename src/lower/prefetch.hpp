// Prefetching: loops that load for several iterations at once, so that these loads are in flight together.
#pragma once

#include "lower/axes.hpp"

namespace kw::lower {

// The loop over this variable takes `count` iterations at a time: what none of them carries is computed for all of
// them, then the rest for one after the other. Throws kUser, with the kernel's name, where the iterations are no
// multiple of that many, where the loop holds others, or where it loads what it stores.
void prefetch(tile::Program& program, tile::Symbol variable, int64_t count);

}  // namespace kw::lower
