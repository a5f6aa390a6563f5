// What is known of a tile program's values: who makes and who uses them, and between which numbers they lie.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "kernel/value_range.hpp"
#include "tile/alike.hpp"

namespace kw::tile {

class ValueFacts {
 public:
  explicit ValueFacts(const Program& program);

  // The instruction whose result it is; nullptr for what a loop carries or an If leaves.
  const Instruction* maker(Value value) const { return alike_.maker(value); }
  const Alike& alike() const { return alike_; }
  // Those that use it as an operand, in an access, as a loop's end or next value.
  const std::vector<const Instruction*>& users(Value value) const { return users_[value]; }
  bool leaves_branch(Value value) const { return leaves_branch_[value]; }  // as what an If leaves
  // The operation that alone uses it, in the body in which it is made; nullptr where there is another use.
  const Instruction* only_operation(Value value) const;

  // Is the operation computed from what the iteration before left, for another value than the next one? Behind that,
  // both would have to be kept.
  bool takes_last_of(const Instruction& operation) const;
  bool is_true(Value value) const;  // a constant condition that holds
  // A whole number, as far as indices and constants say, or a float.
  bool is_nonnegative(Value value) const;
  // Is the float far from where the hardware's inverse is 0 or infinite though the number's own is not?
  bool has_plain_inverse(Value value) const;
  // The masks of the loads of which it is made: where they do not hold it may be anything.
  std::set<Value> masks_behind(Value value) const;

 private:
  void visit(const std::vector<Instruction>& body);
  bool has_all_lanes(Value value, Value mask) const;
  kernel::ValueRange range(Value value) const;
  kernel::ValueRange carried_range(Value value) const;

  const Program& program_;
  const Alike alike_;
  std::vector<kernel::SymbolRange> ranges_;                // [symbol]
  std::vector<std::vector<const Instruction*>> users_;     // [value]
  std::vector<bool> escapes_, leaves_branch_;              // [value] out of a loop or an If; an If alone
  std::vector<const std::vector<Instruction>*> own_body_;  // [value]
  std::map<const Instruction*, const std::vector<Instruction>*> body_of_;
  mutable std::map<Value, kernel::ValueRange> known_ranges_;
};

}  // namespace kw::tile
