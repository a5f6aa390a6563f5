// Recurrent layers whose blocks walk all steps and wait for each other compute what launches of each step do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ir/text.hpp"
#include "kernel/scalar_values.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "targets/targets.hpp"
#include "tile/interpreter.hpp"

namespace kw {
namespace {

struct Layers {
  std::string op = "lstm";
  int gates = 4, layers = 2, directions = 1;
  std::string type = "f32";
  int64_t steps = 5, batch = 3, features = 8, hidden = 20, projected = 0;

  int64_t state_size() const { return projected > 0 ? projected : hidden; }

  bool has_cell() const { return op == "lstm"; }
};

std::string tensor(const Layers& layers, std::initializer_list<int64_t> sizes) {
  std::string text;
  for (int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return layers.type + "[" + text + "]";
}

Graph graph_of(const Layers& one) {
  const int64_t rows = one.gates * one.hidden, cells = one.layers * one.directions;
  const std::string states = tensor(one, {cells, one.batch, one.state_size()}),
                    cell_states = tensor(one, {cells, one.batch, one.hidden});
  std::string text = "graph G on cuda {\n  input %x : " + tensor(one, {one.steps, one.batch, one.features}) +
                     " user args.0\n  input %h : " + states + " user args.1\n  input %c : " + cell_states +
                     " user args.2\n",
              parameters;
  int number = 0;
  const auto parameter = [&](const std::string& type) {
    const std::string name = "p" + std::to_string(number++);
    text += "  input %" + name + " : " + type + " parameter \"" + name + "\" access \"self." + name + "\"\n";
    parameters += (parameters.empty() ? "%" : ", %") + name;
  };
  for (int64_t cell = 0; cell < cells; ++cell) {
    parameter(tensor(one, {rows, cell < one.directions ? one.features : one.directions * one.state_size()}));
    parameter(tensor(one, {rows, one.state_size()}));
    parameter(tensor(one, {rows}));
    parameter(tensor(one, {rows}));
    if (one.projected > 0) parameter(tensor(one, {one.projected, one.hidden}));
  }
  const std::string both = one.directions == 2 ? "true" : "false",
                    result = tensor(one, {one.steps, one.batch, one.directions * one.state_size()});
  return parse_graph(text + (one.has_cell() ? "  %y, %hn, %cn" : "  %y, %hn") + " = aten." + one.op +
                     ".input(input=%x, hx=" + (one.has_cell() ? "(%h, %c)" : "%h") + ", params=(" + parameters +
                     "), has_biases=true, num_layers=" + std::to_string(one.layers) +
                     ", dropout=0.0, train=false, bidirectional=" + both + ", batch_first=false) : " + result + ", " +
                     states + (one.has_cell() ? ", " + cell_states : "") + "\n  return %y, %hn\n}");
}

Program program_of(const Graph& graph, int64_t persistent, int64_t gates) {
  const DeviceDescription device = default_device("triton");
  Schedule schedule = join_products(graph, default_schedule(graph, device), device);
  EXPECT_EQ(schedule.groups.size(), 1U);
  schedule.groups[0].scheduler = "recurrence";
  schedule.groups[0].parameters = {
      {"block_m", 16}, {"block_n", 16}, {"block_k", 16}, {"gates", gates}, {"persistent", persistent}};
  return make_program(graph, schedule, device);
}

// What a program's steps leave in its tensors, as the interpreter runs them.
class Outcome {
 public:
  // The input of this name, if any, begins with this number.
  Outcome(const Graph& graph, const Program& program, const std::string& changed = "", double first = 0)
      : program_(program) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    for (const GraphInput& input : graph.inputs) {
      const Value& value = graph.values[input.value];
      std::vector<double>& elements = memory_[value.name];
      for (int64_t at = 0; at < value.type.elements(); ++at)
        elements.push_back(kernel::round_to(value.type.dtype, number(random)));
    }
    if (!changed.empty()) memory_.at(changed)[0] = first;
    for (const Step& step : program.steps) {
      if (const auto* one = std::get_if<AllocateStep>(&step))
        memory_[one->name.empty() ? graph.values[one->value].name : one->name].assign(one->type.elements(), 0.0);
      else if (const auto* tiles = std::get_if<TileStep>(&step)) launch(*tiles);
      else ADD_FAILURE() << "a step that is none of the recurrence's";
    }
  }

  const std::vector<double>& operator[](const std::string& name) const { return memory_.at(name); }
  int launches() const { return launches_; }

 private:
  void launch(const TileStep& step) {
    const tile::Program& tiles = program_.tiles[step.program];
    if (!step.repetition) return run(tiles, step, {});
    for (int64_t at = 0; at < step.repetition->count; ++at) run(tiles, step, {{step.repetition->size, at}});
  }

  void run(const tile::Program& tiles, const TileStep& step, const std::map<std::string, int64_t>& sizes) {
    ++launches_;
    tile::Memory given;
    for (size_t at = 0; at < tiles.buffers.size(); ++at) {
      const tile::Buffer& buffer = tiles.buffers[at];
      if (buffer.role == tile::BufferRole::kScratch) continue;
      const auto from = memory_.at(step.tensors[at]).begin() + step.offsets[at];
      given[buffer.name].reals.assign(from, from + extent(buffer));
    }
    for (const auto& [name, numbers] : tile::interpret(tiles, given, sizes))
      for (size_t at = 0; at < tiles.buffers.size(); ++at)
        if (tiles.buffers[at].name == name)
          std::copy(numbers.reals.begin(), numbers.reals.end(),
                    memory_.at(step.tensors[at]).begin() + step.offsets[at]);
  }

  static int64_t extent(const tile::Buffer& buffer) {
    int64_t last = 0;
    const std::vector<tile::Index> strides = tile::strides_of(buffer);
    for (size_t dim = 0; dim < strides.size(); ++dim)
      last += (*kernel::as_constant(buffer.shape[dim]) - 1) * *kernel::as_constant(strides[dim]);
    return last + 1;
  }

  const Program& program_;
  std::map<std::string, std::vector<double>> memory_;
  int launches_ = 0;
};

// Products are made of operands rounded to 11 digits, which may round the other way once what they are made of differs.
constexpr double kTolerance = 5e-4;

class Persistent : public testing::TestWithParam<std::pair<Layers, int64_t>> {};

TEST_P(Persistent, ComputesWhatLaunchesOfEachStepDo) {
  const auto& [layers, gates] = GetParam();
  const Graph graph = graph_of(layers);
  const Program launched = program_of(graph, 0, gates), persistent = program_of(graph, 1, gates);
  for (const tile::Program& tiles : launched.tiles) EXPECT_FALSE(tile::waits_for_grid(tiles));
  const Outcome expected(graph, launched), made(graph, persistent);
  const auto waits = [](const tile::Program& tiles) { return tile::waits_for_grid(tiles); };
  EXPECT_TRUE(std::any_of(persistent.tiles.begin(), persistent.tiles.end(), waits));
  EXPECT_LE(made.launches(), expected.launches());
  for (const std::string name : {"y", "hn"}) {
    ASSERT_EQ(made[name].size(), expected[name].size());
    double largest = 0;
    for (size_t at = 0; at < made[name].size(); ++at) {
      ASSERT_TRUE(std::isfinite(expected[name][at]));
      EXPECT_NEAR(made[name][at], expected[name][at], kTolerance) << name << " at " << at;
      largest = std::max(largest, std::abs(expected[name][at]));
    }
    EXPECT_GT(largest, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, Persistent,
                         testing::Values(std::pair{Layers{}, 1}, std::pair{Layers{}, 2},
                                         std::pair{Layers{.directions = 2}, 2},
                                         std::pair{Layers{.op = "gru", .gates = 3}, 2},
                                         std::pair{Layers{.op = "gru", .gates = 3, .layers = 1, .steps = 1}, 2},
                                         std::pair{Layers{.op = "gru", .gates = 3, .directions = 2, .batch = 20}, 2},
                                         std::pair{Layers{.op = "rnn_tanh", .gates = 1, .layers = 3}, 1},
                                         std::pair{Layers{.type = "f16"}, 2},
                                         std::pair{Layers{.layers = 3, .projected = 7}, 2},
                                         std::pair{Layers{.directions = 2, .hidden = 24, .projected = 5}, 1}),
                         [](const auto& info) {
                           const Layers& one = info.param.first;
                           return one.op + (one.projected > 0 ? "_projected" : "") +
                                  (one.directions > 1 ? "_both_ways_" : "_") + one.type + "_" +
                                  std::to_string(one.layers) + "_" + std::to_string(info.param.second);
                         });

// kw.rnn_steps: products of the input are given, in full precision. Blocks whose threads add up, of every shape.
class Steps : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(Steps, ComputeWhatLaunchesOfEachStepDo) {
  const auto& [batch, units] = GetParam();
  for (const std::string kind : {"tanh", "relu", "lstm", "lstm of all cells", "gru", "gru without biases"}) {
    const bool is_lstm = kind.starts_with("lstm"), is_gru = kind.starts_with("gru");
    const bool has_cells = kind == "lstm of all cells";
    const std::string rows = is_lstm ? "80" : is_gru ? "60" : "20";
    std::vector<std::string> names = {"y"};
    if (is_lstm) names.push_back("last");
    if (has_cells) names.push_back("all");
    std::string results;
    for (const std::string& name : names) results += (results.empty() ? "%" : ", %") + name;
    const std::string more = is_lstm ? ", cell=%c" : kind == "gru" ? ", bias=%b" : "";
    const Graph graph = parse_graph("graph G on cuda {\n  input %p : f32[5, 3, " + rows + R"(] user args.0
  input %h : f32[3, 20] user args.1
  input %c : f32[3, 20] user args.2
  input %w : f32[)" + rows + R"(, 30] parameter "w" access "self.w"
  input %b : f32[)" + rows + R"(] parameter "b" access "self.b"
  %v = aten.slice.Tensor(self=%w, dim=1, start=10, end=30) : f32[)" +
                                    rows + R"(, 20] strides [30, 1] offset 10
  )" + results + R"( = kw.rnn_steps.default(products=%p, first=%h, weight=%v, kind=")" +
                                    (is_lstm  ? "lstm"
                                     : is_gru ? "gru"
                                              : kind) +
                                    "\"" + more + ") : f32[5, 3, 20]" + (is_lstm ? ", f32[3, 20]" : "") +
                                    (has_cells ? ", f32[5, 3, 20]" : "") + "\n  return " + results + "\n}");
    const DeviceDescription device = default_device("triton");
    const auto program = [&](const plan::Parameters& parameters) {
      Schedule schedule = join_products(graph, default_schedule(graph, device), device);
      EXPECT_EQ(schedule.groups.size(), 1U);
      schedule.groups[0].scheduler = "recurrence";
      schedule.groups[0].parameters = parameters;
      return make_program(graph, schedule, device);
    };
    const Program launched = program({{"block_k", 16}, {"persistent", 0}}),
                  persistent = program({{"block_m", batch}, {"block_n", units}, {"persistent", 1}});
    EXPECT_TRUE(tile::waits_for_grid(persistent.tiles.back()));
    EXPECT_FALSE(tile::waits_for_grid(launched.tiles.back()));
    const Outcome expected(graph, launched), made(graph, persistent);
    EXPECT_EQ(made.launches(), 2);  // the first state, and all steps
    for (const std::string& name : names) {
      ASSERT_EQ(made[name].size(), expected[name].size());
      double largest = 0;
      for (size_t at = 0; at < made[name].size(); ++at) {
        EXPECT_NEAR(made[name][at], expected[name][at], 1e-5 * std::max(1.0, std::abs(expected[name][at]))) << kind;
        largest = std::max(largest, std::abs(expected[name][at]));
      }
      EXPECT_GT(largest, 0.1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, Steps,
                         testing::Values(std::pair<int64_t, int64_t>{1, 1}, std::pair<int64_t, int64_t>{4, 4},
                                         std::pair<int64_t, int64_t>{2, 8}, std::pair<int64_t, int64_t>{4, 32}));

// A part of a number that is not finite must not meet parts of either sign, or an infinity cancels to NaN.
TEST(PersistentRecurrence, InfiniteStatesAndWeightsSaturateGates) {
  const Graph graph = graph_of(Layers{});
  const Program persistent = program_of(graph, 1, 2);
  for (const std::string changed : {"h", "p1", "p5"}) {  // states; recurrent weights of the first layer and the second
    const Outcome made(graph, persistent, changed, HUGE_VAL), finite(graph, persistent, changed, 1e30);
    for (const std::string name : {"y", "hn"})
      for (size_t at = 0; at < made[name].size(); ++at)
        EXPECT_NEAR(made[name][at], finite[name][at], kTolerance) << changed << ": " << name << " at " << at;
  }
}

}  // namespace
}  // namespace kw
