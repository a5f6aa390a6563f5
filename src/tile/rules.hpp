// The verifier's parts: rules of declarations, of single instructions, and of accesses.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "kernel/index.hpp"
#include "tile/lane_ends.hpp"
#include "tile/program.hpp"

namespace kw::tile {

// What a broken rule throws inside the verifier.
struct BrokenRule {
  std::string message;
};

template <typename... Arguments>
void require(bool holds, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (!holds) throw BrokenRule{fmt::format(text, std::forward<Arguments>(arguments)...)};
}

// Names, symbols, grid, buffers.
void check_declarations(const Program& program);

// Where an instruction stands.
struct Surroundings {
  std::vector<const Instruction*> loops;  // the outermost first
  bool conditional = false;               // in the body of an If
  const LaneEnds& ends;                   // of lanes
};

// Operands, results and attributes of one instruction, whose values and symbols are known to exist. Yields are the
// walk's.
void check_instruction(const Program& program, const Instruction& instruction, const Surroundings& surroundings,
                       kernel::SymbolRanges ranges);

// The words of an instruction that keeps these rules by which targets' printers go.
void check_words(const Program& program, const Instruction& instruction);

// A coordinate that no value and no mask guards stays within its dimension. A fault is shown by values of the symbols
// that leave it; what the corners of their ranges do not show is left to the interpreter. In
// narrow programs any place that may leave 32 bits is marked.
void check_bounds(const Program& program, const Access& access, const Surroundings& surroundings,
                  kernel::SymbolRanges ranges);

// A plain store in which blocks leave different values in one element. Where data decide the place, or an If around it
// depends on the block, one of them is taken to be the only one. Of a program that keeps all other rules.
struct WriteFault {
  const Instruction* store = nullptr;
  std::string message;
};
std::optional<WriteFault> find_write_fault(const Program& program);

}  // namespace kw::tile
