// Groups of the planner as text, with what a scheduler would choose for them: tests are written in it.
//
//   kernel softmax_kernel {
//     doc "Softmax over each row."
//     launch warps 8 stages 2                      # registers 80: where they are limited
//     loops columns 64 share 1000                  # of a CPU: LoopChoices
//     buffer x : f32[16000] input
//     buffer out : f32[16000] output unaligned
//     axis row = 16 parallel block 1
//     axis column = 1000 reduce block 256 looped   # else its block covers it; behind that `reversed` (a scan),
//                                                  # `vector` (contiguous, for a CPU), `unrolled` (a window)
//     %x = load x[1000*row + column] if 0 <= row - 1 < 8 else -inf : f32
//     %row_max = reduce max(%x) : f32
//     %2 = sub(%x, %row_max) : f32
//     %value = exp(%2) : f32
//     %row_sum = reduce sum(%value) : f32
//     %5 = div(%value, %row_sum) : f32 named share
//     store %5 to out[1000*row + column]
//   }
//
// Constants: `%c = constant 1e-06 : f32`. Indices as values: `%i = index 4*row + (column // 8 % 4) : i64`. Components
// of a reduction: `reduce moments.1(%x)`. An expression is named by its label, unless that is a number, or by `named`.
// `#` starts a comment.
#pragma once

#include <string_view>

#include "plan/group_tiles.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw {

struct GroupText {
  plan::LoweredGroup group;  // buffer i is graph value i
  lower::KernelSchedule schedule;
  cpu::LoopHints hints;
};

// Throws kUser with the line's number when the text is not a kernel.
GroupText parse_group(std::string_view text);

inline plan::ScheduledTiles triton_tiles(GroupText text) {
  return plan::as_tiles(std::move(text.group), std::move(text.schedule));
}

inline tile::Program cpu_tiles(GroupText text) {
  text.group.windowed = text.hints.folds_inside;
  return cpu::as_tiles(std::move(text.group), text.hints).program;
}

}  // namespace kw
