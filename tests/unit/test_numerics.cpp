// How exactly the operations of a tile program have to be computed.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>

#include "kernel/text.hpp"
#include "lower/numerics.hpp"
#include "lower/pipeline.hpp"
#include "lower/precision_needs.hpp"
#include "lower/schedule.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

tile::Program after_product(const std::string& after) {
  const auto kernel = kernel::parse_kernel(R"(
kernel product {
  axis row = 32, column = 32, depth = 64
  in x: f16[32, 64]
  in y: f16[64, 32]
  in r: f32[32]
  out z: f32[32, 32]
  total = dot(x[row, depth], y[depth, column]; depth)
)" + after + "\n}");
  return to_tiles(kernel, parse_schedule(std::string_view(R"({"row":{"grid":32},"column":{"tile":32},
                                                             "depth":{"loop":16}})"),
                                         kernel));
}

PrecisionNeeds needs_after_product(const std::string& after) { return precision_needs(after_product(after)); }

TEST(PrecisionNeeds, ProductsBehindAProductMayBeRoundedWithTheirSums) {
  EXPECT_TRUE(needs_after_product("  z[row, column] = total * 0.5 + r[row]").contracts);
  EXPECT_TRUE(needs_after_product("  z[row, column] = total").contracts);
}

TEST(PrecisionNeeds, OthersAreRoundedAsPyTorchs) {
  EXPECT_FALSE(needs_after_product("  z[row, column] = total + (r[row] * 0.3 + r[row])").contracts);
}

TEST(PrecisionNeeds, NothingIsContractedWhereALastPlaceDecides) {
  const PrecisionNeeds needs = needs_after_product("  z[row, column] = floor(total * 0.5 + r[row])");
  EXPECT_TRUE(needs.has_steps);
  EXPECT_FALSE(needs.contracts);
  EXPECT_TRUE(needs.asks_exact_quotient(0, 0, 0));
}

TEST(PrecisionNeeds, SignsAndSharesOfLanesHideNoProduct) {
  EXPECT_FALSE(needs_after_product("  z[row, column] = total + (r[row] - -(r[row] * 0.3))").contracts);
}

// The text of a program that reads `x`, `y` and `k`, and stores the last value of `body`, %z.
std::string decided(const std::string& body, const std::string& launch = "") {
  tile::Program program = tile::parse_program(fmt::format(R"(program p {{
  lane column = 16
  launch warps 4{}
  buffer x: f32[16] input
  buffer y: f32[16] input
  buffer k: i32[16] input
  buffer out: f32[16] output
  %x_tile: f32[column] = load x[column]
  %y_tile: f32[column] = load y[column]
  %k_tile: i32[column] = load k[column]
  {}
  store out[column] <- %z
}})",
                                                          launch, body));
  decide_numerics(program);
  tile::verify(program);
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  return text;
}

void expect(const std::string& body, const std::string& line, const std::string& launch = "") {
  const std::string text = decided(body, launch);
  EXPECT_NE(text.find(" = " + line + "\n"), std::string::npos) << "expected: " << line << "\n" << text;
}

TEST(Numerics, FastFunctionsWhereTheScheduleAllowsThemAndNoStepFollows) {
  for (const std::string function : {"exp", "tanh", "sigmoid"}) {
    const std::string made = "%z: f32[column] = " + function + " %x_tile";
    expect(made, function + " %x_tile approximate", " approximate");
    expect(made, function + " %x_tile");
    expect("%e: f32[column] = " + function + " %x_tile\n  %z: f32[column] = floor %e",
           function + (function == "sigmoid" ? " %x_tile exact" : " %x_tile"), " approximate");
  }
}

TEST(Numerics, AFastErrorFunctionOnlyBesideOne) {
  const std::string made = "%one: f32 = constant 1.0\n  %e: f32[column] = erf %x_tile\n  ";
  expect(made + "%z: f32[column] = add %e, %one", "erf %x_tile approximate", " approximate");
  expect(made + "%z: f32[column] = mul %e, %one", "erf %x_tile", " approximate");
  expect(made + "%both: f32[column] = add %e, %one\n  %z: f32[column] = mul %both, %e", "erf %x_tile", " approximate");
}

TEST(Numerics, ExponentialsBelowTheLargestAreFastAnywhere) {
  const std::string below =
      "%largest: f32 = fold max {} over column\n  %d: f32[column] = sub %x_tile, %largest\n  "
      "%z: f32[column] = exp %d";
  expect(fmt::format(fmt::runtime(below), "%x_tile"), "exp %d approximate");
  expect(fmt::format(fmt::runtime(below), "%y_tile"), "exp %d");
}

TEST(Numerics, AFastRootWhereAnEpsilonRulesOutDenormals) {
  const std::string sum =
      "%small: f32 = constant {}\n  %s: f32[column] = add %x_tile, %small\n  "
      "%z: f32[column] = rsqrt %s";
  expect(fmt::format(fmt::runtime(sum), "1e-05"), "rsqrt %s approximate");
  expect(fmt::format(fmt::runtime(sum), "1e-40"), "rsqrt %s exact");
  expect("%s: f32 = fold sum %x_tile over column\n  %r: f32 = rsqrt %s\n  %z: f32[column] = mul %x_tile, %r",
         "rsqrt %s");
}

TEST(Numerics, QuotientsAreExactWhereOperatorsAloneSayEveryBitOfTheDivisor) {
  expect("%z: f32[column] = div %x_tile, %y_tile", "div %x_tile, %y_tile exact");
  expect("%s: f32 = fold sum %y_tile over column\n  %z: f32[column] = div %x_tile, %s", "div %x_tile, %s");
  expect("%s: f32 = fold sum %y_tile over column\n  %q: f32[column] = div %x_tile, %s\n  %z: f32[column] = floor %q",
         "div %x_tile, %s exact");
  expect("%z: f32[column] = reciprocal %x_tile", "reciprocal %x_tile exact");
}

TEST(Numerics, FastQuotientsByWhatIsNeitherTinyNorHuge) {
  const std::string made =
      "%two: f32 = constant 2.0\n  %t: f32[column] = {} %y_tile\n  "
      "%d: f32[column] = add %t, %two\n  %z: f32[column] = div %x_tile, %d";
  expect(fmt::format(fmt::runtime(made), "sigmoid"), "div %x_tile, %d approximate", " approximate");
  expect(fmt::format(fmt::runtime(made), "sigmoid"), "div %x_tile, %d");
  expect(fmt::format(fmt::runtime(made), "log"), "div %x_tile, %d", " approximate");
}

TEST(Numerics, AQuotientByANumberIsAProduct) {
  const std::string quotient = "%six: f32 = constant 6.0\n  %z: f32[column] = div %x_tile, %six";
  const std::string text = decided(quotient);
  EXPECT_NE(text.find("  %one_over_six: f32 = constant 0.1666666716337204\n"
                      "  %z: f32[column] = mul %x_tile, %one_over_six\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("%six"), std::string::npos) << text;
  // Something else takes the number, too.
  const std::string both =
      "%six: f32 = constant 6.0\n  %sixth: f32[column] = div %x_tile, %six\n  "
      "%z: f32[column] = mul %sixth, %six";
  EXPECT_NE(decided(both).find("constant 6.0"), std::string::npos);
  // The mean of equal powers of two is exact.
  expect(
      "%half: f32 = constant 0.5\n  %h: f32[column] = mul %x_tile, %half\n  %s: f32 = fold sum %h over column\n  "
      "%eight: f32 = constant 8.0\n  %m: f32 = div %s, %eight\n  %z: f32[column] = sub %x_tile, %m",
      "div %s, %eight");
}

TEST(Numerics, AFastPowerOfWhatIsNotNegative) {
  const std::string made = "%b: f32[column] = {} %y_tile\n  %z{}: f32[column] = pow %b, %x_tile";
  expect(fmt::format(fmt::runtime(made), "exp", ""), "pow %b, %x_tile approximate nonnegative");
  expect(fmt::format(fmt::runtime(made), "neg", ""), "pow %b, %x_tile");
  expect(fmt::format(fmt::runtime(made), "exp", "_is") + "\n  %z: f32[column] = round %z_is", "pow %b, %x_tile");
  expect("%two: f32 = constant 2.0\n  %z: f32[column] = pow %two, %x_tile", "pow %two, %x_tile");
}

TEST(Numerics, WholeNumbersThatAreNotNegative) {
  const std::string made =
      "%five: i32 = constant 5\n  %i: i32[column] = index column{}\n  "
      "%q: i32[column] = {} %i, %five\n  %z: f32[column] = cast %q";
  expect(fmt::format(fmt::runtime(made), "", "floor_div"), "floor_div %i, %five nonnegative");
  expect(fmt::format(fmt::runtime(made), "", "remainder"), "remainder %i, %five nonnegative");
  expect(fmt::format(fmt::runtime(made), "", "trunc_div"), "trunc_div %i, %five");
  expect(fmt::format(fmt::runtime(made), " - 3", "floor_div"), "floor_div %i, %five");
  expect("%q: i32[column] = floor_div %k_tile, %k_tile\n  %z: f32[column] = cast %q", "floor_div %k_tile, %k_tile");
}

TEST(Numerics, BehindAProductSumsMayContractAndQuotientsByNumbersStay) {
  const auto text = [](const std::string& after) {
    tile::Program program = after_product(after);
    decide_numerics(program);
    return tile::print_program(program);
  };
  const std::string mean = text("  z[row, column] = total / 6.0 + r[row]");
  EXPECT_NE(mean.find("launch warps 4 contracts\n"), std::string::npos) << mean;
  EXPECT_NE(mean.find(" = div "), std::string::npos) << mean;
  EXPECT_EQ(mean.find(" exact"), std::string::npos) << mean;
  EXPECT_EQ(text("  z[row, column] = floor(total + r[row])").find("contracts"), std::string::npos);
  const auto quotient = [&](const std::string& made) {
    return text("  z[row, column] = total * 0.0 + " + made).find(" exact\n") != std::string::npos;
  };
  EXPECT_TRUE(quotient("r[row] / r[row]"));
  EXPECT_FALSE(quotient("r[row] / (total + 2.0)"));
  EXPECT_FALSE(quotient("r[row] / (exp(r[row]) + 2.0)"));
}

}  // namespace
}  // namespace kw::lower
