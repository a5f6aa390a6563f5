// Loops of a CPU that begin and end where masks and data say.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "emit/cpu/tile_printer.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "lower/loop_plan.hpp"
#include "support/error.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

std::string printed(const char* kernel, const char* schedule) {
  const kernel::Kernel parsed = kernel::parse_kernel(kernel);
  cpu::HelperSet helpers;
  const tile::Program program = to_tiles(parsed, parse_schedule(std::string_view(schedule), parsed));
  return cpu::print_tile_function(*lowered_by(cpu::lowering_steps(), program), helpers).text;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr const char* kWindows =
    R"({"row":{"loop":1,"threads":true},"column":{"tile":64,"simd":true},"tap":{"tile":4}})";

// Windows side by side, padded: neither loop asks where an element lies.
TEST(LaneBounds, LeaveOutWhatLiesOutside) {
  const std::string text = printed(
      "kernel k {\n  axis row = 8, column = 64, tap = 4\n  in x: f32[8, 64]\n  out y: f32[8, 64]\n"
      "  at = {column + tap - 2}\n  inside = at >= 0 and at < 64\n"
      "  y[row, column] = sum((x[row, column + tap - 2] where inside otherwise 0.0); tap)\n}",
      kWindows);
  EXPECT_TRUE(has(text, "const int64_t first_column = std::max<int64_t>(0, 2 - tap);\n")) << text;
  EXPECT_TRUE(has(text, "const int64_t column_end = std::min<int64_t>(64, 66 - tap);\n")) << text;
  EXPECT_TRUE(has(text, "for (int64_t column = first_column; column < column_end; ++column) {\n")) << text;
  EXPECT_FALSE(has(text, " ? ")) << text;
}

// What only one of two folds leaves out is asked at every point.
TEST(LaneBounds, AreThoseOfAllFolds) {
  const std::string text = printed(
      "kernel k {\n  axis row = 8, column = 64, tap = 4\n  in x: f32[8, 64]\n  out y: f32[8, 64]\n"
      "  at = {column + tap}\n  value = (x[row, column + tap] where at < 64 otherwise 0.0)\n"
      "  y[row, column] = sum(value; tap) / sum(value + 1.0; tap)\n}",
      kWindows);
  EXPECT_TRUE(has(text, "for (int32_t column = 0; column < 64; ++column) {\n")) << text;
  EXPECT_TRUE(has(text, " ? ")) << text;
}

// Steps of two, rounded up; an end that depends on an iteration around.
TEST(LaneBounds, RoundWhereStepsAreLonger) {
  const std::string text = printed(
      "kernel k {\n  axis row = 8, column = 64, tap = 4\n  in x: f32[8, 128]\n  out y: f32[8, 64]\n"
      "  at = {2 * column + tap - row}\n"
      "  y[row, column] = max((x[row, 2 * column + tap - row] where at >= 0 and at < 128 otherwise -inf); tap)\n}",
      kWindows);
  EXPECT_TRUE(has(text, "const int64_t first_column = std::max<int64_t>(0, (row - tap + 1) / 2);\n")) << text;
  EXPECT_TRUE(has(text, "const int64_t column_end = std::min<int64_t>(64, (row - tap + 129) / 2);\n")) << text;
}

constexpr const char* kLengths =
    "kernel k {\n  axis row = 8, column = 32, entry = 500\n  in x: f32[500, 32]\n  in length: i32[8]\n"
    "  out y: f32[8, 32]\n  at = {entry}\n  last = length[row]\n"
    "  y[row, column] = sum((x[entry, column] where at < last otherwise 0.0); entry)\n}";

TEST(LaneBounds, DataMayEndARow) {
  const std::string tiles = printed(kLengths,
                                    R"({"row":{"loop":1},"column":{"tile":32,"simd":true},"entry":{"tile":512}})");
  EXPECT_TRUE(has(tiles, "const int64_t entry_end = std::min<int64_t>(500, last);\n")) << tiles;
  EXPECT_TRUE(has(tiles, "[column] += x[")) << tiles;
  const std::string loops = printed(
      kLengths, R"({"row":{"loop":1},"column":{"tile":32,"simd":true},"entry":{"loop":1,"stops":true}})");
  EXPECT_TRUE(has(loops, "const int64_t entry_end = std::min<int64_t>(500, last);\n")) << loops;
  EXPECT_TRUE(has(loops, "for (int64_t entry = 0; entry < entry_end; ++entry) {\n")) << loops;
  EXPECT_FALSE(has(loops, " ? ")) << loops;
  // Several entries at a time: the last may lie beyond the end.
  const std::string blocks = printed(kLengths,
                                     R"({"row":{"grid":1},"column":{"tile":32},"entry":{"loop":16,"stops":true}})");
  EXPECT_TRUE(has(blocks, "entry_start < entry_start_end; entry_start += 16")) << blocks;
  EXPECT_TRUE(has(blocks, " ? ")) << blocks;
}

constexpr const char* kRow =
    "kernel k {\n  axis column = 100000\n  in x: f32[100000]\n  out y: f32[1]\n"
    "  y[0] = max(x[column]; column) + sum(x[column]; column)\n}";

TEST(LongRows, AreSharedByThreads) {
  const kernel::Kernel kernel = kernel::parse_kernel(kRow);
  const KernelSchedule schedule = parse_schedule(
      std::string_view(R"({"column":{"tile":131072,"threads":true,"simd":true}})"), kernel);
  EXPECT_EQ(parse_schedule(to_json(schedule, kernel), kernel), schedule);
  const tile::Program program = to_tiles(kernel, schedule);
  const std::string tiles = tile::print_program(program);
  EXPECT_TRUE(has(tiles, "lane column = 131072 shared simd\n")) << tiles;
  EXPECT_EQ(tile::print_program(tile::parse_program(tiles)), tiles);
  EXPECT_TRUE(cpu::takes_threads(program));
  cpu::HelperSet helpers;
  const std::string text = cpu::print_tile_function(*lowered_by(cpu::lowering_steps(), program), helpers).text;
  EXPECT_TRUE(has(text, "#pragma omp parallel for simd reduction(max : ")) << text;
  EXPECT_THROW(tile::parse_program("program p {\n  grid row = 4\n  lane column = 8 shared\n  launch warps 4\n"
                                   "  buffer y: f32[4] output\n  %one: f32 = constant 1.0\n"
                                   "  store y[row] <- %one\n}\n"),
               Error);
}

// What is kept of a long row is the thread's that has the row.
TEST(LongRows, AreKeptInMemoryOfTheirOwn) {
  const std::string text = printed(
      "kernel k {\n  axis row = 8, column = 100000\n  in x: f32[500]\n  in ids: i64[8, 100000]\n  out y: f32[8]\n"
      "  value = x[bounded(ids[row, column], 500:i64)]\n  y[row] = sum(value - max(value; column); column)\n}",
      R"({"row":{"loop":1,"threads":true},"column":{"tile":131072,"simd":true}})");
  const size_t loop = text.find("#pragma omp parallel for"), memory = text.find("const KeptScratch ");
  EXPECT_NE(memory, std::string::npos) << text;
  EXPECT_LT(loop, memory) << text;
}

}  // namespace
}  // namespace kw::lower
