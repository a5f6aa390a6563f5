#include "lower/consumers.hpp"

#include <algorithm>
#include <numeric>

#include "ir/types.hpp"
#include "tile/consumers.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;

// Consumers have their sums in registers; the producer copies what others multiply.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
constexpr int64_t kMostBytes = 16;  // that a thread stores at once

// Neighbours in memory side by side, as many to a thread as one store may write wherever the block lies.
void decide_stores(tile::Program& program) {
  const std::vector<Instruction>& loop = tile::consuming_loop(program).body;
  const auto dot = std::find_if(loop.begin(), loop.end(),
                                [](const Instruction& one) { return one.kind == Kind::kDot; });
  const std::vector<Symbol> lanes = program.values[dot->results[0]].type.lanes;
  program.consumers.stored_along = lanes[1];
  for (const Instruction& one : program.body) {
    if (one.kind != Kind::kStore || program.values[one.operands[0]].type.lanes != lanes) continue;
    const tile::Buffer& buffer = program.buffers[one.access.buffer];
    const std::vector<tile::Index> strides = tile::strides_of(buffer);
    tile::Index place = 0;
    for (size_t dim = 0; dim < strides.size(); ++dim) place = place + one.access.coordinates[dim].index * strides[dim];
    for (const Symbol fastest : {lanes[1], lanes[0]}) {
      const auto along = kernel::linear_in(place, fastest);
      if (!along || !(along->coefficient == tile::Index(1))) continue;
      const int64_t most = std::min(kMostBytes, buffer.alignment) / size_of(buffer.dtype);
      program.consumers.stored_along = fastest;
      program.consumers.stored_together = std::gcd(kernel::known_divisor(along->rest, tile::ranges_of(program)), most);
      return;
    }
  }
}

}  // namespace

void decide_consumers(tile::Program& program) {
  tile::Consumers& consumers = program.consumers;
  if (consumers.count == 1) return;
  if (consumers.registers == 0) {
    consumers.registers = kConsumerRegisters;
    consumers.producer_registers = kProducerRegisters;
  }
  consumers.run_on = tile::can_run_on(program);
  if (consumers.along < 0 && consumers.stored_along < 0) decide_stores(program);
}

}  // namespace kw::lower
