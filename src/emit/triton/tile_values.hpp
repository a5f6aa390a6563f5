// What is known of a tile program's values before it is printed: who makes and who uses them, and between which numbers
// they lie.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "kernel/value_range.hpp"
#include "tile/alike.hpp"

namespace kw::triton {

class TileValues {
 public:
  explicit TileValues(const tile::Program& program);

  // The instruction whose result it is; nullptr for what a loop carries or an If leaves.
  const tile::Instruction* maker(tile::Value value) const { return alike_.maker(value); }
  const tile::Alike& alike() const { return alike_; }
  // The operation that alone uses it, in the body in which it is made; nullptr where there is another use.
  const tile::Instruction* only_operation(tile::Value value) const;

  // Is the operation computed from what the iteration before left, for another value than the next one? Behind that,
  // both would have to be kept.
  bool takes_last_of(const tile::Instruction& operation) const;
  bool is_true(tile::Value value) const;  // a constant condition that holds
  // A whole number, as far as indices and constants say, or a float.
  bool is_nonnegative(tile::Value value) const;
  // Is the float far from where the hardware's inverse is 0 or infinite though the number's own is not?
  bool has_plain_inverse(tile::Value value) const;
  // Does anything see what the load yields where its mask does not hold? What is stored under that mask does not.
  bool shows_otherwise(const tile::Instruction& load) const;
  // The masks of the loads of which it is made: where they do not hold it may be anything.
  std::set<tile::Value> masks_behind(tile::Value value) const;

 private:
  void visit(const std::vector<tile::Instruction>& body);
  bool has_all_lanes(tile::Value value, tile::Value mask) const;
  void collect_parts(tile::Value mask, std::set<tile::Value>& parts) const;
  bool holds_within(tile::Value mask, const std::set<tile::Value>& parts) const;
  bool withholds_end(const std::set<tile::Value>& parts, tile::Symbol lane) const;
  bool is_seen(tile::Value value, const std::set<tile::Value>& parts, std::set<tile::Value>& known) const;
  kernel::ValueRange range(tile::Value value) const;
  kernel::ValueRange carried_range(tile::Value value) const;

  const tile::Program& program_;
  const tile::Alike alike_;
  std::vector<kernel::SymbolRange> ranges_;                      // [symbol]
  std::vector<std::vector<const tile::Instruction*>> users_;     // [value]
  std::vector<bool> escapes_, leaves_branch_;                    // [value] out of a loop or an If; an If alone
  std::vector<const std::vector<tile::Instruction>*> own_body_;  // [value]
  std::map<const tile::Instruction*, const std::vector<tile::Instruction>*> body_of_;
  mutable std::map<tile::Value, kernel::ValueRange> known_ranges_;
};

}  // namespace kw::triton
