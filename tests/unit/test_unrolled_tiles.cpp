// Unrolled tiles: each point of the axis has values of its own, and what several points need alike is computed once.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "lower/schedule.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"

namespace kw::lower {
namespace {

// A window of three rows that moves by two.
constexpr const char* kWindows = R"(kernel windows {
  axis block = 3, row = 4, column = 16, tap = 3
  in x: f32[25, 16]
  in w: f32[3]
  out y: f32[12, 16]
  y[4 * block + row, column] = sum(x[8 * block + 2 * row + tap, column] * w[tap]; tap)
})";

constexpr const char* kFolds = R"(kernel folds {
  axis row = 8, column = 5
  in x: f32[8, 5]
  out least: f32[8]
  out total: f32[8]
  least[row] = min(x[row, column]; column)
  total[row] = sum(x[row, column]; column)
})";

tile::Program arranged(const char* text, std::string_view schedule) {
  const kernel::Kernel kernel = kernel::parse_kernel(text);
  return to_tiles(kernel, parse_schedule(schedule, kernel));
}

int count(const tile::Program& program, tile::Kind kind, std::string_view buffer = "") {
  int found = 0;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind == kind && (buffer.empty() || program.buffers[one.access.buffer].name == buffer)) ++found;
  });
  return found;
}

std::string refusal(const char* text, std::string_view schedule) {
  try {
    arranged(text, schedule);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

void expect_same(const char* text, std::string_view schedule) {
  const kernel::Kernel kernel = kernel::parse_kernel(text);
  kernel::Memory memory;
  for (const kernel::Buffer& buffer : kernel.buffers) {
    if (buffer.role == kernel::BufferRole::kOutput) continue;
    int64_t elements = 1;
    for (const kernel::Index& size : buffer.shape) elements *= *kernel::as_constant(size);
    for (int64_t at = 0; at < elements; ++at) memory[buffer.name].reals.push_back(static_cast<double>(at * at % 37));
  }
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  const tile::Memory found = tile::interpret(arranged(text, schedule), memory, {}, tile::Arithmetic::kDouble);
  for (const kernel::Buffer& buffer : kernel.buffers)
    if (buffer.role == kernel::BufferRole::kOutput) {
      EXPECT_EQ(found.at(buffer.name).reals, expected.at(buffer.name).reals) << buffer.name << " under " << schedule;
    }
}

TEST(UnrolledTiles, WindowsShareTheRowsThatTheyLoad) {
  const char* schedule = R"({"block":{"grid":1},"row":{"tile":4,"unrolled":true},"column":{"grid":16},)"
                         R"("tap":{"loop":1,"unrolled":true}})";
  const tile::Program program = arranged(kWindows, schedule);
  EXPECT_EQ(count(program, tile::Kind::kFor), 0);
  EXPECT_EQ(count(program, tile::Kind::kLoad, "x"), 9);  // not 12
  EXPECT_EQ(count(program, tile::Kind::kLoad, "w"), 3);
  EXPECT_EQ(count(program, tile::Kind::kStore), 4);
  EXPECT_TRUE(std::none_of(program.symbols.begin(), program.symbols.end(), [](const tile::SymbolInfo& symbol) {
    return symbol.name == "row" || symbol.name == "tap";
  }));
  expect_same(kWindows, schedule);
}

TEST(UnrolledTiles, LoopsThatAreNotUnrolledCarryAValueForEachPoint) {
  const char* schedule = R"({"block":{"grid":1},"row":{"tile":4,"unrolled":true},"column":{"grid":16},)"
                         R"("tap":{"loop":1}})";
  const tile::Program program = arranged(kWindows, schedule);
  EXPECT_EQ(count(program, tile::Kind::kFor), 1);
  EXPECT_EQ(count(program, tile::Kind::kLoad, "x"), 4);
  tile::for_each(program.body, [](const tile::Instruction& one) {
    if (one.kind == tile::Kind::kFor) { EXPECT_EQ(one.results.size(), 4u); }
  });
  expect_same(kWindows, schedule);
}

// Where an axis's points are no power of two, there are no more values than points.
TEST(UnrolledTiles, FoldsGoFromPointToPoint) {
  for (const char* row : {R"({"grid":4})", R"({"tile":8,"unrolled":true})", R"({"tile":8})"}) {
    const std::string schedule = std::string(R"({"column":{"tile":8,"unrolled":true},"row":)") + row + "}";
    const tile::Program program = arranged(kFolds, schedule);
    EXPECT_EQ(count(program, tile::Kind::kFold), 0);
    expect_same(kFolds, schedule);
  }
}

TEST(UnrolledTiles, WhatNeedsTheWholeTileIsRefused) {
  const char* places = R"(kernel places {
  axis row = 8, column = 5
  in x: f32[8, 5]
  out place: i64[8]
  place[row] = arg_max(x[row, column]; column)
})";
  EXPECT_NE(refusal(places, R"({"row":{"grid":4},"column":{"tile":8,"unrolled":true}})")
                .find("a arg_max folds an unrolled tile"),
            std::string::npos)
      << refusal(places, R"({"row":{"grid":4},"column":{"tile":8,"unrolled":true}})");
  const char* sizes = R"(kernel sizes {
  size rows = 1..8
  axis row = rows, column = 70
  in x: f32[rows, 70]
  out y: f32[rows, 70]
  y[row, column] = x[row, column] * 2.0
})";
  EXPECT_NE(refusal(sizes, R"({"row":{"tile":8,"unrolled":true},"column":{"grid":2}})").find("only at run time"),
            std::string::npos);
  EXPECT_NE(
      refusal(sizes, R"({"row":{"grid":1},"column":{"tile":128,"unrolled":true}})").find("has 70 points, too many"),
      std::string::npos);
  const std::pair<const char*, const char*> cases[] = {
      {R"({"row":{"grid":4,"unrolled":true},"column":{"tile":8}})", "shared out by blocks, so it is not unrolled"},
      {R"({"row":{"tile":8,"unrolled":true,"last":true},"column":{"tile":8}})", "it is no dimension of tiles"},
      {R"({"row":{"tile":8,"unrolled":true},"column":{"tile":8,"within":"row"}})", "cannot be within 'row'"},
  };
  for (const auto& [schedule, words] : cases)
    EXPECT_NE(refusal(kFolds, schedule).find(words), std::string::npos) << refusal(kFolds, schedule);
}

}  // namespace
}  // namespace kw::lower
