// Loads, stores and copies of tile programs as C++.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emit/cpu/tile_context.hpp"

namespace kw::cpu {

class TileAccesses {
 public:
  TileAccesses(TileContext& at, const lower::LoopPlan& plan) : at_(at), plan_(plan), starts_(plan.starts.size()) {}

  // The starts of places that are computed before the loop.
  void print_starts(const lower::LoopStep& loop);

  // What is left of places here, and the starts that have names. Those of a block end with it.
  struct Scope {
    std::map<const tile::Access*, const lower::LeftOfPlace*> left;
    std::vector<int> starts;
  };
  Scope scope() const { return scope_; }
  void leave(Scope scope);

  Text load(const tile::Instruction& load);
  void store(const tile::Instruction& store, bool unless_refused);
  void copy(const tile::Instruction& copy);
  // The address of the access where these lanes begin.
  std::string first(const tile::Access& access, const std::vector<tile::Symbol>& lanes);

 private:
  // Of the access: the name of its start, or nothing, and what is added to it.
  std::pair<std::string, tile::Index> place_of(const tile::Access& access) const;
  std::string element(const tile::Access& access);
  std::string condition(const tile::Instruction& one, bool unless_refused = false) const;
  Text otherwise(const tile::Instruction& one, DType dtype, DType held) const;
  void combine(const tile::Instruction& store, const std::string& place);

  TileContext& at_;
  const lower::LoopPlan& plan_;
  std::vector<std::string> starts_;  // [start] its name, while it has one
  Scope scope_;
};

}  // namespace kw::cpu
