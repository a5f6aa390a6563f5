// Writes the instructions of a tile program: each goes to the outermost open loop that has all it needs, and what is
// there already is not written again.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

class Emission {
 public:
  explicit Emission(tile::Program& program);

  // --- Scopes: the program's body is the first, every open loop one more ---
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  void open(tile::Symbol loop_variable);
  // The body of the innermost loop, which is closed.
  std::vector<tile::Instruction> close();
  // The program's body; no loop is open.
  std::vector<tile::Instruction> finish();
  // The depth at which everything that the index uses is known.
  int depth_of(const tile::Index& index) const;
  int depth_of(tile::Value value) const { return depths_[value]; }

  // --- Values ---
  const tile::TileType& type(tile::Value value) const { return program_.values[value].type; }
  // A new value that the innermost scope defines (a loop's argument or result).
  tile::Value define(std::string name, tile::TileType type);

  tile::Value constant(tile::TileType type, double number);
  // As a whole number of `dtype` (i32, i64); `type_for` has the narrowest that holds all of them.
  tile::Value index(const tile::Index& index, DType dtype);
  DType type_for(std::initializer_list<tile::Index> indices) const;
  tile::Value op(tile::ScalarOp op, std::vector<tile::Value> operands, DType dtype, std::string name = "");
  tile::Value cast(tile::Value value, DType dtype);
  // The value as a tile with these lanes; it has some of them.
  tile::Value broadcast(tile::Value value, const std::vector<tile::Symbol>& lanes);
  // Is it a load that yields 0 where its mask does not hold?
  bool is_zero_where_masked(tile::Value value) const;
  tile::Value both(tile::Value left, tile::Value right);  // of masks; either may be kNoValue
  // Adds an instruction with one result for each type; gives the same results where an equal one is known.
  std::vector<tile::Value> add(tile::Instruction instruction, const std::vector<tile::TileType>& types,
                               std::string name);
  std::vector<tile::Value> add(tile::Instruction instruction, const std::vector<tile::TileType>& types,
                               const std::vector<std::string>& names);  // as many
  // One that is not shared and stays where the innermost scope is: stores and loops.
  void add_here(tile::Instruction instruction);

 private:
  struct Scope {
    tile::Symbol variable = -1;
    std::vector<tile::Instruction> code;
    std::map<std::string, std::vector<tile::Value>> known;
  };

  std::string unique(const std::string& name);
  std::string signature(const tile::Instruction& instruction, const std::vector<tile::TileType>& types) const;

  tile::Program& program_;
  std::vector<Scope> scopes_;
  std::vector<int> depths_;                        // [value]
  std::map<tile::Value, tile::Instruction> made_;  // constants, loads and operations by their result
  std::map<std::string, int> names_;
};

// The lanes of all of them, in the order of the symbols' table.
std::vector<tile::Symbol> united(std::vector<tile::Symbol> left, const std::vector<tile::Symbol>& right);

}  // namespace kw::lower
