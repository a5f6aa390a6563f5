// What a kernel's function does, one part after the other, and in which loops: what the printer prints and the cost
// model reads.
#pragma once

#include <string>
#include <vector>

#include "emit/cpu/loop_nest.hpp"
#include "emit/cpu/simplify.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

struct Part {
  Simplified simplified;
  LoopNest nest;
  std::string place;  // of the whole (regions.hpp); empty where there is one part
};

std::vector<Part> parts_of(const kernel_ir::Kernel& kernel);

// The choices (kernel_ir.hpp) that make a difference to the kernel's loops, and values worth trying.
struct ChoiceRange {
  int64_t kernel_ir::LoopChoices::* choice;
  std::vector<int64_t> values;
};
std::vector<ChoiceRange> choices_of(const kernel_ir::Kernel& kernel);

}  // namespace kw::cpu
