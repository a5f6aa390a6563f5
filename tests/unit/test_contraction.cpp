// Which matrix products become kernels of ours, with what, and in how many kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/device_limits.hpp"
#include "plan/estimate.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "plan/product.hpp"
#include "support/error.hpp"
#include "target/target.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw {
namespace {

Graph fused(const std::string& text, const std::string& how = "") {
  Graph graph = parse_graph("graph G on cuda " + how + "{\n" + text + "\n}");
  fusion(graph, {});
  return graph;
}

std::optional<plan::Product> product_in(const std::string& text) {
  const Graph graph = fused(text);
  const plan::GraphFacts facts(graph, {});
  std::optional<plan::Product> found;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node)
    if (const auto product = plan::product_of(facts, node)) found = product;
  return found;
}

Schedule joined(const Graph& graph) {
  const DeviceDescription device = default_device("triton");
  return join_products(graph, default_schedule(graph, device), device);
}

std::vector<std::string> schedulers_of(const std::string& text) {
  std::vector<std::string> names;
  for (const GroupSchedule& group : joined(fused(text)).groups) names.push_back(group.scheduler);
  return names;
}

using Names = std::vector<std::string>;

TEST(Products, SharedBatchesAreRows) {
  const auto product = product_in(R"(
    input %x : f32[4, 5, 30] user args.0
    input %w : f32[20, 30] user args.1
    %y = aten.linear.default(input=%x, weight=%w) : f32[4, 5, 20]
    return %y)");
  ASSERT_TRUE(product);
  EXPECT_TRUE(product->batch.empty());
  EXPECT_EQ(std::tuple(product->rows, product->columns, product->depth), std::tuple(20, 20, 30));
  EXPECT_EQ(std::tuple(product->right.column, product->right.depth), std::tuple(30, 1));
  EXPECT_EQ(product->flops(), 2.0 * 20 * 20 * 30);
}

TEST(Products, BatchesOfTheirOwnStay) {
  const auto product = product_in(R"(
    input %a : f32[2, 1, 5, 30] user args.0
    input %b : f32[3, 30, 7] user args.1
    %y = aten.matmul.default(self=%a, other=%b) : f32[2, 3, 5, 7]
    return %y)");
  ASSERT_TRUE(product);
  EXPECT_EQ(product->batch, (Shape{2, 3}));
  EXPECT_EQ(product->left.batch, (Shape{150, 0}));
  EXPECT_EQ(product->right.batch, (Shape{0, 210}));
}

TEST(Products, ViewsAreStrides) {
  const auto product = product_in(R"(
    input %a : f32[30, 50] user args.0
    input %b : f32[30, 7] user args.1
    %t = aten.permute.default(self=%a, dims=[1, 0]) : f32[50, 30] strides [1, 50]
    %y = aten.mm.default(self=%t, mat2=%b) : f32[50, 7]
    return %y)");
  ASSERT_TRUE(product);
  EXPECT_EQ(std::tuple(product->left.row, product->left.depth), std::tuple(1, 50));
}

TEST(Products, OthersAreTheLibrarys) {
  EXPECT_FALSE(product_in(R"(
    input %a : f64[8, 8] user args.0
    %y = aten.mm.default(self=%a, mat2=%a) : f64[8, 8]
    return %y)"));
  EXPECT_FALSE(product_in(R"(
    input %a : f32[8, 0] user args.0
    input %b : f32[0, 8] user args.1
    %y = aten.mm.default(self=%a, mat2=%b) : f32[8, 8]
    return %y)"));
  EXPECT_FALSE(product_in(R"(
    input %a : f32[8, 8] user args.0
    input %b : f32[8] user args.1
    %y = aten.matmul.default(self=%a, other=%b) : f32[8]
    return %y)"));
}

constexpr const char* kLarge = R"(
  input %x : f32[4096, 4096] user args.0
  input %w : f32[4096, 4096] user args.1
  %y = aten.linear.default(input=%x, weight=%w) : f32[4096, 4096]
  %r = aten.relu.default(self=%y) : f32[4096, 4096]
)";

TEST(Joining, TakesWhatFollowsElementByElement) {
  EXPECT_EQ(schedulers_of(std::string(kLarge) + "return %r"), Names{"contraction"});
}

// A second reader, or a caller who wants it, gets the product itself.
TEST(Joining, TakesTheProductAloneWhereOthersReadIt) {
  EXPECT_EQ(schedulers_of(std::string(kLarge) + "return %r, %y"), (Names{"contraction", "pointwise"}));
  EXPECT_EQ(schedulers_of(std::string(kLarge) + R"(
    %s = aten.sum.dim_IntList(self=%r, dim=[1]) : f32[4096]
    return %y, %s)"),
            (Names{"contraction", "reduction"}));
}

// Of more columns than a block has, and of rows; but not what needs the product again, or one fold behind another.
TEST(Joining, FoldsPartsOfRowsAndColumns) {
  for (const char* dim : {"0", "1"}) {
    const std::string sum = std::string(kLarge) + "%s = aten.sum.dim_IntList(self=%r, dim=[" + dim +
                            "]) : f32[4096]\n    return %s";
    EXPECT_EQ(schedulers_of(sum), Names{"contraction"});
    EXPECT_EQ(schedulers_of(sum + ", %r"), Names{"contraction"});
    const std::string softmax = std::string(kLarge) + "%s = aten._softmax.default(self=%r, dim=" + dim +
                                ", half_to_float=false) : f32[4096, 4096]\n    return %s";
    EXPECT_EQ(schedulers_of(softmax).size(), 2U);
  }
}

TEST(Joining, LeavesSmallProductsAndMatricesTimesVectors) {
  EXPECT_EQ(schedulers_of(R"(
    input %x : f32[64, 64] user args.0
    %y = aten.mm.default(self=%x, mat2=%x) : f32[64, 64]
    return %y)"),
            Names{"extern"});
  EXPECT_EQ(schedulers_of(R"(
    input %x : f32[8192, 8192] user args.0
    input %v : f32[8192, 1] user args.1
    %y = aten.mm.default(self=%x, mat2=%v) : f32[8192, 1]
    return %y)"),
            Names{"extern"});
}

TEST(Joining, LeavesAllToTheLibraryWithoutTensorCores) {
  const Graph graph = fused(std::string(kLarge) + "return %r");
  DeviceDescription device = default_device("triton");
  device.half_flops = 0;
  const Schedule before = default_schedule(graph, device);
  EXPECT_EQ(join_products(graph, before, device), before);
}

Names kernels_of(const Program& program) {
  Names names;
  for (const Step& step : program.steps)
    if (const auto* tiles = std::get_if<TileStep>(&step)) names.push_back(program.tiles[tiles->program].name);
  return names;
}

int64_t programs_of(const tile::Program& program) {
  int64_t programs = 1;
  for (const tile::Symbol symbol : program.grid) programs *= *kernel::as_constant(program.symbols[symbol].count);
  return programs;
}

TEST(Contraction, SplitsMultipliesAndRepairs) {
  const Graph graph = fused(std::string(kLarge) + "return %r");
  const Program program = make_program(graph, joined(graph), default_device("triton"));
  EXPECT_EQ(kernels_of(program),
            (Names{"split_x_kernel", "split_w_kernel", "linear_relu_kernel", "linear_relu_kernel_in_f32"}));
}

std::string square(int64_t rows, int64_t columns, int64_t depth, const std::string& dtype) {
  return fmt::format(R"(
    input %x : {3}[{0}, {2}] user args.0
    input %w : {3}[{1}, {2}] user args.1
    %y = aten.linear.default(input=%x, weight=%w) : {3}[{0}, {1}]
    %r = aten.relu.default(self=%y) : {3}[{0}, {1}]
    return %r)",
                     rows, columns, depth, dtype);
}

TEST(Contraction, PowerLimitsProductsOfSomeMilliseconds) {
  DeviceDescription cool = default_device("triton");
  const double share = cool.sustained_share;
  EXPECT_EQ(share, 0.86);
  cool.sustained_share = 1;
  cool.copy_bytes_per_second = cool.fp32_flops = 1e18;
  const Graph graph = fused(square(8192, 8192, 8192, "f32"));
  const Program program = make_program(graph, joined(graph), cool);
  const tile::Program& product = program.tiles.at(2);
  const double rate = cool.half_flops, seconds = seconds_of(product, cool);
  for (const auto& [milliseconds, loss] :
       {std::pair(0.5, 0.0), {1.0, 0.0}, {1.999, 0.0}, {3.0, 0.5}, {4.001, 1.0}, {40.0, 1.0}}) {
    cool.half_flops = rate * seconds * 1e3 / milliseconds;
    DeviceDescription limited = cool;
    limited.sustained_share = share;
    const double before = seconds_of(product, cool);
    ASSERT_NEAR(before * 1e3, milliseconds, 1e-6) << "products alone take time";
    EXPECT_NEAR(seconds_of(product, limited), before * (1 + loss * (1 / share - 1)), 1e-6 * before) << milliseconds;
    limited.sustained_share = 1;
    EXPECT_EQ(seconds_of(product, limited), before);
  }
}

TEST(Contraction, PowerChangesNoSchedule) {
  DeviceDescription device = default_device("triton");
  for (const char* dtype : {"f32", "bf16", "f16"})
    for (const auto& [rows, columns, depth] : {std::tuple(2048, 2048, 2048),
                                               {4096, 4096, 4096},
                                               {2048, 4096, 8192},
                                               {1024, 8192, 8192},
                                               {32768, 32, 32768},
                                               {16384, 16384, 64},
                                               {8192, 8192, 8192},
                                               {16384, 16384, 16384}}) {
      const Graph graph = fused(square(rows, columns, depth, dtype));
      std::vector<Schedule> made;
      for (const double share : {1.0, 0.86, 0.5}) {
        device.sustained_share = share;
        made.push_back(default_schedule(graph, device));
        target_of(device).join_groups(graph, made.back(), device);
      }
      EXPECT_EQ(made[0], made[1]) << rows << " " << columns << " " << depth << " " << dtype;
      EXPECT_EQ(made[0], made[2]) << rows << " " << columns << " " << depth << " " << dtype;
    }
}

// One half has TF32's digits. Vectors are multiplied in single precision, whatever PyTorch may.
TEST(Contraction, IsOfOneHalfWherePyTorchMayUseTf32) {
  const std::string with = "with tf32 products ", text = std::string(kLarge) + "return %r";
  const Graph graph = fused(text, with);
  const DeviceDescription device = default_device("triton");
  Schedule schedule = joined(graph);
  EXPECT_EQ(schedule.groups.at(0).parameters.at("scheme"), 4);
  const Program program = make_program(graph, schedule, device);
  EXPECT_EQ(kernels_of(program),
            (Names{"split_x_kernel", "split_w_kernel", "linear_relu_kernel", "linear_relu_kernel_in_tf32"}));
  const auto count = [](const tile::Program& made, tile::Kind kind) {
    int found = 0;
    tile::for_each(made.body, [&](const tile::Instruction& one) { found += one.kind == kind ? 1 : 0; });
    return found;
  };
  EXPECT_EQ(count(program.tiles.at(2), tile::Kind::kDot), 1);
  EXPECT_LT(seconds_of(program.tiles.at(2), device),
            0.5 * seconds_of(make_program(fused(text), joined(fused(text)), device).tiles.at(2), device));
  // Three products are never worse; where PyTorch rounds nothing, one half is not for the asking.
  schedule = joined(fused(text));
  EXPECT_EQ(count(make_program(graph, schedule, device).tiles.at(2), tile::Kind::kDot), 3);
  schedule.groups[0].parameters["scheme"] = 4;
  EXPECT_EQ(count(make_program(fused(text), schedule, device).tiles.at(2), tile::Kind::kDot), 3);
  const Graph vector = fused(R"(
    input %x : f32[1, 4096] user args.0
    input %w : f32[4096, 4096] user args.1
    %y = aten.linear.default(input=%x, weight=%w) : f32[1, 4096]
    return %y)",
                             with);
  EXPECT_FALSE(plan::product_of(plan::GraphFacts(vector, {}), 0)->rounded);
}

// Four blocks, each of which would walk all of the depth.
TEST(Contraction, FewBlocksShareOutALongDepth) {
  const Graph graph = fused(R"(
    input %a : f32[256, 524288] user args.0
    input %b : f32[524288, 256] user args.1
    %y = aten.mm.default(self=%a, mat2=%b) : f32[256, 256]
    return %y)");
  const DeviceDescription device = default_device("triton");
  const Schedule schedule = joined(graph);
  const Program program = make_program(graph, schedule, device);
  EXPECT_EQ(kernels_of(program),
            (Names{"split_a_kernel", "split_b_kernel", "mm_kernel", "mm_kernel_in_f32", "mm_kernel_of_parts"}));
  const auto pairs = [](const Program& made) {
    return programs_of(made.tiles.at(2)) / made.tiles.at(2).consumers.count;
  };
  EXPECT_LE(pairs(program), device.units);
  EXPECT_GT(2 * pairs(program), device.units);
  // A scale for each row in each part.
  EXPECT_EQ(programs_of(program.tiles.at(0)), 256 * 32);
  // Whole steps: as many parts as divide them.
  Schedule other = schedule;
  other.groups[0].parameters["split_k"] = 31;
  EXPECT_EQ(pairs(make_program(graph, other, device)), 16 * 4);
  other.groups[0].parameters["split_k"] = 1;
  EXPECT_EQ(kernels_of(make_program(graph, other, device)),
            (Names{"split_a_kernel", "split_b_kernel", "mm_kernel", "mm_kernel_in_f32"}));
  other.groups[0].parameters["split_k"] = 65;
  EXPECT_THROW(make_program(graph, other, device), Error);
}

// What follows waits for all parts, also where it folds rows, whose blocks need not have them whole then.
TEST(Contraction, WhatFollowsIsMadeOfTheSumOfParts) {
  const Graph graph = fused(R"(
    input %a : bf16[64, 65536] user args.0
    input %b : bf16[65536, 64] user args.1
    %y = aten.mm.default(self=%a, mat2=%b) : bf16[64, 64]
    %r = aten.amax.default(self=%y, dim=[1]) : bf16[64]
    return %r)");
  Schedule schedule = joined(graph);
  if (schedule.groups.size() == 2) {  // as one, whatever that takes
    schedule.groups[0].nodes.push_back(schedule.groups[1].nodes[0]);
    schedule.groups.pop_back();
    schedule.groups[0].scheduler = "contraction";
  }
  schedule.groups[0].parameters = {{"block_m", 16}, {"block_n", 16}, {"split_k", 4}};
  const Program program = make_program(graph, schedule, default_device("triton"));
  EXPECT_EQ(kernels_of(program).size(), 2u);
  EXPECT_EQ(programs_of(program.tiles.at(0)), 4 * 4 * 4);
}

TEST(Contraction, ManyBlocksHaveAllOfTheDepth) {
  for (const GroupSchedule& group : joined(fused(std::string(kLarge) + "return %r")).groups)
    EXPECT_EQ(group.parameters.at("split_k"), 1);
}

// Of a result of 16384 by 16384, whose second kernel has nothing to do but to look, as a rule.
TEST(Contraction, FewProgramsLookAtManyBlocks) {
  const Graph graph = fused(R"(
    input %a : f32[16384, 64] user args.0
    input %b : f32[64, 16384] user args.1
    %y = aten.mm.default(self=%a, mat2=%b) : f32[16384, 16384]
    return %y)");
  const Program program = make_program(graph, joined(graph), default_device("triton"));
  EXPECT_EQ(program.tiles.at(3).name, "mm_kernel_in_f32");
  EXPECT_GE(programs_of(program.tiles.at(2)), 16384);
  EXPECT_LE(programs_of(program.tiles.at(3)), 4096);
}

// Queries, keys and values of one input: its rows are split once, each weight's columns by themselves.
TEST(Contraction, SplitsWhatSeveralProductsReadOnce) {
  const auto text = [](const char* other) {
    return std::string(R"(
    input %x : f32[8192, 2048] user args.0
    input %q : f32[2048, 2048] user args.1
    input %k : f32[2048, 2048] user args.2
    input %v : f32[2048, 2048] user args.3
    input %z : f32[8192, 2048] user args.4
    %a = aten.linear.default(input=%x, weight=%q) : f32[8192, 2048]
    %b = aten.linear.default(input=%x, weight=%k) : f32[8192, 2048]
    %c = aten.linear.default(input=)") +
           other + R"(, weight=%v) : f32[8192, 2048]
    return %a, %b, %c)";
  };
  const DeviceDescription device = default_device("triton");
  const auto made = [&](const Graph& graph, const Schedule& schedule) { return make_program(graph, schedule, device); };
  const auto splits_of = [&](const Program& program) {
    const Names names = kernels_of(program);
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& name) { return name.starts_with("split_"); });
  };
  const Graph graph = fused(text("%x"));
  const Program program = made(graph, joined(graph));
  EXPECT_EQ(kernels_of(program).size(), 10u);
  EXPECT_EQ(splits_of(program), 4);
  int scratch = 0;
  for (const Step& step : program.steps)
    if (const auto* one = std::get_if<AllocateStep>(&step)) scratch += one->value == kNoValue ? 1 : 0;
  EXPECT_EQ(scratch, 4 * 5);
  const Graph another = fused(text("%z"));
  EXPECT_EQ(splits_of(made(another, joined(another))), 5);
  // Rows that are split by parts have other scales.
  Schedule in_parts = joined(graph);
  in_parts.groups[0].parameters["split_k"] = 2;
  EXPECT_EQ(splits_of(made(graph, in_parts)), 5);
}

TEST(Contraction, RefusesWhatItDoesNotTake) {
  const Graph graph = fused(std::string(kLarge) + "return %r");
  const DeviceDescription device = default_device("triton");
  const auto fault_of = [&](const std::string& scheduler, const plan::Parameters& parameters) -> std::string {
    Schedule schedule = joined(graph);
    schedule.groups[0].scheduler = scheduler;
    schedule.groups[0].parameters = parameters;
    try {
      make_program(graph, schedule, device);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_NE(fault_of("contraction", {{"block_q", 64}}).find("block_q"), std::string::npos);
  EXPECT_NE(fault_of("contraction", {{"block_m", 8}}).find("block_m"), std::string::npos);
  EXPECT_NE(fault_of("pointwise", {}).find("cannot take"), std::string::npos);
  EXPECT_EQ(fault_of("contraction", {{"scheme", 0}}), "");
}

// What operands of the stages take is the least that a block needs.
TEST(Contraction, RefusesBlocksThatTheDeviceHasNoRoomFor) {
  const Graph graph = fused(R"(
    input %a : bf16[4096, 4096] user args.0
    input %b : bf16[4096, 4096] user args.1
    %y = aten.mm.default(self=%a, mat2=%b) : bf16[4096, 4096]
    return %y)");
  Schedule schedule{.target = "triton", .groups = {{{0}, "contraction", {}}}};
  const auto fault_of = [&](int64_t side, int64_t stages, const DeviceDescription& device) -> std::string {
    schedule.groups[0].parameters = {{"block_m", side}, {"block_n", side}, {"block_k", 64}, {"stages", stages}};
    try {
      make_program(graph, schedule, device);
    } catch (const Error& error) { return error.text().code + ": " + error.text().message; }
    return "";
  };
  DeviceDescription device = default_device("triton");
  EXPECT_EQ(fault_of(128, 4, device), "");
  EXPECT_EQ(fault_of(256, 8, device), "bad-schedule: kernel 'mm_kernel' cannot run on " + device.name +
                                          ": a block needs 458752 bytes of shared memory at least, and has 232448");
  device.shared_bytes = 64 << 10;
  EXPECT_NE(fault_of(128, 4, device).find("needs 98304 bytes of shared memory at least, and has 65536"),
            std::string::npos)
      << fault_of(128, 4, device);
  EXPECT_EQ(fault_of(128, 2, device), "");
}

// Numbers of four bytes are copied to shared memory as they are, whatever becomes of them; smaller ones that are
// computed with need not be. Of a loop with few iterations no more are in flight.
TEST(Limits, CountWhatIsComputedWithBeforeItIsMultiplied) {
  const auto bytes_of = [](const std::string& dtype, const std::string& depth) {
    const tile::Program program = tile::parse_program(R"(program p {
  grid row_block = 2, column_block = 2
  lane row = 64, depth = 32, column = 64
  launch warps 4
  buffer a: f16[128, 128] input
  buffer b: )" + dtype + R"([128, 128] input
  buffer y: f32[128, 128] output
  %neutral: f32[row, column] = constant 0.0
  for start = 0 to )" + depth + R"( step 32 stages 4 carry %sum_so_far: f32[row, column] = %neutral -> %sum_2 {
    %a_tile: f16[row, depth] = load a[row_block * 64 + row, start + depth]
    %b_tile: )" + dtype + R"([depth, column] = load b[start + depth, column_block * 64 + column]
    %twice: )" + dtype + R"([depth, column] = add %b_tile, %b_tile
    %half: f16[depth, column] = cast %twice
    %sum: f32[row, column] = dot %sum_so_far, %a_tile, %half
    yield %sum
  }
  store y[row_block * 64 + row, column_block * 64 + column] <- %sum_2
})");
    tile::verify(program);
    return plan::least_shared_bytes(program);
  };
  constexpr int64_t kOfA = 64 * 32 * 2, kOfB = 32 * 64 * 4;
  EXPECT_EQ(bytes_of("f32", "128"), 3 * (kOfA + kOfB));
  EXPECT_EQ(bytes_of("bf16", "128"), 3 * kOfA);
  EXPECT_EQ(bytes_of("f32", "32"), kOfA + kOfB);
}

TEST(Limits, AreThreadsOfABlock) {
  tile::Program program;
  program.name = "copy_kernel";
  program.warps = 16;
  DeviceDescription device = default_device("triton");
  EXPECT_NO_THROW(plan::check_limits(program, device));
  const auto fault = [&] {
    try {
      plan::check_limits(program, device);
    } catch (const Error& error) { return error.text().code + ": " + error.text().message; }
    return std::string();
  };
  device.threads = 256;
  EXPECT_EQ(fault(), "bad-schedule: kernel 'copy_kernel' cannot run on " + device.name +
                         ": a block has 16 warps, which are 512 threads, and 256 are the most");
  program.warps = 8;
  EXPECT_EQ(fault(), "");
  // Blocks that run as one have the warps of each.
  program.consumers.count = 2;
  EXPECT_NE(fault().find("has 16 warps, which are 512 threads"), std::string::npos) << fault();
}

TEST(Limits, AreSharedMemoryAndRegisters) {
  tile::Program program;
  program.name = "copy_kernel";
  program.warps = 32;
  program.max_registers = 64;
  const DeviceDescription device = default_device("triton");
  EXPECT_NO_THROW(plan::check_limits(program, device));
  program.max_registers = 128;
  try {
    plan::check_limits(program, device);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.text().message.find("asks for 128 registers of 1024 threads each, 131072, and has 65536"),
              std::string::npos)
        << error.text().message;
  }
}

}  // namespace
}  // namespace kw
