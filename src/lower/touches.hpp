// When and where the steps of a loop tree touch values.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// A list of steps: the program's, a loop's, or a branch's.
struct StepBlock {
  int parent = -1, step = -1;  // the step of the parent that it belongs to
  tile::Symbol lane = -1;      // of a loop
  std::vector<LoopStep>* steps = nullptr;
};

// Moments ascend in the order in which a block runs through its steps. An instruction reads its points before it makes
// its results, so that these can take the points' places; what it reads elsewhere it reads after.
struct Touch {
  int block = 0, step = 0;
  int moment = 0;
};

struct Moments {
  int first = 0, last = 0;
};

struct Touches {
  std::vector<StepBlock> blocks;
  std::vector<std::vector<Touch>> of;                       // [value]
  std::vector<const std::vector<tile::Instruction>*> body;  // [value] where it is made; a loop's, of its arguments
  std::vector<bool> is_set_later;                           // [value] by other statements than its declaration
  std::vector<Moments> of_bodies;                           // [value] of the body where it is made
  struct Loop {
    const tile::Instruction* instruction;
    int start;       // the moment when it reads its first values
    Moments inside;  // of its body
  };
  std::vector<Loop> loops;  // inner ones behind those around them
};

Touches find_touches(const tile::Program& program, std::vector<LoopStep>& body);

}  // namespace kw::lower
