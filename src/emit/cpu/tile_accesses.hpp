// Loads, stores and copies of tile programs as C++; parts of their places are computed before the loops that share
// them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/cpu/tile_context.hpp"

namespace kw::cpu {

class TileAccesses {
 public:
  explicit TileAccesses(TileContext& at) : at_(at) {}

  // What its accesses need of the symbols that are known before the loop (over a lane, or a For), as names.
  void prepare(const lower::LoopStep& loop);

  // Names of a block end with it.
  struct Scope {
    std::map<const tile::Access*, std::pair<tile::Index, std::string>> parts;
    std::map<std::string, std::string> named;
  };
  Scope scope() const { return scope_; }
  void leave(Scope scope);

  Text load(const tile::Instruction& load);
  void store(const tile::Instruction& store, bool unless_refused);
  void copy(const tile::Instruction& copy);
  // The address of the access where these lanes begin.
  std::string first(const tile::Access& access, const std::vector<tile::Symbol>& lanes);

 private:
  void prepare(const tile::Access& access, tile::Symbol loop);
  std::string element(const tile::Access& access);
  std::string condition(const tile::Instruction& one, bool unless_refused = false) const;
  Text otherwise(const tile::Instruction& one, DType dtype, DType held) const;
  void combine(const tile::Instruction& store, const std::string& place);

  TileContext& at_;
  Scope scope_;
};

}  // namespace kw::cpu
