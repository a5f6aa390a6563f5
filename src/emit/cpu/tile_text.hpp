// C++ spelling of what a tile program is made of: names, indices, elements of tiles and buffers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/names.hpp"
#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::cpu {

// The text with lines of bearable length.
std::string in_columns(const std::string& text);

// Where lanes are, if not at the variables of their names.
using LanePositions = std::map<tile::Symbol, std::string>;

class TileText {
 public:
  TileText(const tile::Program& program, const lower::LoopPlan& plan, HelperSet& helpers);

  const tile::Program& program() const { return program_; }
  const lower::TilePlace& place(tile::Value value) const { return plan_.places[value]; }
  const tile::TileType& type(tile::Value value) const { return program_.values[value].type; }
  int64_t width(tile::Symbol lane) const { return tile::width_of(program_, lane); }
  kernel::SymbolRanges ranges() const { return ranges_; }
  HelperSet& helpers() const { return helpers_; }
  std::string fresh(const std::string& wanted) { return names_.fresh(wanted); }
  void release(const std::string& name) { names_.release(name); }

  const std::string& symbol(tile::Symbol symbol) const { return symbols_[symbol]; }
  const std::string& buffer(int buffer) const { return buffers_[buffer]; }
  const std::string& own_name(tile::Value value) const { return values_[value]; }
  // Of the variable or array that holds it.
  const std::string& name(tile::Value value) const { return values_[place(value).storage]; }

  // Floats of 16 and 8 bits are held as float, unless they are only moved.
  DType held(tile::Value value) const;
  std::string held_type(tile::Value value) const {
    return place(value).extended ? "long double" : value_type(held(value));
  }

  Text index(const tile::Index& index) const;
  bool is_array(tile::Value value) const { return !place(value).lanes.empty(); }
  // Of the array that holds the value, in elements.
  int64_t stride(tile::Value value, tile::Symbol lane) const;
  int64_t elements(tile::Value value) const;
  // The place in its array; empty at its beginning.
  std::string element_index(tile::Value value, const LanePositions& positions = {}) const;
  Text element(tile::Value value, const LanePositions& positions = {}) const;
  Text constant(const tile::Instruction& constant) const;

  // What has the type `dtype`, rounded as that type is: floats of 16 bits are held as float.
  Text rounded(const Text& value, DType dtype) const;
  // An operation whose operands are held as they are.
  Text operation(tile::ScalarOp op, DType dtype, const std::vector<Text>& operands,
                 const std::vector<DType>& types) const;
  // Of values, each held as it is.
  Text operation(const tile::Instruction& one, const std::vector<Text>& operands) const;

 private:
  Text operation(tile::ScalarOp op, DType dtype, const std::vector<Text>& operands, const std::vector<DType>& types,
                 const std::vector<DType>& held) const;
  Text factor(const kernel::IndexFactor& factor) const;
  Text term(const kernel::IndexTerm& term) const;

  const tile::Program& program_;
  const lower::LoopPlan& plan_;
  HelperSet& helpers_;
  std::vector<kernel::SymbolRange> ranges_;
  Names names_;
  std::vector<std::string> symbols_, buffers_, values_;
};

// Of a For: "for (int64_t row = 0; row < 8; ++row)".
std::string head_of(const TileText& text, const lower::LoopStep& loop, const Text& end);

}  // namespace kw::cpu
