// Convolutions with the pointwise group that makes their image: which nodes such a group may have, where it stands, and
// what its kernels store.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/convolution_lowering.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "targets/targets.hpp"
#include "tile/interpreter.hpp"

namespace kw {
namespace {

using Names = std::vector<std::string>;

// An image of one residual block's end, and what reads it.
constexpr const char* kImage = R"(
  input %x : f32[16, 64, 56, 56] user args.0
  input %shortcut : f32[16, 64, 56, 56] user args.1
  input %scale : f32[64, 1, 1] parameter "scale"
  input %w : f32[128, 64, 3, 3] parameter "w"
  input %u : f32[128, 64, 1, 1] parameter "u"
  %scaled = aten.mul.Tensor(self=%x, other=%scale) : f32[16, 64, 56, 56]
  %sum = aten.add.Tensor(self=%scaled, other=%shortcut) : f32[16, 64, 56, 56]
  %image = aten.relu.default(self=%sum) : f32[16, 64, 56, 56]
  %y = aten.conv2d.default(input=%image, weight=%w, padding=[1, 1]) : f32[16, 128, 56, 56]
)";

struct Joined {
  explicit Joined(const std::string& text) : graph(parse_graph("graph G on cuda {\n" + text + "\n}")) {
    run_passes(graph, target_of(device).graph_forms());
    schedule = join_products(graph, default_schedule(graph, device), device);
  }

  Names ops_of(size_t group) const {
    Names ops;
    for (NodeId node : schedule.groups.at(group).nodes) ops.emplace_back(base_name(graph.nodes[node]));
    return ops;
  }
  Names schedulers() const {
    Names names;
    for (const GroupSchedule& group : schedule.groups) names.push_back(group.scheduler);
    return names;
  }
  Names kernels() const {
    const Program program = make_program(graph, schedule, device);
    Names names;
    for (const Step& step : program.steps)
      if (const auto* tiles = std::get_if<TileStep>(&step)) names.push_back(program.tiles[tiles->program].name);
    return names;
  }

  DeviceDescription device = default_device("triton");
  Graph graph;
  Schedule schedule;
};

// A group of all nodes but views, with these outputs.
std::optional<plan::LoweredGroup> lowered(const Graph& graph, const Names& outputs) {
  const plan::GraphFacts facts(graph, {});
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node)
    if (facts.kinds[node] != plan::NodeKind::kView) nodes.push_back(node);
  std::vector<ValueId> values;
  for (const std::string& name : outputs)
    for (ValueId value = 0; value < static_cast<ValueId>(graph.values.size()); ++value)
      if (graph.values[value].name == name) values.push_back(value);
  return plan::lower_group(facts, nodes, values);
}

}  // namespace

TEST(ConvolutionImages, AreMadeWhereTheyAreLaidOut) {
  const Joined joined(std::string(kImage) + "return %y");
  EXPECT_EQ(joined.schedulers(), Names{"convolution"});
  EXPECT_EQ(joined.kernels(), (Names{"image_scale_kernel", "mul_add_relu_channels_last_kernel", "filters_kernel",
                                     "conv2d_kernel", "conv2d_kernel_in_tf32"}));
}

TEST(ConvolutionImages, GroupsHaveWhatFollowsTheConvolutionToo) {
  const Joined joined(std::string(kImage) + R"(
  %r = aten.relu.default(self=%y) : f32[16, 128, 56, 56]
  return %r)");
  EXPECT_EQ(joined.schedulers(), Names{"convolution"});
  EXPECT_EQ(joined.ops_of(0), (Names{"mul", "add", "relu", "conv2d", "relu"}));
}

// The second convolution and the caller read what the first one's group has stored.
TEST(ConvolutionImages, AreStoredForTheirOtherReaders) {
  const Joined joined(std::string(kImage) + R"(
  %z = aten.conv2d.default(input=%image, weight=%u, stride=[2, 2]) : f32[16, 128, 28, 28]
  %p = aten.max_pool2d.default(self=%image, kernel_size=[2, 2], stride=[2, 2]) : f32[16, 64, 28, 28]
  return %y, %z, %p)");
  ASSERT_EQ(joined.schedule.groups.size(), 3u);
  EXPECT_EQ(joined.ops_of(0), (Names{"mul", "add", "relu", "conv2d"}));
  const Program program = make_program(joined.graph, joined.schedule, joined.device);
  int allocated = 0;
  for (const Step& step : program.steps)
    if (const auto* one = std::get_if<AllocateStep>(&step)) allocated += one->name == "image";
  EXPECT_EQ(allocated, 1);
}

// What follows the convolution reads something that is made of the image elsewhere: the group ends before it.
TEST(ConvolutionImages, GroupsStandInTheOrderOfTheirReaders) {
  const Joined joined(std::string(kImage) + R"(
  %m = aten.mean.dim(self=%image, dim=[1, 2, 3], keepdim=true) : f32[16, 1, 1, 1]
  %s = aten.add.Tensor(self=%y, other=%m) : f32[16, 128, 56, 56]
  return %s)");
  const plan::GraphFacts facts(joined.graph, {});
  std::vector<bool> made(joined.graph.nodes.size());
  for (const GroupSchedule& group : joined.schedule.groups) {
    for (NodeId node : group.nodes) made[node] = true;
    for (NodeId node : group.nodes)
      for_each_operand(joined.graph.nodes[node], [&](ValueId operand) {
        const NodeId maker = joined.graph.values[facts.roots[operand]].producer;
        EXPECT_TRUE(maker == kNoNode || made[maker]);
      });
  }
}

// A batch norm in training mode, of %a, and the convolution that reads it.
constexpr const char* kNorm = R"(
  %norm, _, _, %new_mean, %new_var = aten._native_batch_norm_legit_functional.default(input=%a, weight=%scale, bias=%shift, running_mean=%mean, running_var=%var, training=true, momentum=0.1, eps=1e-05) : f32[16, 64, 56, 56], f32[64], f32[64]
  %relu = aten.relu.default(self=%norm) : f32[16, 64, 56, 56]
  %y = aten.conv2d.default(input=%relu, weight=%w, padding=[1, 1]) : f32[16, 128, 56, 56]
  return buffer "mean" %new_mean, buffer "var" %new_var, %y)";

constexpr const char* kOfNorm = R"(
  input %w : f32[128, 64, 3, 3] parameter "w"
  input %scale : f32[64] parameter "scale"
  input %shift : f32[64] parameter "shift"
  input %mean : f32[64] buffer "mean"
  input %var : f32[64] buffer "var"
)";

TEST(ConvolutionImages, ANormsPointwisePartIsTakenFromItsGroup) {
  const Joined joined(std::string(kOfNorm) + "input %a : f32[16, 64, 56, 56] user args.0\n" + kNorm);
  ASSERT_EQ(joined.schedulers(), (Names{"reduction", "convolution"}));
  EXPECT_EQ(joined.ops_of(1), (Names{"batch_norm", "relu", "conv2d"}));
}

// The first convolution gives the statistics, the second one normalises as it lays its image out.
TEST(ConvolutionImages, NothingStandsBetweenTheConvolutionsAroundANorm) {
  const Joined joined(std::string(kOfNorm) + R"(
  input %x : f32[16, 64, 56, 56] user args.0
  input %v : f32[64, 64, 3, 3] parameter "v"
  %a = aten.conv2d.default(input=%x, weight=%v, padding=[1, 1]) : f32[16, 64, 56, 56]
)" + kNorm);
  ASSERT_EQ(joined.schedulers(), (Names{"convolution", "convolution"}));
  EXPECT_EQ(joined.ops_of(1), (Names{"batch_norm", "relu", "conv2d"}));
}

TEST(ConvolutionImages, KernelsNameWhatTheyComputeBesideTheGraphsNames) {
  const Joined joined(R"(
  input %scaled : f32[16, 64, 56, 56] user args.0
  input %largest : f32[64, 1, 1] user args.1
  input %half : f32[64, 1, 1] user args.2
  input %exponent : f32[128, 64, 3, 3] parameter "exponent"
  %mul = aten.mul.Tensor(self=%scaled, other=%largest) : f32[16, 64, 56, 56]
  %image = aten.add.Tensor(self=%mul, other=%half) : f32[16, 64, 56, 56]
  %y = aten.conv2d.default(input=%image, weight=%exponent, padding=[1, 1]) : f32[16, 128, 56, 56]
  return %y)");
  EXPECT_EQ(joined.schedulers(), Names{"convolution"});
  EXPECT_NO_THROW(make_program(joined.graph, joined.schedule, joined.device));
}

// A depthwise convolution reads each element for several windows, and has no kernel that could store it.
TEST(ConvolutionImages, OfDepthwiseConvolutionsAreNotStored) {
  const std::string text = R"(
  input %x : f32[4, 32, 28, 28] user args.0
  input %w : f32[32, 1, 3, 3] parameter "w"
  %image = aten.relu.default(self=%x) : f32[4, 32, 28, 28]
  %y = aten.conv2d.default(input=%image, weight=%w, padding=[1, 1], groups=32) : f32[4, 32, 28, 28]
)";
  EXPECT_TRUE(lowered(parse_graph("graph G on cuda {\n" + text + "return %y\n}"), {"y"}));
  EXPECT_FALSE(lowered(parse_graph("graph G on cuda {\n" + text + "return %y, %image\n}"), {"image", "y"}));
}

TEST(ConvolutionImages, ThatCostMoreThanAPassOverMemoryAreNotMadeAgainForEveryTap) {
  const Joined joined(R"(
  input %x : f32[64, 64, 112, 112] user args.0
  input %w : f32[64, 1, 7, 7] parameter "w"
  %image = aten.gelu.default(self=%x) : f32[64, 64, 112, 112]
  %y = aten.conv2d.default(input=%image, weight=%w, padding=[3, 3], groups=64) : f32[64, 64, 112, 112]
  return %y)");
  EXPECT_EQ(joined.schedulers().front(), "pointwise");
}

// A kernel of square tiles reads a transposed tensor along its lines.
TEST(ConvolutionImages, ThatRunAcrossTheLinesOfMemoryAreMadeBefore) {
  const auto schedulers = [](const std::string& strides) {
    return Joined(R"(
  input %x : f32[16, 64, 64, 64] user args.0
  input %w : f32[128, 64, 3, 3] parameter "w"
  %t = aten.permute.default(self=%x, dims=)" +
                  strides + R"(
  %image = aten.relu.default(self=%t) : f32[16, 64, 64, 64]
  %y = aten.conv2d.default(input=%image, weight=%w, padding=[1, 1]) : f32[16, 128, 64, 64]
  return %y)")
        .schedulers();
  };
  EXPECT_EQ(schedulers("[0, 1, 3, 2]) : f32[16, 64, 64, 64] strides [262144, 4096, 1, 64]"),
            (Names{"pointwise", "convolution"}));
  EXPECT_EQ(schedulers("[0, 2, 1, 3]) : f32[16, 64, 64, 64] strides [262144, 64, 4096, 1]"), Names{"convolution"});
}

TEST(ConvolutionImages, FoldsAndFiltersAreNotMadeInTheGroup) {
  EXPECT_FALSE(lowered(parse_graph(R"(graph G on cuda {
  input %x : f32[4, 32, 28, 28] user args.0
  input %w : f32[32, 32, 3, 3] parameter "w"
  %image = aten.softmax.int(self=%x, dim=1) : f32[4, 32, 28, 28]
  %y = aten.conv2d.default(input=%image, weight=%w) : f32[4, 32, 26, 26]
  return %y
})"),
                       {"y"}));
  EXPECT_FALSE(lowered(parse_graph(R"(graph G on cuda {
  input %x : f32[4, 32, 28, 28] user args.0
  input %w : f32[32, 32, 3, 3] parameter "w"
  %filters = aten.mul.Tensor(self=%w, other=0.5) : f32[32, 32, 3, 3]
  %y = aten.conv2d.default(input=%x, weight=%filters) : f32[4, 32, 26, 26]
  return %y
})"),
                       {"y"}));
}

// Half of an image is a view of which others have the rest.
TEST(ConvolutionImages, PartsOfATensorAreReadWhereTheyLie) {
  EXPECT_FALSE(lowered(parse_graph(R"(graph G on cuda {
  input %x : f32[1, 64, 28, 28] user args.0
  input %w : f32[32, 32, 3, 3] parameter "w"
  %made = aten.relu.default(self=%x) : f32[1, 64, 28, 28]
  %image = aten.slice.Tensor(self=%made, dim=1, start=0, end=32) : f32[1, 32, 28, 28] strides [50176, 784, 28, 1]
  %y = aten.conv2d.default(input=%image, weight=%w) : f32[1, 32, 26, 26]
  return %y
})"),
                       {"y"}));
}

namespace {

// The tile program of that name of a convolution that stands alone.
tile::Program tiles_of(const Joined& joined, const std::string& name) {
  for (const tile::Program& one : make_program(joined.graph, joined.schedule, joined.device).tiles)
    if (one.name == name) return one;
  ADD_FAILURE() << "no tile program is called " << name;
  return {};
}

}  // namespace

TEST(ConvolutionImages, TheLargestNumbersAtABorderCountForTheScale) {
  const Joined joined(R"(
    input %x : f32[2, 64, 64, 512] user args.0
    input %w : f32[128, 64, 3, 3] parameter "w"
    %y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[2, 128, 64, 512]
    return %y)");
  std::vector<double> image(2 * 64 * 64 * 512, 0x1p-10);
  for (size_t place = 0; place < image.size(); ++place)
    if (place % 512 >= 480) image[place] = 1;
  const tile::Memory left = tile::interpret(tiles_of(joined, "image_scale_kernel"),
                                            {{"x", {.reals = image, .wholes = {}}}});
  EXPECT_EQ(left.at("scale").reals, (std::vector<double>{0x1p-10, 0x1p-10}));
}

TEST(ConvolutionImages, BlocksOfTheSamePlacesFollowEachOther) {
  const Joined joined(R"(
    input %x : f32[16, 64, 56, 56] user args.0
    input %w : f32[384, 64, 3, 3] parameter "w"
    %y = aten.conv2d.default(input=%x, weight=%w, padding=[1, 1]) : f32[16, 384, 56, 56]
    return %y)");
  const tile::Program program = tiles_of(joined, "conv2d_kernel");
  ASSERT_GE(program.order.grouped, 0);
  EXPECT_EQ(program.symbols[program.order.grouped].name, "filter_block");
  EXPECT_EQ(program.symbols[program.order.along].name, "place_block");
  EXPECT_EQ(program.order.count, 3);
}

TEST(ConvolutionImages, GroupsOfSeveralChannelsAreNotRounded) {
  const Joined joined(R"(
    input %x : f32[16, 240, 28, 28] user args.0
    input %w : f32[60, 80, 1, 1] parameter "w"
    %y = aten.conv2d.default(input=%x, weight=%w, groups=3) : f32[16, 60, 28, 28]
    return %y)");
  ASSERT_EQ(joined.schedulers(), Names{"convolution"});
  EXPECT_EQ(joined.schedule.groups[0].parameters.at("scheme"), 1);
}

}  // namespace kw
