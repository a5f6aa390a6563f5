#include "plan/reductions.hpp"

#include <cmath>
#include <limits>

#include "plan/picked.hpp"
#include "plan/scalar_forms.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

// A ReduceContext with the arithmetic that its handlers share.
class Reduction {
 public:
  explicit Reduction(const ReduceContext& context)
      : c_(context),
        k_(context.build),
        node_(context.graph.nodes[context.id]),
        rule_(rule_of(node_)),
        input_(context.spec.operands[0]) {
    work_ = compute_dtype(context.graph.type(input_).dtype);
  }

  std::vector<ExprId> lower() const;

 private:
  ExprId number(double value) const { return k_.constant(work_, value); }
  ExprId x() const { return c_.operands.at(input_); }
  ExprId x_as(DType dtype) const { return k_.cast(dtype, x()); }
  DType result_dtype(int result = 0) const { return compute_dtype(c_.graph.type(node_.results[result]).dtype); }
  bool has_tensor(std::string_view name) const { return node_.value(name) != kNoValue; }
  ExprId tensor(std::string_view name) const { return k_.cast(work_, c_.operands.at(node_.value(name))); }

  bool varies(ExprId value) const {
    for (bool axis : k_.reduce_axes_of(value))
      if (axis) return true;
    return false;
  }

  // A reduction of what does not vary along the reduce axes needs no reduction.
  ExprId fold(ReduceOp op, ExprId value) const {
    const DType dtype = op == ReduceOp::kArgMax || op == ReduceOp::kArgMin ? DType::i64 : k_.dtype(value);
    if (varies(value)) {
      const auto picked = op == ReduceOp::kSum ? picked_sum(k_, value) : std::nullopt;
      return picked ? *picked : k_.reduce(op, {value});
    }
    if (op == ReduceOp::kSum) return k_.mul(value, k_.constant(dtype, c_.folded));
    if (op == ReduceOp::kProd) {
      ExprId power = k_.constant(dtype, 1), base = value;
      for (int64_t left = c_.folded; left > 0; left /= 2, base = k_.mul(base, base))
        if (left % 2) power = k_.mul(power, base);
      return power;
    }
    return dtype == DType::i64 && op != ReduceOp::kMax && op != ReduceOp::kMin ? k_.constant(dtype, 0) : value;
  }

  ExprId sum(ExprId value) const { return fold(ReduceOp::kSum, value); }
  ExprId over_count(ExprId total) const {
    return k_.div(total, k_.constant(k_.dtype(total), static_cast<double>(c_.folded)));
  }

  struct Moments {
    ExprId mean, squares;
  };
  Moments moments(ExprId value) const {
    if (!varies(value)) return {value, k_.sub(value, value)};
    const Moments result{k_.reduce(ReduceOp::kMoments, {value}, 0), k_.reduce(ReduceOp::kMoments, {value}, 1)};
    k_.name(result.mean, "mean");
    k_.name(result.squares, "squared_deviations");
    return result;
  }

  ExprId variance(const Moments& m, double correction) const {
    const double degrees = std::max(0.0, static_cast<double>(c_.folded) - correction);
    const ExprId result = k_.div(m.squares, k_.constant(k_.dtype(m.squares), degrees));
    return result;
  }

  struct MaxSum {
    ExprId largest, sum;
  };
  MaxSum max_sum_exp(ExprId value) const {
    const DType dtype = k_.dtype(value);
    if (!varies(value)) return {value, k_.constant(dtype, static_cast<double>(c_.folded))};
    const MaxSum result{k_.reduce(ReduceOp::kMaxSumExp, {value}, 0), k_.reduce(ReduceOp::kMaxSumExp, {value}, 1)};
    k_.name(result.largest, "largest");
    k_.name(result.sum, "exponential_sum");
    return result;
  }

  double correction() const {
    if (node_.find("unbiased")) return node_.boolean("unbiased", true) ? 1.0 : 0.0;
    const Argument* argument = node_.find("correction");
    return !argument || std::holds_alternative<None>(*argument) ? 1.0 : node_.number("correction", 1.0);
  }

  ExprId inverse_deviation(ExprId mean_square, double epsilon) const {
    const ExprId result = k_.op(ScalarOp::kRsqrt, {k_.add(mean_square, number(epsilon))});
    k_.name(result, "inverse_deviation");
    return result;
  }

  ExprId scale_and_shift(ExprId value) const {
    if (has_tensor("weight")) value = k_.mul(value, tensor("weight"));
    if (has_tensor("bias")) value = k_.add(value, tensor("bias"));
    return value;
  }

  ExprId normalise(ExprId mean, ExprId inverse) const;
  ExprId vector_norm() const;
  ExprId loss() const;
  ExprId log_sum_exp() const;
  std::vector<ExprId> softmax() const;
  std::vector<ExprId> statistics_norm() const;
  std::vector<ExprId> rms_norm() const;
  std::vector<ExprId> spread() const;

  const ReduceContext& c_;
  GroupBuilder& k_;
  const Node& node_;
  OpRule rule_;
  ValueId input_;
  DType work_;
};

ExprId Reduction::vector_norm() const {
  const DType dtype = result_dtype();
  const ExprId value = x_as(dtype);
  const double order = node_.number("p", node_.number("ord", 2.0));
  const auto constant = [&](double v) { return k_.constant(dtype, v); };
  if (order == 2.0) return k_.op(ScalarOp::kSqrt, {sum(k_.mul(value, value))});
  const ExprId magnitude = k_.op(ScalarOp::kAbs, {value});
  if (order == 1.0) return sum(magnitude);
  if (std::isinf(order)) return fold(order > 0 ? ReduceOp::kMax : ReduceOp::kMin, magnitude);
  if (order == 0.0) return sum(k_.cast(dtype, k_.op(ScalarOp::kNotEqual, {value, constant(0.0)})));
  return k_.op(ScalarOp::kPow, {sum(k_.op(ScalarOp::kPow, {magnitude, constant(order)})), constant(1.0 / order)});
}

ExprId Reduction::loss() const {
  const ScalarContext element{k_, c_.graph, node_, c_.operands, {}, result_dtype()};
  const ExprId total = sum(element_by_form(element));
  return node_.integer("reduction", 1) == 1 ? over_count(total) : total;
}

std::vector<ExprId> Reduction::softmax() const {
  const DType dtype = result_dtype();
  const ExprId value = x_as(dtype);
  const MaxSum row = max_sum_exp(value);
  const ExprId shifted = k_.sub(value, row.largest);
  if (rule_ == OpRule::kLogSoftmax) {
    const ExprId logarithm = k_.op(ScalarOp::kLog, {row.sum});
    k_.name(logarithm, "log_sum");
    return {k_.sub(shifted, logarithm)};
  }
  const ExprId share = k_.div(k_.op(ScalarOp::kExp, {shifted}), row.sum);
  if (rule_ != OpRule::kSafeSoftmax) return {share};
  // A row of −∞ gives zeros.
  return {
      k_.select(k_.op(ScalarOp::kEqual, {row.largest, k_.constant(dtype, -std::numeric_limits<double>::infinity())}),
                k_.constant(dtype, 0.0), share)};
}

// (x − mean) · inverse · weight + bias in the order of PyTorch's own kernels: beside values near the largest, another
// order overflows where theirs does not.
ExprId Reduction::normalise(ExprId mean, ExprId inverse) const {
  if (rule_ == OpRule::kGroupNorm) {
    const ExprId scale = has_tensor("weight") ? k_.mul(inverse, tensor("weight")) : inverse;
    const ExprId shift = k_.mul(mean, scale);
    return k_.add(k_.mul(x(), scale),
                  has_tensor("bias") ? k_.sub(tensor("bias"), shift) : k_.op(ScalarOp::kNeg, {shift}));
  }
  return scale_and_shift(k_.mul(k_.sub(x(), mean), inverse));
}

// layer_norm, group_norm, instance_norm and batch_norm with the batch's statistics.
std::vector<ExprId> Reduction::statistics_norm() const {
  const Moments m = moments(x_as(work_));
  const ExprId spread = variance(m, 0.0);
  const ExprId inverse = inverse_deviation(spread, node_.number("eps", 1e-5));
  std::vector<ExprId> results = {normalise(m.mean, inverse), m.mean, inverse};
  if (node_.results.size() == 5) {  // the functional batch norm returns the new running statistics
    const double momentum = node_.number("momentum", 0.1);
    auto blend = [&](std::string_view running, ExprId fresh) {
      return k_.add(k_.mul(tensor(running), number(1.0 - momentum)), k_.mul(fresh, number(momentum)));
    };
    results.push_back(has_tensor("running_mean") ? blend("running_mean", m.mean) : kNoExpr);
    results.push_back(has_tensor("running_var") ? blend("running_var", variance(m, 1.0)) : kNoExpr);
  }
  results.resize(node_.results.size(), kNoExpr);
  return results;
}

std::vector<ExprId> Reduction::rms_norm() const {
  const Argument* given = node_.find("eps");
  const double epsilon = given && !std::holds_alternative<None>(*given) ? node_.number("eps", 0.0)
                                                                        : epsilon_of(c_.graph.type(input_).dtype);
  const ExprId mean_square = over_count(sum(k_.mul(x(), x())));
  k_.name(mean_square, "mean_square");
  const ExprId inverse = inverse_deviation(mean_square, epsilon);
  std::vector<ExprId> results = {scale_and_shift(k_.mul(x(), inverse)), inverse};
  results.resize(node_.results.size(), kNoExpr);
  return results;
}

ExprId Reduction::log_sum_exp() const {
  const MaxSum row = max_sum_exp(x_as(result_dtype()));
  const ExprId total = k_.add(row.largest, k_.op(ScalarOp::kLog, {row.sum}));
  return k_.select(k_.op(ScalarOp::kIsInf, {row.largest}), row.largest, total);
}

std::vector<ExprId> Reduction::spread() const {
  const Moments m = moments(x_as(result_dtype()));
  ExprId spread = variance(m, correction());
  if (rule_ == OpRule::kStd || rule_ == OpRule::kStdMean) spread = k_.op(ScalarOp::kSqrt, {spread});
  if (rule_ == OpRule::kVar || rule_ == OpRule::kStd) return {spread};
  // PyTorch's running update makes NaN of both where an element is infinite.
  return {spread, varies(x()) ? k_.select(k_.op(ScalarOp::kIsNan, {m.squares}), m.squares, m.mean) : m.mean};
}

std::vector<ExprId> Reduction::lower() const {
  const DType dtype = result_dtype();
  auto extreme = [&](bool largest) {
    if (work_ == DType::b1) return fold(largest ? ReduceOp::kAny : ReduceOp::kAll, x());
    return fold(largest ? ReduceOp::kMax : ReduceOp::kMin, x());
  };
  auto position = [&](bool largest) {
    return fold(largest ? ReduceOp::kArgMax : ReduceOp::kArgMin, work_ == DType::b1 ? x_as(DType::i32) : x());
  };
  switch (rule_) {
    case OpRule::kSum: return {sum(x_as(dtype))};
    case OpRule::kMean: return {over_count(sum(x_as(dtype)))};
    case OpRule::kProd: return {fold(ReduceOp::kProd, x_as(dtype))};
    case OpRule::kCountNonzero: return {sum(k_.cast(DType::i64, x_as(DType::b1)))};
    case OpRule::kAny: return {fold(ReduceOp::kAny, x_as(DType::b1))};
    case OpRule::kAll: return {fold(ReduceOp::kAll, x_as(DType::b1))};
    case OpRule::kMax: return {extreme(true)};
    case OpRule::kMin: return {extreme(false)};
    case OpRule::kArgMax: return {position(true)};
    case OpRule::kArgMin: return {position(false)};
    case OpRule::kMinMax: return {extreme(false), extreme(true)};
    case OpRule::kMaxAt: return {extreme(true), position(true)};
    case OpRule::kMinAt: return {extreme(false), position(false)};
    case OpRule::kLogSumExp: return {log_sum_exp()};
    case OpRule::kNorm: return {vector_norm()};
    case OpRule::kPairLoss: return {loss()};
    case OpRule::kSoftmax:
    case OpRule::kLogSoftmax:
    case OpRule::kSafeSoftmax: return softmax();
    case OpRule::kRmsNorm: return rms_norm();
    case OpRule::kVar:
    case OpRule::kStd:
    case OpRule::kVarMean:
    case OpRule::kStdMean: return spread();
    default: return statistics_norm();
  }
}

}  // namespace

std::vector<ExprId> lower_reduction(const ReduceContext& context) { return Reduction(context).lower(); }

}  // namespace kw::plan
