// The axes of a convolution's kernels, and how they are scheduled: samples, filters, places, phases, taps and channels.
#pragma once

#include <string>
#include <vector>

#include "plan/convolution_statistics.hpp"

namespace kw::plan {

constexpr int64_t kMostFlags = 4096;  // of samples, that each block that computes again reads
constexpr int64_t kTapDepth = 32;     // channels from which each tap is a loop's step, or several

class ConvolutionAxes : protected ConvolutionStatistics {
 protected:
  ConvolutionAxes(const LoweredGroup& group, const ConvolutionBlocks& blocks) : ConvolutionStatistics(group, blocks) {}

  struct Axes {
    Index group, sample;
    Index phase;                 // the number of the outer ones
    Index row;                   // of a group: a filter in a phase of the inner ones
    Index filter;                // of a group
    std::vector<Index> phases;   // along each dimension
    Index place;                 // of a phase, all dimensions as one; one of its places where a thread has several rows
    Index copy;                  // which of them; where what follows folds windows, which place of one
    std::vector<Symbol> window;  // counts those, and a place's phases where these are folded
    std::vector<Symbol> lanes;   // of a group with statistics: what its folds run over, this place and those rows
    // Of a group with statistics: the number of the block along places, the lanes that it folds, how many of them
    // count, and the sample and place of each, were there always so many; sample and place above are then others that
    // exist.
    Index block, stored_sample, stored_place;
    Symbol lane = -1;
    Index left;              // of places
    std::vector<Index> tap;  // along each dimension
    Index channel;
    Index depth;                 // taps and channels as one
    std::vector<Symbol> summed;  // what the sum is over
  };

  // Are there enough channels for a step of the loop to be of one tap? The kernel in f32 does so always.
  bool walks_taps(bool again) const { return again || (kept_ >= kTapDepth && kept_ % blocks_.depth == 0); }

  // Is a step of the loop one row of taps, with the few channels of each? Its elements lie side by side in memory.
  bool walks_rows(bool again) const { return !again && !walks_taps(again) && blocks_.depth == depth_of_tap_row(one_); }

  Axes declare(ScheduledDraft& draft, bool again) const;

  // A block has all filters. Phases among the rows stand beside them: a fold over rows would fold these, too.
  void declare_folded_rows(ScheduledDraft& draft, Axes& axes, int64_t width, bool stacks) const;

  // Phases stand beside the filters. Computed again they are walked: of what is not finite one phase has a tap that
  // another lacks. Not where all that is folded is stored: then what is folded is NaN for all phases if it is for one.
  void declare_folded_phases(ScheduledDraft& draft, Axes& axes, int64_t width, bool again) const;

  // Blocks of the same places follow each other, with some filters each: the last cache has the image for them.
  void share_images(ScheduledDraft& draft) const;

  // Along places; where a block has some of every sample, along samples and places.
  void declare_places(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const;

  // The place along each dimension, of the number of one, or of a window and a point of it.
  std::vector<Index> along_dims(const KernelDraft& draft, const Index& number, const Index& copy) const;

  void declare_lanes(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const;

  // From what the grid counts: the outer phases, with rows that are filters in inner ones; or all phases, with filters.
  void set_phase(const KernelDraft& draft, Axes& axes, const Index& counted, bool stacks) const;

  // Can a block tell from few flags that there is nothing to compute again, wherever it walks?
  bool can_walk() const { return is_of_one_sample() || one_.samples <= kMostFlags; }

  // Tensor cores want 64 rows at least, and any number of columns. Few threads share a row: it is soon folded.
  bool places_first() const;

  bool is_large() const;

  // Of the window along a dimension, those that the kernel walks.
  ConvolutionDim::Taps taps_along(size_t dim) const;

  // Axes of taps and channels, walked by one loop.
  void walk_taps(ScheduledDraft& draft, Axes& axes, int64_t channels, const lower::AxisSchedule& step) const;

  // Axes of the taps of all dimensions but the last, walked by one loop, and of those of the last with their channels.
  void walk_tap_rows(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& step) const;

  bool counts_positions_ = false;  // the kernel that is being made: can_count_positions()
  int64_t only_phase_ = -1;        // of that outer phase alone; −1: of all
};

}  // namespace kw::plan
