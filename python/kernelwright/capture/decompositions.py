"""Which ops the captured graph may contain: core ATen, and the composites that schedulers want to see whole.

torch.export's own table takes everything apart down to core ATen. An LSTM becomes 147,000 nodes that way and a softmax
five, so the composites in KEPT are taken out of the table; a few others get a decomposition of our own.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch

aten = torch.ops.aten

# Op packets that stay whole, in all their overloads.
KEPT = (
    # contractions
    "linear matmul mv dot conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention cdist"
    # taken apart by PyTorch, it returns the weights in place of the logarithms of their sums
    " _scaled_dot_product_flash_attention_for_cpu"
    # recurrent layers (the cells are small pointwise pieces and do decompose)
    " lstm gru rnn_tanh rnn_relu"
    # normalisations
    " softmax log_softmax logsumexp layer_norm group_norm instance_norm rms_norm cosine_similarity pairwise_distance"
    # pooling and resampling
    " max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
    " adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d im2col col2im roll"
    " reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    " _pad_circular _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
    " upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
    # losses
    " mse_loss l1_loss smooth_l1_loss huber_loss kl_div cross_entropy_loss nll_loss nll_loss_nd nll_loss2d binary_cross_entropy"
    " binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss multi_margin_loss multilabel_margin_loss soft_margin_loss"
    " poisson_nll_loss triplet_margin_loss cosine_embedding_loss ctc_loss"
    # activations
    " silu mish softplus elu selu celu hardswish hardsigmoid hardtanh relu6 leaky_relu log_sigmoid"
    # linear algebra that raises where a matrix is singular: taken apart, the check is an effect that a graph does not
    # hold
    " linalg_cholesky linalg_inv linalg_ldl_factor linalg_lu_factor linalg_solve linalg_eig linalg_eigvals"
    " linalg_tensorinv inverse"
    # structure that algebraic passes look for
    " tril triu diag_embed eye arange linspace masked_fill all index_add select_scatter"
    # of gradients that forward itself computes: taken apart, an overflow in 16 bits becomes another one
    " _softmax_backward_data _log_softmax_backward_data"
    # draws: a decomposition would take different numbers from the generator
    " bernoulli"
).split()


@functools.cache
def _table() -> Any:
    table = torch.export.default_decompositions()
    kept = {f"aten::{name}" for name in KEPT}
    for op in [op for op in table.keys() if op._schema.name in kept]:
        table.pop(op)
    unpooled = {op: table[op] for op in (aten.max_unpool2d.default, aten.max_unpool3d.default) if op in table}
    for op, function in {**OWN, **{op: _unpooling(unpooled, op) for op in unpooled}}.items():
        table[op] = function
    return table


def table() -> Any:
    """The decomposition table for ExportedProgram.run_decompositions."""
    return _table().copy()


def _convolution_with_named_padding(convolution: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def decomposed(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: str = "valid",
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        dims = weight.dim() - 2
        strides, dilations = _one_each(stride, dims), _one_each(dilation, dims)
        if padding == "valid":
            return convolution(input, weight, bias, strides, [0] * dims, dilations, groups)
        total = [dilations[axis] * (weight.shape[2 + axis] - 1) for axis in range(dims)]
        # An even window has one more cell to pad on the right than on the left.
        odd = [amount % 2 for amount in total]
        if any(odd):
            widths = [width for extra in reversed(odd) for width in (0, extra)]
            input = aten.constant_pad_nd(input, widths, 0.0)
        return convolution(input, weight, bias, strides, [amount // 2 for amount in total], dilations, groups)

    return decomposed


def _one_each(value: int | list[int], dims: int) -> list[int]:
    """A setting for each spatial dimension, where the schema allows one number for all."""
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if src.dtype != self.dtype or src.device != self.device:
        src = aten._to_copy(src, dtype=self.dtype, device=self.device)
    return _laid_out_like(self, aten.expand(src, list(self.shape)))


def _laid_out_like(self: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """A copy of `src` that lies in memory as `self` does, which decides whether a later reshape is a view of it."""
    if self.is_contiguous():
        return aten.clone(src, memory_format=torch.contiguous_format)
    order = sorted(range(self.dim()), key=lambda dim: -self.stride(dim))
    dense = aten.clone(aten.permute(src, order), memory_format=torch.contiguous_format)
    return aten.permute(dense, [order.index(dim) for dim in range(self.dim())])


def _scatter_into_whole(scatter: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A part of an expanded tensor is written to a copy that has each element once; in PyTorch before 2.13 the result
    is said to share elements as the expanded tensor does.
    """

    def decomposed(self: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if not any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride())):
            return NotImplemented
        return scatter(aten.clone(self, memory_format=torch.contiguous_format), *rest, **named)

    return decomposed


def _index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """PyTorch's own, before 2.13, keeps the layout by a copy in place, which a graph cannot hold."""
    whole = self if self.dim() else aten.unsqueeze(self, 0)
    dim %= whole.dim()
    if not isinstance(value, torch.Tensor):
        value = aten.scalar_tensor(value, dtype=self.dtype, device=self.device)
    place = index if index.dim() else aten.unsqueeze(index, 0)
    part = [place.numel() if axis == dim else size for axis, size in enumerate(whole.shape)]
    filled = aten.index_put(whole, [None] * dim + [place], aten.expand(value, part))
    if not self.dim():
        return aten.clone(aten.squeeze(filled, 0))
    return filled if filled.stride() == self.stride() else _laid_out_like(self, filled)


def _batch_norm(norm: Callable[..., Any]) -> Callable[..., Any]:
    """On the CPU the result is contiguous or channels-last whatever the input is; the fake kernel keeps any dense
    input's strides.
    """

    def decomposed(input: torch.Tensor, *rest: Any) -> Any:
        formats = (
            torch.contiguous_format,
            *({4: (torch.channels_last,), 5: (torch.channels_last_3d,)}.get(input.dim(), ())),
        )
        if input.device.type != "cpu" or any(input.is_contiguous(memory_format=one) for one in formats):
            return NotImplemented
        return norm(input.contiguous(), *rest)

    return decomposed


def _conjugate(self: torch.Tensor) -> torch.Tensor:
    return aten.conj_physical(self) if self.is_complex() else self


def _channel_shuffle(self: torch.Tensor, groups: int) -> torch.Tensor:
    """A new tensor also where nothing moves: PyTorch's decomposition returns the input's memory there."""
    if not self.is_contiguous() or self.numel() == 0:
        return NotImplemented
    split = aten.view(self, [self.shape[0], groups, self.shape[1] // groups, *self.shape[2:]])
    shuffled = aten.clone(aten.transpose(split, 1, 2), memory_format=torch.contiguous_format)
    return aten.view(shuffled, list(self.shape))


def _unpooling(table: Any, op: Any) -> Callable[..., Any]:
    """PyTorch's own decomposition for inputs that are contiguous; of others its kernel keeps the layout, and the
    decomposition does not."""

    def decomposed(self: torch.Tensor, *rest: Any) -> Any:
        return table[op](self, *rest) if self.is_contiguous() else NotImplemented

    return decomposed


def _sgn(self: torch.Tensor) -> Any:
    """The sign of real numbers; of complex ones it is the library's, infinities and all."""
    return NotImplemented if self.is_complex() else aten.sign(self)


# Ops that PyTorch's table leaves whole or takes apart badly.
OWN: dict[Any, Callable[..., Any]] = {
    # Views that mark a tensor as conjugate or negative instead of computing: what reads such memory as it lies misses
    # the mark.
    aten._conj.default: _conjugate,
    aten._neg_view.default: aten.neg.default,
    aten.conv1d.padding: _convolution_with_named_padding(aten.conv1d.default),
    aten.conv2d.padding: _convolution_with_named_padding(aten.conv2d.default),
    aten.conv3d.padding: _convolution_with_named_padding(aten.conv3d.default),
    aten.channel_shuffle.default: _channel_shuffle,
    aten.copy.default: _copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
    **{
        op: _scatter_into_whole(op)
        for op in (aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default)
    },
    aten.sgn.default: _sgn,
    aten._native_batch_norm_legit_functional.default: _batch_norm(aten._native_batch_norm_legit_functional.default),
    aten._native_batch_norm_legit_no_training.default: _batch_norm(aten._native_batch_norm_legit_no_training.default),
}
