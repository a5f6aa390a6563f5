// How often the values of a tile program are used, and where.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

class TileUses {
 public:
  explicit TileUses(const tile::Program& program);

  // Once, in the body in which it is made: as an operand, as part of an access, or as what that body yields.
  bool is_used_once(tile::Value value) const;
  bool is_used(tile::Value value) const { return uses_[value] > 0; }

 private:
  void visit(const std::vector<tile::Instruction>& body);
  void use(tile::Value value, const std::vector<tile::Instruction>& body);

  std::vector<int> uses_;                                          // [value]
  std::vector<const std::vector<tile::Instruction>*> users_body_;  // [value] where it was last used
  std::vector<const std::vector<tile::Instruction>*> own_body_;    // [value] where it is made
};

}  // namespace kw::triton
