// Launches that become steps of one.
#include <gtest/gtest.h>

#include "lower/chained_products.hpp"
#include "lower/steps_inside.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw {
namespace {

constexpr std::string_view kStep = R"(program sums {
  size step = 0..3
  grid block = 2
  lane i = 4
  launch warps 4
  buffer x: f32[4, 8] input
  buffer scale: f32[8] input
  buffer total: f32[2, 8] input
  buffer new_total: f32[2, 8] output

  %scale_tile: f32[i] = load scale[block * 4 + i]
  %two: f32 = constant 2.0
  %twice: f32[i] = mul %scale_tile, %two
  %x_tile: f32[i] = load x[step, block * 4 + i]
  %other: f32[i] = load total[(step + 1) % 2, (1 - block) * 4 + i]
  %scaled: f32[i] = mul %x_tile, %twice
  %sum: f32[i] = add %other, %scaled
  store new_total[step % 2, block * 4 + i] <- %sum
}
)";

tile::Program steps_inside() {
  tile::Program program = tile::parse_program(kStep);
  const lower::SameMemory same[] = {{2, 3}};
  return lower::with_steps_inside(std::move(program), 0, 4, same);
}

TEST(StepsInside, WhatNoStepChangesIsBeforeTheLoopAndWhatHangsOnItAloneOneAhead) {
  const std::string text = tile::print_program(steps_inside());
  const size_t loop = text.find("for step = 0 to 4 stages 1"), barrier = text.find("barrier grid counted arrived");
  ASSERT_NE(loop, std::string::npos) << text;
  ASSERT_NE(barrier, std::string::npos) << text;
  EXPECT_LT(text.find("%twice: f32[i] = mul"), loop) << text;
  EXPECT_LT(text.find("load x[0, block * 4 + i]"), loop) << text;
  const size_t next = text.find("load x[(step + 1) % 4, block * 4 + i]");
  EXPECT_TRUE(loop < next && next < barrier) << text;
  EXPECT_LT(loop, text.find("load total[")) << text;
  EXPECT_NE(text.find("store total[step % 2"), std::string::npos) << text;
  EXPECT_EQ(text.find("new_total"), std::string::npos) << text;
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
}

tile::Memory memory() {
  tile::Memory memory;
  for (int at = 0; at < 32; ++at) memory["x"].reals.push_back(at * 0.25);
  for (int at = 0; at < 8; ++at) memory["scale"].reals.push_back(1 + at);
  memory["total"].reals.assign(16, 0.0);
  return memory;
}

TEST(StepsInside, BlocksSeeWhatOthersStored) {
  const tile::Memory made = tile::interpret(steps_inside(), memory());
  const tile::Program one = tile::parse_program(kStep);
  tile::Memory expected = memory();
  for (int64_t step = 0; step < 4; ++step) {
    tile::Memory now = expected;
    now["new_total"] = expected["total"];
    expected["total"] = tile::interpret(one, now, {{"step", step}}).at("new_total");
  }
  EXPECT_EQ(made.at("total").reals, expected["total"].reals);
}

TEST(StepsInside, WithoutTheBarrierTheInterpreterFindsTheFault) {
  std::string text = tile::print_program(steps_inside());
  text.erase(text.find("    barrier grid counted arrived turn step\n"), 43);
  EXPECT_THROW(tile::interpret(tile::parse_program(text), memory()), Error);
}

TEST(StepsInside, ACounterIsOfI32) {
  std::string text = tile::print_program(steps_inside());
  text.replace(text.find("arrived: i32"), 12, "arrived: f32");
  try {
    tile::interpret(tile::parse_program(text), memory());
    FAIL() << "it was run";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'arrived' cannot count blocks"), std::string::npos) << error.what();
  }
}

TEST(ChainedProducts, SumsOfProductsAreOneSum) {
  const auto text = [](const std::string& sum) {
    return "program products {\n  lane i = 16\n  lane j = 16\n  lane k = 16\n  launch warps 4\n"
           "  buffer a: f32[16, 16] input\n  buffer b: f32[16, 16] input\n  buffer y: f32[16, 16] output\n"
           "  %a_tile: f32[i, k] = load a[i, k]\n  %b_tile: f32[k, j] = load b[k, j]\n"
           "  %zero: f32[i, j] = constant 0.0\n  %one: f32[i, j] = constant 1.0\n"
           "  %first: f32[i, j] = dot %zero, %a_tile, %b_tile\n"
           "  %second: f32[i, j] = dot " +
           sum + ", %a_tile, %b_tile\n  %sum: f32[i, j] = add %first, %second\n  store y[i, j] <- %sum\n}\n";
  };
  tile::Program program = tile::parse_program(text("%zero"));
  lower::chain_products(program);
  const std::string chained = tile::print_program(program);
  EXPECT_NE(chained.find("%second: f32[i, j] = dot %first, %a_tile, %b_tile"), std::string::npos) << chained;
  EXPECT_EQ(chained.find("add"), std::string::npos) << chained;
  // What does not start at zero is not a product alone.
  tile::Program other = tile::parse_program(text("%one"));
  lower::chain_products(other);
  EXPECT_NE(tile::print_program(other).find("add %first, %second"), std::string::npos);
}

}  // namespace
}  // namespace kw
