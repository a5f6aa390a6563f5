#include "plan/winograd_kernels.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "plan/convolution_operands.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::AxisSchedule;
using lower::Mapping;

constexpr int kSide = 4, kResults = 2, kTaps = 3;  // of the elements, results and taps of a tile
// Elements of an image that have this many times the largest of another window of their tile would cost the results of
// that window two digits.
constexpr double kMostUneven = 4;
constexpr double kMostFinite = 0x1p50;  // so that no sum on the way is infinite

AxisSchedule walked() { return {.mapping = Mapping::kLoop, .width = 1}; }
AxisSchedule by_threads() { return {.mapping = Mapping::kLoop, .width = 1, .threads = true}; }
AxisSchedule side_by_side() { return {.mapping = Mapping::kLoop, .width = 1, .simd = true}; }

template <int kRows, int kColumns>
using Grid = std::array<std::array<ExprId, kColumns>, kRows>;

class WinogradKernels : ConvolutionOperands {
 public:
  WinogradKernels(const LoweredGroup& group, const WinogradBlocks& blocks)
      : ConvolutionOperands(group, kNoBlocks),
        tiles_(blocks),
        rows_(ceil_divide(one_.dims[0].output, kResults)),
        columns_(ceil_divide(one_.dims[1].output, kResults)),
        pitch_(columns_ + 1),
        places_(ceil_divide(rows_ * pitch_, tiles_.places) * tiles_.places),
        image_rows_(ceil_divide(places_ + pitch_ + 1, pitch_)) {}

  ScheduledGroup run() {
    take_image_apart();
    find_largest();
    transform_filters();
    multiply();
    multiply_again();
    finish_results();
    return std::move(result_);
  }

 private:
  static constexpr ConvolutionBlocks kNoBlocks{};

  // The image as every other row and column of it, zeros around it included: [sample, channel, odd row, odd column,
  // place]. Neighbouring tiles then read neighbours, and rows follow each other.
  Shape image_shape_apart() const { return {one_.samples, one_.channels, 2, 2, image_rows_ * pitch_}; }
  Shape largest_shape() const { return {one_.samples, 2, 2, image_rows_ * pitch_}; }
  Shape sums_shape() const { return {one_.samples, one_.filters, kResults, kResults, places_}; }
  Shape filters_shape() const { return {kSide, kSide, one_.channels, one_.filters}; }

  int own(KernelDraft& draft, const std::string& name, const Shape& shape, kernel::BufferRole role, int scratch,
          DType dtype = DType::f32) const {
    return draft.buffer(name, dtype, shape, {}, role, -1 - scratch);
  }

  // Element (row, column) of the tile at each place; of a kernel with such axes.
  Grid<kSide, kSide> elements(KernelDraft& draft, int buffer, const std::vector<Index>& outer,
                              const Index& place) const {
    Grid<kSide, kSide> all{};
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column) {
        std::vector<Index> at = outer;
        at.insert(at.end(), {Index(row % 2), Index(column % 2), place + Index(row / 2 * pitch_ + column / 2)});
        all[row][column] = draft.named(fmt::format("element_{}{}", row, column), draft.load(buffer, at));
      }
    return all;
  }

  void take_image_apart() {
    const Shape shape = image_shape_apart();
    image_ = scratch(one_.image.name + "_apart", DType::f32, shape, contiguous_strides(shape));
    ScheduledDraft draft("image_apart_kernel", "Every other row and column of the image, with zeros around it.");
    const Index sample = among_threads(draft, "sample", one_.samples),
                channel = among_threads(draft, "channel", one_.channels);
    const Index row = symbol_index(draft.mapped("row", image_rows_, walked())),
                odd_row = symbol_index(draft.mapped("odd_row", 2, walked())),
                odd_column = symbol_index(draft.mapped("odd_column", 2, walked())),
                column = symbol_index(draft.mapped("column", pitch_, side_by_side()));
    ImagePlaces places{.shape = image_shape(),
                       .strides = one_.image_strides,
                       .at = {sample, channel},
                       .inside = {kernel::kNoExpr, kernel::kNoExpr}};
    for (const Index& at : {row * Index(2) + odd_row - Index(one_.dims[0].padding),
                            column * Index(2) + odd_column - Index(one_.dims[1].padding)}) {
      const int64_t length = one_.dims[places.at.size() - 2].input;
      places.at.push_back(at);
      places.inside.push_back(within(draft, at, length));
    }
    const ExprId value = image_elements(draft, std::move(places), kernel::kNoExpr, ImageUse::kLayOut);
    draft.store(own(draft, one_.image.name + "_apart", shape, kernel::BufferRole::kOutput, image_),
                {sample, channel, odd_row, odd_column, row * Index(pitch_) + column}, value);
    finish(draft, draft.schedule);
  }

  // Of all channels; infinite where it is not finite, or so large that sums may not be.
  void find_largest() {
    const Shape shape = largest_shape();
    largest_ = scratch("largest", DType::f32, shape, contiguous_strides(shape));
    ScheduledDraft draft("largest_kernel", "The largest number of all channels at each place.");
    kernel::Builder& build = draft.build;
    const Index sample = draft.grid("sample", one_.samples), odd_row = draft.grid("odd_row", 2),
                odd_column = draft.grid("odd_column", 2);
    const int64_t length = image_rows_ * pitch_;
    const Index place = symbol_index(
        draft.mapped("place", length, {.mapping = Mapping::kGrid, .width = std::min<int64_t>(length, 256)}));
    const Symbol channel = draft.mapped("channel", one_.channels, walked());
    const int image = own(draft, one_.image.name + "_apart", image_shape_apart(), kernel::BufferRole::kInput, image_);
    const ExprId element = draft.load(image, {sample, symbol_index(channel), odd_row, odd_column, place});
    const ExprId largest = build.reduce(kernel::ReduceOp::kMax, {build.op(ScalarOp::kAbs, {element})}, {channel});
    const ExprId is_finite = build.op(ScalarOp::kLessEqual, {largest, number(build, kMostFinite)});
    draft.store(own(draft, "largest", shape, kernel::BufferRole::kOutput, largest_),
                {sample, odd_row, odd_column, place},
                build.select(is_finite, largest, number(build, std::numeric_limits<double>::infinity())));
    finish(draft, draft.schedule);
  }

  // G g Gᵀ with G = (1 0 0; ½ ½ ½; ½ −½ ½; 0 0 1).
  void transform_filters() {
    const Shape shape = filters_shape();
    filters_ = scratch(one_.weight.name + "_forms", DType::f32, shape, contiguous_strides(shape));
    spoilt_filters_ = scratch("spoilt_filters", DType::i32, {one_.filters}, {1});
    ScheduledDraft draft("filters_kernel", "The sixteen forms of each filter's nine taps.");
    kernel::Builder& build = draft.build;
    const Symbol filter = draft.mapped("filter", one_.filters, by_threads()),
                 channel = draft.mapped("channel", one_.channels, walked());
    const int weight = weight_buffer(draft);
    ExprId size = kernel::kNoExpr;
    Grid<kTaps, kTaps> taps{};
    for (int row = 0; row < kTaps; ++row)
      for (int column = 0; column < kTaps; ++column) {
        taps[row][column] = draft.load(weight, {Index(0), symbol_index(filter), symbol_index(channel),
                                                own_tap(draft, one_.dims[0], Index(0), Index(row)),
                                                own_tap(draft, one_.dims[1], Index(0), Index(column))});
        const ExprId one = build.op(ScalarOp::kAbs, {taps[row][column]});
        size = size == kernel::kNoExpr ? one : build.add(size, one);
      }
    const auto forms_of = [&](ExprId first, ExprId second, ExprId third) -> std::array<ExprId, kSide> {
      const ExprId half = number(build, 0.5), outer = build.add(first, third);
      return {first, build.mul(half, build.add(outer, second)), build.mul(half, build.sub(outer, second)), third};
    };
    Grid<kTaps, kSide> down{};  // column of taps, form
    for (int column = 0; column < kTaps; ++column)
      down[column] = forms_of(taps[0][column], taps[1][column], taps[2][column]);
    const int forms = own(draft, one_.weight.name + "_forms", shape, kernel::BufferRole::kOutput, filters_);
    for (int row = 0; row < kSide; ++row) {
      const auto across = forms_of(down[0][row], down[1][row], down[2][row]);
      for (int column = 0; column < kSide; ++column)
        draft.store(forms, {Index(row), Index(column), symbol_index(channel), symbol_index(filter)}, across[column]);
    }
    const ExprId largest = build.reduce(kernel::ReduceOp::kMax, {size}, {channel});
    const ExprId is_small = build.op(ScalarOp::kLessEqual, {largest, number(build, kMostFinite)});
    draft.store(own(draft, "spoilt_filters", {one_.filters}, kernel::BufferRole::kOutput, spoilt_filters_, DType::i32),
                {symbol_index(filter)}, build.select(is_small, whole(build, 0), whole(build, 1)));
    finish(draft, draft.schedule);
  }

  // Bᵀ d B, sums over channels of its products with the filters' forms, and Aᵀ m A of these.
  void multiply() {
    const Shape shape = sums_shape();
    sums_ = scratch("sums", DType::f32, shape, contiguous_strides(shape));
    ScheduledDraft draft("winograd_kernel", "Two by two results of each filter by sixteen products of matrices.");
    kernel::Builder& build = draft.build;
    const Index sample = draft.grid("sample", one_.samples);
    const Symbol filter = draft.mapped("filter", one_.filters, blocks_of(one_.filters, tiles_.filters)),
                 place = draft.mapped("place", places_, {.mapping = Mapping::kGrid, .width = tiles_.places}),
                 channel = draft.mapped("channel", one_.channels, loop_of(one_.channels, tiles_.channels));
    const int image = own(draft, one_.image.name + "_apart", image_shape_apart(), kernel::BufferRole::kInput, image_),
              forms = own(draft, one_.weight.name + "_forms", filters_shape(), kernel::BufferRole::kInput, filters_);
    const Grid<kSide, kSide> element = elements(draft, image, {sample, symbol_index(channel)}, symbol_index(place));
    const auto forms_of = [&](ExprId a, ExprId b, ExprId c, ExprId d) -> std::array<ExprId, kSide> {
      return {build.sub(a, c), build.add(b, c), build.sub(c, b), build.sub(b, d)};
    };
    Grid<kSide, kSide> down{}, products{};  // [column][form], [form][form]
    for (int column = 0; column < kSide; ++column)
      down[column] = forms_of(element[0][column], element[1][column], element[2][column], element[3][column]);
    for (int row = 0; row < kSide; ++row) {
      const auto across = forms_of(down[0][row], down[1][row], down[2][row], down[3][row]);
      for (int column = 0; column < kSide; ++column) {
        const ExprId form = draft.named(fmt::format("form_{}{}", row, column), across[column]);
        const ExprId other = draft.load(forms,
                                        {Index(row), Index(column), symbol_index(channel), symbol_index(filter)});
        products[row][column] = draft.named(fmt::format("product_{}{}", row, column),
                                            build.dot(form, other, {channel}));
      }
    }
    const auto results_of = [&](ExprId a, ExprId b, ExprId c, ExprId d) -> std::array<ExprId, kResults> {
      return {build.add(build.add(a, b), c), build.sub(build.sub(b, c), d)};
    };
    Grid<kSide, kResults> upper{};  // [column][result]
    for (int column = 0; column < kSide; ++column)
      upper[column] = results_of(products[0][column], products[1][column], products[2][column], products[3][column]);
    const int sums = own(draft, "sums", shape, kernel::BufferRole::kOutput, sums_);
    for (int row = 0; row < kResults; ++row) {
      const auto results = results_of(upper[0][row], upper[1][row], upper[2][row], upper[3][row]);
      for (int column = 0; column < kResults; ++column)
        draft.store(sums, {sample, symbol_index(filter), Index(row), Index(column), symbol_index(place)},
                    results[column]);
    }
    finish(draft, draft.schedule);
  }

  // The same by plain sums, in blocks with a tile whose windows differ too much, and in all where a filter is too
  // large.
  void multiply_again() {
    ScheduledDraft draft("sums_again_kernel", "Plain sums, where a tile's elements differ too much in size.");
    kernel::Builder& build = draft.build;
    const Index sample = draft.grid("sample", one_.samples);
    const Symbol filter = draft.mapped("filter", one_.filters, {.mapping = Mapping::kTile, .width = one_.filters}),
                 block = draft.mapped("block", places_ / tiles_.places, {}),
                 lane = draft.mapped("place", tiles_.places, {.mapping = Mapping::kTile, .width = tiles_.places}),
                 each = draft.mapped("each", tiles_.places, {.mapping = Mapping::kTile, .width = tiles_.places}),
                 tap_row = draft.mapped("tap_row", kTaps, walked()),
                 tap_column = draft.mapped("tap_column", kTaps, walked()),
                 channel = draft.mapped("channel", one_.channels, loop_of(one_.channels, tiles_.channels));
    draft.schedule.nest = {{"tap_row", "tap_column", "channel"}};
    draft.schedule.skip_masked = true;
    const auto place_at = [&](Symbol within_block) {
      return symbol_index(block) * Index(tiles_.places) + symbol_index(within_block);
    };
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    const int image = own(draft, one_.image.name + "_apart", image_shape_apart(), kernel::BufferRole::kInput, image_),
              sums = own(draft, "sums", sums_shape(), kernel::BufferRole::kOutput, sums_);
    const ExprId weight = draft.load(weight_buffer(draft),
                                     {Index(0), symbol_index(filter), symbol_index(channel),
                                      own_tap(draft, one_.dims[0], Index(0), symbol_index(tap_row)),
                                      own_tap(draft, one_.dims[1], Index(0), symbol_index(tap_column))});
    const ExprId spoilt = draft.named("is_spoilt", is_spoilt(draft, sample, place_at(each), each));
    for (int row = 0; row < kResults; ++row)
      for (int column = 0; column < kResults; ++column) {
        const Index down = symbol_index(tap_row) + Index(row), across = symbol_index(tap_column) + Index(column);
        const ExprId element = draft.load(
            image, {sample, symbol_index(channel), kernel::modulo(down, 2, ranges), kernel::modulo(across, 2, ranges),
                    place_at(lane) + kernel::floor_divide(down, 2, ranges) * Index(pitch_) +
                        kernel::floor_divide(across, 2, ranges)});
        draft.store(sums, {sample, symbol_index(filter), Index(row), Index(column), place_at(lane)},
                    build.dot(weight, element, {tap_row, tap_column, channel}), spoilt);
      }
    finish(draft, draft.schedule);
  }

  // Of a block.
  ExprId is_spoilt(ScheduledDraft& draft, const Index& sample, const Index& place, Symbol each) {
    kernel::Builder& build = draft.build;
    // There is no NaN among them: one instruction each.
    const auto larger = [&](ExprId a, ExprId b) { return build.select(build.op(ScalarOp::kGreater, {a, b}), a, b); };
    const auto smaller = [&](ExprId a, ExprId b) { return build.select(build.op(ScalarOp::kLess, {a, b}), a, b); };
    const int buffer = own(draft, "largest", largest_shape(), kernel::BufferRole::kInput, largest_);
    const Grid<kSide, kSide> size = elements(draft, buffer, {sample}, place);
    const auto windows_of = [&](ExprId a, ExprId b, ExprId c, ExprId d) -> std::array<ExprId, kResults> {
      const ExprId inner = larger(b, c);
      return {larger(a, inner), larger(inner, d)};
    };
    Grid<kSide, kResults> upper{};
    for (int column = 0; column < kSide; ++column)
      upper[column] = windows_of(size[0][column], size[1][column], size[2][column], size[3][column]);
    Grid<kResults, kResults> window{};
    for (int row = 0; row < kResults; ++row)
      window[row] = windows_of(upper[0][row], upper[1][row], upper[2][row], upper[3][row]);
    const ExprId largest = larger(larger(window[0][0], window[0][1]), larger(window[1][0], window[1][1])),
                 least = smaller(smaller(window[0][0], window[0][1]), smaller(window[1][0], window[1][1]));
    const ExprId is_even = build.op(
        ScalarOp::kLogicalAnd, {build.op(ScalarOp::kLessEqual, {largest, build.mul(least, number(build, kMostUneven))}),
                                build.op(ScalarOp::kLess, {largest, number(build, 2 * kMostFinite)})});
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    const ExprId exists = build.both(within(draft, place, rows_ * pitch_),
                                     within(draft, kernel::modulo(place, pitch_, ranges), columns_));
    const ExprId one = whole(build, 1), none = whole(build, 0);
    const ExprId uneven = build.select(exists, build.select(is_even, none, one), none);
    const Symbol other = draft.mapped("other_filter", one_.filters, {.mapping = Mapping::kTile, .width = one_.filters});
    const ExprId spoilt = draft.load(
        own(draft, "spoilt_filters", {one_.filters}, kernel::BufferRole::kInput, spoilt_filters_, DType::i32),
        {symbol_index(other)});
    const auto any = [&](ExprId flag, Symbol along) {
      return build.op(ScalarOp::kGreater, {build.reduce(kernel::ReduceOp::kMax, {flag}, {along}), none});
    };
    return build.op(ScalarOp::kLogicalOr, {any(uneven, each), any(spoilt, other)});
  }

  // Bias, what follows, and the stores: each result at its own place.
  void finish_results() {
    ScheduledDraft draft(group_.kernel.name, group_.kernel.doc);
    kernel::Builder& build = draft.build;
    const Index sample = among_threads(draft, "sample", one_.samples),
                filter = among_threads(draft, "filter", one_.filters);
    const Index row = symbol_index(draft.mapped("row", rows_, walked())),
                row_of_tile = symbol_index(draft.mapped("row_of_tile", kResults, walked())),
                column = symbol_index(draft.mapped("column", columns_, side_by_side())),
                column_of_tile = symbol_index(draft.mapped(
                    "column_of_tile", kResults, {.mapping = Mapping::kTile, .width = kResults, .unrolled = true}));
    const int sums = own(draft, "sums", sums_shape(), kernel::BufferRole::kInput, sums_);
    ExprId result = draft.load(sums, {sample, filter, row_of_tile, column_of_tile, row * Index(pitch_) + column});
    if (one_.bias) {
      const int bias = draft.buffer(one_.bias->name, one_.bias->dtype, {one_.filters}, {one_.bias->row},
                                    kernel::BufferRole::kInput, one_.bias->root, one_.bias->offset);
      result = build.add(result, draft.load(bias, {filter}));
    }
    const Index down = row * Index(kResults) + row_of_tile, across = column * Index(kResults) + column_of_tile;
    const int64_t length = one_.dims[1].output;
    store_results(draft, group_, {sample, filter, down * Index(length) + across}, result,
                  build.both(within(draft, down, one_.dims[0].output), within(draft, across, length)));
    finish(draft, draft.schedule);
  }

  static Index among_threads(ScheduledDraft& draft, const std::string& name, int64_t extent) {
    return extent == 1 ? Index(0) : symbol_index(draft.mapped(name, extent, by_threads()));
  }

  static AxisSchedule blocks_of(int64_t extent, int64_t width) {
    return {.mapping = width >= extent ? Mapping::kTile : Mapping::kGrid, .width = std::min(width, extent)};
  }
  static AxisSchedule loop_of(int64_t extent, int64_t width) {
    return {.mapping = width >= extent ? Mapping::kTile : Mapping::kLoop, .width = std::min(width, extent)};
  }

  const WinogradBlocks& tiles_;
  const int64_t rows_, columns_, pitch_;  // tiles of a sample, and what a row of them has in memory
  const int64_t places_, image_rows_;     // in whole blocks; rows of each part of the image that they read
  int largest_ = 0, sums_ = 0;            // scratch
};

}  // namespace

bool can_use_winograd(const LoweredGroup& group) {
  if (!group.convolution || group.statistics) return false;
  const Convolution& one = *group.convolution;
  const bool fits = one.dims.size() == 2 && std::all_of(one.dims.begin(), one.dims.end(), [](const auto& dim) {
                      return dim.kernel == kTaps && dim.stride == 1 && dim.dilation == 1 && dim.phases == 1 &&
                             dim.window == 1 && dim.padding >= 0;
                    });
  return fits && one.groups == 1 && one.image.dtype == DType::f32 && !one.is_direct() && !one.folds_filters;
}

int64_t winograd_places(const Convolution& convolution) {
  return ceil_divide(convolution.dims[0].output, kResults) * (ceil_divide(convolution.dims[1].output, kResults) + 1);
}

ScheduledGroup winograd_kernels(const LoweredGroup& group, const WinogradBlocks& blocks) {
  return WinogradKernels(group, blocks).run();
}

}  // namespace kw::plan
