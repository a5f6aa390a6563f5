#include "plan/convolution_kernels.hpp"

#include <algorithm>
#include <numeric>

#include "plan/convolution_statistics.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

constexpr int64_t kWalkers = 1024;    // blocks that look whether there is anything to compute again
constexpr int64_t kMostFlags = 4096;  // of samples, that each of them reads
constexpr const char* kPhases = "phase_of_filter";
constexpr const char* kTapNames[] = {"tap_slice", "tap_row", "tap_column"};
constexpr int64_t kTapDepth = 32;  // channels from which each tap is a loop's step, or several

class ConvolutionKernels : ConvolutionStatistics {
 public:
  ConvolutionKernels(const LoweredGroup& group, const ConvolutionBlocks& blocks)
      : ConvolutionStatistics(group, blocks) {}

  ScheduledGroup run() {
    if (group_.statistics) declare_parts();
    if (one_.is_direct()) {
      sum_directly();
    } else {
      if (scaled_) find_scales();
      arrange_image();
      arrange_filters();
      convolve(false);
      if (scaled_) convolve(true);
    }
    if (group_.statistics) combine();
    return std::move(result_);
  }

 private:
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

  Axes declare(ScheduledDraft& draft, bool again) const {
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
    set_phase(draft, axes, draft.grid("phase", stacks ? product(outer_phases()) : one_.phases()), stacks);
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

  // A block has all filters. Phases among the rows stand beside them: a fold over rows would fold these, too.
  void declare_folded_rows(ScheduledDraft& draft, Axes& axes, int64_t width, bool stacks) const {
    axes.row = symbol_index(draft.mapped("filter", one_.filters, {.mapping = Mapping::kTile, .width = width}));
    if (!stacks) return;
    const Symbol phase = draft.mapped(kPhases, rows_of_filter_,
                                      {.mapping = Mapping::kTile, .width = rows_of_filter_, .within = "filter"});
    axes.row = axes.row * Index(rows_of_filter_) + symbol_index(phase);
  }

  // Phases stand beside the filters. Computed again they are walked: of what is not finite one phase has a tap that
  // another lacks. Not where all that is folded is stored: then what is folded is NaN for all phases if it is for one.
  void declare_folded_phases(ScheduledDraft& draft, Axes& axes, int64_t width, bool again) const {
    lower::AxisSchedule phases{.mapping = Mapping::kTile, .width = rows_of_filter_, .within = "filter"};
    if (again && !one_.keeps_windows) phases = {.mapping = Mapping::kLoop, .width = 1};
    else width = std::max<int64_t>(width / rows_of_filter_, 2);
    axes.row = symbol_index(draft.mapped("filter", one_.filters, {.mapping = Mapping::kGrid, .width = width}));
    axes.window.push_back(draft.mapped(kPhases, rows_of_filter_, phases));
    axes.row = axes.row * Index(rows_of_filter_) + symbol_index(axes.window.back());
  }

  // Blocks of the same places follow each other, with some filters each: the last cache has the image for them.
  void share_images(ScheduledDraft& draft) const {
    constexpr int64_t kMostNeighbours = 16;
    const int64_t blocks = ceil_divide(stacked_ > 0 ? rows() : one_.filters, blocks_.filters);
    if (one_.folds_filters || blocks == 1 || one_.phases() > 1 || counted_places() <= blocks_.positions) return;
    draft.schedule.order = {.grouped = "filter",
                            .along = group_.statistics ? "block" : "place",
                            .count = std::min(blocks, kMostNeighbours)};
  }

  // Along places; where a block has some of every sample, along samples and places.
  void declare_places(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const {
    declare_lanes(draft, axes, how);
    if (axes.lane >= 0) axes.lanes.push_back(axes.lane);
    if (one_.window() > 1) {
      axes.window.push_back(draft.mapped("window", one_.window(),
                                         {.mapping = Mapping::kTile, .width = one_.window(), .within = "place"}));
      axes.copy = symbol_index(axes.window.back());
    }
    if (blocks_.rows == 1) return;
    const Symbol copy = draft.mapped(
        "row_of_thread", blocks_.rows,
        {.mapping = Mapping::kTile, .width = next_power_of_two(blocks_.rows), .unrolled = true});
    axes.copy = symbol_index(copy);
    axes.lanes.push_back(copy);
  }

  // The place along each dimension, of the number of one, or of a window and a point of it.
  std::vector<Index> along_dims(const KernelDraft& draft, const Index& number, const Index& copy) const {
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

  void declare_lanes(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& how) const {
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

  // From what the grid counts: the outer phases, with rows that are filters in inner ones; or all phases, with filters.
  void set_phase(const KernelDraft& draft, Axes& axes, const Index& counted, bool stacks) const {
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

  // Can a block tell from few flags that there is nothing to compute again, wherever it walks?
  bool can_walk() const { return is_of_one_sample() || one_.samples <= kMostFlags; }

  // Tensor cores want 64 rows at least, and any number of columns. Few threads share a row: it is soon folded.
  bool places_first() const {
    return blocks_.filters < 64 || one_.folds_filters || (one_.folds_phases() && !one_.keeps_windows);
  }

  bool is_large() const {
    constexpr int64_t kManyBlocks = 1 << 12;  // of 64 by 64
    return one_.phases() * one_.groups * ceil_divide(one_.filters, 64) * ceil_divide(one_.samples * one_.places(), 64) >
           kManyBlocks;
  }

  // The convolution and what follows it. `again`: from the operands themselves, in TF32, where halves do not hold them.
  void convolve(bool again) {
    ScheduledDraft draft(group_.kernel.name + (!again    ? ""
                                               : halves_ ? "_in_f32"
                                                         : "_in_tf32"),
                         again ? "The same from the operands themselves, where halves do not hold a sample or a filter."
                               : group_.kernel.doc);
    counts_positions_ = !again && blocks_.consumers > 1;
    const Axes axes = declare(draft, again);
    kernel::Builder& build = draft.build;
    const std::vector<Index> place = along_dims(draft, axes.place, axes.copy);

    ExprId left = again ? own_filter(draft, axes) : arranged_filter(draft, axes),
           right = again ? own_image(draft, axes, place) : arranged_image(draft, axes, place);
    if (places_first()) std::swap(left, right);
    // Tensor cores cut the digits that TF32 has not, where cuDNN rounds them.
    if (again && !halves_)
      for (ExprId* operand : {&left, &right}) *operand = build.op(ScalarOp::kRoundTf32, {*operand});
    ExprId sum = build.dot(left, right, axes.summed,
                           again && !halves_ ? kernel::Precision::kTf32 : kernel::Precision::kFull);
    if (counts_positions_) {
      draft.schedule.bulk = true;
      draft.schedule.consumers = {"", blocks_.consumers, blocks_.programs};
    }
    if (scaled_ && !again) {
      const ExprId of_image = sample_number(draft, "image_scale", DType::f32, image_scale_, axes.sample),
                   of_filter = filter_number(draft, "filter_scale", DType::f32, filter_scale_, axes);
      // The smaller first: no step leaves the range of f32 where the result does not.
      sum = build.op(ScalarOp::kMul, {sum, build.op(ScalarOp::kMinimum, {of_image, of_filter})});
      sum = build.op(ScalarOp::kMul, {sum, build.op(ScalarOp::kMaximum, {of_image, of_filter})});
    }
    finish_sum(draft, axes, place, sum, again ? draft.named("has_no_halves", flagged(draft, axes)) : kernel::kNoExpr);
  }

  // Bias, what follows, and the stores.
  void finish_sum(ScheduledDraft& draft, const Axes& axes, const std::vector<Index>& place, ExprId sum, ExprId mask) {
    kernel::Builder& build = draft.build;
    const Index row = axes.group * Index(one_.filters) + axes.filter;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    if (one_.bias) {
      const int bias = draft.buffer(one_.bias->name, one_.bias->dtype, {one_.groups * one_.filters}, {one_.bias->row},
                                    kernel::BufferRole::kInput, one_.bias->root, one_.bias->offset);
      sum = build.op(ScalarOp::kAdd, {sum, build.cast(DType::f32, draft.load(bias, {row}))});
    }
    Index position = 0, stored = 0;
    std::vector<Index> outputs = {axes.sample, row};
    ExprId exists = kernel::kNoExpr;
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      const Index output = place[at] * Index(dim.phases) + axes.phases[at] - Index(dim.crop);
      exists = build.both(exists,
                          build.both(within(draft, axes.phases[at], dim.phases), within(draft, output, dim.output)));
      stored = stored * Index(dim.output) + output;
      // What follows may load by position: those that are not stored are called by others that exist.
      outputs.push_back(kernel::modulo(output + Index(dim.crop > 0 ? dim.output : 0), dim.output, ranges));
      position = position * Index(dim.output) + outputs.back();
    }
    if (one_.phases() == 1 && blocks_.rows == 1 && !counts_positions_) position = stored = axes.place;
    const ExprId result = build.cast(one_.image.dtype, sum);
    if (!axes.window.empty()) {
      store_results(draft, group_, outputs, result, build.both(mask, exists), {}, axes.window);
    } else if (!group_.statistics) {
      store_results(draft, group_, {axes.sample, row, position}, result, build.both(mask, exists),
                    {axes.sample, row, stored});
    } else {
      const ExprId counts = build.both(
          within(draft, Index(counted_places()) - axes.left + symbol_index(axes.lane), counted_places()), exists);
      const std::vector<Index> at = one_.phases() > 1
                                        ? std::vector<Index>{axes.sample, row, stored}
                                        : std::vector<Index>{axes.stored_sample, row, stored_position(draft, axes)};
      const std::vector<ExprId> folded = store_results(draft, group_, {axes.sample, row, position}, result,
                                                       build.both(mask, counts), at);
      store_parts(draft,
                  {.sample = axes.sample,
                   .filter = row,
                   .row = axes.row,
                   .phase = axes.phase,
                   .block = axes.block,
                   .left = axes.left,
                   .lanes = axes.lanes},
                  folded, counts, mask);
    }
    finish(draft, draft.schedule);
  }

  // Of a group with statistics, there may be no such one.
  Index stored_position(const KernelDraft& draft, const Axes& axes) const {
    if (blocks_.rows == 1) return axes.stored_place;
    const std::vector<Index> place = along_dims(draft, axes.stored_place, axes.copy);
    Index stored = 0;
    for (size_t at = 0; at < dims(); ++at) stored = stored * Index(one_.dims[at].output) + place[at];
    return stored;
  }

  // Each result's few products, added one after another.
  void sum_directly() {
    ScheduledDraft draft(group_.kernel.name, group_.kernel.doc);
    Axes axes;
    axes.sample = draft.grid("sample", one_.samples);
    axes.group = draft.grid("group", one_.groups);
    axes.row = draft.grid("filter", one_.filters);
    declare_places(draft, axes, {.mapping = Mapping::kGrid, .width = blocks_.positions});
    set_phase(draft, axes, draft.grid("phase", one_.phases()), false);
    // So that the taps' loads are all in flight.
    const bool is_short = one_.taps() * one_.channels <= tile::kMostUnrolled;
    walk_taps(draft, axes, one_.channels, {.mapping = Mapping::kLoop, .width = 1, .unrolled = is_short});
    draft.schedule.warps = blocks_.warps;
    const std::vector<Index> place = along_dims(draft, axes.place, axes.copy);
    kernel::Builder& build = draft.build;
    const ExprId image = build.cast(DType::f32, own_image(draft, axes, place)),
                 filter = build.cast(DType::f32, own_filter(draft, axes));
    const ExprId sum = build.dot(image, filter, axes.summed);
    finish_sum(draft, axes, place, sum, kernel::kNoExpr);
  }

  // Axes of taps and channels, walked by one loop.
  void walk_taps(ScheduledDraft& draft, Axes& axes, int64_t channels, const lower::AxisSchedule& step) const {
    std::vector<std::string> loop;
    // Rows last, where a thread has several of them: one tap's window of rows is in registers at a time.
    const bool rows_last = blocks_.rows > 1 && one_.dims[dims() - 2].taps > 1;
    const std::string rows = kTapNames[1];
    const auto walk = [&](const std::string& name, int64_t extent, const lower::AxisSchedule& how) {
      loop.push_back(name);
      axes.summed.push_back(draft.mapped(name, extent, how));
      return symbol_index(axes.summed.back());
    };
    for (size_t dim = 0; dim < dims(); ++dim)
      axes.tap.push_back(one_.dims[dim].taps == 1
                             ? Index(0)
                             : walk(kTapNames[3 - dims() + dim], one_.dims[dim].taps,
                                    {.mapping = Mapping::kLoop,
                                     .width = 1,
                                     .unrolled = step.unrolled || (rows_last && dim + 2 == dims())}));
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

  // Axes of the taps of all dimensions but the last, walked by one loop, and of those of the last with their channels.
  void walk_tap_rows(ScheduledDraft& draft, Axes& axes, const lower::AxisSchedule& step) const {
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

  ExprId arranged_filter(KernelDraft& draft, const Axes& axes) const {
    return load_halves(draft, one_.weight.name, filters_shape(), {}, filters_, filters_rest_,
                       {axes.phase, axes.group, axes.row, axes.depth}, kernel::kNoExpr);
  }

  ExprId arranged_image(KernelDraft& draft, const Axes& axes, const std::vector<Index>& place) const {
    Index position = 0;
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      position = position * Index(dim.padded()) + place[at] * Index(dim.stride) + axes.tap[at] * Index(dim.dilation);
    }
    const Index channels = one_.groups * kept_;
    if (counts_positions_) return image_positions(draft, axes);
    return load_halves(draft, one_.image.name, image_halves_shape(), {}, image_, image_rest_,
                       {axes.sample, position * channels + axes.group * Index(kept_) + axes.channel},
                       scaled_ ? kernel::kNoExpr : taps_exist(draft, axes));
  }

  ExprId image_positions(KernelDraft& draft, const Axes& axes) const {
    Index reach = 0;
    for (size_t at = 0; at < dims(); ++at)
      reach = reach * Index(one_.dims[at].padded()) + axes.tap[at] * Index(one_.dims[at].dilation);
    const Shape shape = image_positions_shape();
    return load_halves(draft, one_.image.name, shape, {image_halves_shape()[1], shape[2], 1}, image_, image_rest_,
                       {axes.sample, axes.place + reach, axes.group * Index(kept_) + axes.channel}, kernel::kNoExpr);
  }

  // Does the filter have the tap? Beside one that it has not, the image is zero as well: zero times infinity is NaN.
  ExprId taps_exist(KernelDraft& draft, const Axes& axes) const { return taps_exist(draft, axes, dims()); }
  // Along the first dimensions alone.
  ExprId taps_exist(KernelDraft& draft, const Axes& axes, size_t count) const {
    ExprId exists = kernel::kNoExpr;
    for (size_t at = 0; at < count; ++at)
      exists = draft.build.both(exists, tap_exists(draft, one_.dims[at], axes.phases[at], axes.tap[at]));
    return exists;
  }

  ExprId own_filter(KernelDraft& draft, const Axes& axes) const {
    std::vector<Index> places = {axes.group, axes.filter, axes.channel};
    for (size_t at = 0; at < dims(); ++at)
      places.push_back(own_tap(draft, one_.dims[at], axes.phases[at], axes.tap[at]));
    return draft.load(weight_buffer(draft), places, 0.0, taps_exist(draft, axes));
  }

  ExprId own_image(KernelDraft& draft, const Axes& axes, const std::vector<Index>& place) const {
    ImagePlaces places{.shape = image_shape(),
                       .strides = one_.image_strides,
                       .at = {axes.sample, axes.group * Index(one_.channels) + axes.channel},
                       .inside = {kernel::kNoExpr, kernel::kNoExpr}};
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      places.at.push_back(place[at] * Index(dim.stride) + axes.tap[at] * Index(dim.dilation) - Index(dim.padding));
      places.inside.push_back(within(draft, places.at.back(), dim.input));
    }
    // Where phases stand beside the filters, the image is the same for all of them.
    const size_t known = one_.folds_phases() && one_.keeps_windows ? dims() - stacked_ : dims();
    return image_elements(draft, std::move(places), taps_exist(draft, axes, known), ImageUse::kAgain);
  }

  ExprId sample_number(KernelDraft& draft, const std::string& name, DType dtype, int scratch,
                       const Index& sample) const {
    const int buffer = draft.buffer(name, dtype, {one_.samples}, {}, kernel::BufferRole::kInput, -1 - scratch);
    return draft.load(buffer, {sample});
  }

  ExprId filter_number(KernelDraft& draft, const std::string& name, DType dtype, int scratch, const Axes& axes) const {
    const int buffer = draft.buffer(name, dtype, {product(outer_phases()), one_.groups, rows()}, {},
                                    kernel::BufferRole::kInput, -1 - scratch);
    return draft.load(buffer, {axes.phase, axes.group, axes.row});
  }

  // Whether the filter has no halves in some phase.
  ExprId flag_of_phases(ScheduledDraft& draft, const Axes& axes) const {
    const Symbol each = draft.mapped("each_phase", rows_of_filter_,
                                     {.mapping = Mapping::kTile, .width = rows_of_filter_});
    Axes all = axes;
    all.row = axes.filter * Index(rows_of_filter_) + symbol_index(each);
    const ExprId flag = filter_number(draft, "spoilt_filters", DType::i32, spoilt_filters_, all);
    return draft.build.reduce(kernel::ReduceOp::kMax, {flag}, {each});
  }

  // A fold over filters needs all of them again where one has no halves; one over places, where one of their samples
  // has none.
  ExprId flagged(ScheduledDraft& draft, const Axes& axes) const {
    kernel::Builder& build = draft.build;
    const auto is_set = [&](ExprId flag) { return build.op(ScalarOp::kGreater, {flag, whole(build, 0)}); };
    const auto largest = [&](ExprId flag, Symbol along) {
      return build.reduce(kernel::ReduceOp::kMax, {flag}, {along});
    };
    ExprId of_filters = one_.folds_phases() ? flag_of_phases(draft, axes)
                                          : filter_number(draft, "spoilt_filters", DType::i32, spoilt_filters_, axes),
           of_samples = sample_number(draft, "spoilt_samples", DType::i32, spoilt_samples_, axes.sample);
    if (one_.folds_filters) of_filters = largest(of_filters, *kernel::as_symbol(axes.filter));
    if (group_.statistics && kernel::uses(axes.sample, axes.lane)) of_samples = largest(of_samples, axes.lane);
    ExprId spoilt = is_set(of_samples);
    // Walkers ask first whether there is any such sample.
    if (!is_of_one_sample() && can_walk()) {
      const lower::AxisSchedule whole_batch{.mapping = Mapping::kTile, .width = next_power_of_two(one_.samples)};
      const Symbol each = draft.mapped("each_sample", one_.samples, whole_batch);
      const ExprId of_any = sample_number(draft, "spoilt_samples", DType::i32, spoilt_samples_, symbol_index(each));
      spoilt = build.op(ScalarOp::kLogicalAnd, {is_set(largest(of_any, each)), spoilt});
    }
    return build.op(ScalarOp::kLogicalOr, {spoilt, is_set(of_filters)});
  }

  bool counts_positions_ = false;  // the kernel that is being made: can_count_positions()
};

}  // namespace

bool can_count_positions(const LoweredGroup& group, const ConvolutionBlocks& blocks) {
  constexpr int64_t kRowsOfProduct = 64, kMostDepth = 64;
  const Convolution& one = *group.convolution;
  const int64_t kept = kept_channels(one);
  const bool dense = std::all_of(one.dims.begin(), one.dims.end(),
                                 [](const ConvolutionDim& dim) { return dim.stride == 1; });
  // Two samples are no neighbours in memory, and what is folded has lanes of its own.
  return dense && one.phases() == 1 && one.window() == 1 && !one.is_direct() && !one.folds_filters &&
         !group.statistics && blocks.filters % kRowsOfProduct == 0 && blocks.depth <= kMostDepth && kept >= kTapDepth &&
         kept % blocks.depth == 0 && one.places() >= kManyBlocksOfOne * blocks.positions;
}

int64_t counted_positions(const Convolution& convolution) {
  int64_t count = convolution.dims.front().places;
  for (size_t dim = 1; dim < convolution.dims.size(); ++dim) count *= convolution.dims[dim].padded();
  return count;
}

int64_t rows_of_thread(const LoweredGroup& group, int64_t wished) {
  const Convolution& one = *group.convolution;
  if (!one.is_direct() || one.dims.size() < 2) return 1;
  const ConvolutionDim& dim = one.dims[one.dims.size() - 2];
  if (dim.taps == 1 || dim.taps > tile::kMostUnrolled) return 1;
  int64_t rows = std::min(wished, dim.places);
  while (group.statistics && dim.places % rows != 0) --rows;
  return rows;
}

int64_t places_of_threads(const Convolution& convolution, int64_t rows) {
  if (rows == 1) return convolution.places();
  const int64_t length = convolution.dims[convolution.dims.size() - 2].places;
  return convolution.places() / length * ceil_divide(length, rows);
}

int64_t depth_of_tap_row(const Convolution& convolution) {
  if (convolution.dims.size() < 2 || convolution.taps() == convolution.dims.back().taps) return 0;
  return std::max<int64_t>(next_power_of_two(convolution.dims.back().taps * kept_channels(convolution)), 16);
}

ScheduledGroup convolution_kernels(const LoweredGroup& group, const ConvolutionBlocks& blocks) {
  return ConvolutionKernels(group, blocks).run();
}

}  // namespace kw::plan
