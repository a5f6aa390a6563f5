// Scans: one instruction along the lanes of a tile; along a loop, too, what the walk has met goes from block to block.
#pragma once

#include <string>
#include <vector>

#include "lower/values.hpp"

namespace kw::lower {

// Of a sort with places on a GPU: does it want so few of the first that picking them one after the other takes fewer
// instructions than a sorting network? `first` 0: all.
bool picks_one_by_one(int64_t first, int64_t length);

// The running values where a block has all of the axis, or all that one iteration has of it: [component].
std::vector<tile::Value> scan_block(Values& values, const kernel::Expr& scan);

// A scan along a loop. Sums, products and extremes are carried, one for each row of the block; of products in one order
// (ScanWay::kNetwork) the last is, in every place of the row, and enters with the first element of the next block.
// Where the axis is walked in order, each block's scan goes on from what those before have met (ScanWay::kAfter).
class LoopedScan {
 public:
  LoopedScan(Values& values, const kernel::Expr& scan);  // before the loop

  std::vector<tile::Value> carried;  // [component] before an iteration, and after it
  std::vector<std::string> names;    // of these
  bool is_reversed() const { return scan_.reversed; }
  // In the loop: [component]. The first call moves on what is carried.
  const std::vector<tile::Value>& running();

 private:
  bool is_network() const;
  void advance();
  void advance_network();
  void advance_in_order();
  void carry_on(const std::vector<tile::Value>& next);  // where they stand: the loop knows them by that
  // What `carried` and then these, of the same rows, come to: [component].
  std::vector<tile::Value> after_carried(const std::vector<tile::Value>& block, const std::vector<std::string>& names);

  Values& values_;
  Emission& emission_;
  const kernel::Expr& scan_;
  const int depth_;  // of the loop's body
  std::vector<tile::Value> running_;
};

}  // namespace kw::lower
