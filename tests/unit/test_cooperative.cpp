// Rows that several blocks share: what their programs compute is what the kernel means, whatever the blocks, and what
// cannot be shared is refused by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "random_kernels.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

bool close(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (left == right) return true;
  return std::abs(left - right) <= 1e-9 * std::max({1.0, std::abs(left), std::abs(right)});
}

// Folds of rows, beside each other and one after the other, over one axis or two, of up to two axes of rows.
class RandomRows {
 public:
  explicit RandomRows(Random& random) : random_(random), builder_("rows"), dtype_(random.pick(kTypes)) {
    if (random_.chance(0.8)) rows_.push_back(builder_.axis("row", Index(1 + random_.below(5))));
    if (random_.chance(0.3)) rows_.push_back(builder_.axis("group", Index(1 + random_.below(4))));
    if (random_.chance(0.4)) folded_.push_back(builder_.axis("slice", Index(1 + random_.below(4))));
    folded_.push_back(builder_.axis("column", Index(1 + random_.below(40))));
    for (int place = 0; place < 2; ++place) {
      std::vector<Symbol> over = place == 0 || random_.chance(0.3) ? rows_ : std::vector<Symbol>{};
      over.insert(over.end(), folded_.begin(), folded_.end());
      inputs_.push_back(buffer("x" + std::to_string(place), over, BufferRole::kInput));
      over_.push_back(over);
    }
  }

  Kernel make() {
    ExprId value = element(2);
    const int64_t stores = 1 + random_.below(2);
    for (int64_t place = 0; place < stores; ++place) {
      if (random_.chance(0.7)) value = builder_.op(ScalarOp::kSub, {value, fold(value)});
      const bool of_row = random_.chance(0.3);
      std::vector<Symbol> over = rows_;
      if (!of_row) over.insert(over.end(), folded_.begin(), folded_.end());
      const std::string name = "y" + std::to_string(place);
      const int to = buffer(name, over, BufferRole::kOutput);
      builder_.store(at(to, over), of_row ? fold(value) : value);
    }
    return builder_.finish();
  }

  KernelSchedule schedule(const Kernel& kernel) {
    KernelSchedule schedule;
    for (Symbol axis : kernel::axes_of(kernel)) {
      const kernel::SymbolInfo& info = kernel.symbols[axis];
      AxisSchedule one;
      one.cooperative = info.name == "slice" || info.name == "column";
      one.width = int64_t{1} << random_.below(info.name == "column" ? 5 : 2);
      if (!one.cooperative && random_.chance(0.2)) {
        one.mapping = Mapping::kTile;
        one.width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(info.range.high + 1)));
      }
      schedule.axes.push_back(one);
    }
    schedule.loads_first = random_.chance(0.3);
    schedule.cache_hints = random_.chance(0.5);
    return schedule;
  }

 private:
  inline static const std::vector<DType> kTypes = {DType::f32, DType::f64};

  int buffer(const std::string& name, const std::vector<Symbol>& over, BufferRole role) {
    std::vector<Index> shape;
    for (Symbol axis : over) shape.push_back(builder_.kernel().symbols[axis].extent);
    if (shape.empty()) shape.emplace_back(1);
    return builder_.buffer(name, dtype_, shape, role);
  }

  static Access at(int buffer, const std::vector<Symbol>& over) {
    Access access;
    access.buffer = buffer;
    for (Symbol axis : over) access.coordinates.push_back({kernel::symbol_index(axis), -1});
    if (over.empty()) access.coordinates.push_back({Index(0), -1});
    return access;
  }

  ExprId element(int depth) {
    if (depth == 0) return builder_.load(at(inputs_[0], over_[0]));
    switch (random_.below(5)) {
      case 0: return builder_.op(ScalarOp::kAdd, {element(depth - 1), builder_.load(at(inputs_[1], over_[1]))});
      case 1: return builder_.op(ScalarOp::kSin, {element(depth - 1)});
      case 2: {
        const ExprId value = element(depth - 1);
        return builder_.op(ScalarOp::kMul, {value, fold(value)});
      }
      case 3: {  // some of them -inf, whole blocks among them
        const ExprId early = builder_.op(ScalarOp::kLess, {builder_.index(kernel::symbol_index(folded_.back())),
                                                           builder_.constant(DType::i32, random_.below(20))});
        return builder_.op(ScalarOp::kSelect, {early, builder_.constant(dtype_, -INFINITY), element(depth - 1)});
      }
      default: return element(depth - 1);
    }
  }

  ExprId fold(ExprId value) {
    const ReduceOp reduce = random_.pick(std::vector{ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
                                                     ReduceOp::kMoments, ReduceOp::kMaxSumExp});
    if (reduce == ReduceOp::kProd) value = builder_.op(ScalarOp::kSin, {value});  // stays small
    const auto component = [&](int which) { return builder_.reduce(reduce, {value}, folded_, which); };
    if (kernel::components_of(reduce) == 1) return component(0);
    if (random_.chance(0.5)) return component(static_cast<int>(random_.below(2)));
    return builder_.op(ScalarOp::kAdd, {component(0), component(1)});
  }

  Random& random_;
  Builder builder_;
  const DType dtype_;
  std::vector<Symbol> rows_, folded_;
  std::vector<int> inputs_;
  std::vector<std::vector<Symbol>> over_;
};

TEST(Cooperative, RandomRowsMeanTheSameWhateverTheBlocks) {
  int waits = 0, twice = 0, ragged = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    RandomRows maker(random);
    const Kernel kernel = maker.make();
    const kernel::Memory memory = random_memory(random, kernel, {}), expected = kernel::evaluate(kernel, memory, {});
    const KernelSchedule schedule = maker.schedule(kernel);
    ASSERT_EQ(parse_schedule(to_json(schedule, kernel), kernel), schedule);
    const tile::Program program = to_tiles(kernel, schedule);
    const std::string text = tile::print_program(program);
    waits += text.find("turn 0") != std::string::npos;
    twice += text.find("turn 1") != std::string::npos;
    ragged += text.find("%counts") != std::string::npos;
    ASSERT_EQ(tile::print_program(tile::parse_program(text)), text) << "seed " << seed;
    const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
    for (const auto& [name, numbers] : found)
      for (size_t i = 0; i < numbers.reals.size(); ++i)
        ASSERT_TRUE(close(numbers.reals[i], expected.at(name).reals[i]))
            << "seed " << seed << ": " << name << "[" << i << "] is " << numbers.reals[i] << ", not "
            << expected.at(name).reals[i] << "\n"
            << kernel::print_kernel(kernel) << to_json(schedule, kernel).dump() << "\n"
            << text;
  }
  EXPECT_GT(waits, 500);
  EXPECT_GT(twice, 200);
  EXPECT_GT(ragged, 50);
}

constexpr const char* kSoftmax = R"(kernel softmax {
  axis row = 6, column = 1000
  in x: f32[6, 1000]
  out y: f32[6, 1000]
  largest = max_sum_exp(x[row, column]; column).0
  total = max_sum_exp(x[row, column]; column).1
  y[row, column] = exp(x[row, column] - largest) / total
}
)";

tile::Program scheduled(const char* text, std::string_view schedule) {
  const Kernel kernel = kernel::parse_kernel(text);
  return to_tiles(kernel, parse_schedule(schedule, kernel));
}

std::string refusal(const char* text, std::string_view schedule) {
  try {
    scheduled(text, schedule);
  } catch (const Error& error) { return error.what(); }
  return "";
}

// The largest and the sum of exponentials are combined in one pass, and what depends on both in another.
TEST(Cooperative, FoldsThatDoNotWaitForEachOtherAreCombinedInOnePass) {
  const tile::Program program = scheduled(kSoftmax,
                                          R"({"row": {"grid": 1}, "column": {"grid": 256, "cooperative": true}})");
  const std::string text = tile::print_program(program);
  EXPECT_EQ(program.buffers[2].shape[0], Index(7));   // tickets, and those that have come, of each row
  EXPECT_EQ(program.buffers[3].shape[0], Index(48));  // two numbers of 24 blocks
  EXPECT_TRUE(tile::counts_blocks(program, 2));
  EXPECT_FALSE(tile::counts_blocks(program, 3));
  EXPECT_EQ(tile::blocks_of_row(program), 4);
  EXPECT_FALSE(tile::waits_for_grid(program));
  EXPECT_NE(text.find("barrier grid along column_block counted counters[row + 1] turn 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("turn 1"), std::string::npos) << text;
}

// The blocks of a row begin one after the other, whatever the order of the kernel's axes.
TEST(Cooperative, BlocksOfARowAreNeighbours) {
  const tile::Program program = scheduled(R"(kernel k {
  axis column = 100, row = 6
  in x: f32[6, 100]
  out y: f32[6]
  y[row] = sum(x[row, column]; column)
}
)",
                                          R"({"row": {"grid": 1}, "column": {"grid": 16, "cooperative": true}})");
  ASSERT_EQ(program.grid.size(), 2u);
  EXPECT_EQ(program.symbols[program.grid[0]].name, "row");
  EXPECT_EQ(tile::shared_rows(program), std::vector<tile::Symbol>{program.grid[1]});
}

TEST(Cooperative, WhatBlocksCannotShareIsRefusedByName) {
  const auto with = [](const std::string& fold, const std::string& type = "f32") {
    return "kernel k {\n  axis row = 6, column = 100, plane = 2\n  in x: " + type + "[6, 100]\n  in w: " + type +
           "[6, 100, 2]\n  out y: " + type + "[6]\n  y[row] = " + fold + "\n}\n";
  };
  const std::string shared = R"({"row": {"grid": 1}, "column": {"grid": 16, "cooperative": true}, "plane": )",
                    whole = shared + R"({"tile": 2}})";
  const std::string sum = with("sum(x[row, column]; column)");
  const std::pair<std::string, std::string> cases[] = {
      {refusal(with("sum(x[row, column]; column)", "i32").c_str(), whole), "a sum of i32 over axis 'column'"},
      {refusal(with("dot(x[row, column], x[row, column]; column)").c_str(), whole), "a product of f32"},
      {refusal(with("sum(w[row, column, plane]; column, plane)").c_str(), shared + R"({"grid": 1}})"),
       "a sum is over some axes whose blocks share rows, but not over 'plane'"},
      {refusal(with("sum(sum(w[row, column, plane]; plane); column)").c_str(),
               shared + R"({"grid": 1, "cooperative": true}})"),
       "a sum is over some axes whose blocks share rows, but not over 'column'"},
      {refusal(sum.c_str(), shared + R"({"loop": 1}})"), "axis 'column' is cooperative, but 'plane' is a loop"},
      {refusal(sum.c_str(), shared + R"({"tile": 2, "unrolled": true}})"), "but 'plane' is a loop or unrolled"},
      {refusal(sum.c_str(), shared + R"({"tile": 2}, "skip_masked": true})"), "no other order, consumers or reason"},
      {refusal(sum.c_str(),
               R"({"row": {"grid": 1}, "column": {"tile": 128, "cooperative": true}, "plane": {"tile": 2}})"),
       "axis 'column' is cooperative, but not shared out by blocks"},
      {refusal(sum.c_str(), shared + R"({"tile": 2, "cooperative": 1}})"), "must be true or false"},
  };
  for (const auto& [found, words] : cases) EXPECT_NE(found.find(words), std::string::npos) << found << "\n" << words;
}

// Blocks of one row see each other's parts, behind a barrier of theirs; those of other rows they do not.
constexpr std::string_view kParts = R"(program parts {
  grid row = 2, block = 3
  lane i = 4, part = 4
  launch warps 4
  buffer x: f32[2, 12] input
  buffer y: f32[2] output
  buffer counters: i32[3] scratch
  buffer partials: f32[6] scratch
  tickets counters

  %x_tile: f32[i] = load x[row, block * 4 + i]
  %mine: f32 = fold sum %x_tile over i
  store partials[row * 3 + block] <- %mine
  barrier grid along block counted counters[row + 1] turn 0
  %at: i32[part] = index part
  %three: i32 = constant 3
  %is_part: b1[part] = less %at, %three
  %parts: f32[part] = load partials[row * 3 + part] where %is_part otherwise 0.0
  %total: f32 = fold sum %parts over part
  store y[row] <- %total
}
)";

std::string with(std::string_view what, std::string_view instead) {
  std::string text(kParts);
  EXPECT_NE(text.find(what), std::string::npos) << what;
  return text.replace(text.find(what), what.size(), instead);
}

std::string fault_in(const std::string& text) {
  tile::Memory memory;
  for (int i = 0; i < 24; ++i) memory["x"].reals.push_back(i);
  try {
    tile::interpret(tile::parse_program(text), memory);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(Cooperative, TheInterpreterFindsWhatBlocksDoNotWaitFor) {
  EXPECT_EQ(tile::print_program(tile::parse_program(kParts)), kParts);
  tile::Memory memory;
  for (int i = 0; i < 24; ++i) memory["x"].reals.push_back(i);
  EXPECT_EQ(tile::interpret(tile::parse_program(kParts), memory).at("y").reals, (std::vector<double>{66, 210}));
  const std::string barrier = "  barrier grid along block counted counters[row + 1] turn 0\n";
  EXPECT_NE(fault_in(with(barrier, "")).find("is read before a barrier, after another block wrote it"),
            std::string::npos);
  EXPECT_NE(fault_in(with("load partials[row * 3 + part]", "load partials[3 - row * 3 + part]"))
                .find("is read before a barrier, after another block wrote it"),
            std::string::npos);
}

TEST(Cooperative, RowsThatMightNeverBeDoneBreakARule) {
  const std::pair<std::pair<std::string_view, std::string_view>, std::string_view> cases[] = {
      {{"  tickets counters\n", ""}, "do not take tickets as they begin"},
      {{"grid row = 2, block = 3", "grid block = 3, row = 2"}, "the dimensions that they share are not the last"},
      {{" counted counters[row + 1] turn 0", ""}, "need a counter in memory"},
      {{"counters[row + 1]", "counters[block]"}, "several counters along 'block'"},
      {{"counters[row + 1]", "counters[row + 2]"}, "counters"},
      {{"barrier grid along", "barrier block along"}, "only blocks of a grid share rows"},
      {{"tickets counters", "tickets partials"}, "cannot give tickets"},
  };
  for (const auto& [change, words] : cases) {
    const std::string fault = fault_in(with(change.first, change.second));
    EXPECT_NE(fault.find(words), std::string::npos) << words << "\n" << fault;
  }
}

}  // namespace
}  // namespace kw::lower
