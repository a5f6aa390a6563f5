// Tile programs as text of a target: golden files, printed again with KW_UPDATE_GOLDEN=1, and what has no such form.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "emit/cpu/tile_printer.hpp"
#include "emit/triton/tile_printer.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/cpu/lowering.hpp"
#include "targets/triton/target.hpp"
#include "tile/text.hpp"

namespace kw {
namespace {

const std::string kGolden = KW_GOLDEN_DIR;

tile::Program lowered(const std::string& name, const std::string& schedule) {
  const kernel::Kernel kernel = kernel::parse_kernel(read_file(kGolden + "/kernel/" + name + ".kernel"));
  return lower::to_tiles(kernel, lower::parse_schedule(std::string_view(schedule), kernel));
}

void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = kGolden + "/tile/" + file;
  const char* update = std::getenv("KW_UPDATE_GOLDEN");
  if (update && std::string(update) == "1") write_file_atomically(path, text);
  EXPECT_EQ(read_file(path), text) << "KW_UPDATE_GOLDEN=1 writes " << path;
}

struct Golden {
  const char *name, *kernel, *schedule;
};
constexpr Golden kGoldens[] = {
    {"rms_norm", "rms_norm", R"({"row":{"grid":4},"column":{"tile":64}})"},
    {"softmax_online", "softmax", R"({"row":{"grid":1},"column":{"loop":64,"online":true}})"},
    {"attention", "attention",
     R"({"head":{"grid":1},"query":{"grid":16},"key":{"loop":16,"online":true,"stages":2},"feature":{"tile":16},
         "value":{"tile":16}})"},
    {"convolution", "convolution",
     R"({"pixel":{"grid":32},"filter":{"grid":16},"channel":{"tile":16},"dy":{"loop":1},"dx":{"loop":1}})"},
    {"lstm", "lstm", R"({"step":{"loop":1},"batch":{"grid":4},"unit":{"tile":16},"source":{"tile":16}})"},
    {"norm_linear", "norm_linear_f32",
     R"({"m":{"grid":16},"n":{"grid":32},"k":{"loop":64,"stages":2},"scheme":"fp16x3","order":{"grouped":"m","along":"n",
         "count":2}})"},
    {"sizes", "sizes", R"({"row":{"grid":4},"column":{"loop":16}})"},
};
// On a GPU alone.
constexpr Golden kGpuGoldens[] = {
    {"running", "running", R"({"row":{"grid":4},"column":{"loop":32}})"},
    {"products", "products", R"({"row":{"grid":4},"column":{"loop":32,"network":true,"prefetch":4}})"},
    {"in_order", "in_order", R"({"row":{"grid":4},"column":{"tile":256}})"},
    {"shared_rows", "shared_rows",
     R"({"row":{"grid":1},"plane":{"grid":1,"cooperative":true},"column":{"grid":64,"cooperative":true}})"},
};
// On a CPU alone.
constexpr Golden kCpuGoldens[] = {
    {"scatter_owners", "scatter",
     R"({"column":{"loop":1,"simd":true},"row":{"loop":1},"nest":["row","column"],"in_order":true,"owners":4})"},
};

// Behind the target's own steps of lowering.
tile::Program triton_program(const tile::Program& program) {
  return lower::lowered_by(triton_target().lowering_steps(), program)->program;
}

std::string triton_text(const tile::Program& program) {
  return triton::print_tile_kernel(triton_program(program)).source;
}

std::string cpu_text(const tile::Program& program) {
  cpu::HelperSet helpers;
  return cpu::print_tile_function(*lower::lowered_by(cpu::lowering_steps(), program), helpers).text;
}

TEST(TilePrinters, LoweredKernelsReadLikeTheGoldenFiles) {
  for (const Golden& golden : kGoldens) {
    const tile::Program program = lowered(golden.kernel, golden.schedule);
    expect_golden(std::string(golden.name) + ".lowered", tile::print_program(program));
    expect_golden(std::string(golden.name) + ".triton", triton_text(program));
    expect_golden(std::string(golden.name) + ".cpu", cpu_text(program));
  }
}

TEST(TilePrinters, WhatAGpuAloneHasReadsLikeTheGoldenFiles) {
  for (const Golden& golden : kGpuGoldens) {
    const tile::Program program = lowered(golden.kernel, golden.schedule);
    expect_golden(std::string(golden.name) + ".lowered", tile::print_program(program));
    expect_golden(std::string(golden.name) + ".triton", triton_text(program));
  }
}

TEST(TilePrinters, TheStepsOfAGpuLeaveProgramsLikeTheGoldenFiles) {
  for (const std::string name : {"convolution", "norm_linear", "softmax_online"})
    for (const Golden& golden : kGoldens)
      if (golden.name == name)
        expect_golden(name + ".named", tile::print_program(triton_program(lowered(golden.kernel, golden.schedule))));
}

TEST(TilePrinters, WhatACpuAloneHasReadsLikeTheGoldenFiles) {
  for (const Golden& golden : kCpuGoldens) {
    const tile::Program program = lowered(golden.kernel, golden.schedule);
    expect_golden(std::string(golden.name) + ".lowered", tile::print_program(program));
    expect_golden(std::string(golden.name) + ".cpu", cpu_text(program));
  }
}

// The largest of a tile is the same in whatever order it is found; a sum is not.
TEST(TilePrinters, OneFoldOfAWholeTileWhereItsOrderDoesNotMatter) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel of_planes {
  axis plane = 3, row = 4, column = 8
  in x: f32[3, 4, 8]
  out largest: f32[3]
  out total: f32[3]
  largest[plane] = max(x[plane, row, column]; row, column)
  total[plane] = sum(x[plane, row, column]; row, column)
})");
  const std::string_view schedule = R"({"plane":{"grid":1},"row":{"tile":4},"column":{"tile":8}})";
  const std::string text = triton_text(lower::to_tiles(kernel, lower::parse_schedule(schedule, kernel)));
  EXPECT_NE(text.find("tl.reduce(x_tile, None, larger)"), std::string::npos) << text;
  EXPECT_NE(text.find("tl.sum(tl.sum(x_tile, axis=1), axis=0)"), std::string::npos) << text;
}

TEST(TilePrinters, IndicesBeyondTwoToTheThirtyOneAreWide) {
  const tile::Program program = tile::parse_program(
      "program copy {\n  grid row = 65536\n  lane column = 64\n  launch warps 4\n  buffer x: f32[65536, 65536] input\n"
      "  buffer y: f32[65536] output\n  %a: f32[column] = load x[row, column]\n  %b: f32 = fold sum %a over column\n"
      "  store y[row] <- %b\n}\n");
  const std::string text = triton_text(program);
  EXPECT_NE(text.find("tl.load(x + row.to(tl.int64) * 65536 + column.to(tl.int64))"), std::string::npos) << text;
  EXPECT_NE(text.find("tl.store(y + row, "), std::string::npos) << text;
}

TEST(TilePrinters, IndicesThatLeave32BitsThemselvesAreComputedIn64) {
  const tile::Program program = tile::parse_program(
      "program flat {\n  grid block = 4194304\n  lane i = 1024\n  launch warps 4\n"
      "  buffer x: f32[4294967296] strides [1] input\n  buffer y: f32[4294967296] strides [1] output\n  for k = 0 to 2 "
      "{\n    %a: f32[i] = load x[block * 1024 + i]\n    %b: f32[i] = load x[k * 2147483648 + i]\n"
      "    %c: f32[i] = add %a, %b\n    store y[block * 1024 + i] <- %c\n  }\n}\n");
  const std::string text = triton_text(program);
  EXPECT_NE(text.find("i_index = tl.program_id(0).to(tl.int64) * 1024 + i.to(tl.int64)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tl.load(x + i_index)"), std::string::npos) << text;
  EXPECT_NE(text.find("tl.cast(k, tl.int64) * 2147483648"), std::string::npos) << text;
}

TEST(TilePrinters, VariablesThatDependOnEachOtherAreSetTogether) {
  const tile::Program program = tile::parse_program(
      "program swap {\n  launch warps 4\n  buffer y: f32[2] output\n  %one: f32 = constant 1.0\n"
      "  %two: f32 = constant 2.0\n  for i = 0 to 3 carry %a: f32 = %one, %b: f32 = %two -> %c, %d {\n"
      "    yield %b, %a\n  }\n  store y[0] <- %c\n  store y[1] <- %d\n}\n");
  const std::string text = triton_text(program);
  EXPECT_NE(text.find("a_before = c\n        c = d\n        d = a_before\n"), std::string::npos) << text;
}

// Quotients and remainders of numbers of the block that would be written three times or more.
TEST(TilePrinters, RepeatedPartsOfIndicesHaveNames) {
  const auto text = [](const std::string& body) {
    return triton_text(tile::parse_program(
        "program phases {\n  grid phase = 8\n  lane column = 16\n  launch warps 4\n  buffer x: f32[4, 2, 2, 16] input\n"
        "  buffer y: f32[4, 2, 2, 16] output\n" +
        body + "}\n"));
  };
  const std::string load = "  %a{}: f32[column] = load x[0, phase / 2 % 2, {}, column]\n",
                    store = "  store y[0, phase / 2 % 2, 1, column] <- %a1\n";
  const auto loads = [&](const std::string& number, const std::string& place) {
    return fmt::format(fmt::runtime(load), number, place);
  };
  const std::string twice = text(loads("1", "0") + store);
  EXPECT_EQ(twice.find("phase_over_2_mod_2"), std::string::npos) << twice;
  const std::string thrice = text(loads("1", "0") + loads("2", "phase % 2") + store);
  EXPECT_NE(thrice.find("    phase_over_2_mod_2 = phase // 2 % 2\n"), std::string::npos) << thrice;
  EXPECT_EQ(thrice.find("// 2", thrice.find("// 2") + 1), std::string::npos) << thrice;
  EXPECT_EQ(thrice.find("phase_mod_2"), std::string::npos) << thrice;
  // In the loop whose variable it is of.
  const std::string looped = text(
      "  for a_long_name_of_several_loops_step = 0 to 8 {\n"
      "    %b: f32[column] = load x[a_long_name_of_several_loops_step / 2, a_long_name_of_several_loops_step / 4, "
      "a_long_name_of_several_loops_step / 4, column]\n"
      "    store y[a_long_name_of_several_loops_step / 2, a_long_name_of_several_loops_step / 4, 0, column] <- %b\n  "
      "}\n");
  EXPECT_NE(looped.find("        step_over_4 = a_long_name_of_several_loops_step // 4\n"), std::string::npos) << looped;
  EXPECT_EQ(looped.find("step_over_2"), std::string::npos) << looped;
}

// Bags of rows: a block's loop ends where the longest of its bags does, and no later.
TEST(TilePrinters, LoopsEndWhereDataSay) {
  const kernel::Kernel kernel = kernel::parse_kernel(read_file(kGolden + "/kernel/bags.kernel"));
  const auto text = [&](std::string_view schedule) {
    const lower::KernelSchedule parsed = lower::parse_schedule(schedule, kernel);
    EXPECT_EQ(lower::to_json(parsed, kernel)["entry"].contains("stops"), schedule.find("stops") != std::string::npos);
    return triton_text(lower::to_tiles(kernel, parsed));
  };
  const std::string one = text(R"({"bag":{"grid":1},"column":{"grid":32},"entry":{"loop":4,"stops":true}})");
  EXPECT_NE(one.find("in range(0, tl.minimum(length, 40), 4):"), std::string::npos) << one;
  const std::string several = text(R"({"bag":{"grid":4},"column":{"grid":8},"entry":{"loop":1,"stops":true}})");
  EXPECT_NE(several.find("in range(tl.minimum(tl.max(length, axis=0), 40)):"), std::string::npos) << several;
  const std::string all = text(R"({"bag":{"grid":1},"column":{"grid":32},"entry":{"loop":8}})");
  EXPECT_NE(all.find("in range(0, 40, 8):"), std::string::npos) << all;
}

TEST(TilePrinters, StackedTilesHaveADimensionMore) {
  const tile::Program program = tile::parse_program(read_file(kGolden + "/tile/neighbours.tile"));
  const std::string text = triton_text(program);
  EXPECT_NE(text.find("four = tl.arange(0, 4)[None, None, :]"), std::string::npos) << text;
  EXPECT_NE(text.find("first, second, third, fourth = four_of(x_four)"), std::string::npos) << text;
  EXPECT_NE(text.find("tl.join(left_of_three, right_of_three)"), std::string::npos) << text;
  EXPECT_THROW(cpu_text(program), Error);
  const std::string bags = cpu_text(
      lowered("bags", R"({"bag":{"grid":1},"column":{"grid":32},"entry":{"loop":4,"stops":true}})"));
  EXPECT_NE(bags.find("const int64_t entry_start_end = std::min<int64_t>(40, length);"), std::string::npos) << bags;
}

TEST(TilePrinters, UnrolledLoopsSaySo) {
  const kernel::Kernel kernel = kernel::parse_kernel(
      "kernel k {\n  axis row = 4, column = 40\n  in x: f32[4, 40]\n  out y: f32[4]\n"
      "  y[row] = sum(x[row, column]; column)\n}\n");
  const char* json = R"({"row":{"grid":1},"column":{"loop":8,"unrolled":true}})";
  const lower::KernelSchedule schedule = lower::parse_schedule(std::string_view(json), kernel);
  EXPECT_EQ(lower::to_json(schedule, kernel)["column"]["unrolled"], true);
  const tile::Program program = lower::to_tiles(kernel, schedule);
  const std::string text = tile::print_program(program);
  EXPECT_NE(text.find("step 8 unrolled"), std::string::npos) << text;
  EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
  EXPECT_NE(triton_text(program).find("in tl.static_range(0, 40, 8)"), std::string::npos);
  const kernel::Kernel wide = kernel::parse_kernel(
      "kernel k {\n  axis row = 4, column = 60, slice = 2\n  in x: f32[4, 60, 2]\n  out y: f32[4]\n"
      "  y[row] = sum(x[row, column, slice]; column, slice)\n}\n");
  const auto refusal = [&](const char* one) -> std::string {
    try {
      lower::parse_schedule(std::string_view(one), wide);
      return "";
    } catch (const Error& error) { return error.what(); }
  };
  EXPECT_EQ(refusal(R"({"row":{"grid":1},"column":{"loop":1,"unrolled":true},"slice":{"loop":1}})"), "");
  const char* merged = R"({"row":{"grid":1},"column":{"loop":1,"unrolled":true},"slice":{"loop":1,"unrolled":true},
                          "nest":[["column","slice"]]})";
  EXPECT_NE(refusal(merged).find("up to 120 iterations, too many to be unrolled"), std::string::npos)
      << refusal(merged);
}

TEST(TilePrinters, WhatTritonCannotSayIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"buffer s: f32[16] scratch shared\n  copy async s[i] <- x[i] over i\n  wait 0", "shared memory"},
      {"barrier grid", "barrier"},
      {"%p: i32[i] = index (3 - i) / 2", "negative"},
      {"%w: f64[i] = constant 1.0\n  %s: f64 = fold extended_sum %w over i", "a fold by extended_sum"},
  };
  for (const auto& [line, words] : cases) {
    const tile::Program program = tile::parse_program(
        "program p {\n  grid g = 2\n  lane i = 16\n  launch warps 4\n  buffer x: f32[16] input\n"
        "  buffer y: f32[2] output\n  " +
        std::string(line) + "\n  %z: f32 = constant 0.0\n  store y[g] <- %z\n}\n");
    try {
      triton_text(program);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(TilePrinters, WhatACpuCannotSayIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"buffer s: f32[16] scratch cluster", "memory of a cluster, 's'"},
      {"barrier grid", "a barrier of several blocks"},
      {"%p: f32[i] = scan prod %w along i network", "a scan in an order of its own"},
      {"%n: i32[i] = cast %w\n  %sorted: f32[i], %along: i32[i] = scan sort_up %w, %n along i",
       "a sort that takes something else along than places"},
      {"%places: i32[i] = scan arg_max %w along i", "a scan by arg_max"},
  };
  for (const auto& [line, words] : cases) {
    const bool declares = std::string(line).starts_with("buffer");
    const tile::Program program = tile::parse_program(
        "program p {\n  grid g = 2\n  lane i = 16\n  launch warps 4\n  buffer x: f32[16] input\n"
        "  buffer y: f32[2] output\n  " +
        std::string(declares ? line : "") + "\n  %w: f32[i] = load x[i]\n  " + std::string(declares ? "" : line) +
        "\n  %z: f32 = constant 0.0\n  store y[g] <- %z\n}\n");
    try {
      cpu_text(program);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(TilePrinters, LinesOfCppAreNoLongerThanAPage) {
  const tile::Program program = lowered(
      "convolution", R"({"pixel":{"grid":32},"filter":{"grid":16},"channel":{"loop":4},"dy":{"loop":1},"dx":{"loop":1},
                         "nest":[["dy","dx","channel"]]})");
  for (const std::string& line : split_lines(cpu_text(program))) EXPECT_LE(line.size(), 120U) << line;
}

}  // namespace
}  // namespace kw
