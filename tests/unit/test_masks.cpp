// What a GPU's loads are told of their masks, and of other blocks.
#include <gtest/gtest.h>

#include <string>

#include "lower/coherent_loads.hpp"
#include "lower/masks.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

// A row of ten elements in a tile of sixteen.
std::string after_masks(const std::string& body) {
  tile::Program program = tile::parse_program(R"(program p {
  grid row = 4
  lane column = 16
  launch warps 4
  buffer x: f32[4, 10] input
  buffer y: f32[4, 10] output
  buffer total: f32[4] output
  %place: i32[column] = index column
  %ten: i32 = constant 10
  %inside: b1[column] = less %place, %ten
  %zero: f32 = constant 0.0
  %x_tile: f32[column] = load x[row, column] where %inside otherwise 0.0
  )" + body + "\n}");
  find_unseen_otherwise(program);
  tile::verify(program);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  return text;
}

bool is_filled(const std::string& body) {
  const std::string text = after_masks(body);
  EXPECT_NE(text.find("load x[row, column] where %inside otherwise "), std::string::npos) << text;
  return text.find("otherwise any") == std::string::npos;
}

TEST(Masks, WhatIsStoredUnderTheSameMaskIsNotFilled) {
  EXPECT_FALSE(
      is_filled("%y_tile: f32[column] = add %x_tile, %x_tile\n  store y[row, column] <- %y_tile where %inside"));
}

TEST(Masks, NorWhatIsSelectedUnderIt) {
  EXPECT_FALSE(
      is_filled("%taken: f32[column] = select %inside, %x_tile, %zero\n  "
                "%sum: f32 = fold sum %taken over column\n  store total[row] <- %sum"));
  EXPECT_TRUE(
      is_filled("%taken: f32[column] = select %inside, %zero, %x_tile\n  "
                "%sum: f32 = fold sum %taken over column\n  store total[row] <- %sum"));
}

TEST(Masks, WhatIsFoldedIsFilled) {
  EXPECT_TRUE(is_filled("%sum: f32 = fold sum %x_tile over column\n  store total[row] <- %sum"));
}

TEST(Masks, AScanMeetsTheEndLast) {
  const std::string stored = "store y[row, column] <- %sums where %inside";
  EXPECT_FALSE(is_filled("%sums: f32[column] = scan sum %x_tile along column\n  " + stored));
  EXPECT_TRUE(is_filled("%sums: f32[column] = scan sum %x_tile along column reversed\n  " + stored));
}

std::string after_coherent_loads(const std::string& barrier) {
  tile::Program program = tile::parse_program(R"(program p {
  grid block = 4
  launch warps 4
  buffer x: f32[4] input
  buffer parts: f32[4] scratch
  buffer y: f32[4] output
  %own: f32 = load x[block]
  store parts[block] <- %own
  )" + barrier + R"(
  %part: f32 = load parts[(block + 1) % 4]
  store y[block] <- %part
})");
  make_loads_coherent(program);
  tile::verify(program);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  return text;
}

TEST(CoherentLoads, OfWhatOtherBlocksWrite) {
  const std::string waits = after_coherent_loads("barrier grid");
  EXPECT_NE(waits.find("load parts[(block + 1) % 4] coherent\n"), std::string::npos) << waits;
  EXPECT_NE(waits.find("load x[block]\n"), std::string::npos) << waits;
  EXPECT_EQ(after_coherent_loads("barrier block").find("coherent"), std::string::npos);
}

}  // namespace
}  // namespace kw::lower
