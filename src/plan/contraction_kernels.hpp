// The kernels of a contraction (contraction.cpp), once its blocks are chosen.
#pragma once

#include <vector>

#include "plan/product_kernels.hpp"

namespace kw::plan {

struct ContractionBlocks {
  int64_t rows = 128, columns = 128, depth = 64;  // of one block, and of one step of its loop; at least 16
  int stages = 3;                                 // steps whose loads are in flight
  int warps = 8;
  int64_t neighbours = 8;     // rows of blocks that are started together, so that they share columns
  bool bulk = true;           // halves are loaded by the bulk copy engine
  bool bulk_stores = false;   // and results stored by it
  bool halves = true;         // single precision by three products of halves, or one
  bool one_half = false;      // by one, for products that PyTorch makes in TF32
  bool six_products = false;  // not of halves: of three bf16 numbers for each
  int64_t consumers = 1;      // blocks that run as one and share their columns' operand (tile/consumers.hpp)
  int64_t programs = 0;       // of consumers, that are started; 0: one for each of their groups
  // The operands that the product's kernel splits itself, chunk by chunk of a step's depth, where few blocks read each
  // of their elements. The depth of a step divides that of a part.
  std::vector<Side> streamed;
  // Blocks that share out the depth of one block's results; their sums are added, in order, by a kernel of its own. The
  // depth of a step divides that of a part where there are several.
  int64_t parts = 1;
  bool whole_rows = false;  // what follows folds columns: a block has all of them, where it has all of the depth,
                            // and then nothing is streamed
  // What follows folds rows or columns: each block those that it has, in one part of the depth and nothing streamed;
  // one more kernel combines what blocks have folded.
  bool fold_parts = false;
};

ScheduledGroup contraction_kernels(const LoweredGroup& group, const ContractionBlocks& blocks);

}  // namespace kw::plan
