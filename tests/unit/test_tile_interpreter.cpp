// The interpreter of tile programs: small kernels against plain loops, and the faults that it finds.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::tile {
namespace {

using Reals = std::vector<double>;
using Wholes = std::vector<int64_t>;

kernel::Numbers reals(Reals numbers) { return {std::move(numbers), {}}; }
kernel::Numbers wholes(Wholes numbers) { return {{}, std::move(numbers)}; }

Reals random_reals(size_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Reals numbers(count);
  for (double& number : numbers) number = normal(random);
  return numbers;
}

void expect_near(const Reals& found, const Reals& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << i;
}

void expect_fault(const std::function<void()>& action, ErrorKind kind, std::string_view message) {
  try {
    action();
    FAIL() << "no fault, but expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_NE(error.text().message.find(message), std::string::npos) << error.text().message;
  }
}

void expect_fault_in(std::string_view text, const Memory& memory, std::string_view message) {
  expect_fault([&] { interpret(parse_program(text), memory); }, ErrorKind::kInternal, message);
}

std::string with(std::string text, std::string_view what, std::string_view instead) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), instead);
}

constexpr std::string_view kRmsNorm = R"(program rms_norm {
  grid row = 5
  lane column = 64
  buffer x: f32[5, 64] input
  buffer weight: f32[64] input
  buffer y: f32[5, 64] output
  %x_tile: f32[column] = load x[row, column]
  %weight_tile: f32[column] = load weight[column] hint keep
  %square: f32[column] = mul %x_tile, %x_tile
  %total: f32 = fold sum %square over column
  %part: f32 = constant 0x1p-6
  %epsilon: f32 = constant 1e-5
  %scale: f32 = rsqrt %shifted
  %half: f32[column] = mul %x_tile, %scale
  %whole: f32[column] = mul %half, %weight_tile
  store y[row, column] <- %whole
})";

TEST(Interpreter, RmsNorm) {
  const std::string text = with(std::string(kRmsNorm), "%scale: f32",
                                "%mean: f32 = mul %total, %part\n%shifted: f32 = add %mean, %epsilon\n%scale: f32");
  const Reals x = random_reals(5 * 64, 1), weight = random_reals(64, 2);
  Reals expected;
  for (size_t row = 0; row < 5; ++row) {
    double total = 0;
    for (size_t i = 0; i < 64; ++i) total += x[row * 64 + i] * x[row * 64 + i];
    for (size_t i = 0; i < 64; ++i) expected.push_back(x[row * 64 + i] / std::sqrt(total / 64 + 1e-5) * weight[i]);
  }
  const Program program = parse_program(text);
  const Memory memory = {{"x", reals(x)}, {"weight", reals(weight)}};
  const Reals typed = interpret(program, memory).at("y").reals;
  expect_near(typed, expected, 1e-6);
  for (const double number : typed) EXPECT_EQ(number, static_cast<float>(number));
  const Reals exact = interpret(program, memory, {}, Arithmetic::kDouble).at("y").reals;
  expect_near(exact, expected, 1e-14);
}

// One walk over the columns, whose number is known at run time only.
constexpr std::string_view kSoftmax = R"(program online_softmax {
  size rows = 0..100
  size columns = 0..1000
  grid row = rows
  lane column = 16
  buffer x: f32[rows, columns] input
  buffer y: f32[rows, columns] output
  %low: f32 = constant -inf
  %zero: f32 = constant 0.0
  %limit: i32 = index columns
  for start = 0 to columns step 16 carry %old: f32 = %low, %sum: f32 = %zero -> %largest, %total {
    %at: i32[column] = index start + column
    %inside: b1[column] = less %at, %limit
    %tile: f32[column] = load x[row, start + column] where %inside otherwise -inf
    %top: f32 = fold max %tile over column
    %newer: f32 = maximum %old, %top
    %distance: f32[column] = sub %tile, %newer
    %weight: f32[column] = exp %distance
    %part: f32 = fold sum %weight over column
    %back: f32 = sub %old, %newer
    %scale: f32 = exp %back
    %rescaled: f32 = mul %sum, %scale
    %next: f32 = add %rescaled, %part
    yield %newer, %next
  }
  for again = 0 to columns step 16 {
    %place: i32[column] = index again + column
    %valid: b1[column] = less %place, %limit
    %value: f32[column] = load x[row, again + column] where %valid otherwise 0.0
    %away: f32[column] = sub %value, %largest
    %power: f32[column] = exp %away
    %share: f32[column] = div %power, %total
    store y[row, again + column] <- %share where %valid
  }
})";

TEST(Interpreter, OnlineSoftmaxOfRunTimeSizes) {
  const Program program = parse_program(kSoftmax);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 37}, {1, 1}, {2, 16}, {0, 5}, {4, 0}, {1, 1000}}) {
    const Reals x = random_reals(static_cast<size_t>(rows * columns), 3);
    Reals expected;
    for (int64_t row = 0; row < rows; ++row) {
      double total = 0;
      for (int64_t i = 0; i < columns; ++i) total += std::exp(x[row * columns + i]);
      for (int64_t i = 0; i < columns; ++i) expected.push_back(std::exp(x[row * columns + i]) / total);
    }
    const Memory memory = interpret(program, {{"x", reals(x)}}, {{"rows", rows}, {"columns", columns}});
    expect_near(memory.at("y").reals, expected, 1e-6);
  }
}

TEST(Interpreter, SizesAndBuffersMustFit) {
  const Program program = parse_program(kSoftmax);
  const auto refused = [&](Memory memory, std::map<std::string, int64_t> sizes, std::string_view message) {
    expect_fault([&] { interpret(program, memory, sizes); }, ErrorKind::kUser, message);
  };
  refused({{"x", reals({1, 2})}}, {{"rows", 1}}, "size 'columns' is missing");
  refused({{"x", reals({1, 2})}}, {{"rows", 1}, {"columns", 2}, {"depth", 3}}, "no size is called 'depth'");
  refused({{"x", reals({1, 2})}}, {{"rows", 1}, {"columns", 1001}}, "size 'columns' is 1001, not a multiple of 1 in");
  refused({}, {{"rows", 1}, {"columns", 2}}, "buffer 'x' is missing");
  refused({{"x", reals({1, 2})}, {"z", {}}}, {{"rows", 1}, {"columns", 2}}, "no buffer in global memory is called 'z'");
  refused({{"x", reals({1, 2, 3})}}, {{"rows", 1}, {"columns", 2}}, "buffer 'x' has 3 reals, but 2 reals are expected");
  refused({{"x", wholes({1, 2})}}, {{"rows", 1}, {"columns", 2}}, "has 2 whole numbers, but 2 reals are expected");
}

// y = a · bᵀ with tiles of 16 × 8 and steps of 16.
std::string product_text(std::string_view dtype, std::string_view precision) {
  return "program product {\n  grid i = 2, j = 3\n  lane m = 16, n = 8, k = 16\n  buffer a: " + std::string(dtype) +
         "[32, 48] input\n  buffer b: " + std::string(dtype) +
         R"([24, 48] input
  buffer y: f32[32, 24] output
  %zero: f32[m, n] = constant 0.0
  for start = 0 to 48 step 16 stages 2 carry %sum: f32[m, n] = %zero -> %total {
    %left: )" +
         std::string(dtype) + "[m, k] = load a[i * 16 + m, start + k]\n    %right: " + std::string(dtype) +
         R"([n, k] = load b[j * 8 + n, start + k]
    %next: f32[m, n] = dot %sum, %left, %right)" +
         std::string(precision) + R"(
    yield %next
  }
  store y[i * 16 + m, j * 8 + n] <- %total
})";
}

TEST(Interpreter, ProductWithCarriedAccumulator) {
  const Reals a = random_reals(32 * 48, 4), b = random_reals(24 * 48, 5);
  const auto expected = [&](const std::function<double(double)>& round) {
    Reals y;
    for (size_t m = 0; m < 32; ++m)
      for (size_t n = 0; n < 24; ++n) {
        double sum = 0;
        for (size_t k = 0; k < 48; ++k) sum += round(a[m * 48 + k]) * round(b[n * 48 + k]);
        y.push_back(sum);
      }
    return y;
  };
  const Reals exact = expected([](double number) { return number; });
  const Memory memory = {{"a", reals(a)}, {"b", reals(b)}};
  const auto run = [&](std::string_view dtype, std::string_view precision, Arithmetic arithmetic) {
    return interpret(parse_program(product_text(dtype, precision)), memory, {}, arithmetic).at("y").reals;
  };
  expect_near(run("f32", "", Arithmetic::kDouble), exact, 1e-13);
  expect_near(run("f32", "", Arithmetic::kAsTyped), exact, 1e-5);
  expect_near(run("f32", " precision tf32", Arithmetic::kAsTyped), expected(kernel::round_to_tf32), 1e-5);
  expect_near(run("f32", " precision tf32x3", Arithmetic::kAsTyped), exact, 1e-5);
  expect_near(run("f16", "", Arithmetic::kAsTyped),
              expected([](double number) { return kernel::round_to(DType::f16, number); }), 1e-5);
  expect_near(run("f16", "", Arithmetic::kDouble), exact, 1e-13);
  double rounding = 0;
  const Reals typed = run("f32", " precision tf32", Arithmetic::kAsTyped);
  for (size_t i = 0; i < exact.size(); ++i) rounding = std::max(rounding, std::abs(typed[i] - exact[i]));
  EXPECT_GT(rounding, 1e-4);  // tf32 is not ieee
}

// Batch lanes, two contracted lanes and whole numbers in one dot.
TEST(Interpreter, DotsOverSeveralLanes) {
  const Program program = parse_program(R"(program batched {
  lane batch = 2, m = 3, k = 4, h = 2
  buffer a: i8[2, 3, 4, 2] input
  buffer b: i8[2, 4, 2] input
  buffer y: i32[2, 3] output
  %left: i8[h, batch, k, m] = load a[batch, m, k, h]
  %right: i8[batch, k, h] = load b[batch, k, h]
  %start: i32[batch, m] = constant 100
  %sum: i32[batch, m] = dot %start, %left, %right
  store y[batch, m] <- %sum
})");
  Wholes a(48), b(16), expected;
  std::iota(a.begin(), a.end(), -20);
  std::iota(b.begin(), b.end(), -5);
  for (size_t batch = 0; batch < 2; ++batch)
    for (size_t m = 0; m < 3; ++m) {
      int64_t sum = 100;
      for (size_t i = 0; i < 8; ++i) sum += a[(batch * 3 + m) * 8 + i] * b[batch * 8 + i];
      expected.push_back(sum);
    }
  EXPECT_EQ(interpret(program, {{"a", wholes(a)}, {"b", wholes(b)}}).at("y").wholes, expected);
}

TEST(Interpreter, IsFastEnoughForProductsOf256) {
  const Program program = parse_program(R"(program large {
  lane m = 256, n = 256, k = 256
  buffer a: f32[256, 256] input
  buffer y: f32[256, 256] output
  %left: f32[m, k] = load a[m, k]
  %right: f32[k, n] = load a[k, n]
  %zero: f32[m, n] = constant 0.0
  %sum: f32[m, n] = dot %zero, %left, %right
  store y[m, n] <- %sum
})");
  const Memory memory = {{"a", reals(random_reals(256 * 256, 6))}};
  const std::clock_t start = std::clock();
  EXPECT_EQ(interpret(program, memory).at("y").reals.size(), 65536u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1.0);
}

constexpr std::string_view kStaged = R"(program staged {
  lane i = 8
  buffer x: f32[4, 8] input
  buffer tile: f32[2, 8] scratch shared
  buffer y: f32[4, 8] output
  copy async tile[0, i] <- x[0, i] over i
  for step = 0 to 4 {
    %next: i32 = index step + 1
    %four: i32 = constant 4
    %more: b1 = less %next, %four
    copy async tile[(step + 1) % 2, i] <- x[step + 1, i] over i where %more
    wait 1
    %now: f32[i] = load tile[step % 2, i]
    barrier block
    %twice: f32[i] = add %now, %now
    store y[step, i] <- %twice
  }
})";

TEST(Interpreter, AsynchronousCopiesArriveAtTheirWait) {
  Reals x(32), expected(32);
  std::iota(x.begin(), x.end(), 0);
  for (size_t i = 0; i < x.size(); ++i) expected[i] = 2 * x[i];
  const Memory memory = {{"x", reals(x)}};
  EXPECT_EQ(interpret(parse_program(kStaged), memory).at("y").reals, expected);
  const std::string text(kStaged);
  expect_fault_in(with(text, "    wait 1\n", ""), memory, "is read before a wait for the copy that writes it");
  expect_fault_in(with(text, "wait 1", "wait 2"), memory, "is read before a wait");
  expect_fault_in(with(text, "    barrier block\n", ""), memory,
                  "'copy async tile[(step + 1) % 2, i] <- x[step + 1, i] over i where %more': an element of 'tile' is "
                  "written before a barrier, after it was read (step = 1, i = 0)");
}

TEST(Interpreter, SharedMemoryNeedsBarriers) {
  const std::string text = R"(program reversed {
  lane i = 4
  buffer x: f32[4] input
  buffer tile: f32[4] scratch shared
  buffer y: f32[4] output
  copy plain tile[3 - i] <- x[i] over i
  barrier block
  %back: f32[i] = load tile[i]
  barrier block
  store tile[i] <- %back
  barrier block
  %again: f32[i] = load tile[3 - i]
  %sum: f32[i] = sub %back, %again
  store y[i] <- %sum
})";
  const Memory memory = {{"x", reals({1, 2, 3, 5})}};
  EXPECT_EQ(interpret(parse_program(text), memory).at("y").reals, (Reals{4, 1, -1, -4}));
  expect_fault_in(with(text, "  barrier block\n  %back", "  %back"), memory,
                  "'%back: f32[i] = load tile[i]': an element of 'tile' is read before a barrier");
  expect_fault_in(with(text, "  barrier block\n  store", "  store"), memory, "is written before a barrier");
  expect_fault_in(with(text, "  barrier block\n  %again", "  %again"), memory, "is read before a barrier");
  // What was never written is NaN.
  const std::string empty = with(text, "  copy plain tile[3 - i] <- x[i] over i\n", "");
  EXPECT_TRUE(std::isnan(interpret(parse_program(empty), memory).at("y").reals[0]));
}

TEST(Interpreter, ScansAndFolds) {
  const Program program = parse_program(R"(program walks {
  lane row = 2, column = 5
  buffer x: f32[2, 5] input
  buffer sums: f32[2, 5] output
  buffer tops: f32[2, 5] output
  buffer logs: f32[2, 5] output
  buffer sorted: f32[2, 5] output
  buffer fallen: f32[2, 5] output
  buffer best: i64[2] output
  buffer first: i32[1] output
  buffer powers: f32[2] output
  buffer all_large: b1[2] output
  %tile: f32[row, column] = load x[row, column]
  %sum: f32[row, column] = scan sum %tile along column reversed
  %top: f32[row, column] = scan max %tile along column
  %log: f32[row, column] = scan log_sum_exp %tile along column
  %up: f32[row, column] = scan sort_up %tile along column
  %down: f32[row, column] = scan sort_down %tile along row
  %at: i64[row] = fold arg_max %tile over column
  %at_all: i32 = fold arg_min %tile over row, column
  %log_all: f32[row] = fold log_sum_exp %tile over column
  %limit: f32 = constant -1.5
  %large: b1[row, column] = greater %tile, %limit
  %every: b1[row] = fold all %large over column
  store sums[row, column] <- %sum
  store tops[row, column] <- %top
  store logs[row, column] <- %log
  store sorted[row, column] <- %up
  store fallen[row, column] <- %down
  store best[row] <- %at
  store first[0] <- %at_all
  store powers[row] <- %log_all
  store all_large[row] <- %every
})");
  const double nan = std::nan("");
  const Memory memory = interpret(program, {{"x", reals({1, 3, -1, 3, 2, 0, -2, 5, 4, -2})}});
  EXPECT_EQ(memory.at("sums").reals, (Reals{8, 7, 4, 5, 2, 5, 5, 7, 2, -2}));
  EXPECT_EQ(memory.at("tops").reals, (Reals{1, 3, 3, 3, 3, 0, 0, 5, 5, 5}));
  EXPECT_EQ(memory.at("sorted").reals, (Reals{-1, 1, 2, 3, 3, -2, -2, 0, 4, 5}));
  EXPECT_EQ(memory.at("fallen").reals, (Reals{1, 3, 5, 4, 2, 0, -2, -1, 3, -2}));
  EXPECT_EQ(memory.at("best").wholes, (Wholes{1, 2}));
  EXPECT_EQ(memory.at("first").wholes, (Wholes{6}));
  EXPECT_EQ(memory.at("all_large").wholes, (Wholes{1, 0}));
  EXPECT_NEAR(memory.at("logs").reals[1], std::log(std::exp(1) + std::exp(3)), 1e-6);
  EXPECT_NEAR(memory.at("logs").reals[9], memory.at("powers").reals[1], 1e-6);
  const Memory odd = interpret(program, {{"x", reals({1, nan, 7, nan, 2, -INFINITY, -INFINITY, 5, 4, -2})}});
  EXPECT_EQ(odd.at("best").wholes[0], 1);
  EXPECT_TRUE(std::isnan(odd.at("sorted").reals[4]));
  EXPECT_EQ(odd.at("sorted").reals[2], 7);
  EXPECT_TRUE(std::isnan(odd.at("tops").reals[4]));
  EXPECT_EQ(odd.at("logs").reals[6], -INFINITY);
}

TEST(Interpreter, ExtendedSumsKeepWhatDoublesLose) {
  const Program program = parse_program(R"(program sums {
  lane row = 2, column = 4
  buffer x: f64[2, 4] input
  buffer y: f64[2] output
  %tile: f64[row, column] = load x[row, column]
  %total: f64[row] = fold extended_sum %tile over column
  store y[row] <- %total
})");
  const Memory memory = interpret(program, {{"x", reals({0x1p60, 1, 2, -0x1p60, 1, INFINITY, 2, 3})}});
  EXPECT_EQ(memory.at("y").reals, (Reals{3, INFINITY}));
}

TEST(Interpreter, FoldsTakeAlongTheLargestBesideEqualExtremes) {
  const Program program = parse_program(R"(program places {
  lane row = 3, column = 4
  buffer x: f32[3, 4] input
  buffer beside: i32[4] input
  buffer most: f32[3] output
  buffer most_at: i32[3] output
  buffer least_at: i32[3] output
  %tile: f32[row, column] = load x[row, column]
  %some: i32[column] = load beside[column]
  %everywhere: b1[row, column] = constant true
  %none: i32 = constant 0
  %place: i32[row, column] = select %everywhere, %some, %none
  %top: f32[row], %at: i32[row] = fold max %tile, %place over column
  %low: f32[row], %low_at: i32[row] = fold min %tile, %place over column
  store most[row] <- %top
  store most_at[row] <- %at
  store least_at[row] <- %low_at
})");
  const double nan = std::nan("");
  const Memory memory = interpret(
      program, {{"x", reals({1, 3, 3, 1, -INFINITY, -INFINITY, -INFINITY, -INFINITY, nan, 5, nan, 7})},
                {"beside", wholes({4, 9, 8, 6})}});
  EXPECT_EQ(memory.at("most").reals[0], 3);
  EXPECT_EQ(memory.at("most_at").wholes, (Wholes{9, 9, 8}));
  EXPECT_EQ(memory.at("least_at").wholes, (Wholes{6, 9, 8}));
}

TEST(Interpreter, StoresCombineAndMayNotCollide) {
  const std::string text = R"(program histogram {
  grid block = 3
  lane i = 4
  buffer bin: i32[12] input
  buffer count: i64[5] inout
  %at: i32[i] = load bin[block * 4 + i]
  %limit: i32 = constant 5
  %safe: i32[i] = bounded %at, %limit
  %one: i64[i] = constant 1
  store count[%safe] <- %one combine sum
})";
  const Memory memory = {{"bin", wholes({0, 1, 1, 4, 4, 4, 0, 1, 3, 3, 3, 3})}, {"count", wholes({10, 0, 0, 0, 0})}};
  EXPECT_EQ(interpret(parse_program(text), memory).at("count").wholes, (Wholes{12, 3, 0, 4, 3}));
  const std::string plain = with(text, " combine sum", "");
  EXPECT_EQ(interpret(parse_program(plain), memory).at("count").wholes, (Wholes{1, 1, 0, 1, 1}));
  const std::string different = with(plain, "%one: i64[i] = constant 1", "%one: i64[i] = index block");
  expect_fault_in(with(different, "i64[i] = index block", "i64 = index block"), memory,
                  "'store count[%safe] <- %one': an element of 'count' gets different values from two blocks (block = "
                  "1, i = 0)");
  expect_fault_in(with(plain, "constant 1", "index i"), memory, "gets different values from one store");
  Memory outside = memory;
  outside["bin"] = wholes({0, 1, 1, 4, 4, 4, 0, 1, 3, 9, 3, 3});
  expect_fault_in(text, outside,
                  "'store count[%safe] <- %one combine sum': an element of 'count' is outside: dimension 0 is 5, the "
                  "coordinate 9 (block = 2, i = 1)");
}

TEST(Interpreter, MasksHoldAccessesBack) {
  const std::string text = R"(program masked {
  size n = 1..100
  grid block = (n + 7) / 8
  lane i = 8
  buffer x: i16[n] input
  buffer y: i16[n] output
  %at: i32[i] = index block * 8 + i
  %limit: i32 = index n
  %inside: b1[i] = less %at, %limit
  %tile: i16[i] = load x[block * 8 + i] where %inside otherwise -3
  %low: i16 = fold min %tile over i
  %sum: i16[i] = add %tile, %low
  store y[block * 8 + i] <- %sum where %inside
})";
  const Program program = parse_program(text);
  const Memory memory = {{"x", wholes({5, 4, 3, 2, 1, 32767, 6, 7, 9, 8})}};
  EXPECT_EQ(interpret(program, memory, {{"n", 10}}).at("y").wholes, (Wholes{6, 5, 4, 3, 2, -32768, 7, 8, 6, 5}));
  const Program wrong = parse_program(with(text, "less %at", "less_equal %at"));
  expect_fault([&] { interpret(wrong, memory, {{"n", 10}}); }, ErrorKind::kInternal,
               "is outside: dimension 0 is 10, the coordinate 10 (n = 10, block = 1, i = 2)");
}

TEST(Interpreter, LoopsCarryValuesOfSeveralTypes) {
  const Program program = parse_program(R"(program mixed {
  lane i = 4
  buffer x: f16[6, 4] input
  buffer y: f16[4] output
  buffer counts: i64[4] output
  buffer swapped: f32[2] output
  %start: f16[i] = constant 0.0
  %none: i64[i] = constant 0
  %never: b1 = constant false
  %one: f32 = constant 1.0
  %two: f32 = constant 2.0
  for step = 1 to 6 step 2 carry %sum: f16[i] = %start, %count: i64[i] = %none, %seen: b1 = %never,
      %a: f32 = %one, %b: f32 = %two -> %total, %steps, %any, %first, %second {
    %tile: f16[i] = load x[step, i]
    %next: f16[i] = add %sum, %tile
    %positive: b1[i] = greater %tile, %start
    %more: i64[i] = cast %positive
    %counted: i64[i] = add %count, %more
    %some: b1 = fold any %positive over i
    %now: b1 = logical_or %seen, %some
    yield %next, %counted, %now, %b, %a
  }
  if %any -> %shown: f16[i] {
    yield %total
  } else {
    yield %start
  }
  store y[i] <- %shown
  store counts[i] <- %steps
  store swapped[0] <- %first
  store swapped[1] <- %second
})");
  Reals x(24, 0);
  for (size_t i = 0; i < 4; ++i) {
    x[4 + i] = 2048;               // row 1
    x[12 + i] = i == 0 ? -1 : 1;   // row 3: 2049 is no f16
    x[20 + i] = i == 3 ? 0 : 0.5;  // row 5
  }
  const Memory memory = interpret(program, {{"x", reals(x)}});
  EXPECT_EQ(memory.at("y").reals, (Reals{2048, 2048, 2048, 2048}));  // 2047 + 0.5 is rounded to even
  EXPECT_EQ(memory.at("counts").wholes, (Wholes{2, 3, 3, 2}));
  EXPECT_EQ(memory.at("swapped").reals, (Reals{2, 1}));
  EXPECT_EQ(interpret(program, {{"x", reals(x)}}, {}, Arithmetic::kDouble).at("y").reals,
            (Reals{2047.5, 2049.5, 2049.5, 2049}));
}

TEST(Interpreter, IndicesBeyondTwoToThe31) {
  const Program program = parse_program(R"(program far {
  size pages = 1..1000000
  grid block = 3
  lane i = 2
  buffer y: i64[3, 2] output
  buffer z: i64[3, 2] output
  %at: i64[i] = index (block + pages - 1) * 1099511627776 + i
  %page: i64[i] = index ((block + pages - 1) * 1099511627776 + i) / 3 % 1000003
  store y[block, i] <- %at
  store z[block, i] <- %page
})");
  const Memory memory = interpret(program, {}, {{"pages", 1000000}});
  for (int64_t block = 0; block < 3; ++block)
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t at = (block + 999999) * 1099511627776 + i;
      EXPECT_EQ(memory.at("y").wholes[block * 2 + i], at);
      EXPECT_EQ(memory.at("z").wholes[block * 2 + i], at / 3 % 1000003);
    }
}

// Each block sums its part, all meet, and each takes the others' sums; twice, in a loop.
constexpr std::string_view kCooperative = R"(program cooperative {
  grid block = 3
  lane i = 4, other = 3
  buffer x: f32[3, 4] inout
  buffer part: f32[2, 3] scratch
  for round = 0 to 2 {
    %tile: f32[i] = load x[block, i]
    %mine: f32 = fold sum %tile over i
    store part[round, block] <- %mine
    barrier grid
    %parts: f32[other] = load part[round, other]
    %total: f32 = fold sum %parts over other
    %share: f32[i] = add %tile, %total
    store x[block, i] <- %share
  }
})";

TEST(Interpreter, BlocksMeetAtBarriersOfTheGrid) {
  const Memory memory = {{"x", reals({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3})}};
  // 24 are added, then 24 + 12 · 24.
  EXPECT_EQ(interpret(parse_program(kCooperative), memory).at("x").reals,
            (Reals{337, 337, 337, 337, 338, 338, 338, 338, 339, 339, 339, 339}));
  const std::string text(kCooperative);
  expect_fault_in(with(text, "    barrier grid\n", ""), memory,
                  "'%parts: f32[other] = load part[round, other]': an element of 'part' is read before a barrier, "
                  "after another block wrote it (block = 1, round = 0, other = 0)");
  expect_fault_in(
      with(text, "0 to 2", "block / 2 to 2"), memory,
      "'for round = block / 2 to 2': a barrier of several blocks is in a loop that is not the same for all");
}

TEST(Interpreter, BlocksOfAClusterShareMemory) {
  const std::string text = R"(program cluster {
  grid block = 4
  lane other = 4
  buffer x: f32[4] input
  buffer parts: f32[4] scratch cluster
  buffer y: f32[4] output
  %mine: f32 = load x[block]
  store parts[block] <- %mine
  barrier cluster
  %all: f32[other] = load parts[other]
  %total: f32 = fold sum %all over other
  store y[block] <- %total
})";
  const Memory memory = {{"x", reals({1, 2, 3, 4})}};
  EXPECT_EQ(interpret(parse_program(text), memory).at("y").reals, (Reals{10, 10, 10, 10}));
  expect_fault_in(with(text, "barrier cluster", "barrier block"), memory, "after another block wrote it");
}

TEST(Interpreter, StridesLeaveGapsUnwritten) {
  const Program program = parse_program(R"(program gaps {
  lane i = 3
  buffer x: f32[3] strides [2] input
  buffer y: f32[3] strides [2] output
  buffer z: u8[3] strides [2] output
  %tile: f32[i] = load x[i]
  %byte: u8[i] = cast %tile
  store y[i] <- %tile
  store z[i] <- %byte
})");
  const Memory memory = interpret(program, {{"x", reals({1, 9, 2, 9, 257})}});
  EXPECT_EQ(memory.at("y").reals[4], 257);
  EXPECT_TRUE(std::isnan(memory.at("y").reals[1]));
  EXPECT_EQ(memory.at("z").wholes, (Wholes{1, 0, 2, 0, 1}));
}

}  // namespace
}  // namespace kw::tile
