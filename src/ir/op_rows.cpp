#include "ir/op_rows.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace kw {
namespace {

using enum OpClass;
using enum Lowering;
constexpr bool kPure = true, kImpure = false, kFloat8 = true;

// What the planner can lower: name, class, purity, flops per element, lowering, arithmetic weight, 8-bit floats.
// "max.dim" is the row of one overload, "add" of every overload of add that has no row of its own.
constexpr OpInfo kPlanned[] = {
    // Pointwise
    {"add", kPointwise, kPure, 1, kElements, 1},
    {"sub", kPointwise, kPure, 1, kElements, 1},
    {"mul", kPointwise, kPure, 1, kElements, 1},
    {"div", kPointwise, kPure, 1, kElements, 2},
    {"rsub", kPointwise, kPure, 1, kElements, 1},
    {"neg", kPointwise, kPure, 1, kElements, 1},
    {"abs", kPointwise, kPure, 1, kElements, 1},
    {"reciprocal", kPointwise, kPure, 1, kElements, 2},
    {"square", kPointwise, kPure, 1, kElements, 1},
    {"sign", kPointwise, kPure, 1, kElements, 1},
    {"sgn", kPointwise, kPure, 1, kElements, 1},
    {"multiply", kPointwise, kPure, 1, kElements, 1},
    {"divide", kPointwise, kPure, 1, kElements, 2},
    {"subtract", kPointwise, kPure, 1, kElements, 1},
    {"negative", kPointwise, kPure, 1, kElements, 1},
    {"absolute", kPointwise, kPure, 1, kElements, 1},
    {"true_divide", kPointwise, kPure, 1, kElements, 2},
    {"floor_divide", kPointwise, kPure, 1, kElements, 4},
    {"fmod", kPointwise, kPure, 1, kElements, 4},
    {"remainder", kPointwise, kPure, 1, kElements, 4},
    {"addcmul", kPointwise, kPure, 1, kElements, 2},
    {"addcdiv", kPointwise, kPure, 1, kElements, 3},
    {"lerp", kPointwise, kPure, 1, kElements, 2},
    {"maximum", kPointwise, kPure, 1, kElements, 1},
    {"minimum", kPointwise, kPure, 1, kElements, 1},
    {"fmax", kPointwise, kPure, 1, kElements, 1},
    {"fmin", kPointwise, kPure, 1, kElements, 1},
    {"max.other", kPointwise, kPure, 1, kElements, 4},
    {"min.other", kPointwise, kPure, 1, kElements, 4},
    {"clamp", kPointwise, kPure, 1, kElements, 1},
    {"clamp_min", kPointwise, kPure, 1, kElements, 1},
    {"clamp_max", kPointwise, kPure, 1, kElements, 1},
    {"clip", kPointwise, kPure, 1, kElements, 1},
    {"relu", kPointwise, kPure, 1, kElements, 1},
    {"relu6", kPointwise, kPure, 1, kElements, 1},
    {"hardtanh", kPointwise, kPure, 1, kElements, 1},
    {"leaky_relu", kPointwise, kPure, 1, kElements, 1},
    {"_prelu_kernel", kPointwise, kPure, 1, kElements, 1},
    {"prelu", kPointwise, kPure, 1, kElements, 1},
    {"threshold", kPointwise, kPure, 1, kElements, 1},
    {"hardsigmoid", kPointwise, kPure, 1, kElements, 2},
    {"hardswish", kPointwise, kPure, 1, kElements, 3},
    {"hardshrink", kPointwise, kPure, 1, kElements, 1},
    {"softshrink", kPointwise, kPure, 1, kElements, 1},
    {"softsign", kPointwise, kPure, 1, kElements, 3},
    {"tanhshrink", kPointwise, kPure, 10, kElements, 7},
    {"floor", kPointwise, kPure, 1, kElements, 1},
    {"ceil", kPointwise, kPure, 1, kElements, 1},
    {"round", kPointwise, kPure, 1, kElements, 1},
    {"trunc", kPointwise, kPure, 1, kElements, 1},
    {"frac", kPointwise, kPure, 1, kElements, 2},
    {"nan_to_num", kPointwise, kPure, 1, kElements, 2},
    {"deg2rad", kPointwise, kPure, 1, kElements, 1},
    {"rad2deg", kPointwise, kPure, 1, kElements, 1},
    {"eq", kPointwise, kPure, 1, kElements, 1},
    {"ne", kPointwise, kPure, 1, kElements, 1},
    {"lt", kPointwise, kPure, 1, kElements, 1},
    {"le", kPointwise, kPure, 1, kElements, 1},
    {"gt", kPointwise, kPure, 1, kElements, 1},
    {"ge", kPointwise, kPure, 1, kElements, 1},
    {"isnan", kPointwise, kPure, 1, kElements, 1},
    {"isinf", kPointwise, kPure, 1, kElements, 1},
    {"isfinite", kPointwise, kPure, 1, kElements, 1},
    {"logical_and", kPointwise, kPure, 1, kElements, 1},
    {"logical_or", kPointwise, kPure, 1, kElements, 1},
    {"logical_xor", kPointwise, kPure, 1, kElements, 1},
    {"logical_not", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_and", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_or", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_xor", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_not", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_left_shift", kPointwise, kPure, 1, kElements, 1},
    {"bitwise_right_shift", kPointwise, kPure, 1, kElements, 1},
    {"__and__", kPointwise, kPure, 1, kElements, 1},
    {"__or__", kPointwise, kPure, 1, kElements, 1},
    {"__xor__", kPointwise, kPure, 1, kElements, 1},
    {"where", kPointwise, kPure, 1, kElements, 1},
    {"masked_fill", kPointwise, kPure, 1, kElements, 1},
    {"fill", kPointwise, kPure, 1, kElements, 0},
    {"clone", kPointwise, kPure, 0, kElements, 0, kFloat8},
    {"alias_copy", kPointwise, kPure, 0, kElements, 0},
    {"detach_copy", kPointwise, kPure, 0, kElements, 0},
    {"_to_copy", kPointwise, kPure, 0, kElements, 1, kFloat8},
    {"to", kPointwise, kPure, 0, kElements, 1, kFloat8},
    {"type_as", kPointwise, kPure, 0, kElements, 1, kFloat8},
    {"contiguous", kPointwise, kPure, 0, kAlias, 4, kFloat8},
    {"copy", kPointwise, kPure, 0, kElements, 0, kFloat8},
    {"lift_fresh_copy", kPointwise, kPure, 0, kElements, 0, kFloat8},
    {"exp", kPointwise, kPure, 10, kElements, 4},
    {"exp2", kPointwise, kPure, 10, kElements, 4},
    {"expm1", kPointwise, kPure, 10, kElements, 6},
    {"log", kPointwise, kPure, 10, kElements, 5},
    {"log2", kPointwise, kPure, 10, kElements, 5},
    {"log10", kPointwise, kPure, 10, kElements, 5},
    {"log1p", kPointwise, kPure, 10, kElements, 6},
    {"sqrt", kPointwise, kPure, 10, kElements, 3},
    {"rsqrt", kPointwise, kPure, 10, kElements, 3},
    {"sin", kPointwise, kPure, 10, kElements, 20},
    {"cos", kPointwise, kPure, 10, kElements, 20},
    {"tan", kPointwise, kPure, 10, kElements, 24},
    {"asin", kPointwise, kPure, 10, kElements, 8},
    {"acos", kPointwise, kPure, 10, kElements, 8},
    {"atan", kPointwise, kPure, 10, kElements, 8},
    {"atan2", kPointwise, kPure, 10, kElements, 10},
    {"sinh", kPointwise, kPure, 10, kElements, 8},
    {"cosh", kPointwise, kPure, 10, kElements, 8},
    {"tanh", kPointwise, kPure, 10, kElements, 6},
    {"asinh", kPointwise, kPure, 10, kElements, 10},
    {"acosh", kPointwise, kPure, 10, kElements, 10},
    {"atanh", kPointwise, kPure, 10, kElements, 10},
    {"erf", kPointwise, kPure, 10, kElements, 8},
    {"erfc", kPointwise, kPure, 10, kElements, 8},
    {"sigmoid", kPointwise, kPure, 10, kElements, 5},
    {"pow", kPointwise, kPure, 10, kElements, 6},
    {"hypot", kPointwise, kPure, 10, kElements, 4},
    {"logit", kPointwise, kPure, 10, kElements, 8},
    {"log_sigmoid", kPointwise, kPure, 10, kElements, 10},
    {"xlogy", kPointwise, kPure, 10, kElements, 6},
    {"softplus", kPointwise, kPure, 10, kElements, 10},
    {"gelu", kPointwise, kPure, 10, kElements, 10},
    {"silu", kPointwise, kPure, 10, kElements, 6},
    {"mish", kPointwise, kPure, 10, kElements, 14},
    {"selu", kPointwise, kPure, 10, kElements, 6},
    {"elu", kPointwise, kPure, 10, kElements, 6},
    {"celu", kPointwise, kPure, 10, kElements, 6},
    // Reductions
    {"sum", kReduction, kPure, 1, kFold, 4},
    {"mean", kReduction, kPure, 1, kFold, 4},
    {"prod", kReduction, kPure, 1, kFold, 4},
    {"amax", kReduction, kPure, 1, kFold, 4},
    {"amin", kReduction, kPure, 1, kFold, 4},
    {"max.default", kReduction, kPure, 1, kFold, 4},
    {"min.default", kReduction, kPure, 1, kFold, 4},
    {"max.dim", kReduction, kPure, 1, kFold, 4},
    {"min.dim", kReduction, kPure, 1, kFold, 4},
    {"argmax", kReduction, kPure, 1, kFold, 4},
    {"argmin", kReduction, kPure, 1, kFold, 4},
    {"aminmax", kReduction, kPure, 1, kFold, 4},
    {"any", kReduction, kPure, 1, kFold, 4},
    {"all", kReduction, kPure, 1, kFold, 4},
    {"std", kReduction, kPure, 1, kFold, 4},
    {"var", kReduction, kPure, 1, kFold, 4},
    {"std_mean", kReduction, kPure, 1, kFold, 4},
    {"var_mean", kReduction, kPure, 1, kFold, 4},
    {"norm", kReduction, kPure, 1, kFold, 4},
    {"linalg_vector_norm", kReduction, kPure, 1, kFold, 4},
    {"frobenius_norm", kReduction, kPure, 1, kFold, 4},
    {"logsumexp", kReduction, kPure, 1, kFold, 4},
    {"count_nonzero", kReduction, kPure, 1, kFold, 4},
    // Normalisations
    {"softmax", kNormalisation, kPure, 8, kFold, 4},
    {"_softmax", kNormalisation, kPure, 8, kFold, 4},
    {"log_softmax", kNormalisation, kPure, 8, kFold, 4},
    {"_log_softmax", kNormalisation, kPure, 8, kFold, 4},
    {"_safe_softmax", kNormalisation, kPure, 8, kFold, 4},
    {"layer_norm", kNormalisation, kPure, 8, kFold, 4},
    {"native_layer_norm", kNormalisation, kPure, 8, kFold, 4},
    {"group_norm", kNormalisation, kPure, 8, kFold, 4},
    {"native_group_norm", kNormalisation, kPure, 8, kFold, 4},
    {"batch_norm", kNormalisation, kPure, 8, kFoldOrElements, 4},
    {"native_batch_norm", kNormalisation, kPure, 8, kFold, 4},
    {"_native_batch_norm_legit", kNormalisation, kPure, 8, kFold, 4},
    {"_native_batch_norm_legit_functional", kNormalisation, kPure, 8, kFold, 4},
    {"_native_batch_norm_legit_no_training", kNormalisation, kPure, 8, kElements, 4},
    {"instance_norm", kNormalisation, kPure, 8, kFoldOrElements, 4},
    {"rms_norm", kNormalisation, kPure, 8, kFold, 4},
    {"_fused_rms_norm", kNormalisation, kPure, 8, kFold, 4},
    // Views
    {"view", kView, kPure, 0, kAlias, 4, kFloat8},
    {"reshape", kView, kPure, 0, kAlias, 4, kFloat8},
    {"_reshape_alias", kView, kPure, 0, kAlias, 4},
    {"_unsafe_view", kView, kPure, 0, kAlias, 4},
    {"view_as", kView, kPure, 0, kAlias, 4},
    {"reshape_as", kView, kPure, 0, kAlias, 4},
    {"permute", kView, kPure, 0, kAlias, 4},
    {"transpose", kView, kPure, 0, kAlias, 4},
    {"t", kView, kPure, 0, kAlias, 4},
    {"numpy_T", kView, kPure, 0, kAlias, 4},
    {"mT", kView, kPure, 0, kAlias, 4},
    {"swapaxes", kView, kPure, 0, kAlias, 4},
    {"movedim", kView, kPure, 0, kAlias, 4},
    {"expand", kView, kPure, 0, kAlias, 4},
    {"expand_as", kView, kPure, 0, kAlias, 4},
    {"broadcast_to", kView, kPure, 0, kAlias, 4},
    {"squeeze", kView, kPure, 0, kAlias, 4},
    {"unsqueeze", kView, kPure, 0, kAlias, 4},
    {"select", kView, kPure, 0, kAlias, 4},
    {"slice", kView, kPure, 0, kAlias, 4},
    {"narrow", kView, kPure, 0, kAlias, 4},
    {"as_strided", kView, kPure, 0, kAlias, 4},
    {"diagonal", kView, kPure, 0, kAlias, 4},
    {"unfold", kView, kPure, 0, kAlias, 4},
    {"flatten", kView, kPure, 0, kAlias, 4, kFloat8},
    {"unflatten", kView, kPure, 0, kAlias, 4},
    {"alias", kView, kPure, 0, kAlias, 4},
    {"detach", kView, kPure, 0, kAlias, 4},
    {"split", kView, kPure, 0, kAlias, 4},
    {"split_with_sizes", kView, kPure, 0, kAlias, 4},
    {"chunk", kView, kPure, 0, kAlias, 4},
    {"tensor_split", kView, kPure, 0, kAlias, 4},
    {"unbind", kView, kPure, 0, kAlias, 4},
    {"unsafe_split", kView, kPure, 0, kAlias, 4},
    {"unsafe_chunk", kView, kPure, 0, kAlias, 4},
    // Copies by index
    {"cat", kDataMovement, kPure, 0, kElements, 1, kFloat8},
    {"concat", kDataMovement, kPure, 0, kElements, 1, kFloat8},
    {"stack", kDataMovement, kPure, 0, kElements, 1, kFloat8},
    {"pad", kDataMovement, kPure, 0, kElements, 1},
    {"constant_pad_nd", kDataMovement, kPure, 0, kElements, 1},
    {"reflection_pad1d", kDataMovement, kPure, 0, kElements, 2},
    {"reflection_pad2d", kDataMovement, kPure, 0, kElements, 3},
    {"reflection_pad3d", kDataMovement, kPure, 0, kElements, 4},
    {"replication_pad1d", kDataMovement, kPure, 0, kElements, 2},
    {"replication_pad2d", kDataMovement, kPure, 0, kElements, 3},
    {"replication_pad3d", kDataMovement, kPure, 0, kElements, 4},
    {"_pad_circular", kDataMovement, kPure, 0, kElements, 3},
    {"gather", kDataMovement, kPure, 0, kElements, 1},
    {"index", kDataMovement, kPure, 0, kElements, 1},
    {"index_select", kDataMovement, kPure, 0, kElements, 1},
    {"_unsafe_index", kDataMovement, kPure, 0, kElements, 1},
    {"embedding", kDataMovement, kPure, 0, kElements, 1},
    {"_embedding_bag", kDataMovement, kPure, 0, kFold, 4},
    {"_embedding_bag_forward_only", kDataMovement, kPure, 0, kFold, 4},
    {"flip", kDataMovement, kPure, 0, kElements, 0, kFloat8},
    {"roll", kDataMovement, kPure, 0, kElements, 2},
    {"repeat", kDataMovement, kPure, 0, kElements, 0, kFloat8},
    {"tril", kDataMovement, kPure, 0, kElements, 1},
    {"triu", kDataMovement, kPure, 0, kElements, 1},
    {"diag_embed", kDataMovement, kPure, 0, kElements, 2},
    {"scatter", kDataMovement, kPure, 0, kScatter, 4},
    {"scatter_add", kDataMovement, kPure, 0, kScatter, 4},
    {"scatter_reduce", kDataMovement, kPure, 0, kScatter, 4},
    {"index_add", kDataMovement, kPure, 0, kScatter, 4},
    {"index_put", kDataMovement, kPure, 0, kScatter, 4},
    {"_unsafe_index_put", kDataMovement, kPure, 0, kScatter, 4},
    {"index_reduce", kDataMovement, kPure, 0, kScatter, 4},
    {"select_scatter", kDataMovement, kPure, 0, kElements, 1, kFloat8},
    {"slice_scatter", kDataMovement, kPure, 0, kElements, 1, kFloat8},
    {"im2col", kDataMovement, kPure, 0, kElements, 2},
    {"col2im", kDataMovement, kPure, 0, kFold, 4},
    // Windows and resampling
    {"max_pool1d", kPooling, kPure, 1, kFold, 4},
    {"max_pool2d", kPooling, kPure, 1, kFold, 4},
    {"max_pool3d", kPooling, kPure, 1, kFold, 4},
    {"max_pool1d_with_indices", kPooling, kPure, 1, kFold, 4},
    {"max_pool2d_with_indices", kPooling, kPure, 1, kFold, 4},
    {"max_pool3d_with_indices", kPooling, kPure, 1, kFold, 4},
    {"avg_pool1d", kPooling, kPure, 1, kFold, 4},
    {"avg_pool2d", kPooling, kPure, 1, kFold, 4},
    {"avg_pool3d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_avg_pool1d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_avg_pool2d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_avg_pool3d", kPooling, kPure, 1, kFold, 4},
    {"_adaptive_avg_pool2d", kPooling, kPure, 1, kFold, 4},
    {"_adaptive_avg_pool3d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_max_pool1d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_max_pool2d", kPooling, kPure, 1, kFold, 4},
    {"adaptive_max_pool3d", kPooling, kPure, 1, kFold, 4},
    {"fractional_max_pool2d", kPooling, kPure, 1, kFold, 4},
    {"fractional_max_pool3d", kPooling, kPure, 1, kFold, 4},
    {"upsample_nearest1d", kPooling, kPure, 1, kElements, 2},
    {"upsample_nearest2d", kPooling, kPure, 1, kElements, 3},
    {"upsample_nearest3d", kPooling, kPure, 1, kElements, 4},
    {"_upsample_nearest_exact1d", kPooling, kPure, 1, kElements, 2},
    {"_upsample_nearest_exact2d", kPooling, kPure, 1, kElements, 3},
    {"_upsample_nearest_exact3d", kPooling, kPure, 1, kElements, 4},
    {"upsample_linear1d", kPooling, kPure, 1, kElements, 8},
    {"upsample_bilinear2d", kPooling, kPure, 1, kElements, 16},
    {"upsample_trilinear3d", kPooling, kPure, 1, kElements, 32},
    {"upsample_bicubic2d", kPooling, kPure, 1, kElements, 48},
    // Scans
    {"cumsum", kScan, kPure, 1, kCumulative, 4},
    {"cumprod", kScan, kPure, 1, kCumulative, 4},
    {"cummax", kScan, kPure, 1, kCumulative, 4},
    {"cummin", kScan, kPure, 1, kCumulative, 4},
    {"logcumsumexp", kScan, kPure, 1, kCumulative, 4},
    // Random numbers
    {"dropout", kRandom, kImpure, 4, kElements, 0},
    // Factories
    {"full", kFactory, kPure, 0, kFill, 4},
    {"full_like", kFactory, kPure, 0, kFill, 4},
    {"zeros", kFactory, kPure, 0, kFill, 4},
    {"zeros_like", kFactory, kPure, 0, kFill, 4},
    {"ones", kFactory, kPure, 0, kFill, 4},
    {"ones_like", kFactory, kPure, 0, kFill, 4},
    {"new_full", kFactory, kPure, 0, kFill, 4},
    {"new_zeros", kFactory, kPure, 0, kFill, 4},
    {"new_ones", kFactory, kPure, 0, kFill, 4},
    {"arange", kFactory, kPure, 0, kFill, 4},
    {"linspace", kFactory, kPure, 0, kFill, 4},
    {"eye", kFactory, kPure, 0, kFill, 4},
    {"scalar_tensor", kFactory, kPure, 0, kFill, 4},
    // Losses
    {"mse_loss", kLoss, kPure, 6, kFoldOrElements, 2},
    {"l1_loss", kLoss, kPure, 6, kFoldOrElements, 2},
    {"smooth_l1_loss", kLoss, kPure, 6, kFoldOrElements, 4},
    {"huber_loss", kLoss, kPure, 6, kFoldOrElements, 4},
    {"kl_div", kLoss, kPure, 6, kFoldOrElements, 8},
    {"binary_cross_entropy", kLoss, kPure, 6, kFoldOrElements, 12},
    {"binary_cross_entropy_with_logits", kLoss, kPure, 6, kFoldOrElements, 12},
    {"soft_margin_loss", kLoss, kPure, 6, kFoldOrElements, 10},
    // Others
    {"sort", kOther, kPure, 1, kSort, 4},
    {"topk", kOther, kPure, 1, kSort, 4},
};

// What is always the library's: operators that share all columns but the name.
struct Family {
  OpClass op_class;
  double flops_per_element;
  bool pure;
  std::string_view names;  // separated by blanks
};

constexpr Family kLibraryFamilies[] = {
    {kPointwise, 1, kPure, "signbit positive clip_min heaviside"},
    {kPointwise, 1, kPure, "fix nextafter copysign ldexp frexp"},
    {kPointwise, 1, kPure,
     "less less_equal greater greater_equal not_equal isposinf isneginf isreal isclose __lshift__ __rshift__ gcd lcm"},
    {kPointwise, 0, kPure, "lift_fresh float half double bool conj_physical _conj _neg_view"},
    {kPointwise, 10, kPure,
     "arcsin arccos arctan arctan2 arcsinh arccosh arctanh erfinv float_power logaddexp logaddexp2 "
     "log_sigmoid_forward logsigmoid sinc special_erf special_erfc special_erfcx special_erfinv special_expm1 "
     "special_exp2 special_expit special_log1p special_logit special_ndtr special_ndtri special_log_ndtr "
     "special_entr special_xlog1py special_xlogy special_sinc special_round special_i0 special_i0e special_i1 "
     "special_i1e special_bessel_j0 special_bessel_j1 special_zeta special_psi i0 digamma lgamma polygamma mvlgamma "
     "igamma igammac"},
    {kPointwise, 4, kPure,
     "sigmoid_backward tanh_backward gelu_backward silu_backward mish_backward elu_backward leaky_relu_backward "
     "hardtanh_backward hardsigmoid_backward hardswish_backward threshold_backward softplus_backward logit_backward "
     "complex polar real_copy imag_copy angle glu glu_jvp"},
    {kReduction, 1, kPure,
     "linalg_norm nuclear_norm special_logsumexp nansum nanmean median.default nanmedian.default dist trace equal "
     "allclose"},
    {kNormalisation, 8, kPure,
     "special_softmax special_log_softmax _batch_norm_no_update _batch_norm_with_update "
     "_batch_norm_with_update_functional cudnn_batch_norm miopen_batch_norm local_response_norm normalize renorm "
     "weight_norm _weight_norm _weight_norm_interface"},
    {kView, 0, kPure,
     "matrix_H mH T adjoint swapdims moveaxis broadcast_tensors linalg_diagonal ravel view_as_real view_as_complex "
     "real imag hsplit vsplit dsplit unsafe_split_with_sizes atleast_1d atleast_2d atleast_3d lift resolve_conj "
     "resolve_neg"},
    {kDataMovement, 0, kPure,
     "concatenate hstack vstack dstack column_stack circular_pad take take_along_dim _unsafe_masked_index "
     "embedding_bag fliplr flipud rot90 repeat_interleave tile diag diagflat index_copy index_fill masked_scatter "
     "masked_select diagonal_scatter as_strided_scatter pixel_shuffle pixel_unshuffle channel_shuffle meshgrid "
     "cartesian_prod one_hot permute_copy view_copy select_copy slice_copy expand_copy squeeze_copy unsqueeze_copy "
     "transpose_copy as_strided_copy split_copy split_with_sizes_copy unfold_copy unbind_copy block_diag "
     "combinations"},
    {kContraction, 0, kPure,
     "mm bmm addmm addbmm baddbmm addmv addr mv dot vdot inner outer ger matmul linear bilinear _trilinear einsum "
     "tensordot kron chain_matmul linalg_multi_dot linalg_matmul _addmm_activation _scaled_mm _int_mm"},
    {kConvolution, 0, kPure,
     "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
     "convolution_overrideable conv_tbc _conv_depthwise2d conv_depthwise3d slow_conv3d thnn_conv2d "
     "cudnn_convolution mkldnn_convolution"},
    {kAttention, 0, kPure,
     "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
     "_scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable _flash_attention_forward "
     "_efficient_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd"},
    {kRecurrent, 0, kPure,
     "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell mkldnn_rnn_layer _cudnn_rnn "
     "_thnn_fused_lstm_cell _thnn_fused_gru_cell kw.rnn_steps"},
    {kPooling, 1, kPure,
     "lp_pool1d lp_pool2d lp_pool3d max_unpool2d max_unpool3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
     "interpolate grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator"},
    {kScan, 1, kPure, "cumulative_trapezoid"},
    {kRandom, 4, kImpure,
     "rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal normal_functional "
     "uniform exponential geometric cauchy log_normal random poisson binomial native_dropout feature_dropout "
     "alpha_dropout feature_alpha_dropout _fused_dropout rrelu rrelu_with_noise rrelu_with_noise_functional "
     "_standard_gamma _sample_dirichlet kw.keep_mask"},
    {kFactory, 0, kPure,
     "logspace tril_indices triu_indices hann_window hamming_window kaiser_window bartlett_window blackman_window "
     "vander"},
    // Uninitialised memory: two are never the same.
    {kFactory, 0, kImpure, "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"},
    {kLoss, 6, kPure,
     "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward hinge_embedding_loss "
     "margin_ranking_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
     "triplet_margin_loss cosine_embedding_loss poisson_nll_loss gaussian_nll_loss ctc_loss _ctc_loss"},
    {kOther, 1, kPure,
     "cosine_similarity pairwise_distance cdist _cdist_forward pdist _pdist_forward argsort kthvalue mode median "
     "nanmedian unique unique2 _unique2 searchsorted bucketize bincount histc histogram nonzero cross linalg_cross "
     "cov corrcoef diff trapezoid gradient matrix_power matrix_exp linalg_inv linalg_inv_ex linalg_det "
     "linalg_slogdet linalg_solve linalg_solve_ex linalg_cholesky linalg_cholesky_ex linalg_qr linalg_svd "
     "linalg_eigh linalg_eigvalsh linalg_lstsq linalg_lu linalg_lu_factor linalg_matrix_norm linalg_pinv "
     "linalg_solve_triangular cholesky inverse logdet det slogdet triangular_solve _fft_r2c _fft_c2r _fft_c2c "
     "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_fftn stft istft sym_size sym_stride sym_numel item "
     "_local_scalar_dense is_nonzero"},
};

}  // namespace

const std::vector<OpInfo>& op_rows() {
  static const std::vector<OpInfo> rows = [] {
    std::vector<OpInfo> all(std::begin(kPlanned), std::end(kPlanned));
    for (const Family& family : kLibraryFamilies)
      for (std::string_view names = family.names; !names.empty();) {
        const std::string_view name = names.substr(0, names.find(' '));
        all.push_back({name, family.op_class, family.pure, family.flops_per_element});
        names.remove_prefix(std::min(names.size(), name.size() + 1));
      }
    return all;
  }();
  return rows;
}

}  // namespace kw
