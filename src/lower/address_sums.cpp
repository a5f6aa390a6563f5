#include "lower/address_sums.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace kw::lower {

using tile::Index;
using tile::Instruction;

namespace {

// What moves along lanes of an index, with its constant if nothing else is there.
Index along_lanes(const tile::Program& program, const Index& index) {
  Index moving;
  for (const kernel::IndexTerm& term : index.terms) {
    Index one;
    one.terms = {term};
    if (!tile::lanes_of(program, one).empty()) moving = moving + one;
  }
  if (moving.terms.size() == index.terms.size()) moving.constant = index.constant;
  return moving;
}

// The terms that no lane moves, without the constant.
Index without_lanes(const tile::Program& program, const Index& index) {
  Index rest = index - along_lanes(program, index);
  rest.constant = 0;
  return rest;
}

class Sums {
 public:
  explicit Sums(tile::Program& program) : program_(program), part_by_part_(adds_part_by_part(program)) {}

  void run() {
    if (part_by_part_) for_each_coordinate([&](tile::Coordinate& one) { count(along_lanes(program_, one.index)); });
    for_each_coordinate([&](tile::Coordinate& one) { order(one); });
  }

 private:
  template <typename Visit>
  void for_each_coordinate(const Visit& visit) {
    tile::for_each_mutable(program_.body, [&](Instruction& one) {
      if (one.mode == tile::CopyMode::kBulk && one.kind != tile::Kind::kCopy) return;  // has an origin alone
      for (tile::Coordinate& coordinate : one.access.coordinates) visit(coordinate);
    });
  }

  void count(const Index& moving) {
    const auto known = std::find_if(uses_.begin(), uses_.end(), [&](const auto& one) { return one.first == moving; });
    if (known != uses_.end()) ++known->second;
    else uses_.emplace_back(moving, 1);
  }

  void order(tile::Coordinate& coordinate) const {
    tile::SumOrder& sum = coordinate.sum;
    if (coordinate.value != tile::kNoValue) sum.first = without_lanes(program_, coordinate.index);
    const Index rest = coordinate.index - sum.first;
    if (!part_by_part_ || kernel::as_constant(rest)) return;
    const Index moving = along_lanes(program_, rest);
    if (coordinate.value == tile::kNoValue && !(moving == Index(0))) sum.first = rest - moving;
    sum.together = moving.terms.size() > 1 && std::any_of(uses_.begin(), uses_.end(), [&](const auto& one) {
                     return one.first == moving && one.second > 1;
                   });
  }

  tile::Program& program_;
  const bool part_by_part_;
  std::vector<std::pair<Index, int>> uses_;  // of what moves along lanes
};

}  // namespace

bool adds_part_by_part(const tile::Program& program) {
  return tile::maps_and_folds(program) && std::any_of(program.body.begin(), program.body.end(), [](const auto& one) {
           return one.kind == tile::Kind::kFold || one.kind == tile::Kind::kFor;
         });
}

void order_sums(tile::Program& program) { Sums(program).run(); }

}  // namespace kw::lower
