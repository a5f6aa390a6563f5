// Lowering: what a kernel means and what its tile programs compute are the same, for random kernels under random
// schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/address_sums.hpp"
#include "lower/block_numbers.hpp"
#include "lower/index_names.hpp"
#include "lower/index_widths.hpp"
#include "lower/lane_dimensions.hpp"
#include "lower/pipeline.hpp"
#include "lower/online.hpp"
#include "random_recurrences.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

// NaN is like NaN; infinities like themselves.
bool close(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (left == right) return true;
  return std::abs(left - right) <= 1e-9 * std::max({1.0, std::abs(left), std::abs(right)});
}

// What the program leaves in the results "y…" is what the kernel means.
void expect_same(const tile::Program& program, const kernel::Memory& memory,
                 const std::map<std::string, int64_t>& sizes, const kernel::Memory& expected,
                 const std::function<std::string()>& told) {
  const tile::Memory found = tile::interpret(program, memory, sizes, tile::Arithmetic::kDouble);
  for (const auto& [name, numbers] : expected) {
    if (name[0] != 'y') continue;
    const std::vector<double>& reals = found.at(name).reals;
    ASSERT_EQ(reals.size(), numbers.reals.size()) << told();
    for (size_t i = 0; i < numbers.reals.size(); ++i)
      ASSERT_TRUE(close(reals[i], numbers.reals[i]))
          << name << "[" << i << "] is " << reals[i] << ", not " << numbers.reals[i] << "\n"
          << told();
  }
}

TEST(Lower, RandomKernelsUnderRandomSchedulesMeanTheSame) {
  int lowered = 0, refused = 0, online = 0, merged = 0, bulk = 0, split = 0, within = 0, apart = 0, walked = 0,
      prefetch = 0, empty = 0, named = 0, numbered = 0, grouped = 0, summed = 0, ranked = 0;
  for (uint64_t seed = 0; seed < 2400; ++seed) {
    Random random(seed);
    RandomKernel maker(random, {.scans = seed % 4 == 0, .types = seed % 3 == 0});
    const std::map<std::string, int64_t> sizes = maker.sizes();
    const Kernel kernel = maker.make();
    const kernel::Memory memory = random_memory(random, kernel, sizes);
    const kernel::Memory expected = kernel::evaluate(kernel, memory, sizes);
    const KernelSchedule schedule = random_schedule(random, kernel);
    tile::Program program;
    try {
      program = to_tiles(kernel, parse_schedule(to_json(schedule, kernel), kernel));  // as people write it
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUser) << "seed " << seed << ": " << error.what() << "\n"
                                                << kernel::print_kernel(kernel) << to_json(schedule, kernel).dump();
      ++refused;
      continue;
    }
    ++lowered;
    const std::vector<Symbol> axes = kernel::axes_of(kernel);
    empty += std::any_of(axes.begin(), axes.end(),
                         [&](Symbol axis) { return kernel::as_constant(kernel.symbols[axis].extent) == 0; });
    const std::string text = tile::print_program(program);
    online += text.find("rescale") != std::string::npos;
    merged += text.find("_step = 0 to") != std::string::npos;
    bulk += text.find("] bulk") != std::string::npos;
    split += text.find("_remainder") != std::string::npos;
    within += to_json(schedule, kernel).dump().find("within") != std::string::npos;
    walked += text.find("%carry") != std::string::npos;
    prefetch += std::any_of(schedule.axes.begin(), schedule.axes.end(),
                            [](const auto& axis) { return axis.prefetch > 1; });
    apart += std::any_of(schedule.axes.begin(), schedule.axes.end(),
                         [](const auto& axis) { return axis.mapping == Mapping::kTile && axis.unrolled; });
    ASSERT_EQ(tile::print_program(tile::parse_program(text)), text) << "seed " << seed;
    expect_same(program, memory, sizes, expected, [&] {
      return fmt::format("seed {}\n{}{}\n{}", seed, kernel::print_kernel(kernel), to_json(schedule, kernel).dump(),
                         text);
    });
    if (testing::Test::HasFatalFailure()) return;
    if (seed % 4 != 1 && program.grid.size() < 2) continue;
    if (program.grid.size() > 1 && tile::shared_rows(program).empty() && seed % 2 == 1)
      program.order = {program.grid[0], program.grid[1], static_cast<int64_t>(1 + seed % 5)};
    number_blocks_of_gpu(program);
    name_indices(program);
    order_sums(program);
    choose_index_widths(program);
    give_dimensions(program);
    tile::verify(program);
    const std::string with_names = tile::print_program(program);
    named += with_names.find("\n  index ") != std::string::npos;
    numbered += with_names.find("\n  place ") != std::string::npos;
    grouped += with_names.find("\n  place grouped_") != std::string::npos;
    summed += with_names.find("; ") != std::string::npos;
    ranked += with_names.find(" rank ") != std::string::npos;
    ASSERT_EQ(tile::print_program(tile::parse_program(with_names)), with_names) << "seed " << seed;
    expect_same(program, memory, sizes, expected, [&] { return with_names; });
    if (testing::Test::HasFatalFailure()) return;
  }
  // The test is one of lowering only while most schedules are kept, and some walk a softmax once, and so on.
  EXPECT_GT(lowered, refused / 2);
  EXPECT_GT(online, 10);
  EXPECT_GT(merged, 8);
  EXPECT_GT(bulk, 10);
  EXPECT_GT(split, 10);
  EXPECT_GT(within, 10);
  EXPECT_GT(apart, 10);
  EXPECT_GT(walked, 10);
  EXPECT_GT(prefetch, 3);
  EXPECT_GT(empty, 30);
  EXPECT_GT(named, 100);
  EXPECT_GT(numbered, 30);
  EXPECT_GT(grouped, 3);
  EXPECT_GT(summed, 2);
  EXPECT_GT(ranked, 10);
}

TEST(Lower, RandomRecurrencesUnderRandomSchedulesMeanTheSame) {
  int lowered = 0, several = 0, over_units = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    RandomRecurrence maker(random);
    const Kernel kernel = maker.make();
    const kernel::Memory memory = random_memory(random, kernel, {}), expected = kernel::evaluate(kernel, memory, {});
    const KernelSchedule schedule = maker.schedule(kernel);
    const auto told = [&] {
      return fmt::format("seed {}\n{}{}", seed, kernel::print_kernel(kernel), to_json(schedule, kernel).dump());
    };
    tile::Program program;
    try {
      program = to_tiles(kernel, parse_schedule(to_json(schedule, kernel), kernel));
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUser) << error.what() << "\n" << told();
      continue;
    }
    ++lowered;
    several += kernel.states.size() > 1;
    over_units += kernel::print_kernel(kernel).find("source]") != std::string::npos;
    const std::string text = tile::print_program(program);
    ASSERT_EQ(tile::print_program(tile::parse_program(text)), text) << told();
    expect_same(program, memory, {}, expected, told);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(lowered, 200);
  EXPECT_GT(several, 100);
  EXPECT_GT(over_units, 100);
}

// An axis without points is read nowhere, in whatever order, stores nothing, and folds to what folds start from.
TEST(Lower, AxesMayHaveNoPoints) {
  const std::string text = R"(kernel nothing {
  axis row = 9, column = 0
  in x: f32[9, 0]
  out y: f32[9]
  out z: f32[0]
  out t: f32[1]
  y[row] = sum(x[8 - row, -1 - column]; column) + 2.0
  z[column] = sum(x[row, column]; row)
  t[0] = sum(exp(x[row, column] - max(x[row, column]; row, column)); row, column)
})";
  const Kernel kernel = kernel::parse_kernel(text);
  kernel::Memory memory;
  memory["x"].reals = {};
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  EXPECT_EQ(expected.at("y").reals, std::vector<double>(9, 2.0));
  EXPECT_EQ(expected.at("t").reals, std::vector<double>(1, 0.0));
  for (const char* schedule :
       {R"({"row":{"loop":4},"column":{"tile":2}})", R"({"row":{"tile":16},"column":{"loop":4}})",
        R"({"row":{"loop":4},"column":{"tile":1,"unrolled":true}})",
        R"({"row":{"loop":4,"unrolled":true},"column":{"tile":1}})"}) {
    const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
    const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
    for (const char* name : {"y", "z", "t"})
      EXPECT_EQ(found.at(name).reals, expected.at(name).reals) << schedule << name;
  }
}

// Rows are normalised, multiplied and summed in one kernel: in single precision by three products of halves, in
// bfloat16 and in tf32. What is rounded on the way is rounded in both.
TEST(Lower, RowsMayBeNormalisedBeforeAProduct) {
  const std::string order = R"(,"order":{"grouped":"m","along":"n","count":2}})";
  for (const std::string name : {"f32", "bf16", "tf32"}) {
    const std::string file = std::string(KW_GOLDEN_DIR) + "/kernel/norm_linear_" + name + ".kernel";
    const Kernel kernel = kernel::parse_kernel(read_file(file));
    Random random(3);
    kernel::Memory memory = random_memory(random, kernel, {});
    for (double& scale : memory["w_scale"].reals) scale = 0.5;
    if (name != "f32") memory.erase("w_scale");
    const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
    const std::string scheme = name == "f32" ? R"(,"scheme":"fp16x3")" : "";
    for (const std::string& schedule :
         {R"({"m":{"grid":16},"n":{"grid":32},"k":{"loop":64,"stages":2})" + scheme + order,
          R"({"m":{"grid":32},"n":{"grid":64},"k":{"loop":128})" + scheme + "}",
          R"({"m":{"grid":16},"n":{"tile":128},"k":{"tile":256})" + scheme + "}"}) {
      const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
      // A row's sum is one atomic addition, not one for each column; not where a mask leaves columns out.
      const std::string text = tile::print_program(program);
      const bool is_whole = schedule.find(R"("n":{"grid":32})") != std::string::npos;
      EXPECT_EQ(text.find("%activated_folded: f32[m] = fold sum %activated over n") != std::string::npos, is_whole)
          << text;
      const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
      for (const char* result : {"y", "row_sum"}) {
        const std::vector<double>&reals = found.at(result).reals, &wanted = expected.at(result).reals;
        ASSERT_EQ(reals.size(), wanted.size());
        double off = 0, most = 0;
        for (size_t at = 0; at < reals.size(); ++at) {
          off = std::max(off, std::abs(reals[at] - wanted[at]));
          most = std::max(most, std::abs(wanted[at]));
        }
        EXPECT_GT(most, 0.1) << name;
        EXPECT_LE(off, 1e-5 * most) << name << " " << schedule << " " << result;
      }
    }
  }
}

// Rows that are two interleaved halves of a line of the result, as a transposed convolution's phases are.
constexpr const char* kInterleaved = R"(kernel interleaved {
  axis row = 36, place = 21, depth = 40
  in a: f32[36, 40]
  in b: f32[21, 40]
  in scale: f32[18]
  out y: f32[18, 42]
  product = dot(a[row, depth], b[place, depth]; depth)
  y[row / 2, 2 * place + row % 2] = product * scale[row / 2]
})";

// Also where neither the place nor the value depends on an axis, however it is walked.
TEST(Lower, EveryPointOfAScatterStores) {
  const std::string text = R"(kernel counts {
  axis row = 10, column = 7
  in ids: i32[10]
  inout y: f32[4]
  y[ids[row]] where row > 1 over column += 1.0
  y[ids[0]] over row, column += 2.0
  y[ids[1] + {2}] over column = 5.0
}
)";
  const Kernel kernel = kernel::parse_kernel(text);
  EXPECT_EQ(kernel::print_kernel(kernel), text);
  kernel::Memory memory;
  memory["ids"].wholes = {3, 0, 1, 1, 3, 0, 0, 3, 1, 1};
  memory["y"].reals = {0.0, 0.5, 1.0, 0.0};
  const std::vector<double> expected = {14.0, 28.5, 5.0, 154.0};
  EXPECT_EQ(kernel::evaluate(kernel, memory, {}).at("y").reals, expected);
  for (const char* row : {R"({"grid": 4})", R"({"tile": 16})", R"({"loop": 4})"})
    for (const char* column : {R"({"grid": 1})", R"({"grid": 2})", R"({"tile": 8})", R"({"loop": 2})"}) {
      const std::string schedule = fmt::format(R"({{"row": {}, "column": {}}})", row, column);
      const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
      EXPECT_EQ(tile::interpret(program, memory, {}).at("y").reals, expected) << schedule;
    }
}

TEST(Lower, RowsBehindAProductMayBeTheLastDimensionAndSplit) {
  const Kernel kernel = kernel::parse_kernel(kInterleaved);
  Random random(7);
  const kernel::Memory memory = random_memory(random, kernel, {}), expected = kernel::evaluate(kernel, memory, {});
  const std::pair<const char*, const char*> cases[] = {
      {R"({"row":{"grid":16},"place":{"grid":16},"depth":{"loop":16},"warps":4})", "[row, place] = dot"},
      {R"({"row":{"grid":16,"last":true},"place":{"grid":16},"depth":{"loop":16},"warps":4})",
       "[place, row_last] = relabel"},
      {R"({"row":{"grid":16,"last":true,"split":2},"place":{"grid":16},"depth":{"loop":16},"warps":4})",
       "[place, row_remainder, row_quotient] = split %product_2 row -> row_quotient, row_remainder"},
      {R"({"row":{"grid":32},"place":{"tile":32,"last":true,"split":8},"depth":{"tile":64},"warps":4})",
       "[row, place_remainder, place_quotient] = split"},
  };
  for (const auto& [schedule, words] : cases) {
    const KernelSchedule parsed = parse_schedule(std::string_view(schedule), kernel);
    EXPECT_EQ(to_json(parsed, kernel).dump(), schedule);
    const tile::Program program = to_tiles(kernel, parsed);
    const std::string text = tile::print_program(program);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
    const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
    for (size_t i = 0; i < expected.at("y").reals.size(); ++i)
      ASSERT_TRUE(close(found.at("y").reals[i], expected.at("y").reals[i])) << schedule << " at " << i << "\n" << text;
  }
}

// Where an iteration has one product, it is added as it is, and the sum rounded.
TEST(Lower, SinglePointsOfAProductAreAddedByOneOperation) {
  const Kernel kernel = kernel::parse_kernel(R"(kernel weighted {
  axis place = 32, tap = 3
  in x: f32[34]
  in w: f32[3]
  out y: f32[32]
  y[place] = dot(x[place + tap], w[tap]; tap)
})");
  const auto operations = [&](std::string_view schedule) {
    const std::string text = tile::print_program(to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel)));
    return std::pair{text.find("fma") != std::string::npos, text.find("mul") != std::string::npos};
  };
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"loop":1}})"), (std::pair{true, false}));
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"loop":2}})"), (std::pair{false, true}));
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"tile":4}})"), (std::pair{false, true}));
}

// Only what scales with exp(-maximum) can be folded in the maximum's own walk.
TEST(Online, TakesNoSumThatDoesNotScale) {
  const auto walks = [](const std::string& weight) {
    const std::string kernel =
        "kernel k {\n  axis row = 4, column = 40\n  in x: f32[4, 40]\n  out y: f32[4]\n"
        "  largest = max(x[row, column]; column)\n  weight = " +
        weight + "\n  y[row] = sum(weight; column)\n}\n";
    const Kernel parsed = kernel::parse_kernel(kernel);
    const char* schedule = R"({"row":{"grid":1},"column":{"loop":8,"online":true}})";
    const std::string text = tile::print_program(to_tiles(parsed, parse_schedule(std::string_view(schedule), parsed)));
    return text.find("rescale") != std::string::npos;
  };
  EXPECT_TRUE(walks("exp(x[row, column] - largest)"));
  EXPECT_TRUE(walks("exp(x[row, column] - largest) * x[row, column] / 2.0"));
  EXPECT_TRUE(walks("select(x[row, column] > 0.0, -exp(x[row, column] - largest), 0.0)"));
  EXPECT_FALSE(walks("f32(i32(exp(x[row, column] - largest)))"));
  EXPECT_FALSE(walks("exp(x[row, column] - largest) + 1.0"));
  EXPECT_FALSE(walks("exp(largest - x[row, column])"));
  EXPECT_TRUE(walks("exp((x[row, column] - largest) * 2.0)"));
  EXPECT_FALSE(walks("exp((x[row, column] - largest) * -2.0)"));
  EXPECT_FALSE(walks("exp((x[row, column] - largest) * x[row, column])"));
  EXPECT_FALSE(walks("exp((x[row, column] - largest) * 2.0) + exp((x[row, column] - largest) * 3.0)"));
  EXPECT_FALSE(walks("exp((x[row, column] - largest) * 2.0) + exp(x[row, column] - largest)"));
  EXPECT_FALSE(walks("exp(x[row, column] - largest) * exp(x[row, column] - largest)"));
  EXPECT_FALSE(walks("select(x[row, column] > largest - 1.0, exp(x[row, column] - largest), 0.0)"));
}

}  // namespace
}  // namespace kw::lower
