#include <cmath>
#include <unordered_map>

#include "plan/scalar_ops.hpp"

namespace kw::plan {

namespace {

using Context = const ScalarContext&;

ExprId clamp_between(Context c, ExprId x, double low, double high) {
  return c.build.op(ScalarOp::kMinimum, {c.build.op(ScalarOp::kMaximum, {x, c.number(low)}), c.number(high)});
}

ExprId hardtanh(Context c) {
  return clamp_between(c, c.self(), c.node.number("min_val", -1.0), c.node.number("max_val", 1.0));
}
ExprId relu(Context c) { return c.build.op(ScalarOp::kMaximum, {c.self(), c.number(0.0)}); }
ExprId relu6(Context c) { return clamp_between(c, c.self(), 0.0, 6.0); }

ExprId positive(Context c, ExprId x) { return c.build.op(ScalarOp::kGreater, {x, c.number(0.0)}); }

ExprId leaky_relu(Context c) {
  const ExprId x = c.self();
  return c.build.select(positive(c, x), x, c.build.mul(x, c.number(c.node.number("negative_slope", 0.01))));
}

ExprId prelu(Context c) {
  const ExprId x = c.self();
  return c.build.select(positive(c, x), x, c.build.mul(x, c.argument("weight", c.result)));
}

ExprId gelu(Context c) {
  auto& k = c.build;
  const ExprId x = c.self(), half_x = k.mul(x, c.number(0.5));
  if (c.node.text("approximate", "none") == "tanh") {
    const ExprId cubic = k.mul(c.number(0.044715), k.mul(k.mul(x, x), x));
    const ExprId inner = k.mul(c.number(std::sqrt(2.0 / M_PI)), k.add(x, cubic));
    return k.mul(half_x, k.add(c.number(1.0), k.op(ScalarOp::kTanh, {inner})));
  }
  return k.mul(half_x, k.add(c.number(1.0), k.op(ScalarOp::kErf, {k.mul(x, c.number(M_SQRT1_2))})));
}

ExprId silu(Context c) {
  const ExprId x = c.self();
  return c.build.mul(x, c.build.op(ScalarOp::kSigmoid, {x}));
}

// x·tanh(log(1 + e^x)) = x·(n / (n + 2)) with n = e^x·(e^x + 2): one exponential. From 20 on the quotient is 1 in every
// float, and stays so though e^x does not grow any further.
ExprId mish(Context c) {
  auto& k = c.build;
  const double limit = c.result == DType::f64 ? 40.0 : 20.0;
  const ExprId x = c.self(), two = c.number(2.0);
  const ExprId e = k.op(ScalarOp::kExp, {k.op(ScalarOp::kMinimum, {x, c.number(limit)})});
  const ExprId n = k.mul(e, k.add(e, two));
  return k.mul(x, k.div(n, k.add(n, two)));
}

ExprId softplus(Context c) {
  auto& k = c.build;
  const ExprId x = c.self();
  const double beta = c.node.number("beta", 1.0);
  const ExprId scaled = k.mul(x, c.number(beta));
  const ExprId soft = k.div(k.op(ScalarOp::kLog1p, {k.op(ScalarOp::kExp, {scaled})}), c.number(beta));
  return k.select(k.op(ScalarOp::kGreater, {scaled, c.number(c.node.number("threshold", 20.0))}), x, soft);
}

ExprId softsign(Context c) {
  const ExprId x = c.self();
  return c.build.div(x, c.build.add(c.number(1.0), c.build.op(ScalarOp::kAbs, {x})));
}

ExprId exponential_unit(Context c, double negative, double positive_scale, double input_scale) {
  auto& k = c.build;
  const ExprId x = c.self();
  const ExprId below = k.mul(k.op(ScalarOp::kExpm1, {k.mul(x, c.number(input_scale))}), c.number(negative));
  return k.select(positive(c, x), k.mul(x, c.number(positive_scale)), below);
}

ExprId elu(Context c) {
  const double scale = c.node.number("scale", 1.0);
  return exponential_unit(c, c.node.number("alpha", 1.0) * scale, scale, c.node.number("input_scale", 1.0));
}
ExprId celu(Context c) {
  const double alpha = c.node.number("alpha", 1.0);
  return exponential_unit(c, alpha, 1.0, 1.0 / alpha);
}
ExprId selu(Context c) {
  constexpr double kAlpha = 1.6732632423543772848170429916717, kScale = 1.0507009873554804934193349852946;
  return exponential_unit(c, kAlpha * kScale, kScale, 1.0);
}

ExprId hardsigmoid(Context c) {
  return c.build.div(clamp_between(c, c.build.add(c.self(), c.number(3.0)), 0.0, 6.0), c.number(6.0));
}
ExprId hardswish(Context c) {
  const ExprId x = c.self();
  return c.build.div(c.build.mul(x, clamp_between(c, c.build.add(x, c.number(3.0)), 0.0, 6.0)), c.number(6.0));
}

ExprId log_sigmoid(Context c) {
  const ExprId x = c.self();
  return c.build.sub(c.build.op(ScalarOp::kMinimum, {x, c.number(0.0)}), log1p_exp_negative_abs(c, x));
}

ExprId tanhshrink(Context c) {
  const ExprId x = c.self();
  return c.build.sub(x, c.build.op(ScalarOp::kTanh, {x}));
}

ExprId threshold(Context c) {
  const ExprId x = c.self();
  return c.build.select(c.build.op(ScalarOp::kLessEqual, {x, c.argument("threshold", c.result)}),
                        c.argument("value", c.result), x);
}

ExprId hardshrink(Context c) {
  auto& k = c.build;
  const ExprId x = c.self();
  const double bound = c.node.number("lambd", 0.5);
  const ExprId inside = k.op(ScalarOp::kLogicalAnd, {k.op(ScalarOp::kGreaterEqual, {x, c.number(-bound)}),
                                                     k.op(ScalarOp::kLessEqual, {x, c.number(bound)})});
  return k.select(inside, c.number(0.0), x);
}

ExprId softshrink(Context c) {
  auto& k = c.build;
  const ExprId x = c.self(), bound = c.number(c.node.number("lambd", 0.5)),
               negative = c.number(-c.node.number("lambd", 0.5));
  const ExprId inside = k.mul(x, c.number(0.0));  // keeps NaN
  return k.select(k.op(ScalarOp::kGreater, {x, bound}), k.sub(x, bound),
                  k.select(k.op(ScalarOp::kLess, {x, negative}), k.add(x, bound), inside));
}

ExprId logit(Context c) {
  auto& k = c.build;
  ExprId x = c.self();
  if (c.has("eps")) x = clamp_between(c, x, c.node.number("eps", 0.0), 1.0 - c.node.number("eps", 0.0));
  return k.op(ScalarOp::kLog, {k.div(x, k.sub(c.number(1.0), x))});
}

const std::unordered_map<std::string_view, ScalarLowering> kActivations = {
    {"log_sigmoid", log_sigmoid},
    {"relu", relu},
    {"relu6", relu6},
    {"leaky_relu", leaky_relu},
    {"prelu", prelu},
    {"_prelu_kernel", prelu},
    {"gelu", gelu},
    {"silu", silu},
    {"mish", mish},
    {"softplus", softplus},
    {"softsign", softsign},
    {"elu", elu},
    {"celu", celu},
    {"selu", selu},
    {"hardswish", hardswish},
    {"hardsigmoid", hardsigmoid},
    {"hardtanh", hardtanh},
    {"threshold", threshold},
    {"hardshrink", hardshrink},
    {"softshrink", softshrink},
    {"tanhshrink", tanhshrink},
    {"logit", logit},
};

}  // namespace

ExprId log1p_exp_negative_abs(Context c, ExprId x) {
  auto& k = c.build;
  return k.op(ScalarOp::kLog1p, {k.op(ScalarOp::kExp, {k.op(ScalarOp::kNeg, {k.op(ScalarOp::kAbs, {x})})})});
}

ScalarLowering find_activation(std::string_view base_name) {
  const auto found = kActivations.find(base_name);
  return found == kActivations.end() ? nullptr : found->second;
}

std::vector<std::string_view> names_of_activations() {
  std::vector<std::string_view> names;
  for (const auto& [name, lowering] : kActivations) names.push_back(name);
  return names;
}

}  // namespace kw::plan
