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

// Are all products of the loop added to by the next iteration's alone, so that nothing needs to wait for them before?
bool can_run_on(const Program& program);

// Does each consumer read another box by this load of the loop?
bool is_of_consumer(const Program& program, const Instruction& load);

}  // namespace kw::tile
