// Elements side by side in one access: which are joined, which are not, and what the program computes then.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lower/late_operations.hpp"
#include "lower/wide_accesses.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

// Windows of three elements, padded by one; two results for each column. Elements 4 * column - 1 to 4 * column + 3.
constexpr const char* kWindows = R"(program windows {
  grid plane = 3
  lane column = 16
  launch warps 1
  buffer x: f32[192] input
  buffer y: f32[96] output

  %at: i32[column] = index 4 * column - 1
  %zero: i32 = constant 0
  %inside: b1[column] = greater_equal %at, %zero
  %a: f32[column] = load x[64 * plane + 4 * column - 1] where %inside otherwise -inf
  %b: f32[column] = load x[64 * plane + 4 * column]
  %ab: f32[column] = maximum %a, %b
  %c: f32[column] = load x[64 * plane + 4 * column + 1]
  %abc: f32[column] = maximum %ab, %c
  store y[32 * plane + 2 * column] <- %abc
  %d: f32[column] = load x[64 * plane + 4 * column + 2]
  %e: f32[column] = load x[64 * plane + 4 * column + 3]
  %cd: f32[column] = maximum %c, %d
  %cde: f32[column] = maximum %cd, %e
  store y[32 * plane + 2 * column + 1] <- %cde
}
)";

// Two of four elements, beyond whose end are others: the last of a row of 62. Rows do not start where fours do.
std::string ends(const std::string& stride) {
  return R"(program ends {
  grid plane = 3
  lane column = 16
  launch warps 1
  buffer x: f32[)" +
         std::to_string(3 * std::stoi(stride)) + R"(] input
  buffer y: f32[48] output

  %first: i32[column] = index 4 * column + 1
  %second: i32[column] = index 4 * column + 2
  %end: i32 = constant 62
  %first_inside: b1[column] = less %first, %end
  %second_inside: b1[column] = less %second, %end
  %a: f32[column] = load x[)" +
         stride + R"( * plane + 4 * column + 1] where %first_inside otherwise 0.0
  %b: f32[column] = load x[)" +
         stride + R"( * plane + 4 * column + 2] where %second_inside otherwise 0.0
  %sum: f32[column] = add %a, %b
  store y[16 * plane + column] <- %sum
}
)";
}

int count(const tile::Program& program, tile::Kind kind) {
  return static_cast<int>(
      std::count_if(program.body.begin(), program.body.end(), [&](const auto& one) { return one.kind == kind; }));
}

tile::Memory run(const tile::Program& program) {
  tile::Memory memory;
  for (const tile::Buffer& buffer : program.buffers)
    if (buffer.role == tile::BufferRole::kInput)
      for (int64_t at = 0; at < *kernel::as_constant(buffer.shape[0]); ++at)
        memory[buffer.name].reals.push_back(static_cast<double>(at * at % 37));
  return tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
}

tile::Program widened(const std::string& text) {
  const tile::Program before = tile::parse_program(text);
  tile::Program after = before;
  widen_accesses(after);
  EXPECT_EQ(run(after).at("y").reals, run(before).at("y").reals);
  EXPECT_EQ(tile::print_program(tile::parse_program(tile::print_program(after))), tile::print_program(after));
  tile::Program late = after;
  delay_operations(late);
  EXPECT_EQ(run(late).at("y").reals, run(before).at("y").reals);
  return after;
}

TEST(WideAccesses, JoinWhatStandsSideBySide) {
  const tile::Program program = widened(kWindows);
  EXPECT_EQ(count(program, tile::Kind::kLoad), 2);  // the padded one stands in another four
  EXPECT_EQ(count(program, tile::Kind::kUnstack), 1);
  EXPECT_EQ(count(program, tile::Kind::kStack), 1);
  EXPECT_EQ(count(program, tile::Kind::kStore), 1);
}

TEST(WideAccesses, StoresComeLast) {
  std::string text = kWindows;
  text.replace(text.find("32 * plane + 2 * column + 1"), 27, "32 * plane + 2 * column + 0");  // no neighbours
  tile::Program program = tile::parse_program(text);
  widen_accesses(program);
  EXPECT_EQ(count(program, tile::Kind::kStore), 2);
  EXPECT_EQ(program.body[program.body.size() - 2].kind, tile::Kind::kStore);
}

TEST(WideAccesses, MasksMoveWithTheElements) {
  const tile::Program program = widened(ends("64"));
  EXPECT_EQ(count(program, tile::Kind::kLoad), 1);
  const std::string text = tile::print_program(program);
  EXPECT_NE(text.find("index column * 4 + four"), std::string::npos) << text;
  EXPECT_NE(text.find("constant 62"), std::string::npos) << text;
}

TEST(WideAccesses, LeaveWhatIsNotAligned) { EXPECT_EQ(count(widened(ends("66")), tile::Kind::kLoad), 2); }

TEST(WideAccesses, LeaveBuffersThatMayStartAnywhere) {
  tile::Program program = tile::parse_program(kWindows);
  program.buffers[0].alignment = 4;
  widen_accesses(program);
  EXPECT_EQ(count(program, tile::Kind::kUnstack), 0);
  EXPECT_EQ(count(program, tile::Kind::kStack), 1);
}

// Two results of each of eleven columns but the last one's second: what keeps that one inside of its row holds for the
// others anyway.
TEST(WideAccesses, TheEndOfARowIsAskedOfItsLastElementAlone) {
  const tile::Program program = widened(R"(program rows {
  grid plane = 3
  lane column = 16
  launch warps 1
  buffer x: f32[48] input
  buffer y: f32[63] output

  %at: i32[column] = index column
  %columns: i32 = constant 11
  %inside: b1[column] = less %at, %columns
  %a: f32[column] = load x[16 * plane + column]
  store y[21 * plane + 2 * column] <- %a where %inside
  %place: i32[column] = index 2 * column + 1
  %end: i32 = constant 21
  %in_row: b1[column] = less %place, %end
  %both: b1[column] = logical_and %inside, %in_row
  store y[21 * plane + 2 * column + 1] <- %a where %both
}
)");
  EXPECT_EQ(count(program, tile::Kind::kStore), 1);
}

TEST(WideAccesses, LeaveMasksOfTheirOwn) {
  std::string text = ends("64");
  text.replace(text.find("less %second, %end"), 18, "less %second, %other");
  text.insert(text.find("  %first_inside"), "  %other: i32 = constant 50\n");
  EXPECT_EQ(count(widened(text), tile::Kind::kLoad), 2);
  text.replace(text.find("less %second, %other"), 20, "less %first, %end");
  EXPECT_EQ(count(widened(text), tile::Kind::kLoad), 1);  // both are withheld where the first is
}

TEST(WideAccesses, ElementsThatNobodyWantsStayInside) {
  // The last four reaches beyond a buffer of 63.
  std::string text = kWindows;
  text.replace(text.find("grid plane = 3"), 14, "grid plane = 1");
  text.replace(text.find("f32[192]"), 8, "f32[63]");
  text.replace(text.find("f32[96]"), 7, "f32[32]");
  text.replace(text.find("4 * column + 3]"), 15, "4 * column + 2]");
  const tile::Program program = widened(text);
  EXPECT_EQ(count(program, tile::Kind::kUnstack), 1);
  EXPECT_NE(tile::print_program(program).find("constant 63"), std::string::npos);
}

TEST(LateOperations, StandBeforeTheirOnlyReader) {
  tile::Program program = tile::parse_program(kWindows);
  for (tile::ValueInfo& value : program.values)
    if (value.type.dtype == DType::f32 && value.name.size() == 2) value.name = "maximum_" + value.name;
  delay_operations(program);
  std::string order;
  for (const tile::Instruction& one : program.body) {
    if (one.kind == tile::Kind::kLoad) order += 'L';
    if (one.kind == tile::Kind::kStore) order += 'S';
    if (one.kind == tile::Kind::kOp && one.op == tile::ScalarOp::kMaximum) order += 'M';
  }
  // %abc is a name of its own, and so is %cde: they stay where they are, with what they alone are made of.
  EXPECT_EQ(order, "LLLMMSLLMMS");
}

TEST(LateOperations, WhatBodiesReadComesBeforeThem) {
  tile::Program program = tile::parse_program(R"(program rows {
  grid row = 3
  lane column = 4
  buffer x: f32[96] input
  buffer y: f32[12] output

  %place: i32[column] = index column
  %bound: i32 = constant 3
  %inside: b1[column] = less %place, %bound
  %none: f32[column] = constant 0.0
  for step = 0 to 8 until %bound carry %so_far: f32[column] = %none -> %total {
    %element: f32[column] = load x[32 * row + 4 * step + column] where %inside otherwise 1.0
    %next: f32[column] = add %so_far, %element
    yield %next
  }
  store y[4 * row + column] <- %total
}
)");
  const tile::Memory before = run(program);
  delay_operations(program);
  EXPECT_EQ(run(program).at("y").reals, before.at("y").reals);
  EXPECT_EQ(before.at("y").reals[3], 3.0);  // three iterations
}

}  // namespace
}  // namespace kw::lower
