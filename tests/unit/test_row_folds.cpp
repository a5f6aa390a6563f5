// Rows that a block has whole: folds of several results, what loads yield beyond a row's end, what the cache should
// keep.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

constexpr const char* kSchedule = R"({"row":{"grid":4},"column":{"tile":64},"cache_hints":true,"warps":4})";

// Rows of 41 elements.
kernel::Kernel rows(const std::string& body) {
  return kernel::parse_kernel("kernel rows {\n  axis row = 6, column = 41\n  in x: f32[6, 41]\n  in w: f32[41]\n" +
                              body + "}\n");
}

std::string text_of(const kernel::Kernel& kernel) {
  const KernelSchedule schedule = parse_schedule(std::string_view(kSchedule), kernel);
  EXPECT_EQ(to_json(schedule, kernel).dump(), kSchedule);
  return tile::print_program(to_tiles(kernel, schedule));
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

constexpr const char* kSoftmax = R"(  out y: f32[6, 41]
  largest = max_sum_exp(x[row, column]; column).0
  total = max_sum_exp(x[row, column]; column).1
  y[row, column] = exp(x[row, column] - largest) / total
)";
constexpr const char* kNorm = R"(  out y: f32[6, 41]
  mean = moments(x[row, column]; column).0
  squares = moments(x[row, column]; column).1
  y[row, column] = (x[row, column] - mean) * rsqrt(squares / 41.0 + 0.001) * w[column]
)";
constexpr const char* kPlaces = R"(  out y: f32[6]
  y[row] = f32(arg_max(x[row, column]; column)) + min(x[row, column] * w[column]; column)
)";

TEST(RowFolds, ComputeWhatTheyMean) {
  kernel::Memory memory;
  for (int at = 0; at < 6 * 41; ++at) memory["x"].reals.push_back((at * 7 % 89 - 44) * 0.125);
  for (int at = 0; at < 41; ++at) memory["w"].reals.push_back(at * 5 % 17 * 0.25);
  for (const char* body : {kSoftmax, kNorm, kPlaces}) {
    const kernel::Kernel kernel = rows(body);
    const tile::Program program = tile::parse_program(text_of(kernel));
    const auto expected = kernel::evaluate(kernel, memory, {}).at("y").reals;
    const auto found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble).at("y").reals;
    ASSERT_EQ(found.size(), expected.size());
    for (size_t at = 0; at < found.size(); ++at) ASSERT_NEAR(found[at], expected[at], 1e-9) << body;
  }
}

// Of parts with counts of their own, of equal parts, and with maxima.
TEST(RowFolds, CombineParts) {
  kernel::Memory memory;
  for (int at = 0; at < 6 * 41; ++at) memory["x"].reals.push_back((at * 7 % 89 - 44) * 0.125);
  for (int at = 0; at < 41; ++at) memory["w"].reals.push_back(at * 5 % 17);
  for (const char* fold : {"combine_moments(x[row, column], w[column], w[column]; column)",
                           "combine_moments(x[row, column], w[column], 8.0; column)",
                           "combine_max_sum_exp(x[row, column], w[column]; column)"}) {
    const kernel::Kernel kernel = rows(std::string("  out y: f32[6]\n  first = ") + fold + ".0\n  second = " + fold +
                                       ".1\n  y[row] = first + 0.5 * second\n");
    const std::string text = text_of(kernel);
    const auto expected = kernel::evaluate(kernel, memory, {}).at("y").reals;
    const auto found = tile::interpret(tile::parse_program(text), memory, {}, tile::Arithmetic::kDouble).at("y").reals;
    ASSERT_EQ(found.size(), expected.size());
    for (size_t at = 0; at < found.size(); ++at) ASSERT_NEAR(found[at], expected[at], 1e-9) << fold << "\n" << text;
    EXPECT_LE(count(text, " select "), 1U) << text;
  }
}

TEST(RowFolds, MaskOnlyWhatLoadsCannotYield) {
  const std::string softmax = text_of(rows(kSoftmax)), norm = text_of(rows(kNorm)), places = text_of(rows(kPlaces));
  EXPECT_EQ(count(softmax, "otherwise -inf"), 1U) << softmax;
  EXPECT_EQ(count(softmax, " select "), 0U) << softmax;
  EXPECT_EQ(count(norm, " select "), 1U) << norm;      // the distances from the mean
  EXPECT_EQ(count(places, " select "), 0U) << places;  // -inf times -inf is what a minimum starts from
}

TEST(RowFolds, KeepWhatAllBlocksReadInTheCache) {
  const std::string norm = text_of(rows(kNorm)), softmax = text_of(rows(kSoftmax));
  EXPECT_EQ(count(norm, " hint keep"), 1U) << norm;
  EXPECT_EQ(count(softmax, " hint "), 0U) << softmax;
}

TEST(RowFolds, MeansAreSumsOfShares) {
  const std::string text = text_of(rows(kNorm));
  EXPECT_NE(text.find("constant 0.015625"), std::string::npos) << text;  // 1 / 64
  EXPECT_NE(text.find("constant 0.640625"), std::string::npos) << text;  // 41 / 64
}

}  // namespace
}  // namespace kw::lower
