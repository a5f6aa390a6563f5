// Pointwise groups and rows as tile programs: what they compute is tested by tests/python/test_plan_semantics.py; here,
// what they cost and which of them there are.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "emit/cpu/tile_printer.hpp"
#include "lower/in_place.hpp"
#include "group_text.hpp"
#include "plan/embedding.hpp"
#include "plan/estimate.hpp"
#include "plan/group_tiles.hpp"
#include "plan/group_builder.hpp"
#include "targets/cpu/lowering.hpp"
#include "targets/targets.hpp"
#include "tile/interpreter.hpp"

namespace kw::plan {
namespace {

// What the cost models say of a kernel.
struct Figures {
  double memory_bytes, cache_bytes, microseconds, registers;
};

void expect_figures(const KernelEstimate& estimate, const Figures& figures, const std::string& name) {
  EXPECT_NEAR(estimate.memory_bytes, figures.memory_bytes, 1e-3 * figures.memory_bytes) << name;
  EXPECT_NEAR(estimate.cache_bytes, figures.cache_bytes, 1e-3 * figures.cache_bytes) << name;
  EXPECT_NEAR(estimate.seconds * 1e6, figures.microseconds, 1e-3 * figures.microseconds) << name;
  EXPECT_EQ(estimate.registers, figures.registers) << name;
}

struct Case {
  const char *name, *axes, *body;
  Figures on_gpu, on_cpu;
};
constexpr Case kCases[] = {
    {"scatters",
     "  axis row = 16384 parallel block 16\n  axis column = 64 parallel block 64\n",
     "  %x = load x[64*row + column] : f32\n  %p = load places[row] : i64\n  %s = scatter sum(%p, %x) : f32\n"
     "  store %s to out[column]\n",
     {8667000, 4325000, 2.57, 48},
     {8520000, 4194000, 666.5, 0}},
    {"scattered copies",
     "  axis row = 1000 parallel block 1\n  axis column = 1000 parallel block 1024\n",
     "  %x = load x[1000*row + column] : f32\n  %p = load places[row] : i64\n  %s = scatter put(%p, %x) : f32\n"
     "  store %s to out[column]\n",
     {8032000, 0, 2.053, 48},
     {8008000, 0, 546.9, 0}},
    {"bytes",
     "  axis element = 1048576 parallel block 1024\n",
     "  %c = load codes[element] : f8e4m3fn\n  %x = cast(%c) : f32\n  %y = add(%x, %x) : f32\n"
     "  store %y to out[element]\n",
     {5259000, 0, 1.408, 40},
     {5243000, 0, 371, 0}},
    {"flat",
     "  axis element = 1048576 parallel block 1024\n",
     "  %x = load x[element] : f32\n  %y = add(%x, %x) : f32\n  store %y to out[element]\n",
     {8405000, 0, 2.14, 40},
     {8389000, 0, 576.3, 0}},
    {"padded",
     "  axis element = 1000003 parallel block 1024\n",
     "  %x = load x[element] : f32\n  %y = exp(%x) : f32\n  store %y to out[element]\n",
     {8016000, 0, 2.049, 40},
     {8000000, 0, 629, 0}},
    {"rows",
     "  axis row = 1024 parallel block 1\n  axis column = 1024 parallel block 1024\n",
     "  %x = load x[1024*row + column] : f32\n  %w = load w[column] : f32\n  %y = mul(%x, %w) : f32\n"
     "  store %y to out[1024*row + column]\n",
     {8409000, 4198000, 2.531, 48},
     {8393000, 4190000, 651.5, 0}},
    {"transposed",
     "  axis row = 1024 parallel block 32\n  axis column = 1024 parallel block 32\n",
     "  %x = load x[row + 1024*column] : f32\n  %y = neg(%x) : f32\n  store %y to out[1024*row + column]\n",
     {8913000, 0, 2.264, 40},
     {8389000, 0, 644.6, 0}},
    {"divided",
     "  axis element = 1048576 parallel block 1024\n",
     "  %x = load x[element] : f32\n  %w = load w[(element % 1024)] : f32\n  %y = mul(%x, %w) : f32\n"
     "  store %y to out[element]\n",
     {8409000, 4198000, 2.531, 48},
     {8393000, 4190000, 651.5, 0}},
    {"softmax",
     "  axis row = 1024 parallel block 1\n  axis column = 1024 reduce block 1024\n",
     "  %x = load x[1024*row + column] : f32\n  %largest = reduce max_sum_exp(%x) : f32\n"
     "  %total = reduce max_sum_exp.1(%x) : f32\n  %d = sub(%x, %largest) : f32\n  %e = exp(%d) : f32\n"
     "  %y = div(%e, %total) : f32\n  store %y to out[1024*row + column]\n",
     {8405000, 0, 2.215, 40},
     {8389000, 4194000, 889.8, 0}},
    {"deviations",
     "  axis row = 1048 parallel block 4\n  axis column = 1000 reduce block 1024\n",
     "  %x = load x[1000*row + column] : f32\n  %w = load w[column] : f32\n  %mean = reduce moments(%x) : f32\n"
     "  %squares = reduce moments.1(%x) : f32\n  %d = sub(%x, %mean) : f32\n  %r = rsqrt(%squares) : f32\n"
     "  %n = mul(%d, %r) : f32\n  %y = mul(%n, %w) : f32\n  store %y to out[1000*row + column]\n",
     {8404000, 1046000, 2.29, 120},
     {8455000, 8380000, 763.9, 0}},
    {"columns",
     "  axis column = 16384 parallel block 64\n  axis row = 64 reduce block 64\n",
     "  %x = load x[16384*row + column] : f32\n  %total = reduce sum(%x) : f32\n  store %total to out[column]\n",
     {4393000, 0, 1.383, 88},
     {4260000, 0, 301.8, 0}},
    {"walked sums",
     "  axis row = 52 parallel block 1\n  axis column = 20000 reduce block 8192 looped\n",
     "  %x = load x[20000*row + column] : f32\n  %total = reduce sum(%x) : f32\n  %e = exp(%x) : f32\n"
     "  %largest = reduce max(%e) : f32\n  %y = mul(%total, %largest) : f32\n  store %y to out[row]\n",
     {4161000, 0, 4.183, 216},
     {4160000, 0, 602, 0}},
    {"walked softmax",
     "  axis row = 64 parallel block 1\n  axis column = 16384 reduce block 4096 looped\n",
     "  %x = load x[16384*row + column] : f32\n  %largest = reduce max_sum_exp(%x) : f32\n"
     "  %total = reduce max_sum_exp.1(%x) : f32\n  %d = sub(%x, %largest) : f32\n  %e = exp(%d) : f32\n"
     "  %y = div(%e, %total) : f32\n  store %y to out[16384*row + column]\n",
     {8393000, 4196000, 7.537, 152},
     {8389000, 4194000, 873.6, 0}},
    {"walked deviations",
     "  axis row = 100 parallel block 1\n  axis column = 10000 reduce block 4096 looped\n",
     "  %x = load x[10000*row + column] : f32\n  %mean = reduce moments(%x) : f32\n"
     "  %squares = reduce moments.1(%x) : f32\n  %d = sub(%x, %mean) : f32\n  %r = rsqrt(%squares) : f32\n"
     "  %y = mul(%d, %r) : f32\n  store %y to out[10000*row + column]\n",
     {8004000, 4002000, 5.998, 152},
     {8006000, 4000000, 646.5, 0}},
    {"walked planes",
     "  axis channel = 64 parallel block 1\n  axis batch = 16 reduce block 1 looped\n"
     "  axis place = 1024 reduce block 512 looped\n",
     "  %x = load x[65536*batch + 1024*channel + place] : f32\n  %total = reduce sum(%x) : f32\n"
     "  store %total to out[channel]\n",
     {4211000, 0, 26.02, 32},
     {4195000, 0, 296.9, 0}},
    {"walked columns",
     "  axis column = 1024 parallel block 64\n  axis row = 1000 reduce block 32 looped\n",
     "  %x = load x[1024*row + column] : f32\n  %w = load w[column] : f32\n  %p = mul(%x, %w) : f32\n"
     "  %total = reduce sum(%p) : f32\n  %place = reduce arg_max(%x) : i64\n  %f = cast(%place) : f32\n"
     "  %y = add(%f, %total) : f32\n  store %y to out[column]\n",
     {4232000, 0, 39.12, 72},
     {4104000, 8188000, 478.2, 0}},
    {"combined moments",
     "  axis row = 128 parallel block 8\n  axis part = 100 reduce block 128\n",
     "  %m = load x[100*row + part] : f32\n  %s = load x[100*row + part + 500000] : f32\n  %c = constant 32 : f32\n"
     "  %mean = reduce combine_moments(%m, %s, %c) : f32\n  %all = reduce combine_moments.1(%m, %s, %c) : f32\n"
     "  %y = mul(%mean, %all) : f32\n  store %y to out[row]\n",
     {104600, 0, 1.375, 48},
     {115200, 114700, 17.58, 0}},
    {"walked parts",
     "  axis row = 64 parallel block 1\n  axis part = 15000 reduce block 8192 looped\n",
     "  %m = load x[15000*row + part] : f32\n  %s = load out[15000*row + part] : f32\n  %c = constant 32 : f32\n"
     "  %mean = reduce combine_moments(%m, %s, %c) : f32\n  %all = reduce combine_moments.1(%m, %s, %c) : f32\n"
     "  %y = mul(%mean, %all) : f32\n  store %y to w[row]\n",
     {7682000, 0, 5.245, 280},
     {7680000, 3840000, 632.9, 0}},
    {"combined exponentials",
     "  axis row = 128 parallel block 1\n  axis place = 4096 parallel block 1024\n"
     "  axis part = 16 reduce block 16\n",
     "  %m = load w[part] : f32\n  %s = load w[part + 16] : f32\n  %x = load x[4096*row + place] : f32\n"
     "  %largest = reduce combine_max_sum_exp(%m, %s) : f32\n  %total = reduce combine_max_sum_exp.1(%m, %s) : f32\n"
     "  %d = sub(%x, %largest) : f32\n  %e = exp(%d) : f32\n  %y = div(%e, %total) : f32\n"
     "  store %y to out[4096*row + place]\n",
     {4203000, 73580, 8.86, 536},
     {4194000, 0, 356.6, 0}},
    {"running sums",
     "  axis row = 1024 parallel block 1\n  axis column = 1000 scan block 256 looped\n",
     "  %x = load x[1000*row + column] : f32\n  %s = scan sum(%x) : f32\n  store %s to out[1000*row + column]\n",
     {8256000, 0, 8.164, 28},
     {8192000, 0, 595.6, 0}},
    {"running columns",
     "  axis column = 1024 parallel block 64\n  axis row = 1000 scan block 16 looped\n",
     "  %x = load x[1024*row + column] : f32\n  %s = scan log_sum_exp(%x) : f32\n"
     "  store %s to out[1024*row + column]\n",
     {8448000, 0, 111.8, 40},
     {8192000, 0, 580, 0}},
    {"rows in order",
     "  axis row = 4096 parallel block 2\n  axis column = 200 scan block 256\n",
     "  %x = load x[200*row + column] : f32\n  %place = index column : i32\n  %s = scan sort_up(%x, %place) : f32\n"
     "  %at = scan sort_up.1(%x, %place) : i32\n  %f = cast(%at) : f32\n  %y = add(%f, %s) : f32\n"
     "  store %y to out[200*row + column]\n",
     {6605000, 0, 16.88, 32},
     {6554000, 0, 815.3, 0}},
    {"places",
     "  axis row = 1000 parallel block 4\n  axis column = 1048 reduce block 2048\n",
     "  %x = load x[1048*row + column] : f32\n  %place = reduce arg_max(%x) : i64\n  %y = cast(%place) : f32\n"
     "  store %y to out[row]\n",
     {4204000, 0, 1.382, 152},
     {4196000, 4192000, 396.3, 0}},
};

std::string text_of(const Case& one) {
  return std::string(
             "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[1048576] input\n"
             "  buffer w : f32[1024] input\n  buffer codes : f8e4m3fn[1048576] input\n"
             "  buffer places : i64[16384] input\n"
             "  buffer out : f32[1048576] output\n") +
         one.axes + one.body + "}\n";
}

TEST(GroupKernels, CostWhatTheyMoveAndCompute) {
  for (const Case& one : kCases) {
    const GroupText group = parse_group(text_of(one));
    expect_figures(estimate(triton_tiles(group).program, default_device("triton")), one.on_gpu, one.name);
    expect_figures(estimate(cpu_tiles(group), default_device("cpu")), one.on_cpu, one.name);
  }
}

// Windows of three, two results of each lane, whose elements are read and written together; and a window that is walked
// row by row, each of which is there whole.
TEST(GroupKernels, WindowsCostWhatTheyReadTogether) {
  const std::string head =
      "kernel k {\n  doc \"\"\n  launch warps 1 stages 1\n  buffer x : f32[1048576] input\n"
      "  buffer y : f32[524288] output\n";
  const std::string unrolled = head +
                               "  axis plane = 8192 parallel block 1\n  axis column = 32 parallel block 32\n"
                               "  %a = load x[128*plane + 4*column - 1] if 0 <= 4*column - 1 < 128 else -inf : f32\n"
                               "  %b = load x[128*plane + 4*column] : f32\n  %ab = maximum(%a, %b) : f32\n"
                               "  %c = load x[128*plane + 4*column + 1] : f32\n  %abc = maximum(%ab, %c) : f32\n"
                               "  %d = load x[128*plane + 4*column + 2] : f32\n  %cd = maximum(%c, %d) : f32\n"
                               "  %e = load x[128*plane + 4*column + 3] : f32\n  %cde = maximum(%cd, %e) : f32\n"
                               "  store %abc to y[64*plane + 2*column]\n"
                               "  store %cde to y[64*plane + 2*column + 1]\n}\n";
  const std::string walked =
      head +
      "  axis plane = 64 parallel block 1\n  axis column = 4 parallel block 4\n"
      "  axis window_row = 128 reduce block 1 looped\n  axis window_column = 32 reduce block 32\n"
      "  %x = load x[16384*plane + 32*column + 128*window_row + window_column] : f32\n"
      "  %total = reduce sum(%x) : f32\n  store %total to y[4*plane + column]\n}\n";
  const DeviceDescription device = default_device("triton");
  for (const bool wide : {true, false}) {
    auto [group, schedule, hints] = parse_group(wide ? unrolled : walked);
    group.windowed = true;
    for (lower::AxisSchedule& axis : schedule.axes) axis.stops = axis.mapping == lower::Mapping::kLoop;
    schedule.wide_accesses = wide;
    const tile::Program program = as_tiles(group, schedule).program;
    expect_figures(estimate(program, device),
                   wide ? Figures{1.678e7, 2.097e6, 5.363, 30} : Figures{4.262e6, 0, 99.61, 32},
                   wide ? "written out" : "walked");
    int loads = 0, stores = 0;
    tile::for_each(program.body, [&](const tile::Instruction& one) {
      loads += one.kind == tile::Kind::kLoad;
      stores += one.kind == tile::Kind::kStore;
    });
    EXPECT_EQ(loads, wide ? 2 : 1);
    EXPECT_EQ(stores, 1);
  }
}

// Rows that are folded along memory, one by one.
TEST(GroupKernels, FoldRowsOnACpu) {
  const auto has_form = [](const std::string& axes, const std::string& lines, const char* index = "1024*row + column") {
    const tile::Program tiles = cpu_tiles(
        parse_group("kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[1048576] input\n"
                    "  buffer out : f32[1024] output\n" +
                    axes + "  %x = load x[" + index + "] : f32\n" + lines + "  store %y to out[row]\n}\n"));
    return tiles.grid.empty() && !tiles.body.empty();
  };
  const std::string rows = "  axis row = 1024 parallel block 1\n  axis column = 1024 reduce block 1 looped vector\n";
  EXPECT_TRUE(has_form(rows, "  %y = reduce sum(%x) : f32\n"));
  EXPECT_TRUE(has_form(rows, "  %y = reduce moments.1(%x) : f32\n"));
  EXPECT_TRUE(has_form(rows, "  %y = reduce max_sum_exp.1(%x) : f32\n"));
  EXPECT_TRUE(has_form(rows, "  %i = reduce arg_max(%x) : i64\n  %y = cast(%i) : f32\n"));
  EXPECT_TRUE(has_form(rows, "  %i = reduce any(%x) : b1\n  %y = cast(%i) : f32\n"));
  EXPECT_TRUE(has_form(rows, "  %y = reduce sum(%x) : f32\n", "row + 1024*column"));  // columns side by side
  const std::string few = "  axis row = 1 parallel block 1\n  axis column = 1024 reduce block 1 looped vector\n";
  EXPECT_TRUE(has_form(few, "  %y = reduce sum(%x) : f32\n", "column"));
  const std::string short_rows =
      "  axis row = 1024 parallel block 1\n  axis column = 100 reduce block 1 looped vector\n";
  EXPECT_TRUE(has_form(short_rows, "  %y = reduce sum(%x) : f32\n"));  // in whole vectors
}

TEST(GroupKernels, FoldRowsOfElementsAndOfParts) {
  const auto kernel = [](const std::string& axis, const std::string& fold) {
    return triton_tiles(
               parse_group(
                   "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[65536] input\n"
                   "  buffer out : f32[64] output\n  axis row = 64 parallel block 1\n  axis column = 1024 reduce " +
                   axis + "\n  %x = load x[1024*row + column] : f32\n" + fold + "  store %y to out[row]\n}\n"))
        .program;
  };
  const auto folds = [](const tile::Program& program) {
    bool found = false;
    tile::for_each(program.body, [&](const tile::Instruction& one) { found |= one.kind == tile::Kind::kFold; });
    return found;
  };
  EXPECT_TRUE(folds(kernel("block 1024", "  %y = reduce sum(%x) : f32\n")));
  EXPECT_TRUE(folds(kernel("block 1024", "  %y = reduce moments.1(%x) : f32\n")));
  EXPECT_TRUE(folds(kernel("block 256 looped", "  %y = reduce sum(%x) : f32\n")));
  EXPECT_TRUE(folds(kernel("block 256 looped", "  %c = constant 2 : f32\n  %y = reduce sum(%c) : f32\n")));
  EXPECT_TRUE(folds(kernel("block 1024", "  %y = reduce combine_max_sum_exp.1(%x, %x) : f32\n")));
  EXPECT_TRUE(folds(kernel("block 256 looped", "  %y = reduce combine_max_sum_exp.1(%x, %x) : f32\n")));
}

// Rows of a number that is the same for all their points, or of no points.
TEST(GroupKernels, FoldWhatDoesNotVaryAndWhatIsNotThere) {
  const auto results = [](int columns, const std::string& block, const std::string& fold) {
    const GroupText group = parse_group(
        "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[4] input\n  buffer out : f32[4] output\n"
        "  axis row = 4 parallel block 1\n  axis column = " +
        std::to_string(columns) + " reduce " + block + "\n  %x = load x[row] : f32\n  %y = reduce " + fold +
        "(%x) : f32\n  store %y to out[row]\n}\n");
    tile::Memory memory;
    memory["x"].reals = {1, -2, 3, 0.5};
    return tile::interpret(triton_tiles(group).program, memory).at("out").reals;
  };
  using Reals = std::vector<double>;
  for (const std::string block : {"block 16", "block 4 looped"}) {
    EXPECT_EQ(results(10, block, "sum"), (Reals{10, -20, 30, 5})) << block;
    EXPECT_EQ(results(3, block, "prod"), (Reals{1, -8, 27, 0.125})) << block;
    EXPECT_EQ(results(10, block, "max"), (Reals{1, -2, 3, 0.5})) << block;
    EXPECT_EQ(results(10, block, "moments"), (Reals{1, -2, 3, 0.5})) << block;
    EXPECT_EQ(results(10, block, "moments.1"), (Reals{0, 0, 0, 0})) << block;
    EXPECT_EQ(results(10, block, "max_sum_exp.1"), (Reals{10, 10, 10, 10})) << block;
    EXPECT_EQ(results(0, block, "sum"), (Reals{0, 0, 0, 0})) << block;
    EXPECT_EQ(results(0, block, "prod"), (Reals{1, 1, 1, 1})) << block;
  }
}

// A running mean, beside rows that are walked twice.
TEST(GroupKernels, MayWriteWhereTheyReadOutsideOfLoops) {
  const tile::Program program =
      triton_tiles(
          parse_group(
              "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[65536] input\n"
              "  buffer before : f32[64] input\n  buffer after : f32[64] output\n  buffer y : f32[65536] output\n"
              "  axis row = 64 parallel block 1\n  axis column = 1024 reduce block 256 looped\n"
              "  %x = load x[1024*row + column] : f32\n  %total = reduce sum(%x) : f32\n  %b = load before[row] : f32\n"
              "  %a = add(%b, %total) : f32\n  %y = sub(%x, %total) : f32\n  store %y to y[1024*row + column]\n"
              "  store %a to after[row]\n}\n"))
          .program;
  EXPECT_TRUE(lower::reads_what_it_writes(program, 1, 2));
  EXPECT_TRUE(lower::reads_first(program, 1, 2).holds);
  EXPECT_FALSE(lower::reads_what_it_writes(program, 0, 3));  // the second walk would read what the first block stored
  EXPECT_FALSE(lower::reads_first(program, 0, 3).holds);
}

// Every iteration is done with an element when it stores the same place; a neighbour's is another one's.
TEST(GroupKernels, MayWriteWhereTheyReadInLoopsOfACpu) {
  const auto program = [](const std::string& read) {
    const GroupText group = parse_group(
        "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[4097] input\n  buffer y : f32[4096] "
        "output\n"
        "  axis row = 64 parallel block 1\n  axis column = 64 parallel block 1 vector\n  %x = load x[" +
        read + "] : f32\n  %e = exp(%x) : f32\n  store %e to y[64*row + column]\n}\n");
    return cpu_tiles(group);
  };
  const tile::Program same = program("64*row + column"), next = program("64*row + column + 1");
  EXPECT_TRUE(lower::reads_what_it_writes(same, 0, 1));
  EXPECT_TRUE(lower::is_elementwise(same, 0, 1));
  EXPECT_TRUE(lower::reads_before_it_writes_on_cpu(*lower::lowered_by(cpu::lowering_steps(), same), 0, 1));
  EXPECT_FALSE(lower::reads_what_it_writes(next, 0, 1));
  EXPECT_FALSE(lower::is_elementwise(next, 0, 1));
}

TEST(GroupKernels, FollowProductsWithoutSteps) {
  const auto kernel = [](const std::string& lines) {
    return parse_group(
        "kernel k {\n  doc \"\"\n  launch warps 4 stages 1\n  buffer x : f32[64] input\n"
        "  buffer places : i64[64] input\n  buffer out : f32[64] output\n  axis element = 64 parallel block 64\n" +
        lines + "}\n");
  };
  const GroupText steps = kernel(
      "  %x = load x[element] : f32\n  %y = round(%x) : f32\n"
      "  store %y to out[element]\n");
  EXPECT_FALSE(can_follow_product(steps.group.kernel));
  const GroupText bytes = kernel(
      "  %x = load x[element] : f32\n  %c = cast(%x) : f8e5m2\n  %y = cast(%c) : f32\n"
      "  store %y to out[element]\n");
  EXPECT_FALSE(can_follow_product(bytes.group.kernel));
}

// Rows as long as registers allow: what is only added at the end would take the place of what is kept.
TEST(GroupKernels, TightRegistersPutOffLoadsThatNoFoldNeeds) {
  const auto loads_first = [](const std::string& length, const std::string& block) {
    const plan::ScheduledTiles tiles = triton_tiles(
        parse_group("kernel k {\n  doc \"\"\n  launch warps 32 stages 1\n  buffer x : f32[1048576] input\n"
                    "  buffer residual : bf16[1048576] input\n  buffer out : f32[1048576] output\n"
                    "  axis row = 8 parallel block 1\n  axis column = " +
                    length + " reduce block " + block + "\n  %r = load residual[" + length +
                    "*row + column] : bf16\n  %x = load x[" + length +
                    "*row + column] : f32\n  %m = reduce max(%x) : f32\n  %d = sub(%x, %m) : f32\n"
                    "  %e = exp(%d) : f32\n  %s = reduce sum(%e) : f32\n  %q = div(%e, %s) : f32\n"
                    "  %w = cast(%r) : f32\n  %y = add(%q, %w) : f32\n  store %y to out[" +
                    length + "*row + column]\n}\n"));
    return tiles.source->schedule.loads_first;
  };
  EXPECT_TRUE(loads_first("1000", "1024"));
  EXPECT_FALSE(loads_first("32000", "32768"));
}

// Every point scatters, also where neither the place nor the value depends on one of the axes.
TEST(GroupKernels, ScatterFromEveryPoint) {
  const auto program = [](const std::string& lines) {
    return triton_tiles(parse_group("kernel k {\n  doc \"\"\n  launch warps 1 stages 1\n  buffer x : f32[70] input\n"
                                    "  buffer places : i64[70] input\n  buffer out : f32[9] output\n"
                                    "  axis row = 70 parallel block 32\n  axis column = 3 parallel block 4\n" +
                                    lines + "}\n"))
        .program;
  };
  const auto result = [](const tile::Program& program) {
    tile::Memory memory;
    memory["x"].reals.assign(70, 2.0);
    memory["places"].wholes.assign(70, 4);
    memory["out"].reals.assign(9, 1.0);
    return tile::interpret(program, memory, {}).at("out").reals;
  };
  const tile::Program counts = program(
      "  %one = constant 1 : f32\n  %p = load places[7] : i64\n  %s = scatter sum(%p, %one) : f32\n"
      "  store %s to out[0]\n");
  EXPECT_EQ(result(counts), (std::vector<double>{1, 1, 1, 1, 1 + 70 * 3, 1, 1, 1, 1}));
  const tile::Program products = program(
      "  %x = load x[3] : f32\n  %p = load places[row] : i64\n  %s = scatter prod(%p, %x) : f32\n"
      "  store %s to out[column]\n");
  EXPECT_EQ(result(products)[5], std::exp2(70.0));
  // Many points put the same number there.
  const tile::Program put = program(
      "  %x = load x[row] : f32\n  %p = load places[0] : i64\n  %s = scatter put(%p, %x) : f32\n"
      "  store %s to out[0]\n");
  EXPECT_EQ(result(put), (std::vector<double>{1, 1, 1, 1, 2, 1, 1, 1, 1}));
}

// A mask says what its guards did, and beside them what the data decide.
TEST(GroupKernels, MasksAreReadBackAsGuards) {
  GroupKernel kernel;
  kernel.symbols = {axis_of("row", 8), axis_of("column", 8)};
  kernel.buffers = {row_of_elements("flags", DType::b1, 8, kernel::BufferRole::kInput)};
  kernel.parallel = 2;
  GroupBuilder build(kernel);
  const Index row = kernel::symbol_index(0), column = kernel::symbol_index(1);
  const ExprId inside = build.mask_of({{row - Index(1), 0, 8}, {column, 2, 5}});
  const ExprId flag = build.load(element_at(0, row), {});
  const auto bounds_of = [&](ExprId mask) {
    std::vector<std::pair<Index, std::pair<int64_t, int64_t>>> bounds;
    for (const Guard& guard : guards_of(kernel, mask)) bounds.push_back({guard.index, {guard.lower, guard.upper}});
    return bounds;
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  const decltype(bounds_of(inside)) expected = {
      {row - Index(1), {0, kMost}}, {row - Index(1), {kLeast, 8}}, {column, {2, kMost}}, {column, {kLeast, 5}}};
  EXPECT_EQ(bounds_of(inside), expected);
  EXPECT_EQ(parts_of_mask(kernel, inside).condition, kNoExpr);
  const ExprId both = build.both(inside, flag);
  EXPECT_EQ(bounds_of(both), expected);
  EXPECT_EQ(parts_of_mask(kernel, both).condition, flag);
  EXPECT_TRUE(bounds_of(flag).empty());
  EXPECT_EQ(parts_of_mask(kernel, flag).condition, flag);
  EXPECT_EQ(parts_of_mask(kernel, kNoExpr).condition, kNoExpr);
}

}  // namespace
}  // namespace kw::plan
