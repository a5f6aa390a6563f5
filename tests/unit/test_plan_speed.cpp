// How long it takes to plan a thousand nodes, and to begin a search over them.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "emit/target_printer.hpp"
#include "search/moves.hpp"
#include "targets/targets.hpp"
#include "search_world.hpp"

namespace kw::search {
namespace {

TEST(PlanSpeed, AThousandNodesTakeASecond) {
  Graph graph = parse_graph(thousand_nodes());
  ASSERT_EQ(graph.nodes.size(), 1000u);
  for (const char* target : {"triton", "cpu"}) {
    const std::clock_t start = std::clock();
    const DeviceDescription device = default_device(target);
    fusion(graph, target_of(device).graph_forms());
    const Schedule schedule = default_schedule(graph, device);
    const Program program = make_program(graph, schedule, device);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    RecordProperty(std::string("seconds_") + target, std::to_string(seconds));
    std::printf("%s: fused, scheduled and lowered in %.3f s of processor time\n", target, seconds);
    EXPECT_LT(seconds, 1.0) << target;
    EXPECT_GE(schedule.groups.size(), 250u);
    EXPECT_FALSE(program.tiles.empty());
  }
}

TEST(PlanSpeed, ASearchOverAThousandNodesBeginsInTwoSeconds) {
  Setting setting(thousand_nodes().c_str());
  World world([](const Schedule&) { return 1.0; }, 6);
  const std::clock_t start = std::clock();
  search(setting.catalogue, setting.first, {}, world, {});
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("first batch in %.3f s of processor time\n", seconds);
  EXPECT_LT(seconds, 2.0);
  EXPECT_EQ(world.tried.size(), 6u);
}

}  // namespace
}  // namespace kw::search
