#include "lower/coherent_loads.hpp"

namespace kw::lower {

using tile::Instruction;
using tile::Kind;

void make_loads_coherent(tile::Program& program) {
  if (!tile::waits_for_grid(program) && tile::shared_rows(program).empty()) return;
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    if (one.kind == Kind::kLoad && one.mode != tile::CopyMode::kBulk)
      one.coherent = program.buffers[one.access.buffer].role != tile::BufferRole::kInput;
  });
}

}  // namespace kw::lower
