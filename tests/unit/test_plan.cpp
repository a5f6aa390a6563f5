// Runs every file of tests/golden/plan: "target NAME", the graph, "----", its groups, schedule, program and kernels.
// KW_UPDATE_GOLDEN=1 rewrites the expected part.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/cost.hpp"
#include "plan/kernel_schedules.hpp"
#include "plan/plan.hpp"
#include "plan/program_text.hpp"
#include "plan/schedule_json.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"

namespace kw {
namespace {

constexpr std::string_view kSeparator = "----\n";

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(KW_GOLDEN_DIR))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Planned {
  Graph graph;
  Schedule schedule;
  Program program;
};

Planned plan_text(std::string_view text, const std::string& target = "triton") {
  Planned planned{parse_graph(text), {}, {}};
  const DeviceDescription device = default_device(target);
  fusion(planned.graph, target_of(device).graph_forms());
  planned.schedule = default_schedule(planned.graph, device);
  planned.program = make_program(planned.graph, planned.schedule, device);
  return planned;
}

std::string everything(const Planned& planned) {
  std::string text = print(planned.graph, planned.schedule) + print(planned.graph, planned.program);
  for (const auto& tiles : planned.program.tiles) text += tile::print_program(tiles);
  return text;
}

class PlanGolden : public testing::TestWithParam<std::string> {};

TEST_P(PlanGolden, ScheduleAndKernels) {
  const std::string path = std::string(KW_GOLDEN_DIR) + "/" + GetParam() + ".txt", text = read_file(path);
  const size_t line = text.find('\n'), separator = text.find(kSeparator);
  ASSERT_TRUE(text.starts_with("target ") && separator != std::string::npos) << path;
  const std::string target = text.substr(7, line - 7), graph = text.substr(line + 1, separator - line - 1);
  const Planned planned = plan_text(graph, target);
  const std::string actual = everything(planned);
  if (std::getenv("KW_UPDATE_GOLDEN"))
    write_file_atomically(path, text.substr(0, separator) + std::string(kSeparator) + actual);
  else EXPECT_EQ(actual, text.substr(separator + kSeparator.size())) << "KW_UPDATE_GOLDEN=1 rewrites " << path;
  EXPECT_EQ(schedule_from_json(schedule_to_json(planned.schedule)), planned.schedule);
  EXPECT_EQ(everything(plan_text(graph, target)), actual) << "planning is deterministic";
}

INSTANTIATE_TEST_SUITE_P(Files, PlanGolden, testing::ValuesIn(golden_files()),
                         [](const auto& one) { return one.param; });

TEST(Plan, ChainsOfPointwiseOperatorsBecomeOneKernel) {
  const auto planned = plan_text(R"(graph G {
    input %x : f32[128, 1000] user args.0
    input %bias : f32[1000] parameter "bias"
    %a = aten.add.Tensor(self=%x, other=%bias) : f32[128, 1000]
    %b = aten.gelu.default(self=%a) : f32[128, 1000]
    %c = aten.mul.Tensor(self=%b, other=%x) : f32[128, 1000]
    return %c
  })");
  EXPECT_EQ(planned.schedule.groups.size(), 1u);
  EXPECT_EQ(planned.program.steps.size(), 2u);  // allocate, launch
}

constexpr std::string_view kSoftmaxAndProduct = R"(graph G {
    input %x : f32[256, 512] user args.0
    input %w : f32[512, 256] user args.1
    %s = aten._softmax.default(self=%x, dim=-1, half_to_float=false) : f32[256, 512]
    %m = aten.mm.default(self=%s, mat2=%w) : f32[256, 256]
    return %m
  })";

TEST(KernelSchedules, AreWrittenOutAndReadBack) {
  for (const std::string target : {"triton", "cpu"}) {
    const Planned planned = plan_text(kSoftmaxAndProduct, target);
    const Schedule whole = with_kernel_schedules(planned.schedule, planned.program);
    size_t kernels = 0;
    for (const GroupSchedule& group : whole.groups) kernels += group.kernels.size();
    EXPECT_GE(kernels, planned.program.tiles.size());
    EXPECT_EQ(schedule_from_json(schedule_to_json(whole)), whole);
    Planned again{planned.graph, planned.schedule, make_program(planned.graph, whole, default_device(target))};
    EXPECT_EQ(everything(again), everything(planned));
    GroupSchedule group = whole.groups[0];
    ASSERT_FALSE(group.kernels.empty());
    group.take({});
    EXPECT_TRUE(group.kernels.empty()) << "of other parameters";
  }
}

TEST(KernelSchedules, ReplaceWhatASchedulerGivesOneKernel) {
  const Planned planned = plan_text(kSoftmaxAndProduct);
  const Schedule whole = with_kernel_schedules(planned.schedule, planned.program);
  const auto changed = [&](const auto& change) {
    Schedule schedule = whole;
    auto& [name, text] = *schedule.groups[0].kernels.begin();
    auto json = nlohmann::ordered_json::parse(text);
    change(json);
    text = json.dump();
    return make_program(planned.graph, schedule, default_device("triton"));
  };
  ASSERT_NE(planned.program.tiles[0].warps, 8);
  const Program wide = changed([](auto& json) { json["warps"] = 8; });
  EXPECT_EQ(wide.tiles[0].warps, 8);
  EXPECT_EQ(wide.sources[0]->schedule.warps, 8);
  for (size_t at = 1; at < wide.tiles.size(); ++at)
    EXPECT_EQ(tile::print_program(wide.tiles[at]), tile::print_program(planned.program.tiles[at]));
  const auto fault = [&](const auto& change) -> std::string {
    try {
      changed(change);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.text().message;
    }
    return "";
  };
  const std::string where = "group 0 (aten._softmax.default), kernel 'softmax_kernel': ";
  EXPECT_EQ(fault([](auto& json) { json["wraps"] = 8; }),
            where + "kernel schedule: there is no axis or parameter 'wraps'");
  EXPECT_EQ(fault([](auto& json) { json["warps"] = 5; }),
            where + "kernel schedule: warps is 5, but must be a power of two");
  EXPECT_EQ(fault([](auto& json) { json.begin().value()["grid"] = 2097152; }),
            where + "kernel schedule: 'grid' of axis 'row' is 2097152, but must be a whole number from 1 to 1048576");
  EXPECT_NE(fault([](auto& json) { json["registers"] = 255, json["warps"] = 32; }).find("asks for 255 registers"),
            std::string::npos);
  Schedule other = whole;
  other.groups[0].kernels = {{"softmx_kernel", "{}"}};
  try {
    make_program(planned.graph, other, default_device("triton"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.text().message, "group 0 (aten._softmax.default) has no kernel 'softmx_kernel'");
    EXPECT_EQ(error.text().hint, "Did you mean 'softmax_kernel'? Its kernels are softmax_kernel.");
  }
}

TEST(KernelSchedules, UnknownWordsOfAScheduleAreNamed) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      schedule_from_json(text);
    } catch (const Error& error) { return error.text().message + " | " + error.text().hint; }
    return "";
  };
  const std::string group = R"({"nodes": [0], "scheduler": "pointwise", "parameters": {})";
  EXPECT_EQ(fault(R"({"target": "triton", "groups": [)" + group + "}]}"), "");
  EXPECT_NE(fault(R"({"target": "triton", "graph": true, "groups": []})").find("it has no 'graph' | Did you mean"),
            std::string::npos);
  EXPECT_NE(
      fault(R"({"target": "triton", "groups": [)" + group + R"(, "kernel": {}}]})").find("group 0 has no 'kernel'"),
      std::string::npos);
  EXPECT_NE(fault(R"({"target": "triton", "groups": [)" + group + R"(, "kernels": []}]})").find("are no object"),
            std::string::npos);
}

TEST(Plan, FusionMakesNoCycleThroughALibraryCall) {
  // %c needs both %a and the library's %m, which needs %a: %a and %c cannot be one kernel unless %a is stored first.
  const auto planned = plan_text(R"(graph G {
    input %x : f32[64, 64] user args.0
    %a = aten.relu.default(self=%x) : f32[64, 64]
    %m = aten.mm.default(self=%a, mat2=%a) : f32[64, 64]
    %c = aten.add.Tensor(self=%m, other=%a) : f32[64, 64]
    return %c
  })");
  ASSERT_EQ(planned.schedule.groups.size(), 3u);
  EXPECT_EQ(planned.schedule.groups[1].scheduler, "extern");
}

TEST(Plan, RandomOperatorsKeepTheirOrder) {
  const auto planned = plan_text(R"(graph G {
    input %x : f32[64] user args.0
    %r = aten.rand.default(size=[64]) : f32[64]
    %s = aten.randn.default(size=[64]) : f32[64]
    %t = aten.rand_like.default(self=%x) : f32[64]
    %a = aten.add.Tensor(self=%t, other=%r) : f32[64]
    %b = aten.add.Tensor(self=%a, other=%s) : f32[64]
    return %b
  })");
  std::vector<NodeId> random;
  for (const auto& group : planned.schedule.groups)
    if (group.scheduler == "extern") random.push_back(group.nodes[0]);
  EXPECT_EQ(random, (std::vector<NodeId>{0, 1, 2}));
}

TEST(Plan, EqualLayersShareTheirKernel) {
  const auto planned = plan_text(R"(graph G {
    input %x : f32[64, 64] user args.0
    %a = aten.relu.default(self=%x) : f32[64, 64]
    %m = aten.mm.default(self=%a, mat2=%a) : f32[64, 64]
    %b = aten.relu.default(self=%m) : f32[64, 64]
    %n = aten.mm.default(self=%b, mat2=%b) : f32[64, 64]
    return %n
  })");
  EXPECT_EQ(planned.program.tiles.size(), 1u);
}

TEST(Plan, AScheduleThatDoesNotFitIsRefused) {
  auto planned = plan_text(R"(graph G {
    input %x : f32[64] user args.0
    %a = aten.relu.default(self=%x) : f32[64]
    return %a
  })");
  const DeviceDescription device = default_device("triton");
  Schedule unknown = planned.schedule;
  unknown.groups[0].scheduler = "sorcery";
  EXPECT_THROW(make_program(planned.graph, unknown, device), Error);
  Schedule missing = planned.schedule;
  missing.groups.clear();
  EXPECT_THROW(make_program(planned.graph, missing, device), Error);
  Schedule wrong = planned.schedule;
  wrong.groups[0].scheduler = "reduction";
  EXPECT_THROW(make_program(planned.graph, wrong, device), Error);
}

// Slices of one tensor at different places, of which 16 bytes divide every second one's address.
TEST(Plan, StepsThatReadOtherSlicesAreLaunchesOfOneKernel) {
  std::string text = "graph Steps {\n  input %x : f32[4, 8, 6] user args.0\n", last = "h";
  text += "  input %w : f32[6, 6] parameter \"w\"\n  input %h : f32[4, 6] user args.1\n";
  for (int step = 0; step < 8; ++step) {
    const std::string n = std::to_string(step);
    text += "  %m" + n + " = aten.mm.default(self=%" + last + ", mat2=%w) : f32[4, 6]\n";
    text += "  %x" + n + " = aten.select.int(self=%x, dim=1, index=" + n + ") : f32[4, 6] strides [48, 1] offset " +
            std::to_string(6 * step) + "\n";
    text += "  %s" + n + " = aten.mul.Tensor(self=%m" + n + ", other=%x" + n + ") : f32[4, 6]\n";
    last = "s" + n;
  }
  const auto planned = plan_text(text + "  return %" + last + "\n}\n");
  std::map<int, std::set<int64_t>> starts;
  for (const Step& step : planned.program.steps)
    if (const auto* tiles = std::get_if<TileStep>(&step))
      for (size_t at = 0; at < tiles->tensors.size(); ++at)
        if (tiles->tensors[at] == "x") starts[tiles->program].insert(tiles->offsets[at]);
  ASSERT_EQ(planned.program.tiles.size(), 2u);
  EXPECT_EQ(starts, (std::map<int, std::set<int64_t>>{{0, {0, 12, 24, 36}}, {1, {6, 18, 30, 42}}}));
  for (size_t program = 0; program < 2; ++program)
    for (const tile::Buffer& buffer : planned.program.tiles[program].buffers)
      EXPECT_EQ(buffer.alignment, buffer.name == "x" && program == 1 ? 4 : 16) << buffer.name;
}

TEST(Plan, TenThousandNodesArePlannedInSeconds) {
  std::string text = "graph Long {\n  input %x : f32[64, 64] user args.0\n  input %w : f32[64, 64] parameter \"w\"\n";
  std::string last = "x";
  for (int step = 0; step < 2500; ++step) {
    const std::string n = std::to_string(step);
    text += "  %m" + n + " = aten.mm.default(self=%" + last + ", mat2=%w) : f32[64, 64]\n";
    text += "  %a" + n + " = aten.add.Tensor(self=%m" + n + ", other=%" + last + ") : f32[64, 64]\n";
    text += "  %t" + n + " = aten.tanh.default(self=%a" + n + ") : f32[64, 64]\n";
    text += "  %s" + n + " = aten.mul.Tensor(self=%t" + n + ", other=%a" + n + ") : f32[64, 64]\n";
    last = "s" + n;
  }
  text += "  return %" + last + "\n}\n";
  const auto start = std::chrono::steady_clock::now();
  const auto planned = plan_text(text);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5.0);
  EXPECT_EQ(planned.schedule.groups.size(), 5000u);
  EXPECT_EQ(planned.program.tiles.size(), 1u);
}

TEST(Cost, ResultsAreHeldUntilTheirLastReader) {
  const Graph graph = parse_graph(R"(graph G {
    input %x : f32[1024] user args.0
    %a = aten.relu.default(self=%x) : f32[1024]
    %b = aten.cat.default(tensors=(%a, %a)) : f32[2048]
    %v = aten.view.default(self=%b, size=[2, 1024]) : f32[2, 1024]
    %c = aten.sum.dim_IntList(self=%v, dim=[0]) : f32[1024]
    %d = aten.tanh.default(self=%c) : f32[1024]
    return %d
  })");
  // The relu is gone when the sum is made, the view is the concatenation's own memory.
  EXPECT_EQ(peak_bytes(graph), 3 * 4096);
  EXPECT_EQ(bytes_in_work(graph), 2 * 3 * 4096 / 3 + 2 * 4096);
}

}  // namespace
}  // namespace kw
