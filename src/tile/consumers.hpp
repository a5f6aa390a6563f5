// Consumers and their producer: which programs can run so, and what the producer copies.
//
// One loop multiplies, with several stages: its loads are boxes that only its products read. For each stage there is a
// place in shared memory, which the producer fills as soon as all consumers have read what was there before.
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

// Why the program cannot run by the consumers that it has; empty where it can, or has none.
std::string why_no_consumers(const Program& program);

// The loop that multiplies, of a program that has consumers.
const Instruction& consuming_loop(const Program& program);

// Does each consumer read another box by this load of the loop?
bool is_of_consumer(const Program& program, const Instruction& load);

}  // namespace kw::tile
