// Lowering: from a kernel and its schedule to a tile program, in one table of named steps (pipeline.cpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.hpp"
#include "lower/schedule.hpp"
#include "tile/program.hpp"

namespace kw::lower {

struct StepTiming {
  std::string_view step;
  double seconds = 0.0;
  int64_t instructions = 0;  // in the program afterwards
};

struct LoweringReport {
  std::vector<StepTiming> steps;  // those that ran
};

// Every step whose part the schedule asks for, in order; after each the program is verified. With `last`, the program
// as it is after that step, or after those before it, where the schedule does not ask for it.
//
// Throws kUser where the schedule cannot be kept (arrange.hpp, and the steps' own headers).
tile::Program to_tiles(const kernel::Kernel& kernel, const KernelSchedule& schedule, LoweringReport* report = nullptr,
                       std::string_view last = "");

// What a program is made of.
struct Source {
  kernel::Kernel kernel;
  KernelSchedule schedule;
};

// All there are, in order.
std::vector<std::string> step_names();

}  // namespace kw::lower
