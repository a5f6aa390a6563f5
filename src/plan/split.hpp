// Long reductions over few rows, in two kernels: partial results of every part of a row, then what combines them.
#pragma once

#include <optional>

#include "plan/scheduler.hpp"

namespace kw::plan {

// The number of a point of the parallel axes, the last of them the fastest.
Index number_of_row(const GroupKernel& kernel);

// Of each reduction the expression that stands for all its components, in order; and how many components it has.
std::vector<ExprId> first_reductions(const GroupKernel& kernel);

// No reduction needs another's result.
bool reductions_are_independent(const GroupKernel& kernel);

// Can every reduction of the group be taken apart (no positions, none that needs another's result), and into how many
// parts per row, given the wanted number of parts? 1: leave it whole. The axes must be ordered and coalesced.
struct SplitChoice {
  int axis = -1;  // the reduce axis that is cut
  int64_t parts = 1;
  int64_t length = 1;  // of each part, but the last may be shorter
};
SplitChoice choose_split(const GroupKernel& kernel, int64_t wanted_parts);

// The group's kernels with raw axes: the partial kernel first, then those that finish. Reduce axes of the later kernels
// run over the parts. Full-size results either combine their row's parts themselves, or, with `through_statistics`,
// read what a kernel in between made of them: worth a launch where a program's columns belong to many rows. nullopt
// when the cut cannot be expressed.
struct SplitKernels {
  std::vector<Scratch> scratch;
  LoweredGroup partial;              // its stores go to scratch
  std::vector<LoweredGroup> finish;  // in order; those without reduce axes are pointwise
};
std::optional<SplitKernels> split_reduction(const LoweredGroup& group, SplitChoice choice, bool through_statistics);

// Parts that another kernel has made, of which every `period`-th, the last in memory order of its period, may be
// shorter: it has `last` elements. Or each has as many as a scratch tensor says, perhaps none.
struct MadeParts {
  int64_t count = 1;  // of a row
  int64_t length = 1, last = 1;
  int64_t period = 1;
  // Of the group's folds, in their order, a scratch tensor of [row][part] for each component, or of [part][row].
  std::vector<std::vector<int>> folds;
  bool outermost = false;  // [part][row]
  int elements = -1;       // such a tensor of [row][part]; −1: there is none
};
// The group's stores that do not run along its reduce axes, whose folds combine those parts: a kernel with one reduce
// axis, the parts, and raw axes.
LoweredGroup combine_parts(const LoweredGroup& group, const MadeParts& parts, const std::vector<Scratch>& scratch);

// In the kernels above, buffer value −1 − k stands for scratch k.

}  // namespace kw::plan
