// Convolutions among a graph's nodes: what the convolution scheduler takes, as strides over the operands' storage.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "plan/product.hpp"

namespace kw::plan {

// One spatial dimension. A convolution's result is made of `phases` interleaved ones (of a transposed convolution as
// many as its stride, else as many as with_phases() says). At a place all phases read the same window of `taps` input
// positions:
//   input position  = stride · place + dilation · tap − padding, zero outside the input
//   output position = phases · place + phase − crop, where that lies within the output
//   filter's tap    = tap − phase_taps · phase; of a transposed one (phase + first_tap − phases · tap) / tap_distance,
//                     where that is a whole number; from 0 to kernel − 1, else there is none
struct ConvolutionDim {
  int64_t input = 1, output = 1;  // lengths
  int64_t kernel = 1;             // of a filter
  int64_t taps = 1;               // of the window
  int64_t stride = 1, padding = 0, dilation = 1;
  int64_t phases = 1, places = 1, crop = 0;
  int64_t phase_taps = 0;                   // of which a phase's filter begins later than the one's before
  bool flipped = false;                     // the filter's taps, last first
  int64_t first_tap = 0, tap_distance = 1;  // where flipped
  int64_t least_padded = 0;                 // positions that are laid out whether or not some place reads them
  int64_t window = 1;                       // what follows folds so many neighbours of the result, and none twice

  // Do some taps of the window lie outside of the filter in one phase and inside in another?
  bool is_ragged() const { return phases > 1 && taps * phases != kernel; }

  // The filter's tap that the window's is in a phase, if there is one.
  std::optional<int64_t> own_tap(int64_t phase, int64_t tap) const;

  // The taps of the window from the first that the phase's filter has to its last; one where it has none.
  struct Taps {
    int64_t first = 0, count = 1;
  };
  Taps taps_of(int64_t phase) const;

  // Phases as rows of a product have them: a power of two.
  int64_t row_phases() const;
  // Positions of the input, zeros around it included, as they are laid out: those that some place reads.
  int64_t padded() const { return std::max(least_padded, stride * (places - 1) + dilation * (taps - 1) + 1); }
};

// result[sample, group · filters + filter, position] = bias + Σ over channel and tap of filters · image.
struct Convolution {
  NodeId node = kNoNode;
  ValueId result = kNoValue;
  int64_t samples = 1, groups = 1;
  int64_t filters = 1, channels = 1;   // of one group
  std::vector<ConvolutionDim> dims;    // outermost first
  ProductOperand image, weight;        // where they lie; their strides:
  Shape image_strides;                 // sample, channel, dims
  Shape weight_strides;                // group, filter, channel, dims
  std::optional<ProductOperand> bias;  // `row`: its stride along filters
  Shape result_strides;                // sample, filter, position
  bool transposed = false;
  bool exact = false;          // as sums of f32 products; else operands may be rounded to TF32's 11 digits
  bool folds_filters = false;  // what follows folds the result over them: a block has all filters
  bool keeps_filters = false;  // and stores all that it folds, or something of each
  // Of how many dimensions, the last ones, what follows folds the result over all phases of each place.
  int64_t folded_dims = 0;
  bool keeps_windows = false;  // and stores all that it folds in windows and phases

  bool folds_phases() const { return folded_dims > 0; }
  int64_t window() const;  // points of the result that what follows folds together
  int64_t taps() const;    // of the window
  int64_t phases() const;  // all dimensions' together
  int64_t places() const;  // of a phase in one sample
  // Places of the image in the windows of so many neighbouring rows of the result, each counted once.
  int64_t places_of_windows(int64_t rows) const;
  // Filters over one channel, and few of them (depthwise): no products of matrices.
  bool is_direct() const;
  // Forward, in groups of several channels each: the library has a kernel for each group.
  bool is_grouped() const;
  // The phases of how many dimensions, the last ones, stand among the rows of one product, beside the filters: they
  // read the same window of the image, and neighbours along the last dimension are stored together. None of 16-bit
  // images, whose infinities could not be computed again. And how many rows a filter has then.
  int64_t stacked_dims() const;
  int64_t rows_of_filter() const;
  // The share of all taps that phases apart from each other walk, of the outer dimensions, whose phases are no rows.
  double share_of_taps() const;
  // Its result as a product's: a batch of samples, filters for rows, positions for columns, and as deep as a filter.
  Product product() const;
};

// The convolution, which is no transposed one, with so many neighbouring results along each dimension (1: as they are)
// as phases of one place: their windows overlap, and are read once. nullopt where a dimension is dilated or shorter, or
// what follows folds some of these phases apart from others.
std::optional<Convolution> with_phases(Convolution convolution, const std::vector<int64_t>& phases);

// Counts the phases of a transposed convolution's dimension from the output's first position: nothing is cropped then,
// and a window may have a tap more.
void drop_crop(ConvolutionDim& dim);

// Of a transposed convolution's dimension: does every input position, and every tap of the filter, add to some position
// of the result? Not so where padding cuts off all that one adds to.
bool reaches_all(const ConvolutionDim& dim);

// conv1d, conv2d, conv3d and their transposed forms, with a batch and no empty size, in f32, f16 or bf16. nullopt for
// all else, and for groups of few filters.
std::optional<Convolution> convolution_of(const GraphFacts& facts, NodeId node);

// The one node among `nodes` that is a convolution; kNoNode where there is none, or another library call.
NodeId convolution_among(const GraphFacts& facts, std::span<const NodeId> nodes);

}  // namespace kw::plan
