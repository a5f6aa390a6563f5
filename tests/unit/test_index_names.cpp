// Which indices get names, where, and in how many bits they are computed.
#include <gtest/gtest.h>

#include <string>

#include "lower/index_names.hpp"
#include "lower/index_widths.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

std::string named(const std::string& text) {
  tile::Program program = tile::parse_program(text);
  name_indices(program);
  tile::verify(program);
  choose_index_widths(program);
  tile::verify(program);
  const std::string result = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(result)), result);
  return result;
}

void expect_lines(const std::string& text, const std::vector<std::string>& lines) {
  size_t at = 0;
  for (const std::string& line : lines) {
    at = text.find(line, at);
    ASSERT_NE(at, std::string::npos) << line << "\nis not there, or not in this order:\n" << text;
  }
}

// A program that maps: each set of lanes has a name, with what the block's position adds.
TEST(IndexNames, AnAxisThatBlocksShareOutIsNamedOnce) {
  expect_lines(named(R"(program p {
  grid row = 8, column_block = 4
  lane column = 16
  launch warps 4
  buffer x: f32[1024] input
  buffer y: f32[512] output
  %x_tile: f32[column] = load x[row * 128 + 2 * (column_block * 16 + column)]
  store y[row * 64 + column_block * 16 + column] <- %x_tile
})"),
               {"index column_index: i32 = column_block * 16 + column\n", "load x[row * 128 + column_index * 2]",
                "store y[row * 64 + column_index]"});
}

TEST(IndexNames, WhatALoopWalksIsNamedInItsBody) {
  expect_lines(named(R"(program p {
  grid row = 8
  lane column = 16
  launch warps 4
  buffer x: f32[512] input
  buffer y: f32[512] output
  for column_start = 0 to 64 step 16 {
    %x_tile: f32[column] = load x[row * 64 + column_start + column]
    store y[row * 64 + column_start + column] <- %x_tile
  }
})"),
               {"for column_start", "index column_index: i32 = column + column_start\n",
                "load x[row * 64 + column_index]", "store y[row * 64 + column_index]"});
}

// Beside folds and products an index along one set of lanes is named whole, and quotients are of its name.
TEST(IndexNames, AMatrixIndexIsNamedWhole) {
  expect_lines(named(R"(program p {
  grid row_block = 8
  lane row = 16
  launch warps 4
  buffer x: f32[19, 7] input
  buffer y: f32[128] output
  %x_tile: f32[row] = load x[(row_block * 16 + row) / 7, (row_block * 16 + row) % 7]
  store y[row_block * 16 + row] <- %x_tile
})"),
               {"index row_index: i32 = row_block * 16 + row\n", "index row_index_2: i32 = row_index / 7\n",
                "index row_index_3: i32 = row_index % 7\n", "load x[row_index_2, row_index_3]", "store y[row_index]"});
}

TEST(IndexNames, QuotientsThatNoLaneMovesAreNamedFromThreeTimesOn) {
  const std::string head = R"(program p {
  grid phase = 12
  lane column = 16
  launch warps 4
  buffer x: f32[6, 6, 16] input
  buffer y: f32[12, 16] output
  %a: f32[column] = load x[phase / 2, phase / 2, column]
)";
  const std::string tail = "  store y[phase, column] <- %a\n}\n";
  const std::string third = "  %b: f32[column] = load x[phase / 2, 0, column]\n";
  expect_lines(named(head + third + tail), {"index phase_over_2: i32 = phase / 2\n",
                                            "load x[phase_over_2, phase_over_2, column]", "load x[phase_over_2, 0"});
  EXPECT_EQ(named(head + tail).find("phase_over_2"), std::string::npos);
}

// What data decide is added to one number for the block.
TEST(IndexNames, WhatIsAddedToValuesKeepsTheBlocksPartApart) {
  expect_lines(named(R"(program p {
  grid row_block = 4
  lane row = 16
  launch warps 4
  buffer place: i32[4, 16] input
  buffer x: f32[256] input
  buffer y: f32[4, 16] output
  %at: i32[row] = load place[row_block, row]
  %yes: b1[row] = constant true
  %x_tile: f32[row] = load x[row_block * 16 + row + %at] where %yes otherwise 0.0
  store y[row_block, row] <- %x_tile
})"),
               {"load x[row_block * 16 + row + %at]"});
}

TEST(IndexWidths, NamesAreWideWhereTheirSumsAre) {
  const std::string text = named(R"(program p {
  grid row_block = 8
  lane row = 16, column = 16
  launch warps 4
  buffer x: f32[524288, 16384] input
  buffer y: f32[128, 16] output
  %x_tile: f32[row, column] = load x[row_block * 16 + row, column * 1000 + 7]
  %far: i64[row] = index (row_block * 1073741824 + row) / 65537
  store y[row_block * 16 + row, column] <- %x_tile
})");
  expect_lines(
      text, {"launch warps 4 narrow\n", "index row_index: i32 = row_block * 16 + row\n",
             "index column_index: i32 = column * 1000 + 7\n", "index row_index_2: i64 = row_block * 1073741824 + row\n",
             "index row_index_3: i64 = row_index_2 / 65537\n", "load x[row_index, column_index]\n"});
}

TEST(IndexWidths, PlacesAreWideWhereTheyMayBeBeyond32Bits) {
  const std::string text = named(R"(program p {
  grid row = 524288
  lane column = 16
  launch warps 4
  buffer x: f32[524288, 16384] input
  buffer y: f32[524288, 16] output
  %x_tile: f32[column] = load x[row, column * 1000 + 7]
  store y[row, column] <- %x_tile
})");
  expect_lines(text, {"load x[row i64, column_index i64] offset i64", "store y[row, column] <- %x_tile"});
}

}  // namespace
}  // namespace kw::lower
