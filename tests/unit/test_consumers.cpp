// Blocks that run as one, by consumers and a producer: what a schedule and a target decide of them, and what is
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

constexpr const char* kTriangle = R"(
kernel triangle {
  axis m = 512, n = 256, k = 48
  in a: f16[512, 48]
  in w: f16[256, 48]
  out y: f32[512, 256]
  y[m, n] = select(n >= m, dot(a[m, k], w[n, k]; k), 0.0)
})";

// Of 4 by 4 pairs, 128 rows and 64 columns each, six have all three iterations and the others one.
TEST(Consumers, OfWhichNothingIsKeptTakeOneStep) {
  const Kernel kernel = kernel::parse_kernel(kTriangle);
  const auto shares = [&](int count, int programs) {
    const std::string text = fmt::format(
        R"({{"m":{{"grid":64}},"n":{{"grid":64}},"k":{{"loop":16,"stages":2,"bounded":true}},"bulk":true,)"
        R"("order":{{"grouped":"m","along":"n","count":{}}},"consumers":{{"along":"m","count":2,"programs":{}}}}})",
        count, programs);
    return tile::loop_shares(to_tiles(kernel, parse_schedule(std::string_view(text), kernel)));
  };
  EXPECT_EQ(shares(1, 16).all, 6 * 3 + 10);
  EXPECT_EQ(shares(1, 16).most, 3);
  EXPECT_EQ(shares(1, 16).programs, 16);
  EXPECT_EQ(shares(1, 100).programs, 16);
  EXPECT_EQ(shares(1, 1).most, 28);
  // Program 0 has the first column of all rows, program 3 the last one.
  EXPECT_EQ(shares(1, 4).most, 3 * 2 + 2);
  EXPECT_EQ(shares(4, 4).most, 3 * 4);
}

TEST(Consumers, ThatRunAsOneGoThroughTheirLoopAlike) {
  const Kernel kernel = kernel::parse_kernel(kTriangle);
  const std::string text = R"({"m":{"grid":64},"n":{"grid":64},"k":{"loop":16,"stages":2,"bounded":true},"bulk":true,)"
                           R"("consumers":{"along":"m","count":2}})";
  std::string program = tile::print_program(to_tiles(kernel, parse_schedule(std::string_view(text), kernel)));
  const size_t place = program.find("m_block / 2");
  ASSERT_NE(place, std::string::npos) << program;
  EXPECT_NO_THROW(tile::verify(tile::parse_program(program)));
  program.replace(place, 11, "m_block");
  try {
    tile::verify(tile::parse_program(program));
    FAIL() << program;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("go through their loop alike"), std::string::npos) << error.what();
  }
}

constexpr std::string_view kInTurn = R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16,"stages":2},"bulk":true,)"
                                     R"("consumers":{"count":2,"programs":2}})";

tile::Program with_choices(const std::string& kernel, std::string_view schedule = kInTurn) {
  const Kernel parsed = kernel::parse_kernel(kernel);
  tile::Program program = to_tiles(parsed, parse_schedule(schedule, parsed));
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
  const std::string all = "consumers 2 in turn programs 2 registers 232 and 40 store ";
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
  // One place alone: what the iteration before read has been copied over.
  EXPECT_TRUE(has(fault([](tile::Program& one) {
                    for (tile::Instruction& loop : one.body)
                      if (loop.kind == tile::Kind::kFor) loop.stages = 1;
                  }),
                  "release boxes that are there"));
}

// The lines that say what consumers wait for, and where what lies.
std::string choices_of(const tile::Program& program) {
  std::string found;
  const std::string text = tile::print_program(program);
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    const bool is_meant = line.find(" dot ") != std::string::npos || line.find(" in sums") != std::string::npos ||
                          line.find(" in left") != std::string::npos || line.find(" in stores") != std::string::npos ||
                          line.find(" move ") != std::string::npos || line.find("boxes") != std::string::npos ||
                          line.substr(first).starts_with("wait ") || line.substr(first).starts_with("for ");
    if (is_meant) found += line.substr(first, line.find(" carry ") - first) + "\n";
  }
  return found;
}

TEST(Consumers, InTurnWaitForTheProductsOfTheIterationBefore) {
  EXPECT_EQ(choices_of(with_choices(fmt::format(kProduct, "128, 16", "m, n"))),
            R"(%neutral: f32[m, n] = constant 0.0 in sums
for k_start = 0 to 48 step 16 stages 2
wait boxes
%product: f32[m, n] = dot %product_so_far, %a_tile, %w_tile
wait %product left 1
release boxes back 1
wait %product_2
release boxes back 1
skip boxes
%product_2_moved: f32[m, n] = move %product_2 to stores
)");
}

TEST(Consumers, WaitInTheSameIterationWhereAnythingElseReadsTheSum) {
  constexpr std::string_view kPairs = R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16,"stages":2},)"
                                      R"("scheme":"fp16x3","bulk":true,"consumers":{"along":"m","count":2}})";
  EXPECT_EQ(choices_of(with_choices(R"(
kernel halves {
  axis m = 128, n = 16, k = 48
  in a_high: f16[128, 48]
  in a_low: f16[128, 48]
  in w_high: f16[16, 48]
  in w_low: f16[16, 48]
  out y: f32[128, 16]
  a = f32(a_high[m, k]) + f32(a_low[m, k])
  w = f32(w_high[n, k]) + f32(w_low[n, k])
  y[m, n] = dot(a, w; k)
})",
                                    kPairs)),
            R"(%neutral: f32[m, n] = constant 0.0 in sums
for k_start = 0 to 48 step 16 stages 2
wait boxes
%product_small: f32[m, n] = dot %neutral, %a_high_tile, %w_low_tile from_zero
%product_small_2: f32[m, n] = dot %product_small, %a_low_tile, %w_high_tile
%product_part: f32[m, n] = dot %product_small_2, %a_high_tile, %w_high_tile
wait %product_part
release boxes
)");
}

constexpr const char* kStreamed = R"(
kernel streamed {
  axis m = 128, n = 16, chunk = 3, k = 16
  in a: f32[128, 48]
  in w: f16[16, 48]
  out y: f32[128, 16]
  out small: f32[128]
  largest = max(abs(a[m, chunk * 16 + k]); k)
  scaled = f16(a[m, chunk * 16 + k] / largest)
  product = dot(scaled, w[n, chunk * 16 + k]; k) * largest
  y[m, n] = sum(product; chunk)
  small[m] = max(largest; chunk)
})";
constexpr std::string_view kStreamedPairs = R"({"m":{"grid":64},"n":{"grid":16},"chunk":{"loop":1,"stages":2},)"
                                            R"("k":{"tile":16},"bulk":true,"consumers":{"along":"m","count":2}})";

TEST(Consumers, MoveWhatMeetsSumsToTheirRows) {
  const tile::Program program = with_choices(kStreamed, kStreamedPairs);
  EXPECT_EQ(choices_of(program), R"(%neutral: f32[m, n] = constant 0.0 in sums
%neutral_2: f32[m] = constant -inf in left
for chunk = 0 to 3 stages 2
wait boxes
%a_tile: f32[m, k] = load a[m_block * 64 + m, chunk * 16 + k] bulk in left
%product: f32[m, n] = dot %neutral, %scaled, %w_tile from_zero
wait %product
release boxes
%largest_moved: f32[m] = move %largest to sums
%max_lanes_moved: f32[m] = move %max_lanes to sums
)");
  tile::Memory memory;
  for (int place = 0; place < 128 * 48; ++place) memory["a"].reals.push_back(place % 7 + 1);
  for (int place = 0; place < 16 * 48; ++place) memory["w"].reals.push_back(place % 5 - 2);
  const Kernel kernel = kernel::parse_kernel(kStreamed);
  const tile::Program before = to_tiles(kernel, parse_schedule(kStreamedPairs, kernel));
  for (const char* result : {"y", "small"})
    EXPECT_EQ(tile::interpret(program, memory).at(result).reals, tile::interpret(before, memory).at(result).reals);
}

// The text with a part replaced, as the verifier sees it.
std::string fault_with(const tile::Program& program, const std::string& part, const std::string& other) {
  std::string text = tile::print_program(program);
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part << " in " << text;
  if (at == std::string::npos) return "";
  text.replace(at, part.size(), other);
  try {
    tile::parse_program(text);
  } catch (const Error& error) { return error.what(); }
  return "";
}

void expect_faults(const tile::Program& program, const std::vector<std::array<std::string, 3>>& changes) {
  for (const auto& [part, other, fault] : changes)
    EXPECT_NE(fault_with(program, part, other).find(fault), std::string::npos)
        << part << " → " << other << ": " << fault_with(program, part, other);
}

TEST(Consumers, ReadNoSumBeforeItsProductIsDone) {
  expect_faults(with_choices(fmt::format(kProduct, "128, 16", "m, n")),
                {{"  wait %product_2\n", "", "boxes are released that products under way read"},
                 {"  wait %product_2\n", "  wait %product_2 left 1\n", "products under way read"},
                 {"wait %product left 1", "wait %product left 2", "products under way read"},
                 {"  wait %product left 1\n", "", "products under way read"},
                 {"wait %product left 1", "wait %product_so_far left 1", "waited for, and no product under way"},
                 {"  wait %product_2\n  release boxes back 1\n  skip boxes\n",
                  "  release boxes back 1\n  skip boxes\n  wait %product_2\n", "products under way read"},
                 {"wait %product_2\n", "wait 0\n", "not for copies of their own"}});
  expect_faults(
      with_choices(kStreamed, kStreamedPairs),
      {{"wait %product\n", "wait %sum_lanes_so_far\n", "waited for, and no product under way"},
       {"    wait %product\n    release boxes\n", "    release boxes\n    wait %product\n", "products under way read"},
       {"    wait %product\n", "", "products under way read"},
       {"    wait %product\n    release boxes\n", "    wait %product left 1\n",
        "'%product' is read before consumers wait for it"}});
}

TEST(Consumers, StartFromZeroWhereTheirSumIsAddedToNothing) {
  const char* rule = "a product starts from zero, but is added to something else";
  expect_faults(with_choices(fmt::format(kProduct, "128, 16", "m, n")),
                {{"dot %product_so_far, %a_tile, %w_tile", "dot %product_so_far, %a_tile, %w_tile from_zero", rule}});
  expect_faults(with_choices(kStreamed, kStreamedPairs),
                {{"constant 0.0 in sums", "constant 1.0 in sums", rule},
                 {"%neutral, %scaled, %w_tile from_zero", "%neutral, %scaled, %w_tile", ""}});
}

TEST(Consumers, WaitForBoxesAndReleaseThemOnce) {
  expect_faults(
      with_choices(fmt::format(kProduct, "128, 16", "m, n")),
      {{"    wait boxes\n", "", "a box is read before consumers wait for it"},
       {"    wait boxes\n", "    wait boxes\n    wait boxes\n", "wait once for the boxes"},
       {"    release boxes back 1\n", "", "release the boxes of each iteration"},
       {"    release boxes back 1\n", "    release boxes back 1\n    release boxes back 1\n", "released twice"},
       {"    release boxes back 1\n", "    release boxes back 2\n", "release boxes that are there"},
       {"    release boxes back 1\n", "    release boxes\n", "products under way read"},
       {"  skip boxes\n", "", "skip the boxes of the other's once"},
       {"  skip boxes\n", "  skip boxes\n  skip boxes\n", "skip boxes once"}});
  expect_faults(with_choices(kStreamed, kStreamedPairs),
                {{"    wait boxes\n", "    wait boxes\n    release boxes\n", "something else there"},
                 {"    release boxes\n", "    release boxes\n    release boxes\n", "released twice"}});
}

TEST(Consumers, HaveOperandsThatMeetInTheSameRegisters) {
  expect_faults(with_choices(fmt::format(kProduct, "128, 16", "m, n")),
                {{"constant 0.0 in sums", "constant 0.0", "does not lie where products add to it"},
                 {"constant 0.0 in sums", "constant 0.0 in nowhere", "there is no layout called 'nowhere'"},
                 {"move %product_2 to stores", "move %product_2", "does not say where to"}});
  expect_faults(
      with_choices(kStreamed, kStreamedPairs),
      {{"bulk in left", "bulk", "is computed with, and lies in shared memory"},
       {"mul %product, %largest_moved", "mul %product, %largest", "lies in other registers than what it meets"},
       {"constant -inf in left", "constant -inf in sums", "lies in other registers"}});
}

}  // namespace
}  // namespace kw::lower
