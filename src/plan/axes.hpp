// Rewrites of a kernel's axes that keep its meaning: reorder, merge, flatten, split, name. Schedulers are written with
// them.
#pragma once

#include <string>
#include <vector>

#include "plan/group_kernel.hpp"
#include "plan/index_math.hpp"

namespace kw::plan {

// Replaces the axes by `axes`, of which so many are parallel, and every old axis by the index over the new ones; false
// (kernel unchanged) when that cannot be expressed. A scanned axis stays one.
bool replace_axes(GroupKernel& kernel, std::vector<kernel::SymbolInfo> axes, int parallel,
                  const std::vector<Index>& replacement);

// Merges all neighbours that every access walks as one.
void coalesce(GroupKernel& kernel);

// Outermost first by stride of the most important access, within the parallel and within the reduce axes (which stay
// where a position along them is asked for: argmax).
void order_by_stride(GroupKernel& kernel);

// Puts the axes along which points of a scatter may meet in one element behind the parallel ones, in their order.
void put_meeting_axes_last(GroupKernel& kernel);

// Turns the scan axis round where most of what is read and written lies the other way: memory is then walked as it
// lies, and the scans are reversed.
void face_forwards(GroupKernel& kernel);

// Makes the axes [first, last] one axis, with divisions and remainders in the accesses. False when that cannot be
// expressed.
bool flatten(GroupKernel& kernel, int first, int last);

// Splits reduce axis `axis` into a parallel axis of `parts` (behind the other parallel axes) and one of `length`. Where
// the last part is shorter than that, loads and Reduces are guarded; Reduces must then be simple folds.
bool split_off_parallel(GroupKernel& kernel, int axis, int64_t parts, int64_t length);

// Readable names: "row", "column", "batch", "element" …; an axis of extent 1 is added when there is no parallel one.
void name_axes(GroupKernel& kernel);

// All loads and stores, each with the bytes that it moves (its element size times the points it visits).
struct Traffic {
  const Access* access = nullptr;
  bool is_store = false;
  int64_t bytes = 0;
  int64_t element_size = 4;
};
std::vector<Traffic> traffic_of(const GroupKernel& kernel);  // largest first; stores before loads of equal size

int64_t parallel_points(const GroupKernel& kernel);
int64_t reduce_points(const GroupKernel& kernel);
bool stores_over_reduce_axes(const GroupKernel& kernel);

}  // namespace kw::plan
