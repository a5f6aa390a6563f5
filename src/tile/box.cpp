#include "tile/box.hpp"

#include <algorithm>

namespace kw::tile {
namespace {

constexpr int64_t kAlignment = 16;  // bytes
constexpr size_t kMostDimensions = 5;
constexpr int64_t kWidest = 256;

// Do 16 bytes divide the distance of neighbours along every dimension but the innermost, where they stand side by side?
bool has_aligned_rows(const Program& program, const Buffer& buffer) {
  const std::vector<Index> strides = strides_of(buffer);
  const std::vector<kernel::SymbolRange> ranges = ranges_of(program);
  if (strides.empty() || !(strides.back() == Index(1)) || buffer.alignment % kAlignment != 0) return false;
  return std::all_of(strides.begin(), strides.end() - 1, [&](const Index& stride) {
    return kernel::known_divisor(stride, ranges) * size_of(buffer.dtype) % kAlignment == 0;
  });
}

}  // namespace

std::optional<Box> box_of(const Program& program, const Access& access) {
  const Buffer& buffer = program.buffers[access.buffer];
  if (buffer.space != Space::kGlobal || buffer.shape.size() > kMostDimensions || buffer.dtype == DType::b1 ||
      access.mask != kNoValue || access.otherwise != 0.0 || !has_aligned_rows(program, buffer))
    return std::nullopt;
  Box box;
  for (const Coordinate& coordinate : access.coordinates) {
    if (coordinate.value != kNoValue) return std::nullopt;
    const std::vector<Symbol> lanes = lanes_of(program, coordinate.index);
    box.origin.push_back(coordinate.index);
    box.lanes.push_back(lanes.empty() ? -1 : lanes[0]);
    if (lanes.empty()) continue;
    const auto linear = kernel::linear_in(coordinate.index, lanes[0]);
    // Tiles have their lanes in the order of the symbols' table.
    const bool in_order = std::all_of(box.lanes.begin(), box.lanes.end() - 1,
                                      [&](Symbol before) { return before < lanes[0]; });
    if (lanes.size() > 1 || !linear || !(linear->coefficient == Index(1)) || !in_order ||
        width_of(program, lanes[0]) > kWidest)
      return std::nullopt;
    box.origin.back() = linear->rest;
  }
  if (box.lanes.back() < 0 || width_of(program, box.lanes.back()) * size_of(buffer.dtype) < kAlignment)
    return std::nullopt;
  return box;
}

}  // namespace kw::tile
