// Norms by the batch's statistics, beside convolutions: one group, or statistics and what they normalise.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "plan/statistics.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"

namespace kw {
namespace {

constexpr const char* kBlock = R"(graph Block training on cuda {
  input %x : f32[8, 32, 32, 32] user args.0
  input %w : f32[64, 32, 3, 3] parameter "w"
  input %u : f32[64, 64, 1, 1] parameter "u"
  input %scale : f32[64] parameter "scale"
  input %shift : f32[64] parameter "shift"
  input %mean : f32[64] buffer "mean"
  input %var : f32[64] buffer "var"
  input %residual : f32[8, 64, 32, 32] user args.1
  %y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[8, 64, 32, 32]
  %before = aten.hardtanh.default(self=%y, min_val=-4.0, max_val=4.0) : f32[8, 64, 32, 32]
  %norm, _, _, %new_mean, %new_var = aten._native_batch_norm_legit_functional.default(input=%before, weight=%scale, bias=%shift, running_mean=%mean, running_var=%var, training=true, momentum=0.1, eps=1e-05) : f32[8, 64, 32, 32], f32[64], f32[64]
  %sum = aten.add.Tensor(self=%norm, other=%residual) : f32[8, 64, 32, 32]
  %relu = aten.relu.default(self=%sum) : f32[8, 64, 32, 32]
  %z = aten.conv2d.default(input=%relu, weight=%u) : f32[8, 64, 32, 32]
  return buffer "mean" %new_mean, buffer "var" %new_var, %z
}
)";

struct Planned {
  explicit Planned(const std::string& text, const char* target = "triton")
      : device(default_device(target)), graph(parse_graph(text)) {
    run_passes(graph, target_of(device).graph_forms());
    schedule = default_schedule(graph, device);
  }

  std::vector<std::string> ops_of(const std::vector<NodeId>& nodes) const {
    std::vector<std::string> ops;
    for (NodeId node : nodes) ops.emplace_back(base_name(graph.nodes[node]));
    return ops;
  }

  size_t group_of(std::string_view scheduler) const {
    for (size_t group = 0; group < schedule.groups.size(); ++group)
      if (schedule.groups[group].scheduler == scheduler) return group;
    return schedule.groups.size();
  }

  DeviceDescription device;
  Graph graph;
  Schedule schedule;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

// Two branches that are normalised and added; `first` is how the first is convolved.
std::string branches(const std::string& first) {
  return R"(graph Branches training on cuda {
  input %x : f32[16, 64, 100, 100] user args.0
  input %w : f32[64, 64, 3, 3] parameter "w"
  input %u : f32[64, 64, 3, 3] parameter "u"
  input %mean : f32[64] buffer "mean"
  input %var : f32[64] buffer "var"
)" + first +
         R"(
  %a, _, _, %new_mean, %new_var = aten._native_batch_norm_legit_functional.default(input=%y, running_mean=%mean, running_var=%var, training=true, momentum=0.1, eps=1e-05) : f32[16, 64, 100, 100], f32[64], f32[64]
  %z = aten.conv2d.default(input=%x, weight=%u, padding=[1, 1]) : f32[16, 64, 100, 100]
  %b, _, _ = aten._native_batch_norm_legit.no_stats(input=%z, training=true, momentum=0.1, eps=1e-05) : f32[16, 64, 100, 100]
  %sum = aten.add.Tensor(self=%a, other=%b) : f32[16, 64, 100, 100]
  return buffer "mean" %new_mean, buffer "var" %new_var, %sum
}
)";
}

constexpr const char* kPlain =
    "  %y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[16, 64, 100, 100]";

// A convolution with what follows it, whose parts have these places each.
plan::ScheduledGroup scheduled_with_statistics(const Planned& planned, int64_t positions) {
  const plan::GraphFacts facts(planned.graph, {});
  std::vector<NodeId> nodes = planned.schedule.groups[1].nodes;
  const auto apart = plan::statistics_apart(facts, nodes);
  nodes = {planned.schedule.groups[0].nodes[0]};
  nodes.insert(nodes.end(), apart->before.begin(), apart->before.end());
  nodes.insert(nodes.end(), apart->statistics.begin(), apart->statistics.end());
  std::sort(nodes.begin(), nodes.end());
  const auto lowered = plan::lower_group(facts, nodes, plan::outputs_of(facts, nodes));
  EXPECT_TRUE(lowered && lowered->convolution && lowered->statistics);
  return plan::kConvolutionScheduler.lower(*lowered, {{"block_m", 64}, {"block_n", positions}}, planned.device);
}

}  // namespace

TEST(PlanStatistics, FusionMakesOneGroupOfANorm) {
  const Planned planned(kBlock);
  ASSERT_EQ(planned.schedule.groups.size(), 3u);
  EXPECT_EQ(planned.schedule.groups[1].scheduler, "normalisation");
  EXPECT_EQ(planned.ops_of(planned.schedule.groups[1].nodes),
            (std::vector<std::string>{"clamp", "var_mean", "mul", "mul", "add", "mul", "mul", "mul", "add",
                                      "batch_norm", "add", "relu"}));
}

TEST(PlanStatistics, ANormIsTakenApart) {
  const Planned planned(kBlock);
  const plan::GraphFacts facts(planned.graph, {});
  const auto apart = plan::statistics_apart(facts, planned.schedule.groups[1].nodes);
  ASSERT_TRUE(apart);
  EXPECT_EQ(planned.ops_of(apart->before), (std::vector<std::string>{"clamp"}));
  EXPECT_EQ(planned.ops_of(apart->statistics),
            (std::vector<std::string>{"var_mean", "mul", "mul", "add", "mul", "mul", "mul", "add"}));
  EXPECT_EQ(planned.ops_of(apart->after), (std::vector<std::string>{"batch_norm", "add", "relu"}));
}

TEST(PlanStatistics, AScheduleOfStatisticsAndAPointwiseNorm) {
  const Planned planned(kBlock);
  const plan::GraphFacts facts(planned.graph, {});
  const auto schedule = plan::with_statistics_apart(facts, planned.schedule, 1, planned.device);
  ASSERT_TRUE(schedule);
  ASSERT_EQ(schedule->groups.size(), 4u);
  EXPECT_EQ(schedule->groups[1].scheduler, "reduction");
  EXPECT_EQ(schedule->groups[2].scheduler, "pointwise");
  EXPECT_EQ(planned.ops_of(schedule->groups[2].nodes),
            (std::vector<std::string>{"clamp", "batch_norm", "add", "relu"}));
  // Statistics are all that stands between the two.
  std::vector<std::vector<NodeId>> nodes;
  for (const GroupSchedule& group : schedule->groups) nodes.push_back(group.nodes);
  const auto stored = stored_values(facts, nodes);
  for (ValueId value : stored[1]) EXPECT_EQ(planned.graph.type(value).elements(), 64);
  EXPECT_NO_THROW(make_program(planned.graph, *schedule, planned.device));
}

TEST(PlanStatistics, OnlyMeansAndVariancesAreTakenApart) {
  const Planned planned(
      "graph Other on cuda {\n  input %x : f32[64, 4096] user args.0\n"
      "  %s = aten.softmax.int(self=%x, dim=1) : f32[64, 4096]\n"
      "  %r = aten.relu.default(self=%s) : f32[64, 4096]\n  return %r\n}\n");
  const plan::GraphFacts facts(planned.graph, {});
  ASSERT_EQ(planned.schedule.groups.size(), 1u);
  EXPECT_FALSE(plan::statistics_apart(facts, planned.schedule.groups[0].nodes));
  EXPECT_FALSE(plan::with_statistics_apart(facts, planned.schedule, 0, planned.device));
}

TEST(PlanStatistics, OfOneTensorAmongOthers) {
  const Planned planned(branches(kPlain));
  const size_t norm = planned.group_of("normalisation");
  ASSERT_LT(norm, planned.schedule.groups.size());
  const plan::GraphFacts facts(planned.graph, {});
  const std::vector<NodeId>& nodes = planned.schedule.groups[norm].nodes;
  ValueId y = kNoValue;
  for (ValueId value = 0; value < static_cast<ValueId>(planned.graph.values.size()); ++value)
    if (planned.graph.values[value].name == "y") y = value;
  const auto of_y = plan::statistics_of(facts, nodes, y);
  ASSERT_TRUE(of_y);
  EXPECT_EQ(planned.ops_of(of_y->statistics),
            (std::vector<std::string>{"var_mean", "mul", "mul", "add", "mul", "mul", "mul", "add"}));
  EXPECT_EQ(planned.ops_of(of_y->after), (std::vector<std::string>{"batch_norm", "var_mean", "batch_norm", "add"}));
  EXPECT_FALSE(plan::statistics_of(facts, nodes, planned.graph.inputs[0].value));
}

TEST(PlanStatistics, AConvolutionGivesThemWhereTheResultWouldBeReadForThem) {
  std::string text = branches(kPlain);
  text = replaced(text, "other=%b", "other=1.0");
  Planned planned(text);
  const Schedule joined = join_products(planned.graph, planned.schedule, planned.device);
  const auto has = [&](const GroupSchedule& group, const char* op) {
    const auto ops = planned.ops_of(group.nodes);
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  const auto convolution = std::find_if(joined.groups.begin(), joined.groups.end(), [&](const GroupSchedule& group) {
    return has(group, "conv2d") && has(group, "var_mean");
  });
  ASSERT_NE(convolution, joined.groups.end());
  EXPECT_EQ(convolution->scheduler, "convolution");
  ASSERT_NE(convolution + 1, joined.groups.end());
  EXPECT_EQ((convolution + 1)->scheduler, "pointwise");
  EXPECT_TRUE(has(*(convolution + 1), "batch_norm"));
  EXPECT_NO_THROW(make_program(planned.graph, joined, planned.device));
}

TEST(PlanStatistics, PhasesOfATransposedConvolutionCountWhatTheyHave) {
  // 33 by 33 places of each phase, of which one of three dimensions has one less.
  const Planned planned(replaced(
      replaced(kBlock, "%y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1])",
               "%y = aten.conv_transpose2d.input(input=%x, weight=%w, bias=None, stride=[2, 2], padding=[1, 1])"),
      "  input %x : f32[8, 32, 32, 32] user args.0\n  input %w : f32[64, 32, 3, 3] parameter \"w\"",
      "  input %x : f32[8, 32, 16, 16] user args.0\n  input %w : f32[32, 64, 4, 4] parameter \"w\""));
  const plan::ScheduledGroup scheduled = scheduled_with_statistics(planned, 64);
  const std::string text = tile::print_program(scheduled.tiles.back().program);
  EXPECT_NE(text.find("part_elements"), std::string::npos) << text;
  EXPECT_EQ(text.find("minimum"), std::string::npos) << text;
}

// Two samples' groups of six channels, whose parts lie side by side.
constexpr const char* kOfSamples = R"(graph OfSamples on cuda {
  input %x : f32[2, 8, 40, 40] user args.0
  input %w : f32[18, 8, 3, 3] parameter "w"
  input %weight : f32[18] parameter "weight"
  input %bias : f32[18] parameter "bias"
  %y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[2, 18, 40, 40]
  %norm = aten.group_norm.default(input=%y, num_groups=3, weight=%weight, bias=%bias, eps=1e-05) : f32[2, 18, 40, 40]
  return %norm
}
)";

TEST(PlanStatistics, SamplesHaveStatisticsOfTheirOwn) {
  const Planned planned(kOfSamples);
  const auto ops = planned.ops_of({0, 1, 2, 3});
  EXPECT_NE(std::find(ops.begin(), ops.end(), "var_mean"), ops.end());
  const plan::GraphFacts facts(planned.graph, {});
  std::vector<NodeId> nodes = {0};
  for (NodeId node = 1; node < static_cast<NodeId>(planned.graph.nodes.size()); ++node)
    if (base_name(planned.graph.nodes[node]) == "var_mean") nodes.push_back(node);
  const auto lowered = plan::lower_group(facts, nodes, plan::outputs_of(facts, nodes));
  ASSERT_TRUE(lowered && lowered->convolution && lowered->statistics);
  EXPECT_EQ(lowered->statistics->groups_of_sample, 3);
  const auto scheduled = plan::kConvolutionScheduler.lower(*lowered, {{"block_m", 32}, {"block_n", 64}},
                                                           planned.device);
  const std::string text = tile::print_program(scheduled.tiles.back().program);
  EXPECT_NE(text.find("constant 150\n"), std::string::npos) << text;  // 6 channels in 25 blocks
}

TEST(PlanStatistics, AveragesOfANormComeFromItsStatistics) {
  std::string text = replaced(kOfSamples, "  return %norm",
                              "  %mean = aten.mean.dim(self=%norm, dim=[2, 3]) : f32[2, 18]\n  return %mean");
  const Planned planned(text);
  for (const Node& node : planned.graph.nodes) {
    if (base_name(node) == "var_mean" || base_name(node) == "conv2d" || base_name(node) == "view") continue;
    for (ValueId result : node.results) EXPECT_LE(planned.graph.type(result).elements(), 2 * 18) << node.op;
  }
}

TEST(PlanStatistics, OnTheCpuNormsOfSamplesStay) {
  const Planned planned(replaced(kOfSamples, "on cuda", "on cpu"), "cpu");
  EXPECT_EQ(planned.ops_of({1}), std::vector<std::string>{"group_norm"});
}

// Of 8 samples of 32 by 32 places.
TEST(PlanStatistics, PartsAreCombinedByTheirCounts) {
  const Planned planned(kBlock);
  const plan::ScheduledGroup even = scheduled_with_statistics(planned, 64);
  const std::string text = tile::print_program(even.tiles.back().program);
  EXPECT_NE(text.find("lane column = 128\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%squared_deviations: f32 = fold sum"), std::string::npos) << text;
  EXPECT_EQ(text.find("minimum"), std::string::npos) << text;
  const Planned uneven(replaced(kBlock, "32, 32]", "31, 32]"));
  const plan::ScheduledGroup counted = scheduled_with_statistics(uneven, 256);
  const std::string counts = tile::print_program(counted.tiles.back().program);
  EXPECT_NE(counts.find("constant 31\n"), std::string::npos) << counts;  // 7,936 places in parts of 256
  const plan::ScheduledGroup in_samples = scheduled_with_statistics(uneven, 32);
  EXPECT_EQ(tile::print_program(in_samples.tiles.back().program).find("minimum"), std::string::npos);
  const Planned odd(replaced(kBlock, "32, 32]", "31, 33]"));
  const std::string shorter = tile::print_program(scheduled_with_statistics(odd, 32).tiles.back().program);
  EXPECT_NE(shorter.find("minimum"), std::string::npos) << shorter;  // 1,023 places of a sample
}

TEST(PlanStatistics, OnTheCpuANormIsOneOperator) {
  const Planned planned(replaced(kBlock, "on cuda", "on cpu"), "cpu");
  ASSERT_EQ(planned.group_of("normalisation"), 1u);
  EXPECT_EQ(planned.ops_of(planned.schedule.groups[1].nodes),
            (std::vector<std::string>{"clamp", "_native_batch_norm_legit_functional", "add", "relu"}));
}

}  // namespace kw
