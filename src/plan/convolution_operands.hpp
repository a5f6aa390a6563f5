// What a convolution's kernels read: an image and filters in 16 bits with their channels side by side, scaled into the
// range of halves, and marks of what halves do not hold (docs/precision.md).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/convolution_image.hpp"
#include "plan/convolution_kernels.hpp"
#include "plan/scheduled_draft.hpp"

namespace kw::plan {

class ConvolutionOperands : public ProductKernels {
 protected:
  using ExprId = kernel::ExprId;
  using Index = kernel::Index;
  using Symbol = kernel::Symbol;

  ConvolutionOperands(const LoweredGroup& group, const ConvolutionBlocks& blocks)
      : ProductKernels(group, operands_of(*group.convolution)),
        one_(*group.convolution),
        blocks_(blocks),
        kept_(kept_channels(one_)),
        stacked_(one_.stacked_dims()),
        rows_of_filter_(one_.rows_of_filter()),
        narrow_(one_.image.dtype == DType::f32 ? DType::f16 : one_.image.dtype),
        scaled_(one_.image.dtype == DType::f32),
        halves_(scaled_ && blocks.halves) {}

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
  std::vector<Index> phases_of(const KernelDraft& draft, const Index& outer, const Index& row) const;

  // Do phases differ in the taps that they have? A zero stands for one that a phase lacks, and zero times infinity is
  // NaN: samples that are not finite are computed again.
  bool has_ragged_windows() const {
    return std::any_of(one_.dims.begin(), one_.dims.end(), [](const auto& dim) { return dim.is_ragged(); });
  }

  static ExprId number(kernel::Builder& build, double value) { return build.constant(DType::f32, value); }
  static ExprId whole(kernel::Builder& build, int64_t value) { return build.constant(DType::i32, value); }
  // 0 <= index < length; kNoExpr where that is known.
  static ExprId within(KernelDraft& draft, const Index& index, int64_t length);

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

  // In the order of the kernels. Where the group makes its image, what others read of it is stored as it is laid out.
  enum class ImageUse { kSample, kLayOut, kAgain };
  // The image's elements at these places, and zeros outside of it and where the mask does not hold.
  ExprId image_elements(KernelDraft& draft, ImagePlaces places, ExprId mask, ImageUse use) const;

  int weight_buffer(KernelDraft& draft) const {
    return draft.buffer(one_.weight.name, one_.weight.dtype, weight_shape(), one_.weight_strides,
                        kernel::BufferRole::kInput, one_.weight.root, one_.weight.offset);
  }

  // [sample, padded positions and channels of all groups], and [outer phase, group, row, taps and channels].
  Shape image_halves_shape() const { return {one_.samples, product(padded()) * one_.groups * kept_}; }
  // As [sample, position, channel] with as many positions as blocks that count them read from: those past a sample's
  // end are the next one's, or memory behind the last that nobody fills.
  Shape image_positions_shape() const {
    const int64_t read = ceil_divide(counted_positions(one_), blocks_.positions) * blocks_.positions;
    return {one_.samples, std::max(product(padded()), read + reach_of_taps()), one_.groups * kept_};
  }
  int64_t reach_of_taps() const {  // from a window's first position to its last, in positions
    int64_t reach = 0;
    for (const ConvolutionDim& dim : one_.dims) reach = reach * dim.padded() + dim.dilation * (dim.taps - 1);
    return reach;
  }
  Shape filters_shape() const { return {product(outer_phases()), one_.groups, rows(), one_.taps() * kept_}; }
  int64_t rows() const { return one_.filters * rows_of_filter_; }  // of a group

  std::string row_name() const { return stacked_ > 0 ? "filter_phase" : "filter"; }
  Index filter_of(const KernelDraft& draft, const Index& row) const {
    return kernel::floor_divide(row, rows_of_filter_, kernel::ranges_of(draft.build.kernel()));
  }

  // floor(log2(largest)) of what is finite and not too small.
  static ExprId exponent_of(KernelDraft& draft, ExprId value, const std::vector<Symbol>& along);

  // For each sample: 2^(exponent − power), found from some of its elements, and no flag.
  void find_scales();

  // The image in 16 bits with zeros around it and channels side by side.
  void arrange_image();

  void store_halves(KernelDraft& draft, const std::string& name, const Shape& shape, int first, int rest,
                    const std::vector<Index>& places, ExprId value, ExprId mask) const;

  ExprId load_halves(KernelDraft& draft, const std::string& name, const Shape& shape, const Shape& strides, int first,
                     int rest, const std::vector<Index>& places, ExprId mask) const;

  // Is some scaled number too large for a half, or so small that it loses digits, with nothing larger nearby?
  ExprId has_no_halves(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along) const;

  // Every filter in 16 bits, taps in the order in which they meet the image, channels side by side.
  void arrange_filters();

  // 1 where some scaled number is so small that digits are lost, or is no sum of halves because it is infinite.
  ExprId any_lost(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along) const;

  // 1 where a filter's numbers, `count` along its depth, lose digits that count.
  ExprId filter_loses(kernel::Builder& build, ExprId scaled, Symbol depth, int64_t count) const;

  // The filter's own tap that the window's is in a phase: (phase + first_tap − phases · tap) / tap_distance, where
  // nothing that is divided is negative.
  Index own_tap(const KernelDraft& draft, const ConvolutionDim& dim, const Index& phase, const Index& tap) const;

  static int64_t floor_modulo(int64_t number, int64_t divisor) { return ((number % divisor) + divisor) % divisor; }
  // What (phase + first_tap − phases · tap) is modulo tap_distance.
  static Index divided(const ConvolutionDim& dim, const Index& phase, const Index& tap) {
    return phase + Index(floor_modulo(dim.first_tap, dim.tap_distance)) +
           tap * Index(floor_modulo(-dim.phases, dim.tap_distance));
  }

  ExprId tap_exists(KernelDraft& draft, const ConvolutionDim& dim, const Index& phase, const Index& tap) const;

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

}  // namespace kw::plan
