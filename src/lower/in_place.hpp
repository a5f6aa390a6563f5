// Whether a tile program may write a buffer's new contents where it has read the old ones (emit/in_place.hpp).
#pragma once

#include "lower/pipeline.hpp"
#include "tile/program.hpp"

namespace kw::lower {

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

// Of a program whose loops read each element of `read` where they store it to `written`: is a kernel done with the
// element then, so that both may lie in one memory, on a GPU and on a CPU? A call that moves memory may not move it to
// itself.
bool reads_before_it_writes_on_gpu(const tile::Program& program, int read, int written);
bool reads_before_it_writes_on_cpu(const Lowered& lowered, int read, int written);

}  // namespace kw::lower
