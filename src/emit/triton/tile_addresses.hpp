// Where a tile program's accesses find their elements, as Triton text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emit/triton/expressions.hpp"
#include "emit/triton/index_text.hpp"
#include "tile/program.hpp"

namespace kw::triton {

class TileAddresses {
 public:
  using Lanes = std::vector<tile::Symbol>;
  TileAddresses(const tile::Program& program, const IndexText& indices) : program_(program), indices_(indices) {}

  // A pointer, and elements from it on.
  struct Place {
    std::string start, offset;
    std::string pointer() const { return offset.empty() ? start : start + " + " + offset; }
  };
  // For every point of these lanes. `value_text`: a value as a tile of these lanes. `zeros`: a tile of them, of zeros.
  Place of(const tile::Access& access, const Lanes& lanes, const std::function<Text(tile::Value)>& value_text,
           const std::string& zeros) const;

 private:
  std::vector<Text> parts_of(const tile::Coordinate& coordinate, bool wide, const Lanes& lanes,
                             const std::function<Text(tile::Value)>& value_text) const;

  const tile::Program& program_;
  const IndexText& indices_;
};

}  // namespace kw::triton
