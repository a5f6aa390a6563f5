// Attention on a CPU: what is joined, in which blocks, and what the model says of them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "emit/target_printer.hpp"
#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/estimate.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "target/target.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

DeviceDescription device() { return default_device("cpu"); }

Schedule scheduled(const std::string& text) {
  Graph graph = parse_graph("graph G on cpu {\n" + text + "\n}");
  fusion(graph, {});
  Schedule schedule = default_schedule(graph, device());
  target_of(device()).join_groups(graph, schedule, device());
  return schedule;
}

std::string operator_text(int64_t heads, int64_t queries, int64_t keys, int64_t features,
                          const std::string& options = "") {
  return fmt::format(R"(
    input %q : f32[1, {0}, {1}, {3}] user args.0
    input %k : f32[1, {0}, {2}, {3}] user args.1
    input %v : f32[1, {0}, {2}, {3}] user args.2
    %y = aten.scaled_dot_product_attention.default(query=%q, key=%k, value=%v{4}) : f32[1, {0}, {1}, {3}]
    return %y)",
                     heads, queries, keys, features, options);
}

// Of the kernels of a schedule of one group, in blocks of these sizes.
double seconds(const std::string& text, const plan::Parameters& parameters) {
  Graph graph = parse_graph("graph G on cpu {\n" + text + "\n}");
  fusion(graph, {});
  Schedule schedule = default_schedule(graph, device());
  schedule.groups[0].scheduler = "attention";
  schedule.groups[0].parameters = parameters;
  const Program program = make_program(graph, schedule, device());
  EXPECT_EQ(program.tiles.size(), 1u);
  return seconds_of(program.tiles[0], device());
}

TEST(CpuAttention, TakesProductsAndTheirSoftmaxWithWhatReadsThem) {
  const Schedule schedule = scheduled(R"(
    input %q : f32[4, 200, 72] user args.0
    input %k : f32[4, 72, 150] user args.1
    input %v : f32[4, 150, 40] user args.2
    %scores = aten.bmm.default(self=%q, mat2=%k) : f32[4, 200, 150]
    %weights = aten._softmax.default(self=%scores, dim=-1, half_to_float=false) : f32[4, 200, 150]
    %sum = aten.bmm.default(self=%weights, mat2=%v) : f32[4, 200, 40]
    %y = aten.relu.default(self=%sum) : f32[4, 200, 40]
    return %y)");
  ASSERT_EQ(schedule.groups.size(), 1u);
  EXPECT_EQ(schedule.groups[0].scheduler, "attention");
  EXPECT_EQ(schedule.groups[0].nodes.size(), 4u);
}

TEST(CpuAttention, OtherProductsStayTheLibrarys) {
  const Schedule schedule = scheduled(R"(
    input %x : f32[512, 256] user args.0
    input %w : f32[512, 256] user args.1
    %y = aten.linear.default(input=%x, weight=%w) : f32[512, 512]
    %z = aten.relu.default(self=%y) : f32[512, 512]
    return %z)");
  ASSERT_EQ(schedule.groups.size(), 2u);
  EXPECT_EQ(schedule.groups[0].scheduler, "extern");
}

TEST(CpuAttention, FewQueriesAndTinyHeadsStayTheLibrarys) {
  EXPECT_EQ(scheduled(operator_text(16, 4, 512, 64)).groups[0].scheduler, "extern");
  EXPECT_EQ(scheduled(operator_text(4, 8, 8, 16)).groups[0].scheduler, "extern");
  EXPECT_EQ(scheduled(operator_text(16, 512, 512, 64)).groups[0].scheduler, "attention");
}

TEST(CpuAttention, BlocksAreEven) {
  EXPECT_EQ(scheduled(operator_text(16, 300, 300, 72)).groups[0].parameters,
            (plan::Parameters{{"keys", 112}, {"queries", 150}}));
  // Few enough keys are folded at once.
  EXPECT_EQ(scheduled(operator_text(16, 197, 197, 64)).groups[0].parameters,
            (plan::Parameters{{"keys", 208}, {"queries", 197}}));
}

TEST(CpuAttention, CausalBlocksEndAtTheDiagonalWhereTheyDivideBothAxes) {
  const std::string causal = ", is_causal=true";
  const Schedule schedule = scheduled(operator_text(16, 384, 384, 64, causal));
  EXPECT_EQ(schedule.groups[0].parameters, (plan::Parameters{{"keys", 128}, {"queries", 128}}));
  const plan::Parameters blocks = {{"keys", 128}, {"queries", 128}};
  const double whole = seconds(operator_text(16, 1024, 1024, 64), blocks);
  EXPECT_LT(seconds(operator_text(16, 1024, 1024, 64, causal), blocks), 0.7 * whole);
}

TEST(CpuAttention, TimeGrowsWithTheWorkThatACoreHas) {
  const plan::Parameters blocks = {{"keys", 128}, {"queries", 128}};
  const double some = seconds(operator_text(16, 512, 512, 64), blocks);
  EXPECT_GT(seconds(operator_text(32, 512, 512, 64), blocks), 1.8 * some);
  EXPECT_GT(seconds(operator_text(16, 512, 512, 128), blocks), 1.5 * some);
  // One block keeps one core busy.
  EXPECT_GT(seconds(operator_text(1, 512, 512, 64), {{"keys", 128}, {"queries", 512}}),
            1.5 * seconds(operator_text(1, 512, 512, 64), blocks));
}

TEST(CpuAttention, RepeatedLaunchesAreRefusedByName) {
  Graph graph = parse_graph("graph G on cpu {\n" + operator_text(16, 512, 512, 64) + "\n}");
  fusion(graph, {});
  Schedule schedule = default_schedule(graph, device());
  target_of(device()).join_groups(graph, schedule, device());
  const Program program = make_program(graph, schedule, device());
  const auto printer = target_of(device()).printer();
  for (const Step& step : program.steps) {
    const auto* tiles = std::get_if<TileStep>(&step);
    if (!tiles) continue;
    EXPECT_NE(printer->launch(program, *tiles, nullptr).find("load_kernels()."), std::string::npos);
    TileStep repeated = *tiles;
    repeated.repetition = Repetition{3, "step"};
    try {
      printer->launch(program, repeated, nullptr);
      FAIL() << "it was printed";
    } catch (const Error& error) { EXPECT_NE(std::string(error.what()).find("repeated launches"), std::string::npos); }
    return;
  }
  FAIL() << "nothing is launched";
}

}  // namespace
}  // namespace kw
