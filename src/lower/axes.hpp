// What becomes of a kernel's axes in a tile program: the symbols that a schedule gives them.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"
#include "lower/schedule.hpp"
#include "tile/program.hpp"

namespace kw::lower {

struct MappedAxis {
  Mapping mapping = Mapping::kGrid;
  int64_t width = 1;
  tile::Symbol outer = -1;                 // its grid symbol or loop variable; −1 for a tile
  tile::Symbol lane = -1;                  // −1 where the width is 1
  tile::Symbol last = -1, remainder = -1;  // what the lane is behind products: another one, or two; −1 where it is
                                           // itself
  tile::Symbol inner = -1;                 // `last` of an axis within this one, whose lane it shares
  tile::Index index;    // the axis's value, over outer and, where they are, last and remainder, else lane
  tile::Index whole;    // the same, over outer and lane
  tile::Index extent;   // over sizes
  bool padded = false;  // the width need not divide the extent: some lanes may lie beyond the end
  bool online = false;
  bool network = false, in_order = false;
  bool cooperative = false;
  bool unrolled = false;  // a tile: the lane is only until tiles along it are taken apart (unrolled_tiles.hpp)
};

// One loop, over the iterations of one axis or of several, the last of which varies fastest.
struct MappedLoop {
  std::vector<kernel::Symbol> axes;
  tile::Symbol variable = -1;
  tile::Index end;
  int64_t step = 1;
  int stages = 0;
  int64_t prefetch = 1;
  bool bounded = false, stops = false;
  bool unrolled = false;
  bool shared = false, simd = false;
};

// Where blocks that share rows meet (cooperative.hpp).
struct MappedRows {
  std::vector<tile::Symbol> blocks;  // the dimensions of the grid along which they share
  tile::Symbol part = -1;            // a lane for each of a row's blocks; -1: nothing is folded over what blocks share
  int counters = -1, partials = -1;  // buffers, whose shapes lowering knows in the end
};

// The symbols, buffers, grid and launch of a program, without its body; and what each symbol of the kernel stands for.
struct Mapped {
  tile::Program program;
  std::vector<MappedAxis> axes;  // [kernel symbol]; of sizes only `index`
  std::vector<MappedLoop> nest;  // outermost first
  MappedRows shared;
  tile::Consumers consumers;  // that the program has after the step 'run-as-one'
  Scheme scheme = Scheme::kIeee;
  bool narrow_products = false;
  std::vector<bool> bulk;  // [buffer] is it loaded by the bulk copy engine, where it can be?
  bool bulk_stores = false, loads_first = false, serpentine = false, in_order = false;
  tile::Index translate(const kernel::Index& index, bool whole = false) const;
};

// Lanes and loops along the axes that something folds or scans.
std::vector<tile::Symbol> folded_symbols(const kernel::Kernel& kernel, const Mapped& mapped);

Mapped map_axes(const kernel::Kernel& kernel, const KernelSchedule& schedule);

}  // namespace kw::lower
