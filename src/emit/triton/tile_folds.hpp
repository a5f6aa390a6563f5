// Folds and scans of tiles along their dimensions, as Triton text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "emit/triton/expressions.hpp"

namespace kw::triton {

// Of a tile with `count` dimensions. `stay`: those that are folded have size 1 then, unless all are.
struct FoldedDimensions {
  std::vector<size_t> folded;  // ascending
  size_t count = 1;
  bool stay = false;
};

// Notes the helpers (helpers.hpp) that it takes; empty where Triton has no such fold.
std::string fold_text(const Text& tile, kernel::ReduceOp reduce, DType dtype, const FoldedDimensions& dimensions,
                      std::set<std::string>& helpers);
// The place of an extreme among `places`, a tile like the other, along one dimension: "_, name = …".
std::string place_line(const std::string& name, const Text& tile, const std::string& places, kernel::ReduceOp reduce,
                       const FoldedDimensions& dimensions, std::set<std::string>& helpers);
// `options` stand behind the other arguments: ", reverse=True". Empty where Triton has no such scan.
std::string scan_text(const Text& tile, kernel::ReduceOp reduce, DType dtype, size_t dimension,
                      const std::string& options, std::set<std::string>& helpers);

}  // namespace kw::triton
