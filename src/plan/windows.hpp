// Sliding windows: pooling of every kind and col2im (unfolded.hpp), as a reduction over small axes of window offsets.
//   input position = stride · output + dilation · offset − padding, which counts where it lies within the input;
//   of adaptive pooling to a length that does not divide the input's: ⌊output · input / length⌋ + offset, as far as the
//   window's own end; of fractional pooling: where a random number says (LookupKind::kFractionalStart) + offset.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"
#include "plan/index_math.hpp"
#include "plan/lookup.hpp"

namespace kw::plan {

// One spatial dimension.
struct WindowDim {
  int64_t input = 1, output = 1;  // lengths
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t size = 1;     // of kUnfolded: offsets that a window has; `kernel` of them reach one pixel
  bool uneven = false;  // windows of several sizes, `kernel` the longest; where they start is looked up
  int64_t sample = -1;  // of fractional pooling: which of a plane's numbers says where windows start
};

struct Window {
  enum class Kind { kMax, kAverage, kUnfolded };
  Kind kind = Kind::kMax;
  ValueId operand = kNoValue;
  ValueId samples = kNoValue;      // of fractional pooling: [batch, planes, dims]
  DType start_dtype = DType::f32;  // of the arithmetic on them
  std::vector<WindowDim> dims;     // outermost first: the operand's last dimensions
  bool counts_padding = true;      // averages: the padding is part of a window's size
  int64_t divisor = 0;             // averages: of every window; 0: its size

  bool covers_input() const;  // one window, of all elements: an ordinary reduction
  bool uneven() const;
  Shape kernel_shape() const;
};

// nullopt: nothing that this form has.
std::optional<Window> window_of(const Graph& graph, const Node& node);

// First and one past the last element of one of the windows of uneven sizes, as looked-up coordinates.
struct WindowEnds {
  Index start, end;
};
WindowEnds ends_of(const WindowDim& dim, const Index& output, Lookups& lookups);

// The operand's element at a point of the window's domain (the result's dimensions, then the offsets), and where it
// exists.
struct WindowElement {
  Coords coords;
  std::vector<Guard> guards;
};
WindowElement element_at(const Window& window, const Coords& point, Lookups& lookups);

// The number that says where windows start along `dim`, as coordinates in `samples`.
Coords sample_at(const Window& window, const WindowDim& dim, const Coords& point);

}  // namespace kw::plan
