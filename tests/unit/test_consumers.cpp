// Blocks that run as one, by consumers and a producer: what a schedule and a target decide of them, and what is
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernel/text.hpp"
#include "lower/consumers.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "tile/consumers.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

using kernel::Kernel;

// Three blocks of 64 rows: a fourth makes up the second pair, and stores nothing.
TEST(Consumers, AreWholePairsOfBlocks) {
  const Kernel kernel = kernel::parse_kernel(R"(
kernel product {
  axis m = 150, n = 16, k = 40
  in a: f16[150, 40]
  in w: f16[16, 40]
  out y: f32[150, 16]
  y[m, n] = dot(a[m, k], w[n, k]; k)
})");
  const std::string text = R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16,"stages":2},"bulk":true,)"
                           R"("consumers":{"along":"m","count":2,"programs":3}})";
  const KernelSchedule schedule = parse_schedule(std::string_view(text), kernel);
  EXPECT_EQ(parse_schedule(to_json(schedule, kernel), kernel), schedule);
  const tile::Program program = to_tiles(kernel, schedule);
  EXPECT_EQ(kernel::as_constant(program.symbols[program.consumers.along].count), 4) << tile::print_program(program);
  const tile::Program again = tile::parse_program(tile::print_program(program));
  EXPECT_EQ(tile::print_program(again), tile::print_program(program));
  EXPECT_EQ(again.consumers.programs, 3);
  tile::Memory memory;
  for (int place = 0; place < 150 * 40; ++place) memory["a"].reals.push_back(place % 7 - 3);
  for (int place = 0; place < 16 * 40; ++place) memory["w"].reals.push_back(place % 5 - 2);
  const std::vector<double> found = tile::interpret(program, memory).at("y").reals;
  for (int row = 0; row < 150; ++row)
    for (int column = 0; column < 16; ++column) {
      double sum = 0;
      for (int k = 0; k < 40; ++k) sum += memory["a"].reals[row * 40 + k] * memory["w"].reals[column * 40 + k];
      EXPECT_EQ(found[row * 16 + column], sum) << row << ", " << column;
    }
}

constexpr const char* kProduct = R"(
kernel product {{
  axis m = 128, n = 16, k = 48
  in a: f16[128, 48]
  in w: f16[16, 48]
  out y: f32[{0}]
  y[{1}] = dot(a[m, k], w[n, k]; k)
}})";

constexpr std::string_view kInTurn = R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16,"stages":2},"bulk":true,)"
                                     R"("consumers":{"count":2,"programs":2}})";

tile::Program with_choices(const std::string& kernel) {
  const Kernel parsed = kernel::parse_kernel(kernel);
  tile::Program program = to_tiles(parsed, parse_schedule(kInTurn, parsed));
  EXPECT_EQ(program.consumers.registers, 0);
  decide_consumers(program);
  tile::verify(program);
  return program;
}

TEST(Consumers, StoreAlongWhatLiesSideBySide) {
  const auto words = [](const std::string& shape, const std::string& place) {
    const std::string text = tile::print_program(with_choices(fmt::format(kProduct, shape, place)));
    EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
    const size_t begin = text.find("  consumers ");
    return text.substr(begin + 2, text.find('\n', begin) - begin - 2);
  };
  const std::string all = "consumers 2 in turn programs 2 registers 232 and 40 run_on store ";
  EXPECT_EQ(words("128, 16", "m, n"), all + "4 along n");
  EXPECT_EQ(words("16, 128", "n, m"), all + "4 along m");
  // No two rows begin at the same part of sixteen bytes.
  EXPECT_EQ(words("16, 129", "n, m"), all + "1 along m");
  EXPECT_EQ(words("16, 130", "n, m"), all + "2 along m");
  EXPECT_EQ(words("128, 64", "m, n * 4"), all + "1 along n");
}

TEST(Consumers, HaveChoicesThatFit) {
  const tile::Program good = with_choices(fmt::format(kProduct, "128, 16", "m, n"));
  const auto fault = [&](void (*change)(tile::Program&)) {
    tile::Program program = good;
    change(program);
    try {
      tile::verify(program);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(fault([](tile::Program&) {}), "");
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(fault([](tile::Program& one) { one.consumers.registers = 100; }), "multiples of 8 registers"));
  EXPECT_TRUE(has(fault([](tile::Program& one) { one.consumers.registers = 248; }), "24 to 240"));
  EXPECT_TRUE(has(fault([](tile::Program& one) { one.consumers.producer_registers = 56; }), "512 registers together"));
  EXPECT_TRUE(has(fault([](tile::Program& one) { one.consumers.stored_together = 32; }), "divides"));
  EXPECT_TRUE(has(fault([](tile::Program& one) { one.consumers.stored_along = tile::consuming_loop(one).symbol; }),
                  "a lane of their sums"));
  // One place alone: the next iteration's products wait for this one's.
  EXPECT_TRUE(has(fault([](tile::Program& one) {
                    for (tile::Instruction& loop : one.body)
                      if (loop.kind == tile::Kind::kFor) loop.stages = 1;
                  }),
                  "run on"));
}

}  // namespace
}  // namespace kw::lower
