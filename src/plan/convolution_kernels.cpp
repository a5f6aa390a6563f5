#include "plan/convolution_kernels.hpp"

#include <algorithm>
#include <numeric>

#include "plan/scheduled_draft.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

// Halves of an image: a sample's largest number, or what looks like it, is scaled to between 2^10 and 2^11, and may be
// 32 times as large. Of a filter's, which is looked at whole, to between 2^14 and 2^15.
constexpr double kImagePower = 10.0, kFilterPower = 14.0;
constexpr double kLargestHalf = 65504.0, kLargestNumber = 3.4028234663852886e38;
// Smaller halves than the first are subnormal; they lose digits that count where nothing nearby reaches the second.
constexpr double kSmallestNormalHalf = 0x1p-14, kReached = 0x1p-1;
// Of a sum of two halves, the second of which is subnormal.
constexpr double kSmallestNormalSum = 0x1p-3, kReachedBySum = 0x1p1;
constexpr double kLeastLargest = 0x1p-100;       // smaller samples and filters are scaled as this
constexpr int64_t kLine = 32, kLinesSeen = 512;  // elements of a sample that its scale is found from: 16,384
constexpr int64_t kLongestTile = 16384;          // of a filter that is scaled in one step
constexpr int64_t kManyBlocksOfOne = 16;         // of a sample, so that its last may be less than full
constexpr int64_t kTapDepth = 32;                // channels from which each tap is a loop's step, or several

class ConvolutionKernels : ProductKernels {
 public:
  ConvolutionKernels(const LoweredGroup& group, const ConvolutionBlocks& blocks)
      : ProductKernels(group, operands_of(*group.convolution)),
        one_(*group.convolution),
        blocks_(blocks),
        kept_(kept_channels(one_)),
        stacked_(one_.stacked_dims()),
        rows_of_filter_(one_.rows_of_filter()),
        narrow_(one_.image.dtype == DType::f32 ? DType::f16 : one_.image.dtype),
        scaled_(one_.image.dtype == DType::f32),
        halves_(scaled_ && blocks.halves) {}

  ScheduledGroup run() {
    if (one_.is_direct()) {
      sum_directly();
      return std::move(result_);
    }
    if (scaled_) find_scales();
    arrange_image();
    arrange_filters();
    convolve(false);
    if (scaled_) convolve(true);
    return std::move(result_);
  }

 private:
  static std::vector<const ProductOperand*> operands_of(const Convolution& convolution) {
    std::vector<const ProductOperand*> operands = {&convolution.image, &convolution.weight};
    if (convolution.bias) operands.push_back(&*convolution.bias);
    return operands;
  }

  size_t dims() const { return one_.dims.size(); }

  std::vector<int64_t> each(int64_t (*of)(const ConvolutionDim&)) const {
    std::vector<int64_t> lengths;
    for (const ConvolutionDim& dim : one_.dims) lengths.push_back(of(dim));
    return lengths;
  }
  std::vector<int64_t> padded() const {
    return each([](const ConvolutionDim& dim) { return dim.padded(); });
  }
  std::vector<int64_t> taps() const {
    return each([](const ConvolutionDim& dim) { return dim.taps; });
  }
  std::vector<int64_t> places() const {
    return each([](const ConvolutionDim& dim) { return dim.places; });
  }
  std::vector<int64_t> phases() const {
    return each([](const ConvolutionDim& dim) { return dim.phases; });
  }
  std::vector<int64_t> outer_phases() const {
    std::vector<int64_t> lengths = phases();
    lengths.resize(dims() - stacked_);
    return lengths;
  }
  // What a row of a group is made of: a filter, and a phase along each of the last dimensions.
  std::vector<int64_t> row_digits() const {
    std::vector<int64_t> lengths = {one_.filters};
    std::for_each(one_.dims.end() - stacked_, one_.dims.end(),
                  [&](const ConvolutionDim& dim) { lengths.push_back(dim.row_phases()); });
    return lengths;
  }

  // The phase along each dimension, of the number of the outer ones and of a row.
  std::vector<Index> phases_of(const KernelDraft& draft, const Index& outer, const Index& row) const {
    std::vector<Index> along;
    const Digits of_outer(draft, outer, outer_phases()), of_row(draft, row, row_digits());
    for (size_t dim = 0; dim + stacked_ < dims(); ++dim) along.push_back(of_outer[dim]);
    for (int64_t dim = 0; dim < stacked_; ++dim) along.push_back(of_row[dim + 1]);
    return along;
  }

  // Do phases differ in the taps that they have? A zero stands for one that a phase lacks, and zero times infinity is
  // NaN: samples that are not finite are computed again.
  bool has_ragged_windows() const {
    return std::any_of(one_.dims.begin(), one_.dims.end(), [](const auto& dim) { return dim.is_ragged(); });
  }

  static ExprId number(kernel::Builder& build, double value) { return build.constant(DType::f32, value); }
  static ExprId whole(kernel::Builder& build, int64_t value) { return build.constant(DType::i32, value); }
  static ExprId both(kernel::Builder& build, ExprId a, ExprId b) {
    if (a == kernel::kNoExpr || b == kernel::kNoExpr) return a == kernel::kNoExpr ? b : a;
    return build.op(ScalarOp::kLogicalAnd, {a, b});
  }
  // 0 <= index < length; kNoExpr where that is known.
  static ExprId within(KernelDraft& draft, const Index& index, int64_t length) {
    kernel::Builder& build = draft.build;
    const kernel::Interval range = kernel::range_of(index, kernel::ranges_of(build.kernel()));
    ExprId condition = kernel::kNoExpr;
    if (range.low < 0) condition = build.op(ScalarOp::kGreaterEqual, {build.index(index, DType::i32), whole(build, 0)});
    if (range.high >= length)
      condition = both(build, condition,
                       build.op(ScalarOp::kLess, {build.index(index, DType::i32), whole(build, length)}));
    return condition;
  }

  Shape image_shape() const {
    Shape shape = {one_.samples, one_.groups * one_.channels};
    for (const ConvolutionDim& dim : one_.dims) shape.push_back(dim.input);
    return shape;
  }

  Shape weight_shape() const {
    Shape shape = {one_.groups, one_.filters, one_.channels};
    for (const ConvolutionDim& dim : one_.dims) shape.push_back(dim.kernel);
    return shape;
  }

  int image_buffer(KernelDraft& draft) const {
    return draft.buffer(one_.image.name, one_.image.dtype, image_shape(), one_.image_strides,
                        kernel::BufferRole::kInput, one_.image.root, one_.image.offset);
  }

  int weight_buffer(KernelDraft& draft) const {
    return draft.buffer(one_.weight.name, one_.weight.dtype, weight_shape(), one_.weight_strides,
                        kernel::BufferRole::kInput, one_.weight.root, one_.weight.offset);
  }

  // [sample, padded positions and channels of all groups], and [outer phase, group, row, taps and channels].
  Shape image_halves_shape() const { return {one_.samples, product(padded()) * one_.groups * kept_}; }
  Shape filters_shape() const { return {product(outer_phases()), one_.groups, rows(), one_.taps() * kept_}; }
  int64_t rows() const { return one_.filters * rows_of_filter_; }  // of a group

  // floor(log2(largest)) of what is finite and not too small.
  static ExprId exponent_of(kernel::Builder& build, ExprId value, const std::vector<Symbol>& along) {
    const ExprId size = build.op(ScalarOp::kAbs, {value});
    const ExprId is_finite = build.op(ScalarOp::kLessEqual, {size, number(build, kLargestNumber)});
    const ExprId finite = build.op(ScalarOp::kSelect, {is_finite, size, number(build, 0.0)});
    const ExprId largest = build.named("largest", build.reduce(kernel::ReduceOp::kMax, {finite}, along));
    const ExprId at_least = build.op(ScalarOp::kMaximum, {largest, number(build, kLeastLargest)});
    return build.named("exponent", build.op(ScalarOp::kFloor, {build.op(ScalarOp::kLog2, {at_least})}));
  }

  // For each sample: 2^(exponent − power), found from some of its elements, and no flag.
  void find_scales() {
    image_scale_ = scratch("image_scale", DType::f32, {one_.samples}, {1});
    spoilt_samples_ = scratch("spoilt_samples", DType::i32, {one_.samples}, {1});
    const Shape shape = image_shape();
    const int64_t elements = product(shape) / one_.samples, lines = ceil_divide(elements, kLine),
                  seen = std::min(lines, kLinesSeen), distance = lines / seen * kLine;
    ScheduledDraft draft("image_scale_kernel", "A power of two near each sample's largest number.");
    kernel::Builder& build = draft.build;
    const int64_t width = std::min(kLine, elements);
    const Index sample = draft.grid("sample", one_.samples);
    const Symbol line = draft.mapped("line", seen, {.mapping = Mapping::kTile, .width = next_power_of_two(seen)}),
                 at = draft.mapped("at", width, {.mapping = Mapping::kTile, .width = next_power_of_two(width)});
    const int image = draft.buffer(one_.image.name, one_.image.dtype, {one_.samples, elements},
                                   {one_.image_strides[0], 1}, kernel::BufferRole::kInput, one_.image.root,
                                   one_.image.offset);
    const Index element = symbol_index(line) * Index(distance) + symbol_index(at);
    const ExprId value = draft.load(image, {sample, element}, 0.0, within(draft, element, elements));
    const ExprId exponent = exponent_of(build, value, {line, at});
    const auto of_sample = [&](const std::string& name, DType dtype, int scratch, ExprId stored) {
      const int buffer = draft.buffer(name, dtype, {one_.samples}, {}, kernel::BufferRole::kOutput, -1 - scratch);
      draft.store(buffer, {sample}, stored);
    };
    const ExprId power = build.op(ScalarOp::kSub, {exponent, number(build, kImagePower)});
    of_sample("scale", DType::f32, image_scale_, build.op(ScalarOp::kExp2, {power}));
    of_sample("spoilt", DType::i32, spoilt_samples_, whole(build, 0));
    draft.schedule.warps = 8;
    finish(draft, draft.schedule);
  }

  // The image in 16 bits with zeros around it and channels side by side.
  void arrange_image() {
    const Shape shape = image_halves_shape();
    const int64_t length = product(padded()), all_channels = one_.groups * kept_;
    image_ = scratch(one_.image.name + "_halves", narrow_, shape, contiguous_strides(shape));
    if (halves_) image_rest_ = scratch(one_.image.name + "_rest", narrow_, shape, contiguous_strides(shape));
    const int64_t channels = next_power_of_two(all_channels), channel_width = std::min<int64_t>(channels, 64),
                  positions = std::clamp<int64_t>(4096 / channel_width, 64, 256),
                  width = std::min(positions, next_power_of_two(length));
    ScheduledDraft draft("channels_last_kernel", "The image in 16 bits, with its channels side by side.");
    kernel::Builder& build = draft.build;
    const Index sample = draft.grid("sample", one_.samples), block = draft.grid("block", ceil_divide(length, width)),
                chunk = draft.grid("chunk", ceil_divide(all_channels, channel_width));
    const Symbol place = draft.mapped("place", width, {.mapping = Mapping::kTile, .width = width}),
                 within_chunk = draft.mapped("channel", channel_width,
                                             {.mapping = Mapping::kTile, .width = channel_width});
    const Index position = block * Index(width) + symbol_index(place),
                channel = chunk * Index(channel_width) + symbol_index(within_chunk);
    const ExprId exists = both(build, within(draft, position, length), within(draft, channel, all_channels));
    const Digits at(draft, position, padded());
    const Digits of_group(draft, channel, {one_.groups, kept_});
    ExprId inside = both(build, exists, within(draft, of_group[1], one_.channels));
    std::vector<Index> places = {sample, of_group[0] * Index(one_.channels) + of_group[1]};
    for (size_t dim = 0; dim < dims(); ++dim) {
      places.push_back(at[dim] - Index(one_.dims[dim].padding));
      inside = both(build, inside, within(draft, places.back(), one_.dims[dim].input));
    }
    ExprId value = draft.load(image_buffer(draft), places, 0.0, inside);
    if (scaled_) {
      const int scales = draft.buffer("scale", DType::f32, {one_.samples}, {}, kernel::BufferRole::kInput,
                                      -1 - image_scale_);
      const ExprId scale = draft.load(scales, {sample});
      value = build.named("scaled", build.op(ScalarOp::kMul, {value, build.op(ScalarOp::kReciprocal, {scale})}));
      const int spoilt = draft.buffer("spoilt", DType::i32, {one_.samples}, {}, kernel::BufferRole::kOutput,
                                      -1 - spoilt_samples_);
      const ExprId loses = has_no_halves(build, value, {place, within_chunk});
      build.combine(kernel::ReduceOp::kMax, KernelDraft::access(spoilt, {sample}, loses), whole(build, 1));
    }
    store_halves(draft, one_.image.name, shape, image_, image_rest_, {sample, position * Index(all_channels) + channel},
                 value, exists);
    finish(draft, draft.schedule);
  }

  void store_halves(KernelDraft& draft, const std::string& name, const Shape& shape, int first, int rest,
                    const std::vector<Index>& places, ExprId value, ExprId mask) const {
    kernel::Builder& build = draft.build;
    const auto store = [&](const std::string& part, int scratch, ExprId half) {
      draft.store(draft.buffer(name + part, narrow_, shape, {}, kernel::BufferRole::kOutput, -1 - scratch), places,
                  half, mask);
    };
    const ExprId half = build.named("half", build.cast(narrow_, value));
    store("_halves", first, half);
    if (halves_)
      store("_rest", rest, build.cast(narrow_, build.op(ScalarOp::kSub, {value, build.cast(DType::f32, half)})));
  }

  ExprId load_halves(KernelDraft& draft, const std::string& name, const Shape& shape, int first, int rest,
                     const std::vector<Index>& places, ExprId mask) const {
    kernel::Builder& build = draft.build;
    const auto load = [&](const std::string& part, int scratch) {
      return draft.load(draft.buffer(name + part, narrow_, shape, {}, kernel::BufferRole::kInput, -1 - scratch), places,
                        0.0, mask);
    };
    const ExprId half = load("_halves", first);
    if (!halves_) return half;
    return build.op(ScalarOp::kAdd, {build.cast(DType::f32, half), build.cast(DType::f32, load("_rest", rest))});
  }

  // Is some scaled number too large for a half, or so small that it loses digits, with nothing larger nearby?
  ExprId has_no_halves(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along) const {
    const ExprId size = build.op(ScalarOp::kAbs, {scaled});
    // A half holds infinities and NaN as well; a sum of two holds NaN only.
    const ExprId counts = halves_ ? build.op(ScalarOp::kEqual, {size, size})
                                  : build.op(ScalarOp::kLessEqual, {size, number(build, kLargestNumber)});
    const ExprId counted = build.op(ScalarOp::kSelect, {counts, size, number(build, 0.0)});
    const ExprId largest = build.reduce(kernel::ReduceOp::kMax, {counted}, along);
    ExprId loses = build.op(ScalarOp::kLogicalAnd,
                            {build.op(ScalarOp::kGreater, {any_lost(build, scaled, along), whole(build, 0)}),
                             build.op(ScalarOp::kLess, {largest, number(build, halves_ ? kReachedBySum : kReached)})});
    if (has_ragged_windows()) {
      const ExprId is_finite = build.op(ScalarOp::kLessEqual, {size, number(build, kLargestNumber)});
      const ExprId all = build.reduce(
          kernel::ReduceOp::kMin, {build.op(ScalarOp::kSelect, {is_finite, whole(build, 1), whole(build, 0)})}, along);
      loses = build.op(ScalarOp::kLogicalOr, {loses, build.op(ScalarOp::kLess, {all, whole(build, 1)})});
    }
    return build.op(ScalarOp::kLogicalOr,
                    {loses, build.op(ScalarOp::kGreater, {largest, number(build, kLargestHalf)})});
  }

  // Every filter in 16 bits, taps in the order in which they meet the image, channels side by side.
  void arrange_filters() {
    const Shape shape = filters_shape();
    filters_ = scratch(one_.weight.name + "_halves", narrow_, shape, contiguous_strides(shape));
    if (halves_) filters_rest_ = scratch(one_.weight.name + "_rest", narrow_, shape, contiguous_strides(shape));
    const Shape of_filters = {shape[0], shape[1], shape[2]};
    if (scaled_) {
      filter_scale_ = scratch("filter_scale", DType::f32, of_filters, contiguous_strides(of_filters));
      spoilt_filters_ = scratch("spoilt_filters", DType::i32, of_filters, contiguous_strides(of_filters));
    }
    ScheduledDraft draft("filters_kernel", "Filters in 16 bits, with their channels side by side.");
    kernel::Builder& build = draft.build;
    const int64_t whole_depth = next_power_of_two(shape[3]),
                  together = std::clamp<int64_t>(2048 / whole_depth, 1, next_power_of_two(shape[2]));
    lower::AxisSchedule of_depth{.mapping = Mapping::kTile, .width = whole_depth};
    if (whole_depth > kLongestTile) of_depth = {.mapping = Mapping::kLoop, .width = 4096};
    const Index phase = draft.grid("phase", shape[0]), group = draft.grid("group", shape[1]);
    const Symbol of_group = draft.mapped(row_name(), shape[2], {.mapping = Mapping::kGrid, .width = together}),
                 depth = draft.mapped("depth", shape[3], of_depth);
    const std::vector<Index> row = {phase, group, symbol_index(of_group)};
    std::vector<int64_t> bases = taps();
    bases.push_back(kept_);
    const Digits at(draft, symbol_index(depth), bases);
    ExprId exists = within(draft, at[dims()], one_.channels);
    std::vector<Index> places = {group, filter_of(draft, row[2]), at[dims()]};
    const std::vector<Index> phases_at = phases_of(draft, phase, row[2]);
    for (size_t dim = 0; dim < dims(); ++dim) {
      places.push_back(own_tap(draft, one_.dims[dim], phases_at[dim], at[dim]));
      exists = both(build, exists, tap_exists(draft, one_.dims[dim], phases_at[dim], at[dim]));
    }
    ExprId value = draft.load(weight_buffer(draft), places, 0.0, exists);
    if (scaled_) {
      const ExprId exponent = exponent_of(build, value, {depth});
      const ExprId power = build.op(ScalarOp::kSub, {exponent, number(build, kFilterPower)});
      const ExprId factor = build.op(ScalarOp::kExp2, {build.op(ScalarOp::kNeg, {power})});
      value = build.named("scaled", build.op(ScalarOp::kMul, {value, factor}));
      const auto of_filter = [&](const std::string& name, DType dtype, int scratch, ExprId stored) {
        const int buffer = draft.buffer(name, dtype, of_filters, {}, kernel::BufferRole::kOutput, -1 - scratch);
        draft.store(buffer, row, stored);
      };
      of_filter("scale", DType::f32, filter_scale_, build.op(ScalarOp::kExp2, {power}));
      const ExprId loses = any_lost(build, value, {depth});
      of_filter("spoilt", DType::i32, spoilt_filters_, loses);
    }
    store_halves(draft, one_.weight.name, shape, filters_, filters_rest_, {phase, group, row[2], symbol_index(depth)},
                 value, kernel::kNoExpr);
    draft.schedule.warps = whole_depth >= 4096 ? 8 : 4;
    finish(draft, draft.schedule);
  }

  // 1 where some scaled number is so small that digits are lost, or is no sum of halves because it is infinite.
  ExprId any_lost(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along) const {
    const ExprId size = build.op(ScalarOp::kAbs, {scaled});
    ExprId is_small = build.op(
        ScalarOp::kLogicalAnd,
        {build.op(ScalarOp::kLess, {size, number(build, halves_ ? kSmallestNormalSum : kSmallestNormalHalf)}),
         build.op(ScalarOp::kGreater, {size, number(build, 0.0)})});
    if (halves_) is_small = build.op(ScalarOp::kLogicalOr, {is_small, build.op(ScalarOp::kIsInf, {size})});
    return build.reduce(kernel::ReduceOp::kMax,
                        {build.op(ScalarOp::kSelect, {is_small, whole(build, 1), whole(build, 0)})}, along);
  }

  // The filter's own tap that the window's is in a phase: (phase + first_tap − phases · tap) / tap_distance, where
  // nothing that is divided is negative.
  Index own_tap(const KernelDraft& draft, const ConvolutionDim& dim, const Index& phase, const Index& tap) const {
    if (!dim.flipped) return tap;
    const int64_t distance = dim.tap_distance, step = ceil_divide(dim.phases, distance);
    const int64_t first = dim.first_tap - floor_modulo(dim.first_tap, distance);
    return kernel::floor_divide(divided(dim, phase, tap), distance, kernel::ranges_of(draft.build.kernel())) +
           Index(first / distance) - tap * Index(step);
  }

  static int64_t floor_modulo(int64_t number, int64_t divisor) { return ((number % divisor) + divisor) % divisor; }
  // What (phase + first_tap − phases · tap) is modulo tap_distance.
  static Index divided(const ConvolutionDim& dim, const Index& phase, const Index& tap) {
    return phase + Index(floor_modulo(dim.first_tap, dim.tap_distance)) +
           tap * Index(floor_modulo(-dim.phases, dim.tap_distance));
  }

  ExprId tap_exists(KernelDraft& draft, const ConvolutionDim& dim, const Index& phase, const Index& tap) const {
    kernel::Builder& build = draft.build;
    const ExprId exists = both(build, within(draft, phase, dim.phases),
                               within(draft, own_tap(draft, dim, phase, tap), dim.kernel));
    if (!dim.flipped || dim.tap_distance == 1) return exists;
    const Index rest = kernel::modulo(divided(dim, phase, tap), dim.tap_distance, kernel::ranges_of(build.kernel()));
    return both(build, exists, build.op(ScalarOp::kEqual, {build.index(rest, DType::i32), whole(build, 0)}));
  }

  struct Axes {
    Index group, sample;
    Index phase;                // the number of the outer ones
    Index row;                  // of a group: a filter in a phase of the inner ones
    Index filter;               // of a group
    std::vector<Index> phases;  // along each dimension
    Index place;                // of a phase, all dimensions as one
    std::vector<Index> tap;     // along each dimension
    Index channel;
    Index depth;                 // taps and channels as one
    std::vector<Symbol> summed;  // what the sum is over
  };

  // Are there enough channels for a step of the loop to be of one tap? The kernel in f32 does so always.
  bool walks_taps(bool again) const { return again || (kept_ >= kTapDepth && kept_ % blocks_.depth == 0); }

  Axes declare(ScheduledDraft& draft, bool again) const {
    const bool wide = again && is_large();
    const auto block = [&](int64_t width) { return again ? std::min<int64_t>(width, wide ? 128 : 64) : width; };
    const int64_t own_filters = std::max<int64_t>(next_power_of_two(one_.filters), 16);
    Axes axes;
    axes.group = draft.grid("group", one_.groups);
    // The kernel that computes again has a block for each phase.
    const bool stacks = !again && stacked_ > 0;
    const auto declare_rows = [&] {
      lower::AxisSchedule how{.mapping = Mapping::kGrid,
                              .width = block(again ? std::min(blocks_.filters, own_filters) : blocks_.filters)};
      // Where neighbours in memory are of different phases, or of different samples at unknown places.
      if (stacks && one_.dims.back().row_phases() < how.width) how.split = one_.dims.back().row_phases();
      how.last = !again && (how.split > 1 || (!places_first() && !is_of_one_sample()));
      if (one_.folds_filters) how = {.mapping = Mapping::kTile, .width = blocks_.filters};
      axes.row = symbol_index(draft.mapped(stacks ? row_name() : "filter", stacks ? rows() : one_.filters, how));
    };
    if (!places_first()) declare_rows();
    // A block of a large image lies in one sample: its places follow each other in memory.
    lower::AxisSchedule places{.mapping = Mapping::kGrid, .width = block(blocks_.positions)};
    if (one_.folds_filters && again)
      places.width = std::clamp<int64_t>((wide ? 128 * 128 : 64 * 64) / blocks_.filters, 16, blocks_.positions);
    if (is_of_one_sample()) {
      axes.sample = draft.grid("sample", one_.samples);
      axes.place = symbol_index(draft.mapped("place", one_.places(), places));
    } else {
      const Symbol place = draft.mapped("place", one_.samples * one_.places(), places);
      const Digits at(draft, symbol_index(place), {one_.samples, one_.places()});
      axes.sample = at[0];
      axes.place = at[1];
    }
    if (places_first()) declare_rows();
    // Neighbours of a result are of different phases: the last cache should meet them together.
    set_phase(draft, axes, draft.grid("phase", stacks ? product(outer_phases()) : one_.phases()), stacks);
    const lower::AxisSchedule step{.mapping = Mapping::kLoop,
                                   .width = again ? (wide ? 16 : 32) : blocks_.depth,
                                   .stages = again ? 1 : blocks_.stages};
    const int64_t channels = again ? one_.channels : kept_;
    if (walks_taps(again)) {
      walk_taps(draft, axes, channels, step);
    } else {
      axes.summed.push_back(draft.mapped("depth", one_.taps() * channels, step));
      axes.depth = symbol_index(axes.summed.back());
      std::vector<int64_t> bases = taps();
      bases.push_back(channels);
      const Digits at(draft, axes.depth, bases);
      for (size_t dim = 0; dim < dims(); ++dim) axes.tap.push_back(at[dim]);
      axes.channel = at[dims()];
    }
    draft.schedule.skip_masked = again;
    if (halves_ && !again) draft.schedule.scheme = lower::Scheme::kFp16x3;
    draft.schedule.warps = again ? (wide ? 8 : 4) : blocks_.warps;
    return axes;
  }

  std::string row_name() const { return stacked_ > 0 ? "filter_phase" : "filter"; }
  Index filter_of(const KernelDraft& draft, const Index& row) const {
    return kernel::floor_divide(row, rows_of_filter_, kernel::ranges_of(draft.build.kernel()));
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

  // Does a block lie in one sample?
  bool is_of_one_sample() const { return one_.places() >= kManyBlocksOfOne * blocks_.positions; }

  // Tensor cores want 64 rows at least, and any number of columns. Few threads share a row: it is soon folded.
  bool places_first() const { return blocks_.filters < 64 || one_.folds_filters; }

  // Most blocks of the second kernel only look at flags: there should not be too many of them.
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
    const Axes axes = declare(draft, again);
    kernel::Builder& build = draft.build;
    const Digits place(draft, axes.place, places());

    ExprId left = again ? own_filter(draft, axes) : arranged_filter(draft, axes),
           right = again ? own_image(draft, axes, place) : arranged_image(draft, axes, place);
    if (places_first()) std::swap(left, right);
    ExprId sum = build.dot(left, right, axes.summed,
                           again && !halves_ ? kernel::Precision::kTf32 : kernel::Precision::kFull);
    if (scaled_ && !again) {
      const ExprId of_image = sample_number(draft, "image_scale", DType::f32, image_scale_, axes.sample),
                   of_filter = filter_number(draft, "filter_scale", DType::f32, filter_scale_, axes);
      // The smaller first: no step leaves the range of f32 where the result does not.
      sum = build.op(ScalarOp::kMul, {sum, build.op(ScalarOp::kMinimum, {of_image, of_filter})});
      sum = build.op(ScalarOp::kMul, {sum, build.op(ScalarOp::kMaximum, {of_image, of_filter})});
    }
    finish_sum(draft, axes, place, sum, again ? build.named("has_no_halves", flagged(draft, axes)) : kernel::kNoExpr);
  }

  // Bias, what follows, and the stores.
  void finish_sum(ScheduledDraft& draft, const Axes& axes, const Digits& place, ExprId sum, ExprId mask) {
    kernel::Builder& build = draft.build;
    const Index row = axes.group * Index(one_.filters) + axes.filter;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    if (one_.bias) {
      const int bias = draft.buffer(one_.bias->name, one_.bias->dtype, {one_.groups * one_.filters}, {one_.bias->row},
                                    kernel::BufferRole::kInput, one_.bias->root, one_.bias->offset);
      sum = build.op(ScalarOp::kAdd, {sum, build.cast(DType::f32, draft.load(bias, {row}))});
    }
    Index position = 0, stored = 0;
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      const Index output = place[at] * Index(dim.phases) + axes.phases[at] - Index(dim.crop);
      mask = both(build, mask,
                  both(build, within(draft, axes.phases[at], dim.phases), within(draft, output, dim.output)));
      stored = stored * Index(dim.output) + output;
      // What follows may load by position: those that are not stored are called by others that exist.
      position = position * Index(dim.output) +
                 kernel::modulo(output + Index(dim.crop > 0 ? dim.output : 0), dim.output, ranges);
    }
    if (one_.phases() == 1) position = stored = axes.place;
    store_results(draft, group_, {axes.sample, row, position}, build.cast(one_.image.dtype, sum), mask,
                  {axes.sample, row, stored});
    finish(draft, draft.schedule);
  }

  // Each result's few products, added one after another.
  void sum_directly() {
    ScheduledDraft draft(group_.kernel.name, group_.kernel.doc);
    Axes axes;
    axes.sample = draft.grid("sample", one_.samples);
    axes.group = draft.grid("group", one_.groups);
    axes.row = draft.grid("filter", one_.filters);
    axes.place = symbol_index(draft.mapped(
        "place", one_.places(),
        {.mapping = Mapping::kGrid, .width = std::min(blocks_.positions, next_power_of_two(one_.places()))}));
    set_phase(draft, axes, draft.grid("phase", one_.phases()), false);
    walk_taps(draft, axes, one_.channels, {.mapping = Mapping::kLoop, .width = 1});
    draft.schedule.warps = blocks_.warps;
    const Digits place(draft, axes.place, places());
    kernel::Builder& build = draft.build;
    const ExprId image = build.cast(DType::f32, own_image(draft, axes, place)),
                 filter = build.cast(DType::f32, own_filter(draft, axes));
    const ExprId sum = build.reduce(kernel::ReduceOp::kSum, {build.op(ScalarOp::kMul, {image, filter})}, axes.summed);
    finish_sum(draft, axes, place, sum, kernel::kNoExpr);
  }

  // Axes of taps and channels, walked by one loop.
  void walk_taps(ScheduledDraft& draft, Axes& axes, int64_t channels, const lower::AxisSchedule& step) const {
    static const char* const kNames[] = {"tap_slice", "tap_row", "tap_column"};
    std::vector<std::string> loop;
    const auto walk = [&](const std::string& name, int64_t extent, const lower::AxisSchedule& how) {
      loop.push_back(name);
      axes.summed.push_back(draft.mapped(name, extent, how));
      return symbol_index(axes.summed.back());
    };
    for (size_t dim = 0; dim < dims(); ++dim)
      axes.tap.push_back(one_.dims[dim].taps == 1 ? Index(0)
                                                  : walk(kNames[3 - dims() + dim], one_.dims[dim].taps,
                                                         {.mapping = Mapping::kLoop, .width = 1}));
    axes.channel = channels == 1 && !axes.summed.empty() ? Index(0) : walk("channel", channels, step);
    for (size_t dim = 0; dim < dims(); ++dim) axes.depth = axes.depth * Index(one_.dims[dim].taps) + axes.tap[dim];
    axes.depth = axes.depth * Index(channels) + axes.channel;
    draft.schedule.nest = {loop};
  }

  ExprId arranged_filter(KernelDraft& draft, const Axes& axes) const {
    return load_halves(draft, one_.weight.name, filters_shape(), filters_, filters_rest_,
                       {axes.phase, axes.group, axes.row, axes.depth}, kernel::kNoExpr);
  }

  ExprId arranged_image(KernelDraft& draft, const Axes& axes, const Digits& place) const {
    Index position = 0;
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      position = position * Index(dim.padded()) + place[at] * Index(dim.stride) + axes.tap[at] * Index(dim.dilation);
    }
    const Index channels = one_.groups * kept_;
    return load_halves(draft, one_.image.name, image_halves_shape(), image_, image_rest_,
                       {axes.sample, position * channels + axes.group * Index(kept_) + axes.channel},
                       scaled_ ? kernel::kNoExpr : tap_exists(draft, axes));
  }

  // Does the filter have the tap? Beside one that it has not, the image is zero as well: zero times infinity is NaN.
  ExprId tap_exists(KernelDraft& draft, const Axes& axes) const {
    ExprId exists = kernel::kNoExpr;
    for (size_t at = 0; at < dims(); ++at)
      exists = both(draft.build, exists, tap_exists(draft, one_.dims[at], axes.phases[at], axes.tap[at]));
    return exists;
  }

  ExprId own_filter(KernelDraft& draft, const Axes& axes) const {
    std::vector<Index> places = {axes.group, axes.filter, axes.channel};
    for (size_t at = 0; at < dims(); ++at)
      places.push_back(own_tap(draft, one_.dims[at], axes.phases[at], axes.tap[at]));
    return draft.load(weight_buffer(draft), places, 0.0, tap_exists(draft, axes));
  }

  ExprId own_image(KernelDraft& draft, const Axes& axes, const Digits& place) const {
    std::vector<Index> places = {axes.sample, axes.group * Index(one_.channels) + axes.channel};
    ExprId inside = tap_exists(draft, axes);
    for (size_t at = 0; at < dims(); ++at) {
      const ConvolutionDim& dim = one_.dims[at];
      places.push_back(place[at] * Index(dim.stride) + axes.tap[at] * Index(dim.dilation) - Index(dim.padding));
      inside = both(draft.build, inside, within(draft, places.back(), dim.input));
    }
    return draft.load(image_buffer(draft), places, 0.0, inside);
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

  // A fold over filters needs all of them again where one has no halves.
  ExprId flagged(KernelDraft& draft, const Axes& axes) const {
    kernel::Builder& build = draft.build;
    const auto is_set = [&](ExprId flag) { return build.op(ScalarOp::kGreater, {flag, whole(build, 0)}); };
    ExprId of_filters = filter_number(draft, "spoilt_filters", DType::i32, spoilt_filters_, axes);
    if (one_.folds_filters)
      of_filters = build.reduce(kernel::ReduceOp::kMax, {of_filters}, {*kernel::as_symbol(axes.row)});
    return build.op(
        ScalarOp::kLogicalOr,
        {is_set(sample_number(draft, "spoilt_samples", DType::i32, spoilt_samples_, axes.sample)), is_set(of_filters)});
  }

  const Convolution& one_;
  const ConvolutionBlocks& blocks_;
  const int64_t kept_;
  const int64_t stacked_, rows_of_filter_;  // dimensions whose phases stand among the rows, and how many rows they make
  const DType narrow_;
  const bool scaled_;                                                      // by powers of two, into the range of halves
  const bool halves_;                                                      // as sums of two halves
  int image_scale_ = 0, spoilt_samples_ = 0, image_ = 0, image_rest_ = 0;  // scratch
  int filter_scale_ = 0, spoilt_filters_ = 0, filters_ = 0, filters_rest_ = 0;  // scratch
};

}  // namespace

int64_t kept_channels(const Convolution& convolution) {
  const int64_t channels = convolution.channels;
  return channels <= 8 ? std::max<int64_t>(next_power_of_two(channels), 2) : ceil_divide(channels, 8) * 8;
}

ScheduledGroup convolution_kernels(const LoweredGroup& group, const ConvolutionBlocks& blocks) {
  return ConvolutionKernels(group, blocks).run();
}

}  // namespace kw::plan
