// Values that are computed alike, in different loops.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

// Refers to the program's instructions: they have to stay.
class Alike {
 public:
  explicit Alike(const Program& program);

  // Are both the same constants, indices, loads and operations of such, down to values that are one?
  bool same(Value left, Value right) const;
  // Do both reach the same elements, wherever both masks hold?
  bool same(const Access& left, const Access& right) const;

  // The instruction whose result it is; nullptr for what a loop carries or an If leaves.
  const Instruction* maker(Value value) const { return makers_[value]; }
  // Of a load of what the blocks of a row stored for each other: what this block did, of the same kind; kNoValue for
  // other loads.
  Value own_part(const Instruction& load) const;
  // What a loop's argument or result is after an iteration: one of its yields; kNoValue for other values.
  Value yield_of(Value carried) const { return yields_[carried]; }
  // The loop's argument that stands for this argument or result; kNoValue for other values.
  Value argument_of(Value carried) const { return arguments_[carried]; }
  // What it is before the first iteration of the outermost loop that carries it; itself where none does.
  Value initial_of(Value carried) const {
    while (arguments_[carried] != kNoValue) carried = initials_[carried];
    return carried;
  }

 private:
  bool compare(Value left, Value right) const;

  const Program& program_;
  std::vector<const Instruction*> makers_;            // [value]
  std::vector<Value> yields_, arguments_, initials_;  // [value]
  std::vector<const Instruction*> part_stores_;       // to memory that blocks of a row share
  mutable std::map<std::pair<Value, Value>, bool> known_;
};

}  // namespace kw::tile
