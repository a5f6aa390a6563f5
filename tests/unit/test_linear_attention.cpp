// Which products become linear attention of one scheduler's, and how many bytes its kernels move.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/digit_strides.hpp"
#include "plan/estimate.hpp"
#include "plan/join_linear_attention.hpp"
#include "plan/linear_attention.hpp"
#include "plan/plan.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

// φ(x) = exp(x), 8 · 16 heads, 8192 keys, 64 features. `weight`: what makes it of the maps. `rest`: what else there is.
std::string linear_attention(const std::string& weight, const std::string& rest = "return %y") {
  return R"(
    input %q : f32[8, 16, 8192, 64] user args.0
    input %k : f32[8, 16, 8192, 64] user args.1
    input %v : f32[8, 16, 8192, 64] user args.2
    input %s : f32[8, 16, 1, 64] user args.3
    %a = aten.exp.default(self=%q) : f32[8, 16, 8192, 64]
    %b = aten.exp.default(self=%k) : f32[8, 16, 8192, 64]
    %t = aten.permute.default(self=%b, dims=[0, 1, 3, 2]) : f32[8, 16, 64, 8192] strides [8388608, 524288, 1, 64]
    %m = aten.matmul.default(self=%t, other=%v) : f32[8, 16, 64, 64]
    %x = aten.matmul.default(self=%a, other=%m) : f32[8, 16, 8192, 64]
)" + weight +
         R"(
    %y = aten.div.Tensor(self=%x, other=%w) : f32[8, 16, 8192, 64]
)" + rest;
}

const std::string kSum = "%sum = aten.sum.dim_IntList(self=%b, dim=[2], keepdim=true) : f32[8, 16, 1, 64]\n";

std::string weighted_by(const std::string& query, const std::string& sum) {
  return kSum + "%p = aten.mul.Tensor(self=" + query + ", other=" + sum + ") : f32[8, 16, 8192, 64]\n" +
         "%w = aten.sum.dim_IntList(self=%p, dim=[-1], keepdim=true) : f32[8, 16, 8192, 1]\n";
}

Schedule joined(const std::string& text) {
  Graph graph = parse_graph("graph G on cuda {\n" + text + "\n}");
  fusion(graph, {});
  const DeviceDescription device = default_device("triton");
  return join_linear_attention(graph, default_schedule(graph, device), device);
}

std::vector<size_t> nodes_of_linear_attention(const std::string& text) {
  std::vector<size_t> counts;
  for (const GroupSchedule& group : joined(text).groups)
    if (group.scheduler == "linear_attention") counts.push_back(group.nodes.size());
  return counts;
}

TEST(LinearAttention, IsOneGroupThatReadsQueriesKeysAndValuesOnce) {
  const std::string text = linear_attention(weighted_by("%a", "%sum"));
  Graph graph = parse_graph("graph G on cuda {\n" + text + "\n}");
  const Schedule schedule = joined(text);
  ASSERT_EQ(schedule.groups.size(), 1u);
  ASSERT_EQ(schedule.groups[0].scheduler, "linear_attention");
  const DeviceDescription device = default_device("triton");
  const plan::GraphFacts facts(graph, {});
  const auto group = plan::lower_linear_attention(facts, schedule.groups[0].nodes, {graph.outputs[0].value});
  ASSERT_TRUE(group);
  const auto* scheduler = plan::find_scheduler("linear_attention", device);
  const auto kernels = plan::lowered_for(*scheduler, *group, schedule.groups[0].parameters, device);
  ASSERT_EQ(kernels.tiles.size(), 3u);
  double bytes = 0;
  for (const plan::ScheduledTiles& tiles : kernels.tiles) bytes += estimate(tiles.program, device).memory_bytes;
  const double least = 4.0 * 4 * 8 * 16 * 8192 * 64;
  EXPECT_GE(bytes, least);
  EXPECT_LE(bytes, 1.1 * least);
}

TEST(LinearAttention, ItsWeightIsOfTheSameQueriesAndKeys) {
  EXPECT_EQ(nodes_of_linear_attention(linear_attention(weighted_by("%a", "%sum"))), std::vector<size_t>{8});
  EXPECT_EQ(nodes_of_linear_attention(linear_attention(weighted_by("%sum", "%a"))), std::vector<size_t>{8});
  // Of other queries, other sums, sums that other nodes read as well, and all of a sequence's weights.
  for (const std::string& other : {weighted_by("%q", "%sum"), weighted_by("%a", "%s")})
    for (const size_t nodes : nodes_of_linear_attention(linear_attention(other))) EXPECT_LT(nodes, 8u);
  for (const size_t nodes : nodes_of_linear_attention(linear_attention(weighted_by("%a", "%sum"), "return %y, %sum")))
    EXPECT_LT(nodes, 8u);
  const std::string by_heads = kSum +
                               "%p = aten.mul.Tensor(self=%a, other=%sum) : f32[8, 16, 8192, 64]\n"
                               "%w = aten.sum.dim_IntList(self=%p, dim=[2], keepdim=true) : f32[8, 16, 1, 64]\n";
  for (const size_t nodes : nodes_of_linear_attention(linear_attention(by_heads))) EXPECT_LT(nodes, 8u);
}

TEST(LinearAttention, WhatIsReadElsewhereIsStoredByOthers) {
  const std::string weight = weighted_by("%a", "%sum");
  for (const char* rest : {"return %y, %m", "return %y, %b", "return %y, %a", "return %y, %w"})
    for (const size_t nodes : nodes_of_linear_attention(linear_attention(weight, rest))) EXPECT_LT(nodes, 8u) << rest;
}

TEST(DigitStrides, AreTheSameHoweverAxesAreSplit) {
  EXPECT_TRUE(plan::same_places({{8, 64}, {16, 4}}, {{128, 4}}));
  EXPECT_TRUE(plan::same_places({{8, 0}, {1, 7}, {16, 0}}, {{128, 0}}));
  EXPECT_FALSE(plan::same_places({{8, 4}, {16, 32}}, {{128, 4}}));
  EXPECT_FALSE(plan::same_places({{8, 64}, {16, 4}}, {{64, 4}}));
  EXPECT_TRUE(plan::same_places({}, {{1, 5}}));
}

TEST(DigitStrides, OfACopyAreThoseOfWhatItCopies) {
  const Graph graph = parse_graph(R"(graph G on cuda {
    input %x : f32[2, 5, 3, 4] user args.0
    %p = aten.permute.default(self=%x, dims=[0, 2, 1, 3]) : f32[2, 3, 5, 4] strides [60, 4, 12, 1]
    %c = aten.clone.default(self=%p, memory_format=memory_format:contiguous_format) : f32[2, 3, 5, 4]
    return %c
  })");
  const plan::GraphFacts facts(graph, {});
  const ValueId x = graph.inputs[0].value, copy = graph.nodes[1].results[0];
  const std::vector<NodeId> copies = {1};
  const auto moved = plan::before_copies(facts, {copy, 0, {{6, 20}}, {{4, 1}}, {{5, 4}}}, copies);
  EXPECT_EQ(moved, (plan::OperandPlaces{x, 0, {{2, 60}, {3, 4}}, {{4, 1}}, {{5, 12}}}));
  // Digits that end within a dimension of the copy stay where they are.
  EXPECT_EQ(plan::before_copies(facts, {copy, 0, {{4, 30}}, {}, {}}, copies).root, copy);
  EXPECT_EQ(plan::before_copies(facts, {copy, 0, {{6, 20}}, {{4, 1}}, {{5, 4}}}, {}).root, copy);
}

}  // namespace
}  // namespace kw
