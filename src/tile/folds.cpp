#include "tile/folds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kw::tile {
namespace {

using kernel::Number;

bool is_nan(DType dtype, const Number& value) { return kernel::is_real(dtype) && std::isnan(value.real); }

bool is_less(DType dtype, const Number& left, const Number& right) {
  return kernel::is_real(dtype) ? left.real < right.real : left.whole < right.whole;
}

Number fold_step(ReduceOp reduce, DType dtype, const Number& left, const Number& right, bool rounds) {
  Number result = kernel::fold(reduce, dtype, left, right);
  if (kernel::is_real(dtype)) {
    if (rounds) result.real = kernel::round_to(dtype, result.real);
  } else {
    result.whole = kernel::wrap_to(dtype, result.whole);
  }
  return result;
}

// Does the candidate take the place of the best so far? The first of equals stays, and the first NaN for good.
bool is_better(ReduceOp reduce, DType dtype, const Number& candidate, const Number& best) {
  if (is_nan(dtype, best)) return false;
  if (is_nan(dtype, candidate)) return true;
  return reduce == ReduceOp::kArgMax ? is_less(dtype, best, candidate) : is_less(dtype, candidate, best);
}

int64_t place_of_best(ReduceOp reduce, DType dtype, const Line& line) {
  int64_t best = 0;
  for (int64_t i = 1; i < line.size(); ++i)
    if (is_better(reduce, dtype, line.at(dtype, 0, i), line.at(dtype, 0, best))) best = i;
  return best;
}

// What a scan by log_sum_exp has met: max and Σ exp(x − max). An infinite maximum is not subtracted, as in PyTorch's
// logsumexp: ∞ − ∞ is none.
struct MaxSumExp {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;

  static double shifted(double value, double by) { return std::exp(std::isinf(by) ? value : value - by); }

  void add(double other_largest, double other_sum) {
    const Number pair[2] = {{largest, 0}, {other_largest, 0}};
    const double top = kernel::apply(ScalarOp::kMaximum, DType::f64, DType::f64, pair).real;
    // Where both are the same infinity, the sums are of values that were not shifted.
    const double mine = largest == top ? 1.0 : shifted(largest, top);
    const double others = other_largest == top ? 1.0 : shifted(other_largest, top);
    sum = (sum == 0 ? 0 : sum * mine) + (other_sum == 0 ? 0 : other_sum * others);
    largest = top;
  }

  void add(double value) { add(value, std::isinf(value) ? std::exp(value) : std::isnan(value) ? value : 1.0); }

  double log() const { return std::isinf(largest) ? largest : largest + std::log(sum); }
};

}  // namespace

Number Line::at(DType dtype, size_t operand, int64_t i) const {
  if (kernel::is_real(dtype)) return {operands[operand]->reals[base + steps[i]], 0};
  return {0.0, operands[operand]->wholes[base + steps[i]]};
}

Number fold_line(ReduceOp reduce, DType dtype, const Line& line, bool rounds) {
  if (reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin) return {0.0, place_of_best(reduce, dtype, line)};
  if (reduce == ReduceOp::kExtendedSum) {
    long double sum = 0;
    for (int64_t i = 0; i < line.size(); ++i) sum += line.at(dtype, 0, i).real;
    return {static_cast<double>(sum), 0};
  }
  Number sum = kernel::identity(reduce, dtype);
  for (int64_t i = 0; i < line.size(); ++i) sum = fold_step(reduce, dtype, sum, line.at(dtype, 0, i), rounds);
  return sum;
}

void scan_line(ReduceOp reduce, DType dtype, const Line& line, bool reversed, bool rounds, const Number* before,
               std::vector<Number>& results) {
  const int64_t size = line.size();
  results.resize(static_cast<size_t>(size));
  MaxSumExp log_sum;
  int64_t best = -1;
  Number sum;
  if (kernel::identity_of(reduce)) sum = before ? *before : kernel::identity(reduce, dtype);
  if (before && reduce == ReduceOp::kLogSumExp) log_sum.add(before->real);
  for (int64_t step = 0; step < size; ++step) {
    const int64_t i = reversed ? size - 1 - step : step;
    const Number value = line.at(dtype, 0, i);
    if (reduce == ReduceOp::kLogSumExp) {
      log_sum.add(value.real);
      results[i] = {log_sum.log(), 0};
    } else if (reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin) {
      if (best < 0 || is_better(reduce, dtype, value, line.at(dtype, 0, best))) best = i;
      results[i] = {0.0, best};
    } else {
      results[i] = sum = fold_step(reduce, dtype, sum, value, rounds);
    }
  }
}

void network_line(DType dtype, const Line& line, bool rounds, std::vector<Number>& results) {
  const int64_t size = line.size();
  results.clear();
  for (int64_t i = 0; i < size; ++i) results.push_back(line.at(dtype, 0, i));
  for (int64_t half = 1; half < size; half *= 2)
    for (int64_t i = 0; i < size; ++i)
      if (i / half % 2 == 1)
        results[i] = fold_step(ReduceOp::kProd, dtype, results[i / half * half - 1], results[i], rounds);
}

bool moves_elements(ReduceOp reduce, size_t operands) {
  return reduce == ReduceOp::kFirst || kernel::is_sort(reduce) || (kernel::takes_along(reduce) && operands == 2);
}

void source_line(ReduceOp reduce, DType dtype, const Line& line, bool reversed, std::vector<int64_t>& sources) {
  const int64_t size = line.size();
  sources.resize(static_cast<size_t>(size));
  if (kernel::is_sort(reduce)) {
    std::iota(sources.begin(), sources.end(), int64_t{0});
    std::stable_sort(sources.begin(), sources.end(), [&](int64_t left, int64_t right) {
      return kernel::stands_before(reduce, dtype, line.at(dtype, 0, left), line.at(dtype, 0, right));
    });
    return;
  }
  int64_t best = reversed ? size - 1 : 0;
  const auto reaches = [&](int64_t one, int64_t other) {
    return kernel::takes_over(reduce, dtype, line.at(dtype, 0, one), line.at(dtype, 0, other));
  };
  const auto place = [&](int64_t i) { return line.at(DType::i64, 1, i).whole; };
  for (int64_t step = 0; step < size; ++step) {
    const int64_t i = reversed ? size - 1 - step : step;
    if (reduce != ReduceOp::kFirst && reaches(i, best) && (!reaches(best, i) || place(i) > place(best))) best = i;
    sources[i] = best;
  }
}

bool stands_after(ReduceOp reduce, DType dtype, const Line& line, int64_t i, const Number* before) {
  const Number element = line.at(dtype, 0, i);
  if (!kernel::takes_over(reduce, dtype, element, before[0])) return true;
  return kernel::takes_over(reduce, dtype, before[0], element) && before[1].whole > line.at(DType::i64, 1, i).whole;
}

double dot_in_double(double sum, const std::vector<double>& a, const std::vector<double>& b, const DotLine& line) {
  for (size_t i = 0; i < line.a_steps.size(); ++i)
    sum += a[line.a_base + line.a_steps[i]] * b[line.b_base + line.b_steps[i]];
  return sum;
}

double dot_in_float(double sum, const std::vector<double>& a, const std::vector<double>& b, const DotLine& line) {
  float result = static_cast<float>(sum);
  for (size_t i = 0; i < line.a_steps.size(); ++i)
    result += static_cast<float>(a[line.a_base + line.a_steps[i]]) *
              static_cast<float>(b[line.b_base + line.b_steps[i]]);
  return result;
}

int64_t dot_of_wholes(int64_t sum, const std::vector<int64_t>& a, const std::vector<int64_t>& b, const DotLine& line) {
  uint64_t result = static_cast<uint64_t>(sum);
  for (size_t i = 0; i < line.a_steps.size(); ++i)
    result += static_cast<uint64_t>(a[line.a_base + line.a_steps[i]]) *
              static_cast<uint64_t>(b[line.b_base + line.b_steps[i]]);
  return static_cast<int64_t>(result);
}

}  // namespace kw::tile
