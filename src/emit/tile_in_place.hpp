// Whether a tile program may write where it has read (in_place.hpp).
#pragma once

#include "tile/program.hpp"

namespace kw {

// Is every load of `read` of the element that the only store to `written` in the same body writes, and before it? −1:
// nothing is read. Blocks and iterations of loops store to different elements. Under no If is either accessed.
bool reads_what_it_writes(const tile::Program& program, int read, int written);

// The same, where that is the only store, and nothing is folded: whatever the order in which points are walked, an
// element is read before it is written.
bool is_elementwise(const tile::Program& program, int read, int written);

// Is `read` loaded before anything is stored to `written`, and does nothing fold what it holds? `others`: whether
// something else than that store follows from it.
struct ReadFirst {
  bool holds = false, others = false;
};
ReadFirst reads_first(const tile::Program& program, int read, int written);

}  // namespace kw
