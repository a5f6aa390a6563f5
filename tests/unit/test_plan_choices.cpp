// What the planner chooses where a GPU has shown that it matters: blocks and parts of a row, and which nodes share a
// kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/estimate.hpp"
#include "plan/plan.hpp"
#include "plan/traffic.hpp"
#include "support/error.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

Schedule schedule_of(std::string_view text) {
  Graph graph = parse_graph(text);
  fusion(graph, {});
  return default_schedule(graph, default_device("triton"));
}

TEST(Defaults, TwoLoadsAcrossRowsGetATileThatFitsTheRegisters) {
  const Schedule one = schedule_of(R"(graph G {
    input %x : f32[96, 2048, 4096] user args.0
    %sum = aten.sum.dim_IntList(self=%x, dim=[1]) : f32[96, 4096]
    return %sum
  })");
  EXPECT_EQ(one.groups.at(0).parameters.at("r_block"), 128);
  const Schedule two = schedule_of(R"(graph G {
    input %x : f32[512, 512, 768] user args.0
    input %kept : f32[512, 512, 1] user args.1
    %product = aten.mul.Tensor(self=%x, other=%kept) : f32[512, 512, 768]
    %sum = aten.sum.dim_IntList(self=%product, dim=[1]) : f32[512, 768]
    return %sum
  })");
  EXPECT_EQ(two.groups.at(0).parameters.at("x_block"), 128);
  EXPECT_EQ(two.groups.at(0).parameters.at("r_block"), 64);
}

TEST(Defaults, AsManyRowsAsProgramsThatFitTheDeviceStayWhole) {
  const Schedule schedule = schedule_of(R"(graph G {
    input %x : f32[256, 256, 56, 56] user args.0
    %variance, %mean = aten.var_mean.correction(self=%x, dim=[0, 2, 3], correction=0) : f32[256], f32[256]
    return %variance, %mean
  })");
  EXPECT_EQ(schedule.groups.at(0).parameters.at("split"), 1);
}

// Sums of 8,138 elements a lane, in three parts, were off by ten times eager's error.
TEST(Defaults, ARowOfAPrimeLengthIsCutIntoAsManyPartsAsAnother) {
  const auto parts_of = [](const char* sizes) {
    return schedule_of(std::string("graph G {\n input %x : f32") + sizes + R"( user args.0
    %norm = aten.linalg_vector_norm.default(self=%x, ord=2, dim=[0]) : f32[]
    return %norm
  })")
        .groups.at(0)
        .parameters.at("split");
  };
  EXPECT_NEAR(static_cast<double>(parts_of("[200000003]")), static_cast<double>(parts_of("[201326592]")), 100);
  EXPECT_GT(parts_of("[200000003]"), 1400);
}

TEST(Defaults, RowsThatShareASamplesScaleAreTakenTogether) {
  const auto rows_of_a_tile = [](const char* scale) {
    return schedule_of(std::string("graph G {\n input %x : f32[128, 256, 1152] user args.0\n input %scale : f32") +
                       scale + R"( user args.1
    %norm = aten.layer_norm.default(input=%x, normalized_shape=[1152], eps=1e-06, cudnn_enable=false) : f32[128, 256, 1152]
    %scaled = aten.mul.Tensor(self=%norm, other=%scale) : f32[128, 256, 1152]
    %out = aten.add.Tensor(self=%scaled, other=%scale) : f32[128, 256, 1152]
    return %out
  })")
        .groups.at(0)
        .parameters.at("x_block");
  };
  EXPECT_EQ(rows_of_a_tile("[128, 1, 1152]"), 1);  // one such load for two of the row's own
  EXPECT_EQ(rows_of_a_tile("[1152]"), 1);          // all rows' scale stays in the first cache
  EXPECT_EQ(schedule_of(R"(graph G {
    input %x : f32[128, 256, 1152] user args.0
    input %scale : f32[128, 1, 1152] user args.1
    input %shift : f32[128, 1, 1152] user args.2
    %norm = aten.layer_norm.default(input=%x, normalized_shape=[1152], eps=1e-06, cudnn_enable=false) : f32[128, 256, 1152]
    %scaled = aten.mul.Tensor(self=%norm, other=%scale) : f32[128, 256, 1152]
    %out = aten.add.Tensor(self=%scaled, other=%shift) : f32[128, 256, 1152]
    return %out
  })")
                .groups.at(0)
                .parameters.at("x_block"),
            4);
}

TEST(Defaults, HeavyArithmeticIsNotDoneInPaddedLanes) {
  const auto parameters_of = [](const char* call) {
    return schedule_of(std::string(R"(graph G {
    input %x : f32[4096, 576] user args.0
    input %power : f32[1] user args.1
    %term = )") + call +
                       R"(%power) : f32[4096, 576]
    %mean = aten.mean.dim(self=%term, dim=[1]) : f32[4096]
    return %mean
  })")
        .groups.at(0)
        .parameters;
  };
  const auto light = parameters_of("aten.mul.Tensor(self=%x, other="),
             heavy = parameters_of("aten.pow.Tensor_Tensor(self=%x, exponent=");
  EXPECT_EQ(light.at("persistent"), 1);
  EXPECT_EQ(heavy.at("persistent"), 0);
  EXPECT_EQ(heavy.at("r_block"), 128);  // 5 · 128 = 640, where a power of two around 576 is 1024
}

TEST(Defaults, ProgramsThatKeepTheirBlockHaveRoomForWhatFollows) {
  const auto block = [](const char* shape, const char* last) {
    return schedule_of(std::string("graph G {\n input %x : f32") + shape +
                       " user args.0\n %norm = aten.group_norm.default(input=%x, num_groups=32, eps=1e-05, "
                       "cudnn_enabled=false) : f32" +
                       shape + "\n %out = aten." + last + ".default(self=%norm) : f32" + shape + "\n return %out\n}")
        .groups.at(0)
        .parameters.at("cooperative_block");
  };
  EXPECT_EQ(block("[32, 320, 128, 128]", "relu"), 8192);
  EXPECT_EQ(block("[32, 320, 128, 128]", "silu"), 8192);
  EXPECT_EQ(block("[32, 320, 128, 128]", "gelu"), 4096);
}

TEST(Defaults, ProgramsThatKeepTheirBlockHaveRoomForWhatComesBefore) {
  const auto block = [](const char* shape, const char* first) {
    return schedule_of(
               std::string("graph G {\n input %x : f32") + shape + " user args.0\n %in = aten." + first +
               ".default(self=%x) : f32" + shape +
               "\n %norm = aten.group_norm.default(input=%in, num_groups=32, eps=1e-05, cudnn_enabled=false) : f32" +
               shape + "\n return %norm\n}")
        .groups.at(0)
        .parameters.at("cooperative_block");
  };
  EXPECT_EQ(block("[32, 320, 128, 128]", "relu"), 8192);
  EXPECT_EQ(block("[32, 320, 128, 128]", "silu"), 4096);
  EXPECT_EQ(block("[32, 320, 128, 128]", "gelu"), 2048);
}

TEST(Defaults, PlacesAcrossRowsTakeManyWarps) {
  const auto warps = [](const char* op, const char* type) {
    return schedule_of(std::string("graph G {\n input %x : f32[128, 4096, 4095] user args.0\n %y = aten.") + op +
                       " : " + type + "[128, 4095]\n return %y\n}")
        .groups.at(0)
        .parameters.at("num_warps");
  };
  EXPECT_EQ(warps("argmax.default(self=%x, dim=1)", "i64"), 16);
  EXPECT_EQ(warps("amax.default(self=%x, dim=[1])", "f32"), 4);
}

TEST(Defaults, RowsAcrossOthersThatAreKeptTakeFewWarps) {
  const auto warps = [](const char* text) { return schedule_of(text).groups.at(0).parameters.at("num_warps"); };
  EXPECT_EQ(warps("graph G {\n input %x : f32[128, 24, 30, 32] user args.0\n %y = aten.amin.default(self=%x, dim=[1]) "
                  ": f32[128, 30, 32]\n return %y\n}"),
            4);
  EXPECT_EQ(warps("graph G {\n input %x : f32[16, 64, 128, 128] user args.0\n %y = aten.softmax.int(self=%x, dim=1) : "
                  "f32[16, 64, 128, 128]\n return %y\n}"),
            4);
  EXPECT_EQ(warps(R"(graph G {
    input %x : f32[16, 64, 128, 128] user args.0
    %p = aten.pow.Tensor_Scalar(self=%x, exponent=2) : f32[16, 64, 128, 128]
    %m = aten.mean.dim(self=%p, dim=[1], keepdim=true) : f32[16, 1, 128, 128]
    %y = aten.div.Tensor(self=%x, other=%m) : f32[16, 64, 128, 128]
    return %y
  })"),
            8);
}

// What a call moves: of inputs what is reached, and of what it updates the slice.
TEST(MovedBytes, AreOfWhatIsReachedAndUpdated) {
  const auto moved = [](std::string_view text) {
    const Graph graph = parse_graph(text);
    const plan::GraphFacts facts(graph, {});
    std::vector<NodeId> nodes(graph.nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    std::vector<ValueId> outputs;
    for (const GraphOutput& output : graph.outputs) outputs.push_back(output.value);
    const plan::MovedBytes bytes = plan::moved_bytes(facts, nodes, outputs);
    return std::pair(bytes.read, bytes.written);
  };
  EXPECT_EQ(moved(R"(graph G {
    input %x : f32[1000, 64] user args.0
    %some = aten.slice.Tensor(self=%x, dim=0, start=0, end=10) : f32[10, 64]
    %y = aten.relu.default(self=%some) : f32[10, 64]
    %z = aten.neg.default(self=%some) : f32[10, 64]
    return %y, %z
  })"),
            std::pair(4.0 * 640, 4.0 * 2 * 640));
  EXPECT_EQ(moved(R"(graph G {
    input %k : f32[4, 1, 64] user args.0
    input %cache : f32[4, 1000, 64] user args.1
    %new = aten.slice_scatter.default(self=%cache, src=%k, dim=1, start=9, end=10) : f32[4, 1000, 64]
    %some = aten.slice.Tensor(self=%new, dim=1, start=0, end=10) : f32[4, 10, 64] strides [64000, 64, 1]
    %y = aten.relu.default(self=%some) : f32[4, 10, 64]
    return input "args.1" %new, %y
  })"),
            std::pair(4.0 * (256 + 9 * 256), 4.0 * (256 + 2560)));
}

// The names of each group's results, groups in the order in which they run.
std::vector<std::string> groups_of(std::string_view text) {
  Graph graph = parse_graph(text);
  fusion(graph, {});
  std::vector<std::string> groups;
  for (const auto& nodes : graph.groups) {
    std::string names;
    for (NodeId node : nodes) names += (names.empty() ? "" : " ") + graph.values[graph.nodes[node].results[0]].name;
    groups.push_back(names);
  }
  return groups;
}

TEST(Groupings, ValuesMadeFromOneAreComputedWhereTheyAreRead) {
  // Three products of one sum would cross from kernel to kernel; the sum crosses alone. The sums' rows are of different
  // lengths.
  EXPECT_EQ(groups_of(R"(graph G {
    input %x : f32[4096, 4] user args.0
    input %y : f32[4096, 16] user args.1
    input %a : f32[4096, 1] user args.2
    %short = aten.sum.dim_IntList(self=%x, dim=[1], keepdim=true) : f32[4096, 1]
    %double = aten.mul.Tensor(self=%short, other=2.0) : f32[4096, 1]
    %square = aten.mul.Tensor(self=%short, other=%short) : f32[4096, 1]
    %scaled = aten.mul.Tensor(self=%short, other=%a) : f32[4096, 1]
    %one = aten.mul.Tensor(self=%y, other=%double) : f32[4096, 16]
    %two = aten.add.Tensor(self=%one, other=%square) : f32[4096, 16]
    %three = aten.add.Tensor(self=%two, other=%scaled) : f32[4096, 16]
    %long = aten.sum.dim_IntList(self=%three, dim=[1], keepdim=true) : f32[4096, 1]
    return %long
  })"),
            (std::vector<std::string>{"short", "double square scaled one two three long"}));
}

TEST(Groupings, CountersAreOneKernelWhereverTheyStand) {
  std::string text = "graph G {\n input %x : f32[64, 64] user args.0\n";
  for (int i = 0; i < 8; ++i)
    text += " input %count_" + std::to_string(i) + " : i64[] buffer \"count_" + std::to_string(i) + "\"\n";
  std::string last = "x", outputs;
  for (int i = 0; i < 8; ++i) {
    const std::string number = std::to_string(i);
    text += " %more_" + number + " = aten.add.Tensor(self=%count_" + number + ", other=1) : i64[]\n";
    text += " %product_" + number + " = aten.mm.default(self=%" + last + ", mat2=%x) : f32[64, 64]\n";
    last = "product_" + number;
    outputs += "buffer \"count_" + number + "\" %more_" + number + ", ";
  }
  const auto groups = groups_of(text + " return " + outputs + "%" + last + "\n}");
  EXPECT_EQ(groups.size(), 9u);
  EXPECT_NE(std::find(groups.begin(), groups.end(), "more_0 more_1 more_2 more_3 more_4 more_5 more_6 more_7"),
            groups.end());
}

TEST(Groupings, SmallKernelsThatWaitForEachOtherStayApart) {
  // %b needs the library's product, which needs %a.
  const auto groups = groups_of(R"(graph G {
    input %x : f32[8, 8] user args.0
    %a = aten.add.Tensor(self=%x, other=1.0) : f32[8, 8]
    %product = aten.mm.default(self=%a, mat2=%x) : f32[8, 8]
    %b = aten.mul.Tensor(self=%product, other=2.0) : f32[8, 8]
    return %b
  })");
  EXPECT_EQ(groups, (std::vector<std::string>{"a", "product", "b"}));
}

TEST(Groupings, ReadersOfOneTensorShareAKernelHoweverFarApart) {
  // Five library calls stand between the two in the order in which the tensor is read.
  std::string text =
      "graph G {\n input %x : f32[4096, 4096] user args.0\n input %w : f32[4096, 16] user args.1\n %first = "
      "aten.relu.default(self=%x) : f32[4096, 4096]\n";
  std::string outputs = "%first";
  for (int i = 0; i < 5; ++i) {
    text += " %product_" + std::to_string(i) + " = aten.mm.default(self=%x, mat2=%w) : f32[4096, 16]\n";
    outputs += ", %product_" + std::to_string(i);
  }
  const auto groups = groups_of(text + " %second = aten.sigmoid.default(self=%x) : f32[4096, 4096]\n return " +
                                outputs + ", %second\n}");
  EXPECT_NE(std::find(groups.begin(), groups.end(), "first second"), groups.end());
}

KernelEstimate estimate_of(std::string_view text) {
  Graph graph = parse_graph(text);
  fusion(graph, {});
  const DeviceDescription device = default_device("triton");
  const Program program = make_program(graph, default_schedule(graph, device), device);
  return estimate(program.tiles.at(0), device);
}

TEST(Estimate, WhatOverlappingWindowsReadAgainComesOutOfTheCacheOrARegister) {
  const auto pooled = [](const std::string& side, const std::string& stride) {
    return estimate_of(
        "graph G {\n input %x : f32[16, 64, 128, 128] user args.0\n %out, %places = "
        "aten.max_pool2d_with_indices.default(self=%x, kernel_size=[4, 4], stride=[" +
        stride + "]) : f32[16, 64, " + side + "], i64[16, 64, " + side + "]\n return %out\n}");
  };
  const double input = 16.0 * 64 * 128 * 128 * 4;
  const KernelEstimate apart = pooled("32, 32", "4, 4"), overlapping = pooled("125, 125", "1, 1");
  EXPECT_LT(apart.cache_bytes, input);
  // Eight rows of four results read 11 rows of 7 elements: 77 for 32, where every window by itself reads 16.
  EXPECT_GT(overlapping.cache_bytes, input);
  EXPECT_LT(overlapping.cache_bytes, 4 * input);
  EXPECT_LT(overlapping.memory_bytes, 4 * input);
}

TEST(Estimate, AScanWaitsInEveryBlock) {
  const auto seconds = [](const char* call) {
    return estimate_of(std::string("graph G {\n input %x : f32[128, 1048576] user args.0\n %out = ") + call +
                       " : f32[128, 1048576]\n return %out\n}")
        .seconds;
  };
  EXPECT_GT(seconds("aten.cumsum.default(self=%x, dim=1)"), seconds("aten.relu.default(self=%x)"));
}

// --- What a schedule may say ---

struct Told {
  Graph graph;
  Schedule schedule;
  DeviceDescription device;
};

Told told(std::string_view text, const char* target = "triton") {
  Told one{parse_graph(text), {}, default_device(target)};
  fusion(one.graph, {});
  one.schedule = default_schedule(one.graph, one.device);
  return one;
}

constexpr const char* kSum = R"(graph G {
    input %x : f32[64, 4096] user args.0
    %sum = aten.sum.dim_IntList(self=%x, dim=[1]) : f32[64]
    return %sum
  })";
constexpr const char* kProducts = R"(graph G {
    input %x : f32[64, 4096] user args.0
    %products = aten.cumprod.default(self=%x, dim=1) : f32[64, 4096]
    return %products
  })";
constexpr const char* kPool = R"(graph G {
    input %x : f32[8, 64, 64, 64] user args.0
    %pooled = aten.avg_pool2d.default(self=%x, kernel_size=[9, 9], stride=[1, 1]) : f32[8, 64, 56, 56]
    return %pooled
  })";
constexpr const char* kRelu = R"(graph G {
    input %x : f32[64, 4096] user args.0
    %out = aten.relu.default(self=%x) : f32[64, 4096]
    return %out
  })";

constexpr const char* kBias = R"(graph G {
    input %x : f32[64, 100] user args.0
    input %w : f32[100] user args.1
    %out = aten.add.Tensor(self=%x, other=%w) : f32[64, 100]
    return %out
  })";

std::string refusal(Told one, const char* name, int64_t value) {
  one.schedule.groups.at(0).parameters[name] = value;
  try {
    make_program(one.graph, one.schedule, one.device);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.text().message + " | " + error.text().hint;
  }
  return "";
}

TEST(SchedulesFromOutside, AMisspeltParameterIsNamedWithTheNearestThatThereIs) {
  EXPECT_EQ(refusal(told(kSum), "num_wraps", 8),
            "the schedule gives group 0 (aten.sum.dim_IntList), scheduler 'reduction' on triton, the parameter "
            "'num_wraps' = 8, which it does not take | Did you mean 'num_warps'? It takes num_warps, x_block, "
            "persistent, cooperative_block, r_block, split, last_block.");
}

TEST(SchedulesFromOutside, AnotherSchedulersOrTargetsParameterIsRefused) {
  EXPECT_NE(refusal(told(kSum), "prefetch", 2), "");
  EXPECT_NE(refusal(told(kSum), "tile", 32), "");
  EXPECT_NE(refusal(told(kSum, "cpu"), "num_warps", 4), "");
  EXPECT_NE(refusal(told(kSum, "cpu"), "keep", 65536).find("which it does not take"), std::string::npos);
  EXPECT_NE(refusal(told(kSum, "cpu"), "across", 1), "");
  EXPECT_EQ(refusal(told(kPool, "cpu"), "across", 1), "");
  Told call = told(kSum);
  call.schedule.groups.at(0).scheduler = "extern";
  call.schedule.groups.at(0).parameters.clear();
  EXPECT_EQ(refusal(call, "num_warps", 4),
            "the schedule gives group 0 (aten.sum.dim_IntList), scheduler 'extern' on triton, the parameter "
            "'num_warps' = 4, which it does not take | It takes no parameters.");
}

// An archive may hold parameters by names of other versions: refused, and never taken for another parameter.
TEST(SchedulesFromOutside, AParameterOfAnotherVersionIsRefusedByName) {
  const std::pair<const char*, const char*> names[] = {{kSum, "exchange"}, {kSum, "together"}, {kProducts, "ahead"}};
  for (const auto& [graph, name] : names) {
    const std::string refused = refusal(told(graph), name, 0);
    EXPECT_NE(refused.find("'" + std::string(name) + "' = 0, which it does not take"), std::string::npos) << refused;
  }
}

TEST(SchedulesFromOutside, AValueOutOfRangeIsRefused) {
  EXPECT_EQ(
      refusal(told(kProducts), "prefetch", 0),
      "the schedule gives group 0 (aten.cumprod.default), scheduler 'scan' on triton, the parameter 'prefetch' = 0, "
      "which is not allowed | 'prefetch' takes a power of two from 1 to 256.");
  for (const int64_t warps : {-1, 0, 3, 64}) EXPECT_NE(refusal(told(kSum), "num_warps", warps), "") << warps;
  for (const int64_t block : {-4, 0, 48, 1 << 21}) EXPECT_NE(refusal(told(kRelu), "block", block), "") << block;
  EXPECT_NE(refusal(told(kSum), "persistent", 2), "");
  EXPECT_NE(refusal(told(kSum), "cooperative_block", 1000), "");
  EXPECT_EQ(refusal(told(kSum), "cooperative_block", 0), "");
  EXPECT_NE(refusal(told(kRelu), "layout", 5), "");
  EXPECT_EQ(refusal(told(kBias), "layout", 4), "");  // axes that are not short
  EXPECT_NE(refusal(told(kPool), "columns", 0), "");
  EXPECT_NE(refusal(told(kRelu, "cpu"), "along", -1), "");
  EXPECT_NE(refusal(told(kRelu, "cpu"), "share", -1), "");
}

TEST(SchedulesFromOutside, AnUnknownSchedulerIsRefusedEvenWhereItsGroupStoresNothing) {
  Told one = told(kSum);
  one.schedule.groups.push_back(one.schedule.groups.front());  // computed by the first: stores nothing
  one.schedule.groups.back().scheduler = "reductoin";
  try {
    make_program(one.graph, one.schedule, one.device);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_TRUE(error.text().hint.starts_with("Did you mean 'reduction'?")) << error.text().hint;
  }
}

TEST(SchedulesFromOutside, ASchedulesTargetAndNodesAreChecked) {
  Told other = told(kRelu, "cpu");
  EXPECT_THROW(make_program(other.graph, other.schedule, default_device("triton")), Error);
  Told twice = told(kRelu);
  twice.schedule.groups.at(0).nodes = {0, 0};
  EXPECT_THROW(make_program(twice.graph, twice.schedule, twice.device), Error);
  Told empty = told(kRelu);
  empty.schedule.groups.push_back({.nodes = {}, .scheduler = "pointwise", .parameters = {}});
  EXPECT_THROW(make_program(empty.graph, empty.schedule, empty.device), Error);
}

TEST(SchedulesFromOutside, EverythingThatASearchTriesIsTaken) {
  for (const char* target : {"triton", "cpu"})
    for (const char* text : {kSum, kProducts, kPool, kRelu}) {
      const Told one = told(text, target);
      const auto space = search_space(one.graph, one.schedule, one.device);
      ASSERT_FALSE(space.at(0).empty()) << text << target;
      for (const auto& range : space.at(0))
        for (const int64_t value : range.values)
          EXPECT_EQ(refusal(one, range.name.c_str(), value), "") << target << range.name << value;
    }
}

// "The printer chooses" and "no" are two things for `across`: what a schedule leaves out is not always 0.
TEST(SchedulesFromOutside, ARangeSaysWhatASilentScheduleStandsFor) {
  const auto unsaid = [](const char* text, const char* target, std::string_view name) {
    const Told one = told(text, target);
    const auto space = search_space(one.graph, one.schedule, one.device);
    for (const auto& range : space.at(0))
      if (range.name == name) return range.unsaid;
    return int64_t{-1};
  };
  EXPECT_EQ(unsaid(kPool, "cpu", "across"), 1);
  EXPECT_EQ(unsaid(kRelu, "cpu", "share"), 0);
  const char* few =
      "graph G {\n input %x : f32[40000000] user args.0\n %sum = aten.sum.default(self=%x) : f32[]\n "
      "return %sum\n}";
  EXPECT_EQ(unsaid(few, "triton", "last_block"), 1);
}

// Extremes together: a random schedule either is refused as the user's, or gives kernels that hold together.
TEST(SchedulesFromOutside, RandomParametersAreTakenOrRefusedAsTheUsers) {
  std::mt19937 random(7);
  int taken = 0, refused = 0;
  for (const char* target : {"triton", "cpu"})
    for (const char* text : {kSum, kProducts, kPool, kRelu}) {
      Told one = told(text, target);
      GroupSchedule& group = one.schedule.groups.at(0);
      const auto& specs = plan::find_scheduler(group.scheduler, one.device)->takes().specs();
      for (int round = 0; round < 50; ++round) {
        group.parameters.clear();
        for (const plan::ParameterSpec& spec : specs) {
          const int64_t values[] = {spec.least, spec.most, spec.unsaid, int64_t{1} << random() % 12, spec.most + 1};
          group.parameters[std::string(spec.name)] = values[random() % (round % 4 == 0 ? 5 : 3)];
        }
        try {
          make_program(one.graph, one.schedule, one.device);
          ++taken;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
          ++refused;
        }
      }
    }
  EXPECT_GE(taken, 300);
  EXPECT_GE(refused, 20);
}

}  // namespace
}  // namespace kw
