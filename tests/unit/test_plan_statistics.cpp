// Norms by the batch's statistics, beside convolutions: one group, or statistics and what they normalise.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "plan/statistics.hpp"

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
  explicit Planned(const std::string& text) : graph(parse_graph(text)) {
    run_passes(graph);
    schedule = default_schedule(graph, "triton", device);
  }

  std::vector<std::string> ops_of(const std::vector<NodeId>& nodes) const {
    std::vector<std::string> ops;
    for (NodeId node : nodes) ops.emplace_back(plan::base_name(graph.nodes[node]));
    return ops;
  }

  size_t group_of(std::string_view scheduler) const {
    for (size_t group = 0; group < schedule.groups.size(); ++group)
      if (schedule.groups[group].scheduler == scheduler) return group;
    return schedule.groups.size();
  }

  DeviceDescription device = default_device("triton");
  Graph graph;
  Schedule schedule;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
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
  const plan::GraphFacts facts(planned.graph);
  const auto apart = plan::statistics_apart(facts, planned.schedule.groups[1].nodes);
  ASSERT_TRUE(apart);
  EXPECT_EQ(planned.ops_of(apart->before), (std::vector<std::string>{"clamp"}));
  EXPECT_EQ(planned.ops_of(apart->statistics),
            (std::vector<std::string>{"var_mean", "mul", "mul", "add", "mul", "mul", "mul", "add"}));
  EXPECT_EQ(planned.ops_of(apart->after), (std::vector<std::string>{"batch_norm", "add", "relu"}));
}

TEST(PlanStatistics, AScheduleOfStatisticsAndAPointwiseNorm) {
  const Planned planned(kBlock);
  const plan::GraphFacts facts(planned.graph);
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
  EXPECT_NO_THROW(lower(planned.graph, *schedule, planned.device));
}

TEST(PlanStatistics, OnlyMeansAndVariancesAreTakenApart) {
  const Planned planned(
      "graph Other on cuda {\n  input %x : f32[64, 4096] user args.0\n"
      "  %s = aten.softmax.int(self=%x, dim=1) : f32[64, 4096]\n"
      "  %r = aten.relu.default(self=%s) : f32[64, 4096]\n  return %r\n}\n");
  const plan::GraphFacts facts(planned.graph);
  ASSERT_EQ(planned.schedule.groups.size(), 1u);
  EXPECT_FALSE(plan::statistics_apart(facts, planned.schedule.groups[0].nodes));
  EXPECT_FALSE(plan::with_statistics_apart(facts, planned.schedule, 0, planned.device));
}

TEST(PlanStatistics, OnTheCpuANormIsOneOperator) {
  const Planned planned(replaced(kBlock, "on cuda", "on cpu"));
  ASSERT_EQ(planned.group_of("normalisation"), 1u);
  EXPECT_EQ(planned.ops_of(planned.schedule.groups[1].nodes),
            (std::vector<std::string>{"clamp", "_native_batch_norm_legit_functional", "add", "relu"}));
}

}  // namespace kw
