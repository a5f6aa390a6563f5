// Loops that threads of a CPU share, that are taken side by side, and that only move memory.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "emit/cpu/tile_printer.hpp"
#include "kernel/text.hpp"
#include "lower/in_place.hpp"
#include "lower/pipeline.hpp"
#include "lower/loop_plan.hpp"
#include "lower/shared_loops.hpp"
#include "support/error.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

constexpr const char* kScaled = R"(kernel scaled {
  axis batch = 3, row = 4, column = 40
  in x: f32[3, 4, 40]
  in scale: f32[3]
  in shift: f32[4]
  out y: f32[3, 4, 40]
  y[batch, row, column] = x[batch, row, column] * exp(scale[batch]) + shift[row]
})";

tile::Program arranged(const char* kernel, const char* schedule) {
  const kernel::Kernel parsed = kernel::parse_kernel(kernel);
  const KernelSchedule read = parse_schedule(std::string_view(schedule), parsed);
  EXPECT_EQ(parse_schedule(to_json(read, parsed), parsed), read);
  return to_tiles(parsed, read);
}

std::string refusal(const char* kernel, const char* schedule) {
  try {
    arranged(kernel, schedule);
    return "";
  } catch (const Error& error) { return error.what(); }
}

std::string printed(const tile::Program& program) {
  cpu::HelperSet helpers;
  return cpu::print_tile_function(*lowered_by(cpu::lowering_steps(), program), helpers).text;
}

TEST(SharedLoops, HaveNothingBetweenOneAndTheNext) {
  const tile::Program program = arranged(
      kScaled,
      R"({"batch":{"loop":1,"threads":true},"row":{"loop":1,"threads":true},"column":{"loop":1,"simd":true}})");
  ASSERT_EQ(program.body.size(), 1u);
  const tile::Instruction& batch = program.body[0];
  EXPECT_EQ(shared_together(batch), 2);
  ASSERT_EQ(batch.body.size(), 1u);
  EXPECT_TRUE(batch.body[0].shared);
  EXPECT_TRUE(batch.body[0].body.back().simd);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  const std::string code = printed(program);
  EXPECT_NE(code.find("int threads) {\n#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)\n"),
            std::string::npos)
      << code;
  EXPECT_NE(code.find("#pragma omp simd\n      for (int64_t column = 0; column < 40; ++column) {\n"), std::string::npos)
      << code;
}

TEST(SharedLoops, KeepWhatVariesOutsideOfOneThatIsNotShared) {
  const tile::Program program = arranged(
      kScaled, R"({"batch":{"loop":1,"threads":true},"row":{"loop":1},"column":{"loop":1,"simd":true}})");
  EXPECT_EQ(shared_together(program.body[0]), 1);
  EXPECT_GT(program.body[0].body.size(), 1u);  // the exponential of the batch's scale
  EXPECT_EQ(printed(program).find("collapse"), std::string::npos);
}

TEST(SharedLoops, OneLoopIsSharedAndTakenSideBySide) {
  const tile::Program program = arranged(
      "kernel k {\n  axis i = 4096\n  in x: f32[4096]\n  out y: f32[4096]\n  y[i] = x[i] + x[i]\n}",
      R"({"i":{"loop":1,"threads":true,"simd":true}})");
  EXPECT_NE(printed(program).find("#pragma omp parallel for simd num_threads(threads) schedule(static)\n"),
            std::string::npos);
}

TEST(SharedLoops, CarryNothing) {
  const char* sums =
      "kernel k {\n  axis row = 4, column = 40\n  in x: f32[4, 40]\n  out y: f32[4]\n"
      "  y[row] = sum(x[row, column]; column)\n}";
  EXPECT_NE(refusal(sums, R"({"row":{"loop":1},"column":{"loop":8,"threads":true}})").find("carries values"),
            std::string::npos);
  EXPECT_NE(refusal(sums, R"({"row":{"grid":1,"threads":true},"column":{"loop":8}})").find("shared out by blocks"),
            std::string::npos);
  EXPECT_NE(refusal(sums, R"({"row":{"loop":1,"unrolled":true,"simd":true},"column":{"loop":8}})").find("is unrolled"),
            std::string::npos);
  EXPECT_THROW(tile::parse_program("program p {\n  launch warps 4\n  buffer y: f32[1] output\n  %one: f32 = constant "
                                   "1.0\n  for i = 0 to 3 shared carry %a: f32 = %one -> %b {\n    yield %a\n  }\n"
                                   "  store y[0] <- %b\n}\n"),
               Error);
}

TEST(SharedLoops, TilesHaveTheirSimdLaneInnermost) {
  const char* turned =
      "kernel k {\n  axis row = 64, column = 64\n  in x: f32[64, 64]\n  out y: f32[64, 64]\n"
      "  y[row, column] = x[column, row]\n}";
  const std::string along_row = printed(arranged(turned, R"({"row":{"loop":32,"simd":true},"column":{"loop":32}})"));
  EXPECT_NE(along_row.find("#pragma omp simd\n        for (int64_t row = 0; row < 32; ++row)"), std::string::npos)
      << along_row;
  const std::string along_column = printed(arranged(turned, R"({"row":{"loop":32},"column":{"loop":32,"simd":true}})"));
  EXPECT_NE(along_column.find("#pragma omp simd\n        for (int64_t column = 0; column < 32; ++column)"),
            std::string::npos)
      << along_column;
}

TEST(SharedLoops, EveryNestOfTilesHasASimdLaneOfItsOwn) {
  const std::string text = printed(
      arranged("kernel k {\n  axis row = 64, column = 64, i = 32, j = 32\n  in x: f32[64, 64]\n  out y: f32[64, 64]\n"
               "  out z: f32[32, 32]\n  y[row, column] = x[column, row]\n  z[i, j] = x[j, i]\n}",
               R"({"row":{"loop":32,"simd":true},"column":{"loop":32},"i":{"tile":32},"j":{"tile":32,"simd":true}})"));
  EXPECT_NE(text.find("#pragma omp simd\n        for (int64_t row = 0; row < 32; ++row)"), std::string::npos) << text;
  EXPECT_NE(text.find("#pragma omp simd\n    for (int64_t j = 0; j < 32; ++j)"), std::string::npos) << text;
}

// What is cheap is computed again where a later loop needs it; exponentials are kept.
TEST(RowsOfLoops, KeepInArraysWhatIsWorthIt) {
  const std::string text = printed(
      arranged("kernel k {\n  axis row = 8, column = 256\n  in x: f32[8, 256]\n  out y: f32[8, 256]\n"
               "  scaled = x[row, column] * 0.5\n  largest = max(scaled; column)\n  weight = exp(scaled - largest)\n"
               "  total = sum(weight; column)\n  y[row, column] = weight / total\n}",
               R"({"row":{"loop":1,"threads":true},"column":{"tile":256,"simd":true}})"));
  EXPECT_NE(text.find("alignas(64) float weight[256];\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("scaled[256]"), std::string::npos) << text;
  size_t loops = 0, computed = 0;
  for (size_t at = 0; (at = text.find("#pragma omp simd", at)) != std::string::npos; ++at) ++loops;
  for (size_t at = 0; (at = text.find("* 0.5f", at)) != std::string::npos; ++at) ++computed;
  EXPECT_EQ(loops, 3u) << text;
  EXPECT_EQ(computed, 2u) << text;
}

// A row that is read in two loops may be overwritten by the second only.
TEST(RowsOfLoops, AreOverwrittenByWhatReadsThemLast) {
  const auto norm = [](const char* stores) {
    return arranged(
        (std::string("kernel k {\n  axis row = 8, column = 256\n  in x: f32[8, 256]\n  out y: f32[8, 256]\n"
                     "  out z: f32[8, 256]\n  twice = x[row, column] * 2.0\n  total = sum(twice; column)\n") +
         stores + "}")
            .c_str(),
        R"({"row":{"loop":1},"column":{"tile":256,"simd":true}})");
  };
  const tile::Program last = norm("  y[row, column] = twice - total\n  z[row, column] = total\n");
  EXPECT_TRUE(lower::reads_before_it_writes_on_cpu(*lowered_by(cpu::lowering_steps(), last), 0, 1));
  const tile::Program first = norm("  y[row, column] = twice\n  z[row, column] = twice - total\n");
  EXPECT_FALSE(lower::reads_before_it_writes_on_cpu(*lowered_by(cpu::lowering_steps(), first), 0, 1));
}

// Two loops over the same elements, one behind the other: the second reads again what the first has written over.
TEST(SharedLoops, WhatColumnsAreFoldedOverIsNotWrittenBetweenTheirLoops) {
  const tile::Program columns = arranged(
      "kernel k {\n  axis row = 8, column = 16\n  in x: f32[8, 16]\n  out y: f32[8, 16]\n  out z: f32[8, 16]\n"
      "  twice = x[row, column] * 2.0\n  total = sum(twice; row)\n  y[row, column] = twice\n"
      "  z[row, column] = twice - total\n}",
      R"({"row":{"tile":8},"column":{"tile":16,"simd":true}})");
  EXPECT_FALSE(lower::reads_before_it_writes_on_cpu(*lowered_by(cpu::lowering_steps(), columns), 0, 1));
}

// --- Short rows ---

// The row's end, and not that of the first of two that stand side by side in it.
TEST(ShortRows, EndWhereTheRowDoes) {
  const std::string text = printed(
      arranged("kernel k {\n  axis row = 8, column = 40\n  in x: f32[8, 40]\n  out y: f32[8]\n  at = {column}\n"
               "  y[row] = sum(select(exp(x[row, column]) > 1.0 and at < 20, 1.0, x[row, column]); column)\n}",
               R"({"row":{"loop":1,"threads":true},"column":{"tile":64,"simd":true}})"));
  EXPECT_EQ(text.find("whole_vectors(20)"), std::string::npos) << text;
}

TEST(ShortRows, GoOnToWholeVectorsUnderTheirMasks) {
  const std::string text = printed(
      arranged("kernel k {\n  axis row = 8, column = 100\n  in x: f32[8, 100]\n  out y: f32[8]\n"
               "  y[row] = sum(exp(x[row, column]); column)\n}",
               R"({"row":{"loop":1,"threads":true},"column":{"tile":128,"simd":true}})"));
  EXPECT_NE(text.find("constexpr int64_t column_end = whole_vectors(100);\n"), std::string::npos) << text;
  EXPECT_NE(text.find("for (int32_t column = 0; column < column_end; ++column) {\n"
                      "      const bool column_inside = column < 100;\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("column_inside ? x[row * 100 + column] : 0.0f"), std::string::npos) << text;
}

TEST(MovedMemory, IsMovedByOneCall) {
  const std::string text = printed(
      arranged("kernel k {\n  axis row = 8, column = 1000\n  in x: f32[8, 3000]\n  out y: f32[8, 1000]\n"
               "  y[row, column] = x[row, column + 5]\n}",
               R"({"row":{"loop":1},"column":{"loop":512}})"));
  EXPECT_NE(text.find("const int64_t column_end = std::min<int64_t>(column_start + 512, 1000) - column_start;\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("std::memcpy(&y[row * 1000 + column_start], &x[row * 3000 + column_start + 5], "
                      "column_end * sizeof(float));"),
            std::string::npos)
      << text;
}

TEST(MovedMemory, IsNoneThatIsComputedOrConverted) {
  for (const char* value : {"x[column] + 1.0", "x[2 * column]", "f16(x[column])"}) {
    const std::string kernel = std::string("kernel k {\n  axis column = 64\n  in x: f32[128]\n  out y: ") +
                               (value[0] == 'f' ? "f16" : "f32") + "[64]\n  y[column] = " + value + "\n}";
    const std::string text = printed(arranged(kernel.c_str(), R"({"column":{"tile":64}})"));
    EXPECT_EQ(text.find("memcpy"), std::string::npos) << text;
  }
}

TEST(PackedFloats, AreMovedAsTheyLieInMemory) {
  const std::string text = printed(
      arranged("kernel k {\n  axis i = 64\n  in x: bf16[128]\n  in z: bf16[64]\n  out y: bf16[64]\n  out w: f32[64]\n"
               "  y[i] = select(i < 9, x[2 * i], z[i])\n  w[i] = f32(z[i])\n}",
               R"({"i":{"loop":1,"simd":true}})"));
  EXPECT_EQ(text.find("bfloat16_of_float"), std::string::npos) << text;
  EXPECT_NE(text.find("float_of_bfloat16"), std::string::npos) << text;
}

TEST(Counters, AreShortWherePlacesAreDivided) {
  const std::string text = printed(
      arranged("kernel k {\n  axis i = 64\n  in x: f32[32]\n  out y: f32[64]\n  y[i] = x[i / 2]\n}",
               R"({"i":{"loop":1,"simd":true}})"));
  EXPECT_NE(text.find("for (int32_t i = 0; i < 64; ++i)"), std::string::npos) << text;
}

TEST(Loads, StandBeforeStoresThatMayShareTheirMemory) {
  const tile::Program program = tile::parse_program(
      "program p {\n  launch warps 4\n  buffer x: f32[8] input\n  buffer y: f32[8] output\n  buffer z: f32[8] output\n"
      "  for i = 0 to 8 simd {\n    %a: f32 = load x[i]\n    %b: f32 = load x[i]\n    store y[i] <- %a\n"
      "    store z[i] <- %b\n  }\n}\n");
  const std::string text = printed(program);
  EXPECT_NE(text.find("const float b = x[i];\n    y[i] = x[i];\n    z[i] = b;\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace kw::lower
