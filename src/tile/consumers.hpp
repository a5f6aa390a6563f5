// Consumers and their producer: which programs can run so, and what the producer copies.
//
// One loop multiplies, with several stages: its loads are boxes. Right operands of its products are boxes as they lie
// in shared memory; left ones are that too, or what is computed of boxes, element by element and along their rows, in
// registers. For each stage there is a place in shared memory, which the producer fills as soon as all consumers have
// read what was there before.
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

// Why the program cannot run by the consumers that it has; empty where it can, or has none.
std::string why_no_consumers(const Program& program);

// The loop that multiplies, of a program that has consumers.
const Instruction& consuming_loop(const Program& program);

// [value] Does a consumer have it in registers as products want their left operand: a box that something is computed
// of, and what is computed of it, as long as no sum of products is in it? So are its rows' numbers that the loop
// carries, and what these are at the start.
std::vector<bool> left_in_registers(const Program& program);

// Does each consumer read another box by this load of the loop?
bool is_of_consumer(const Program& program, const Instruction& load);

// Boxes that an iteration's load has: one for all consumers, or one for each.
int64_t boxes_of(const Program& program, const Instruction& load);
// What the producer copies for an iteration of the loop.
int64_t bytes_of_stage(const Program& program);

// Iterations of the loop, of all blocks together and of the program that has the most, where so many programs are
// started and do one block, or pair, after another. Run-time sizes are as large as they may be.
struct LoopShares {
  int64_t programs = 0, all = 0, most = 0;
};
LoopShares loop_shares(const Program& program);

// What consumers that a target has decided on wait for, and in which registers they have what; throws BrokenRule.
// - No sum is read before its product is waited for, but by the product that adds to it.
// - The boxes of each iteration are waited for, and released once, when nothing reads them any more.
// - Operands that meet lie in the same registers.
void check_waits(const Program& program);
void check_layouts(const Program& program);

}  // namespace kw::tile
