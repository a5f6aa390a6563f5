#include "tile/points.hpp"

#include <algorithm>
#include <optional>

namespace kw::tile {
namespace {

// base + Σ steps[i] · position along lane i.
std::vector<int64_t> spread(int64_t base, const std::vector<int64_t>& widths, const std::vector<int64_t>& steps) {
  std::vector<int64_t> result = {base};
  for (size_t i = 0; i < widths.size(); ++i) {
    std::vector<int64_t> wider;
    wider.reserve(result.size() * static_cast<size_t>(widths[i]));
    for (const int64_t start : result)
      for (int64_t position = 0; position < widths[i]; ++position) wider.push_back(start + position * steps[i]);
    result = std::move(wider);
  }
  return result;
}

// index = rest + Σ coefficients[i] · lane i, with none of the lanes in them.
struct OverLanes {
  Index rest;
  std::vector<Index> coefficients;
};

std::optional<OverLanes> linear_over(const Index& index, const std::vector<Symbol>& lanes) {
  OverLanes result;
  result.rest = index;
  for (const Symbol lane : lanes) {
    auto parts = kernel::linear_in(result.rest, lane);
    if (!parts) return std::nullopt;
    for (const Symbol other : lanes)
      if (uses(parts->coefficient, other)) return std::nullopt;
    result.coefficients.push_back(std::move(parts->coefficient));
    result.rest = std::move(parts->rest);
  }
  return result;
}

std::vector<int64_t> widths_of(const Program& program, const std::vector<Symbol>& lanes) {
  std::vector<int64_t> widths;
  for (const Symbol lane : lanes) widths.push_back(width_of(program, lane));
  return widths;
}

}  // namespace

int64_t Points::count(const std::vector<Symbol>& lanes) const {
  int64_t count = 1;
  for (const Symbol lane : lanes) count *= width_of(program_, lane);
  return count;
}

const std::vector<int64_t>& Points::places(const std::vector<Symbol>& lanes, const std::vector<Symbol>& tile) {
  const auto [found, is_new] = places_.try_emplace({lanes, tile});
  if (!is_new) return found->second;
  std::vector<int64_t> steps;
  for (const Symbol lane : lanes) {
    const auto at = std::find(tile.begin(), tile.end(), lane);
    int64_t step = at == tile.end() ? 0 : 1;
    if (step)
      for (auto inner = at + 1; inner != tile.end(); ++inner) step *= width_of(program_, *inner);
    steps.push_back(step);
  }
  found->second = spread(0, widths_of(program_, lanes), steps);
  return found->second;
}

std::vector<int64_t> Points::evaluate(const Index& index, const std::vector<Symbol>& lanes,
                                      std::vector<int64_t>& symbols) const {
  if (const auto linear = linear_over(index, lanes)) {
    std::vector<int64_t> steps;
    for (const Index& coefficient : linear->coefficients) steps.push_back(kernel::evaluate(coefficient, symbols));
    return spread(kernel::evaluate(linear->rest, symbols), widths_of(program_, lanes), steps);
  }
  std::vector<int64_t> result(static_cast<size_t>(count(lanes)));
  for (const Symbol lane : lanes) symbols[lane] = 0;
  for (int64_t& value : result) {
    value = kernel::evaluate(index, symbols);
    for (size_t i = lanes.size(); i-- > 0;) {
      if (++symbols[lanes[i]] < width_of(program_, lanes[i])) break;
      symbols[lanes[i]] = 0;
    }
  }
  return result;
}

std::vector<int64_t> Points::positions(const std::vector<Symbol>& lanes, int64_t point) const {
  std::vector<int64_t> result(lanes.size());
  for (size_t i = lanes.size(); i-- > 0;) {
    const int64_t width = width_of(program_, lanes[i]);
    result[i] = point % width;
    point /= width;
  }
  return result;
}

}  // namespace kw::tile
