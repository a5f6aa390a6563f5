// The gather of col2im: which elements of an unfolded image (a column for each window, a row for each channel and
// window offset) add up to one pixel.
//   pixel = stride · window + dilation · offset − padding
// Of the offsets that reach a pixel one follows the other at a distance of stride / gcd(stride, dilation), so that
// their number is known and small.
#pragma once

#include <optional>

#include "ir/graph.hpp"
#include "plan/windows.hpp"

namespace kw::plan {

// nullopt: not a col2im, or one whose windows do not fit.
std::optional<Window> unfolded_of(const Graph& graph, const Node& node);

// The element at a point of the window's domain (the image's dimensions, then a number of one of the offsets for each
// of its two last), and where it exists.
WindowElement unfolded_at(const Window& window, const Coords& point, Lookups& lookups);

}  // namespace kw::plan
