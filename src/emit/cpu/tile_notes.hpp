// Comments in kernels, for choices whose reason their text does not show. They are found by what instructions compute
// and by what the loop plan says, never by names, and none changes the text around it.
#pragma once

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "lower/lane_bounds.hpp"
#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::cpu {

enum class Reason {
  kWideFold,      // sums and products of floats in double precision
  kExtendedSum,   // sums of doubles in long double
  kNanFlag,       // a flag beside an extreme
  kPlaces,        // places of extremes in a second walk
  kFirstElement,  // deviations from the first element
  kShortCounter,  // a loop that is counted in 32 bits
  kLoopEnds,      // a loop that begins and ends where masks do
  kWholeVectors,  // a loop that goes on to whole vectors
  kDataEnd,       // a loop that ends where a value says
  kScratch,       // arrays in memory of the thread
  kSpare,         // arrays with some elements more
  kBlocks,        // a loop that takes a block at a time
  kSquares,       // a loop that takes a square of what lies across at a time
  kTransposed,    // an operand that is turned
  kRowsAtOnce,    // rows that are walked side by side
  kLateStores,    // stores behind loads
  kRefused,       // nothing is stored behind a refused index
  kOwners,        // threads that own places
  kUneven,        // blocks that threads take as they are done
  kSharedForms,   // products of sums and differences that results share
  kOnlyWhere,     // products that only some blocks need
};

class Notes {
 public:
  Notes(const tile::Program& program, const lower::LoopPlan& plan);

  // The comment, the first time; empty behind that.
  std::string_view take(Reason reason);

  bool is_widened(const tile::Instruction& one) const;        // does a fold or scan take floats as doubles?
  bool finds_place(const tile::Instruction& fold) const;      // is it a place's, of an extreme that is known?
  bool is_first_or_zero(const tile::Instruction& one) const;  // a number that deviations are counted from
  // Are the dot's operands sums and differences of elements that others beside it take, too?
  bool shares_forms(const tile::Instruction& dot) const { return with_forms_.count(&dot) != 0; }
  bool asks_data(const tile::Instruction& branch) const;  // may the data spare a block its products?
  // Does the store stand behind a load that the program has later?
  bool is_late(const tile::Instruction& store) const { return late_.count(&store) != 0; }
  // Does an iteration fill arrays that loops inside it share?
  bool fills_arrays(const tile::Instruction& loop) const;
  // Or read or store a block of what lies far apart along the loop that runs side by side?
  bool crosses_lines(const tile::Instruction& loop) const;

 private:
  const tile::Instruction* maker(tile::Value value) const { return makers_[value]; }
  bool reads_data(tile::Value value) const;
  // Is it sums and differences of what is loaded, and of which loads?
  bool is_form(tile::Value value, std::set<const tile::Instruction*>& loads) const;
  void find_forms(const std::vector<tile::Instruction>& body);
  void find_late_stores(const std::vector<lower::LoopStep>& steps);

  const tile::Program& program_;
  const lower::LoopPlan& plan_;
  std::vector<const tile::Instruction*> makers_;   // [value]
  std::map<const tile::Instruction*, int> order_;  // in the program
  std::set<const tile::Instruction*> with_forms_, late_;
  std::set<Reason> said_;
};

}  // namespace kw::cpu
