#include "lower/read_again.hpp"

#include "tile/alike.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;

void collect(std::vector<Instruction>& body, int loop, std::vector<LoopLoad>& loads) {
  for (Instruction& one : body) {
    if (one.kind == Kind::kLoad) loads.push_back({&one, loop});
    collect(one.body, loop, loads);
    collect(one.otherwise_body, loop, loads);
  }
}

}  // namespace

std::vector<LoopLoad> loads_in_loops(tile::Program& program) {
  std::vector<LoopLoad> loads;
  int loops = 0;
  for (Instruction& one : program.body) {
    const int loop = one.kind == Kind::kFor ? loops++ : -1;
    if (one.kind == Kind::kLoad) loads.push_back({&one, loop});
    collect(one.body, loop, loads);
    collect(one.otherwise_body, loop, loads);
  }
  const tile::Alike alike(program);
  for (LoopLoad& one : loads)
    for (LoopLoad& other : loads) {
      if (one.loop < 0 || one.loop >= other.loop || !alike.same(one.load->access, other.load->access)) continue;
      one.read_again = other.read_before = true;
    }
  return loads;
}

}  // namespace kw::lower
