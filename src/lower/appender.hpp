// Steps of lowering that append instructions to a finished program's body.
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

class Appender {
 public:
  explicit Appender(tile::Program& program) : program_(program) {}

  // A value of its own, and the instruction that makes it, at the body's end. Names are numbered until they are free.
  tile::Value emit(tile::Instruction instruction, const std::string& name, tile::TileType type);
  tile::Value value(const std::string& name, tile::TileType type);  // that nothing makes yet
  tile::Value op(tile::ScalarOp op, std::vector<tile::Value> operands, const std::string& name, tile::TileType type);
  // A symbol besides the program's.
  tile::Symbol symbol(tile::SymbolInfo info);

  std::string free_name(const std::string& name) const;
  // What makes the value alone, in the body itself; nullptr where nothing does. Lost with the next instruction.
  const tile::Instruction* maker_of(tile::Value value) const;

 private:
  tile::Program& program_;
};

}  // namespace kw::lower
