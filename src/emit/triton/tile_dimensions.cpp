#include "emit/triton/tile_dimensions.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

// Sets of axes that one tile of the kernel varies along.
std::vector<std::vector<bool>> tiles_of(const Kernel& kernel, const std::vector<std::vector<bool>>& axes) {
  std::vector<std::vector<bool>> tiles = axes;
  const auto add = [](std::vector<bool>& all, const std::vector<bool>& more) {
    for (size_t axis = 0; axis < all.size(); ++axis) all[axis] = all[axis] || more[axis];
  };
  for (const Expr& expr : kernel.exprs) {
    if (expr.kind != ExprKind::kReduce) continue;
    std::vector<bool> tile(kernel.axes.size(), false);
    for (ExprId operand : expr.operands) add(tile, axes[operand]);
    for (size_t axis = 0; axis < tile.size(); ++axis)
      tile[axis] = tile[axis] || kernel.axes[axis].kind == AxisKind::kReduce;
    tiles.push_back(std::move(tile));
  }
  for (const Store& store : kernel.stores) {
    std::vector<bool> tile = axes_of_access(kernel, store.access);
    add(tile, axes[store.value]);
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

}  // namespace

TileDimensions find_tile_dimensions(const Kernel& kernel, const std::vector<std::vector<bool>>& axes) {
  TileDimensions result;
  result.of_axis.assign(kernel.axes.size(), -1);
  const auto tiles = tiles_of(kernel, axes);
  const auto apart = [&](size_t left, size_t right) {
    for (const auto& tile : tiles)
      if (tile[left] && tile[right]) return false;
    return true;
  };
  std::vector<bool> shared(kernel.axes.size(), false);
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis) {
    if (kernel.axes[axis].block <= 1) continue;
    if (kernel.axes[axis].kind == AxisKind::kReduce)
      for (size_t other = axis; other-- > 0;) {
        if (kernel.axes[other].kind != AxisKind::kParallel || !result.has(static_cast<int>(other)) || shared[other] ||
            !apart(axis, other))
          continue;
        result.of_axis[axis] = result.of_axis[other];
        shared[other] = true;
        break;
      }
    if (result.of_axis[axis] < 0) result.of_axis[axis] = result.count++;
  }
  return result;
}

}  // namespace kw::triton
