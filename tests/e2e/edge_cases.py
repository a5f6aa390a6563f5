"""Inputs at the edges of what tensors may hold and how they may lie, and how a candidate for them is held against
eager.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable

import torch
import torch.nn.functional as F

from kernelwright.judge.ties import Ties
from kernelwright.running import problem

NAN, INF = float("nan"), float("inf")


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Edge:
    """`exact`: every bit is PyTorch's, signs of zeros too; only for operators whose result IEEE 754 and PyTorch's own
    definition leave no choice in, on any processor. Others are held to eager's error, and with `zero_signs` to the
    signs of its zeros. `ours`: no library call may be left. `on_gpu`: the bits that PyTorch's CUDA kernels leave, where
    they are others than its CPU kernels'.
    """

    function: Callable[..., Any]
    inputs: Callable[[], list[torch.Tensor]]
    exact: bool = False
    zero_signs: bool = False
    ours: bool = True
    on_gpu: Callable[..., Any] | None = None

    def module(self, on_gpu: bool = False) -> torch.nn.Module:
        return Call(self.on_gpu if on_gpu and self.on_gpu else self.function)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def whole(*shape: int, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def special_rows(width: int = 37) -> torch.Tensor:
    """Rows that are NaN, +inf, -inf, both infinities, or ordinary but for one such number."""
    x = normal(10, width)
    x[0], x[1], x[2] = NAN, INF, -INF
    x[3, ::2], x[3, 1::2] = INF, -INF
    x[4, 5], x[5, 6], x[6, 0] = NAN, INF, -INF
    x[7, 3], x[7, 4] = NAN, INF
    return x


def signed_zeros() -> torch.Tensor:
    return torch.tensor([0.0, -0.0, 1.5, -1.5, 0.3, -0.3, 0.5, -0.5, 2.5, -2.5, 1e-42, -1e-42, INF, -INF, NAN])


def subnormals() -> torch.Tensor:
    exponents = torch.linspace(-149, -120, 60)
    magnitudes = torch.pow(2.0, exponents.double()).float()
    return torch.cat([magnitudes, -magnitudes, torch.tensor([1e-45, -1e-45, 1.1754944e-38, 1.1754942e-38])])


def integers(dtype: torch.dtype) -> list[torch.Tensor]:
    """Every pair of the extremes and their neighbours."""
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100], dtype=dtype)
    if info.min < 0:
        values = torch.cat([values, torch.tensor([-1, -2, -7], dtype=dtype)])
    return [values.repeat_interleave(len(values)), values.repeat(len(values))]


def ties(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return whole(29, 83, low=0, high=4, dtype=dtype)


def scattered(offset_beyond: int = 1 << 30) -> list[torch.Tensor]:
    """Four rows, each more than 2**30 bytes behind the last. Memory that is never touched costs nothing."""
    stride = offset_beyond + 5
    memory = torch.empty(3 * stride + 64, dtype=torch.uint8)
    x = memory.as_strided((4, 64), (stride, 1))
    x.copy_(whole(4, 64, low=0, high=256, dtype=torch.uint8))
    return [x]


def misaligned(rows: int, columns: int, offset: int) -> torch.Tensor:
    return normal(rows * columns + offset)[offset:].view(rows, columns)


def reductions(x: torch.Tensor, dim: int = -1) -> list[torch.Tensor]:
    return [
        x.sum(dim),
        x.mean(dim),
        x.amax(dim),
        x.amin(dim),
        x.argmax(dim),
        x.argmin(dim),
        x.logsumexp(dim),
        x.softmax(dim),
        x.log_softmax(dim),
    ]


def pointwise_zeros(x: torch.Tensor) -> list[torch.Tensor]:
    """Not relu and clamp: the sign of the zero that they choose differs between PyTorch's own devices. Not roots: on
    some processors PyTorch takes MKL's, which are off by a unit in the last place.
    """
    return [
        -x, x.abs(), x + 0.0, x * -1.0, x * 0.0, x.round(), x.ceil(), x.floor(), x.trunc(), x.sign(), 1.0 / x,
        x.neg().neg(), x == 0, x.clone(), F.leaky_relu(x, 0.5), x.to(torch.float16), x.double(),
    ]  # fmt: skip


def roots(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.sqrt(), x.abs().sqrt(), x.rsqrt(), -x.abs().sqrt()]


def pointwise_subnormals(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x + x,
        x * 0.5,
        x * 2.0,
        x * 4e38,
        x.abs().sqrt(),
        torch.relu(x),
        x.abs().log(),
        x.sigmoid(),
        x.tanh(),
        x.expm1(),
        x.log1p(),
        x.sin(),
        x / 3.0,
        x.double(),
    ]


def integer_arithmetic(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [
        x + y,
        x - y,
        x * y,
        -x,
        x.abs(),
        x * 3 + 1,
        x & y,
        x | y,
        x ^ y,
        x > y,
        torch.maximum(x, y),
        torch.minimum(x, y),
        x.float(),
        x.square(),
    ]


def integer_division(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    # PyTorch itself dies of the smallest integer divided by -1.
    y = torch.where((y == 0) | (y == -1), 1, y) if x.dtype.is_signed else torch.where(y == 0, 1, y)
    return [
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        x % y,
        torch.fmod(x, y),
        x / y,
    ]


def integer_sums(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x.sum(), x.prod(), x.amax(), x.argmin(), x.sum(dtype=x.dtype), (x * y).sum()]


EDGES: dict[str, Edge] = {
    # lengths of 0 and 1
    "empty_pointwise": Edge(lambda x: [torch.relu(x), x + 1], lambda: [normal(0, 8)], exact=True, ours=False),
    "empty_reduced": Edge(lambda x: [x.sum(0), x.prod(0), x.mean(0), x.any(0), x.all(0), x.sum()], lambda: [normal(0, 8)], exact=True, ours=False),
    "empty_kept": Edge(lambda x: [x.amax(1), x.argmax(1), x.softmax(1), x.var(1)], lambda: [normal(0, 8)], exact=True, ours=False),
    "empty_softmax": Edge(lambda x: x.softmax(1), lambda: [normal(4, 0)], exact=True, ours=False),
    "empty_cat": Edge(lambda x, y: torch.cat([x, y], 1) * 2, lambda: [normal(4, 0), normal(4, 3)], exact=True, ours=False),
    "empty_norm": Edge(lambda x: F.layer_norm(x, (16,)), lambda: [normal(0, 16)], exact=True, ours=False),
    "one_reduced": Edge(reductions, lambda: [normal(5, 1)]),
    "one_row": Edge(lambda x: reductions(x, 0), lambda: [normal(1, 5)]),
    "one_variance": Edge(lambda x: [x.var(1), x.var(1, unbiased=False), x.std(1)], lambda: [normal(5, 1)]),
    "one_element": Edge(lambda x: [x.sum(), x.softmax(0), x.exp(), x.argmax(0)], lambda: [torch.tensor(0.7)]),
    "ones_everywhere": Edge(lambda x: [x.sum((0, 2)), x.amax((1, 3)), x * 2], lambda: [normal(1, 3, 1, 1)]),
    # products of nothing, which are zeros, and products in a batch of none
    "empty_depth": Edge(
        lambda x, w, b: [torch.relu(x @ w), torch.addmm(b, x, w) + 1, torch.addmm(b, x, w, beta=0), F.linear(x, w.t(), b) * 2, x @ w[:, 0]],
        lambda: [normal(7, 0), normal(0, 5), normal(5)], exact=True, ours=False,
    ),
    "empty_depth_of_batches": Edge(
        lambda x, w, b: [torch.bmm(x, w).exp(), torch.baddbmm(b, x, w, beta=2.0), torch.einsum("bij,bjk->bki", x, w) - 1],
        lambda: [normal(3, 7, 0), normal(3, 0, 5), normal(3, 7, 5)], exact=True, ours=False,
    ),
    "empty_rows_of_products": Edge(
        lambda x, w, b: [F.linear(x, w, b) * 2, torch.relu(x @ w.t()), F.linear(x, w, b).sum(0), torch.softmax(x @ w.t(), -1)],
        lambda: [normal(0, 6), normal(5, 6), normal(5)], exact=True, ours=False,
    ),
    "empty_batch_of_products": Edge(
        lambda x, w: [torch.bmm(x, w) + 1, torch.matmul(x, w[:, :, :0]), torch.bmm(x, w).sum((0, 1))],
        lambda: [normal(0, 7, 4), normal(0, 4, 5)], exact=True, ours=False,
    ),
    "empty_attention": Edge(
        lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, lambda: [normal(0, 2, 9, 4), normal(0, 2, 9, 4), normal(0, 2, 9, 4)], exact=True, ours=False,
    ),
    "empty_batch_of_convolutions": Edge(
        lambda x, w, b, t: [
            F.conv2d(x, w, b, padding=1).relu(), F.conv_transpose2d(x, t, stride=2) * 2, F.conv2d(x, w, b).amax(1), F.conv1d(x[:, :, 0], w[:, :, 0], b) + 1,
            F.batch_norm(F.conv2d(x, w, b), b, b.abs(), b, b).relu(), F.group_norm(F.conv2d(x, w), 2), F.max_pool2d(F.conv2d(x, w), 2),
        ],
        lambda: [normal(0, 3, 6, 7), normal(4, 3, 3, 3), normal(4), normal(3, 4, 2, 2)], exact=True, ours=False,
    ),
    # products of whole numbers, which wrap around
    **{
        f"product_{str(dtype).removeprefix('torch.')}": Edge(
            lambda x, w, b: [x @ w, torch.mm(x, w) * 3 + 1, torch.bmm(x[None], w[None]).sum(1), torch.addmm(b, x, w), torch.mv(x, w[:, 0])],
            lambda dtype=dtype: [whole(*shape, low=0, high=1 << 31, dtype=torch.int64).to(dtype) for shape in ((13, 17), (17, 11), (11,))],
            exact=True, ours=False,
        )
        for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    },
    # prime sizes
    "prime_rows": Edge(reductions, lambda: [normal(7, 1009)]),
    "prime_columns": Edge(lambda x: reductions(x, 0), lambda: [normal(1009, 7)]),
    "prime_middle": Edge(lambda x: [x.sum(1), x.softmax(1), x.argmin(1), x.var((0, 2))], lambda: [normal(13, 17, 19)]),
    "prime_long": Edge(lambda x: [x.sum(1), x.amax(1), F.layer_norm(x, (10007,))], lambda: [normal(3, 10007)]),
    "prime_broadcast": Edge(lambda x, y: x * y + torch.exp(y), lambda: [normal(31, 1, 37), normal(29, 1)]),
    # beyond 2**31
    "offsets_beyond_32_bits": Edge(lambda x: [x + 1, x.amax(1), x.sum(0)], scattered, exact=True),
    # rows of nothing but NaN or infinity
    "special_reductions": Edge(reductions, lambda: [special_rows()]),
    "special_columns": Edge(lambda x: reductions(x, 0), lambda: [special_rows().t().contiguous()]),
    "special_long_rows": Edge(reductions, lambda: [special_rows(2503)]),
    "special_norms": Edge(
        lambda x: [F.layer_norm(x, (37,)), x.var(1), torch.linalg.vector_norm(x, dim=1), F.normalize(x, dim=1), x.prod(1), x.std(1)], lambda: [special_rows()]
    ),
    "special_whole": Edge(lambda x: [x.sum(), x.amax(), x.argmax(), x.logsumexp((0, 1))], lambda: [special_rows()]),
    "special_logic": Edge(lambda x: [x.any(1), x.all(1), x.isnan().any(1), x.isfinite().all(1), (x > 0).sum(1)], lambda: [special_rows()], exact=True),
    "special_clamps": Edge(
        lambda x: [x.clamp(-1, 1), x.clamp(min=0), torch.maximum(x, x.flip(1)), torch.fmax(x, x.flip(1)), torch.nan_to_num(x), x.relu(), F.hardtanh(x), F.relu6(x)],
        lambda: [special_rows()],
        exact=True,
    ),
    # ties
    "ties_rows": Edge(lambda x: [x.argmax(1), x.argmin(1)], lambda: [ties()], exact=True),
    "ties_columns": Edge(lambda x: [x.argmax(0), x.argmin(0)], lambda: [ties()], exact=True),
    "ties_whole": Edge(lambda x: [x.argmax(), x.argmin()], lambda: [ties()], exact=True),
    "ties_integers": Edge(lambda x: [x.argmax(1), x.argmin(0)], lambda: [ties(torch.int32)], exact=True),
    "ties_half": Edge(lambda x: [x.argmax(1), x.argmin(0)], lambda: [ties(torch.bfloat16)], exact=True),
    "ties_of_nan": Edge(lambda x: [x.argmax(1), x.argmin(1)], lambda: [torch.where(ties() == 3, NAN, ties())], exact=True),
    "ties_of_zeros": Edge(lambda x: [x.argmax(1), x.argmin(1)], lambda: [torch.where(ties() > 1, 0.0, -0.0)], exact=True),
    "ties_long": Edge(lambda x: [x.argmax(1), x.argmin(1)], lambda: [whole(3, 40009, low=0, high=3, dtype=torch.float32)], exact=True),
    "ties_values": Edge(lambda x: [*x.max(1), *x.min(1)], lambda: [ties()], exact=True, ours=False),
    "ties_topk": Edge(lambda x: list(torch.topk(x * 2, 5, dim=1)), lambda: [ties()], exact=True, ours=False),
    # rows longer than a multiprocessor's memory
    "long_softmax": Edge(lambda x: x.softmax(1), lambda: [normal(2, 300007)]),
    "long_layer_norm": Edge(lambda x: F.layer_norm(x, (300007,)), lambda: [normal(2, 300007)]),
    "long_sums": Edge(lambda x: [x.sum(1), x.logsumexp(1), x.var(1)], lambda: [normal(2, 300007)]),
    # cut into parts of which the last is shorter
    "uneven_parts": Edge(lambda x: [x.abs().sum(), x.norm(), x.amax(), x.amin(), (x > 9).any(), (x.exp() + 1).sum()], lambda: [normal(100003)]),
    "uneven_parts_of_columns": Edge(lambda x: [(x + 1).sum(0), x.amin(0), x.norm(dim=0)], lambda: [torch.cat([normal(4089, 37), special_rows(37)])]),
    "long_whole": Edge(lambda x: x * (x.square().mean() + 1e-6).rsqrt(), lambda: [normal(600011)]),
    # how tensors lie in memory
    "misaligned_pointwise": Edge(lambda x: torch.tanh(x) * 2, lambda: [misaligned(33, 257, 1)]),
    "misaligned_rows": Edge(lambda x: [x.softmax(1), x.sum(0)], lambda: [misaligned(33, 257, 3)]),
    "misaligned_columns": Edge(lambda x: [x[:, 1:].softmax(1), x[:, 1:] + x[:, :-1], x[1:].sum(0)], lambda: [normal(33, 258)]),
    "strided_rows": Edge(lambda x: [x.softmax(1), x * 2], lambda: [normal(64, 129)[::3, ::2]]),
    "transposed": Edge(lambda x: [x.softmax(1), x.sum(0), x + 1], lambda: [normal(70, 45).t()]),
    "overlapping_rows": Edge(lambda x: [x.sum(1), x.softmax(1), x * 2], lambda: [normal(66).as_strided((20, 9), (3, 1))]),
    "overlapping_all": Edge(lambda x: [x.sum(0), x + x.flip(0)], lambda: [normal(64).as_strided((20, 9), (1, 1))]),
    "expanded": Edge(lambda x: [x.sum(0), x.sum(1), x.exp(), x.softmax(1)], lambda: [normal(1, 65).expand(33, 65)]),
    "expanded_columns": Edge(lambda x: [x.sum(0), x.sum(1), x.exp(), x.softmax(0)], lambda: [normal(33, 1).expand(33, 65)]),
    "products_that_overlap": Edge(
        lambda x: [torch.relu(x @ x.t()), x @ x[:9], torch.addmm(x[:, 0], x, x.t())], lambda: [normal(66).as_strided((20, 9), (3, 1))], ours=False,
    ),
    "products_of_every_second": Edge(
        lambda x, w: [torch.tanh(x[:, ::2] @ w), F.linear(x[::3, 1::2], w.t()[:, ::1])], lambda: [normal(31, 34), normal(51, 23)[::3]], ours=False,
    ),
    "products_of_expanded": Edge(
        lambda x, w: [x @ w, (x @ w).relu(), torch.bmm(x.expand(3, 9, 33), w.expand(3, 33, 7))], lambda: [normal(1, 33).expand(9, 33), normal(33, 1).expand(33, 7)], ours=False,
    ),
    "products_of_matrices_of_kinds": Edge(
        lambda a, b: [a.tril() @ b.triu(), (torch.diag(a[0]) @ b).relu(), a @ torch.diag(b[1]), (a + a.t()) @ b, a.tril(1).triu(-1) @ b, torch.eye(33, dtype=a.dtype) @ a],
        lambda: [normal(33, 33), normal(33, 33)], ours=False,
    ),
    "channels_last": Edge(lambda x: [x.mean((2, 3)), x.softmax(1), x * 2], lambda: [normal(2, 5, 7, 3).to(memory_format=torch.channels_last)]),
    # signs of zeros, and numbers too small to be normal
    "negative_zero": Edge(pointwise_zeros, lambda: [signed_zeros()], exact=True),
    "negative_zero_double": Edge(pointwise_zeros, lambda: [signed_zeros().double()], exact=True),
    "negative_zero_roots": Edge(roots, lambda: [signed_zeros()], zero_signs=True),
    "negative_zero_double_roots": Edge(roots, lambda: [signed_zeros().double()], zero_signs=True),
    "negative_zero_half": Edge(lambda x: [-x, x.abs(), x * -1.0, x.round(), x.clone(), x.float()], lambda: [signed_zeros().half()], exact=True),
    "subnormals": Edge(pointwise_subnormals, lambda: [subnormals()]),
    "subnormal_sums": Edge(lambda x: [x.sum(1), x.amax(1), x.abs().amin(1), x.mean(1)], lambda: [subnormals().reshape(4, -1)]),
    "subnormal_halves": Edge(lambda x: [x * 0.5, x + x, x.float(), x.sum()], lambda: [(normal(999) * 1e-6).half()]),
    # integers that overflow, as PyTorch has it
    **{
        f"{name}_{str(dtype).removeprefix('torch.')}": Edge(function, lambda dtype=dtype: integers(dtype), exact=True)
        for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
        for name, function in (("overflow", integer_arithmetic), ("division", integer_division), ("sums", integer_sums))
    },
    # 16-bit inputs whose sums are beyond their range
    "half_sum_overflows": Edge(lambda x: [x.sum(1), x.mean(1), x.float().sum(1), x.sum()], lambda: [torch.full((3, 40009), 2.0).half()]),
    "half_squares_overflow": Edge(
        lambda x: [x.square().mean(1), torch.linalg.vector_norm(x, dim=1), x.var(1), x.softmax(1), F.layer_norm(x, (1021,))], lambda: [(normal(5, 1021) * 300).half()]
    ),
    "half_largest": Edge(lambda x: [x + x, x * 2, x.amax(1), x.softmax(1), x.logsumexp(1)], lambda: [torch.tensor([[65504.0, 1.0, -65504.0], [65504.0] * 3]).half()]),
    "bfloat_sum": Edge(lambda x: [x.sum(1), x.mean(1)], lambda: [torch.full((3, 40009), 1.0).bfloat16()]),
    # 8-bit floats, rounded half to even. Beyond 448 PyTorch before 2.12 has NaN and now 448, so that a module has to
    # clamp first to mean the same
    **{
        f"to_{name}": Edge(lambda x, dtype=dtype: [x.clamp(-448, 448).to(dtype) if dtype == torch.float8_e4m3fn else x.to(dtype), (x.clamp(-500, 500) * 0.37).to(dtype).float(), (-x.abs()).clamp(min=-448).to(dtype).to(torch.bfloat16)], lambda: [eight_bit_range()], exact=True)
        for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2))
    },
    **{
        f"from_{name}": Edge(
            lambda x: [x.float() * 3, x.to(torch.float16), x.reshape(16, 16).t().float().amax(1), torch.cat([x, x])],
            lambda dtype=dtype: [torch.arange(256, dtype=torch.uint8).view(dtype)],
            exact=True,
        )
        for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2))
    },
    # quantisation by a module's own arithmetic
    "quantise_ties": Edge(
        lambda x: [torch.round(x / 0.5).clamp(-128, 127).to(torch.int8), (x * 2 + 3).clamp(0, 255).round().to(torch.uint8), torch.round(x, decimals=0)],
        lambda: [torch.arange(-1000, 1000) * 0.25],
        exact=True,
    ),
    "quantise_rows": Edge(
        lambda x: (torch.round(x / (x.abs().amax(1, keepdim=True) / 127)).to(torch.int8), x.abs().amax(1, keepdim=True) / 127), lambda: [normal(33, 1021)], exact=True,
        on_gpu=lambda x: (torch.round(x / over(x.abs().amax(1, keepdim=True), 127)).to(torch.int8), over(x.abs().amax(1, keepdim=True), 127)),
    ),
    "over_numbers": Edge(
        lambda x: [x / 127, x / 0.3, x / 3e38, x / 1e-45, x / 0.0, torch.floor(x / 0.1), (x.half() / 7).float() > 0.1, x.double() / 3],
        lambda: [torch.cat([normal(5000), signed_zeros(), subnormals()])], exact=True,
        on_gpu=lambda x: [over(x, 127), over(x, 0.3), over(x, 3e38), over(x, 1e-45), over(x, 0.0), torch.floor(over(x, 0.1)), over(x.half().float(), 7).half().float() > 0.1,
                          x.double() * (1 / 3)],
    ),
    "minus_zero": Edge(
        lambda x: [torch.where(x > 0, x, -0.0), torch.where(x > 0, x.double(), -0.0), x.masked_fill(x > 0, -0.0), F.pad(x, (1, 2), value=-0.0),
                   torch.where(x > 0, x.half(), -0.0)],
        lambda: [signed_zeros()], exact=True,
    ),
}  # fmt: skip


def over(x: torch.Tensor, number: float) -> torch.Tensor:
    """A tensor over a number in PyTorch's CUDA kernels: times the reciprocal."""
    return x * (torch.tensor(1.0, dtype=x.dtype) / torch.tensor(number, dtype=x.dtype))


def eight_bit_range() -> torch.Tensor:
    """Numbers around every 8-bit float, halves between neighbours among them, and what neither format holds."""
    codes = torch.arange(256, dtype=torch.uint8)
    values = torch.cat([codes.view(dtype).float() for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)])
    values = values[values.isfinite()].unique()
    middles = (values[1:] + values[:-1]) / 2
    near = [middles.nextafter(torch.full_like(middles, bound)) for bound in (INF, -INF)]
    extremes = torch.tensor(
        [
            448.0,
            463.9,
            464.0,
            464.1,
            479.9,
            480.0,
            57344.0,
            61439.9,
            61440.0,
            65536.0,
            3e38,
            1e-45,
            1e-40,
            INF,
            NAN,
            -0.0,
        ]
    )
    return torch.cat([values, middles, *near, extremes, -extremes])


def check(edge: Edge, candidate: ModuleType, on_gpu: bool = False) -> None:
    """Asserts that the candidate computes what eager does (`on_gpu`: on a GPU), without falling back to it."""
    module, inputs = edge.module(on_gpu), edge.inputs()
    ours = candidate.ModelNew(copy.copy(module))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to the original would warn
        warnings.filterwarnings("ignore", message=".*degrees of freedom")
        actual = _leaves(ours(*inputs))
        # Where eager leaves ties open, equals stand as they stood in our kernels; a topk is the library's on a CPU.
        with Ties(as_they_stand=True) if on_gpu else contextlib.nullcontext():
            eager = _leaves(module(*inputs))
        with Ties(as_they_stand=True) if on_gpu else contextlib.nullcontext():
            reference = _leaves(module(*(_widened(one) for one in inputs)))
    assert len(actual) == len(eager)
    for index, (mine, theirs, exact) in enumerate(zip(actual, eager, reference)):
        where = f"output {index}"
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), where
        assert _strides(mine) == _strides(theirs), f"{where}: strides {mine.stride()}, eager's {theirs.stride()}"
        if edge.exact or not mine.dtype.is_floating_point:
            wrong = _bits(mine) != _bits(theirs)
            assert not wrong.any(), (
                f"{where}: {int(wrong.sum())} of {wrong.numel()}: ours {_some(mine, wrong)}, eager's {_some(theirs, wrong)}"
            )
            continue
        mine, theirs, exact = mine.double(), theirs.double(), exact.double()
        apart = (mine.isnan() != theirs.isnan()) | (mine.isinf() != theirs.isinf()) | (mine.isinf() & (mine != theirs))
        assert not apart.any(), f"{where}: ours {_some(mine, apart)}, eager's {_some(theirs, apart)}"
        if edge.zero_signs:
            wrong = (mine == 0) & (theirs == 0) & (mine.signbit() != theirs.signbit())
            assert not wrong.any(), (
                f"{where}: signs of zeros: ours {_some(mine, wrong)}, eager's {_some(theirs, wrong)}"
            )
        finite = theirs.isfinite() & exact.isfinite()
        scale = exact[finite].abs().max().item() if finite.any() else 0.0
        epsilon = torch.finfo(eager[index].dtype).eps
        errors = [(one - exact)[finite].abs().max().item() if finite.any() else 0.0 for one in (mine, theirs)]
        assert errors[0] <= 2 * errors[1] + 4 * epsilon * scale + 1e-45, (
            f"{where}: error {errors[0]:.3g}, eager's {errors[1]:.3g}, largest value {scale:.3g}"
        )


def _leaves(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() and tensor.itemsize > 1 else tensor


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1 and tensor.numel() > 0]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """What must agree in an exact comparison: every bit, with all NaN alike."""
    if not tensor.dtype.is_floating_point:
        return tensor
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
    nan = tensor.float().isnan() if tensor.itemsize < 8 else tensor.isnan()
    return torch.where(nan, 1, tensor.contiguous().view(integer))


def _some(tensor: torch.Tensor, where: torch.Tensor) -> list[Any]:
    return (tensor.float() if tensor.itemsize == 1 and tensor.dtype.is_floating_point else tensor)[where][:5].tolist()


def interpreted(request: dict[str, str]) -> None:
    """{"edge": name, "candidate": path}, in Triton's interpreter."""
    check(EDGES[request["edge"]], problem.load_module(request["candidate"], kind="candidate")[0], on_gpu=True)
