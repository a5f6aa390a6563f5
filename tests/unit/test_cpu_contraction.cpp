// Matrix products on a CPU: what is the library's, in which blocks the others are, and what the model says of them.
#include <gtest/gtest.h>

#include <fmt/format.h>

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

Graph linear(int64_t rows, int64_t depth, int64_t columns) {
  Graph graph = parse_graph(fmt::format(R"(graph G on cpu {{
    input %x : f32[{0}, {1}] user args.0
    input %w : f32[{2}, {1}] user args.1
    %y = aten.linear.default(input=%x, weight=%w) : f32[{0}, {2}]
    %z = aten.relu.default(self=%y) : f32[{0}, {2}]
    return %z
}})",
                                        rows, depth, columns));
  fusion(graph, {});
  return graph;
}

Program program_of(const Graph& graph, const plan::Parameters& parameters) {
  Schedule schedule = default_schedule(graph, device());
  schedule.groups = {{{0, 1}, "contraction", parameters}};
  return make_program(graph, schedule, device());
}

double seconds(const Graph& graph, const plan::Parameters& parameters) {
  const Program program = program_of(graph, parameters);
  EXPECT_EQ(program.tiles.size(), 1u);
  return seconds_of(program.tiles[0], device());
}

std::string scheduler_of(int64_t rows, int64_t depth, int64_t columns) {
  const Graph graph = linear(rows, depth, columns);
  Schedule schedule = default_schedule(graph, device());
  target_of(device()).join_groups(graph, schedule, device());
  return schedule.groups[0].scheduler;
}

TEST(CpuContraction, SkinnyAndTinyProductsStayTheLibrarys) {
  EXPECT_EQ(scheduler_of(1, 1024, 1024), "extern");
  EXPECT_EQ(scheduler_of(4, 1024, 1024), "extern");
  EXPECT_EQ(scheduler_of(1024, 1024, 1), "extern");
  EXPECT_EQ(scheduler_of(8, 8, 8), "extern");
}

TEST(CpuContraction, TimeGrowsWithTheWork) {
  const plan::Parameters blocks = {{"block_columns", 16}, {"block_depth", 256}, {"block_rows", 128}};
  const double some = seconds(linear(128, 512, 512), blocks);
  EXPECT_GT(seconds(linear(256, 512, 512), blocks), 1.8 * some);
  EXPECT_GT(seconds(linear(128, 1024, 512), blocks), 1.8 * some);
  EXPECT_GT(seconds(linear(128, 512, 1024), blocks), 1.8 * some);
}

TEST(CpuContraction, ColumnsThatBlocksDoNotDivideCostMore) {
  const plan::Parameters blocks = {{"block_columns", 16}, {"block_depth", 256}, {"block_rows", 32}};
  EXPECT_GT(seconds(linear(32, 512, 1001), blocks), 1.05 * seconds(linear(32, 512, 1008), blocks));
}

TEST(CpuContraction, UnknownParametersAreRefusedByName) {
  try {
    program_of(linear(128, 512, 512), {{"num_warps", 4}});
    FAIL() << "it was taken";
  } catch (const Error& error) { EXPECT_NE(std::string(error.what()).find("num_warps"), std::string::npos); }
}

}  // namespace
}  // namespace kw
