// Lowering: what a kernel means and what its tile programs compute are the same, for random kernels under random
// schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "kernel/builder.hpp"
#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/arrange.hpp"
#include "lower/online.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

using kernel::Access;
using kernel::Builder;
using kernel::BufferRole;
using kernel::ExprId;
using kernel::Index;
using kernel::Kernel;
using kernel::ReduceOp;
using kernel::ScalarOp;
using kernel::Symbol;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_); }
  bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(engine_) < share; }
  double number() { return std::uniform_real_distribution<>(-2, 2)(engine_); }
  template <typename Item>
  const Item& pick(const std::vector<Item>& items) {
    return items[below(static_cast<int64_t>(items.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// A kernel of folds, dots and pointwise operations over two to four axes, one of them perhaps of run-time extent.
class RandomKernel {
 public:
  explicit RandomKernel(Random& random) : random_(random), builder_("random_kernel") {
    if (random_.chance(0.3)) {
      const int64_t divisor = random_.chance(0.5) ? 1 : 4;
      size_ = builder_.size("n", {divisor * random_.below(2), divisor * 4, divisor});
      runtime_ = divisor * random_.below(5);
    }
    const int64_t count = 2 + random_.below(3);
    for (int64_t i = 0; i < count; ++i) {
      const bool varies = size_ >= 0 && i == 0;
      axes_.push_back(builder_.axis(std::string(1, static_cast<char>('i' + i)),
                                    varies ? kernel::symbol_index(size_) : Index(1 + random_.below(i < 2 ? 19 : 6))));
    }
    for (int64_t i = 0; i < 3; ++i) inputs_.push_back(input(i));
  }

  Kernel make() {
    const int64_t stores = 1 + random_.below(2);
    for (int64_t i = 0; i < stores; ++i) add_store(i);
    return builder_.finish();
  }

  std::map<std::string, int64_t> sizes() const {
    if (size_ < 0) return {};
    return {{"n", runtime_ < builder_.kernel().symbols[size_].range.low ? builder_.kernel().symbols[size_].range.low
                                                                        : runtime_}};
  }

 private:
  int input(int64_t place) {
    std::vector<Symbol> over;
    for (Symbol axis : axes_)
      if (random_.chance(0.6)) over.push_back(axis);
    if (over.empty()) over.push_back(axes_[0]);
    std::vector<Index> shape;
    for (Symbol axis : over) shape.push_back(extent(axis));
    axes_of_.push_back(over);
    return builder_.buffer("x" + std::to_string(place), DType::f32, shape, BufferRole::kInput);
  }

  Index extent(Symbol axis) const { return builder_.kernel().symbols[axis].extent; }

  ExprId load() {
    const size_t place = static_cast<size_t>(random_.below(static_cast<int64_t>(inputs_.size())));
    Access access;
    access.buffer = inputs_[place];
    const bool reversed = random_.chance(0.2);
    for (Symbol axis : axes_of_[place])
      access.coordinates.push_back(
          {reversed ? extent(axis) - Index(1) - kernel::symbol_index(axis) : kernel::symbol_index(axis), -1});
    if (random_.chance(0.2)) {
      // A neighbour, where there is one.
      const Symbol axis = axes_of_[place].back();
      access.coordinates.back().index = kernel::symbol_index(axis) - Index(1);
      access.mask = builder_.op(ScalarOp::kGreaterEqual, {builder_.index(kernel::symbol_index(axis)),
                                                          builder_.constant(DType::i32, int64_t{1})});
      access.otherwise = random_.chance(0.5) ? 0.0 : 1.5;
    }
    return builder_.load(access);
  }

  std::vector<Symbol> depends(ExprId id) const {
    const std::vector<std::vector<bool>> all = kernel::dependences(builder_.kernel());
    std::vector<Symbol> axes;
    for (Symbol axis : axes_)
      if (all[id][axis]) axes.push_back(axis);
    return axes;
  }

  ExprId value(int depth) {
    if (depth == 0) return random_.chance(0.85) ? load() : builder_.constant(DType::f32, random_.number());
    switch (random_.below(9)) {
      case 0: return builder_.op(ScalarOp::kAdd, {value(depth - 1), value(depth - 1)});
      case 1: return builder_.op(ScalarOp::kMul, {value(depth - 1), value(depth - 1)});
      case 2: return builder_.op(ScalarOp::kMaximum, {value(depth - 1), value(depth - 1)});
      case 3: return builder_.op(ScalarOp::kSin, {value(depth - 1)});
      case 4: {
        const ExprId less = builder_.op(ScalarOp::kLess, {value(depth - 1), value(depth - 1)});
        const double other = random_.chance(0.5) ? -INFINITY : random_.number();
        return builder_.op(ScalarOp::kSelect, {less, value(depth - 1), builder_.constant(DType::f32, other)});
      }
      case 5: return softmax_part(value(depth - 1));
      case 6: {
        const ExprId left = value(depth - 1), right = value(depth - 1);
        const std::vector<Symbol> axes = some_of(united(depends(left), depends(right)));
        return axes.empty() ? left : builder_.dot(left, right, axes);
      }
      default: {
        const ExprId operand = value(depth - 1);
        const std::vector<Symbol> axes = some_of(depends(operand));
        const ReduceOp reduce = random_.pick(
            std::vector{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum});
        return axes.empty() ? operand : builder_.reduce(reduce, {operand}, axes);
      }
    }
  }

  // exp(x - max x), or a power of 2, over its sum, or that sum alone.
  ExprId softmax_part(ExprId operand) {
    const std::vector<Symbol> axes = some_of(depends(operand));
    if (axes.empty()) return operand;
    const ExprId largest = builder_.reduce(ReduceOp::kMax, {operand}, axes);
    const ExprId weight = builder_.op(random_.chance(0.7) ? ScalarOp::kExp : ScalarOp::kExp2,
                                      {builder_.op(ScalarOp::kSub, {operand, largest})});
    const ExprId total = builder_.reduce(ReduceOp::kSum, {weight}, axes);
    return random_.chance(0.5) ? total : builder_.op(ScalarOp::kDiv, {weight, total});
  }

  std::vector<Symbol> some_of(const std::vector<Symbol>& axes) {
    std::vector<Symbol> chosen;
    for (Symbol axis : axes)
      if (random_.chance(0.6)) chosen.push_back(axis);
    return chosen;
  }

  static std::vector<Symbol> united(std::vector<Symbol> left, const std::vector<Symbol>& right) {
    left.insert(left.end(), right.begin(), right.end());
    std::sort(left.begin(), left.end());
    left.erase(std::unique(left.begin(), left.end()), left.end());
    return left;
  }

  void add_store(int64_t place) {
    const ExprId result = value(3);
    Access access;
    std::vector<Index> shape;
    for (Symbol axis : depends(result)) {
      access.coordinates.push_back({kernel::symbol_index(axis), -1});
      shape.push_back(extent(axis));
    }
    if (shape.empty()) {
      access.coordinates.push_back({Index(0), -1});
      shape.push_back(Index(1));
    }
    access.buffer = builder_.buffer("y" + std::to_string(place), DType::f32, shape, BufferRole::kOutput);
    builder_.store(access, result);
  }

  Random& random_;
  Builder builder_;
  Symbol size_ = -1;
  int64_t runtime_ = 0;
  std::vector<Symbol> axes_;
  std::vector<int> inputs_;
  std::vector<std::vector<Symbol>> axes_of_;
};

// Two or all of the loops in one, if there are as many.
void merge_loops(Random& random, const Kernel& kernel, KernelSchedule& schedule) {
  const std::vector<Symbol> axes = kernel::axes_of(kernel);
  std::vector<std::vector<std::string>> nest;
  for (size_t place = 0; place < axes.size(); ++place) {
    if (schedule.axes[place].mapping != Mapping::kLoop) continue;
    const std::string& name = kernel.symbols[axes[place]].name;
    if (nest.empty() || random.chance(0.3)) nest.push_back({name});
    else nest.back().push_back(name);
  }
  if (random.chance(0.5)) std::reverse(nest.begin(), nest.end());
  schedule.nest = std::move(nest);
}

void put_within(Random& random, KernelSchedule& schedule, const Kernel& kernel) {
  const std::vector<Symbol> axes = kernel::axes_of(kernel);
  const auto fits = [&](size_t place) {
    const AxisSchedule& one = schedule.axes[place];
    return one.mapping != Mapping::kLoop && one.width > 1 && !one.last;
  };
  for (size_t inner = 1; inner < axes.size(); ++inner) {
    if (schedule.axes[inner].mapping != Mapping::kTile || !fits(inner) || !fits(inner - 1) || !random.chance(0.3))
      continue;
    schedule.axes[inner].within = kernel.symbols[axes[inner - 1]].name;
    return;
  }
}

// Tiles that are no dimension of others, and loops, whose extents are numbers.
void unroll(Random& random, KernelSchedule& schedule, const Kernel& kernel) {
  const std::vector<Symbol> axes = kernel::axes_of(kernel);
  for (size_t place = 0; place < axes.size(); ++place) {
    AxisSchedule& one = schedule.axes[place];
    const std::string& name = kernel.symbols[axes[place]].name;
    const bool is_paired = std::any_of(schedule.axes.begin(), schedule.axes.end(), [&](const AxisSchedule& other) {
      return !one.within.empty() || other.within == name;
    });
    const bool fits = one.mapping == Mapping::kTile ? !one.last && !is_paired : one.mapping == Mapping::kLoop;
    one.unrolled = fits && kernel::as_constant(kernel.symbols[axes[place]].extent) && random.chance(0.4);
  }
}

KernelSchedule random_schedule(Random& random, const Kernel& kernel) {
  KernelSchedule schedule;
  for (Symbol axis : kernel::axes_of(kernel)) {
    AxisSchedule one;
    const int64_t most = kernel.symbols[axis].range.high + 1;
    one.mapping = random.pick(std::vector{Mapping::kGrid, Mapping::kTile, Mapping::kLoop, Mapping::kLoop});
    one.width = int64_t{1} << random.below(5);
    if (one.mapping == Mapping::kTile)
      while (one.width < most) one.width *= 2;
    one.online = one.mapping == Mapping::kLoop && random.chance(0.5);
    one.last = one.mapping != Mapping::kLoop && one.width > 1 && random.chance(0.2);
    if (one.last && one.width > 2 && random.chance(0.7)) one.split = random.chance(0.5) ? 2 : one.width / 2;
    schedule.axes.push_back(one);
  }
  if (random.chance(0.3)) merge_loops(random, kernel, schedule);
  schedule.bulk = random.chance(0.5);
  schedule.loads_first = random.chance(0.3);
  put_within(random, schedule, kernel);
  unroll(random, schedule, kernel);
  return schedule;
}

kernel::Memory random_memory(Random& random, const Kernel& kernel, const std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> values(kernel.symbols.size());
  for (size_t symbol = 0; symbol < values.size(); ++symbol)
    if (const auto found = sizes.find(kernel.symbols[symbol].name); found != sizes.end())
      values[symbol] = found->second;
  kernel::Memory memory;
  for (const kernel::Buffer& buffer : kernel.buffers) {
    if (buffer.role == BufferRole::kOutput) continue;
    int64_t elements = 1;
    for (const Index& size : buffer.shape) elements *= kernel::evaluate(size, values);
    for (int64_t i = 0; i < elements; ++i) memory[buffer.name].reals.push_back(random.number());
    memory[buffer.name];
  }
  return memory;
}

// NaN is like NaN; infinities like themselves.
bool close(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (left == right) return true;
  return std::abs(left - right) <= 1e-9 * std::max({1.0, std::abs(left), std::abs(right)});
}

TEST(Lower, RandomKernelsUnderRandomSchedulesMeanTheSame) {
  int lowered = 0, refused = 0, online = 0, merged = 0, bulk = 0, split = 0, within = 0, apart = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    RandomKernel maker(random);
    const std::map<std::string, int64_t> sizes = maker.sizes();
    const Kernel kernel = maker.make();
    const kernel::Memory memory = random_memory(random, kernel, sizes);
    const kernel::Memory expected = kernel::evaluate(kernel, memory, sizes);
    const KernelSchedule schedule = random_schedule(random, kernel);
    tile::Program program;
    try {
      program = arrange(kernel, schedule);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUser) << "seed " << seed << ": " << error.what() << "\n"
                                                << kernel::print_kernel(kernel);
      ++refused;
      continue;
    }
    ++lowered;
    const std::string text = tile::print_program(program);
    online += text.find("rescale") != std::string::npos;
    merged += text.find("_step = 0 to") != std::string::npos;
    bulk += text.find("] bulk") != std::string::npos;
    split += text.find("_remainder") != std::string::npos;
    within += to_json(schedule, kernel).dump().find("within") != std::string::npos;
    apart += std::any_of(schedule.axes.begin(), schedule.axes.end(),
                         [](const auto& axis) { return axis.mapping == Mapping::kTile && axis.unrolled; });
    ASSERT_EQ(tile::print_program(tile::parse_program(text)), text) << "seed " << seed;
    const tile::Memory found = tile::interpret(program, memory, sizes, tile::Arithmetic::kDouble);
    for (const auto& [name, numbers] : expected) {
      if (name[0] != 'y') continue;
      ASSERT_EQ(found.at(name).reals.size(), numbers.reals.size()) << "seed " << seed;
      for (size_t i = 0; i < numbers.reals.size(); ++i)
        ASSERT_TRUE(close(found.at(name).reals[i], numbers.reals[i]))
            << "seed " << seed << ": " << name << "[" << i << "] is " << found.at(name).reals[i] << ", not "
            << numbers.reals[i] << "\n"
            << kernel::print_kernel(kernel) << to_json(schedule, kernel).dump() << "\n"
            << text;
    }
  }
  // The test is one of lowering only while most schedules are kept, and some walk a softmax once, and so on.
  EXPECT_GT(lowered, refused / 2);
  EXPECT_GT(online, 10);
  EXPECT_GT(merged, 10);
  EXPECT_GT(bulk, 10);
  EXPECT_GT(split, 10);
  EXPECT_GT(within, 10);
  EXPECT_GT(apart, 10);
}

// Rows that are two interleaved halves of a line of the result, as a transposed convolution's phases are.
constexpr const char* kInterleaved = R"(kernel interleaved {
  axis row = 36, place = 21, depth = 40
  in a: f32[36, 40]
  in b: f32[21, 40]
  in scale: f32[18]
  out y: f32[18, 42]
  product = dot(a[row, depth], b[place, depth]; depth)
  y[row / 2, 2 * place + row % 2] = product * scale[row / 2]
})";

TEST(Lower, RowsBehindAProductMayBeTheLastDimensionAndSplit) {
  const Kernel kernel = kernel::parse_kernel(kInterleaved);
  Random random(7);
  const kernel::Memory memory = random_memory(random, kernel, {}), expected = kernel::evaluate(kernel, memory, {});
  const std::pair<const char*, const char*> cases[] = {
      {R"({"row":{"grid":16},"place":{"grid":16},"depth":{"loop":16},"warps":4})", "[row, place] = dot"},
      {R"({"row":{"grid":16,"last":true},"place":{"grid":16},"depth":{"loop":16},"warps":4})",
       "[place, row_last] = relabel"},
      {R"({"row":{"grid":16,"last":true,"split":2},"place":{"grid":16},"depth":{"loop":16},"warps":4})",
       "[place, row_remainder, row_quotient] = split %product_2 row -> row_quotient, row_remainder"},
      {R"({"row":{"grid":32},"place":{"tile":32,"last":true,"split":8},"depth":{"tile":64},"warps":4})",
       "[row, place_remainder, place_quotient] = split"},
  };
  for (const auto& [schedule, words] : cases) {
    const KernelSchedule parsed = parse_schedule(std::string_view(schedule), kernel);
    EXPECT_EQ(to_json(parsed, kernel).dump(), schedule);
    const tile::Program program = arrange(kernel, parsed);
    const std::string text = tile::print_program(program);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
    const tile::Memory found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble);
    for (size_t i = 0; i < expected.at("y").reals.size(); ++i)
      ASSERT_TRUE(close(found.at("y").reals[i], expected.at("y").reals[i])) << schedule << " at " << i << "\n" << text;
  }
}

// Where an iteration has one product, it is added as it is, and the sum rounded.
TEST(Lower, SinglePointsOfAProductAreAddedByOneOperation) {
  const Kernel kernel = kernel::parse_kernel(R"(kernel weighted {
  axis place = 32, tap = 3
  in x: f32[34]
  in w: f32[3]
  out y: f32[32]
  y[place] = dot(x[place + tap], w[tap]; tap)
})");
  const auto operations = [&](std::string_view schedule) {
    const std::string text = tile::print_program(arrange(kernel, parse_schedule(schedule, kernel)));
    return std::pair{text.find("fma") != std::string::npos, text.find("mul") != std::string::npos};
  };
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"loop":1}})"), (std::pair{true, false}));
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"loop":2}})"), (std::pair{false, true}));
  EXPECT_EQ(operations(R"({"place":{"grid":32},"tap":{"tile":4}})"), (std::pair{false, true}));
}

// Only what scales with exp(-maximum) can be folded in the maximum's own walk.
TEST(Online, TakesNoSumThatDoesNotScale) {
  const auto walks = [](const std::string& weight) {
    const std::string kernel =
        "kernel k {\n  axis row = 4, column = 40\n  in x: f32[4, 40]\n  out y: f32[4]\n"
        "  largest = max(x[row, column]; column)\n  weight = " +
        weight + "\n  y[row] = sum(weight; column)\n}\n";
    const Kernel parsed = kernel::parse_kernel(kernel);
    const char* schedule = R"({"row":{"grid":1},"column":{"loop":8,"online":true}})";
    const std::string text = tile::print_program(arrange(parsed, parse_schedule(std::string_view(schedule), parsed)));
    return text.find("rescale") != std::string::npos;
  };
  EXPECT_TRUE(walks("exp(x[row, column] - largest)"));
  EXPECT_TRUE(walks("exp(x[row, column] - largest) * x[row, column] / 2.0"));
  EXPECT_TRUE(walks("select(x[row, column] > 0.0, -exp(x[row, column] - largest), 0.0)"));
  EXPECT_FALSE(walks("f32(i32(exp(x[row, column] - largest)))"));
  EXPECT_FALSE(walks("exp(x[row, column] - largest) + 1.0"));
  EXPECT_FALSE(walks("exp(largest - x[row, column])"));
  EXPECT_FALSE(walks("exp((x[row, column] - largest) * 2.0)"));
  EXPECT_FALSE(walks("exp(x[row, column] - largest) * exp(x[row, column] - largest)"));
  EXPECT_FALSE(walks("select(x[row, column] > largest - 1.0, exp(x[row, column] - largest), 0.0)"));
}

}  // namespace
}  // namespace kw::lower
