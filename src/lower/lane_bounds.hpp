// Loops over lanes that begin and end where the masks of all that they fold do, instead of asking at every point.
#pragma once

#include <set>
#include <vector>

#include "tile/lane_ends.hpp"
#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// What masks are made of: comparisons, joined by "and".
class Masks {
 public:
  explicit Masks(const tile::Program& program);

  // What is still to be asked where the comparisons in `known` hold; kNoValue: nothing.
  tile::Value left_of(tile::Value mask, const std::set<tile::Value>& known) const;
  // What an instruction reads where they hold: its operands, coordinates and mask.
  std::vector<tile::Value> inputs_of(const tile::Instruction& one, const std::set<tile::Value>& known) const;
  // The comparisons that all hold where the mask does.
  std::vector<tile::Value> parts_of(tile::Value mask) const;
  const tile::Instruction* definer(tile::Value value) const { return definers_[value]; }

 private:
  bool is_both(const tile::Instruction& one) const;

  const tile::Program& program_;
  std::vector<const tile::Instruction*> definers_;  // [value]
};

// Where all folds of a loop take what changes nothing but between two bounds, the loop has these. In programs without a
// grid, but for loops that go on to whole vectors. `steps` has no repeated values yet.
void bound_lanes(const tile::Program& program, const tile::LaneEnds& ends, const std::vector<bool>& is_repeated,
                 std::vector<LoopStep>& steps);

}  // namespace kw::lower
