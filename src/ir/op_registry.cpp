#include "ir/op_registry.hpp"

#include <algorithm>
#include <unordered_map>

namespace kw {
namespace {

struct Family {
  OpClass op_class;
  double flops_per_element;
  bool pure;
  std::string_view names;  // separated by blanks
};

using enum OpClass;
constexpr bool kPure = true, kImpure = false;

// "max" is the row of every overload of max that has no row of its own ("max.other").
constexpr Family kFamilies[] = {
    {kPointwise, 1, kPure,
     "add sub mul div rsub neg abs reciprocal square sign sgn signbit positive multiply divide subtract negative "
     "absolute true_divide floor_divide fmod "
     "remainder addcmul addcdiv lerp maximum minimum fmax fmin max.other min.other clamp clamp_min clamp_max clip "
     "clip_min heaviside relu relu6 hardtanh "
     "leaky_relu _prelu_kernel prelu threshold hardsigmoid hardswish hardshrink softshrink softsign"},
    {kPointwise, 1, kPure, "floor ceil round trunc fix frac nextafter copysign ldexp frexp nan_to_num deg2rad rad2deg"},
    {kPointwise, 1, kPure,
     "eq ne lt le gt ge less less_equal greater greater_equal not_equal isnan isinf isfinite isposinf isneginf isreal "
     "isclose "
     "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift "
     "bitwise_right_shift "
     "__and__ __or__ __xor__ __lshift__ __rshift__ gcd lcm where masked_fill fill"},
    {kPointwise, 0, kPure,
     "clone _to_copy to type_as contiguous copy lift_fresh_copy lift_fresh float half double bool conj_physical _conj "
     "_neg_view"},
    {kPointwise, 10, kPure,
     "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
     "arcsin arccos arctan arctan2 "
     "arcsinh arccosh arctanh erf erfc erfinv sigmoid pow float_power hypot logaddexp logaddexp2 logit log_sigmoid "
     "log_sigmoid_forward logsigmoid xlogy sinc "
     "softplus gelu silu mish selu elu celu special_erf special_erfc special_erfcx special_erfinv special_expm1 "
     "special_exp2 special_expit "
     "special_log1p special_logit special_ndtr special_ndtri special_log_ndtr special_entr special_xlog1py "
     "special_xlogy special_sinc special_round "
     "special_i0 special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_zeta special_psi i0 "
     "digamma lgamma polygamma mvlgamma igamma igammac"},
    {kPointwise, 4, kPure,
     "sigmoid_backward tanh_backward gelu_backward silu_backward mish_backward elu_backward leaky_relu_backward "
     "hardtanh_backward hardsigmoid_backward "
     "hardswish_backward threshold_backward softplus_backward logit_backward complex polar real_copy imag_copy angle "
     "glu glu_jvp"},

    {kReduction, 1, kPure,
     "sum mean prod amax amin max.default min.default max.dim min.dim argmax argmin aminmax any all std var std_mean "
     "var_mean norm linalg_vector_norm "
     "linalg_norm frobenius_norm nuclear_norm logsumexp special_logsumexp nansum nanmean count_nonzero median.default "
     "nanmedian.default dist trace equal allclose"},
    {kNormalisation, 8, kPure,
     "softmax _softmax special_softmax log_softmax _log_softmax special_log_softmax _safe_softmax layer_norm "
     "native_layer_norm group_norm native_group_norm "
     "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
     "_native_batch_norm_legit_no_training _batch_norm_no_update "
     "_batch_norm_with_update _batch_norm_with_update_functional cudnn_batch_norm miopen_batch_norm instance_norm "
     "rms_norm _fused_rms_norm local_response_norm "
     "normalize renorm weight_norm _weight_norm _weight_norm_interface"},

    {kView, 0, kPure,
     "view reshape _reshape_alias _unsafe_view view_as reshape_as permute transpose t numpy_T matrix_H mT mH T adjoint "
     "swapaxes swapdims movedim moveaxis "
     "expand expand_as broadcast_to broadcast_tensors squeeze unsqueeze select slice narrow as_strided diagonal "
     "linalg_diagonal unfold flatten unflatten ravel "
     "alias detach view_as_real view_as_complex real imag split split_with_sizes chunk tensor_split hsplit vsplit "
     "dsplit unbind unsafe_split unsafe_split_with_sizes "
     "unsafe_chunk atleast_1d atleast_2d atleast_3d lift resolve_conj resolve_neg"},
    {kDataMovement, 0, kPure,
     "cat concat concatenate stack hstack vstack dstack column_stack pad constant_pad_nd reflection_pad1d "
     "reflection_pad2d reflection_pad3d replication_pad1d "
     "replication_pad2d replication_pad3d circular_pad _pad_circular gather take take_along_dim index index_select "
     "_unsafe_index _unsafe_masked_index embedding "
     "_embedding_bag embedding_bag flip fliplr flipud roll rot90 repeat repeat_interleave tile tril triu diag "
     "diag_embed diagflat scatter scatter_add scatter_reduce "
     "index_add index_copy index_fill index_put _unsafe_index_put index_reduce masked_scatter masked_select "
     "select_scatter slice_scatter diagonal_scatter "
     "as_strided_scatter pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im meshgrid cartesian_prod one_hot "
     "permute_copy view_copy select_copy slice_copy "
     "expand_copy squeeze_copy unsqueeze_copy transpose_copy as_strided_copy split_copy split_with_sizes_copy "
     "unfold_copy unbind_copy block_diag combinations"},

    {kContraction, 0, kPure,
     "mm bmm addmm addbmm baddbmm addmv addr mv dot vdot inner outer ger matmul linear bilinear _trilinear einsum "
     "tensordot kron chain_matmul linalg_multi_dot "
     "linalg_matmul _addmm_activation _scaled_mm _int_mm"},
    {kConvolution, 0, kPure,
     "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
     "convolution_overrideable conv_tbc _conv_depthwise2d "
     "conv_depthwise3d slow_conv3d thnn_conv2d cudnn_convolution mkldnn_convolution"},
    {kAttention, 0, kPure,
     "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math "
     "_scaled_dot_product_fused_attention_overrideable _flash_attention_forward "
     "_efficient_attention_forward _native_multi_head_attention _transformer_encoder_layer_fwd"},
    {kRecurrent, 0, kPure,
     "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell mkldnn_rnn_layer _cudnn_rnn "
     "_thnn_fused_lstm_cell _thnn_fused_gru_cell kw.rnn_steps"},
    {kPooling, 1, kPure,
     "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
     "avg_pool1d avg_pool2d avg_pool3d "
     "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d "
     "adaptive_max_pool1d adaptive_max_pool2d "
     "adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d lp_pool1d lp_pool2d lp_pool3d max_unpool2d "
     "max_unpool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
     "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d "
     "upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
     "_upsample_bilinear2d_aa _upsample_bicubic2d_aa interpolate grid_sampler grid_sampler_2d grid_sampler_3d "
     "affine_grid_generator"},
    {kScan, 1, kPure, "cumsum cumprod cummax cummin logcumsumexp cumulative_trapezoid"},
    {kRandom, 4, kImpure,
     "rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal normal_functional "
     "uniform exponential geometric cauchy log_normal "
     "random poisson binomial dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout "
     "_fused_dropout rrelu rrelu_with_noise "
     "rrelu_with_noise_functional _standard_gamma _sample_dirichlet kw.keep_mask"},
    {kFactory, 0, kPure,
     "full full_like zeros zeros_like ones ones_like new_full new_zeros new_ones arange linspace logspace eye "
     "scalar_tensor tril_indices triu_indices "
     "hann_window hamming_window kaiser_window bartlett_window blackman_window vander"},
    // Uninitialised memory: two are never the same.
    {kFactory, 0, kImpure, "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"},
    {kLoss, 6, kPure,
     "mse_loss l1_loss smooth_l1_loss huber_loss kl_div cross_entropy_loss nll_loss nll_loss_nd nll_loss2d "
     "nll_loss_forward nll_loss2d_forward "
     "binary_cross_entropy binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss multi_margin_loss "
     "multilabel_margin_loss "
     "multilabel_margin_loss_forward soft_margin_loss triplet_margin_loss cosine_embedding_loss poisson_nll_loss "
     "gaussian_nll_loss ctc_loss _ctc_loss"},
    {kOther, 1, kPure,
     "cosine_similarity pairwise_distance cdist _cdist_forward pdist _pdist_forward sort argsort topk kthvalue mode "
     "median nanmedian unique unique2 _unique2 "
     "searchsorted bucketize bincount histc histogram nonzero cross linalg_cross cov corrcoef diff trapezoid gradient "
     "matrix_power matrix_exp "
     "linalg_inv linalg_inv_ex linalg_det linalg_slogdet linalg_solve linalg_solve_ex linalg_cholesky "
     "linalg_cholesky_ex linalg_qr linalg_svd linalg_eigh "
     "linalg_eigvalsh linalg_lstsq linalg_lu linalg_lu_factor linalg_matrix_norm linalg_pinv linalg_solve_triangular "
     "cholesky inverse logdet det slogdet triangular_solve "
     "_fft_r2c _fft_c2r _fft_c2c fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_fftn stft istft sym_size sym_stride "
     "sym_numel item _local_scalar_dense is_nonzero"},
};

std::string_view without_namespace(std::string_view op) { return op.starts_with("aten.") ? op.substr(5) : op; }

const std::unordered_map<std::string_view, OpInfo>& table() {
  static const auto rows = [] {
    std::unordered_map<std::string_view, OpInfo> rows;
    for (const auto& family : kFamilies)
      for (std::string_view names = family.names; !names.empty();) {
        const std::string_view name = names.substr(0, names.find(' '));
        rows.emplace(name, OpInfo{name, family.op_class, family.pure, family.flops_per_element});
        names.remove_prefix(std::min(names.size(), name.size() + 1));
      }
    return rows;
  }();
  return rows;
}

}  // namespace

std::string_view base_name(std::string_view op) {
  op = without_namespace(op);
  const size_t overload = op.rfind('.');
  return overload == std::string_view::npos ? op : op.substr(0, overload);
}

const OpInfo& op_info(std::string_view op) {
  static constexpr OpInfo kUnknown{"", kOther, kImpure, 1};
  const auto& rows = table();
  if (const auto row = rows.find(without_namespace(op)); row != rows.end()) return row->second;
  const auto row = rows.find(base_name(op));
  return row == rows.end() ? kUnknown : row->second;
}

OpClass class_of(std::string_view op) { return op_info(op).op_class; }

std::string_view name_of(OpClass op_class) {
  constexpr std::string_view names[] = {"pointwise",   "reduction",   "normalisation", "view",      "data movement",
                                        "contraction", "convolution", "attention",     "recurrent", "pooling",
                                        "scan",        "random",      "factory",       "loss",      "other"};
  return names[static_cast<size_t>(op_class)];
}

bool is_pure(const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.op_class == kRandom) {
    if (info.name == "dropout" || info.name == "feature_dropout" || info.name == "alpha_dropout" ||
        info.name == "feature_alpha_dropout")
      return !node.boolean("train", true) || node.number("p", 0.5) == 0.0;
    if (info.name == "native_dropout") return !node.boolean("train", true);
    if (info.name == "rrelu" || info.name == "rrelu_with_noise" || info.name == "rrelu_with_noise_functional")
      return !node.boolean("training", false);
    return false;
  }
  // Attention and recurrent layers drop out inside.
  if (info.op_class == kAttention) return node.number("dropout_p", 0.0) == 0.0;
  if (info.op_class == kRecurrent) return node.number("dropout", 0.0) == 0.0 || !node.boolean("train", false);
  return info.pure;
}

}  // namespace kw
