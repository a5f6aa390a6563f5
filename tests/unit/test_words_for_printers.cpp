// Words that steps of the Triton target write, so that its printer need not choose: of folds and
// products, and of reversed loops.
#include <gtest/gtest.h>

#include "lower/counted_down.hpp"
#include "lower/lane_dimensions.hpp"
#include "lower/matrix_order.hpp"
#include "lower/tile_folds.hpp"
#include "support/error.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

std::string text_of(const tile::Program& program) {
  tile::verify(program);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  return text;
}

// The line with these words, from there on.
std::string line_with(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return text;
  return text.substr(at, text.find('\n', at) - at);
}

std::string fault_of(std::string text, const std::string& part, const std::string& other) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part << " in " << text;
  text.replace(at, part.size(), other);
  try {
    tile::parse_program(text);
  } catch (const Error& error) { return error.what(); }
  return "";
}

constexpr const char* kFolds = R"(program folds {
  lane row = 4, column = 16
  launch warps 4
  buffer x: f32[64] input
  buffer y: f32[4] output
  buffer z: f32[4] output
  %tile: f32[row, column] = load x[row * 16 + column]
  %largest: f32 = fold max %tile over row, column
  %total: f32 = fold sum %tile over row, column
  %product: f32 = fold prod %tile over row, column
  %least: f32[row] = fold min %tile over column
  %both: f32 = add %largest, %total
  %all: f32 = add %both, %product
  %each: f32[row] = add %least, %all
  store y[row] <- %each
)";

// With a product no program only maps and folds: its tiles have the dimensions of their lanes.
std::string folds(bool with_product) {
  tile::Program program = tile::parse_program(std::string(kFolds) + (with_product ? R"(  %sums: f32[row] = constant 0.0
  %weights: f32[column] = constant 1.0
  %dotted: f32[row] = dot %sums, %tile, %weights
  store z[row] <- %dotted
}
)"
                                                                                  : "}\n"));
  give_dimensions(program);
  EXPECT_EQ(program.rank >= 0, !with_product);
  choose_folds_of_tiles(program);
  return text_of(program);
}

TEST(TileFolds, AreAtOnceWhereTheOrderIsFree) {
  const std::string same = folds(false), own = folds(true);
  EXPECT_EQ(line_with(same, "fold max"), "fold max %tile over row, column at_once");
  EXPECT_EQ(line_with(same, "fold sum"), "fold sum %tile over row, column at_once");
  EXPECT_EQ(line_with(same, "fold prod"), "fold prod %tile over row, column");
  EXPECT_EQ(line_with(same, "fold min"), "fold min %tile over column");
  EXPECT_EQ(line_with(own, "fold max"), "fold max %tile over row, column at_once");
  EXPECT_EQ(line_with(own, "fold sum"), "fold sum %tile over row, column");
  for (const char* word : {" at_once", " to_number"})
    EXPECT_NE(fault_of(same, "%tile over column\n", std::string("%tile over column") + word + "\n")
                  .find("a tile is folded whole, but lanes are left"),
              std::string::npos);
}

TEST(TileFolds, AreToANumberWhereALoopEndsThere) {
  tile::Program program = tile::parse_program(R"(program ending {
  grid row = 4
  lane column = 16, wide = 32
  launch warps 4
  buffer length: i32[16] input
  buffer x: f32[4096] input
  buffer w: f32[32] input
  buffer y: f32[64] output
  buffer z: f32[4] output
  %lengths: i32[column] = load length[column]
  %end: i32 = fold max %lengths over column
  %w_tile: f32[wide] = load w[wide]
  %most: f32 = fold max %w_tile over wide
  store z[row] <- %most
  %zero: f32[column] = constant 0.0
  for at = 0 to 64 until %end carry %so_far: f32[column] = %zero -> %total {
    %tile: f32[column] = load x[row * 1024 + at * 16 + column]
    %next: f32[column] = add %so_far, %tile
    yield %next
  }
  store y[row * 16 + column] <- %total
}
)");
  give_dimensions(program);
  ASSERT_GE(program.rank, 1);
  choose_folds_of_tiles(program);
  const std::string text = text_of(program);
  EXPECT_TRUE(line_with(text, "fold max %lengths").ends_with(" to_number")) << text;
  EXPECT_FALSE(line_with(text, "fold max %w_tile").ends_with(" to_number")) << text;
}

constexpr const char* kReversed = R"(program reversed {
  grid row = 4
  lane column = 16
  launch warps 4
  buffer x: f32[4, 56] input
  buffer y: f32[4, 16] output
  %zero: f32[column] = constant 0.0
  for start = 0 to 40 step 16 carry %sum: f32[column] = %zero -> %total {
    %tile: f32[column] = load x[row, start + column]
    %next: f32[column] = add %sum, %tile
    yield %next
  }
  for start = 0 to 40 step 16 reversed carry %sum_2: f32[column] = %total -> %total_2 {
    %tile_2: f32[column] = load x[row, start + column]
    %next_2: f32[column] = add %sum_2, %tile_2
    yield %next_2
  }
  store y[row, column] <- %total_2
}
)";

TEST(CountedDown, ReversedLoopsHaveACounter) {
  tile::Program program = tile::parse_program(kReversed);
  count_reversed_loops(program);
  const std::string text = text_of(program);
  EXPECT_TRUE(line_with(text, "for start").starts_with("for start = 0 to 40 step 16 carry")) << text;
  EXPECT_NE(text.find("step 16 reversed counter start_number carry"), std::string::npos) << text;
  ASSERT_EQ(program.symbols.back().name, "start_number");
  EXPECT_EQ(kernel::as_constant(program.symbols.back().count), 3);
  EXPECT_NE(fault_of(text, "reversed counter start_number", "counter start_number"), "");
  program.symbols.back().count = tile::Index(4);
  EXPECT_NE(tile::find_fault(program).find("'start_number' does not count the iterations of a reversed loop"),
            std::string::npos)
      << tile::find_fault(program);
}

TEST(CountedDown, CountersHaveNamesOfTheirOwn) {
  std::string text = kReversed;
  for (size_t at = text.find("%zero"); at != std::string::npos; at = text.find("%zero", at))
    text.replace(at, 5, "%start_number");
  tile::Program program = tile::parse_program(text);
  count_reversed_loops(program);
  EXPECT_EQ(program.symbols.back().name, "start_number_");
  text_of(program);
}

TEST(MatrixOrder, LeftMatricesAreFirst) {
  tile::Program program = tile::parse_program(R"(program products {
  grid block = 2
  lane m = 16, n = 32, k = 16
  launch warps 4
  buffer a: f32[2, 16, 16] input
  buffer w: f32[16, 32] input
  buffer y: f32[2, 16, 32] output
  %left: f32[m, k] = load a[block, m, k]
  %right: f32[k, n] = load w[k, n]
  %zero: f32[m, n] = constant 0.0
  %turned: f32[m, n] = dot %zero, %right, %left
  %both: f32[m, n] = dot %turned, %left, %right
  store y[block, m, n] <- %both
}
)");
  put_left_matrices_first(program);
  const std::string text = text_of(program);
  EXPECT_EQ(line_with(text, "dot %zero"), "dot %zero, %left, %right");
  EXPECT_EQ(line_with(text, "dot %turned"), "dot %turned, %left, %right");
}

}  // namespace
}  // namespace kw::lower
