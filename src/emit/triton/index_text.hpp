// Indices of tile programs as Triton text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

class IndexText {
 public:
  explicit IndexText(const tile::Program& program);

  std::string name_of(tile::Symbol symbol) const;
  // Whether the symbol has no line of its own: name_of is the call that it is (tile_symbols.hpp).
  bool is_in_place(tile::Symbol symbol) const;
  // An index as a tile of these lanes, computed in 64 bits where it is `wide`.
  std::string spelled(const tile::Index& index, const std::vector<tile::Symbol>& lanes, bool wide = false) const;
  // The same in Python outside of kernels, where numbers have no width.
  std::string spelled_in_python(const tile::Index& index) const;
  // The lines that define the named indices of a body.
  std::vector<std::string> definitions(const std::vector<tile::Instruction>& body) const;
  // Whether a name of that text is taken.
  bool is_taken(const std::string& name) const;

 private:
  void find_in_place();
  std::string widened(tile::Symbol symbol, const std::string& text) const;

  const tile::Program& program_;
  std::map<tile::Symbol, std::string> in_place_;
};

// Python's // rounds down and Triton's towards zero: the same where nothing is negative. Throws kInternal where an
// index of the program divides what may be negative.
void require_nonnegative_dividends(const tile::Program& program);

// The lanes of both, in the order of the symbols' table.
std::vector<tile::Symbol> united(std::vector<tile::Symbol> left, const std::vector<tile::Symbol>& right);

// A tile with these lanes, in the order wanted.
std::string permuted(const std::string& text, const std::vector<tile::Symbol>& lanes,
                     const std::vector<tile::Symbol>& wanted);

}  // namespace kw::triton
