// The text form of a loop plan, for reading. By example:
//
//   loops of softmax, 4096 bytes of scratch, uneven        # uneven: blocks may differ much in work
//     order row, column                                    # of lanes, the outermost first
//     repeated %at, %inside                                # computed again wherever they are needed
//     lane row = 4
//       declare %total
//       lane column = 64 to -1 * start + 60 simd folds %total    # ends early; the fold begins before this loop
//         %at
//         %x_tile
//         %total
//       lane column = 64 from row until %length simd       # no point outside counts
//         store y
//     for start simd short                                 # counted in 32 bits
//       if %last
//         ...
//       else
//         ...
//   places
//     %zero written                                        # where it is used
//     %at variable
//     %x_tile stack [column]                               # an array; lanes that are missing are open where it is used
//     %sum scratch 0 [row, column]                         # bytes from the beginning of the scratch memory
//     %next in %sum                                        # shares the array
//     staged scratch 2048                                  # a buffer in shared memory
//
// Loops say `moves` (each run of memory by one call), `reversed`, `unroll 8`, `shared 2` (loops that threads share
// together), `scans %s of row` (BegunScan), `whole_vectors` (goes on from its end to whole vectors), `known %c`
// (comparisons that hold inside) and `holds %m` (masks that hold up to its end); folds say `in_parts` and `flags_nan`
// (BegunFold); dots say `columns along n` or `call along n`, and how their lanes are walked, `loops b rows m columns n
// depth k` (Product); sorts say `from_memory`, `takes_places` and `copies %s` (SortedRows); stores and what has them
// inside say `unless_refused`; places say `packed`, `extended` and `statement` (loop_plan.hpp).
#pragma once

#include <string>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Of as much of the plan as the steps so far have made.
std::string print_loops(const tile::Program& program, const LoopPlan& plan);

// What a step is, in one line without what it contains: "lane row = 4", "%total", "store y".
std::string print_step(const tile::Program& program, const LoopStep& step);

}  // namespace kw::lower
