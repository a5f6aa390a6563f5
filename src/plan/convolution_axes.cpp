#include "plan/convolution_axes.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace kw::plan {

using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

namespace {

constexpr int64_t kWalkers = 1024;  // blocks that look whether there is anything to compute again
constexpr const char* kPhases = "phase_of_filter";
constexpr const char* kTapNames[] = {"tap_slice", "tap_row", "tap_column"};

}  // namespace

ConvolutionAxes::Axes ConvolutionAxes::declare(ScheduledDraft& draft, bool again) const {
  // Most blocks of the second kernel only look at flags: there should not be too many of them, and one of them can
  // look for many.
  const bool walks = again && can_walk(), wide = again && is_large() && !walks;
  const int64_t side = wide ? 128 : 64;  // of a block of the kernel that computes again
  const auto block = [&](int64_t width) { return again ? std::min<int64_t>(width, side) : width; };
  const int64_t own_filters = std::max<int64_t>(next_power_of_two(one_.filters), 16);
  Axes axes;
  axes.group = draft.grid("group", one_.groups);
  // The kernel that computes again has a block for each phase.
  const bool stacks = stacked_ > 0 && (!again || one_.folds_phases());
  const auto declare_rows = [&] {
    if (one_.folds_phases())
      return declare_folded_phases(draft, axes, again ? block(own_filters) : blocks_.filters, again);
    if (one_.folds_filters) return declare_folded_rows(draft, axes, own_filters, stacks);
    lower::AxisSchedule how{.mapping = Mapping::kGrid,
                            .width = block(again ? std::min(blocks_.filters, own_filters) : blocks_.filters)};
    // Parts are of the same places.
    if (again && group_.statistics)
      how.width = std::clamp<int64_t>(side * side / blocks_.positions, 16, std::max<int64_t>(how.width, 16));
    // Where neighbours in memory are of different phases, or of different samples at unknown places.
    if (stacks && one_.dims.back().row_phases() < how.width) how.split = one_.dims.back().row_phases();
    how.last = !again && (how.split > 1 || (!places_first() && !is_of_one_sample()));
    axes.row = symbol_index(draft.mapped(stacks ? row_name() : "filter", stacks ? rows() : one_.filters, how));
  };
  if (!places_first()) declare_rows();
  // A block of a large image lies in one sample: its places follow each other in memory.
  lower::AxisSchedule places{.mapping = Mapping::kGrid, .width = block(blocks_.positions)};
  if (one_.folds_filters && again)
    places.width = std::clamp<int64_t>(side * side / blocks_.filters, 16, blocks_.positions);
  // What makes the image needs registers, too.
  if (again && group_.producer) places.width = std::min<int64_t>(places.width, 64);
  if (is_of_one_sample()) axes.sample = draft.grid("sample", one_.samples);
  declare_places(draft, axes, places);
  if (places_first()) declare_rows();
  // Neighbours of a result are of different phases: the last cache should meet them together.
  const bool is_one = !again && only_phase_ >= 0;
  set_phase(draft, axes,
            is_one ? Index(only_phase_) : draft.grid("phase", stacks ? product(outer_phases()) : one_.phases()),
            stacks);
  const lower::AxisSchedule step{.mapping = Mapping::kLoop,
                                 .width = again ? (wide || walks ? 16 : 32) : blocks_.depth,
                                 .stages = again ? 0 : blocks_.stages};
  const int64_t channels = again ? one_.channels : kept_;
  if (walks_taps(again)) {
    walk_taps(draft, axes, channels, step);
  } else if (walks_rows(again)) {
    walk_tap_rows(draft, axes, step);
  } else {
    axes.summed.push_back(draft.mapped("depth", one_.taps() * channels, step));
    axes.depth = symbol_index(axes.summed.back());
    std::vector<int64_t> bases = taps();
    bases.push_back(channels);
    const Digits at(draft, axes.depth, bases);
    for (size_t dim = 0; dim < dims(); ++dim) axes.tap.push_back(at[dim]);
    axes.channel = at[dims()];
  }
  if (!again) share_images(draft);
  draft.schedule.skip_masked = again;
  if (walks) draft.schedule.walkers = kWalkers;
  if (halves_ && !again) draft.schedule.scheme = lower::Scheme::kFp16x3;
  // Operands of 11 digits leave more open than the last places of what follows.
  draft.schedule.approximate = !again && !halves_;
  // Results that are folded as well: a few registers more than 128 would leave room for fewer blocks (0.85 ms for
  // 0.96). Elsewhere the compiler takes fewer of itself than it would with this limit.
  const int64_t results = blocks_.filters * blocks_.positions / (kWarp * blocks_.warps);
  if (walks_rows(again) && group_.statistics && !halves_ && results <= 32) draft.schedule.max_registers = 128;
  draft.schedule.warps = again ? (wide || group_.producer ? 8 : 4) : blocks_.warps;
  return axes;
}

void ConvolutionAxes::declare_folded_rows(ScheduledDraft& draft, Axes& axes, int64_t width, bool stacks) const {
  axes.row = symbol_index(draft.mapped("filter", one_.filters, {.mapping = Mapping::kTile, .width = width}));
  if (!stacks) return;
  const Symbol phase = draft.mapped(kPhases, rows_of_filter_,
                                    {.mapping = Mapping::kTile, .width = rows_of_filter_, .within = "filter"});
  axes.row = axes.row * Index(rows_of_filter_) + symbol_index(phase);
}

void ConvolutionAxes::declare_folded_phases(ScheduledDraft& draft, Axes& axes, int64_t width, bool again) const {
  lower::AxisSchedule phases{.mapping = Mapping::kTile, .width = rows_of_filter_, .within = "filter"};
  if (again && !one_.keeps_windows) phases = {.mapping = Mapping::kLoop, .width = 1};
  else width = std::max<int64_t>(width / rows_of_filter_, 2);
  axes.row = symbol_index(draft.mapped("filter", one_.filters, {.mapping = Mapping::kGrid, .width = width}));
  axes.window.push_back(draft.mapped(kPhases, rows_of_filter_, phases));
  axes.row = axes.row * Index(rows_of_filter_) + symbol_index(axes.window.back());
}

void ConvolutionAxes::share_images(ScheduledDraft& draft) const {
  constexpr int64_t kMostNeighbours = 16;
  const int64_t blocks = ceil_divide(stacked_ > 0 ? rows() : one_.filters, blocks_.filters);
  if (one_.folds_filters || blocks == 1 || one_.phases() > 1 || counted_places() <= blocks_.positions) return;
  draft.schedule.order = {
      .grouped = "filter", .along = group_.statistics ? "block" : "place", .count = std::min(blocks, kMostNeighbours)};
}

void ConvolutionAxes::declare_places(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const {
  declare_lanes(draft, axes, how);
  if (axes.lane >= 0) axes.lanes.push_back(axes.lane);
  if (one_.window() > 1) {
    axes.window.push_back(
        draft.mapped("window", one_.window(), {.mapping = Mapping::kTile, .width = one_.window(), .within = "place"}));
    axes.copy = symbol_index(axes.window.back());
  }
  if (blocks_.rows == 1) return;
  const Symbol copy = draft.mapped(
      "row_of_thread", blocks_.rows,
      {.mapping = Mapping::kTile, .width = next_power_of_two(blocks_.rows), .unrolled = true});
  axes.copy = symbol_index(copy);
  axes.lanes.push_back(copy);
}

std::vector<kernel::Index> ConvolutionAxes::along_dims(const KernelDraft& draft, const Index& number,
                                                       const Index& copy) const {
  std::vector<int64_t> lengths = places();
  if (counts_positions_) lengths = padded();
  if (one_.window() > 1) {
    const std::vector<int64_t> windows = each([](const ConvolutionDim& dim) { return dim.window; });
    for (size_t dim = 0; dim < dims(); ++dim) lengths[dim] /= windows[dim];
    const Digits of_window(draft, number, lengths), within_window(draft, copy, windows);
    std::vector<Index> along;
    for (size_t dim = 0; dim < dims(); ++dim)
      along.push_back(of_window[dim] * Index(windows[dim]) + within_window[dim]);
    return along;
  }
  if (blocks_.rows > 1) lengths[dims() - 2] = ceil_divide(lengths[dims() - 2], blocks_.rows);
  const Digits digits(draft, number, lengths);
  std::vector<Index> along;
  for (size_t dim = 0; dim < dims(); ++dim) along.push_back(digits[dim]);
  if (blocks_.rows > 1) along[dims() - 2] = along[dims() - 2] * Index(blocks_.rows) + copy;
  return along;
}

void ConvolutionAxes::declare_lanes(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const {
  // Whole blocks of positions: there is memory to read for all of them.
  const int64_t all = counts_positions_ ? ceil_divide(counted_positions(one_), blocks_.positions) * blocks_.positions
                                        : counted_places();
  const auto find = [&](const Index& number, Index& sample, Index& place) {
    if (is_of_one_sample()) {
      sample = axes.sample;
      place = number;
      return;
    }
    const Digits at(draft, number, {one_.samples, places_of_sample()});
    sample = at[0];
    place = at[1];
  };
  if (!group_.statistics) {
    lower::AxisSchedule counted = how;
    if (one_.window() > 1) counted.width = std::max<int64_t>(how.width / one_.window(), 2);
    find(symbol_index(draft.mapped("place", all, counted)), axes.sample, axes.place);
    return;
  }
  const int64_t width = blocks_.positions;
  const Index block = draft.grid("block", ceil_divide(all, width));
  axes.lane = draft.mapped("place", width, {.mapping = Mapping::kTile, .width = width});
  axes.block = block;
  axes.left = Index(all) - block * Index(width);
  const Index place = block * Index(width) + symbol_index(axes.lane);
  find(place, axes.stored_sample, axes.stored_place);
  find(all % width == 0 ? place : kernel::modulo(place, all, kernel::ranges_of(draft.build.kernel())), axes.sample,
       axes.place);
}

void ConvolutionAxes::set_phase(const KernelDraft& draft, Axes& axes, const Index& counted, bool stacks) const {
  if (stacks) {
    axes.phase = counted;
    axes.filter = filter_of(draft, axes.row);
    axes.phases = phases_of(draft, axes.phase, axes.row);
    return;
  }
  axes.filter = axes.row;
  const Digits along(draft, counted, phases());
  for (size_t dim = 0; dim < dims(); ++dim) {
    axes.phases.push_back(along[dim]);
    if (dim + stacked_ < dims()) axes.phase = axes.phase * Index(one_.dims[dim].phases) + along[dim];
    else axes.row = axes.row * Index(one_.dims[dim].row_phases()) + along[dim];
  }
}

bool ConvolutionAxes::places_first() const {
  return blocks_.filters < 64 || one_.folds_filters || (one_.folds_phases() && !one_.keeps_windows);
}

bool ConvolutionAxes::is_large() const {
  constexpr int64_t kManyBlocks = 1 << 12;  // of 64 by 64
  return one_.phases() * one_.groups * ceil_divide(one_.filters, 64) * ceil_divide(one_.samples * one_.places(), 64) >
         kManyBlocks;
}

ConvolutionDim::Taps ConvolutionAxes::taps_along(size_t dim) const {
  const ConvolutionDim& along = one_.dims[dim];
  if (only_phase_ < 0 || dim + stacked_ >= dims()) return {.first = 0, .count = along.taps};
  const std::vector<int64_t> phases = outer_phases();
  const int64_t closer = std::accumulate(phases.begin() + static_cast<int64_t>(dim) + 1, phases.end(), int64_t{1},
                                         std::multiplies<>());
  return along.taps_of(only_phase_ / closer % along.phases);
}

void ConvolutionAxes::walk_taps(ScheduledDraft& draft, Axes& axes, int64_t channels,
                                const lower::AxisSchedule& step) const {
  std::vector<std::string> loop;
  // Rows last, where a thread has several of them: one tap's window of rows is in registers at a time.
  const bool rows_last = blocks_.rows > 1 && one_.dims[dims() - 2].taps > 1;
  const std::string rows = kTapNames[1];
  const auto walk = [&](const std::string& name, int64_t extent, const lower::AxisSchedule& how) {
    loop.push_back(name);
    axes.summed.push_back(draft.mapped(name, extent, how));
    return symbol_index(axes.summed.back());
  };
  for (size_t dim = 0; dim < dims(); ++dim) {
    const ConvolutionDim::Taps taps = taps_along(dim);
    const bool is_unrolled = step.unrolled || (rows_last && dim + 2 == dims());
    Index tap = taps.first;
    if (taps.count > 1)
      tap = tap + walk(kTapNames[3 - dims() + dim], taps.count,
                       {.mapping = Mapping::kLoop, .width = 1, .unrolled = is_unrolled});
    axes.tap.push_back(std::move(tap));
  }
  axes.channel = channels == 1 && !axes.summed.empty() ? Index(0) : walk("channel", channels, step);
  for (size_t dim = 0; dim < dims(); ++dim) axes.depth = axes.depth * Index(one_.dims[dim].taps) + axes.tap[dim];
  axes.depth = axes.depth * Index(channels) + axes.channel;
  if (rows_last) std::erase(loop, rows);
  if (rows_last && step.unrolled) loop.push_back(rows);
  draft.schedule.nest.clear();
  const bool walks_phases = std::any_of(axes.window.begin(), axes.window.end(), [&](Symbol symbol) {
    return draft.schedule.axes[symbol].mapping == Mapping::kLoop;
  });
  if (walks_phases) draft.schedule.nest.push_back({kPhases});
  if (!loop.empty()) draft.schedule.nest.push_back(loop);
  if (rows_last && !step.unrolled) draft.schedule.nest.push_back({rows});
}

void ConvolutionAxes::walk_tap_rows(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& step) const {
  std::vector<std::string> loop;
  const auto walk = [&](const std::string& name, int64_t extent, const lower::AxisSchedule& how) {
    loop.push_back(name);
    axes.summed.push_back(draft.mapped(name, extent, how));
    return symbol_index(axes.summed.back());
  };
  for (size_t dim = 0; dim + 1 < dims(); ++dim) {
    const int64_t taps = one_.dims[dim].taps;
    axes.tap.push_back(taps == 1 ? Index(0)
                                 : walk(kTapNames[3 - dims() + dim], taps, {.mapping = Mapping::kLoop, .width = 1}));
    axes.depth = axes.depth * Index(taps) + axes.tap.back();
  }
  const int64_t length = one_.dims.back().taps * kept_;
  const Index depth = walk("depth", length, step);
  const Digits at(draft, depth, {one_.dims.back().taps, kept_});
  axes.tap.push_back(at[0]);
  axes.channel = at[1];
  axes.depth = axes.depth * Index(length) + depth;
  draft.schedule.nest = {loop};
}

}  // namespace kw::plan
