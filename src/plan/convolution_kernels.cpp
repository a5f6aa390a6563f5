#include "plan/convolution_kernels.hpp"

#include <algorithm>
#include <numeric>

#include "plan/convolution_axes.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

class ConvolutionKernels : ConvolutionAxes {
 public:
  ConvolutionKernels(const LoweredGroup& group, const ConvolutionBlocks& blocks) : ConvolutionAxes(group, blocks) {}

  ScheduledGroup run() {
    if (group_.statistics) declare_parts();
    if (one_.is_direct()) {
      sum_directly();
    } else {
      if (scaled_) find_scales();
      arrange_image();
      arrange_filters();
      if (blocks_.phases_apart) convolve_phases_apart();
      else convolve(false);
      if (scaled_) convolve(true);
    }
    if (group_.statistics) combine();
    return std::move(result_);
  }

 private:
  void convolve_phases_apart() {
    for (only_phase_ = 0; only_phase_ < product(outer_phases()); ++only_phase_) convolve(false);
    only_phase_ = -1;
  }

  // The convolution and what follows it. `again`: from the operands themselves, in TF32, where halves do not hold them.
  void convolve(bool again) {
    const std::string phase = only_phase_ < 0 ? "" : "_phase_" + std::to_string(only_phase_);
    ScheduledDraft draft(group_.kernel.name + (!again    ? phase
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

bool can_part_phases(const Convolution& convolution, int64_t depth) {
  const int64_t kept = kept_channels(convolution);
  return convolution.image.dtype == DType::f32 && !convolution.is_direct() && kept >= kTapDepth && kept % depth == 0 &&
         convolution.share_of_taps() < 1;
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
