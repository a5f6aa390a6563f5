// KernelSchedule: how a kernel's axes are mapped to blocks, tiles and loops. Plain data; in JSON, by example:
//
//   {"row": {"grid": 16}, "column": {"tile": 4096}, "warps": 8}
//   {"m": {"grid": 128}, "n": {"grid": 128}, "k": {"loop": 64, "stages": 4}, "order": {"grouped": "m", "along": "n",
//   "count": 8}}
//   {"head": {"grid": 1}, "query": {"grid": 128}, "key": {"loop": 64, "online": true}, "feature": {"tile": 128},
//   "warps": 8}
//
// Every axis of the kernel has exactly one mapping:
//   grid    blocks share it out, `grid` points each
//   tile    each block has it whole, in a tile of that width (at least its extent); `unrolled`, each point has tiles of
//           its own, and what several points need alike is loaded and computed once (src/lower/unrolled_tiles.hpp)
//   loop    each block walks it, that many points at a time; `stages` iterations' loads are in flight; with `online`,
//           a maximum and what scales with its exponential are folded in one walk; with `bounded`, it ends where a mask
//           leaves nothing to fold (causal attention); with `stops`, where the data say so, if they do (bags of rows);
//           `unrolled`, its iterations stand one behind the other
// Blocks that share out a folded axis are `cooperative`: each folds its own part, writes that down, waits for the
// others of its row, and folds what all of them wrote (cooperative.hpp). What a block holds of the row stays in
// registers meanwhile. All axes of such a fold are shared out so, and nothing is looped over.
// With `network` a scan's products are multiplied in one order (ScanWay::kNetwork): what overflows depends on the width
// alone. With `in_order` a scan's elements are taken one after the other, behind what the blocks before have met
// (ScanWay::kAfter), as a CPU does. With `prefetch` so many iterations of a loop load what they need before the first
// of them (prefetch.hpp). Behind a product a grid's or a tile's lanes may be the `last` dimension of tiles, {"grid":
// 128, "last": true}, where what is stored lies side by side along the others, and besides `split` in two, the quotient
// and the remainder by a number, {"grid": 128, "split": 2, "last": true}, where neighbours in memory differ in the
// remainder first. The other way round, {"tile": 4, "within": "unit"}, the lanes of two axes are one dimension in
// products, this one's the faster (the gates of a recurrent layer's units), and two everywhere else. With `in_order`
// points that data send to one element store there one after the other, as loops go, and nothing is atomic; with
// `owners` besides, each thread has a range of the places, walks all points and stores those of its own (owners.hpp),
// where there are at least so many threads. For a CPU, a loop whose iterations threads share has `threads`: loops
// directly inside one another that have it are shared together. The axis with `simd` is taken side by side: the
// iterations of its loop, or, where that has several points each, its lanes. Of a tile with `threads` each thread folds
// its part. Widths are powers of two. `nest` lists looped axes, outermost first, where it is not the kernel's order; a
// list in it
// ([["dy", "dx", "channel"]]) is walked by one loop, so that loads of the next step are in flight across all of them.
// `scheme` says how products of f32 tiles are made that must be as exact as f32:
//   ieee    on the cores for f32
//   fp16x3  by three products of halves on tensor cores: each operand is the sum of a half and of what that lacks, as a
//           half, too; the small products come first, and each iteration's sum is added to the total in f32. Nothing
//           is scaled here: a kernel whose numbers may be beyond 65504 scales them, as the planner's do (each row's)
// With `bulk` the bulk copy engine loads what is a box of a buffer (src/tile/box.hpp), with `bulk_stores` it stores it;
// `operands`, {"w": "pointers"}, says otherwise of single inputs.
// With `skip_masked` a block of which no store's mask holds does nothing else (src/lower/skip_masked.hpp); with
// `walkers`, about so many blocks are started, each of which walks along an axis of the grid where the masks may hold
// (src/lower/walkers.hpp). With `loads_first` what a block needs behind its loops, or in a later one, is loaded before
// them, and is there when they end. `approximate` says that results are rounded to so few bits, or made of operands
// with so few, that functions may be a few places of their last digit off. With `consumers`, {"along": "m", "count":
// 2}, so many blocks that are neighbours along that axis run as one, and a warp of its own copies what they multiply
// (src/tile/consumers.hpp); with `programs` among them, so many programs are started, each of which does one pair after
// another; without `along` a program's consumers take its blocks in turn, so that one stores while the other
// multiplies. `cache_hints` has loads say what other blocks, or a later walk, will read again
// (src/lower/cache_hints.hpp). With `narrow_products` tiles are multiplied as such also where a side has fewer than the
// 16 points that tensor cores want. With `serpentine` a walk that reads what the one before it read goes the other way
// (src/lower/serpentine.hpp).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/kernel.hpp"

namespace kw::lower {

enum class Mapping { kGrid, kTile, kLoop };
enum class Scheme { kIeee, kFp16x3 };

struct AxisSchedule {
  Mapping mapping = Mapping::kGrid;
  int64_t width = 1;  // points of a block, a tile, or an iteration
  int stages = 0;     // 0: as the compiler likes
  bool online = false;
  bool bounded = false;
  bool stops = false;
  bool network = false;
  bool in_order = false;
  int64_t prefetch = 1;
  bool unrolled = false;
  bool threads = false;
  bool simd = false;
  bool last = false;
  int64_t split = 1;
  std::string within = {};  // an axis that comes before; empty: none
  bool cooperative = false;
  bool operator==(const AxisSchedule&) const = default;
};

// Of an input: its tiles are loaded to shared memory by the bulk copy engine, where they are boxes, or by each thread.
enum class Loading { kBulk, kPointers };

struct OrderSchedule {
  std::string grouped, along;  // axes; empty: the grid's own order
  int64_t count = 1;
  bool operator==(const OrderSchedule&) const = default;
};

struct ConsumersSchedule {
  std::string along = {};  // an axis that blocks share out; empty: they take blocks in turn
  int64_t count = 1;
  int64_t programs = 0;
  bool operator==(const ConsumersSchedule&) const = default;
};

// Launches that a run-time size counts, as one launch whose blocks walk them (steps_inside.hpp).
struct StepsInside {
  std::string size = {};  // empty: none
  int64_t count = 1;
  std::vector<std::pair<std::string, std::string>> same = {};  // buffers that are the same memory: read, written
  bool operator==(const StepsInside&) const = default;
};

struct KernelSchedule {
  std::vector<AxisSchedule> axes;  // [place among the kernel's axes]
  // Looped axes, outermost first, those of one loop together; empty: as the kernel has them, each with its own.
  std::vector<std::vector<std::string>> nest;
  OrderSchedule order;
  ConsumersSchedule consumers;
  StepsInside steps_inside;
  Scheme scheme = Scheme::kIeee;
  std::vector<std::pair<std::string, Loading>> operands;  // inputs that are not loaded as `bulk` says, in their order
  bool bulk = false;         // tiles of two and more dimensions are loaded by the bulk copy engine where they are boxes
  bool bulk_stores = false;  // and stored so
  bool skip_masked = false;  // blocks that would store nothing stop early
  int64_t walkers = 0;       // blocks that are started, with skip_masked; 0: all
  bool loads_first = false;  // also loads that only what follows the loops needs
  bool cache_hints = false;  // loads along folded axes say what the cache should keep
  bool serpentine = false;   // a walk over what the walk before has read turns round
  bool approximate = false;  // functions may be a few places of their last digit off
  bool wide_accesses = false;    // elements side by side are read and written together
  bool in_order = false;         // scatters store in the order of their points
  bool narrow_products = false;  // products of tiles may have sides of fewer than 16 points
  int owners = 0;                // threads from which on each owns a range of the places; 0: one thread has them all
  int warps = 4;
  int max_registers = 0;  // a thread may take; 0: as many as the compiler likes
  bool operator==(const KernelSchedule&) const = default;
};

// A GPU's lanes are powers of two; what a CPU's loops walk may be as wide as its axis.
enum class Widths { kPowersOfTwo, kAny };

// Throws kUser that names what is unknown, missing, misspelt or out of range.
KernelSchedule parse_schedule(std::string_view text, const kernel::Kernel& kernel,
                              Widths widths = Widths::kPowersOfTwo);
KernelSchedule parse_schedule(const nlohmann::ordered_json& json, const kernel::Kernel& kernel,
                              Widths widths = Widths::kPowersOfTwo);
// Axes in the kernel's order, what is not its default only: one text for one schedule.
nlohmann::ordered_json to_json(const KernelSchedule& schedule, const kernel::Kernel& kernel);

}  // namespace kw::lower
