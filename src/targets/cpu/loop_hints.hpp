// What a CPU's scheduler says about a kernel's loops, beside the kernel.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace kw::cpu {

// What a schedule decides; 0: chosen from the accesses (loop_nest.hpp).
struct LoopChoices {
  int64_t along = 0;            // the SIMD loop: 0 along the axis that suits the accesses best, 1 the next, …
  int64_t columns = 0;          // that a program folds side by side
  int64_t tile = 0;             // side of the tiles where an operand is transposed
  int64_t rows = 0, piece = 0;  // of a scan: walked side by side, and elements of them at a time
  int64_t share = 0;            // elements from which on threads share the work
  bool operator==(const LoopChoices&) const = default;
};

inline constexpr std::pair<int64_t LoopChoices::*, std::string_view> kLoopChoiceNames[] = {
    {&LoopChoices::along, "along"}, {&LoopChoices::columns, "columns"}, {&LoopChoices::tile, "tile"},
    {&LoopChoices::rows, "rows"},   {&LoopChoices::piece, "piece"},     {&LoopChoices::share, "share"},
};

struct LoopHints {
  LoopChoices choices;
  int contiguous_axis = -1;   // along which most of what is read and written lies side by side; −1: none
  bool folds_inside = false;  // reduce axes are short (windows): the SIMD loop runs along another one
};

}  // namespace kw::cpu
