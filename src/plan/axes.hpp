// Rewrites of a kernel's axes that keep its meaning: reorder, merge, flatten, split, name. Schedulers are written with
// them.
#pragma once

#include <string>
#include <vector>

#include "plan/flat_kernel.hpp"
#include "plan/index_math.hpp"

namespace kw::plan {

// Replaces the axes by `axes` and every old axis by the index over the new ones; false (kernel unchanged) when that
// cannot be expressed.
bool replace_axes(flat::Kernel& kernel, std::vector<flat::Axis> axes, const std::vector<Index>& replacement);

// Merges all neighbours that every access walks as one.
void coalesce(flat::Kernel& kernel);

// Outermost first by stride of the most important access, within the parallel and within the reduce axes (which stay
// where a position along them is asked for: argmax).
void order_by_stride(flat::Kernel& kernel);

// Makes the axes along which points of a Scatter may meet in one element reduce axes, in their order.
void put_meeting_axes_last(flat::Kernel& kernel);

// Turns the scan axis round where most of what is read and written lies the other way: memory is then walked as it
// lies, and the axis is reversed.
void face_forwards(flat::Kernel& kernel);

// Makes the axes [first, last] one axis, with divisions and remainders in the accesses. False when that cannot be
// expressed.
bool flatten(flat::Kernel& kernel, int first, int last);

// Splits reduce axis `axis` into a parallel axis of `parts` (behind the other parallel axes) and one of `length`. Where
// the last part is shorter than that, loads and Reduces are guarded; Reduces must then be simple folds.
bool split_off_parallel(flat::Kernel& kernel, int axis, int64_t parts, int64_t length);

// Readable names: "row", "column", "batch", "element" …; an axis of extent 1 is added when there is no parallel one.
void name_axes(flat::Kernel& kernel);

// Does the access depend on the axis at all?
bool uses_axis(const flat::Access& access, int axis);

// All loads and stores, each with the bytes that it moves (its element size times the points it visits).
struct Traffic {
  const flat::Access* access = nullptr;
  bool is_store = false;
  int64_t bytes = 0;
  int64_t element_size = 4;
};
std::vector<Traffic> traffic_of(const flat::Kernel& kernel);  // largest first; stores before loads of equal size

int parallel_axes(const flat::Kernel& kernel);
int64_t parallel_points(const flat::Kernel& kernel);
int64_t reduce_points(const flat::Kernel& kernel);
bool stores_over_reduce_axes(const flat::Kernel& kernel);

}  // namespace kw::plan
