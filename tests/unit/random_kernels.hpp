// Random kernels, schedules for them and memory, for tests of lowering and of what is printed from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernel/builder.hpp"
#include "kernel/evaluate.hpp"
#include "lower/schedule.hpp"
#include "lower/schedule_effects.hpp"

namespace kw::lower {

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

struct KernelKinds {
  bool scans = false;
  bool types = false;  // buffers of other types than f32, and computing in f64
};

// A kernel of folds, dots and pointwise operations, and where they are asked for scans and types, over two to four
// axes, one of them perhaps of run-time extent.
class RandomKernel {
 public:
  explicit RandomKernel(Random& random, KernelKinds kinds = {})
      : random_(random), builder_("random_kernel"), kinds_(kinds) {
    if (kinds_.types && random_.chance(0.2)) computed_in_ = DType::f64;
    if (random_.chance(0.3)) {
      const int64_t divisor = random_.chance(0.5) ? 1 : 4;
      size_ = builder_.size("n", {divisor * random_.below(2), divisor * 4, divisor});
      runtime_ = divisor * random_.below(5);
    }
    const int64_t count = 2 + random_.below(3);
    for (int64_t i = 0; i < count; ++i) {
      const bool varies = size_ >= 0 && i == 0;
      axes_.push_back(builder_.axis(
          std::string(1, static_cast<char>('i' + i)),
          varies ? kernel::symbol_index(size_) : Index(random_.chance(0.02) ? 0 : 1 + random_.below(i < 2 ? 19 : 6))));
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
    const DType dtype = kinds_.types ? random_.pick(std::vector{DType::f32, DType::f16, DType::bf16, DType::f64,
                                                                DType::i32, DType::i64, DType::i8, DType::b1})
                                     : DType::f32;
    return builder_.buffer("x" + std::to_string(place), dtype, shape, BufferRole::kInput);
  }

  Index extent(Symbol axis) const { return builder_.kernel().symbols[axis].extent; }

  ExprId constant(double number) { return builder_.constant(computed_in_, number); }

  ExprId load() {
    const size_t place = static_cast<size_t>(random_.below(static_cast<int64_t>(inputs_.size())));
    Access access;
    access.buffer = inputs_[place];
    const DType dtype = builder_.kernel().buffers[access.buffer].dtype;
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
      access.otherwise = random_.chance(0.5) ? 0.0 : kernel::is_real(dtype) ? 1.5 : 1.0;
    }
    const ExprId loaded = builder_.load(access);
    if (dtype == DType::b1) return builder_.op(ScalarOp::kSelect, {loaded, constant(random_.number()), constant(0.5)});
    return dtype == computed_in_ ? loaded : builder_.cast(computed_in_, loaded);
  }

  std::vector<Symbol> depends(ExprId id) const {
    const std::vector<std::vector<bool>> all = kernel::dependences(builder_.kernel());
    std::vector<Symbol> axes;
    for (Symbol axis : axes_)
      if (all[id][axis]) axes.push_back(axis);
    return axes;
  }

  ExprId value(int depth) {
    if (depth == 0) return random_.chance(0.85) ? load() : constant(random_.number());
    if (kinds_.scans && random_.chance(0.3)) return scan(depth);
    switch (random_.below(9)) {
      case 0: return builder_.op(ScalarOp::kAdd, {value(depth - 1), value(depth - 1)});
      case 1: return builder_.op(ScalarOp::kMul, {value(depth - 1), value(depth - 1)});
      case 2: return builder_.op(ScalarOp::kMaximum, {value(depth - 1), value(depth - 1)});
      case 3: return builder_.op(ScalarOp::kSin, {value(depth - 1)});
      case 4: {
        const ExprId less = builder_.op(ScalarOp::kLess, {value(depth - 1), value(depth - 1)});
        const double other = random_.chance(0.5) ? -INFINITY : random_.number();
        return builder_.op(ScalarOp::kSelect, {less, value(depth - 1), constant(other)});
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

  // A running fold, perhaps with where its extremes stand, or a row in order.
  ExprId scan(int depth) {
    const ReduceOp reduce = random_.pick(std::vector{ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
                                                     ReduceOp::kLogSumExp, ReduceOp::kSortUp, ReduceOp::kSortDown});
    const bool along = kernel::takes_along(reduce) && random_.chance(0.6);
    ExprId operand = value(along ? 0 : depth - 1);  // the last places of a sum would say where things stand
    if (along && random_.chance(0.5)) operand = builder_.op(ScalarOp::kRound, {operand});  // equals
    const std::vector<Symbol> axes = depends(operand);
    if (axes.empty()) return operand;
    const Symbol axis = random_.pick(axes);
    const bool sorts = kernel::is_sort(reduce), reversed = !sorts && random_.chance(0.3);
    std::vector<ExprId> operands = {operand};
    const Index place = kernel::symbol_index(axis);
    if (along) operands.push_back(builder_.index(reversed ? extent(axis) - Index(1) - place : place));
    const int component = along && random_.chance(0.5) ? 1 : 0;
    return builder_.cast(computed_in_, builder_.scan(reduce, std::move(operands), axis, reversed, component));
  }

  // exp(x - max x), or a power of 2, or of a multiple, over its sum, or that sum alone.
  ExprId softmax_part(ExprId operand) {
    const std::vector<Symbol> axes = some_of(depends(operand));
    if (axes.empty()) return operand;
    const ExprId largest = builder_.reduce(ReduceOp::kMax, {operand}, axes);
    ExprId exponent = builder_.op(ScalarOp::kSub, {operand, largest});
    if (random_.chance(0.3)) exponent = builder_.op(ScalarOp::kMul, {exponent, constant(1.5)});
    const ExprId weight = builder_.op(random_.chance(0.7) ? ScalarOp::kExp : ScalarOp::kExp2, {exponent});
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
    ExprId result = value(3);
    const DType dtype = kinds_.types ? random_.pick(std::vector{DType::f32, DType::f64, DType::f16, DType::bf16})
                                     : DType::f32;
    if (dtype != computed_in_) result = builder_.cast(dtype, result);
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
    access.buffer = builder_.buffer("y" + std::to_string(place), dtype, shape, BufferRole::kOutput);
    builder_.store(access, result);
  }

  Random& random_;
  Builder builder_;
  KernelKinds kinds_;
  DType computed_in_ = DType::f32;
  Symbol size_ = -1;
  int64_t runtime_ = 0;
  std::vector<Symbol> axes_;
  std::vector<int> inputs_;
  std::vector<std::vector<Symbol>> axes_of_;
};

// Two or all of the loops in one, if there are as many.
inline void merge_loops(Random& random, const Kernel& kernel, KernelSchedule& schedule) {
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

inline void put_within(Random& random, KernelSchedule& schedule, const Kernel& kernel) {
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
inline void unroll(Random& random, KernelSchedule& schedule, const Kernel& kernel) {
  const std::vector<Symbol> axes = kernel::axes_of(kernel);
  for (size_t place = 0; place < axes.size(); ++place) {
    AxisSchedule& one = schedule.axes[place];
    const std::string& name = kernel.symbols[axes[place]].name;
    const bool is_paired = std::any_of(schedule.axes.begin(), schedule.axes.end(), [&](const AxisSchedule& other) {
      return !one.within.empty() || other.within == name;
    });
    const bool fits = one.mapping == Mapping::kTile ? !one.last && !is_paired : one.mapping == Mapping::kLoop;
    one.unrolled = fits && kernel::as_constant(kernel.symbols[axes[place]].extent) && random.chance(0.4);
    one.in_order = one.in_order && !one.unrolled;
  }
}

// Loops as a CPU has them, without a grid: what is folded anywhere is a tile, and one axis is taken side by side.
inline KernelSchedule random_loops(Random& random, const Kernel& kernel) {
  KernelSchedule schedule;
  const std::vector<Symbol> axes = kernel::axes_of(kernel);
  for (Symbol axis : axes) {
    AxisSchedule one;
    const bool is_folded = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const kernel::Expr& expr) {
      return std::find(expr.axes.begin(), expr.axes.end(), axis) != expr.axes.end();
    });
    const bool is_tile = is_folded || random.chance(0.3);
    one.mapping = is_tile ? Mapping::kTile : Mapping::kLoop;
    one.width = is_tile ? std::max<int64_t>(kernel.symbols[axis].range.high + 1, 1) : int64_t{1} << random.below(4);
    if (is_tile && random.chance(0.3)) one.width = (one.width + 15) / 16 * 16;  // in whole vectors, if it has simd
    one.threads = !is_tile && random.chance(0.4);
    schedule.axes.push_back(one);
  }
  const size_t simd = static_cast<size_t>(random.below(static_cast<int64_t>(axes.size())));
  schedule.axes[simd].simd = true;
  for (size_t inner = simd + 1; inner < axes.size(); ++inner) schedule.axes[inner].threads = false;
  return schedule;
}

inline bool scans(const Kernel& kernel) {
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                     [](const kernel::Expr& expr) { return expr.kind == kernel::ExprKind::kScan; });
}

// Words that would change nothing are refused.
inline void leave_out_idle_words(KernelSchedule& schedule, const Kernel& kernel) {
  for (size_t place = 0; place < schedule.axes.size(); ++place)
    for (bool AxisSchedule::* const word : {&AxisSchedule::online, &AxisSchedule::network, &AxisSchedule::in_order}) {
      KernelSchedule alone;
      alone.axes.resize(schedule.axes.size());
      alone.axes[place].*word = schedule.axes[place].*word;
      schedule.axes[place].*word = schedule.axes[place].*word && idle_word(alone, kernel).empty();
    }
}

inline KernelSchedule random_blocks(Random& random, const Kernel& kernel) {
  KernelSchedule schedule;
  for (Symbol axis : kernel::axes_of(kernel)) {
    AxisSchedule one;
    const int64_t most = kernel.symbols[axis].range.high + 1;
    one.mapping = random.pick(std::vector{Mapping::kGrid, Mapping::kTile, Mapping::kLoop, Mapping::kLoop});
    one.width = int64_t{1} << random.below(5);
    if (one.mapping == Mapping::kTile)
      while (one.width < most) one.width *= 2;
    one.online = one.mapping == Mapping::kLoop && random.chance(0.5);
    if (scans(kernel)) {
      one.network = one.mapping != Mapping::kGrid && random.chance(0.3);
      one.prefetch = one.mapping == Mapping::kLoop && random.chance(0.2) ? 2 : 1;
      one.in_order = one.mapping == Mapping::kLoop && !one.network && (one.width == 4 || one.width == 16);
    }
    one.last = one.mapping != Mapping::kLoop && one.width > 1 && random.chance(0.2);
    if (one.last && one.width > 2 && random.chance(0.7)) one.split = random.chance(0.5) ? 2 : one.width / 2;
    schedule.axes.push_back(one);
  }
  if (random.chance(0.3)) merge_loops(random, kernel, schedule);
  schedule.bulk = random.chance(0.5);
  schedule.loads_first = random.chance(0.3);
  put_within(random, schedule, kernel);
  unroll(random, schedule, kernel);
  leave_out_idle_words(schedule, kernel);
  return schedule;
}

inline KernelSchedule random_schedule(Random& random, const Kernel& kernel) {
  return random.chance(0.25) ? random_loops(random, kernel) : random_blocks(random, kernel);
}

inline kernel::Memory random_memory(Random& random, const Kernel& kernel, const std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> values(kernel.symbols.size());
  for (size_t symbol = 0; symbol < values.size(); ++symbol)
    if (const auto found = sizes.find(kernel.symbols[symbol].name); found != sizes.end())
      values[symbol] = found->second;
  kernel::Memory memory;
  for (const kernel::Buffer& buffer : kernel.buffers) {
    if (buffer.role == BufferRole::kOutput) continue;
    int64_t elements = 1;
    for (const Index& size : buffer.shape) elements *= kernel::evaluate(size, values);
    kernel::Numbers& numbers = memory[buffer.name];
    for (int64_t i = 0; i < elements; ++i) {
      if (kernel::is_real(buffer.dtype)) numbers.reals.push_back(kernel::round_to(buffer.dtype, random.number()));
      else numbers.wholes.push_back(buffer.dtype == DType::b1 ? random.below(2) : random.below(7) - 3);
    }
  }
  return memory;
}

}  // namespace kw::lower
