// The search in a made-up world: its order, determinism and interruption.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "emit/target_printer.hpp"
#include "emit/triton/tile_printer.hpp"
#include "search/moves.hpp"
#include "search_world.hpp"

namespace kw::search {
namespace {

// Every schedule that a long search tries, lowered, checked and printed.
TEST(Search, WhateverItTriesIsAWholeProgram) {
  const char* const graphs[] = {
      // Of its moments only the second component is asked for.
      "graph G {\n input %x : f32[512, 196, 768] user args.0\n %mean = aten.mean.dim(self=%x, dim=[-1], keepdim=true) "
      ": f32[512, 196, 1]\n"
      " %var = aten.var.correction(self=%x, dim=[-1], correction=1, keepdim=true) : f32[512, 196, 1]\n %sub = "
      "aten.sub.Tensor(self=%x, other=%mean) : f32[512, 196, 768]\n"
      " %div = aten.div.Tensor(self=%sub, other=%var) : f32[512, 196, 768]\n return %div\n}",
      "graph G {\n input %x : f32[16, 32, 126, 128] user args.0\n %a = aten.relu.default(self=%x) : f32[16, 32, 126, "
      "128]\n"
      " %y = aten.max_pool2d.default(self=%a, kernel_size=[3, 3], stride=[2, 2], padding=[1, 1]) : f32[16, 32, 63, "
      "64]\n return %y\n}",
      "graph G {\n input %x : f32[4, 64, 61, 67] user args.0\n"
      " %y = aten.adaptive_avg_pool2d.default(self=%x, output_size=[61, 6]) : f32[4, 64, 61, 6]\n return %y\n}",
      "graph G {\n input %x : f32[64, 393216] user args.0\n %y = aten.softmax.int(self=%x, dim=1) : f32[64, 393216]\n "
      "return %y\n}",
      "graph G {\n input %x : f32[2048, 4096] user args.0\n %c = aten.cumsum.default(self=%x, dim=1) : f32[2048, "
      "4096]\n"
      " %y = aten.mul.Tensor(self=%c, other=%x) : f32[2048, 4096]\n return %y\n}",
  };
  for (const char* text : graphs) {
    Setting setting(text);
    World world(
        [&](const Schedule& schedule) {
          const Program program = make_program(setting.graph, schedule, setting.device);
          for (const tile::Program& tiles : program.tiles)
            EXPECT_FALSE(triton::print_tile_kernel(tiles).source.empty());
          // No order in it, so that the search comes by as much as it can.
          return 0.7 + static_cast<double>(std::hash<std::string>{}(schedule_to_json(schedule)) % 1000) / 1000;
        },
        200);
    search(setting.catalogue, setting.first, {}, world, {});
    EXPECT_GT(world.tried.size(), 10u) << text;
  }
}

TEST(Search, NoScheduleWritesOutMoreLoadsThanCompileInSeconds) {
  Setting setting(
      "graph G {\n input %x : f32[16, 64, 704, 704] user args.0\n %y = aten.avg_pool2d.default(self=%x, "
      "kernel_size=[11, 11]) : f32[16, 64, 64, 64]\n return %y\n}");
  Schedule schedule = setting.first;
  for (const auto& [name, value] : plan::Parameters{{"segments", 0}, {"columns", 4}, {"rows", 8}, {"slices", 2}})
    schedule.groups.at(0).parameters[name] = value;
  const Program program = make_program(setting.graph, schedule, setting.device);
  int loads = 0;
  tile::for_each(program.tiles.at(0).body,
                 [&](const tile::Instruction& one) { loads += one.kind == tile::Kind::kLoad; });
  EXPECT_LE(loads, 1024);
}

TEST(Search, FindsWhatTheModelDidNotKnow) {
  Setting setting(kSoftmax);
  World world(likes_many_warps, 120);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_EQ(parameter(result.schedule, 0, "num_warps"), 32);
  EXPECT_NEAR(result.ratio, 0.6, 0.051);
  EXPECT_EQ(result.standing.best, result.ratio);
  ASSERT_FALSE(result.history.empty());
  for (size_t i = 1; i < result.history.size(); ++i) EXPECT_LT(result.history[i].ratio, result.history[i - 1].ratio);
}

TEST(Search, IsTheSameEveryTimeForOneSeed) {
  std::vector<std::vector<std::string>> runs;
  for (const uint64_t seed : {7u, 7u, 8u}) {
    Setting setting(kSoftmax);
    World world(likes_many_warps, 40);
    SearchOptions options;
    options.seed = seed;
    search(setting.catalogue, setting.first, {}, world, options);
    runs.push_back(world.tried);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST(Search, TriesNothingTwiceAndTheMostPromisingFirst) {
  Setting setting(kSoftmax);
  World world([](const Schedule&) { return 1.0; }, 200);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_FALSE(result.exhausted);
  EXPECT_EQ(result.schedule, setting.first);
  const std::set<std::string> different(world.tried.begin(), world.tried.end());
  EXPECT_EQ(different.size(), world.tried.size());
  EXPECT_FALSE(different.contains(schedule_to_json(setting.first)));
  // What is tried changes what is next: in order are those of a batch. One softmax has no other grouping.
  ASSERT_GT(world.batches.size(), 3u);
  auto place = world.expected.begin();
  for (const size_t size : world.batches) {
    EXPECT_GE(size, 3u);
    EXPECT_TRUE(std::is_sorted(place, place + static_cast<std::ptrdiff_t>(size)));
    place += static_cast<std::ptrdiff_t>(size);
  }
  EXPECT_EQ(place, world.expected.end());
}

TEST(Search, EndsWhenNothingIsLeft) {
  Setting setting(R"(graph G {
    input %x : f64[512, 512] user args.0
    %m = aten.mm.default(self=%x, mat2=%x) : f64[512, 512]
    return %m
  })");
  World world([](const Schedule&) { return 1.0; }, 1000);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_TRUE(result.exhausted);
  EXPECT_EQ(result.standing.tried, 0);
}

constexpr const char* kProduct = R"(graph G {
    input %x : f32[4096, 4096] user args.0
    %m = aten.mm.default(self=%x, mat2=%x) : f32[4096, 4096]
    return %m
  })";

TEST(Search, TakesAnOperationFromTheLibraryAndVariesIt) {
  Setting setting(kProduct);
  ASSERT_EQ(setting.first.groups[0].scheduler, "extern");
  World world(
      [](const Schedule& schedule) {
        if (schedule.groups[0].scheduler == "extern") return 1.0;
        return parameter(schedule, 0, "stages") == 2 ? 0.8 : 0.9;
      },
      400);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_EQ(result.schedule.groups[0].scheduler, "contraction");
  EXPECT_EQ(parameter(result.schedule, 0, "stages"), 2);
}

TEST(Search, GivesAnOperationToTheLibraryWhereThatIsFaster) {
  Setting setting(kProduct);
  Schedule ours = setting.first;
  const ValueId product = setting.graph.nodes[0].results[0];
  ours.groups[0].scheduler = "contraction";
  ours.groups[0].parameters = setting.catalogue.find(ours.groups[0].nodes, {product})->defaults;
  World world([](const Schedule& schedule) { return schedule.groups[0].scheduler == "extern" ? 0.8 : 1.0; }, 200);
  const SearchResult result = search(setting.catalogue, ours, {}, world, {});
  EXPECT_EQ(result.schedule.groups[0].scheduler, "extern");
}

TEST(Search, AWinnerThatFailsItsVerificationIsNotKept) {
  Setting setting(kSoftmax);
  World world(likes_many_warps, 80);
  world.rejects = [](const Schedule& schedule) { return parameter(schedule, 0, "num_warps") == 32; };
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_NE(parameter(result.schedule, 0, "num_warps"), 32);
  EXPECT_LT(result.ratio, 1);
  EXPECT_GT(result.standing.failed, 0);
}

TEST(Search, WhatIsOnlyAsFastLeavesTheFirstScheduleInPlace) {
  Setting setting(kSoftmax);
  World world([](const Schedule&) { return 0.995; }, 30);
  EXPECT_EQ(search(setting.catalogue, setting.first, {}, world, {}).schedule, setting.first);
  EXPECT_TRUE(world.confirmed.empty());
}

TEST(Search, FailuresAreCountedAndPassedOver) {
  Setting setting(kSoftmax);
  World world(
      [](const Schedule& schedule) {
        return parameter(schedule, 0, "num_warps") >= 16 ? -1.0 : likes_many_warps(schedule);
      },
      60);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_GT(result.standing.failed, 0);
  EXPECT_LT(parameter(result.schedule, 0, "num_warps"), 16);
}

TEST(Search, AnInterruptLeavesWhatWasConfirmed) {
  Setting setting(kSoftmax);
  World world(likes_many_warps, 1000);
  world.confirm_early = true;
  world.interrupt_after = 24;
  EXPECT_THROW(search(setting.catalogue, setting.first, {}, world, {}), Interrupted);
  ASSERT_FALSE(world.confirmed.empty());
  EXPECT_LT(likes_many_warps(schedule_from_json(world.confirmed.back())), likes_many_warps(setting.first));
}

TEST(Search, ImprovementsOfDifferentGroupsAreTriedTogether) {
  Setting setting(kTwoGroups);
  ASSERT_EQ(setting.first.groups.size(), 3u);
  const auto one = [&](const Schedule& schedule, size_t group) {
    return schedule.groups.size() == 3 && parameter(schedule, group, "num_warps") == 2 ? 0.9 : 1.0;
  };
  World world([&](const Schedule& schedule) { return one(schedule, 0) * one(schedule, 2); }, 120);
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, {});
  EXPECT_NEAR(result.ratio, 0.81, 1e-9);
}

TEST(Search, RememberedSchedulesComeFirst) {
  Setting setting(kSoftmax);
  Schedule known = setting.first;
  known.groups[0].parameters["num_warps"] = 32;
  known.groups[0].parameters["x_block"] = 2;
  World world(likes_many_warps, 6);
  search(setting.catalogue, setting.first, {{known, "", "", 0}}, world, {});
  ASSERT_FALSE(world.tried.empty());
  EXPECT_EQ(world.tried.front(), schedule_to_json(known));
}

TEST(Search, StopsAtACountOfCandidates) {
  Setting setting(kSoftmax);
  World world(likes_many_warps, 1000);
  SearchOptions options;
  options.most = 9;
  const SearchResult result = search(setting.catalogue, setting.first, {}, world, options);
  EXPECT_EQ(world.tried.size(), 9u);
  EXPECT_EQ(result.trials.size(), 9u);
  EXPECT_FALSE(result.exhausted);
}

// --- On a CPU: what the printer decides by itself, decided otherwise ---

constexpr const char* kColumnSoftmax = R"(graph G {
  input %x : f32[16, 256, 3072] user args.0
  %s = aten.softmax.int(self=%x, dim=1) : f32[16, 256, 3072]
  return %s
})";

TEST(SearchOnACpu, WhateverItTriesIsAWholeProgramAndMakesADifference) {
  const std::pair<const char*, const char*> graphs[] = {
      {kColumnSoftmax, "columns"},
      {"graph G {\n input %x : f32[512, 640] user args.0\n input %y : f32[640, 512] user args.1\n %t = "
       "aten.transpose.int(self=%y, dim0=0, dim1=1) : f32[512, 640] strides [1, 512]\n"
       " %a = aten.add.Tensor(self=%x, other=%t) : f32[512, 640]\n return %a\n}",
       "tile"},
      {"graph G {\n input %x : f32[512, 4096] user args.0\n %c = aten.cumsum.default(self=%x, dim=1) : f32[512, "
       "4096]\n return %c\n}",
       "piece"},
      {"graph G {\n input %x : f32[4, 8, 256, 256] user args.0\n %y = aten.avg_pool2d.default(self=%x, "
       "kernel_size=[16, 16]) : f32[4, 8, 16, 16]\n return %y\n}",
       "across"},
      {"graph G {\n input %x : f32[128, 512] user args.0\n %s = aten.relu.default(self=%x) : f32[128, 512]\n return "
       "%s\n}",
       "share"},
  };
  for (const auto& [text, wanted] : graphs) {
    Setting setting(text, "cpu");
    std::set<std::string> seen;
    World world(
        [&, wanted = wanted](const Schedule& schedule) {
          const Program program = make_program(setting.graph, schedule, setting.device);
          if (parameter(schedule, 0, wanted) >= 0) seen.insert(make_cpu_printer()->kernels(program));
          return 0.7 + static_cast<double>(std::hash<std::string>{}(schedule_to_json(schedule)) % 1000) / 1000;
        },
        60);
    search(setting.catalogue, setting.first, {}, world, {});
    EXPECT_GT(seen.size(), 1u) << wanted << "\n" << text;
  }
}

TEST(SearchOnACpu, FindsWhatTheModelDidNotKnow) {
  const auto likes_narrow_blocks = [](const Schedule& schedule) {
    const int64_t columns = parameter(schedule, 0, "columns");
    return 0.6 + 0.07 * std::abs(std::log2(static_cast<double>(columns > 0 ? columns : 1024)) - 5) +
           (parameter(schedule, 0, "along") == 1 ? 0.0 : 0.05);
  };
  std::vector<std::vector<std::string>> runs;
  for (const uint64_t seed : {7u, 7u}) {
    Setting setting(kColumnSoftmax, "cpu");
    World world(likes_narrow_blocks, 60);
    SearchOptions options;
    options.seed = seed;
    const SearchResult result = search(setting.catalogue, setting.first, {}, world, options);
    EXPECT_EQ(parameter(result.schedule, 0, "columns"), 32);
    EXPECT_EQ(parameter(result.schedule, 0, "along"), 1);
    runs.push_back(world.tried);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

double cpu_estimate(const char* text, const plan::Parameters& parameters) {
  Setting setting(text, "cpu");
  setting.first.groups.at(0).parameters = parameters;
  return setting.catalogue.seconds(setting.first);
}

TEST(SearchOnACpu, TheModelRanks) {
  // Wide blocks leave the core's cache before they are walked again.
  EXPECT_LT(cpu_estimate(kColumnSoftmax, {{"columns", 256}}), cpu_estimate(kColumnSoftmax, {{"columns", 1024}}));
  // Where nothing is walked twice, narrow blocks only use cache lines in part.
  const char* sums =
      "graph G {\n input %x : f32[4096, 3072] user args.0\n %s = aten.sum.dim_IntList(self=%x, dim=[0]) : f32[3072]\n "
      "return %s\n}";
  EXPECT_LT(cpu_estimate(sums, {{"columns", 512}}), cpu_estimate(sums, {{"columns", 16}}));
  // Threads are worth waking for a million elements, not for a thousand.
  const auto relu = [](int64_t rows) {
    const std::string shape = std::to_string(rows) + ", 512]";
    return "graph G {\n input %x : f32[" + shape + " user args.0\n %s = aten.relu.default(self=%x) : f32[" + shape +
           "\n return %s\n}";
  };
  EXPECT_LT(cpu_estimate(relu(4096).c_str(), {{"share", 1}}), cpu_estimate(relu(4096).c_str(), {{"share", 1 << 30}}));
  EXPECT_GT(cpu_estimate(relu(2).c_str(), {{"share", 1}}), cpu_estimate(relu(2).c_str(), {{"share", 1 << 30}}));
}

}  // namespace
}  // namespace kw::search
