#include "lower/serpentine.hpp"

#include <algorithm>
#include <cstdint>

#include "lower/read_again.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;

// Is the loop one over blocks, of which there are several, and is it known which is the last?
bool may_turn(const Instruction& loop) {
  const auto end = kernel::as_constant(loop.end);
  return loop.begin == tile::Index(0) && end && *end > loop.step && *end <= INT32_MAX && loop.step > 1 &&
         !loop.unrolled && loop.until == tile::kNoValue;
}

}  // namespace

void turn_later_walks(tile::Program& program) {
  std::vector<Instruction*> loops;
  tile::Symbol walked = -1;
  bool one_axis = true;
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind != Kind::kFor) return;
    one_axis = one_axis && (walked < 0 || walked == one.symbol);
    walked = one.symbol;
  });
  if (!one_axis) return;
  for (Instruction& one : program.body)
    if (one.kind == Kind::kFor) loops.push_back(&one);
  const std::vector<LoopLoad> loads = loads_in_loops(program);
  for (size_t at = 1; at < loops.size(); ++at) {
    const bool reads_again = std::any_of(loads.begin(), loads.end(), [&](const LoopLoad& load) {
      return load.loop == static_cast<int>(at) && load.read_before;
    });
    loops[at]->reversed = reads_again && may_turn(*loops[at]) && !loops[at - 1]->reversed;
  }
}

}  // namespace kw::lower
