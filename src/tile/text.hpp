// The text form of tile programs. It prints what it parses, and parses what it prints. By example:
//
//   program rms_norm {
//     doc "rows over their root mean square"
//     size rows = 1..4096 by 16                             # a run-time size: its range, and what divides it
//     size owners = 1..64 threads 4                         # how many threads a CPU has; 1 where fewer than 4
//     grid row_block = rows / 16                            # how many blocks; the first is the slowest
//     lane row = 16, column = 4096                          # `column = 4096 shared simd`: by threads of a CPU,
//                                                           # and side by side
//     launch warps 8 registers 128                          # registers: where it is limited; behind that
//                                                           # `approximate`, `contracts`, `narrow`; `rank 2`: of all
//                                                           # tiles, where lanes have a dimension: `row = 16
//                                                           # dimension 0`
//     order grouped 8 (row_block, column_block)             # where it is not the grid's own
//     consumers 2 along row_block programs 132              # blocks that run as one, fed by a producer
//     number program = 192                                  # of blocks, as they begin, where a launch only counts
//     them; place first_row_block = program / 128 * 8             # and how they find their places in the grid place
//     row_block = first_row_block + program % 8       # (block_places.hpp; `consumer member = 2`: of those that
//                                                           # run as one)
//     buffer x: f32[rows, 4096] input
//     buffer weight: f32[4096] input align 4
//     buffer staged: f16[2, 4096] scratch shared            # spaces: global (not written), shared, cluster
//     buffer out: f32[rows, 4096] strides [8192, 1] output  # roles: input, output, inout, scratch
//
//     index row_index: i32 = row_block * 16 + row           # a name for an index, at the start of the program or of a
//                                                           # loop's body: computed in 32 or 64 bits
//     %inside: b1[column] = less %at, %limit                # op: its name and operands
//     %share: f32[row] = div %one, %total exact              # or approximate, nonnegative, approximate nonnegative
//     %zero: f32[row] = constant 0.0
//     %at: i32[column] = index column + 1
//     %x_tile: f32[row, column] = load x[row_block * 16 + row, column] where %inside otherwise 0.0 hint keep
//     %partial: f32[row] = load parts[row] where %inside otherwise any coherent    # nothing sees what is beyond; the
//                                                           # load sees what other blocks wrote meanwhile
//     %far: f32[row, column] = load x[row_index, column] offset i64    # of a narrow program: a place beyond 32 bits
//     %parts: f32[column] = load x[row * 4096 i64; column + start together]    # what is added first, the rest as a sum
//                                                           # by itself; `i64`: which part is computed in 64 bits
//     %at: i64[row] = index row * rows wide                 # computed in 64 bits on the way; so are loops' bounds
//     %box: f32[row, column] = load x[row_block * 16 + row, column] bulk    # a box; 0 outside of the buffer
//     %picked: f32[row] = load weight[row + %table]         # a coordinate: an index, an integer tile, or their sum
//     %turned: f32[source] = relabel %x column -> source
//     %total: f32[row] = fold sum %squares over column
//     %least: f32 = fold min %x_tile over row, column at_once    # not one dimension after the other; or to_number
//     %place: i64[row] = fold arg_max %x_tile over column    # the place along the lanes folded
//     %most: f32[row], %at: i32[row] = fold max %x_tile, %place over column    # with what stands beside it, of equals
//                                                           # the largest
//     %running: f32[row, column] = scan sum %x_tile along column reversed
//     %product: f32[row, column] = scan prod %x_tile along column network    # in one order of multiplication
//     %sum: f32[row, column], %met: f32[row] = scan sum %x_tile along column after %met_before
//     %top: f32[row, column], %at: i32[row, column] = scan sort_down %x_tile, %place along column first 5 picked
//                                                           # or, of a power of two, top_k
//     %sums: f32[row, n] = dot %start, %a, %b precision tf32     # ieee is not written
//     %first: f32[m, n] = dot %zero, %a, %b from_zero       # added to nothing
//     copy async staged[0, column] <- x[row_block, column] over column where %inside      # plain, async, bulk;
//                                                           # `otherwise` is 0 where it is not written
//     wait 1                                                # until one copy at most is under way
//     wait boxes                                            # of consumers (consumers.hpp): what the iteration loads;
//     wait %product left 1                                  # until one product at most is under way
//     release boxes back 1                                  # what the iteration before loaded may be copied over
//     skip boxes                                            # those of the other consumer, behind the loop
//     %zero: f32[m, n] = constant 0.0 in sums               # in which registers: sums, left, stores; so are boxes
//     %moved: f32[m, n] = move %product to stores
//     barrier block                                         # block, cluster, grid; grid counted arrived turn step
//     for key = 0 to rows step 64 stages 3 carry %m: f32[row] = %lowest, %s: f32[row] = %zero -> %largest, %total {
//       ...
//       yield %new_m, %new_s
//     }                                                     # or `unrolled` in the place of stages; behind that
//                                                           # `reversed counter key_number` (the number of the
//                                                           # iteration), `shared` (by threads) and `simd`
//     if %last -> %a: f32[row] {                            # results may be missing; then yields are, too
//       yield %x
//     } else {
//       yield %y
//     }
//     store out[row_block * 16 + row, column] <- %y where %inside combine sum hint stream
//     store sums[column + %place] <- %y combine sum in_order     # points that meet: one after the other
//   }
//
// Casts are `%y: bf16[row] = cast %x`. Numbers of floating types are written as C++ does (also inf, -inf, nan,
// 0x1p-12), constants of b1 as true and false. A remainder in an index is `a % b` with a space, as %b is a value; the
// smaller of two is `min(a, b)`.
#pragma once

#include <string>
#include <string_view>

#include "tile/program.hpp"

namespace kw::tile {

std::string print_program(const Program& program);
// One instruction without its body, in one line.
std::string print_head(const Program& program, const Instruction& instruction);
// Throws kUser with line and column for wrong syntax, unknown names, types and spaces that do not exist. What it
// returns has been through `verify`.
Program parse_program(std::string_view text);

}  // namespace kw::tile
