// Convolutions that are made again by what reads their result, instead of being stored for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/convolutions_again.hpp"
#include "plan/plan.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

// Eight channels in, 64 out: the result is eight times the image, and each of its elements 144 operations.
constexpr const char* kFew = R"(graph Few on cuda {
  input %x : f32[128, 8, 128, 128] user args.0
  input %w : f32[64, 8, 3, 3] parameter "w"
  input %scale : f32[64] parameter "scale"
  input %shift : f32[64] parameter "shift"
  %y = aten.conv2d.default(input=%x, weight=%w) : f32[128, 64, 126, 126]
  %norm = aten.group_norm.default(input=%y, num_groups=8, weight=%scale, bias=%shift) : f32[128, 64, 126, 126]
  %relu = aten.relu.default(self=%norm) : f32[128, 64, 126, 126]
  return %relu
}
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

struct Planned {
  explicit Planned(const std::string& text) : device(default_device("triton")), graph(parse_graph(text)) {
    run_passes(graph, target_of(device).graph_forms());
    schedule = default_schedule(graph, device);
    target_of(device).join_groups(graph, schedule, device);
  }

  int convolutions() const {
    int count = 0;
    for (const GroupSchedule& group : schedule.groups)
      count += std::any_of(group.nodes.begin(), group.nodes.end(),
                           [&](NodeId node) { return base_name(graph.nodes[node]) == "conv2d"; });
    return count;
  }

  DeviceDescription device;
  Graph graph;
  Schedule schedule;
};

// Tensors that the program allocates, of so many elements.
int allocated(const Program& program, int64_t elements) {
  int count = 0;
  for (const Step& step : program.steps)
    if (const auto* allocate = std::get_if<AllocateStep>(&step)) count += allocate->type.elements() == elements;
  return count;
}

TEST(ConvolutionsAgain, WithANormBehindThemNothingIsStoredBetween) {
  const Planned planned(kFew);
  EXPECT_EQ(planned.convolutions(), 2);
  const Program program = make_program(planned.graph, planned.schedule, planned.device);
  EXPECT_EQ(allocated(program, int64_t{128} * 64 * 126 * 126), 1);  // what is returned
}

TEST(ConvolutionsAgain, TheImageAndTheFiltersAreLaidOutOnce) {
  const Planned planned(kFew);
  const Program program = make_program(planned.graph, planned.schedule, planned.device);
  int images = 0, filters = 0;
  for (const Step& step : program.steps)
    if (const auto* tiles = std::get_if<TileStep>(&step)) {
      images += program.tiles[tiles->program].name == "channels_last_kernel";
      filters += program.tiles[tiles->program].name == "filters_kernel";
    }
  EXPECT_EQ(images, 1);
  EXPECT_EQ(filters, 1);
}

TEST(ConvolutionsAgain, WhereTheResultIsReturnedItIsStored) {
  EXPECT_EQ(Planned(replaced(kFew, "return %relu", "return %relu, %y")).convolutions(), 1);
}

TEST(ConvolutionsAgain, WhereSomethingElseReadsTheResultItIsStored) {
  const std::string text = replaced(
      replaced(kFew, "  return %relu",
               "  %sums = aten.cumsum.default(self=%y, dim=3) : f32[128, 64, 126, 126]\n  return %relu"),
      "return %relu", "return %relu, %sums");
  EXPECT_EQ(Planned(text).convolutions(), 1);
}

TEST(ConvolutionsAgain, NotWhereArithmeticTakesLongerThanMemory) {
  std::string text = replaced(kFew, "f32[128, 8, 128, 128]", "f32[128, 256, 128, 128]");
  EXPECT_EQ(Planned(replaced(text, "f32[64, 8, 3, 3]", "f32[64, 256, 3, 3]")).convolutions(), 1);
}

TEST(ConvolutionsAgain, WithoutStatisticsThereIsOne) {
  const std::string text = replaced(
      kFew,
      "%norm = aten.group_norm.default(input=%y, num_groups=8, weight=%scale, bias=%shift) : f32[128, 64, 126, 126]",
      "%norm = aten.cumsum.default(self=%y, dim=3) : f32[128, 64, 126, 126]");
  EXPECT_EQ(Planned(text).convolutions(), 1);
}

}  // namespace
}  // namespace kw
