// Concatenations whose parts are stored in place: when a schedule does so, and what its program does then.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/concatenation.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "plan/program_text.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

// Two convolutions of one image, whose activations stand side by side.
constexpr const char* kParts = R"(
  input %x : f32[16, 64, 56, 56] user args.0
  input %u : f32[64, 64, 3, 3] parameter "u"
  input %w : f32[96, 64, 3, 3] parameter "w"
  %a = aten.conv2d.default(input=%x, weight=%u, padding=[1, 1]) : f32[16, 64, 56, 56]
  %b = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[16, 96, 56, 56]
  %left = aten.relu.default(self=%a) : f32[16, 64, 56, 56]
  %right = aten.relu.default(self=%b) : f32[16, 96, 56, 56]
  %both = aten.cat.default(tensors=(%left, %right), dim=1) : f32[16, 160, 56, 56]
)";

struct Planned {
  explicit Planned(const std::string& text) : graph(parse_graph("graph G on cuda {\n" + text + "\n}")) {
    run_passes(graph, target_of(device).graph_forms());
    const Schedule apart = default_schedule(graph, device);
    schedule = with_concatenations_in_place(graph, apart, join_products(graph, apart, device), device);
  }

  std::vector<std::string> schedulers() const {
    std::vector<std::string> names;
    for (const GroupSchedule& group : schedule.groups) names.push_back(group.scheduler);
    return names;
  }

  int stored_in_place() const {
    const std::vector<std::string> names = schedulers();
    return static_cast<int>(std::count(names.begin(), names.end(), kStoredInPlace));
  }

  std::map<std::string, Place> places() const {
    std::map<std::string, Place> named;
    for (const auto& [part, place] : places_of(plan::GraphFacts(graph, {}), schedule))
      named[graph.values[part].name] = place;
    return named;
  }

  DeviceDescription device = default_device("triton");
  Graph graph;
  Schedule schedule;
};

}  // namespace

TEST(Concatenation, PartsAreStoredByTheConvolutionsThatMakeThem) {
  const Planned planned(std::string(kParts) + "return %both");
  EXPECT_EQ(planned.schedulers(), (std::vector<std::string>{"convolution", "convolution", "in_place"}));
  const auto places = planned.places();
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places.at("left").offset, 0);
  EXPECT_EQ(places.at("right").offset, 64 * 56 * 56);
  const Program program = make_program(planned.graph, planned.schedule, planned.device);
  int allocated = 0, moved = 0;
  for (const Step& step : program.steps) {
    EXPECT_FALSE(std::holds_alternative<CopyStep>(step));
    if (const auto* allocate = std::get_if<AllocateStep>(&step)) {
      EXPECT_NE(allocate->name, "left");
      allocated += allocate->name == "both";
    }
    if (const auto* tiles = std::get_if<TileStep>(&step))
      for (size_t at = 0; at < tiles->tensors.size(); ++at)
        moved += tiles->tensors[at] == "both" && tiles->offsets[at] == 64 * 56 * 56;
  }
  EXPECT_EQ(allocated, 1);
  EXPECT_EQ(moved, 2);  // the kernel, and the one that computes again
}

TEST(Concatenation, APartThatNoKernelMakesIsCopied) {
  std::string text = kParts;
  const std::string relu = "  %left = aten.relu.default(self=%a) : f32[16, 64, 56, 56]\n";
  text.erase(text.find(relu), relu.size());
  text.replace(text.find("(%left"), 6, "(%x");
  const Planned planned(text + "return %both");
  ASSERT_EQ(planned.stored_in_place(), 1);
  const Program program = make_program(planned.graph, planned.schedule, planned.device);
  EXPECT_NE(print(planned.graph, program).find("copy x to 0 of dimension 1 of both"), std::string::npos);
}

TEST(Concatenation, WhatIsReadAgainOrReturnedIsNoPartOfAnother) {
  const Planned planned(std::string(kParts) + "return %both, %right");
  EXPECT_TRUE(planned.places().contains("left"));
  EXPECT_FALSE(planned.places().contains("right"));
  const Program program = make_program(planned.graph, planned.schedule, planned.device);
  EXPECT_NE(print(planned.graph, program).find("copy right to 64 of dimension 1 of both"), std::string::npos);
}

TEST(Concatenation, WherePointwiseKernelsMakeThePartsOneKernelMakesTheWhole) {
  const Planned planned(R"(
  input %x : f32[16, 64, 56, 56] user args.0
  input %y : f32[16, 32, 56, 56] user args.1
  %left = aten.relu.default(self=%x) : f32[16, 64, 56, 56]
  %right = aten.tanh.default(self=%y) : f32[16, 32, 56, 56]
  %both = aten.cat.default(tensors=(%left, %right), dim=1) : f32[16, 96, 56, 56]
  return %both)");
  EXPECT_EQ(planned.schedulers(), std::vector<std::string>{"pointwise"});
}

TEST(Concatenation, OneThatAConvolutionReadsWhereItsPartsLieIsNotStored) {
  const Planned planned(std::string("  input %v : f32[64, 160, 3, 3] parameter \"v\"") + kParts + R"(
  %y = aten.conv2d.default(input=%both, weight=%v, padding=[1, 1]) : f32[16, 64, 56, 56]
  return %y)");
  EXPECT_EQ(planned.stored_in_place(), 0);
}

// Of a graph whose nodes are kernels of their own.
TEST(Concatenation, OnesThatGrowLieInTheLargest) {
  const Graph graph = parse_graph(R"(graph G on cuda {
  input %x : f32[2, 4, 8, 8] user args.0
  %a = aten.sin.default(self=%x) : f32[2, 4, 8, 8]
  %one = aten.cat.default(tensors=(%x, %a), dim=1) : f32[2, 8, 8, 8]
  %b = aten.cos.default(self=%one) : f32[2, 8, 8, 8]
  %two = aten.cat.default(tensors=(%x, %a, %b), dim=1) : f32[2, 16, 8, 8]
  %c = aten.tanh.default(self=%two) : f32[2, 16, 8, 8]
  %three = aten.cat.default(tensors=(%two, %c), dim=1) : f32[2, 32, 8, 8]
  return %three
})");
  const DeviceDescription device = default_device("triton");
  Schedule schedule = default_schedule(graph, device);
  for (GroupSchedule& group : schedule.groups)
    if (is_concatenation(graph, group.nodes[0])) group = {group.nodes, std::string(kStoredInPlace), {}};
  const plan::GraphFacts facts(graph, {});
  const auto places = places_of(facts, schedule);
  std::map<std::string, int64_t> offsets;
  for (const auto& [value, place] : places) {
    EXPECT_EQ(graph.values[place.whole].name, "three");
    offsets[graph.values[value].name] = place.offset;
  }
  EXPECT_EQ(offsets,
            (std::map<std::string, int64_t>{{"one", 0}, {"two", 0}, {"a", 4 * 64}, {"b", 8 * 64}, {"c", 16 * 64}}));
  const std::string program = print(graph, make_program(graph, schedule, device));
  EXPECT_NE(program.find("copy x to 0 of dimension 1 of three"), std::string::npos);
  EXPECT_EQ(program.find("copy", program.find("copy") + 1), std::string::npos);
}

// As torch.stack is written: views of what is computed. Views in front of a concatenation become one behind it.
TEST(Concatenation, PartsThatAreViewsAreStoredInTheirPlaces) {
  std::string text = R"(
  input %x : f32[4, 128, 64] user args.0
)",
              parts;
  for (const std::string at : {"0", "1", "2", "3"}) {
    text += "  %x" + at + " = aten.select.int(self=%x, dim=0, index=" + at + ") : f32[128, 64] offset " +
            std::to_string(std::stoi(at) * 128 * 64) + "\n  %a" + at + " = aten.softmax.int(self=%x" + at +
            ", dim=-1) : f32[128, 64]\n  %v" + at + " = aten.unsqueeze.default(self=%a" + at +
            ", dim=1) : f32[128, 1, 64]\n";
    parts += (parts.empty() ? "%v" : ", %v") + at;
  }
  const Planned planned(text + "  %all = aten.cat.default(tensors=(" + parts +
                        "), dim=1) : f32[128, 4, 64]\nreturn %all");
  EXPECT_EQ(planned.stored_in_place(), 1);
  const auto places = planned.places();
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places.at("a3").offset, 3 * 64);
}

}  // namespace kw
