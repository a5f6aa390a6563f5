#include "plan/scalar_ops.hpp"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "plan/op_table.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using Context = const ScalarContext&;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int category_of(DType dtype) { return dtype == DType::b1 ? 0 : is_integral(dtype) ? 1 : 2; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category_of(a) != category_of(b)) return category_of(a) > category_of(b) ? a : b;
  if (category_of(a) == 2) {
    if (size_of(a) == size_of(b)) return DType::f32;  // f16 with bf16
    return size_of(a) > size_of(b) ? a : b;
  }
  if (size_of(a) == size_of(b)) return DType::i16;  // u8 with i8
  return size_of(a) > size_of(b) ? a : b;
}

// --- Shapes of rows in the table ---

template <ScalarOp code>
ExprId unary(Context c) {
  return c.build.op(code, {c.self()});
}

template <ScalarOp code>
ExprId binary(Context c) {
  return c.build.op(code, {c.self(), c.argument("other", c.result)});
}

template <ScalarOp code>
ExprId integer_keeps(Context c) {
  return is_floating(c.result) ? c.build.op(code, {c.self()}) : c.self();
}

template <ScalarOp code>
ExprId comparison(Context c) {
  const DType dtype = compute_dtype(promoted_dtype(c.graph, c.node, {"self", "other"}));
  return c.build.op(code, {c.argument("self", dtype), c.argument("other", dtype)});
}

template <ScalarOp code>
ExprId logical(Context c) {
  return c.build.op(code, {c.argument("self", DType::b1), c.argument("other", DType::b1)});
}

template <ScalarOp bits, ScalarOp truth>
ExprId bitwise(Context c) {
  const ScalarOp code = c.result == DType::b1 ? truth : bits;
  return c.build.op(code, {c.self(), c.argument("other", c.result)});
}

DType operand_dtype(Context c, std::string_view name) { return compute_dtype(c.graph.type(c.node.value(name)).dtype); }

// --- Arithmetic ---

ExprId add(Context c) {
  const ExprId other = c.argument("other", c.result);
  if (c.result == DType::b1) return c.build.op(ScalarOp::kLogicalOr, {c.self(), other});
  return c.build.add(c.self(), c.build.mul(other, c.argument_or("alpha", 1.0, c.result)));
}

ExprId sub(Context c) {
  return c.build.sub(c.self(), c.build.mul(c.argument("other", c.result), c.argument_or("alpha", 1.0, c.result)));
}

ExprId rsub(Context c) {
  return c.build.sub(c.argument("other", c.result), c.build.mul(c.self(), c.argument_or("alpha", 1.0, c.result)));
}

ExprId mul(Context c) {
  const ExprId other = c.argument("other", c.result);
  return c.result == DType::b1 ? c.build.op(ScalarOp::kLogicalAnd, {c.self(), other}) : c.build.mul(c.self(), other);
}

// floor(a / b) as PyTorch has it: exact for representable quotients (1 // 0.1 is 9), a / b where b is 0.
ExprId floor_quotient(Context c, ExprId a, ExprId b) {
  auto& k = c.build;
  if (!is_floating(c.result)) return k.op(ScalarOp::kFloorDiv, {a, b});
  const ExprId zero = c.number(0.0);
  const ExprId rest = k.op(ScalarOp::kFmod, {a, b});
  const ExprId exact = k.div(k.sub(a, rest), b);
  const ExprId signs_differ = k.op(ScalarOp::kLogicalXor,
                                   {k.op(ScalarOp::kLess, {b, zero}), k.op(ScalarOp::kLess, {rest, zero})});
  const ExprId inexact = k.op(ScalarOp::kLogicalAnd, {k.op(ScalarOp::kNotEqual, {rest, zero}), signs_differ});
  const ExprId quotient = k.select(inexact, k.sub(exact, c.number(1.0)), exact);
  const ExprId floor = k.op(ScalarOp::kFloor, {quotient});
  const ExprId rounded_down = k.op(ScalarOp::kGreater, {k.sub(quotient, floor), c.number(0.5)});
  const ExprId result = k.select(rounded_down, k.add(floor, c.number(1.0)), floor);
  return k.select(k.op(ScalarOp::kEqual, {b, zero}), k.div(a, b), result);
}

ExprId div(Context c) {
  const ExprId a = c.self(), b = c.argument("other", c.result);
  const std::string mode = c.node.text("rounding_mode");
  if (mode == "floor") return floor_quotient(c, a, b);
  if (mode == "trunc")
    return is_floating(c.result) ? c.build.op(ScalarOp::kTrunc, {c.build.div(a, b)})
                                 : c.build.op(ScalarOp::kTruncDiv, {a, b});
  return c.build.div(a, b);
}

ExprId floor_divide(Context c) { return floor_quotient(c, c.self(), c.argument("other", c.result)); }

ExprId whole_power(Context c, ExprId base, int exponent) {
  if (exponent == 0) return c.number(1.0);
  const ExprId half = whole_power(c, base, exponent / 2);
  const ExprId even = exponent / 2 == 0 ? base : c.build.mul(half, half);
  return exponent % 2 == 0 || exponent == 1 ? even : c.build.mul(even, base);
}

ExprId pow(Context c) {
  auto& k = c.build;
  const bool constant_exponent = c.node.value("exponent") == kNoValue;
  const double exponent = c.node.number("exponent", 0.0);
  const ExprId base = c.argument("self", c.result);
  if (constant_exponent) {
    if (exponent == std::floor(exponent) && exponent >= 0 && exponent <= 8)
      return whole_power(c, base, static_cast<int>(exponent));
    if (exponent == 0.5) return k.op(ScalarOp::kSqrt, {base});
    if (exponent == -0.5) return k.op(ScalarOp::kRsqrt, {base});
    if (exponent == -1.0 || exponent == -2.0)
      return k.div(c.number(1.0), whole_power(c, base, static_cast<int>(-exponent)));
  }
  const ExprId power = c.argument("exponent", c.result);
  if (k.is_constant(base, 2.0)) return k.op(ScalarOp::kExp2, {power});
  return k.op(ScalarOp::kPow, {base, power});
}

ExprId square(Context c) {
  const ExprId x = c.self();
  return c.build.mul(x, x);
}
// Large and small numbers are scaled by a power of two, so that their squares neither overflow nor vanish.
ExprId hypot(Context c) {
  auto& k = c.build;
  const ExprId x = k.op(ScalarOp::kAbs, {c.self()}), y = k.op(ScalarOp::kAbs, {c.argument("other", c.result)});
  const bool wide = c.result == DType::f64;
  const double large = wide ? 0x1p500 : 0x1p60, shrink = wide ? 0x1p-600 : 0x1p-70, grow = wide ? 0x1p700 : 0x1p100;
  const ExprId larger = k.op(ScalarOp::kMaximum, {x, y});
  const ExprId is_large = k.op(ScalarOp::kGreater, {larger, c.number(large)});
  const ExprId is_small = k.op(ScalarOp::kLess, {larger, c.number(1 / large)});
  const auto by_size = [&](double for_large, double for_small) {
    return k.select(is_large, c.number(for_large), k.select(is_small, c.number(for_small), c.number(1.0)));
  };
  const ExprId factor = by_size(shrink, grow), a = k.mul(x, factor), b = k.mul(y, factor);
  const ExprId length = k.mul(k.op(ScalarOp::kSqrt, {k.add(k.mul(a, a), k.mul(b, b))}), by_size(1 / shrink, 1 / grow));
  const ExprId infinite = k.op(ScalarOp::kLogicalOr, {k.op(ScalarOp::kIsInf, {x}), k.op(ScalarOp::kIsInf, {y})});
  return k.select(infinite, c.number(kInfinity), length);
}

// --- Bounds ---

ExprId clamp(Context c) {
  ExprId x = c.self();
  if (c.has("min")) x = c.build.op(ScalarOp::kMaximum, {x, c.argument("min", c.result)});
  if (c.has("max")) x = c.build.op(ScalarOp::kMinimum, {x, c.argument("max", c.result)});
  return x;
}

// --- Choices, copies, several operands ---

ExprId where(Context c) {
  return c.build.select(c.argument("condition", DType::b1), c.self(), c.argument("other", c.result));
}
ExprId masked_fill(Context c) {
  return c.build.select(c.argument("mask", DType::b1), c.argument("value", c.result), c.self());
}
ExprId identity(Context c) { return c.has("input") ? c.argument("input", c.result) : c.self(); }
ExprId copy(Context c) { return c.argument("src", c.result); }
ExprId fill(Context c) { return c.argument("value", c.result); }

ExprId lerp(Context c) {
  auto& k = c.build;
  const ExprId start = c.self(), end = c.argument("end", c.result), weight = c.argument("weight", c.result);
  const ExprId span = k.sub(end, start);
  const ExprId near_start = k.add(start, k.mul(weight, span)),
               near_end = k.sub(end, k.mul(span, k.sub(c.number(1.0), weight)));
  return k.select(k.op(ScalarOp::kLess, {k.op(ScalarOp::kAbs, {weight}), c.number(0.5)}), near_start, near_end);
}

ExprId addcmul(Context c) {
  auto& k = c.build;
  return k.add(c.self(), k.mul(k.mul(c.argument("tensor1", c.result), c.argument_or("value", 1.0, c.result)),
                               c.argument("tensor2", c.result)));
}
ExprId addcdiv(Context c) {
  auto& k = c.build;
  return k.add(c.self(), k.mul(k.div(c.argument("tensor1", c.result), c.argument("tensor2", c.result)),
                               c.argument_or("value", 1.0, c.result)));
}

// 0·log(y) is 0, except that NaN in y stays.
ExprId x_log_y(Context c, ExprId x, ExprId y) {
  auto& k = c.build;
  const ExprId zero = c.number(0.0);
  const ExprId product = k.mul(x, k.op(ScalarOp::kLog, {y}));
  return k.select(k.op(ScalarOp::kIsNan, {y}), y, k.select(k.op(ScalarOp::kEqual, {x, zero}), zero, product));
}
ExprId xlogy(Context c) { return x_log_y(c, c.self(), c.argument("other", c.result)); }

ExprId is_nan(Context c) {
  const DType t = operand_dtype(c, "self");
  return is_floating(t) ? c.build.op(ScalarOp::kIsNan, {c.argument("self", t)}) : c.build.constant(DType::b1, 0);
}
ExprId is_inf(Context c) {
  const DType t = operand_dtype(c, "self");
  return is_floating(t) ? c.build.op(ScalarOp::kIsInf, {c.argument("self", t)}) : c.build.constant(DType::b1, 0);
}
ExprId is_finite(Context c) {
  return c.build.op(ScalarOp::kLogicalNot, {c.build.op(ScalarOp::kLogicalOr, {is_nan(c), is_inf(c)})});
}
ExprId logical_not(Context c) { return c.build.op(ScalarOp::kLogicalNot, {c.argument("self", DType::b1)}); }
ExprId bitwise_not(Context c) {
  return c.build.op(c.result == DType::b1 ? ScalarOp::kLogicalNot : ScalarOp::kBitNot, {c.self()});
}
ExprId frac(Context c) {
  const ExprId x = c.self();
  return c.build.sub(x, c.build.op(ScalarOp::kTrunc, {x}));
}
ExprId degrees(Context c) { return c.build.mul(c.self(), c.number(180.0 / M_PI)); }
ExprId radians(Context c) { return c.build.mul(c.self(), c.number(M_PI / 180.0)); }
ExprId absolute(Context c) { return c.result == DType::b1 ? c.self() : c.build.op(ScalarOp::kAbs, {c.self()}); }

double largest_of(DType dtype) {
  if (dtype == DType::f16) return 65504.0;
  if (dtype == DType::bf16) return 3.3895313892515355e38;
  return dtype == DType::f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}

ExprId nan_to_num(Context c) {
  auto& k = c.build;
  if (!is_floating(c.result)) return c.self();
  const double limit = largest_of(c.graph.type(c.node.results[0]).dtype);
  const ExprId x = c.self();
  const ExprId upper = k.select(k.op(ScalarOp::kEqual, {x, c.number(kInfinity)}),
                                c.argument_or("posinf", limit, c.result), x);
  const ExprId lower = k.select(k.op(ScalarOp::kEqual, {x, c.number(-kInfinity)}),
                                c.argument_or("neginf", -limit, c.result), upper);
  return k.select(k.op(ScalarOp::kIsNan, {x}), c.argument_or("nan", 0.0, c.result), lower);
}

template <ScalarOp keep>  // columns at `keep` of row + diagonal stay
ExprId triangle(Context c) {
  auto& k = c.build;
  const size_t rank = c.coords.size();
  const ExprId column = k.index(c.coords[rank - 1], DType::i64);
  const ExprId limit = k.add(k.index(c.coords[rank - 2], DType::i64),
                             k.constant(DType::i64, c.node.integer("diagonal", 0)));
  return k.select(k.op(keep, {column, limit}), c.self(), c.number(0.0));
}

// --- Normalisation with given statistics, losses ---

ExprId normalise_with_statistics(Context c) {
  auto& k = c.build;
  const ExprId deviation = k.sub(c.argument("input", c.result), c.argument("running_mean", c.result));
  const ExprId inverse = k.op(ScalarOp::kRsqrt,
                              {k.add(c.argument("running_var", c.result), c.number(c.node.number("eps", 1e-5)))});
  // The channel's factor first: where it is below one, no product on the way overflows that would not in PyTorch's
  // kernels.
  ExprId value = k.mul(deviation, c.has("weight") ? k.mul(inverse, c.argument("weight", c.result)) : inverse);
  if (c.has("bias")) value = k.add(value, c.argument("bias", c.result));
  return value;
}

ExprId huber_element(Context c, ExprId distance, double bound, bool scaled) {
  auto& k = c.build;
  ExprId inside = k.mul(k.mul(distance, distance), c.number(scaled ? 0.5 / bound : 0.5));
  ExprId outside = k.sub(distance, c.number(0.5 * bound));
  if (!scaled) outside = k.mul(outside, c.number(bound));
  return k.select(k.op(scaled ? ScalarOp::kLess : ScalarOp::kLessEqual, {distance, c.number(bound)}), inside, outside);
}

ExprId kl_div_element(Context c, ExprId input, ExprId target) {
  auto& k = c.build;
  if (c.node.boolean("log_target", false)) return k.mul(k.op(ScalarOp::kExp, {target}), k.sub(target, input));
  return k.sub(x_log_y(c, target, target), k.mul(target, input));
}

ExprId binary_cross_entropy_element(Context c, ExprId input, ExprId target) {
  auto& k = c.build;
  auto bounded = [&](ExprId logarithm) { return k.op(ScalarOp::kMaximum, {logarithm, c.number(-100.0)}); };
  const ExprId no = bounded(k.op(ScalarOp::kLog1p, {k.op(ScalarOp::kNeg, {input})})),
               yes = bounded(k.op(ScalarOp::kLog, {input}));
  return k.sub(k.mul(k.sub(target, c.number(1.0)), no), k.mul(target, yes));
}

const std::unordered_map<std::string_view, ScalarLowering> kTable = {
    {"add", add},
    {"sub", sub},
    {"subtract", sub},
    {"rsub", rsub},
    {"mul", mul},
    {"multiply", mul},
    {"div", div},
    {"divide", div},
    {"true_divide", div},
    {"floor_divide", floor_divide},
    {"remainder", binary<ScalarOp::kRemainder>},
    {"fmod", binary<ScalarOp::kFmod>},
    {"pow", pow},
    {"square", square},
    {"hypot", hypot},
    {"neg", unary<ScalarOp::kNeg>},
    {"negative", unary<ScalarOp::kNeg>},
    {"abs", absolute},
    {"absolute", absolute},
    {"sign", unary<ScalarOp::kSign>},
    {"sgn", unary<ScalarOp::kSign>},
    {"reciprocal", unary<ScalarOp::kReciprocal>},
    {"sqrt", unary<ScalarOp::kSqrt>},
    {"rsqrt", unary<ScalarOp::kRsqrt>},
    {"exp", unary<ScalarOp::kExp>},
    {"exp2", unary<ScalarOp::kExp2>},
    {"expm1", unary<ScalarOp::kExpm1>},
    {"log", unary<ScalarOp::kLog>},
    {"log2", unary<ScalarOp::kLog2>},
    {"log10", unary<ScalarOp::kLog10>},
    {"log1p", unary<ScalarOp::kLog1p>},
    {"sin", unary<ScalarOp::kSin>},
    {"cos", unary<ScalarOp::kCos>},
    {"tan", unary<ScalarOp::kTan>},
    {"asin", unary<ScalarOp::kAsin>},
    {"acos", unary<ScalarOp::kAcos>},
    {"atan", unary<ScalarOp::kAtan>},
    {"atan2", binary<ScalarOp::kAtan2>},
    {"sinh", unary<ScalarOp::kSinh>},
    {"cosh", unary<ScalarOp::kCosh>},
    {"tanh", unary<ScalarOp::kTanh>},
    {"asinh", unary<ScalarOp::kAsinh>},
    {"acosh", unary<ScalarOp::kAcosh>},
    {"atanh", unary<ScalarOp::kAtanh>},
    {"erf", unary<ScalarOp::kErf>},
    {"erfc", unary<ScalarOp::kErfc>},
    {"sigmoid", unary<ScalarOp::kSigmoid>},
    {"clamp", clamp},
    {"clip", clamp},
    {"clamp_min", clamp},
    {"clamp_max", clamp},
    {"maximum", binary<ScalarOp::kMaximum>},
    {"minimum", binary<ScalarOp::kMinimum>},
    {"max", binary<ScalarOp::kMaximum>},
    {"min", binary<ScalarOp::kMinimum>},
    {"fmax", binary<ScalarOp::kFmax>},
    {"fmin", binary<ScalarOp::kFmin>},
    {"where", where},
    {"masked_fill", masked_fill},
    {"lerp", lerp},
    {"addcmul", addcmul},
    {"addcdiv", addcdiv},
    {"xlogy", xlogy},
    {"eq", comparison<ScalarOp::kEqual>},
    {"ne", comparison<ScalarOp::kNotEqual>},
    {"lt", comparison<ScalarOp::kLess>},
    {"le", comparison<ScalarOp::kLessEqual>},
    {"gt", comparison<ScalarOp::kGreater>},
    {"ge", comparison<ScalarOp::kGreaterEqual>},
    {"isnan", is_nan},
    {"isinf", is_inf},
    {"isfinite", is_finite},
    {"logical_and", logical<ScalarOp::kLogicalAnd>},
    {"logical_or", logical<ScalarOp::kLogicalOr>},
    {"logical_xor", logical<ScalarOp::kLogicalXor>},
    {"logical_not", logical_not},
    {"bitwise_and", bitwise<ScalarOp::kBitAnd, ScalarOp::kLogicalAnd>},
    {"__and__", bitwise<ScalarOp::kBitAnd, ScalarOp::kLogicalAnd>},
    {"bitwise_or", bitwise<ScalarOp::kBitOr, ScalarOp::kLogicalOr>},
    {"__or__", bitwise<ScalarOp::kBitOr, ScalarOp::kLogicalOr>},
    {"bitwise_xor", bitwise<ScalarOp::kBitXor, ScalarOp::kLogicalXor>},
    {"__xor__", bitwise<ScalarOp::kBitXor, ScalarOp::kLogicalXor>},
    {"bitwise_not", bitwise_not},
    {"bitwise_left_shift", binary<ScalarOp::kShiftLeft>},
    {"bitwise_right_shift", binary<ScalarOp::kShiftRight>},
    {"nan_to_num", nan_to_num},
    {"floor", integer_keeps<ScalarOp::kFloor>},
    {"ceil", integer_keeps<ScalarOp::kCeil>},
    {"trunc", integer_keeps<ScalarOp::kTrunc>},
    {"round", integer_keeps<ScalarOp::kRound>},
    {"frac", frac},
    {"deg2rad", radians},
    {"rad2deg", degrees},
    {"_to_copy", identity},
    {"to", identity},
    {"type_as", identity},
    {"clone", identity},
    {"lift_fresh_copy", identity},
    {"dropout", identity},
    {"contiguous", identity},
    {"copy", copy},
    {"fill", fill},
    {"tril", triangle<ScalarOp::kLessEqual>},
    {"triu", triangle<ScalarOp::kGreaterEqual>},
    {"batch_norm", normalise_with_statistics},
    {"instance_norm", normalise_with_statistics},
    {"_native_batch_norm_legit_no_training", normalise_with_statistics},
    {"mse_loss", loss_element},
    {"l1_loss", loss_element},
    {"smooth_l1_loss", loss_element},
    {"huber_loss", loss_element},
    {"kl_div", loss_element},
    {"binary_cross_entropy", loss_element},
    {"binary_cross_entropy_with_logits", loss_element},
    {"soft_margin_loss", loss_element},
    {"alias_copy", identity},
    {"detach_copy", identity},
};

}  // namespace

bool ScalarContext::has(std::string_view name) const {
  const Argument* argument = node.find(name);
  return argument && !std::holds_alternative<None>(*argument);
}

ExprId ScalarContext::argument(std::string_view name, DType dtype) const {
  if (const ValueId value = node.value(name); value != kNoValue) return build.cast(dtype, operands.at(value));
  const Argument* found = node.find(name);
  KW_ASSERT(found, node.op + " lacks its argument " + std::string(name));
  if (const auto* whole = std::get_if<int64_t>(found)) return build.constant(dtype, *whole);
  return build.constant(dtype, node.number(name, 0.0));
}

ExprId ScalarContext::argument_or(std::string_view name, double fallback, DType dtype) const {
  return has(name) ? argument(name, dtype) : build.constant(dtype, fallback);
}

DType promoted_dtype(const Graph& graph, const Node& node, std::initializer_list<std::string_view> arguments) {
  std::optional<DType> tensors, scalars, numbers;
  auto join = [](std::optional<DType>& into, DType dtype) { into = into ? promote(*into, dtype) : dtype; };
  for (std::string_view name : arguments) {
    const Argument* argument = node.find(name);
    if (!argument) continue;
    if (const ValueId value = node.value(name); value != kNoValue) {
      const TensorType& type = graph.type(value);
      join(type.rank() > 0 ? tensors : scalars, type.dtype);
    } else if (std::holds_alternative<double>(*argument)) {
      join(numbers, DType::f32);
    } else if (std::holds_alternative<int64_t>(*argument)) {
      join(numbers, DType::i64);
    } else if (std::holds_alternative<bool>(*argument)) {
      join(numbers, DType::b1);
    }
  }
  std::optional<DType> result = tensors;
  for (const auto& weaker : {scalars, numbers})  // decides only when of a higher category
    if (weaker && (!result || category_of(*weaker) > category_of(*result))) result = weaker;
  return result.value_or(DType::f32);
}

ScalarLowering find_scalar_lowering(std::string_view base) {
  const auto found = kTable.find(base);
  return found == kTable.end() ? find_activation(base) : found->second;
}

std::vector<std::string_view> names_of_scalar_lowerings() {
  std::vector<std::string_view> names = names_of_activations();
  for (const auto& [name, lowering] : kTable) names.push_back(name);
  return names;
}

ExprId loss_element(const ScalarContext& c) {
  auto& k = c.build;
  const std::string_view base = base_name(c.node);
  const ExprId input = c.self(), target = c.argument("target", c.result);
  if (base == "kl_div") return kl_div_element(c, input, target);
  if (base == "binary_cross_entropy") return binary_cross_entropy_element(c, input, target);
  if (base == "binary_cross_entropy_with_logits")
    return k.add(k.sub(k.op(ScalarOp::kMaximum, {input, c.number(0.0)}), k.mul(input, target)),
                 log1p_exp_negative_abs(c, input));
  if (base == "soft_margin_loss")
    return k.op(ScalarOp::kLog1p, {k.op(ScalarOp::kExp, {k.op(ScalarOp::kNeg, {k.mul(target, input)})})});
  const ExprId difference = k.sub(input, target);
  if (base == "mse_loss") return k.mul(difference, difference);
  const ExprId distance = k.op(ScalarOp::kAbs, {difference});
  if (base == "l1_loss") return distance;
  const double bound = base == "huber_loss" ? c.node.number("delta", 1.0) : c.node.number("beta", 1.0);
  if (base == "smooth_l1_loss" && bound == 0.0) return distance;
  return huber_element(c, distance, bound, base == "smooth_l1_loss");
}

}  // namespace kw::plan
