#include "plan/convolution_operands.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

namespace {

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

// Its multiples visit all places of a stretch, neighbours far from each other: by the golden ratio.
int64_t spread_step(int64_t stretch) {
  int64_t step = std::max<int64_t>(std::llround(0.6180339887 * static_cast<double>(stretch)), 1);
  while (std::gcd(step, stretch) > 1) ++step;
  return step;
}

}  // namespace

std::vector<kernel::Index> ConvolutionOperands::phases_of(const KernelDraft& draft, const Index& outer,
                                                          const Index& row) const {
  std::vector<Index> along;
  const Digits of_outer(draft, outer, outer_phases()), of_row(draft, row, row_digits());
  for (size_t dim = 0; dim + stacked_ < dims(); ++dim) along.push_back(of_outer[dim]);
  for (int64_t dim = 0; dim < stacked_; ++dim) along.push_back(of_row[dim + 1]);
  return along;
}

ExprId ConvolutionOperands::within(KernelDraft& draft, const Index& index, int64_t length) {
  kernel::Builder& build = draft.build;
  const kernel::Interval range = kernel::range_of(index, kernel::ranges_of(build.kernel()));
  ExprId condition = kernel::kNoExpr;
  if (range.low < 0) condition = build.op(ScalarOp::kGreaterEqual, {build.index(index, DType::i32), whole(build, 0)});
  if (range.high >= length)
    condition = build.both(condition,
                           build.op(ScalarOp::kLess, {build.index(index, DType::i32), whole(build, length)}));
  return condition;
}

ExprId ConvolutionOperands::exponent_of(KernelDraft& draft, ExprId value, const std::vector<Symbol>& along) {
  kernel::Builder& build = draft.build;
  const ExprId size = build.op(ScalarOp::kAbs, {value});
  const ExprId is_finite = build.op(ScalarOp::kLessEqual, {size, number(build, kLargestNumber)});
  const ExprId finite = build.op(ScalarOp::kSelect, {is_finite, size, number(build, 0.0)});
  const ExprId largest = draft.named("largest", build.reduce(kernel::ReduceOp::kMax, {finite}, along));
  const ExprId at_least = build.op(ScalarOp::kMaximum, {largest, number(build, kLeastLargest)});
  return draft.named("exponent", build.op(ScalarOp::kFloor, {build.op(ScalarOp::kLog2, {at_least})}));
}

ExprId ConvolutionOperands::image_elements(KernelDraft& draft, ImagePlaces places, ExprId mask, ImageUse use) const {
  kernel::Builder& build = draft.build;
  for (ExprId inside : places.inside) mask = build.both(mask, inside);
  if (!group_.producer || (use == ImageUse::kAgain && group_.producer->is_stored)) {
    const int image = draft.buffer(one_.image.name, one_.image.dtype, places.shape, places.strides,
                                   kernel::BufferRole::kInput, one_.image.root, one_.image.offset);
    return draft.load(image, places.at, 0.0, mask);
  }
  EmbeddedImage made(draft, *group_.producer, one_.image.root, std::move(places));
  const ExprId value = made.value();
  if (use == ImageUse::kLayOut) made.store_results(mask);
  if (mask == kernel::kNoExpr) return value;
  return build.op(ScalarOp::kSelect, {mask, value, build.constant(one_.image.dtype, 0.0)});
}

void ConvolutionOperands::find_scales() {
  image_scale_ = scratch("image_scale", DType::f32, {one_.samples}, {1});
  spoilt_samples_ = scratch("spoilt_samples", DType::i32, {one_.samples}, {1});
  const Shape shape = image_shape();
  const int64_t elements = product(shape) / one_.samples, lines = ceil_divide(elements, kLine),
                seen = std::min(lines, kLinesSeen), distance = lines / seen;
  ScheduledDraft draft("image_scale_kernel", "A power of two near each sample's largest number.");
  kernel::Builder& build = draft.build;
  const int64_t width = std::min(kLine, elements);
  const Index sample = draft.grid("sample", one_.samples);
  const Symbol line = draft.mapped("line", seen, {.mapping = Mapping::kTile, .width = next_power_of_two(seen)}),
               at = draft.mapped("at", width, {.mapping = Mapping::kTile, .width = next_power_of_two(width)});
  // Not at the same place of each stretch of lines: images have the largest numbers of some channels at their borders.
  const Index moved = kernel::modulo(symbol_index(line) * Index(spread_step(distance)), distance,
                                     kernel::ranges_of(build.kernel()));
  const Index element = (symbol_index(line) * Index(distance) + moved) * Index(kLine) + symbol_index(at);
  const ExprId value = image_elements(draft,
                                      {.shape = {one_.samples, elements},
                                       .strides = {one_.image_strides[0], 1},
                                       .at = {sample, element},
                                       .inside = {kernel::kNoExpr, within(draft, element, elements)}},
                                      kernel::kNoExpr, ImageUse::kSample);
  const ExprId exponent = exponent_of(draft, value, {line, at});
  const auto of_sample = [&](const std::string& name, DType dtype, int scratch, ExprId stored) {
    const int buffer = draft.buffer(name, dtype, {one_.samples}, {}, kernel::BufferRole::kOutput, -1 - scratch);
    draft.store(buffer, {sample}, stored);
  };
  const ExprId power = build.op(ScalarOp::kSub, {exponent, number(build, kImagePower)});
  of_sample("scale", DType::f32, image_scale_, build.op(ScalarOp::kExp2, {power}));
  of_sample("spoilt", DType::i32, spoilt_samples_, whole(build, 0));
  draft.schedule.warps = group_.producer ? 16 : 8;
  finish(draft, draft.schedule);
}

void ConvolutionOperands::arrange_image() {
  const Shape shape = image_halves_shape();
  const int64_t length = product(padded()), all_channels = one_.groups * kept_;
  Shape memory = shape;
  if (blocks_.consumers > 1) {
    const Shape read = image_positions_shape();
    memory = {(one_.samples - 1) * shape[1] + read[1] * read[2]};
  }
  image_ = scratch(one_.image.name + "_halves", narrow_, memory, contiguous_strides(memory));
  if (halves_) image_rest_ = scratch(one_.image.name + "_rest", narrow_, memory, contiguous_strides(memory));
  const int64_t channels = next_power_of_two(all_channels), channel_width = std::min<int64_t>(channels, 64),
                positions = std::clamp<int64_t>(4096 / channel_width, 64, 256),
                width = std::min(positions, next_power_of_two(length));
  std::string name = "channels_last_kernel", doc = "The image in 16 bits, with its channels side by side.";
  if (group_.producer) {
    const GroupKernel& made = group_.producer->group->kernel;
    name = made.name.substr(0, made.name.rfind("kernel")) + name;
    doc = made.doc + ", in 16 bits with its channels side by side.";
  }
  ScheduledDraft draft(std::move(name), std::move(doc));
  kernel::Builder& build = draft.build;
  const Index sample = draft.grid("sample", one_.samples), block = draft.grid("block", ceil_divide(length, width)),
              chunk = draft.grid("chunk", ceil_divide(all_channels, channel_width));
  const Symbol place = draft.mapped("place", width, {.mapping = Mapping::kTile, .width = width}),
               within_chunk = draft.mapped("channel", channel_width,
                                           {.mapping = Mapping::kTile, .width = channel_width});
  const Index position = block * Index(width) + symbol_index(place),
              channel = chunk * Index(channel_width) + symbol_index(within_chunk);
  const ExprId place_exists = within(draft, position, length), channel_exists = within(draft, channel, all_channels),
               exists = build.both(place_exists, channel_exists);
  const Digits at(draft, position, padded());
  const Digits of_group(draft, channel, {one_.groups, kept_});
  ImagePlaces places{
      .shape = image_shape(),
      .strides = one_.image_strides,
      .at = {sample, of_group[0] * Index(one_.channels) + of_group[1]},
      .inside = {kernel::kNoExpr, build.both(channel_exists, within(draft, of_group[1], one_.channels))}};
  for (size_t dim = 0; dim < dims(); ++dim) {
    places.at.push_back(at[dim] - Index(one_.dims[dim].padding));
    const ExprId inside = within(draft, places.at.back(), one_.dims[dim].input);
    places.inside.push_back(dim == 0 ? build.both(place_exists, inside) : inside);
  }
  ExprId value = image_elements(draft, std::move(places), kernel::kNoExpr, ImageUse::kLayOut);
  if (scaled_) {
    const int scales = draft.buffer("scale", DType::f32, {one_.samples}, {}, kernel::BufferRole::kInput,
                                    -1 - image_scale_);
    const ExprId scale = draft.load(scales, {sample});
    value = draft.named("scaled", build.op(ScalarOp::kMul, {value, build.op(ScalarOp::kReciprocal, {scale})}));
    const int spoilt = draft.buffer("spoilt", DType::i32, {one_.samples}, {}, kernel::BufferRole::kOutput,
                                    -1 - spoilt_samples_);
    const ExprId loses = has_no_halves(build, value, {place, within_chunk});
    build.combine(kernel::ReduceOp::kMax, KernelDraft::access(spoilt, {sample}, loses), whole(build, 1));
  }
  store_halves(draft, one_.image.name, shape, image_, image_rest_, {sample, position * Index(all_channels) + channel},
               value, exists);
  // What makes the image has several tiles at once in registers.
  if (group_.producer) draft.schedule.warps = 8;
  finish(draft, draft.schedule);
}

void ConvolutionOperands::store_halves(KernelDraft& draft, const std::string& name, const Shape& shape, int first,
                                       int rest, const std::vector<Index>& places, ExprId value, ExprId mask) const {
  kernel::Builder& build = draft.build;
  const auto store = [&](const std::string& part, int scratch, ExprId half) {
    draft.store(draft.buffer(name + part, narrow_, shape, {}, kernel::BufferRole::kOutput, -1 - scratch), places, half,
                mask);
  };
  const ExprId half = draft.named("half", build.cast(narrow_, value));
  store("_halves", first, half);
  if (halves_)
    store("_rest", rest, build.cast(narrow_, build.op(ScalarOp::kSub, {value, build.cast(DType::f32, half)})));
}

ExprId ConvolutionOperands::load_halves(KernelDraft& draft, const std::string& name, const Shape& shape,
                                        const Shape& strides, int first, int rest, const std::vector<Index>& places,
                                        ExprId mask) const {
  kernel::Builder& build = draft.build;
  const auto load = [&](const std::string& part, int scratch) {
    return draft.load(draft.buffer(name + part, narrow_, shape, strides, kernel::BufferRole::kInput, -1 - scratch),
                      places, 0.0, mask);
  };
  const ExprId half = load("_halves", first);
  if (!halves_) return half;
  return build.op(ScalarOp::kAdd, {build.cast(DType::f32, half), build.cast(DType::f32, load("_rest", rest))});
}

ExprId ConvolutionOperands::has_no_halves(kernel::Builder& build, ExprId scaled,
                                          const std::vector<Symbol>& along) const {
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
  return build.op(ScalarOp::kLogicalOr, {loses, build.op(ScalarOp::kGreater, {largest, number(build, kLargestHalf)})});
}

void ConvolutionOperands::arrange_filters() {
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
    exists = build.both(exists, tap_exists(draft, one_.dims[dim], phases_at[dim], at[dim]));
  }
  ExprId value = draft.load(weight_buffer(draft), places, 0.0, exists);
  if (scaled_) {
    const ExprId exponent = exponent_of(draft, value, {depth});
    const ExprId power = build.op(ScalarOp::kSub, {exponent, number(build, kFilterPower)});
    const ExprId factor = build.op(ScalarOp::kExp2, {build.op(ScalarOp::kNeg, {power})});
    value = draft.named("scaled", build.op(ScalarOp::kMul, {value, factor}));
    const auto of_filter = [&](const std::string& name, DType dtype, int scratch, ExprId stored) {
      const int buffer = draft.buffer(name, dtype, of_filters, {}, kernel::BufferRole::kOutput, -1 - scratch);
      draft.store(buffer, row, stored);
    };
    of_filter("scale", DType::f32, filter_scale_, build.op(ScalarOp::kExp2, {power}));
    of_filter("spoilt", DType::i32, spoilt_filters_, filter_loses(build, value, depth, shape[3]));
  }
  store_halves(draft, one_.weight.name, shape, filters_, filters_rest_, {phase, group, row[2], symbol_index(depth)},
               value, kernel::kNoExpr);
  draft.schedule.warps = whole_depth >= 4096 ? 8 : 4;
  finish(draft, draft.schedule);
}

ExprId ConvolutionOperands::any_lost(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along) const {
  const ExprId size = build.op(ScalarOp::kAbs, {scaled});
  ExprId is_small = build.op(
      ScalarOp::kLogicalAnd,
      {build.op(ScalarOp::kLess, {size, number(build, halves_ ? kSmallestNormalSum : kSmallestNormalHalf)}),
       build.op(ScalarOp::kGreater, {size, number(build, 0.0)})});
  if (halves_) is_small = build.op(ScalarOp::kLogicalOr, {is_small, build.op(ScalarOp::kIsInf, {size})});
  return build.reduce(kernel::ReduceOp::kMax,
                      {build.op(ScalarOp::kSelect, {is_small, whole(build, 1), whole(build, 0)})}, along);
}

ExprId ConvolutionOperands::filter_loses(kernel::Builder& build, ExprId scaled, Symbol depth, int64_t count) const {
  if (!halves_) return any_lost(build, scaled, {depth});
  const ExprId is_infinite = build.op(ScalarOp::kIsInf, {scaled});
  const ExprId has_infinity = build.reduce(kernel::ReduceOp::kAny, {is_infinite}, {depth});
  const ExprId loses = build.op(ScalarOp::kLogicalOr, {has_infinity, lost_digits(build, scaled, {depth}, count).loses});
  return build.op(ScalarOp::kSelect, {loses, whole(build, 1), whole(build, 0)});
}

kernel::Index ConvolutionOperands::own_tap(const KernelDraft& draft, const ConvolutionDim& dim, const Index& phase,
                                           const Index& tap) const {
  if (!dim.flipped) return tap - phase * Index(dim.phase_taps);
  const int64_t distance = dim.tap_distance, step = ceil_divide(dim.phases, distance);
  const int64_t first = dim.first_tap - floor_modulo(dim.first_tap, distance);
  return kernel::floor_divide(divided(dim, phase, tap), distance, kernel::ranges_of(draft.build.kernel())) +
         Index(first / distance) - tap * Index(step);
}

ExprId ConvolutionOperands::tap_exists(KernelDraft& draft, const ConvolutionDim& dim, const Index& phase,
                                       const Index& tap) const {
  kernel::Builder& build = draft.build;
  const ExprId exists = build.both(within(draft, phase, dim.phases),
                                   within(draft, own_tap(draft, dim, phase, tap), dim.kernel));
  if (!dim.flipped || dim.tap_distance == 1) return exists;
  const Index rest = kernel::modulo(divided(dim, phase, tap), dim.tap_distance, kernel::ranges_of(build.kernel()));
  return build.both(exists, build.op(ScalarOp::kEqual, {build.index(rest, DType::i32), whole(build, 0)}));
}

int64_t kept_channels(const Convolution& convolution) {
  const int64_t channels = convolution.channels;
  return channels <= 8 ? std::max<int64_t>(next_power_of_two(channels), 2) : ceil_divide(channels, 8) * 8;
}

}  // namespace kw::plan
