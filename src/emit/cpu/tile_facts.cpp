// What is said of the function that prints a tile program, without printing it.
#include <algorithm>

#include "emit/cpu/tile_printer.hpp"

namespace kw::cpu {

using tile::Instruction;
using tile::Kind;

size_t pointer_count(const tile::Program& program) {
  return static_cast<size_t>(
      std::count_if(program.buffers.begin(), program.buffers.end(),
                    [](const tile::Buffer& buffer) { return buffer.space == tile::Space::kGlobal; }));
}

bool takes_threads(const tile::Program& program) {
  bool shares = !program.grid.empty();
  tile::for_each(program.body, [&](const Instruction& one) { shares = shares || one.shared; });
  for (const tile::SymbolInfo& symbol : program.symbols) shares = shares || symbol.shared;
  return shares;
}

bool refuses_indices(const tile::Program& program) {
  bool refuses = false;
  tile::for_each(program.body, [&](const Instruction& one) {
    refuses = refuses || (one.kind == Kind::kOp && one.op == tile::ScalarOp::kBounded);
  });
  return refuses;
}

}  // namespace kw::cpu
