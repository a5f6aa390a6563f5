// What the planner chooses where a GPU has shown that it matters: blocks and parts of a row, and which nodes share a kernel.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/plan.hpp"

namespace kw {
namespace {

Schedule schedule_of(std::string_view text) {
  Graph graph = parse_graph(text);
  fusion(graph);
  return default_schedule(graph, "triton", default_device("triton"));
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

TEST(Defaults, RowsThatShareASamplesScaleAreTakenTogether) {
  const auto rows_of_a_tile = [](const char* scale) {
    return schedule_of(std::string("graph G {\n input %x : f32[128, 256, 1152] user args.0\n input %scale : f32") + scale + R"( user args.1
    %norm = aten.layer_norm.default(input=%x, normalized_shape=[1152], eps=1e-06, cudnn_enable=false) : f32[128, 256, 1152]
    %scaled = aten.mul.Tensor(self=%norm, other=%scale) : f32[128, 256, 1152]
    %out = aten.add.Tensor(self=%scaled, other=%scale) : f32[128, 256, 1152]
    return %out
  })").groups.at(0).parameters.at("x_block");
  };
  EXPECT_EQ(rows_of_a_tile("[128, 1, 1152]"), 2);      // one such load for two of the row's own
  EXPECT_EQ(rows_of_a_tile("[1152]"), 2);              // all rows' scale stays in the first cache
  EXPECT_EQ(schedule_of(R"(graph G {
    input %x : f32[128, 256, 1152] user args.0
    input %scale : f32[128, 1, 1152] user args.1
    input %shift : f32[128, 1, 1152] user args.2
    %norm = aten.layer_norm.default(input=%x, normalized_shape=[1152], eps=1e-06, cudnn_enable=false) : f32[128, 256, 1152]
    %scaled = aten.mul.Tensor(self=%norm, other=%scale) : f32[128, 256, 1152]
    %out = aten.add.Tensor(self=%scaled, other=%shift) : f32[128, 256, 1152]
    return %out
  })").groups.at(0).parameters.at("x_block"), 4);
}

TEST(Defaults, HeavyArithmeticIsNotDoneInPaddedLanes) {
  const auto parameters_of = [](const char* call) {
    return schedule_of(std::string(R"(graph G {
    input %x : f32[4096, 576] user args.0
    input %power : f32[1] user args.1
    %term = )") + call + R"(%power) : f32[4096, 576]
    %mean = aten.mean.dim(self=%term, dim=[1]) : f32[4096]
    return %mean
  })").groups.at(0).parameters;
  };
  const auto light = parameters_of("aten.mul.Tensor(self=%x, other="), heavy = parameters_of("aten.pow.Tensor_Tensor(self=%x, exponent=");
  EXPECT_EQ(light.at("persistent"), 1);
  EXPECT_EQ(heavy.at("persistent"), 0);
  EXPECT_EQ(heavy.at("r_block"), 128);                 // 5 · 128 = 640, where a power of two around 576 is 1024
}

}  // namespace
}  // namespace kw
