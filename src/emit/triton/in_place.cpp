#include "emit/triton/in_place.hpp"

#include "emit/tile_in_place.hpp"

namespace kw::triton {

namespace {

constexpr int64_t kThreadsOfWarp = 32;

}  // namespace

// Where a tile has fewer elements than its program has threads, several read the same one, and one of them may do so
// after another has written it.
bool reads_before_it_writes(const tile::Program& program, int read, int written) {
  const ReadFirst first = reads_first(program, read, written);
  if (!first.holds || !first.others) return first.holds;
  int64_t points = 1;
  for (const tile::Instruction& one : program.body)
    if (one.kind == tile::Kind::kStore && one.access.buffer == written)
      for (tile::Symbol lane : tile::lanes_of(program, one.access)) points *= tile::width_of(program, lane);
  return points >= kThreadsOfWarp * program.warps;
}

}  // namespace kw::triton
