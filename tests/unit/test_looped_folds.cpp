// Folds of several values along loops: what lanes keep, whichever way and in whatever blocks rows are walked.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

// Five rows, each of 3 planes of 41 elements.
kernel::Kernel rows(const std::string& body) {
  return kernel::parse_kernel(
      "kernel rows {\n  axis row = 5, plane = 3, column = 41\n  in x: f32[5, 3, 41]\n  in w: f32[41]\n" + body + "}\n");
}

constexpr const char* kSoftmax = R"(  out y: f32[5, 3, 41]
  largest = max_sum_exp(x[row, plane, column]; plane, column).0
  total = max_sum_exp(x[row, plane, column]; plane, column).1
  y[row, plane, column] = exp(x[row, plane, column] - largest) / total
)";
constexpr const char* kNorm = R"(  out y: f32[5, 3, 41]
  mean = moments(x[row, plane, column]; plane, column).0
  squares = moments(x[row, plane, column]; plane, column).1
  y[row, plane, column] = (x[row, plane, column] - mean) * rsqrt(squares / 123.0 + 0.001) * w[column]
)";
constexpr const char* kPlaces = R"(  out y: f32[5]
  y[row] = f32(arg_max(x[row, plane, column]; plane, column)) + f32(arg_min(x[row, plane, column]; plane, column))
)";
// A second walk over what the first has read: places, moments and exponentials there, too.
constexpr const char* kRounds = R"(  out y: f32[5]
  largest = max(x[row, plane, column]; plane, column)
  off = x[row, plane, column] * largest
  y[row] = f32(arg_min(off; plane, column)) + moments(off; plane, column).1 + max_sum_exp(off; plane, column).1
)";
constexpr const char* kMeans = R"(  out y: f32[5]
  y[row] = moments(x[row, plane, column]; plane, column).0
)";
// Of parts with counts of their own, of equal parts, and with maxima.
constexpr const char* kCounted = R"(  out y: f32[5]
  mean = combine_moments(x[row, plane, column], abs(x[row, plane, column]), w[column] * 4.0; plane, column).0
  squares = combine_moments(x[row, plane, column], abs(x[row, plane, column]), w[column] * 4.0; plane, column).1
  y[row] = mean + 0.5 * squares
)";
constexpr const char* kEqualParts = R"(  out y: f32[5]
  mean = combine_moments(x[row, plane, column], abs(x[row, plane, column]), 8.0; plane, column).0
  squares = combine_moments(x[row, plane, column], abs(x[row, plane, column]), 8.0; plane, column).1
  y[row] = mean + 0.5 * squares
)";
constexpr const char* kExponentials = R"(  out y: f32[5]
  largest = combine_max_sum_exp(x[row, plane, column], w[column]; plane, column).0
  y[row] = largest + combine_max_sum_exp(x[row, plane, column], w[column]; plane, column).1
)";
constexpr const char* kBodies[] = {kSoftmax, kNorm, kPlaces, kRounds, kMeans, kCounted, kEqualParts, kExponentials};

std::string schedule_text(int row, const std::string& plane, const std::string& column) {
  return "{\"row\":{\"grid\":" + std::to_string(row) + "},\"plane\":" + plane + ",\"column\":" + column +
         ",\"cache_hints\":true,\"serpentine\":true,\"warps\":4}";
}

tile::Program lowered(const kernel::Kernel& kernel, const std::string& schedule) {
  const KernelSchedule parsed = parse_schedule(std::string_view(schedule), kernel);
  EXPECT_EQ(parse_schedule(to_json(parsed, kernel), kernel), parsed);
  const tile::Program program = to_tiles(kernel, parsed);
  return tile::parse_program(tile::print_program(program));
}

bool close(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) == std::isnan(right);
  return left == right || std::abs(left - right) <= 1e-9 * std::max(1.0, std::abs(right));
}

void expect_same(const char* body, const kernel::Memory& memory) {
  const kernel::Kernel kernel = rows(body);
  const auto expected = kernel::evaluate(kernel, memory, {}).at("y").reals;
  const std::string widths[] = {"1", "4", "16", "64"};
  for (const std::string& plane :
       {std::string("{\"loop\":1}"), std::string("{\"loop\":2}"), std::string("{\"tile\":4}")})
    for (const std::string& width : widths)
      for (int row : {1, 4}) {
        const std::string column = "{\"loop\":" + width + "}", schedule = schedule_text(row, plane, column);
        const tile::Program program = lowered(kernel, schedule);
        const auto found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble).at("y").reals;
        ASSERT_EQ(found.size(), expected.size());
        for (size_t at = 0; at < found.size(); ++at)
          ASSERT_TRUE(close(found[at], expected[at])) << at << ": " << found[at] << " is not " << expected[at] << "\n"
                                                      << schedule << "\n"
                                                      << tile::print_program(program);
      }
}

kernel::Memory numbers() {
  kernel::Memory memory;
  for (int at = 0; at < 5 * 3 * 41; ++at) memory["x"].reals.push_back((at * 7 % 89 - 44) * 0.125);
  for (int at = 0; at < 41; ++at) memory["w"].reals.push_back(at * 5 % 17 * 0.25);
  return memory;
}

TEST(LoopedFolds, ComputeWhatTheyMean) {
  for (const char* body : kBodies) expect_same(body, numbers());
}

// Rows of NaN, of one infinity, of equal infinities, and of the lowest number alone.
TEST(LoopedFolds, TakeSpecialValuesAsTheyAre) {
  kernel::Memory memory = numbers();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  memory["x"].reals[40] = std::numeric_limits<double>::quiet_NaN();
  memory["x"].reals[123 + 7] = -kInfinity;
  for (int at = 0; at < 123; ++at) memory["x"].reals[2 * 123 + at] = -kInfinity;
  for (int at = 0; at < 123; ++at) memory["x"].reals[3 * 123 + at] = 2.5;
  for (const char* body : {kSoftmax, kPlaces}) expect_same(body, memory);
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

constexpr const char* kRow = R"(kernel row {
  axis row = 5, column = 100
  in x: f32[5, 100]
  out y: f32[5, 100]
  mean = moments(x[row, column]; column).0
  squares = moments(x[row, column]; column).1
  y[row, column] = (x[row, column] - mean) * rsqrt(squares)
})";

TEST(LoopedFolds, ASecondWalkTurnsRoundAndSaysWhatTheCacheShouldKeep) {
  const kernel::Kernel kernel = kernel::parse_kernel(kRow);
  const char* schedule = R"({"row":{"grid":1},"column":{"loop":32},"cache_hints":true,"serpentine":true,"warps":4})";
  const std::string text = tile::print_program(lowered(kernel, schedule));
  EXPECT_EQ(count(text, " step 32 reversed "), 1U) << text;
  EXPECT_LT(text.find("hint keep"), text.find("hint stream")) << text;
  const char* once = R"({"row":{"grid":1},"column":{"loop":128},"serpentine":true,"warps":4})";
  EXPECT_EQ(count(tile::print_program(lowered(kernel, once)), "reversed"), 0U);
}

// Of a row of which only the data tell where it ends: both walks end there, and the second goes forwards, too.
TEST(LoopedFolds, StopWhereTheDataSay) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel weights {
  axis row = 5, column = 100
  in x: f32[5, 100]
  in length: i32[5]
  out y: f32[5]
  out last: f32[5]
  inside = column < length[row]
  largest = max(select(inside, x[row, column], -inf); column)
  total = sum(select(inside, exp(x[row, column] - largest), 0.0); column)
  y[row] = total
  last[row] = max(x[row, column] * total; column)
})");
  const char* schedule = R"({"row":{"grid":1},"column":{"loop":16,"stops":true},"serpentine":true,"warps":4})";
  const tile::Program program = lowered(kernel, schedule);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(count(text, " until %length_tile step 16"), 2U) << text;  // the third walk folds whole rows
  EXPECT_EQ(count(text, "for column_start"), 3U) << text;
  kernel::Memory memory;
  for (int at = 0; at < 500; ++at) memory["x"].reals.push_back(at * at % 37 / 8.0);
  memory["length"].wholes = {100, 1, 16, 33, 99};
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
  for (const char* name : {"y", "last"})
    for (size_t row = 0; row < 5; ++row)
      EXPECT_NEAR(found.at(name).reals[row], expected.at(name).reals[row], 1e-9) << name << row;
}

// What scales with an exponential takes nothing in where its exponent is -inf.
TEST(LoopedFolds, StopWhereExponentsEnd) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel attention {
  axis row = 5, column = 100
  in x: f32[5, 100]
  in v: f32[100]
  in length: i32[5]
  out y: f32[5]
  score = select(column < length[row], x[row, column], -inf)
  largest = max(score; column)
  weight = exp(score - largest)
  total = sum(weight; column)
  y[row] = sum(weight * v[column]; column) / total
})");
  const char* schedule = R"({"row":{"grid":1},"column":{"loop":16,"stops":true,"online":true},"warps":4})";
  const tile::Program program = lowered(kernel, schedule);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(count(text, " until %length_tile step 16"), 1U) << text;
  EXPECT_EQ(count(text, "for column_start"), 1U) << text;
  kernel::Memory memory;
  for (int at = 0; at < 500; ++at) memory["x"].reals.push_back(at * at % 37 / 8.0);
  for (int at = 0; at < 100; ++at) memory["v"].reals.push_back(at % 7);
  memory["length"].wholes = {100, 1, 16, 33, 99};
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
  for (size_t row = 0; row < 5; ++row) EXPECT_NEAR(found.at("y").reals[row], expected.at("y").reals[row], 1e-9) << row;
}

// Lanes meet as many points but for the last block's: one number counts for all.
TEST(LoopedFolds, CountOncePerBlockNotPerLane) {
  const kernel::Kernel kernel = kernel::parse_kernel(kRow);
  const char* schedule = R"({"row":{"grid":1},"column":{"loop":32},"warps":4})";
  const std::string text = tile::print_program(lowered(kernel, schedule));
  EXPECT_EQ(count(text, "reciprocal"), 1U) << text;
  EXPECT_NE(text.find("%mean_count_lanes_so_far: f32 ="), std::string::npos) << text;
}

TEST(LoopedFolds, CarryNothingThatNobodyReads) {
  const kernel::Kernel kernel = rows(kMeans);
  const std::string text = tile::print_program(lowered(kernel, schedule_text(1, "{\"tile\":4}", "{\"loop\":16}")));
  EXPECT_EQ(count(text, "squared_deviations"), 0U) << text;
}

}  // namespace
}  // namespace kw::lower
