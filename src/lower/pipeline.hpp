// Lowering: from a kernel and its schedule to a tile program, in one table of named steps (pipeline.cpp), and from
// there by the target's own steps to what its printer prints.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.hpp"
#include "lower/schedule.hpp"
#include "target/lowering_step.hpp"
#include "tile/lane_ends.hpp"
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

struct LoopPlan;

// What a target's printer prints. It stays where it is: parts of it may refer to instructions of the program.
struct Lowered {
  tile::Program program;
  tile::LaneEnds ends;              // where loops over lanes end
  std::unique_ptr<LoopPlan> loops;  // a CPU's (loop_plan.hpp); before its steps, and elsewhere: none

  explicit Lowered(tile::Program made);
  ~Lowered();
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;
};

// The target's steps, in order, on a program that nothing else changes any more; verified after each. With `last`, up
// to that step.
std::shared_ptr<const Lowered> lowered_by(std::span<const TargetStep> steps, tile::Program program,
                                          LoweringReport* report = nullptr, std::string_view last = "");

// All there are, in order: those of all targets, and behind them the target's.
std::vector<std::string> step_names(std::span<const TargetStep> of_target = {});

}  // namespace kw::lower
