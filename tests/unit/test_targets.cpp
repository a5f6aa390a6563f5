// What a target has to say, and that a new one needs nothing of src: the toy is compiled for end to end.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "emit/target_printer.hpp"
#include "ir/op_registry.hpp"
#include "ir/text.hpp"
#include "plan/domain.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "propose/compile.hpp"
#include "search/catalogue.hpp"
#include "search/edit_space.hpp"
#include "support/error.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"
#include "toy/target.hpp"

using namespace kw;

namespace {

// The table of src/targets with one more line.
std::vector<const Target*> with_toy() {
  std::vector<const Target*> all = targets();
  all.push_back(&toy_target());
  return all;
}

constexpr const char* kSumsOfProducts = R"(
graph SumsOfProducts on cpu {
  input %x : f32[6, 5] user args.0
  input %y : f32[6, 5] user args.1
  %product = aten.mul.Tensor(self=%x, other=%y) : f32[6, 5]
  %sum = aten.sum.dim_IntList(self=%product, dim=[1]) : f32[6]
  %sign = aten.neg.default(self=%sum) : f32[6]
  return %sign
})";

constexpr const char* kOfTheLibrary = R"(
graph Sine on cpu {
  input %x : f32[6, 5] user args.0
  %twice = aten.add.Tensor(self=%x, other=%x) : f32[6, 5]
  %sine = aten.sin.default(self=%twice) : f32[6, 5]
  return %sine
})";

CompileOptions options_for(const DeviceDescription& device) {
  return {.device = device, .passes = {}, .problem_name = "", .problem_source = ""};
}

// Softmax over rows that no single program keeps.
Compiled long_rows_on(int64_t units) {
  DeviceDescription device = default_device("triton");
  device.units = units;
  return compile(parse_graph(R"(
graph LongRows on cuda {
  input %x : f32[32, 393216] user args.0
  %y = aten._softmax.default(self=%x, dim=1, half_to_float=false) : f32[32, 393216]
  return %y
})"),
                 options_for(device));
}

}  // namespace

TEST(Targets, HaveNamesOfTheirOwnAndDevicesThatNameThem) {
  std::set<std::string_view> names;
  for (const Target* target : with_toy()) {
    EXPECT_TRUE(names.insert(target->name()).second) << target->name();
    const DeviceDescription device = target->default_device();
    EXPECT_EQ(device.target, target);
    EXPECT_GT(device.units, 0);
    EXPECT_GT(device.copy_bytes_per_second, 0);
    EXPECT_FALSE(target->schedulers().empty());
    EXPECT_NE(target->printer()->device_text().find("\"" + std::string(target->tensors()) + "\""), std::string::npos);
    EXPECT_NE(target->printer()->runs_ahead(), target->is_host());
  }
}

TEST(Targets, AreFoundByNameAndTheErrorSaysWhichThereAre) {
  for (const Target* target : targets()) EXPECT_EQ(find_target(target->name()), target);
  try {
    target_named("vulkan");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_EQ(error.text().hint, "Use triton or cpu.");
  }
}

TEST(Targets, DescribeTheParametersThatTheirSchedulersHave) {
  for (const Target* target : targets())
    for (const plan::Scheduler& scheduler : target->schedulers()) {
      if (scheduler.work != plan::GroupWork::kElements) continue;
      for (const plan::ParameterSpec& spec : scheduler.takes().specs())
        EXPECT_NE(target->meaning_of(spec.name), "") << target->name() << " " << spec.name;
    }
}

// docs/schedulers: a page for each, which names its parameters.
TEST(Targets, EverySchedulerHasAPageThatNamesItsParameters) {
  for (const Target* target : targets())
    for (const plan::Scheduler& scheduler : target->schedulers()) {
      std::ifstream page(std::string(KW_DOCS_DIR) + "/schedulers/" + std::string(scheduler.name) + ".md");
      ASSERT_TRUE(page) << scheduler.name;
      const std::string text{std::istreambuf_iterator<char>(page), std::istreambuf_iterator<char>()};
      for (const plan::ParameterSpec& spec : scheduler.takes().specs())
        EXPECT_NE(text.find("| `" + std::string(spec.name) + "` |"), std::string::npos)
            << scheduler.name << " on " << target->name() << ": " << spec.name;
    }
}

TEST(Toy, IsCompiledForFromTheGraphToTheFile) {
  const Compiled compiled = compile(parse_graph(kSumsOfProducts), options_for(toy_target().default_device()));
  EXPECT_EQ(compiled.schedule.target, "toy");
  ASSERT_EQ(compiled.schedule.groups.size(), 1u);
  EXPECT_EQ(compiled.schedule.groups[0].scheduler, "reduction");
  EXPECT_EQ(compiled.schedule.groups[0].parameters, (plan::Parameters{{"chunk", 2}}));
  EXPECT_EQ(compiled.library_calls, 0);
  EXPECT_NE(compiled.source.find("sum("), std::string::npos) << compiled.source;
  EXPECT_NE(compiled.source.find("class ModelNew"), std::string::npos);
  EXPECT_EQ(groups_at_work(compiled, {compiled.kernels.at(0)}), std::vector<size_t>{0});
}

TEST(Toy, PrintsWhatItsOwnStepsOfLoweringMake) {
  const Compiled compiled = compile(parse_graph(R"(
graph Difference on cpu {
  input %x : f32[6, 5] user args.0
  input %y : f32[6, 5] user args.1
  %minus = aten.neg.default(self=%y) : f32[6, 5]
  %sum = aten.add.Tensor(self=%x, other=%minus) : f32[6, 5]
  return %sum
})"),
                                    options_for(toy_target().default_device()));
  ASSERT_EQ(compiled.program.lowered.size(), 1u);
  EXPECT_NE(tile::print_program(compiled.program.tiles[0]).find(" = neg "), std::string::npos);
  const std::string text = tile::print_program(compiled.program.lowered[0]->program);
  EXPECT_EQ(text.find(" = neg "), std::string::npos) << text;
  EXPECT_NE(compiled.source.find("(x_tile[column] - y_tile[column])"), std::string::npos) << compiled.source;
}

// Where the tensors lie is the same for both.
TEST(Toy, GetsGraphsInTheFormItAsksForNotInThatOfItsTensorsDevice) {
  const auto operators_for = [](const Target& target, const char* text) {
    CompileOptions options = options_for(target.default_device());
    std::multiset<std::string> names;
    for (const Node& node : compile(parse_graph(text), options, CompileStage::kPasses).graph.nodes)
      names.emplace(base_name(node.op));
    return names;
  };
  constexpr const char* kSort = R"(
graph Sort on cpu {
  input %x : i64[6, 5] user args.0
  %values, %places = aten.sort.default(self=%x, dim=1) : i64[6, 5], i64[6, 5]
  return %values, %places
})";
  EXPECT_TRUE(operators_for(target_named("cpu"), kSort).contains("sort"));
  const auto counted = operators_for(toy_target(), kSort);
  EXPECT_FALSE(counted.contains("sort"));
  EXPECT_EQ(counted.count("scatter"), 2u);
  constexpr const char* kPool = R"(
graph Pool on cpu {
  input %x : f32[2, 3, 40, 70] user args.0
  %y = aten.adaptive_avg_pool2d.default(self=%x, output_size=[4, 4]) : f32[2, 3, 4, 4]
  return %y
})";
  EXPECT_EQ(operators_for(target_named("cpu"), kPool).size(), 2u);
  EXPECT_EQ(operators_for(toy_target(), kPool).size(), 1u);
}

// The same sort, by which rows a target says that its kernels take.
TEST(Toy, SortsAreKernelsWhereTheTargetTakesTheirRows) {
  const Graph graph = parse_graph(R"(
graph Sort on cpu {
  input %x : f32[6, 600] user args.0
  %values, %places = aten.sort.default(self=%x, dim=1) : f32[6, 600], i64[6, 600]
  return %values, %places
})");
  const auto kind = [&](const GraphForms& forms) { return plan::GraphFacts(graph, forms).kinds.at(0); };
  EXPECT_EQ(kind({}), plan::NodeKind::kScan);
  EXPECT_EQ(kind(toy_target().graph_forms()), plan::NodeKind::kScan) << "32 bits leave room";
  EXPECT_EQ(kind({.sorts = {.longest = 599}}), plan::NodeKind::kExtern);
  EXPECT_EQ(kind(target_named("cpu").graph_forms()), plan::NodeKind::kScan);
  EXPECT_EQ(kind(target_named("triton").graph_forms()), plan::NodeKind::kExtern);
}

TEST(Toy, LeavesToTheLibraryWhatItHasNoSchedulerFor) {
  const Compiled compiled = compile(parse_graph(kOfTheLibrary), options_for(toy_target().default_device()));
  EXPECT_EQ(compiled.kernels.size(), 1u);
  EXPECT_EQ(compiled.library_ops, std::vector<std::string>{"aten.sin"});
}

TEST(Toy, HasSchedulesThatAreReadCheckedAndSearched) {
  const CompileOptions options = options_for(toy_target().default_device());
  const Compiled compiled = compile(parse_graph(kSumsOfProducts), options);
  Schedule other = schedule_from_json(schedule_to_json(compiled.schedule));
  EXPECT_EQ(other, compiled.schedule);
  other.groups[0].parameters["chunk"] = 4;
  EXPECT_NE(with_schedule(compiled, other, options).source, compiled.source);
  other.groups[0].parameters["chunk"] = 3;
  EXPECT_THROW(with_schedule(compiled, other, options), Error) << "no power of two";
  other.target = "cpu";
  EXPECT_THROW(with_schedule(compiled, other, options), Error) << "another target's";

  search::Catalogue catalogue(compiled.graph, options.device);
  EXPECT_GT(catalogue.seconds(compiled.schedule), 0);
  const std::vector<search::EditedGroup> space = search::edit_space(catalogue, compiled.schedule);
  ASSERT_EQ(space.size(), 1u);
  EXPECT_EQ(space[0].ranges.at(0).name, "chunk");
}

// The other groups stay kernels.
TEST(Toy, LeavesToTheLibraryWhatLoweringRefuses) {
  const Compiled compiled = compile(parse_graph(R"(
graph TooMany on cpu {
  input %x : f32[4099] user args.0
  input %y : f32[6, 5] user args.1
  %minus = aten.neg.default(self=%x) : f32[4099]
  %twice = aten.add.Tensor(self=%minus, other=%minus) : f32[4099]
  %sign = aten.neg.default(self=%y) : f32[6, 5]
  return %twice, %sign
})"),
                                    options_for(toy_target().default_device()));
  EXPECT_EQ(compiled.library_calls, 2);
  EXPECT_EQ(compiled.kernels.size(), 1u);
  ASSERT_EQ(compiled.left.size(), 1u);
  EXPECT_NE(compiled.left[0].find("the library computes neg and what was to be fused with it: kernel"),
            std::string::npos)
      << compiled.left[0];
}

// A schedule that somebody asks for is refused.
TEST(Toy, RefusesASchedulePeopleAskFor) {
  const CompileOptions options = options_for(toy_target().default_device());
  Compiled compiled = compile(parse_graph(kSumsOfProducts), options);
  compiled.graph = parse_graph(R"(
graph TooMany on cpu {
  input %x : f32[4099] user args.0
  %minus = aten.neg.default(self=%x) : f32[4099]
  return %minus
})");
  Schedule schedule{.target = "toy", .groups = {{{0}, "pointwise", {}}}, .graphs = false};
  try {
    with_schedule(compiled, schedule, options);
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.text().code, "bad-schedule") << error.what(); }
}

TEST(Toy, IsNothingThatLanguageModelsWriteFor) { EXPECT_THROW(language_of(toy_target()), Error); }

TEST(Devices, RowsAreSpreadOverNoMoreProgramsThanAreSureToRunAtOnce) {
  const Compiled many = long_rows_on(132);
  ASSERT_EQ(many.program.tiles.size(), 1u);
  EXPECT_EQ(tile::blocks_of_row(many.program.tiles[0]), 48);
  EXPECT_NE(many.source.find("at least 24 multiprocessors"), std::string::npos) << many.source;

  const Compiled few = long_rows_on(16);
  EXPECT_FALSE(few.kernels.empty());
  EXPECT_EQ(few.library_calls, 0);
  for (const tile::Program& tiles : few.program.tiles) EXPECT_EQ(tile::blocks_of_row(tiles), 1);
  EXPECT_EQ(few.source.find("multiprocessors\""), std::string::npos) << "nothing keeps the module from running there";
}

TEST(Devices, AScheduleOfALargerDeviceIsLoweredOtherwiseOnASmallOne) {
  const Compiled many = long_rows_on(132), few = long_rows_on(16);
  const Compiled moved = with_schedule(many, many.schedule, options_for(few.device));
  EXPECT_EQ(moved.library_calls, 0);
  for (const tile::Program& tiles : moved.program.tiles) EXPECT_EQ(tile::blocks_of_row(tiles), 1);
  EXPECT_EQ(moved.source.find("multiprocessors\""), std::string::npos);
}
