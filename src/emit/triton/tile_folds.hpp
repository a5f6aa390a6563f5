// Folds and scans of tiles along their dimensions, as Triton text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "emit/triton/expressions.hpp"
#include "tile/program.hpp"

namespace kw::triton {

// Of a tile with `count` dimensions. `stay`: those that are folded have size 1 then, unless all are.
struct FoldedDimensions {
  std::vector<size_t> folded;  // ascending
  size_t count = 1;
  bool stay = false;
  bool at_once = false;  // all in one fold
};

// Of the fold's operand.
FoldedDimensions folded_dimensions(const tile::Program& program, const tile::Instruction& fold);

// Notes the helpers (helpers.hpp) that it takes; empty where Triton has no such fold.
std::string fold_text(const Text& tile, kernel::ReduceOp reduce, DType dtype, const FoldedDimensions& dimensions,
                      std::set<std::string>& helpers);
// The place of an extreme among `places`, a tile like the other, along one dimension: "_, name = …".
std::string place_line(const std::string& name, const Text& tile, const std::string& places, kernel::ReduceOp reduce,
                       const FoldedDimensions& dimensions, std::set<std::string>& helpers);
// An extreme along one dimension, and of the other tile what stands there: a tuple.
std::string fold_along_text(const Text& tile, const Text& along, kernel::ReduceOp reduce,
                            const FoldedDimensions& dimensions, std::set<std::string>& helpers);
// A scan but for sorts, of tiles that are `width` long along the dimension; a tuple where there are two. Empty where
// Triton has no such scan.
std::string scan_text(const tile::Instruction& scan, const std::vector<Text>& tiles, DType dtype, size_t dimension,
                      int64_t width, std::set<std::string>& helpers);
// A sort along the last dimension, of tiles of these types: "results[0] = …". `numbers` is a name that is free.
std::vector<std::string> sort_lines(const tile::Instruction& sort, const std::vector<std::string>& results,
                                    const std::vector<Text>& tiles, const std::vector<DType>& types,
                                    const std::string& numbers, std::set<std::string>& helpers);

}  // namespace kw::triton
