#include "kernel/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.hpp"

namespace kw::kernel {
namespace {

// An expression's values over the axes on which it depends, each computed when it is first asked for.
struct Table {
  std::vector<Symbol> axes;
  std::vector<int64_t> strides;  // of these axes
  std::vector<Number> numbers;
  std::vector<char> known;
};

class Evaluator {
 public:
  Evaluator(const Kernel& kernel, const Memory& memory, const std::map<std::string, int64_t>& sizes)
      : kernel_(kernel), point_(kernel.symbols.size()), extents_(kernel.symbols.size(), 1) {
    for (size_t symbol = 0; symbol < point_.size(); ++symbol) read_symbol(symbol, sizes);
    read_memory(memory);
    const std::vector<std::vector<bool>> depends = dependences(kernel);
    for (const std::vector<bool>& axes : depends) tables_.push_back(make_table(axes));
    depends_ = depends;
  }

  Memory run() {
    Memory result = memory_;
    for (const Store& store : kernel_.stores) run_store(store, result);
    return result;
  }

 private:
  void read_symbol(size_t symbol, const std::map<std::string, int64_t>& sizes) {
    const SymbolInfo& info = kernel_.symbols[symbol];
    if (info.kind == SymbolKind::kAxis) {
      extents_[symbol] = evaluate(info.extent, point_);
      return;
    }
    const auto found = sizes.find(info.name);
    if (found == sizes.end()) fail(fmt::format("size '{}' is not given", info.name));
    if (found->second < info.range.low || found->second > info.range.high || found->second % info.range.divisor != 0)
      fail(fmt::format("size '{}' is {}, but must be from {} to {} and a multiple of {}", info.name, found->second,
                       info.range.low, info.range.high, info.range.divisor));
    point_[symbol] = found->second;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kUser, fmt::format("kernel '{}': {}", kernel_.name, what));
  }

  void read_memory(const Memory& memory) {
    for (const Buffer& buffer : kernel_.buffers) {
      std::vector<int64_t> shape, strides;
      for (const Index& size : buffer.shape) shape.push_back(evaluate(size, point_));
      strides.resize(shape.size(), 1);
      for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
      for (size_t i = 0; i < buffer.strides.size(); ++i) strides[i] = evaluate(buffer.strides[i], point_);
      int64_t elements = 1;
      for (size_t i = 0; i < shape.size(); ++i) elements += shape[i] > 0 ? (shape[i] - 1) * strides[i] : 0;
      if (std::find(shape.begin(), shape.end(), 0) != shape.end()) elements = 0;
      Numbers numbers;
      const auto found = memory.find(buffer.name);
      if (found != memory.end()) {
        numbers = found->second;
        const size_t given = is_real(buffer.dtype) ? numbers.reals.size() : numbers.wholes.size();
        if (static_cast<int64_t>(given) < elements)
          fail(fmt::format("buffer '{}' has {} elements of {}", buffer.name, given, elements));
      } else if (buffer.role == BufferRole::kOutput) {
        if (is_real(buffer.dtype)) numbers.reals.assign(elements, std::numeric_limits<double>::quiet_NaN());
        else numbers.wholes.assign(elements, std::numeric_limits<int64_t>::min());
      } else {
        fail(fmt::format("buffer '{}' is not given", buffer.name));
      }
      memory_[buffer.name] = std::move(numbers);
      shapes_.push_back(std::move(shape));
      strides_.push_back(std::move(strides));
    }
  }

  Table make_table(const std::vector<bool>& axes) const {
    Table table;
    int64_t elements = 1;
    for (size_t axis = axes.size(); axis-- > 0;) {
      if (!axes[axis]) continue;
      table.axes.push_back(static_cast<Symbol>(axis));
      table.strides.push_back(elements);
      elements *= extents_[axis];
    }
    table.numbers.resize(elements);
    table.known.resize(elements);
    return table;
  }

  // Calls body() for every point of these axes, the last fastest.
  template <typename Body>
  void walk(const std::vector<Symbol>& axes, const Body& body, size_t depth = 0) {
    if (depth == axes.size()) return body();
    const int64_t before = point_[axes[depth]];
    for (int64_t value = 0; value < extents_[axes[depth]]; ++value) {
      point_[axes[depth]] = value;
      walk(axes, body, depth + 1);
    }
    point_[axes[depth]] = before;
  }

  Number value(ExprId id) {
    Table& table = tables_[id];
    int64_t place = 0;
    for (size_t i = 0; i < table.axes.size(); ++i) place += point_[table.axes[i]] * table.strides[i];
    if (table.known[place]) return table.numbers[place];
    const Number number = compute(kernel_.exprs[id]);
    tables_[id].numbers[place] = number;
    tables_[id].known[place] = 1;
    return number;
  }

  Number compute(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kConstant: return {expr.number, expr.integer};
      case ExprKind::kIndex: return {0.0, wrap_to(expr.dtype, evaluate(expr.index, point_))};
      case ExprKind::kLoad: return load(expr);
      case ExprKind::kOp: return apply_op(expr);
      case ExprKind::kReduce: return reduce(expr);
      case ExprKind::kDot: return dot(expr);
      case ExprKind::kScan: return scan(expr);
      case ExprKind::kState: return previous(expr);
    }
    return {};
  }

  bool holds(ExprId mask) { return mask == kNoExpr || value(mask).whole != 0; }

  int64_t place_of(const Access& access) {
    int64_t place = 0;
    for (size_t i = 0; i < access.coordinates.size(); ++i) {
      const Coordinate& coordinate = access.coordinates[i];
      int64_t at = evaluate(coordinate.index, point_);
      if (coordinate.value != kNoExpr) at += value(coordinate.value).whole;
      if (at < 0 || at >= shapes_[access.buffer][i])
        throw Error(ErrorKind::kInternal,
                    fmt::format("kernel '{}': coordinate {} of '{}' is {}, beyond its size {}", kernel_.name, i,
                                kernel_.buffers[access.buffer].name, at, shapes_[access.buffer][i]));
      place += at * strides_[access.buffer][i];
    }
    return place;
  }

  Number load(const Expr& expr) {
    if (!holds(expr.access.mask)) return {expr.access.otherwise, static_cast<int64_t>(expr.access.otherwise)};
    const int64_t place = place_of(expr.access);
    const Buffer& buffer = kernel_.buffers[expr.access.buffer];
    const Numbers& numbers = memory_.at(buffer.name);
    return is_real(buffer.dtype) ? Number{numbers.reals[place], 0} : Number{0.0, numbers.wholes[place]};
  }

  // Floating results are not rounded; whole numbers wrap to their type.
  static Number kept(DType dtype, Number number) {
    if (!is_real(dtype)) number.whole = wrap_to(dtype, number.whole);
    return number;
  }

  Number apply_op(const Expr& expr) {
    Number operands[3];
    for (size_t i = 0; i < expr.operands.size(); ++i) operands[i] = value(expr.operands[i]);
    const ExprId typed = expr.operands[expr.op == ScalarOp::kSelect ? 1 : 0];
    return kept(expr.dtype, apply(expr.op, kernel_.exprs[typed].dtype, expr.dtype, operands));
  }

  DType operand_type(const Expr& expr) const { return kernel_.exprs[expr.operands[0]].dtype; }

  Number reduce(const Expr& expr) {
    if (expr.reduce == ReduceOp::kExtendedSum) {
      long double total = 0;
      walk(expr.axes, [&] { total += value(expr.operands[0]).real; });
      return {static_cast<double>(total), 0};
    }
    if (identity_of(expr.reduce)) {
      Number total = identity(expr.reduce, expr.dtype);
      walk(expr.axes, [&] { total = fold(expr.reduce, expr.dtype, total, value(expr.operands[0])); });
      return total;
    }
    std::vector<Number> values;
    walk(expr.axes, [&] { values.push_back(value(expr.operands[0])); });
    if (expr.reduce == ReduceOp::kArgMax || expr.reduce == ReduceOp::kArgMin) return place_of_extreme(expr, values);
    if (expr.reduce == ReduceOp::kMoments) {
      double mean = 0, squares = 0;
      for (const Number& one : values) mean += one.real / static_cast<double>(values.size());
      for (const Number& one : values) squares += (one.real - mean) * (one.real - mean);
      return {expr.component == 0 ? mean : squares, 0};
    }
    if (expr.reduce == ReduceOp::kMaxSumExp) {
      Number largest = identity(ReduceOp::kMax, expr.dtype);
      for (const Number& one : values) largest = fold(ReduceOp::kMax, expr.dtype, largest, one);
      double sum = 0;
      for (const Number& one : values) sum += std::exp(one.real - largest.real);
      return expr.component == 0 ? largest : Number{sum, 0};
    }
    if (arity_of(expr.reduce) > 1) return combine(expr);
    throw Error(ErrorKind::kInternal,
                fmt::format("kernel '{}': a {} is not evaluated", kernel_.name, name_of(expr.reduce)));
  }

  // Of parts: means with squared deviations and counts, or maxima with the sums of exponentials below them.
  Number combine(const Expr& expr) {
    std::vector<std::vector<double>> parts;
    walk(expr.axes, [&] {
      parts.emplace_back();
      for (const ExprId operand : expr.operands) parts.back().push_back(value(operand).real);
    });
    if (expr.reduce == ReduceOp::kCombineMoments) {
      double count = 0, mean = 0, squares = 0;
      for (const auto& part : parts) count += part[2];
      for (const auto& part : parts) mean += part[0] * (part[2] / std::max(count, 1.0));
      for (const auto& part : parts) squares += part[1] + part[2] * (part[0] - mean) * (part[0] - mean);
      return {expr.component == 0 ? mean : squares, 0};
    }
    Number largest = identity(ReduceOp::kMax, expr.dtype);
    for (const auto& part : parts) largest = fold(ReduceOp::kMax, expr.dtype, largest, {part[0], 0});
    double sum = 0;
    for (const auto& part : parts) sum += part[1] * std::exp(part[0] - largest.real);
    return expr.component == 0 ? largest : Number{sum, 0};
  }

  // The first of equals; NaN wins.
  Number place_of_extreme(const Expr& expr, const std::vector<Number>& values) const {
    const bool real = is_real(operand_type(expr)), largest = expr.reduce == ReduceOp::kArgMax;
    size_t best = 0;
    const auto better = [&](const Number& one, const Number& other) {
      if (!real) return largest ? one.whole > other.whole : one.whole < other.whole;
      if (std::isnan(other.real)) return false;
      return std::isnan(one.real) || (largest ? one.real > other.real : one.real < other.real);
    };
    for (size_t i = 1; i < values.size(); ++i)
      if (better(values[i], values[best])) best = i;
    return {0.0, static_cast<int64_t>(best)};
  }

  Number dot(const Expr& expr) {
    const bool real = is_real(operand_type(expr));
    Number total;
    walk(expr.axes, [&] {
      const Number left = value(expr.operands[0]), right = value(expr.operands[1]);
      if (real) total.real += left.real * right.real;
      else total.whole += left.whole * right.whole;
    });
    return kept(expr.dtype, total);
  }

  // As a fold over the points so far: rows are short where kernels are evaluated.
  Number scan(const Expr& expr) {
    if (is_sort(expr.reduce)) return sorted(expr);
    const bool along = expr.operands.size() > 1, first = expr.reduce == ReduceOp::kFirst;
    if (!first && !identity_of(expr.reduce))
      throw Error(ErrorKind::kInternal,
                  fmt::format("kernel '{}': a scan of {} is not evaluated", kernel_.name, name_of(expr.reduce)));
    const Symbol axis = expr.axes[0];
    const DType dtype = operand_type(expr);
    const int64_t here = point_[axis], begin = expr.reversed ? extents_[axis] - 1 : 0, step = expr.reversed ? -1 : 1;
    Number total = first ? Number() : identity(expr.reduce, dtype), place;
    for (int64_t at = begin;; at += step) {
      point_[axis] = at;
      const Number next = value(expr.operands[0]);
      if (along && (at == begin || takes_over(expr.reduce, dtype, next, total))) place = value(expr.operands[1]);
      if (first) total = at == begin ? next : total;
      else total = fold(expr.reduce, dtype, total, next);
      if (at == here) break;
    }
    point_[axis] = here;
    return expr.component == 1 ? place : total;
  }

  Number sorted(const Expr& expr) {
    const Symbol axis = expr.axes[0];
    const int64_t here = point_[axis];
    std::vector<std::pair<Number, Number>> row;
    for (point_[axis] = 0; point_[axis] < extents_[axis]; ++point_[axis])
      row.emplace_back(value(expr.operands[0]), expr.operands.size() > 1 ? value(expr.operands[1]) : Number());
    point_[axis] = here;
    std::stable_sort(row.begin(), row.end(), [&](const auto& left, const auto& right) {
      return stands_before(expr.reduce, operand_type(expr), left.first, right.first);
    });
    return expr.component == 1 ? row[here].second : row[here].first;
  }

  Number previous(const Expr& expr) {
    const State& state = kernel_.states[expr.state];
    std::vector<int64_t> coordinates;
    for (const Coordinate& coordinate : expr.access.coordinates)
      coordinates.push_back(evaluate(coordinate.index, point_));
    const std::vector<int64_t> before = point_;
    for (size_t i = 0; i < state.axes.size(); ++i) point_[state.axes[i]] = coordinates[i];
    Number result;
    if (point_[state.along] == 0) {
      result = value(state.initial);
    } else {
      --point_[state.along];
      result = value(state.next);
    }
    point_ = before;
    return result;
  }

  void run_store(const Store& store, Memory& result) {
    const std::vector<bool> axes = dependences(kernel_, store, depends_);
    std::vector<Symbol> walked;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis]) walked.push_back(static_cast<Symbol>(axis));
    const Buffer& buffer = kernel_.buffers[store.access.buffer];
    Numbers& numbers = result.at(buffer.name);
    walk(walked, [&] {
      if (!holds(store.access.mask)) return;
      const int64_t place = place_of(store.access);
      Number one = value(store.value);
      const bool real = is_real(buffer.dtype);
      if (store.combines)
        one = fold(store.reduce, buffer.dtype,
                   real ? Number{numbers.reals[place], 0} : Number{0, numbers.wholes[place]}, one);
      if (real) numbers.reals[place] = one.real;
      else numbers.wholes[place] = one.whole;
    });
  }

  const Kernel& kernel_;
  std::vector<int64_t> point_;                          // [symbol] where we are, and what sizes are
  std::vector<int64_t> extents_;                        // [symbol] of axes
  std::vector<std::vector<int64_t>> shapes_, strides_;  // [buffer]
  Memory memory_;
  std::vector<Table> tables_;  // [expr]
  std::vector<std::vector<bool>> depends_;
};

}  // namespace

Memory evaluate(const Kernel& kernel, const Memory& memory, const std::map<std::string, int64_t>& sizes) {
  return Evaluator(kernel, memory, sizes).run();
}

}  // namespace kw::kernel
