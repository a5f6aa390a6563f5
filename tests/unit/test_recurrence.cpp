// Which recurrent layers become kernels of ours, and how often those are launched.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "plan/cuda_graph.hpp"
#include "plan/estimate.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "plan/program_text.hpp"
#include "plan/recurrence.hpp"
#include "support/error.hpp"
#include "tile/text.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

struct Layer {
  std::string op = "aten.gru.input", type = "f32";
  int gates = 3, layers = 1;
  std::string options =
      "has_biases=false, num_layers=1, dropout=0.0, train=true, bidirectional=false, batch_first=false";
  int64_t steps = 512, batch = 10, features = 128, hidden = 256;
};

Graph graph_of(const Layer& layer) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto tensor = [&](std::initializer_list<int64_t> sizes) {
    std::string text;
    for (int64_t size : sizes) text += (text.empty() ? "" : ", ") + number(size);
    return layer.type + "[" + text + "]";
  };
  const int64_t rows = layer.gates * layer.hidden;
  const std::string states = tensor({layer.layers, layer.batch, layer.hidden});
  std::string text = "graph G on cuda {\n  input %x : " + tensor({layer.steps, layer.batch, layer.features}) +
                     " user args.0\n  input %h : " + states + " user args.1\n",
              parameters;
  for (int at = 0; at < layer.layers; ++at) {
    const std::string input = "%w" + number(at), recurrent = "%u" + number(at);
    text += "  input " + input + " : " + tensor({rows, at == 0 ? layer.features : layer.hidden}) + " parameter \"w" +
            number(at) + "\" access \"self.w\"\n  input " + recurrent + " : " + tensor({rows, layer.hidden}) +
            " parameter \"u" + number(at) + "\" access \"self.u\"\n";
    parameters += (at ? ", " : "") + input + ", " + recurrent;
  }
  return parse_graph(text + "  %y, %last = " + layer.op + "(input=%x, hx=%h, params=(" + parameters + "), " +
                     layer.options + ") : " + tensor({layer.steps, layer.batch, layer.hidden}) + ", " + states +
                     "\n  return %y\n}");
}

std::string why_not(const Layer& layer) {
  const Graph graph = graph_of(layer);
  const plan::GraphFacts facts(graph, {});
  EXPECT_EQ(plan::recurrence_of(facts, 0).has_value(), plan::why_not_taken(facts, 0).empty());
  return plan::why_not_taken(facts, 0);
}

Layer stacked(int layers) {
  Layer layer;
  layer.layers = layers;
  layer.options.replace(layer.options.find("num_layers=1"), 12, "num_layers=" + std::to_string(layers));
  return layer;
}

TEST(Recurrences, AreTakenButForWhatOnlyTheLibraryHas) {
  EXPECT_EQ(why_not(Layer{}), "");
  EXPECT_EQ(why_not(stacked(3)), "");
  EXPECT_EQ(why_not({.type = "f16"}), "");
  EXPECT_EQ(why_not({.op = "aten.rnn_relu.input", .gates = 1}), "");
  EXPECT_EQ(why_not({.op = "aten.gru.data"}), "its sequences are packed");
  EXPECT_EQ(why_not({.type = "f64"}), "it is in double precision, or of integers");
  EXPECT_EQ(why_not({.steps = 0}), "there is nothing to compute");
  EXPECT_EQ(why_not({.steps = 1 << 16, .batch = 64}), "the products of its input take too much memory");
  Layer drops = stacked(2);
  drops.options.replace(drops.options.find("dropout=0.0"), 11, "dropout=0.5");
  EXPECT_EQ(why_not(drops), "it drops out between layers");
  Layer lacks = stacked(2);
  lacks.layers = 3;  // as many parameters as three layers have
  EXPECT_EQ(why_not(lacks), "its parameters are not those of PyTorch's modules");
}

struct Made {
  Graph graph;
  Schedule schedule;
  Program program;
};

Made made_of(const Layer& layer) {
  const DeviceDescription device = default_device("triton");
  Made made{graph_of(layer), {}, {}};
  made.schedule = join_products(made.graph, default_schedule(made.graph, device), device);
  made.program = make_program(made.graph, made.schedule, device);
  return made;
}

// Whose weights are too many to stay on chip.
Layer wide(int layers) {
  Layer layer = stacked(layers);
  layer.hidden = 1024;
  return layer;
}

TEST(Recurrences, OfAStackOneKernelWalksTheWavesWhereItsWeightsStayOnChip) {
  const Made made = made_of(stacked(3));
  ASSERT_EQ(made.schedule.groups.size(), 1U);
  EXPECT_EQ(made.schedule.groups[0].scheduler, "recurrence");
  const auto& last = std::get<TileStep>(made.program.steps.back());
  EXPECT_FALSE(last.repetition);
  const std::string text = tile::print_program(made.program.tiles[last.program]);
  EXPECT_NE(text.find("  for step = 0 to 514 stages 1 carry "), std::string::npos) << text;
  EXPECT_NE(text.find("barrier grid counted arrived"), std::string::npos) << text;
  // Only the weights' loads and what follows from them are before the loop.
  EXPECT_LT(text.find("load recurrent_weights["), text.find("  for step"));
  EXPECT_GT(text.find("load hidden["), text.find("  for step"));
}

TEST(Recurrences, BlocksThatDoNotAllRunAtOnceAreLaunchedForEachWave) {
  DeviceDescription device = default_device("triton");
  const Graph graph = graph_of(stacked(3));
  const auto launches = [&] {
    const Schedule schedule = join_products(graph, default_schedule(graph, device), device);
    const Program program = make_program(graph, schedule, device);
    return std::get<TileStep>(program.steps.back()).repetition.has_value();
  };
  EXPECT_FALSE(launches());
  device.units = 47;  // 3 layers of 256 units, 16 to a block
  EXPECT_TRUE(launches());
  device.units = 48;
  EXPECT_FALSE(launches());
}

TEST(Recurrences, OfAWideStackOneKernelIsLaunchedOnceForEachWave) {
  const Made made = made_of(wide(3));
  ASSERT_EQ(made.schedule.groups.size(), 1U);
  EXPECT_EQ(made.schedule.groups[0].scheduler, "recurrence");
  ASSERT_EQ(made.schedule.groups.size(), 1U);
  EXPECT_EQ(made.schedule.groups[0].scheduler, "recurrence");
  EXPECT_NE(print(made.graph, made.program).find("  for step = 0 to 514: gru_kernel(hidden, "), std::string::npos)
      << print(made.graph, made.program);
  const auto& last = std::get<TileStep>(made.program.steps.back());
  ASSERT_TRUE(last.repetition);
  EXPECT_EQ(last.repetition->count, 514);
  EXPECT_NE(tile::print_program(made.program.tiles[last.program]).find("  size step = 0..513\n"), std::string::npos);
}

TEST(Recurrences, EveryLaunchCounts) {
  const DeviceDescription device = default_device("triton");
  const Made made = made_of(wide(3));
  const LaunchCosts costs = launch_costs(made.graph, made.program, device);
  const auto& last = std::get<TileStep>(made.program.steps.back());
  EXPECT_GT(costs.launches, 514);
  EXPECT_GT(costs.device, 514 * seconds_of(made.program.tiles[last.program], device));
  EXPECT_TRUE(graph_pays(costs));
  // Each launch reads a part of the products, not all of them.
  EXPECT_LT(seconds_of(made.program.tiles[last.program], device), 30e-6);
}

TEST(Recurrences, EveryWaitCounts) {
  const DeviceDescription device = default_device("triton");
  const Made few = made_of(Layer{.steps = 64}), many = made_of(Layer{.steps = 512});
  const auto seconds = [&](const Made& made) {
    return seconds_of(made.program.tiles[std::get<TileStep>(made.program.steps.back()).program], device);
  };
  EXPECT_GT(seconds(many), 6 * seconds(few));
  EXPECT_GT(seconds(many), 512e-6);
  EXPECT_LT(seconds(many), 512 * 10e-6);
}

TEST(Recurrences, ShortOnesThatTheLibraryIsFastWithAreItsOwn) {
  EXPECT_EQ(made_of({.steps = 1}).schedule.groups[0].scheduler, "extern");
}

}  // namespace
}  // namespace kw
