#include "ir/op_rows.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>

namespace kw {
namespace {

using enum OpClass;
using enum Lowering;
using enum OpRule;

// The channel's factor comes first: where it is below one, no product on the way overflows that would not in PyTorch's
// kernels.
constexpr std::string_view kNormalise =
    "inverse = rsqrt(running_var + eps|1e-5); factor = select(given(weight), inverse * weight, inverse); "
    "value = (input - running_mean) * factor; select(given(bias), value + bias, value)";

constexpr unsigned kShare = kNeverNegative | kAtMostOne;
constexpr unsigned kInTraining = kImpure | kRandomInTraining;
constexpr unsigned kDropout = kInTraining | kMayAlias;

// What is more than its family: name, class, flops per element, lowering, arithmetic weight, rule, formula, flags,
// synonyms, spoken name, name of what it yields. "max.dim" is the row of one overload, "add" of every overload of add
// that has no row of its own.
constexpr OpInfo kPlanned[] = {
    // Pointwise
    {"add", kPointwise, 1, kElements, 1, kPromote, "self + other * alpha|1"},
    {"sub", kPointwise, 1, kElements, 1, kPromote, "self - other * alpha|1", 0, "subtract"},
    {"mul", kPointwise, 1, kElements, 1, kPromote, "self * other", 0, "multiply"},
    {"div", kPointwise, 1, kElements, 2, kQuotient,
     "select(is(rounding_mode, floor), floor_divide(self, other), "
     "select(is(rounding_mode, trunc), select(floating, trunc(self / other), trunc_div(self, other)), self / other))",
     0, "divide true_divide"},
    {"rsub", kPointwise, 1, kElements, 1, kPromote, "other - self * alpha|1"},
    {"neg", kPointwise, 1, kElements, 1, kFirst, "-self", 0, "negative"},
    {"abs", kPointwise, 1, kElements, 1, kMagnitude, "abs(self)", 0, "absolute"},
    {"reciprocal", kPointwise, 1, kElements, 2, kFloating, "reciprocal(self)"},
    {"square", kPointwise, 1, kElements, 1, kSquare, "self * self"},
    {"sign", kPointwise, 1, kElements, 1, kFirst, "sign(self)", kWhole},
    {"sgn", kPointwise, 1, kElements, 1, kFirst, "sign(self)", kWhole},
    {"floor_divide", kPointwise, 1, kElements, 4, kPromote,
     "rest = fmod(self, other); exact = (self - rest) / other; "
     "quotient = select(rest != 0 and (other < 0 xor rest < 0), exact - 1, exact); whole = floor(quotient); "
     "result = select(quotient - whole > 0.5, whole + 1, whole); "
     "select(floating, select(other == 0, self / other, result), floor_div(self, other))"},
    {"fmod", kPointwise, 1, kElements, 4, kPromote, "fmod(self, other)"},
    {"remainder", kPointwise, 1, kElements, 4, kPromote, "remainder(self, other)"},
    {"addcmul", kPointwise, 1, kElements, 2, kPromote, "self + tensor1 * value|1 * tensor2"},
    {"addcdiv", kPointwise, 1, kElements, 3, kFloating, "self + tensor1 / tensor2 * value|1"},
    {"lerp", kPointwise, 1, kElements, 2, kFirst,
     "span = end - self; select(abs(weight) < 0.5, self + weight * span, end - span * (1 - weight))"},
    {"maximum", kPointwise, 1, kElements, 1, kPromote, "maximum(self, other)"},
    {"minimum", kPointwise, 1, kElements, 1, kPromote, "minimum(self, other)"},
    {"fmax", kPointwise, 1, kElements, 1, kPromote, "fmax(self, other)"},
    {"fmin", kPointwise, 1, kElements, 1, kPromote, "fmin(self, other)"},
    {"max.other", kPointwise, 1, kElements, 4, kPromote, "maximum(self, other)"},
    {"min.other", kPointwise, 1, kElements, 4, kPromote, "minimum(self, other)"},
    {"clamp", kPointwise, 1, kElements, 1, kPromote,
     "low = select(given(min), maximum(self, min), self); select(given(max), minimum(low, max), low)", 0, "clip", "",
     "clamped"},
    {"clamp_min", kPointwise, 1, kElements, 1, kPromote, "maximum(self, min)"},
    {"clamp_max", kPointwise, 1, kElements, 1, kPromote, "minimum(self, max)"},
    {"relu", kPointwise, 1, kElements, 1, kFirst, "maximum(self, 0)", 0, "", "", "rectified"},
    {"relu6", kPointwise, 1, kElements, 1, kFirst, "minimum(maximum(self, 0), 6)"},
    {"hardtanh", kPointwise, 1, kElements, 1, kFirst, "minimum(maximum(self, min_val|-1), max_val|1)", 0, "", "",
     "clamped"},
    {"leaky_relu", kPointwise, 1, kElements, 1, kFirst, "select(self > 0, self, self * negative_slope|0.01)", 0, "", "",
     "activated"},
    {"_prelu_kernel", kPointwise, 1, kElements, 1, kPerChannel, "select(self > 0, self, self * weight)", 0, "",
     "prelu"},
    {"prelu", kPointwise, 1, kElements, 1, kPerChannel, "select(self > 0, self, self * weight)"},
    {"threshold", kPointwise, 1, kElements, 1, kFirst, "select(self <= threshold, value, self)"},
    {"hardsigmoid", kPointwise, 1, kElements, 2, kFirst, "minimum(maximum(self + 3, 0), 6) / 6", 0, "", "", "gate"},
    {"hardswish", kPointwise, 1, kElements, 3, kFirst, "self * minimum(maximum(self + 3, 0), 6) / 6", 0, "", "",
     "activated"},
    {"hardshrink", kPointwise, 1, kElements, 1, kFirst, "select(self >= -lambd|0.5 and self <= lambd|0.5, 0, self)"},
    {"softshrink", kPointwise, 1, kElements, 1, kFirst,
     "bound = lambd|0.5; select(self > bound, self - bound, select(self < -bound, self + bound, self * 0))"},
    {"floor", kPointwise, 1, kElements, 1, kFirst, "floor(self)", kWhole},
    {"ceil", kPointwise, 1, kElements, 1, kFirst, "ceil(self)", kWhole},
    {"round", kPointwise, 1, kElements, 1, kRound, "round(self)", kWhole},
    {"trunc", kPointwise, 1, kElements, 1, kFirst, "trunc(self)", kWhole, "fix"},
    {"frac", kPointwise, 1, kElements, 2, kFirst, "self - trunc(self)"},
    {"nan_to_num", kPointwise, 1, kElements, 2, kFirst,
     "limited = select(self == -inf, neginf|-largest, select(self == inf, posinf|largest, self)); "
     "select(floating, select(is_nan(self), nan|0, limited), self)"},
    {"deg2rad", kPointwise, 1, kElements, 1, kFloating, "self * 0.017453292519943295"},
    {"rad2deg", kPointwise, 1, kElements, 1, kFloating, "self * 57.29577951308232"},
    {"eq", kPointwise, 1, kElements, 1, kCompare, "self == other"},
    {"ne", kPointwise, 1, kElements, 1, kCompare, "self != other", 0, "not_equal"},
    {"lt", kPointwise, 1, kElements, 1, kCompare, "self < other", 0, "less"},
    {"le", kPointwise, 1, kElements, 1, kCompare, "self <= other", 0, "less_equal"},
    {"gt", kPointwise, 1, kElements, 1, kCompare, "self > other", 0, "greater"},
    {"ge", kPointwise, 1, kElements, 1, kCompare, "self >= other", 0, "greater_equal"},
    {"isnan", kPointwise, 1, kElements, 1, kCompare, "is_nan(self)"},
    {"isinf", kPointwise, 1, kElements, 1, kCompare, "is_inf(self)"},
    {"isfinite", kPointwise, 1, kElements, 1, kCompare, "not (is_nan(self) or is_inf(self))"},
    {"logical_and", kPointwise, 1, kElements, 1, kLogical, "self and other"},
    {"logical_or", kPointwise, 1, kElements, 1, kLogical, "self or other"},
    {"logical_xor", kPointwise, 1, kElements, 1, kLogical, "self xor other"},
    {"logical_not", kPointwise, 1, kElements, 1, kLogical, "not self"},
    {"bitwise_and", kPointwise, 1, kElements, 1, kPromote, "bit_and(self, other)", 0, "__and__"},
    {"bitwise_or", kPointwise, 1, kElements, 1, kPromote, "bit_or(self, other)", 0, "__or__"},
    {"bitwise_xor", kPointwise, 1, kElements, 1, kPromote, "bit_xor(self, other)", 0, "__xor__"},
    {"bitwise_not", kPointwise, 1, kElements, 1, kFirst, "bit_not(self)"},
    {"bitwise_left_shift", kPointwise, 1, kElements, 1, kPromote, "shift_left(self, other)", 0, "__lshift__"},
    {"bitwise_right_shift", kPointwise, 1, kElements, 1, kPromote, "shift_right(self, other)", 0, "__rshift__"},
    {"where", kPointwise, 1, kElements, 1, kPromote, "select(condition, self, other)"},
    {"where.default", kPointwise, 1, kLibrary, 4},
    {"masked_fill", kPointwise, 1, kElements, 1, kFirst, "select(mask, value, self)"},
    {"fill", kPointwise, 1, kElements, 0, kKeep, "value"},
    {"clone", kPointwise, 0, kElements, 0, kFirst, "self", kFloat8 | kSilent},
    {"alias_copy", kPointwise, 0, kElements, 0, kFirst, "self"},
    {"detach_copy", kPointwise, 0, kElements, 0, kFirst, "self"},
    {"_to_copy", kPointwise, 0, kElements, 1, kCast, "self", kFloat8 | kSilent, "", "converted"},
    {"to", kPointwise, 0, kElements, 1, kCast, "self", kFloat8 | kMayAlias | kSilent},
    {"type_as", kPointwise, 0, kElements, 1, kCast, "self", kFloat8 | kMayAlias},
    {"contiguous", kPointwise, 0, kAlias, 4, kSame, "", kFloat8 | kMayAlias},
    {"copy", kPointwise, 0, kElements, 0, kKeep, "src", kFloat8},
    {"lift_fresh_copy", kPointwise, 0, kElements, 0, kFirst, "self", kFloat8 | kSilent},
    {"exp", kPointwise, 10, kElements, 4, kFloating, "exp(self)", kNeverNegative},
    {"exp2", kPointwise, 10, kElements, 4, kFloating, "exp2(self)", kNeverNegative, "special_exp2"},
    {"expm1", kPointwise, 10, kElements, 6, kFloating, "expm1(self)", 0, "special_expm1"},
    {"log", kPointwise, 10, kElements, 5, kFloating, "log(self)"},
    {"log2", kPointwise, 10, kElements, 5, kFloating, "log2(self)"},
    {"log10", kPointwise, 10, kElements, 5, kFloating, "log10(self)"},
    {"log1p", kPointwise, 10, kElements, 6, kFloating, "log1p(self)", 0, "special_log1p"},
    {"sqrt", kPointwise, 10, kElements, 3, kFloating, "sqrt(self)"},
    {"rsqrt", kPointwise, 10, kElements, 3, kFloating, "rsqrt(self)"},
    {"sin", kPointwise, 10, kElements, 20, kFloating, "sin(self)"},
    {"cos", kPointwise, 10, kElements, 20, kFloating, "cos(self)"},
    {"tan", kPointwise, 10, kElements, 24, kFloating, "tan(self)"},
    {"asin", kPointwise, 10, kElements, 8, kFloating, "asin(self)", 0, "arcsin"},
    {"acos", kPointwise, 10, kElements, 8, kFloating, "acos(self)", 0, "arccos"},
    {"atan", kPointwise, 10, kElements, 8, kFloating, "atan(self)", 0, "arctan"},
    {"atan2", kPointwise, 10, kElements, 10, kFloating, "atan2(self, other)", 0, "arctan2"},
    {"sinh", kPointwise, 10, kElements, 8, kFloating, "sinh(self)"},
    {"cosh", kPointwise, 10, kElements, 8, kFloating, "cosh(self)"},
    {"tanh", kPointwise, 10, kElements, 6, kFloating, "tanh(self)"},
    {"asinh", kPointwise, 10, kElements, 10, kFloating, "asinh(self)", 0, "arcsinh"},
    {"acosh", kPointwise, 10, kElements, 10, kFloating, "acosh(self)", 0, "arccosh"},
    {"atanh", kPointwise, 10, kElements, 10, kFloating, "atanh(self)", 0, "arctanh"},
    {"erf", kPointwise, 10, kElements, 8, kFloating, "erf(self)", 0, "special_erf"},
    {"erfc", kPointwise, 10, kElements, 8, kFloating, "erfc(self)", 0, "special_erfc"},
    {"erfinv", kPointwise, 10, kLibrary, 4, kFloating, "", 0, "special_erfinv"},
    {"sigmoid", kPointwise, 10, kElements, 5, kFloating, "sigmoid(self)", kShare, "special_expit", "", "gate"},
    {"pow", kPointwise, 10, kElements, 6, kPower, "pow(self, exponent)"},
    {"hypot", kPointwise, 10, kElements, 4, kPromote,
     "x = abs(self); y = abs(other); longer = maximum(x, y); limit = select(double, 0x1p500, 0x1p60); "
     "large = longer > limit; small = longer < 1 / limit; "
     "shrink = select(double, 0x1p-600, 0x1p-70); grow = select(double, 0x1p700, 0x1p100); "
     "factor = select(large, shrink, select(small, grow, 1)); a = x * factor; b = y * factor; "
     "length = sqrt(a * a + b * b) * select(large, 1 / shrink, select(small, 1 / grow, 1)); "
     "select(is_inf(x) or is_inf(y), inf, length)"},
    {"logit", kPointwise, 10, kElements, 8, kFloating,
     "x = select(given(eps), minimum(maximum(self, eps), 1 - eps), self); log(x / (1 - x))"},
    {"log_sigmoid", kPointwise, 10, kElements, 10, kFirst, "minimum(self, 0) - log1p(exp(-abs(self)))"},
    {"xlogy", kPointwise, 10, kElements, 6, kFloating,
     "select(is_nan(other), other, select(self == 0, 0, self * log(other)))"},
    {"softplus", kPointwise, 10, kElements, 10, kFirst,
     "scaled = self * beta|1; select(scaled > threshold|20, self, log1p(exp(scaled)) / beta|1)", 0, "", "",
     "activated"},
    {"gelu", kPointwise, 10, kElements, 10, kFirst,
     "half = self * 0.5; cubic = 0.044715 * (self * self * self); "
     "select(is(approximate, tanh), half * (1 + tanh(0.7978845608028654 * (self + cubic))), "
     "half * (1 + erf(self * 0.7071067811865476)))",
     0, "", "", "activated"},
    {"silu", kPointwise, 10, kElements, 6, kFirst, "self * sigmoid(self)", 0, "", "", "activated"},
    {"mish", kPointwise, 10, kElements, 14, kFirst,
     "e = exp(minimum(self, select(double, 40, 20))); n = e * (e + 2); self * (n / (n + 2))", 0, "", "", "activated"},
    {"selu", kPointwise, 10, kElements, 6, kFirst,
     "select(self > 0, self * 1.0507009873554805, expm1(self) * 1.7580993408473766)", 0, "", "", "activated"},
    {"elu", kPointwise, 10, kElements, 6, kFirst,
     "select(self > 0, self * scale|1, expm1(self * input_scale|1) * (alpha|1 * scale|1))", 0, "", "", "activated"},
    {"celu", kPointwise, 10, kElements, 6, kFirst, "select(self > 0, self, expm1(self * (1 / alpha|1)) * alpha|1)", 0,
     "", "", "activated"},
    // Reductions
    {"sum", kReduction, 1, kFold, 4, kSum},
    {"mean", kReduction, 1, kFold, 4, kMean},
    {"prod", kReduction, 1, kFold, 4, kProd},
    {"amax", kReduction, 1, kFold, 4, kMax},
    {"amin", kReduction, 1, kFold, 4, kMin},
    {"max.default", kReduction, 1, kFold, 4, kMax},
    {"min.default", kReduction, 1, kFold, 4, kMin},
    {"max.dim", kReduction, 1, kFold, 4, kMaxAt},
    {"min.dim", kReduction, 1, kFold, 4, kMinAt},
    {"argmax", kReduction, 1, kFold, 4, kArgMax},
    {"argmin", kReduction, 1, kFold, 4, kArgMin},
    {"aminmax", kReduction, 1, kFold, 4, kMinMax},
    {"any", kReduction, 1, kFold, 4, kAny},
    {"all", kReduction, 1, kFold, 4, kAll},
    {"std", kReduction, 1, kFold, 4, kStd, "", kNeverNegative},
    {"var", kReduction, 1, kFold, 4, kVar, "", kNeverNegative},
    {"std_mean", kReduction, 1, kFold, 4, kStdMean},
    {"var_mean", kReduction, 1, kFold, 4, kVarMean},
    {"norm", kReduction, 1, kFold, 4, kNorm, "", kNeverNegative},
    {"linalg_vector_norm", kReduction, 1, kFold, 4, kNorm, "", kNeverNegative, "", "norm"},
    {"frobenius_norm", kReduction, 1, kFold, 4, kNorm, "", kNeverNegative},
    {"logsumexp", kReduction, 1, kFold, 4, kLogSumExp, "", 0, "special_logsumexp"},
    {"count_nonzero", kReduction, 1, kFold, 4, kCountNonzero},
    // Normalisations
    {"softmax", kNormalisation, 8, kFold, 4, kSoftmax, "", kShare, "special_softmax", "", "share"},
    {"_softmax", kNormalisation, 8, kFold, 4, kSoftmax, "", kShare, "", "", "share"},
    {"log_softmax", kNormalisation, 8, kFold, 4, kLogSoftmax, "", 0, "special_log_softmax", "", "log_share"},
    {"_log_softmax", kNormalisation, 8, kFold, 4, kLogSoftmax},
    {"_safe_softmax", kNormalisation, 8, kFold, 4, kSafeSoftmax, "", kShare},
    {"layer_norm", kNormalisation, 8, kFold, 4, kLayerNorm, "", 0, "", "", "normalised"},
    {"native_layer_norm", kNormalisation, 8, kFold, 4, kLayerNorm, "", 0, "", "layer_norm", "normalised"},
    {"group_norm", kNormalisation, 8, kFold, 4, kGroupNorm, "", 0, "", "", "normalised"},
    {"native_group_norm", kNormalisation, 8, kFold, 4, kGroupNorm, "", 0, "", "group_norm"},
    {"batch_norm", kNormalisation, 8, kFoldOrElements, 4, kBatchNorm, kNormalise, 0, "", "", "normalised"},
    {"native_batch_norm", kNormalisation, 8, kFold, 4, kBatchNorm, "", 0, "", "batch_norm"},
    {"_native_batch_norm_legit", kNormalisation, 8, kFold, 4, kBatchNorm, "", 0, "", "batch_norm"},
    {"_native_batch_norm_legit_functional", kNormalisation, 8, kFold, 4, kBatchNorm, "", 0, "", "batch_norm",
     "normalised"},
    {"_native_batch_norm_legit_no_training", kNormalisation, 8, kElements, 4, kBatchNorm, kNormalise, 0, "",
     "batch_norm"},
    {"instance_norm", kNormalisation, 8, kFoldOrElements, 4, kInstanceNorm, kNormalise, 0, "", "", "normalised"},
    {"rms_norm", kNormalisation, 8, kFold, 4, kRmsNorm, "", 0, "", "", "normalised"},
    {"_fused_rms_norm", kNormalisation, 8, kFold, 4, kRmsNorm, "", 0, "", "rms_norm"},
    // Views
    {"view", kView, 0, kAlias, 4, kReshape, "", kFloat8 | kSilent},
    {"reshape", kView, 0, kAlias, 4, kReshape, "", kFloat8 | kMayAlias},
    {"_reshape_alias", kView, 0, kAlias, 4, kReshape},
    {"_unsafe_view", kView, 0, kAlias, 4, kReshape, "", 0, "", "view"},
    {"view_as", kView, 0, kAlias, 4, kReshapeAs},
    {"reshape_as", kView, 0, kAlias, 4, kReshapeAs, "", kMayAlias},
    {"permute", kView, 0, kAlias, 4, kPermute},
    {"transpose", kView, 0, kAlias, 4, kTranspose},
    {"t", kView, 0, kAlias, 4, kReverseAxes},
    {"numpy_T", kView, 0, kAlias, 4, kReverseAxes},
    {"mT", kView, 0, kAlias, 4, kMatrixTranspose},
    {"swapaxes", kView, 0, kAlias, 4, kTranspose},
    {"movedim", kView, 0, kAlias, 4, kMoveAxes},
    {"expand", kView, 0, kAlias, 4, kExpand},
    {"expand_as", kView, 0, kAlias, 4, kExpandAs},
    {"broadcast_to", kView, 0, kAlias, 4, kExpand},
    {"squeeze", kView, 0, kAlias, 4, kSqueeze},
    {"unsqueeze", kView, 0, kAlias, 4, kUnsqueeze},
    {"select", kView, 0, kAlias, 4, kSelect},
    {"slice", kView, 0, kAlias, 4, kSlice},
    {"narrow", kView, 0, kAlias, 4, kNarrow},
    {"as_strided", kView, 0, kAlias, 4, kAsStrided},
    {"diagonal", kView, 0, kAlias, 4, kDiagonal},
    {"unfold", kView, 0, kAlias, 4, kUnfold},
    {"flatten", kView, 0, kAlias, 4, kFlatten, "", kFloat8 | kMayAlias},
    {"unflatten", kView, 0, kAlias, 4, kUnflatten, "", kMayAlias},
    {"alias", kView, 0, kAlias, 4, kSame},
    {"detach", kView, 0, kAlias, 4, kSame},
    {"split", kView, 0, kAlias, 4, kSplit},
    {"split_with_sizes", kView, 0, kAlias, 4, kSplit},
    {"chunk", kView, 0, kAlias, 4, kSplit},
    {"tensor_split", kView, 0, kAlias, 4, kSplit},
    {"unbind", kView, 0, kAlias, 4, kUnbind},
    {"unsafe_split", kView, 0, kAlias, 4, kSplit},
    {"unsafe_chunk", kView, 0, kAlias, 4, kSplit},
    {"matrix_H", kView, 0, kLibrary, 4, kMatrixTranspose},
    {"adjoint", kView, 0, kLibrary, 4, kMatrixTranspose},
    {"swapdims", kView, 0, kLibrary, 4, kTranspose},
    {"moveaxis", kView, 0, kLibrary, 4, kMoveAxes},
    {"ravel", kView, 0, kLibrary, 4, kFlatten},
    {"lift", kView, 0, kLibrary, 4, kSame},
    {"hsplit", kView, 0, kLibrary, 4, kSplit},
    {"vsplit", kView, 0, kLibrary, 4, kSplit},
    {"dsplit", kView, 0, kLibrary, 4, kSplit},
    {"unsafe_split_with_sizes", kView, 0, kLibrary, 4, kSplit},
    // Copies by index
    {"take", kDataMovement, 0, kLibrary, 4, kTake},
    {"take_along_dim", kDataMovement, 0, kLibrary, 4, kTake},
    {"cat", kDataMovement, 0, kElements, 1, kCat, "", kFloat8, "concat concatenate"},
    {"stack", kDataMovement, 0, kElements, 1, kStack, "", kFloat8},
    {"pad", kDataMovement, 0, kElements, 1, kPad},
    {"constant_pad_nd", kDataMovement, 0, kElements, 1, kPad, "", 0, "", "pad"},
    {"reflection_pad1d", kDataMovement, 0, kElements, 2, kReflect},
    {"reflection_pad2d", kDataMovement, 0, kElements, 3, kReflect},
    {"reflection_pad3d", kDataMovement, 0, kElements, 4, kReflect},
    {"replication_pad1d", kDataMovement, 0, kElements, 2, kReplicate},
    {"replication_pad2d", kDataMovement, 0, kElements, 3, kReplicate},
    {"replication_pad3d", kDataMovement, 0, kElements, 4, kReplicate},
    {"_pad_circular", kDataMovement, 0, kElements, 3, kWrapAround},
    {"gather", kDataMovement, 0, kElements, 1, kGather},
    {"index", kDataMovement, 0, kElements, 1, kIndex},
    {"index_select", kDataMovement, 0, kElements, 1, kIndexSelect},
    {"_unsafe_index", kDataMovement, 0, kElements, 1, kIndex, "", 0, "", "index"},
    {"embedding", kDataMovement, 0, kElements, 1, kEmbedding},
    {"_embedding_bag", kDataMovement, 0, kFold, 4, kBag},
    {"_embedding_bag_forward_only", kDataMovement, 0, kFold, 4, kBag},
    {"flip", kDataMovement, 0, kElements, 0, kFlip, "", kFloat8},
    {"roll", kDataMovement, 0, kElements, 2, kRoll},
    {"repeat", kDataMovement, 0, kElements, 0, kRepeat, "", kFloat8},
    {"tril", kDataMovement, 0, kElements, 1, kKeep, "select(column <= row + diagonal|0, self, 0)"},
    {"triu", kDataMovement, 0, kElements, 1, kKeep, "select(column >= row + diagonal|0, self, 0)"},
    {"diag_embed", kDataMovement, 0, kElements, 2, kDiagEmbed},
    {"scatter", kDataMovement, 0, kScatter, 4, kScatterElements},
    {"scatter_add", kDataMovement, 0, kScatter, 4, kScatterSum},
    {"scatter_reduce", kDataMovement, 0, kScatter, 4, kScatterFold},
    {"index_add", kDataMovement, 0, kScatter, 4, kIndexSum},
    {"index_put", kDataMovement, 0, kScatter, 4, kIndexPut},
    {"_unsafe_index_put", kDataMovement, 0, kScatter, 4, kIndexPut},
    {"index_reduce", kDataMovement, 0, kScatter, 4, kIndexFold},
    {"select_scatter", kDataMovement, 0, kElements, 1, kSelectScatter, "", kFloat8},
    {"slice_scatter", kDataMovement, 0, kElements, 1, kSliceScatter, "", kFloat8},
    {"im2col", kDataMovement, 0, kElements, 2, kIm2col, "", 0, "", "unfold"},
    {"col2im", kDataMovement, 0, kFold, 4, kCol2im, "", 0, "", "fold"},
    // Windows and resampling
    {"max_pool1d", kPooling, 1, kFold, 4, kMaxPool},
    {"max_pool2d", kPooling, 1, kFold, 4, kMaxPool},
    {"max_pool3d", kPooling, 1, kFold, 4, kMaxPool},
    {"max_pool1d_with_indices", kPooling, 1, kFold, 4, kMaxPool},
    {"max_pool2d_with_indices", kPooling, 1, kFold, 4, kMaxPool, "", 0, "", "max_pool2d"},
    {"max_pool3d_with_indices", kPooling, 1, kFold, 4, kMaxPool, "", 0, "", "max_pool3d"},
    {"avg_pool1d", kPooling, 1, kFold, 4, kAveragePool},
    {"avg_pool2d", kPooling, 1, kFold, 4, kAveragePool},
    {"avg_pool3d", kPooling, 1, kFold, 4, kAveragePool},
    {"adaptive_avg_pool1d", kPooling, 1, kFold, 4, kAdaptiveAverage},
    {"adaptive_avg_pool2d", kPooling, 1, kFold, 4, kAdaptiveAverage},
    {"adaptive_avg_pool3d", kPooling, 1, kFold, 4, kAdaptiveAverage},
    {"_adaptive_avg_pool2d", kPooling, 1, kFold, 4, kAdaptiveAverage},
    {"_adaptive_avg_pool3d", kPooling, 1, kFold, 4, kAdaptiveAverage},
    {"adaptive_max_pool1d", kPooling, 1, kFold, 4, kAdaptiveMax},
    {"adaptive_max_pool2d", kPooling, 1, kFold, 4, kAdaptiveMax},
    {"adaptive_max_pool3d", kPooling, 1, kFold, 4, kAdaptiveMax},
    {"fractional_max_pool2d", kPooling, 1, kFold, 4, kFractionalMax},
    {"fractional_max_pool3d", kPooling, 1, kFold, 4, kFractionalMax},
    {"upsample_nearest1d", kPooling, 1, kElements, 2, kNearest},
    {"upsample_nearest2d", kPooling, 1, kElements, 3, kNearest},
    {"upsample_nearest3d", kPooling, 1, kElements, 4, kNearest},
    {"_upsample_nearest_exact1d", kPooling, 1, kElements, 2, kNearestExact},
    {"_upsample_nearest_exact2d", kPooling, 1, kElements, 3, kNearestExact},
    {"_upsample_nearest_exact3d", kPooling, 1, kElements, 4, kNearestExact},
    {"upsample_linear1d", kPooling, 1, kElements, 8, kLinear},
    {"upsample_bilinear2d", kPooling, 1, kElements, 16, kLinear},
    {"upsample_trilinear3d", kPooling, 1, kElements, 32, kLinear},
    {"upsample_bicubic2d", kPooling, 1, kElements, 48, kCubic},
    // Scans
    {"cumsum", kScan, 1, kCumulative, 4, kSum},
    {"cumprod", kScan, 1, kCumulative, 4, kProd},
    {"cummax", kScan, 1, kCumulative, 4, kMaxAt},
    {"cummin", kScan, 1, kCumulative, 4, kMinAt},
    {"logcumsumexp", kScan, 1, kCumulative, 4, kLogSumExp},
    // Random numbers
    {"dropout", kRandom, 4, kElements, 0, kKeep, "input", kDropout},
    {"native_dropout", kRandom, 4, kLibrary, 4, kNoRule, "", kInTraining, "", "dropout"},
    {"kw.keep_mask", kRandom, 4, kLibrary, 4, kNoRule, "", kImpure},
    // Factories
    {"full", kFactory, 0, kFill, 4, kFull, "", kSilent},
    {"full_like", kFactory, 0, kFill, 4, kFull},
    {"zeros", kFactory, 0, kFill, 4, kZeros, "", kSilent},
    {"zeros_like", kFactory, 0, kFill, 4, kZeros},
    {"ones", kFactory, 0, kFill, 4, kOnes},
    {"ones_like", kFactory, 0, kFill, 4, kOnes},
    {"new_full", kFactory, 0, kFill, 4, kFull},
    {"new_zeros", kFactory, 0, kFill, 4, kZeros},
    {"new_ones", kFactory, 0, kFill, 4, kOnes},
    {"arange", kFactory, 0, kFill, 4, kArange},
    {"linspace", kFactory, 0, kFill, 4, kLinspace},
    {"eye", kFactory, 0, kFill, 4, kEye},
    {"scalar_tensor", kFactory, 0, kFill, 4, kScalarTensor, "", kSilent},
    // Losses
    {"mse_loss", kLoss, 6, kFoldOrElements, 2, kPairLoss, "difference = self - target; difference * difference"},
    {"l1_loss", kLoss, 6, kFoldOrElements, 2, kPairLoss, "abs(self - target)"},
    {"smooth_l1_loss", kLoss, 6, kFoldOrElements, 4, kPairLoss,
     "distance = abs(self - target); inside = distance * distance * (0.5 / beta|1); "
     "select(beta|1 == 0, distance, select(distance < beta|1, inside, distance - 0.5 * beta|1))"},
    {"huber_loss", kLoss, 6, kFoldOrElements, 4, kPairLoss,
     "distance = abs(self - target); "
     "select(distance <= delta|1, distance * distance * 0.5, (distance - 0.5 * delta|1) * delta|1)"},
    {"kl_div", kLoss, 6, kFoldOrElements, 8, kPairLoss,
     "select(log_target|0, exp(target) * (target - self), xlogy(target, target) - target * self)"},
    {"binary_cross_entropy", kLoss, 6, kFoldOrElements, 12, kPairLoss,
     "no = maximum(log1p(-self), -100); yes = maximum(log(self), -100); (target - 1) * no - target * yes"},
    {"binary_cross_entropy_with_logits", kLoss, 6, kFoldOrElements, 12, kPairLoss,
     "maximum(self, 0) - self * target + log1p(exp(-abs(self)))"},
    {"soft_margin_loss", kLoss, 6, kFoldOrElements, 10, kPairLoss, "log1p(exp(-(target * self)))"},
    // Products
    {"mm", kContraction, 0, kLibrary, 4, kProduct, "", kOwnMemory},
    {"addmm", kContraction, 0, kLibrary, 4, kProduct, "", kOwnMemory},
    {"bmm", kContraction, 0, kLibrary, 4, kBatchedProduct, "", kOwnMemory},
    {"baddbmm", kContraction, 0, kLibrary, 4, kBatchedProduct, "", kOwnMemory},
    {"linear", kContraction, 0, kLibrary, 4, kAffine, "", kOwnMemory},
    // Others
    {"scaled_dot_product_attention", kAttention, 0, kLibrary, 4, kNoRule, "", 0, "", "attention"},
    {"kw.rnn_steps", kRecurrent, 0, kLibrary, 4, kNoRule, "", 0, "", "rnn_steps"},
    {"kw.linear_steps", kRecurrent, 0, kLibrary, 4, kNoRule, "", 0, "", "linear_steps"},
    {"sort", kOther, 1, kSort, 4, kSorted},
    {"topk", kOther, 1, kSort, 4, kTopK},
};

// What is always the library's: operators that share all columns but the name.
struct Family {
  OpClass op_class;
  double flops_per_element;
  unsigned flags;
  std::string_view names;  // separated by blanks
};

constexpr Family kLibraryFamilies[] = {
    {kPointwise, 1, 0,
     "signbit positive clip_min heaviside nextafter copysign ldexp frexp isposinf isneginf isreal isclose gcd lcm"},
    {kPointwise, 0, 0, "lift_fresh float half double bool conj_physical _conj _neg_view"},
    {kPointwise, 10, 0,
     "float_power logaddexp logaddexp2 log_sigmoid_forward logsigmoid sinc special_erfcx special_logit "
     "special_ndtr special_ndtri special_log_ndtr special_entr special_xlog1py special_xlogy special_sinc "
     "special_round special_i0 special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_zeta "
     "special_psi i0 digamma lgamma polygamma mvlgamma igamma igammac"},
    {kPointwise, 4, 0,
     "sigmoid_backward tanh_backward gelu_backward silu_backward mish_backward elu_backward leaky_relu_backward "
     "hardtanh_backward hardsigmoid_backward hardswish_backward threshold_backward softplus_backward "
     "logit_backward complex polar real_copy imag_copy angle glu glu_jvp"},
    {kReduction, 1, 0,
     "linalg_norm nuclear_norm nansum nanmean median.default nanmedian.default dist trace equal allclose"},
    {kNormalisation, 8, 0,
     "_batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional cudnn_batch_norm "
     "miopen_batch_norm local_response_norm normalize renorm weight_norm _weight_norm _weight_norm_interface"},
    {kView, 0, 0,
     "mH T broadcast_tensors linalg_diagonal view_as_real view_as_complex real imag atleast_1d atleast_2d "
     "atleast_3d resolve_conj resolve_neg"},
    {kDataMovement, 0, 0,
     "hstack vstack dstack column_stack circular_pad _unsafe_masked_index embedding_bag fliplr flipud rot90 tile "
     "diag diagflat index_copy index_fill masked_scatter diagonal_scatter as_strided_scatter pixel_shuffle "
     "pixel_unshuffle channel_shuffle meshgrid permute_copy view_copy select_copy slice_copy expand_copy "
     "squeeze_copy unsqueeze_copy transpose_copy as_strided_copy split_copy split_with_sizes_copy unfold_copy "
     "unbind_copy block_diag"},
    {kDataMovement, 0, kWaits, "masked_select repeat_interleave one_hot combinations cartesian_prod"},
    {kContraction, 0, kOwnMemory, "addmv mv matmul"},
    {kContraction, 0, 0,
     "addbmm addr dot vdot inner outer ger bilinear _trilinear einsum tensordot kron chain_matmul "
     "linalg_multi_dot linalg_matmul _addmm_activation _scaled_mm _int_mm"},
    {kConvolution, 0, kOwnMemory,
     "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
     "convolution_overrideable conv_tbc _conv_depthwise2d conv_depthwise3d slow_conv3d thnn_conv2d "
     "cudnn_convolution mkldnn_convolution"},
    {kAttention, 0, 0,
     "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
     "_scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable _flash_attention_forward "
     "_efficient_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd"},
    {kRecurrent, 0, 0,
     "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell mkldnn_rnn_layer _cudnn_rnn "
     "_thnn_fused_lstm_cell _thnn_fused_gru_cell"},
    {kPooling, 1, 0,
     "lp_pool1d lp_pool2d lp_pool3d max_unpool2d max_unpool3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
     "interpolate grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator"},
    {kScan, 1, 0, "cumulative_trapezoid"},
    {kRandom, 4, kImpure,
     "randint randperm randint_like bernoulli multinomial normal normal_functional uniform exponential geometric "
     "cauchy log_normal random poisson binomial _fused_dropout _standard_gamma _sample_dirichlet"},
    {kRandom, 4, kImpure | kReplayed, "rand randn rand_like randn_like"},
    {kRandom, 4, kDropout, "feature_dropout alpha_dropout feature_alpha_dropout"},
    {kRandom, 4, kInTraining, "rrelu rrelu_with_noise rrelu_with_noise_functional"},
    {kFactory, 0, 0,
     "logspace tril_indices triu_indices hann_window hamming_window kaiser_window bartlett_window blackman_window "
     "vander"},
    // Uninitialised memory: two are never the same.
    {kFactory, 0, kImpure, "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"},
    {kLoss, 6, 0,
     "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward hinge_embedding_loss "
     "margin_ranking_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
     "triplet_margin_loss cosine_embedding_loss poisson_nll_loss gaussian_nll_loss"},
    {kLoss, 6, kWaits, "ctc_loss _ctc_loss"},
    {kOther, 1, 0,
     "cosine_similarity pairwise_distance cdist _cdist_forward argsort searchsorted bucketize cross linalg_cross "
     "diff"},
    {kOther, 1, kWaits,
     "pdist _pdist_forward kthvalue mode median nanmedian unique unique2 _unique2 bincount histc histogram nonzero "
     "cov corrcoef trapezoid gradient matrix_power matrix_exp linalg_inv linalg_inv_ex linalg_det linalg_slogdet "
     "linalg_solve linalg_solve_ex linalg_cholesky linalg_cholesky_ex linalg_qr linalg_svd linalg_eigh "
     "linalg_eigvalsh linalg_lstsq linalg_lu linalg_lu_factor linalg_matrix_norm linalg_pinv "
     "linalg_solve_triangular cholesky inverse logdet det slogdet triangular_solve _fft_r2c _fft_c2r _fft_c2c "
     "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_fftn stft istft sym_size sym_stride sym_numel item "
     "_local_scalar_dense is_nonzero"},
};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    found.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), found.back().size() + 1));
  }
  return found;
}

}  // namespace

const std::vector<OpInfo>& op_rows() {
  static const std::vector<OpInfo> rows = [] {
    std::vector<OpInfo> all(std::begin(kPlanned), std::end(kPlanned));
    for (const Family& family : kLibraryFamilies)
      for (const std::string_view name : words(family.names))
        all.push_back({.name = name,
                       .op_class = family.op_class,
                       .flops_per_element = family.flops_per_element,
                       .flags = family.flags});
    return all;
  }();
  return rows;
}

const std::unordered_map<std::string_view, std::string_view>& op_synonyms() {
  static const auto synonyms = [] {
    std::unordered_map<std::string_view, std::string_view> names;
    for (const OpInfo& row : op_rows())
      for (const std::string_view synonym : words(row.synonyms)) names.emplace(synonym, row.name);
    return names;
  }();
  return synonyms;
}

}  // namespace kw
