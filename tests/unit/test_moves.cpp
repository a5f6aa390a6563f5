// What a search may change, and what the cost model makes of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/estimate.hpp"
#include "search/moves.hpp"
#include "search/relief.hpp"
#include "search_world.hpp"

namespace kw::search {
namespace {

TEST(Moves, GroupingsAreCutAndJoinedAndStayComplete) {
  Setting setting(R"(graph G {
    input %x : f32[2048, 512] user args.0
    %a = aten.tanh.default(self=%x) : f32[2048, 512]
    %s = aten.softmax.int(self=%a, dim=1) : f32[2048, 512]
    %b = aten.mul.Tensor(self=%s, other=%x) : f32[2048, 512]
    %t = aten.sum.dim_IntList(self=%b, dim=[0]) : f32[512]
    return %b, %t
  })");
  const auto moves = grouping_moves(setting.catalogue, setting.first, 12);
  bool cut = false, join = false;
  for (const Move& move : moves) {
    cut |= move.change.starts_with("cut");
    join |= move.change.starts_with("join");
    const Program program = make_program(setting.graph, move.schedule, setting.device);  // throws when nodes are
                                                                                         // missing
    EXPECT_FALSE(program.steps.empty());
    for (const Move& back : grouping_moves(setting.catalogue, move.schedule, 12))
      join |= back.change.starts_with("join") && back.schedule == setting.first;
  }
  EXPECT_TRUE(cut);
  EXPECT_TRUE(join);
}

TEST(Moves, AValueIsStoredOrComputedAgainByItsReaders) {
  Setting setting(R"(graph G {
    input %x : f32[512, 512] user args.0
    %a = aten.relu.default(self=%x) : f32[512, 512]
    %m = aten.sum.dim_IntList(self=%a, dim=[0]) : f32[512]
    %n = aten.sum.dim_IntList(self=%a, dim=[1]) : f32[512]
    return %m, %n
  })");
  const auto stored = setting.catalogue.complete({{0}, {1}, {2}}, setting.first);
  ASSERT_TRUE(stored);
  const auto has = [](const std::vector<Move>& moves, std::string_view kind) {
    return std::find_if(moves.begin(), moves.end(), [&](const Move& move) { return move.change.starts_with(kind); });
  };
  const auto moves = grouping_moves(setting.catalogue, *stored, 12);
  const auto again = has(moves, "compute");
  ASSERT_NE(again, moves.end());
  ASSERT_EQ(again->schedule.groups.size(), 2u);
  EXPECT_EQ(again->schedule.groups[0].nodes, (std::vector<NodeId>{0, 1}));
  EXPECT_EQ(again->schedule.groups[1].nodes, (std::vector<NodeId>{0, 2}));
  const auto back = grouping_moves(setting.catalogue, again->schedule, 12);
  const auto store = has(back, "store");
  ASSERT_NE(store, back.end());
  EXPECT_EQ(store->schedule, *stored);
}

TEST(Moves, NoJoinMakesACycleThroughALibraryCall) {
  Setting setting(kTwoGroups);
  for (const Move& move : grouping_moves(setting.catalogue, setting.first, 12))
    EXPECT_FALSE(move.change.starts_with("join")) << move.change;
}

TEST(Moves, PromisingCombinationsAreOrderedByTheModel) {
  Setting setting(kSoftmax);
  const auto moves = promising_moves(setting.catalogue, setting.first, 8);
  ASSERT_EQ(moves.size(), 8u);
  for (size_t i = 1; i < moves.size(); ++i)
    EXPECT_LE(setting.catalogue.seconds(moves[i - 1].schedule), setting.catalogue.seconds(moves[i].schedule));
}

TEST(Moves, RepeatedLayersGetTheSameParameters) {
  Setting setting(thousand_nodes().c_str());
  const auto moves = parameter_moves(setting.catalogue, setting.first);
  ASSERT_FALSE(moves.empty());
  size_t changed = 0;
  for (size_t group = 0; group < setting.first.groups.size(); ++group)
    changed += moves.front().schedule.groups[group] != setting.first.groups[group];
  EXPECT_GT(changed, 100u);
}

TEST(Estimate, OrdersSchedulesAsMeasured) {
  // Sum over dim 1 of (96, 2048, 4095): tiles of 128 columns beat tiles of 8 (a quarter of each sector is used).
  Setting setting(R"(graph G {
    input %x : f32[96, 2048, 4096] user args.0
    %s = aten.sum.dim_IntList(self=%x, dim=[1]) : f32[96, 4096]
    return %s
  })");
  Schedule wide = setting.first, narrow = setting.first;
  narrow.groups[0].parameters["x_block"] = 2;
  EXPECT_LT(setting.catalogue.seconds(wide), setting.catalogue.seconds(narrow));
}

TEST(Estimate, IsNearTheFloorForAStream) {
  Setting setting(R"(graph G {
    input %x : f32[805306368] user args.0
    %r = aten.relu.default(self=%x) : f32[805306368]
    return %r
  })");
  const double floor = 2.0 * 4 * 805306368 / setting.device.copy_bytes_per_second;
  EXPECT_GE(setting.catalogue.seconds(setting.first), 0.95 * floor);
  EXPECT_LE(setting.catalogue.seconds(setting.first), 1.4 * floor);
}

TEST(Estimate, FewLongRowsAreBetterCut) {
  Setting setting(R"(graph G {
    input %x : f32[4, 16777216] user args.0
    %s = aten.sum.dim_IntList(self=%x, dim=[1]) : f32[4]
    return %s
  })");
  Schedule whole = setting.first;
  ASSERT_GT(parameter(whole, 0, "split"), 1);
  whole.groups[0].parameters["split"] = 1;
  EXPECT_LT(5 * setting.catalogue.seconds(setting.first), setting.catalogue.seconds(whole));
}

TEST(Relief, AsksForFewerRegistersOrCutsTheGroup) {
  Setting setting(R"(graph G {
    input %x : f32[64, 30000] user args.0
    input %r : f32[64, 30000] user args.1
    %s = aten.softmax.int(self=%x, dim=1) : f32[64, 30000]
    %g = aten.gelu.default(self=%s) : f32[64, 30000]
    %a = aten.add.Tensor(self=%g, other=%r) : f32[64, 30000]
    return %a
  })");
  ASSERT_EQ(setting.first.groups.size(), 1u);
  const auto registers = [&](const GroupSchedule& group) {
    return setting.catalogue.registers(
        *setting.catalogue.find(group.nodes, {setting.graph.nodes[group.nodes.back()].results[0]}), group.parameters);
  };
  const double before = registers(setting.first.groups[0]);
  const std::vector<Move> moves = relief_moves(setting.catalogue, setting.first, {0}, 5);
  ASSERT_EQ(moves.size(), 5u);
  int cuts = 0;
  for (const Move& move : moves) {
    cuts += move.regroups;
    if (!move.regroups) { EXPECT_LT(registers(move.schedule.groups[0]), before) << move.change; }
    const Program program = make_program(setting.graph, move.schedule, setting.device);
    EXPECT_FALSE(program.tiles.empty());
  }
  EXPECT_GE(cuts, 1);
  EXPECT_TRUE(relief_moves(setting.catalogue, setting.first, {}, 5).empty());
}

TEST(Relief, OnlyWhatIsGivenIsTried) {
  Setting setting(kSoftmax);
  std::vector<Candidate> given;
  for (Move& move : relief_moves(setting.catalogue, setting.first, {0}, 3))
    given.push_back({std::move(move.schedule), std::move(move.change), "", 0});
  ASSERT_FALSE(given.empty());
  World world([](const Schedule&) { return 0.7; });
  SearchOptions options;
  options.only_given = true;
  const size_t count = given.size();
  const SearchResult result = search(setting.catalogue, setting.first, std::move(given), world, options);
  EXPECT_EQ(world.tried.size(), count);
  EXPECT_TRUE(result.exhausted);
  EXPECT_NE(result.schedule, setting.first);
}

}  // namespace
}  // namespace kw::search
