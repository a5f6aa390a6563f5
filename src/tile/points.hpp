// The points of tiles: all combinations of positions along some lanes, the last lane the fastest.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

class Points {
 public:
  explicit Points(const Program& program) : program_(program) {}

  int64_t count(const std::vector<Symbol>& lanes) const;
  // For every point of `lanes`, the place of its element in a tile over `tile`; lanes that the tile lacks do not count,
  // and along lanes that only the tile has the place is the first. Kept for the next call.
  const std::vector<int64_t>& places(const std::vector<Symbol>& lanes, const std::vector<Symbol>& tile);
  // The index at every point of `lanes`. `symbols` are the values of all symbols; those of the lanes are overwritten.
  std::vector<int64_t> evaluate(const Index& index, const std::vector<Symbol>& lanes,
                                std::vector<int64_t>& symbols) const;
  // The positions along `lanes` of one point.
  std::vector<int64_t> positions(const std::vector<Symbol>& lanes, int64_t point) const;

 private:
  const Program& program_;
  std::map<std::pair<std::vector<Symbol>, std::vector<Symbol>>, std::vector<int64_t>> places_;
};

}  // namespace kw::tile
