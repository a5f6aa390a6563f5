// Scans: running folds and rows in order, whichever way and in whatever blocks rows are walked.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "lower/sort_ways.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

tile::Program arranged(const kernel::Kernel& kernel, std::string_view schedule) {
  return to_tiles(kernel, parse_schedule(schedule, kernel));
}

bool same(const kernel::Numbers& left, const kernel::Numbers& right) {
  if (left.wholes != right.wholes || left.reals.size() != right.reals.size()) return false;
  for (size_t i = 0; i < left.reals.size(); ++i) {
    const double one = left.reals[i], other = right.reals[i];
    const bool close = one == other || (std::isnan(one) && std::isnan(other)) || std::abs(one - other) < 1e-12;
    if (!close || std::isnan(one) != std::isnan(other)) return false;
  }
  return true;
}

// Rows with equals, zeros of both signs, infinities and NaN among their elements.
kernel::Memory odd_rows() {
  kernel::Memory memory;
  const std::vector<double> some = {2, -1, 2, -kInfinity, kNan, 0, -0.0, 3, kInfinity, 3};
  for (int row = 0; row < 3; ++row)
    for (size_t i = 0; i < 12; ++i) {
      const double number = some[(i * (row + 1) + 3 * row) % some.size()];
      memory["x"].reals.push_back(row == 2 && !std::isfinite(number) ? 0.5 : number);
      memory["w"].wholes.push_back(static_cast<int64_t>((i * 7 + row) % 5) - 2);
    }
  return memory;
}

constexpr const char* kRunning = R"(kernel running {
  axis row = 3, column = 12
  in x: f32[3, 12]
  in w: i64[3, 12]
  out sums: f32[3, 12]
  out products: f32[3, 12]
  out largest: f32[3, 12]
  out largest_at: i32[3, 12]
  out smallest: i64[3, 12]
  out smallest_at: i32[3, 12]
  out logs: f32[3, 12]
  sums[row, column] = scan sum(x[row, column]; column)
  products[row, column] = scan prod(x[row, column]; column)
  largest[row, column] = scan max(x[row, column], column; column).0
  largest_at[row, column] = scan max(x[row, column], column; column).1
  smallest[row, column] = scan min(w[row, column], column; column).0
  smallest_at[row, column] = scan min(w[row, column], column; column).1
  logs[row, column] = scan log_sum_exp(x[row, column]; column)
})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(Scans, ComputeTheSameInWhateverBlocks) {
  const std::string turned = replaced(kRunning, "], column;", "], {11 - column};"),
                    ends = replaced(replaced(turned, ").0", ").0 reversed"), ").1", ").1 reversed"),
                    back = replaced(ends, "column]; column)", "column]; column) reversed");
  for (const std::string& text : {std::string(kRunning), back}) {
    const kernel::Kernel kernel = kernel::parse_kernel(text);
    EXPECT_EQ(kernel::print_kernel(kernel::parse_kernel(kernel::print_kernel(kernel))), kernel::print_kernel(kernel));
    const kernel::Memory memory = odd_rows(), expected = kernel::evaluate(kernel, memory, {});
    for (const char* schedule :
         {R"({"row":{"grid":1},"column":{"tile":16}})", R"({"row":{"grid":2},"column":{"loop":1}})",
          R"({"row":{"grid":4},"column":{"loop":8}})", R"({"row":{"tile":4},"column":{"loop":4}})",
          R"({"row":{"loop":1},"column":{"loop":4},"loads_first":true})",
          R"({"row":{"tile":4},"column":{"loop":4,"in_order":true}})",
          R"({"row":{"loop":1},"column":{"loop":8,"in_order":true}})",
          R"({"row":{"tile":4,"unrolled":true},"column":{"loop":4,"unrolled":true}})",
          R"({"row":{"grid":1},"column":{"loop":2,"unrolled":true}})"}) {
      const tile::Program program = arranged(kernel, schedule);
      const std::string printed = tile::print_program(program);
      EXPECT_EQ(tile::print_program(tile::parse_program(printed)), printed);
      const kernel::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
      for (const auto& [name, numbers] : found) EXPECT_TRUE(same(numbers, expected.at(name))) << name << printed;
    }
  }
}

TEST(Scans, OfEqualsTheLastIsTheExtreme) {
  const kernel::Memory found = kernel::evaluate(kernel::parse_kernel(kRunning), odd_rows(), {});
  const std::vector<int64_t> at(found.at("largest_at").wholes.begin(), found.at("largest_at").wholes.begin() + 12);
  EXPECT_EQ(at, (std::vector<int64_t>{0, 0, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4}));
}

TEST(Scans, ANetworkHasOneOrderOfMultiplication) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel products {
  axis row = 3, column = 16
  in x: f32[3, 16]
  out y: f32[3, 16]
  y[row, column] = scan prod(x[row, column]; column)
})");
  kernel::Memory memory;
  for (int i = 0; i < 48; ++i) memory["x"].reals.push_back(1.0 + 0.25 * (i % 7) - (i % 3));
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  for (const char* schedule : {R"({"row":{"grid":2},"column":{"loop":4,"prefetch":2,"network":true}})",
                               R"({"row":{"grid":2},"column":{"loop":4,"prefetch":4,"network":true}})",
                               R"({"row":{"grid":2},"column":{"tile":16,"network":true}})",
                               R"({"row":{"grid":2},"column":{"loop":1,"network":true}})"}) {
    EXPECT_EQ(to_json(parse_schedule(std::string_view(schedule), kernel), kernel)["column"],
              nlohmann::ordered_json::parse(schedule)["column"]);
    const tile::Program program = arranged(kernel, schedule);
    const std::string printed = tile::print_program(program);
    EXPECT_EQ(tile::print_program(tile::parse_program(printed)), printed);
    EXPECT_TRUE(same(tile::interpret(program, memory, {}, tile::Arithmetic::kDouble).at("y"), expected.at("y")))
        << printed;
  }
}

TEST(Scans, PutRowsInOrder) {
  for (const char* reduce : {"sort_up", "sort_down"})
    for (const char* first : {"", " first 3", " first 9"}) {
      const kernel::Kernel kernel = kernel::parse_kernel(replaced(replaced(R"(kernel in_order {
  axis row = 3, column = 12
  in x: f32[3, 12]
  out y: f32[3, 12]
  out at: i32[3, 12]
  out alone: f32[3, 12]
  y[row, column] = scan SORT(x[row, column], column; column).0 FIRST
  at[row, column] = scan SORT(x[row, column], column; column).1 FIRST
  alone[row, column] = scan SORT(x[row, column]; column) FIRST
})",
                                                                           "SORT", reduce),
                                                                  " FIRST", first));
      kernel::Memory memory = odd_rows();
      memory.erase("w");
      const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
      for (const char* schedule :
           {R"({"row":{"grid":1},"column":{"tile":16}})", R"({"row":{"tile":4},"column":{"tile":16}})"}) {
        const tile::Program program = arranged(kernel, schedule);
        const std::string printed = tile::print_program(program);
        EXPECT_EQ(tile::print_program(tile::parse_program(printed)), printed);
        EXPECT_EQ(printed.find("picked") != std::string::npos, std::string_view(first) == " first 3") << printed;
        const kernel::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
        for (const auto& [name, numbers] : found) EXPECT_TRUE(same(numbers, expected.at(name))) << name << printed;
      }
    }
}

// How the target's step has a sort of 16 elements put `words` places in order.
std::string way_of_sort(const std::string& words) {
  tile::Program program = tile::parse_program(
      "program p {\n  lane column = 16\n  launch warps 4\n  buffer x: f32[16] input\n  buffer y: f32[16] output\n"
      "  %tile: f32[column] = load x[column]\n  %place: i32[column] = index column\n"
      "  %up: f32[column], %at: i32[column] = scan sort_up %tile, %place along column" +
      words + "\n  store y[column] <- %up\n}\n");
  choose_ways_of_sorts(program);
  tile::verify(program);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  const size_t begin = text.find("along column") + 12;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Scans, OnlyTheFirstPlacesAreSortedWhereTheyAreAtMostHalf) {
  EXPECT_EQ(way_of_sort(""), "");
  EXPECT_EQ(way_of_sort(" first 3"), " first 4 top_k");
  EXPECT_EQ(way_of_sort(" first 8"), " first 8 top_k");
  EXPECT_EQ(way_of_sort(" first 9"), " first 9");
  EXPECT_EQ(way_of_sort(" first 3 picked"), " first 3 picked");
  for (const char* words : {" top_k", " first 3 top_k", " first 16 top_k"}) try {
      way_of_sort(words);
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a power of two, and no more than half of the row"), std::string::npos)
          << error.what();
    }
}

TEST(Scans, WhatALoopCannotWalkIsRefused) {
  const auto refusal = [](const std::string& lines, std::string_view schedule) -> std::string {
    const kernel::Kernel kernel = kernel::parse_kernel(
        "kernel k {\n  axis row = 12, column = 40\n  in x: f32[12, 40]\n  out y: f32[12, 40]\n" + lines + "}\n");
    try {
      arranged(kernel, schedule);
      return "";
    } catch (const Error& error) { return error.what(); }
  };
  const std::string sum = "  y[row, column] = scan sum(x[row, column]; column)\n";
  const auto holds = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_EQ(refusal(sum, R"({"row":{"grid":1},"column":{"loop":8}})"), "");
  EXPECT_TRUE(holds(refusal(sum, R"({"row":{"grid":1},"column":{"grid":8}})"), "cannot share it out"));
  EXPECT_TRUE(holds(refusal(sum, R"({"row":{"loop":1},"column":{"loop":8},"nest":["column","row"]})"),
                    "varies in a loop inside"));
  EXPECT_TRUE(holds(refusal(sum, R"({"row":{"loop":1},"column":{"loop":8},"nest":[["row","column"]]})"),
                    "walked together with others"));
  EXPECT_TRUE(holds(refusal(sum, R"({"row":{"grid":1},"column":{"loop":8},"serpentine":true})"), "turn round"));
  EXPECT_TRUE(holds(refusal(sum, R"({"row":{"grid":1},"column":{"loop":8,"prefetch":2}})"), "a multiple of so many"));
  EXPECT_TRUE(holds(
      refusal("  y[row, column] = scan sort_up(x[row, column]; column)\n", R"({"row":{"grid":1},"column":{"loop":8}})"),
      "which is a loop"));
  const std::string both =
      "  y[row, column] = scan sum(x[row, column]; column) + scan max(x[row, column]; column) "
      "reversed\n";
  EXPECT_TRUE(holds(refusal(both, R"({"row":{"grid":1},"column":{"loop":8}})"), "the other way"));
  EXPECT_EQ(refusal(both, R"({"row":{"grid":1},"column":{"tile":64}})"), "");
}

TEST(Scans, WhatGoesOnFitsWhatWasMetBefore) {
  const auto fault = [](const std::string& line) -> std::string {
    const std::string text =
        "program p {\n  grid block = 2\n  lane row = 4, column = 8\n  launch warps 1\n  buffer a: f32[4, 8] input\n"
        "  buffer y: f32[2] output\n\n  %x: f32[row, column] = load a[row, column]\n  %met: f32[row] = constant 0.0\n"
        "  %wide: f32[row, column] = constant 0.0\n  %whole: i32[row] = constant 0\n  " +
        line + "\n  %z: f32 = constant 0.0\n  store y[block] <- %z\n}\n";
    try {
      tile::verify(tile::parse_program(text));
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  const std::string scan = "%s: f32[row, column], %t: f32[row] = scan sum %x along column after ";
  EXPECT_EQ(fault(scan + "%met"), "");
  EXPECT_NE(fault(scan + "%wide").find("what was met before has lanes"), std::string::npos) << fault(scan + "%wide");
  EXPECT_NE(fault(scan + "%whole").find("i32, but f32 is expected"), std::string::npos) << fault(scan + "%whole");
  EXPECT_NE(fault("%s: f32[row, column], %t: f32[row] = scan first %x along column after %met").find("goes on from"),
            std::string::npos);
}

}  // namespace
}  // namespace kw::lower
