// Names for indices that a printed tile program uses in several places, or that are long: `row_index = row_block * 16 +
// row`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "emit/triton/lane_dimensions.hpp"
#include "tile/program.hpp"

namespace kw::triton {

// The program with other names where Python or a helper (helpers.hpp) has its own: `abs` becomes `magnitude`.
tile::Program with_python_names(tile::Program program);

class IndexNames {
 public:
  explicit IndexNames(const tile::Program& program);

  struct Definition {
    std::string name;
    tile::Index index;  // over symbols, and other definitions' (symbols from the program's number on)
  };
  // What is to be defined at the start of the program (nullptr) or of a loop's body, in order.
  const std::vector<Definition>& at(const tile::Instruction* loop) const;

  // The index with parts that have names replaced by them; they are symbols from the program's number of them on.
  tile::Index shortened(const tile::Index& index) const;
  std::string name_of(tile::Symbol symbol) const;
  // Whether the symbol has no line of its own: name_of is the call that it is (tile_symbols.hpp).
  bool is_in_place(tile::Symbol symbol) const;
  // The lanes along which a symbol varies: itself, or those of what it names.
  std::vector<tile::Symbol> lanes_of(tile::Symbol symbol) const;
  // The same of an index, in the order of the symbols' table.
  std::vector<tile::Symbol> lanes_of(const tile::Index& index) const;
  // What moves along lanes of an index that has been shortened, with its constant if nothing else is there.
  tile::Index along_lanes(const tile::Index& index) const;
  // The terms that no lane moves, without the constant.
  tile::Index without_lanes(const tile::Index& index) const;
  // An index that has been shortened, as a tile of these lanes. Where it, or a part of it, may leave 32 bits, or
  // `wide` asks for it, it is computed in 64.
  std::string spelled(const tile::Index& index, const std::vector<tile::Symbol>& lanes, bool wide = false) const;
  // The same in Python outside of kernels, where numbers have no width.
  std::string spelled_in_python(const tile::Index& index) const;
  // Whether a name of that text is taken.
  bool is_taken(const std::string& name) const;

 private:
  // The sums of its terms that vary along the same lanes, with what the block's position adds where they are an axis:
  // each is computed once, as a tile of these lanes only. What is one number for the block is added to pointers first,
  // which leaves the lanes' offsets small.
  std::vector<tile::Index> parts_by_lanes(const tile::Index& index) const;
  tile::Index unscaled(const tile::Index& part) const;
  std::optional<tile::Index> start_of_block(const tile::Index& part, const tile::Index& index) const;
  // With names for its parts, but not for itself.
  tile::Index spelled_out(const tile::Index& index) const;
  void visit(const std::vector<tile::Instruction>& body, std::vector<const tile::Instruction*>& loops);
  void note(const tile::Index& index, const std::vector<const tile::Instruction*>& loops);
  void define(const tile::Index& index, const std::vector<const tile::Instruction*>& loops);
  void find_in_place();
  // Quotients and remainders that no lane moves, and that would be written three times or more, get names: the widest
  // first, since what only stands in a part that has a name is written once.
  void name_repeated_parts();
  std::optional<tile::Index> widest_repeated() const;
  void name_part(const tile::Index& part);
  // The bodies in which the symbols of the part are known, of all indices that it is written in.
  std::vector<const tile::Instruction*> scopes_of(const tile::Index& part) const;
  std::string unused_name(const std::string& base) const;
  tile::Index definition_of(const std::string& name) const;  // of what has the name, with names for its parts

  bool may_overflow(const tile::Index& index) const;
  std::string widened(tile::Symbol symbol, const std::string& text) const;

  const tile::Program& program_;
  // Has every tile all dimensions, of size 1 where it does not vary? So it is of programs that map and fold:
  // broadcasting need not be spelled out, and the compiler moves no values among threads for it.
  const bool full_rank_;
  const LaneDimensions dimensions_;          // where the rank is full
  std::vector<kernel::SymbolRange> ranges_;  // [symbol], those of definitions last
  std::map<const tile::Instruction*, std::vector<Definition>> definitions_;
  std::map<tile::Symbol, std::string> in_place_;
  struct Named {
    tile::Index index;
    tile::Symbol symbol;
    std::string name;
    std::vector<tile::Symbol> lanes;
    bool wide;                                     // of 64 bits
    std::vector<const tile::Instruction*> scopes;  // loops that define it; nullptr: the program
    bool is_part = false;                          // a quotient or remainder that no lane moves
  };
  const Named* part_of(const kernel::IndexFactor& factor) const;  // that is named; nullptr for others
  std::vector<Named> named_;
};

// The lanes of both, in the order of the symbols' table.
std::vector<tile::Symbol> united(std::vector<tile::Symbol> left, const std::vector<tile::Symbol>& right);

// A tile with these lanes, in the order wanted.
std::string permuted(const std::string& text, const std::vector<tile::Symbol>& lanes,
                     const std::vector<tile::Symbol>& wanted);

}  // namespace kw::triton
