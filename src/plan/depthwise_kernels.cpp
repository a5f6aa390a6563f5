#include "plan/depthwise_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "plan/convolution_operands.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::symbol_index;
using lower::AxisSchedule;
using lower::Mapping;

constexpr int64_t kMostTaps = 128;   // of an expression
constexpr int64_t kMostPhases = 16;  // of a transposed convolution, with a nest of loops each
constexpr int64_t kLongRow = 32;     // from which on rows fill their vectors
constexpr int64_t kLanes = 8;        // of a vector
constexpr const char* kNames[] = {"slice", "row", "column"};

AxisSchedule walked() { return {.mapping = Mapping::kLoop, .width = 1}; }
AxisSchedule by_threads() { return {.mapping = Mapping::kLoop, .width = 1, .threads = true}; }
AxisSchedule side_by_side() { return {.mapping = Mapping::kLoop, .width = 1, .simd = true}; }

// Places `first` to `first + count - 1` of something.
struct Stretch {
  int64_t first = 0, count = 0;
};

// Places of a phase that are within the result.
Stretch places_of(const ConvolutionDim& dim, int64_t phase) {
  const int64_t first = phase >= dim.crop ? 0 : ceil_divide(dim.crop - phase, dim.phases),
                end = ceil_divide(dim.output + dim.crop - phase, dim.phases);
  return {first, end - first};
}

// Positions of the padded image that are the image's.
Stretch image_within(const ConvolutionDim& dim) {
  const int64_t first = std::max<int64_t>(dim.padding, 0), end = std::min(dim.padding + dim.input, dim.padded());
  return {first, end - first};
}

// The same of those that are `part` modulo the stride, by their quotients.
Stretch within_part(const ConvolutionDim& dim, int64_t part) {
  const auto [first, count] = image_within(dim);
  const int64_t begin = ceil_divide(std::max<int64_t>(first - part, 0), dim.stride),
                end = ceil_divide(std::max<int64_t>(first + count - part, 0), dim.stride);
  return {begin, end - begin};
}

class DepthwiseKernels : ConvolutionOperands {
 public:
  explicit DepthwiseKernels(const LoweredGroup& group) : ConvolutionOperands(group, kNoBlocks) {
    const int64_t padded = ceil_divide(last().padded(), last().stride);
    int64_t shared = padded, most_before = 0;  // zeros that a row and the next can have in common; before a row
    for (int64_t part = 0; part < last().stride; ++part) {
      const auto [first, count] = within_part(last(), part);
      shared = std::min({shared, first, padded - first - count});
      most_before = std::max(most_before, first);
    }
    pitch_ = padded - shared;
    plane_ = ceil_divide(rows().padded(), rows().stride) * pitch_ + most_before;
    walks_taps_ = dims() > 1 && one_.phases() == 1 && rows().taps > 3;
    is_flat_ = dims() > 1 && one_.phases() == 1 && rows().output > 1 && last().output < kLongRow;
    if (!is_flat_) return;
    places_ = (rows().output - 1) * pitch_ + last().output;
    places_ = ceil_divide(places_, kLanes) * kLanes;
    const auto reach = [](const ConvolutionDim& dim) { return (dim.taps - 1) * dim.dilation / dim.stride; };
    plane_ = std::max(plane_, places_ + reach(rows()) * pitch_ + reach(last()));
  }

  ScheduledGroup run() {
    lay_out_image();
    sum_taps();
    if (is_flat_) finish_sums();
    return std::move(result_);
  }

 private:
  static constexpr ConvolutionBlocks kNoBlocks{};

  const ConvolutionDim& last() const { return one_.dims.back(); }
  const ConvolutionDim& rows() const { return dims() > 1 ? one_.dims[dims() - 2] : kOneRow; }
  static std::string name_of(size_t dims, size_t dim) { return kNames[3 - dims + dim]; }

  // With zeros around it: [sample, channel, dimensions but the last two, part of the rows, part of the columns, place].
  // Every stride-th row and column is of one part, so that what neighbouring results read are neighbours.
  Shape laid_out_shape() const {
    Shape shape = {one_.samples, one_.groups};
    for (size_t dim = 0; dim + 2 < dims(); ++dim) shape.push_back(one_.dims[dim].padded());
    shape.insert(shape.end(), {rows().stride, last().stride, plane_});
    return shape;
  }
  // Of all places of a plane, those between two rows as well.
  Shape sums_shape() const {
    Shape shape = {one_.samples, one_.groups * one_.filters};
    for (size_t dim = 0; dim + 2 < dims(); ++dim) shape.push_back(one_.dims[dim].output);
    shape.push_back(places_);
    return shape;
  }

  int laid_out(KernelDraft& draft, kernel::BufferRole role) const {
    return draft.buffer(one_.image.name + "_padded", DType::f32, laid_out_shape(), {}, role, -1 - image_);
  }

  static Index axis(ScheduledDraft& draft, const std::string& name, int64_t extent, const AxisSchedule& how) {
    if (extent == 1) return 0;
    if (how.mapping == Mapping::kLoop) draft.schedule.nest.push_back({name});
    return symbol_index(draft.mapped(name, extent, how));
  }

  // A plane at a time: each row and the zeros behind it, and the zeros before the first and behind the last.
  void lay_out_image() {
    const Shape shape = laid_out_shape();
    image_ = scratch(one_.image.name + "_padded", DType::f32, shape, contiguous_strides(shape));
    ScheduledDraft draft("padded_image_kernel", "The image with zeros around it.");
    const Index sample = axis(draft, "sample", one_.samples, by_threads()),
                channel = axis(draft, "channel", one_.groups, by_threads());
    const int output = laid_out(draft, kernel::BufferRole::kOutput);
    const int image = group_.producer
                          ? -1
                          : draft.buffer(one_.image.name, one_.image.dtype, image_shape(), one_.image_strides,
                                         kernel::BufferRole::kInput, one_.image.root, one_.image.offset);
    const auto zeros = [&](const std::string& name, const std::vector<Index>& to, const Index& first, int64_t count) {
      if (count <= 0) return;
      std::vector<Index> stored = to;
      stored.push_back(first + axis(draft, name, count, side_by_side()));
      draft.store(output, stored, number(draft.build, 0.0));
    };
    std::vector<Index> from = {sample, channel}, to = {sample, channel};
    if (dims() > 2) {
      const ConvolutionDim& slices = one_.dims.front();
      const auto [first, count] = image_within(slices);
      for (const auto& [name, begin, end] :
           {std::tuple{"before", int64_t{0}, first}, std::tuple{"behind", first + count, slices.padded()}}) {
        if (end <= begin) continue;
        const std::string slice = std::string("slice_") + name;
        const Index at = axis(draft, slice, end - begin, walked()) + Index(begin);
        for (int64_t part = 0; part < rows().stride * last().stride; ++part)
          zeros(fmt::format("place_{}_{}", name, part),
                {sample, channel, at, Index(part / last().stride), Index(part % last().stride)}, 0, plane_);
      }
      const Index at = axis(draft, "slice", count, walked());
      to.push_back(at + Index(first));
      from.push_back(at + Index(first - slices.padding));
    }
    for (int64_t part = 0; part < rows().stride; ++part) {
      const auto [first, count] = dims() > 1 ? within_part(rows(), part) : Stretch{0, 1};
      const std::string of_part = rows().stride == 1 ? "" : fmt::format("_{}", part);
      const auto parts_of_rows = [&](int64_t column_part) {
        std::vector<Index> stored = to;
        stored.insert(stored.end(), {Index(part), Index(column_part)});
        return stored;
      };
      for (int64_t column = 0; column < last().stride; ++column) {
        const Stretch columns = within_part(last(), column);
        const std::string of_both = of_part + (last().stride == 1 ? "" : fmt::format("_{}", column));
        const int64_t before = count > 0 ? first * pitch_ + columns.first : plane_,
                      behind = (first + count) * pitch_ + columns.first;
        zeros("zero_before" + of_both, parts_of_rows(column), 0, before);
        if (count > 0) zeros("zero_behind" + of_both, parts_of_rows(column), behind, plane_ - behind);
      }
      if (count <= 0) continue;
      const Index row = axis(draft, "row" + of_part, count, walked()) + Index(first);
      std::vector<Index> from_row = from;
      if (dims() > 1) from_row.push_back(row * Index(rows().stride) + Index(part - rows().padding));
      for (int64_t column = 0; column < last().stride; ++column) {
        const Stretch columns = within_part(last(), column);
        const std::string of_both = of_part + (last().stride == 1 ? "" : fmt::format("_{}", column));
        const Index end = row * Index(pitch_) + Index(columns.first + columns.count);
        if (columns.count > 0)
          copy_row(draft, {image, output},
                   axis(draft, "column" + of_both, columns.count, side_by_side()) + Index(columns.first), column,
                   from_row, parts_of_rows(column), row);
        zeros("zero" + of_both, parts_of_rows(column), end, pitch_ - columns.count);
      }
    }
    finish(draft, draft.schedule);
  }

  struct Copied {
    int image, output;  // buffers; no image where the group makes it
  };

  void copy_row(ScheduledDraft& draft, const Copied& buffers, const Index& place, int64_t part, std::vector<Index> from,
                std::vector<Index> to, const Index& row) const {
    from.push_back(place * Index(last().stride) + Index(part - last().padding));
    to.push_back(row * Index(pitch_) + place);
    ExprId value = kernel::kNoExpr;
    if (group_.producer) {
      std::vector<ExprId> inside(from.size(), kernel::kNoExpr);
      value = image_elements(draft, {image_shape(), one_.image_strides, std::move(from), std::move(inside)},
                             kernel::kNoExpr, ImageUse::kSample);
    } else {
      value = draft.load(buffers.image, from);
    }
    draft.store(buffers.output, to, value);
  }

  struct Around {
    Index sample, group, filter, row;
  };

  Around around(ScheduledDraft& draft) const {
    Around at;
    at.sample = axis(draft, "sample", one_.samples, by_threads());
    at.group = axis(draft, "channel", one_.groups, by_threads());
    at.filter = axis(draft, "filter", one_.filters, by_threads());
    at.row = at.group * Index(one_.filters) + at.filter;
    return at;
  }

  void sum_taps() {
    if (is_flat_) {
      const Shape shape = sums_shape();
      sums_ = scratch("sums", DType::f32, shape, contiguous_strides(shape));
    }
    ScheduledDraft draft(is_flat_ ? "taps_kernel" : group_.kernel.name,
                         is_flat_ ? "Sums over the taps at all places of a plane." : group_.kernel.doc);
    const Around at = around(draft);
    const int image = laid_out(draft, kernel::BufferRole::kInput), weight = weight_buffer(draft);
    std::vector<int64_t> phase(dims(), 0);
    for (int64_t number = 0; number < one_.phases(); ++number) {
      int64_t left = number;
      for (size_t dim = dims(); dim-- > 0; left /= one_.dims[dim].phases) phase[dim] = left % one_.dims[dim].phases;
      sum_phase(draft, at, phase, image, weight);
    }
    finish(draft, draft.schedule);
  }

  void sum_phase(ScheduledDraft& draft, const Around& at, const std::vector<int64_t>& phase, int image, int weight) {
    std::vector<Index> place, outputs;
    for (size_t dim = 0; dim < dims(); ++dim) {
      const ConvolutionDim& one = one_.dims[dim];
      auto [first, count] = places_of(one, phase[dim]);
      if (count <= 0) return;
      std::string name = name_of(dims(), dim);
      if (is_flat_ && dim + 2 >= dims()) {
        count = dim + 2 == dims() ? 1 : places_;
        name = "place";
      }
      if (one_.phases() > 1)
        for (const int64_t number : phase) name += fmt::format("_{}", number);
      AxisSchedule how = dim + 1 == dims() ? side_by_side() : walked();
      if (walks_taps_ && dim + 1 == dims()) how = {.mapping = Mapping::kTile, .width = count, .simd = true};
      place.push_back(axis(draft, name, count, how) + Index(first));
      outputs.push_back(place.back() * Index(one.phases) + Index(phase[dim] - one.crop));
    }
    Index tap_row = 0;
    std::vector<kernel::Symbol> summed;
    if (walks_taps_) {
      draft.schedule.nest.push_back({"tap_row"});
      summed.push_back(
          draft.mapped("tap_row", rows().taps, {.mapping = Mapping::kLoop, .width = 1, .unrolled = rows().stride > 1}));
      tap_row = symbol_index(summed.back());
    }
    // A row of taps is a chain of its own, so that chains overlap.
    std::vector<ExprId> chains;
    for (int64_t number = 0; number < one_.taps(); ++number) {
      std::vector<int64_t> tap(dims());
      int64_t left = number;
      for (size_t dim = dims(); dim-- > 0; left /= one_.dims[dim].taps) tap[dim] = left % one_.dims[dim].taps;
      if (tap.back() == 0) chains.push_back(kernel::kNoExpr);
      if (walks_taps_ && tap[dims() - 2] > 0) continue;
      add_tap(draft, at, {place, phase, tap, tap_row}, {image, weight}, chains.back());
    }
    ExprId sum = kernel::kNoExpr;
    for (const ExprId one : chains)
      if (one != kernel::kNoExpr) sum = sum == kernel::kNoExpr ? one : draft.build.add(sum, one);
    if (sum == kernel::kNoExpr) sum = number(draft.build, 0.0);  // a phase that no tap reaches
    if (walks_taps_) sum = draft.build.reduce(kernel::ReduceOp::kSum, {sum}, summed);
    if (is_flat_) {
      std::vector<Index> stored = {at.sample, at.row};
      stored.insert(stored.end(), place.begin(), place.end() - 2);
      stored.push_back(place.back());
      draft.store(draft.buffer("sums", DType::f32, sums_shape(), {}, kernel::BufferRole::kOutput, -1 - sums_), stored,
                  sum);
    } else {
      store(draft, at, outputs, sum);
    }
  }

  struct Tap {
    const std::vector<Index>& place;
    const std::vector<int64_t>&phase, &tap;  // along each dimension
    const Index& row;                        // where rows of taps are walked
  };
  struct Operands {
    int image, weight;  // buffers
  };

  void add_tap(ScheduledDraft& draft, const Around& at, const Tap& of, const Operands& operands, ExprId& chain) const {
    std::vector<Index> of_weight = {at.group, at.filter, Index(0)}, of_image = {at.sample, at.group};
    std::vector<int64_t> reach;
    for (size_t dim = 0; dim < dims(); ++dim) {
      const ConvolutionDim& one = one_.dims[dim];
      const auto own = one.own_tap(of.phase[dim], of.tap[dim]);
      if (!own) return;
      const bool is_walked = walks_taps_ && dim + 2 == dims();
      of_weight.push_back(is_walked ? own_tap(draft, one, Index(0), of.row) : Index(*own));
      reach.push_back(of.tap[dim] * one.dilation);
      if (dim + 2 < dims()) of_image.push_back(of.place[dim] * Index(one.stride) + Index(reach.back()));
    }
    Index row = 0, row_part = 0;
    if (dims() > 1) {
      const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(draft.build.kernel());
      const Index rows_on = walks_taps_ ? of.row * Index(rows().dilation) : Index(reach[dims() - 2]);
      row_part = kernel::modulo(rows_on, rows().stride, ranges);
      row = of.place[dims() - 2] + kernel::floor_divide(rows_on, rows().stride, ranges);
    }
    of_image.insert(of_image.end(), {row_part, Index(reach.back() % last().stride),
                                     row * Index(pitch_) + of.place.back() + Index(reach.back() / last().stride)});
    kernel::Builder& build = draft.build;
    const ExprId element = draft.load(operands.image, of_image), factor = draft.load(operands.weight, of_weight);
    chain = chain == kernel::kNoExpr ? build.mul(element, factor) : build.op(ScalarOp::kFma, {element, factor, chain});
  }

  // What the sums of a plane are followed by, at the places that are results.
  void finish_sums() {
    ScheduledDraft draft(group_.kernel.name, group_.kernel.doc);
    const Around at = around(draft);
    std::vector<Index> outputs, from = {at.sample, at.row};
    for (size_t dim = 0; dim < dims(); ++dim) {
      outputs.push_back(
          axis(draft, name_of(dims(), dim), one_.dims[dim].output, dim + 1 == dims() ? side_by_side() : walked()));
      if (dim + 2 < dims()) from.push_back(outputs.back());
    }
    from.push_back(outputs[dims() - 2] * Index(pitch_) + outputs.back());
    const int sums = draft.buffer("sums", DType::f32, sums_shape(), {}, kernel::BufferRole::kInput, -1 - sums_);
    store(draft, at, outputs, draft.load(sums, from));
    finish(draft, draft.schedule);
  }

  // Bias, what follows, and the stores.
  void store(ScheduledDraft& draft, const Around& at, const std::vector<Index>& outputs, ExprId sum) const {
    if (one_.bias) {
      const int bias = draft.buffer(one_.bias->name, one_.bias->dtype, {one_.groups * one_.filters}, {one_.bias->row},
                                    kernel::BufferRole::kInput, one_.bias->root, one_.bias->offset);
      sum = draft.build.add(sum, draft.load(bias, {at.row}));
    }
    Index position = 0;
    for (size_t dim = 0; dim < dims(); ++dim) position = position * Index(one_.dims[dim].output) + outputs[dim];
    store_results(draft, group_, {at.sample, at.row, position}, sum, kernel::kNoExpr);
  }

  static const ConvolutionDim kOneRow;
  bool is_flat_ = false;     // all places of a plane are summed as one row
  bool walks_taps_ = false;  // rows of them, by a loop around that along a row of results
  int64_t pitch_ = 0;        // from a row to the next, of a part
  int64_t plane_ = 0;        // places of a part
  int64_t places_ = 0;       // of the sums, if they are flat
  int sums_ = 0;             // scratch
};

const ConvolutionDim DepthwiseKernels::kOneRow;

}  // namespace

bool can_sum_taps(const LoweredGroup& group) {
  if (!group.convolution || group.statistics) return false;
  const Convolution& one = *group.convolution;
  return one.is_direct() && one.image.dtype == DType::f32 && one.window() == 1 && !one.folds_filters &&
         (one.image_strides.back() == 1 || one.dims.back().input == 1) && one.taps() <= kMostTaps &&
         one.phases() <= kMostPhases && std::all_of(one.dims.begin(), one.dims.end(), [](const ConvolutionDim& dim) {
           return image_within(dim).count > 0;
         });
}

ScheduledGroup depthwise_kernels(const LoweredGroup& group) { return DepthwiseKernels(group).run(); }

}  // namespace kw::plan
