// Which loops a kernel becomes on a CPU, decided before anything is scheduled or printed.
//
//   pointwise   programs over all parallel axes but the vector axis; the SIMD loop runs over it. Where some access is
//   contiguous along another
//               axis (a transposition), programs run over square tiles of the two axes, so that each cache line is used
//               whole
//   rows        programs over the parallel axes; each reduces its row, the SIMD loop running along a reduce axis
//   columns     programs over the parallel axes and over blocks of the vector axis, which is parallel; each keeps an
//   array of
//               accumulators, one per column of its block, and the SIMD loop runs across them
//
//   scatters    as columns or rows, the serial axes being those along which points may meet in one element. Where there
//   are few programs, every thread walks
//               all points and stores those that fall into its own range of places, so that each element still sees its
//               points in order
//
//   scans       as columns, the scan axis being the loop that the accumulators go along
//   scan rows   where that axis is the contiguous one: a program takes a few rows, in pieces that stay in the nearest
//   cache. What is scanned is computed with
//               SIMD along the rows, then the rows are walked side by side, so that their additions overlap, and SIMD
//               finishes with what was scanned
//
#pragma once

#include <cstdint>
#include <vector>

#include "targets/cpu/simplify.hpp"

namespace kw::cpu {

enum class LoopForm { kPointwise, kRows, kColumns, kScanRows };
enum class Threading {
  kNone,
  kPrograms,
  kReduction /* few programs, long reductions: threads share the reduce loops */,
  kOwners /* of ranges of places */
};

struct AxisBlock {
  int axis = 0;
  int64_t size = 0;  // less than the axis's extent
};

struct LoopNest {
  LoopForm form = LoopForm::kPointwise;
  int possible_vector_axes = 0;
  int vector_axis = -1;           // −1: no axis is longer than 1
  std::vector<int> program_axes;  // outermost first; those that are blocked or in the SIMD loop are left out
  std::vector<AxisBlock> blocks;  // programs also run over blocks of these axes; the vector axis, if among them, is
                                  // last
  bool copies = false;            // pointwise: all stores move runs of memory as they are, so that none needs a loop
  int tiled_axis = -1;            // pointwise: the other axis of the tiles, outside the SIMD loop
  std::vector<int> reduce_axes;   // and the scan axis; outermost first; in rows form the vector axis is last
  int row_axis = -1;              // scan rows: the rows that a program walks side by side; −1: one row
  int64_t piece = 0;              // scan rows: elements of a row at a time; 0: the row is one piece
  bool whole_vectors = false;  // rows: the SIMD loop goes on to whole vectors, the lanes beyond the row's end left out
  Threading threading = Threading::kNone;
  int collapse = 1;                  // how many of the outermost program loops the threads share
  std::vector<bool> needed;          // per expression: something stored depends on it
  int64_t block_of(int axis) const;  // 0: not blocked
};

LoopNest plan_loops(const Simplified& simplified);

}  // namespace kw::cpu
