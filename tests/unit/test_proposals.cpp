// What is proposed to a search: by a proposer, and by the archive.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "archive/archive.hpp"
#include "search/edit_space.hpp"
#include "search/memory.hpp"
#include "search/propose.hpp"
#include "search_world.hpp"

namespace kw::search {
namespace {

class Remembering : public testing::Test {
 protected:
  Remembering()
      : folder(std::filesystem::temp_directory_path() / ("kw-search-" + std::to_string(getpid()))),
        archive((folder / "archive.db").string()) {
    environment = archive.add_environment("{}");
  }
  ~Remembering() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
  Archive archive;
  std::string environment;
};

TEST_F(Remembering, AMeasuredScheduleIsFoundAgain) {
  Setting setting(kSoftmax);
  Memory(archive, environment, "1", "reference")
      .add(setting.graph, setting.first, {Outcome::State::kMeasured, 0.5, 0.4, 0.6, false, ""});
  Memory memory(archive, environment, "1", "reference");
  const auto found = memory.find(setting.graph, setting.first);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->reused);
  EXPECT_EQ(found->ratio, 0.5);
  EXPECT_FALSE(Memory(archive, environment, "2", "reference").find(setting.graph, setting.first)) << "another emitter";
  EXPECT_FALSE(Memory(archive, environment, "1", "ieee").find(setting.graph, setting.first));
}

TEST_F(Remembering, TheSameGroupInAnotherProblemBeginsWithItsBestParameters) {
  Setting setting(kSoftmax);
  Schedule winner = setting.first;
  winner.groups[0].parameters["num_warps"] = 32;
  Memory memory(archive, environment, "1", "reference");
  memory.learn(setting.catalogue, setting.first, winner, 0.7);

  Setting other(R"(graph Other {
    input %w : f32[4096, 4096] parameter "w"
    input %tokens : f32[8192, 4096] user args.0
    %weights = aten.softmax.int(self=%tokens, dim=1) : f32[8192, 4096]
    %product = aten.mm.default(self=%weights, mat2=%w) : f32[8192, 4096]
    return %product
  })");
  const auto known = memory.best_known(other.catalogue, other.first);
  ASSERT_TRUE(known);
  EXPECT_EQ(parameter(*known, 0, "num_warps"), 32);

  Setting shorter(R"(graph Shorter {
    input %x : f32[8192, 2048] user args.0
    %s = aten.softmax.int(self=%x, dim=1) : f32[8192, 2048]
    return %s
  })");
  EXPECT_FALSE(memory.best_known(shorter.catalogue, shorter.first)) << "another shape is another group";
}

TEST_F(Remembering, ParametersThatTheSchedulerDoesNotTakeAreLeftOutByName) {
  for (const auto& [name, value] : {std::pair{"num_wraps", 8}, std::pair{"num_warps", 3}}) {
    Setting setting(kSoftmax);
    Schedule winner = setting.first;
    winner.groups[0].parameters[name] = value;
    Memory memory(archive, environment, name, "reference");
    memory.learn(setting.catalogue, setting.first, winner, 0.7);
    EXPECT_FALSE(memory.best_known(setting.catalogue, setting.first));
    ASSERT_EQ(memory.refused().size(), 1u);
    EXPECT_NE(memory.refused().front().find(name), std::string::npos) << memory.refused().front();
  }
}

// A group that says nothing of `last_block` has it; "last_block 0" is then a change, and "last_block 1" is none.
TEST(Edits, WhatAScheduleLeavesOutIsNotTakenForZero) {
  Setting setting(
      "graph G {\n input %x : f32[40000000] user args.0\n %s = aten.sum.default(self=%x) : f32[]\n return %s\n}");
  ASSERT_FALSE(setting.first.groups[0].parameters.contains("last_block"));
  const auto space = edit_space(setting.catalogue, setting.first);
  ASSERT_EQ(space.size(), 1u);
  const auto with_last_block = [&](int64_t value) {
    Edit edit = {space[0].defaults};
    for (size_t range = 0; range < space[0].ranges.size(); ++range)
      if (space[0].ranges[range].name == "last_block") edit[0][range] = value;
    return edited(space, setting.first, edit);
  };
  EXPECT_EQ(with_last_block(1), setting.first);
  EXPECT_EQ(parameter(with_last_block(0), 0, "last_block"), 0);
}

// Proposals

class Script : public Proposer {
 public:
  explicit Script(std::vector<Proposal> proposals, int batch = 2) : proposals_(std::move(proposals)), batch_(batch) {}
  int batch() const override { return batch_; }
  std::vector<Proposal> propose(int count) override {
    std::vector<Proposal> some;
    for (; count > 0 && next_ < proposals_.size(); --count) some.push_back(proposals_[next_++]);
    return some;
  }
  void told(const std::vector<Told>& outcomes) override { heard.insert(heard.end(), outcomes.begin(), outcomes.end()); }
  std::vector<Told> heard;

 private:
  std::vector<Proposal> proposals_;
  int batch_;
  size_t next_ = 0;
};

TEST(Proposals, AreEvaluatedOnceEachBesideTheFirst) {
  Setting setting(kSoftmax);
  const auto space = edit_space(setting.catalogue, setting.first);
  ASSERT_EQ(space.size(), 1u);
  EXPECT_EQ(space[0].name, "softmax");
  EXPECT_NE(space[0].work.find("reads f32[8192, 4096]; writes f32[8192, 4096]"), std::string::npos) << space[0].work;
  const auto with = [&](const char* name, int64_t value) {
    Edit edit = {space[0].defaults};
    for (size_t range = 0; range < space[0].ranges.size(); ++range)
      if (space[0].ranges[range].name == name) edit[0][range] = value;
    return Proposal{edited(space, setting.first, edit), change_text(space, edit), ""};
  };
  const Proposal as_it_is = with("nothing", 0), warps = with("num_warps", 32), fewer = with("num_warps", 2);
  EXPECT_EQ(*as_it_is.schedule, setting.first);
  EXPECT_EQ(as_it_is.change, "as it is");
  EXPECT_EQ(warps.change, "softmax: num_warps 32");
  EXPECT_EQ(parameter(*warps.schedule, 0, "num_warps"), 32);

  Script script({as_it_is, warps, warps, {std::nullopt, "", "no JSON"}, fewer, with("x_block", 2)});
  World world(likes_many_warps);
  const SearchResult result = evaluate_proposals(setting.first, script, world, 2);
  using Kind = Told::Kind;
  ASSERT_EQ(script.heard.size(), 5u);  // the sixth was not asked for: two have been evaluated
  const std::vector<Kind> kinds = {Kind::kRepeated, Kind::kEvaluated, Kind::kRepeated, Kind::kUnfit, Kind::kEvaluated};
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(script.heard[i].kind, kinds[i]) << i;
  EXPECT_EQ(script.heard[0].outcome.ratio, 1);
  EXPECT_EQ(script.heard[2].outcome.ratio, script.heard[1].outcome.ratio);
  EXPECT_EQ(script.heard[3].reason, "no JSON");
  EXPECT_EQ(world.tried.size(), 2u);
  EXPECT_EQ(result.standing.tried, 2);
  EXPECT_EQ(result.schedule, *warps.schedule);
  ASSERT_EQ(result.trials.size(), 2u);
  EXPECT_EQ(result.trials[0].change, "softmax: num_warps 32");
}

// Gives all that it has at once, whatever was asked for.
class Generous : public Script {
 public:
  Generous(std::vector<Proposal> proposals, int batch) : Script(std::move(proposals), batch) {}
  std::vector<Proposal> propose(int) override { return Script::propose(100); }
};

TEST(Proposals, OfMoreThanWereAskedForTheMostPromisingAreEvaluated) {
  Setting setting(kSoftmax);
  const auto space = edit_space(setting.catalogue, setting.first);
  const auto warps = [&](int64_t value, double expected) {
    Edit edit = {space[0].defaults};
    for (size_t range = 0; range < space[0].ranges.size(); ++range)
      if (space[0].ranges[range].name == "num_warps") edit[0][range] = value;
    return Proposal{edited(space, setting.first, edit), change_text(space, edit), "", expected};
  };
  ASSERT_NE(parameter(setting.first, 0, "num_warps"), 32);
  Generous script({warps(2, 1.5), warps(32, 0.7), warps(16, std::numeric_limits<double>::infinity()), warps(32, 0.7),
                   warps(1, 3 * kHopeless)},
                  1);
  World world(likes_many_warps);
  const SearchResult result = evaluate_proposals(setting.first, script, world, 1);
  using Kind = Told::Kind;
  const std::vector<Kind> kinds = {Kind::kPassedOver, Kind::kEvaluated, Kind::kPassedOver, Kind::kRepeated,
                                   Kind::kPassedOver};
  ASSERT_EQ(script.heard.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(script.heard[i].kind, kinds[i]) << i;
  EXPECT_EQ(script.heard[3].outcome.ratio, script.heard[1].outcome.ratio);
  EXPECT_EQ(world.expected, std::vector<double>{0.7});
  EXPECT_EQ(result.standing.tried, 1);
  EXPECT_EQ(parameter(result.schedule, 0, "num_warps"), 32);

  // Nothing but hopeless ones: none is evaluated.
  Generous hopeless({warps(2, 2 * kHopeless)}, 1);
  World empty(likes_many_warps);
  EXPECT_EQ(evaluate_proposals(setting.first, hopeless, empty, 1).standing.tried, 0);
  EXPECT_TRUE(empty.tried.empty());
}

TEST(Proposals, WhatIsSlowerCountsAsVerifiedOnlyWhereItWas) {
  Setting setting(kSoftmax);
  const auto space = edit_space(setting.catalogue, setting.first);
  const auto warps = [&](int64_t value) {
    Edit edit = {space[0].defaults};
    for (size_t range = 0; range < space[0].ranges.size(); ++range)
      if (space[0].ranges[range].name == "num_warps") edit[0][range] = value;
    return Proposal{edited(space, setting.first, edit), "", ""};
  };
  // 32 is better and verified; 2 is stopped early, 8 only a little slower: nothing speaks against them, and nothing for
  // them. The first was verified before.
  const auto ratio = [](const Schedule& schedule) {
    return parameter(schedule, 0, "num_warps") == 32 ? 0.7 : parameter(schedule, 0, "num_warps") == 2 ? 1.5 : 1.1;
  };
  ASSERT_EQ(parameter(setting.first, 0, "num_warps"), 4);
  const std::vector<Proposal> proposals = {warps(32), warps(2), warps(8), warps(4)};
  struct Verifying : World {
    using World::World;
    bool verifies() const override { return true; }
  };
  Script script(proposals, 4), all(proposals, 4);
  World world(ratio);
  world.confirm_early = true;
  Verifying verifying(ratio);
  verifying.confirm_early = true;
  evaluate_proposals(setting.first, script, world, 4);
  evaluate_proposals(setting.first, all, verifying, 4);
  std::vector<bool> some, every;
  for (const Told& one : script.heard) some.push_back(one.verified);
  for (const Told& one : all.heard) every.push_back(one.verified);
  EXPECT_EQ(some, (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(every, (std::vector<bool>{true, true, true, true}));
}

TEST(Proposals, OneThatIsWrongDoesNotStand) {
  Setting setting(kSoftmax);
  const auto space = edit_space(setting.catalogue, setting.first);
  Edit edit = {space[0].defaults};
  const auto warps = std::find_if(space[0].ranges.begin(), space[0].ranges.end(),
                                  [](const auto& range) { return range.name == "num_warps"; });
  edit[0][static_cast<size_t>(warps - space[0].ranges.begin())] = 32;
  Script script({{edited(space, setting.first, edit), "", ""}});
  World world(likes_many_warps);
  world.rejects = [](const Schedule&) { return true; };
  const SearchResult result = evaluate_proposals(setting.first, script, world, 5);
  EXPECT_EQ(result.schedule, setting.first);
  EXPECT_EQ(result.ratio, 1);
}

}  // namespace
}  // namespace kw::search
