"""What a harvest of ordinary code (bench/harvest.py) found wrong: each case right through capture and compiler, fused
and in library calls.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from case_checks import load
from movement_cases import Wrapped
from torch.utils import _pytree as pytree

from kernelwright import errors, library
from kernelwright.capture import export

aten = torch.ops.aten


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def whole(*shape: int, low: int = -1, high: int = 2, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def every_second(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.repeat_interleave(2, -1)[..., ::2]


def regular() -> torch.Tensor:
    """Matrices that are symmetric and positive definite."""
    return numbers(3, 5, 5) @ numbers(3, 5, 5).mT + 5 * torch.eye(5)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a conjugate's imaginary part": (lambda x: torch.view_as_complex(x).conj().imag * 2, (numbers(3, 5, 2),)),
    "a tensor marked as negative": (lambda x: aten._neg_view(x) + 1, (every_second(whole(4, 6)),)),
    "a Hermitian transform": (lambda x: torch.fft.hfft2(x) * 2, (numbers(3, 4, 5),)),
    "an inverse transform of real numbers": (lambda x: torch.fft.ifft(x), (numbers(3, 4, 5),)),
    "bits of another type": (lambda x: (x * 2).view(torch.int32) + 1, (numbers(4, 6),)),
    "rows behind each other, few columns": (lambda x, y: torch.cat([x, y]), (numbers(4, 6, dtype=torch.float16),) * 2),
    "a size among the results": (lambda x: (x * 2, x.shape[1:]), (numbers(2, 3, 4),)),
    "a loss of whole numbers": (
        lambda x, y, t: F.cosine_embedding_loss(x, y, t, 0.5),
        (whole(5, 5), whole(5, 5) + 1, whole(5).sign() | 1),
    ),
    "a ranking loss of whole numbers": (
        lambda x, y, t: F.margin_ranking_loss(x, y, t),
        (whole(5), -whole(5), whole(5) | 1),
    ),
    "a Poisson loss of counts": (
        lambda x, t: F.poisson_nll_loss(x, t, full=True),
        (numbers(4, 6), whole(4, 6, low=1, high=9)),
    ),
    "a convolution of no channels": (lambda x, w: F.conv2d(x, w), (numbers(2, 0, 6, 6), numbers(2, 0, 3, 3))),
    "a linear system": (lambda x, y: torch.linalg.solve(x * 2, y) + 1, (regular(), numbers(3, 5, 2))),
    "an inverse": (lambda x: torch.linalg.inv(x * 2) + 1, (regular(),)),
    "an inverse by its older name": (lambda x: torch.inverse(x), (regular(),)),
    "an inverse of a tensor": (
        lambda x: torch.linalg.tensorinv(x.view(2, 3, 6), ind=2),
        (numbers(6, 6) + 6 * torch.eye(6),),
    ),
    "a Cholesky factor": (lambda x: torch.linalg.cholesky(x * 2) + 1, (regular(),)),
    "a QR factorisation": (lambda x: torch.linalg.qr(x * 2).R + 1, (regular(),)),
    "an LU factorisation": (lambda x: torch.linalg.lu_factor(x * 2), (regular(),)),
    "an LDL factorisation": (lambda x: torch.linalg.ldl_factor(x * 2), (regular(),)),
    "a likelihood that factorises": (
        lambda x, y: torch.distributions.MultivariateNormal(y, covariance_matrix=x, validate_args=False).log_prob(
            y * 2
        ),
        (regular(), numbers(3, 5)),
    ),
    "bits of a narrower type": (lambda x: (x * 2).view(torch.int8), (numbers(4, 6),)),
    "channels shuffled in groups of one": (lambda x: torch.channel_shuffle(x, 3), (numbers(2, 3, 4, 4),)),
    "a list of one": (lambda x: aten.split_copy.Tensor(x, 4), (numbers(4, 3),)),
    "a list of one, from a library of one's own": (
        lambda x: torch.ops.kernelwright_tests.halves(x * 2, 1),
        (numbers(4, 3),),
    ),
    "updates of lists of one": (lambda x, y: torch._foreach_mul([x], [y])[0] + 1, (numbers(4, 3), numbers(4, 3) + 1)),
    "unpooled rows that lie apart": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        (numbers(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),),
    ),
    "the signs of infinite complex numbers": (
        lambda x: torch.sgn(torch.complex(x, x * 2)),
        (torch.tensor([1.0, float("inf"), 0.0, float("nan"), -2.0]),),
    ),
    "a complex constant": (lambda x: torch.complex(x, x) * torch.tensor(2.0 + 1.0j), (numbers(4, 6),)),
    "complex constants in double precision": (
        lambda x: torch.complex(x, x) * torch.tensor([[2.0 + 1.0j], [float("inf") - 1.0j]], dtype=torch.complex128),
        (numbers(2, 6),),
    ),
    "signs by their other name": (lambda x: torch.sgn(x) * 2, (numbers(4, 6),)),
    "channels shuffled": (lambda x: torch.channel_shuffle(x * 2, 2), (numbers(2, 6, 4, 4),)),
}


@torch.library.custom_op("kernelwright_tests::halves", mutates_args=())
def halves(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [x / 2 + at for at in range(count)]


@halves.register_fake
def _(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [torch.empty_like(x) for _ in range(count)]


def shares(result: torch.Tensor, arguments: tuple[torch.Tensor, ...]) -> bool:
    return any(
        result.untyped_storage().data_ptr() == one.untyped_storage().data_ptr() for one in arguments if one.numel()
    )


@pytest.mark.parametrize("caution", ["fused", "library"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, caution: str) -> None:
    function, arguments = CASES[name]
    module = Wrapped(function)
    with torch.no_grad():
        made = library.compile_graph(export.export_module(module, arguments), "cpu", caution)
        candidate = load(made["source"]).ModelNew(copy.deepcopy(module))
        given, for_eager = copy.deepcopy(arguments), copy.deepcopy(arguments)
        expected = function(*for_eager)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # running the original would warn
            result = candidate(*given)
    assert pytree.tree_structure(result) == pytree.tree_structure(expected)
    for ours, eager in zip(pytree.tree_leaves(result), pytree.tree_leaves(expected)):
        if not isinstance(eager, torch.Tensor):
            assert ours == eager
            continue
        assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape)
        assert [stride for size, stride in zip(ours.shape, ours.stride()) if size > 1] == [
            stride for size, stride in zip(eager.shape, eager.stride()) if size > 1
        ]
        torch.testing.assert_close(ours, eager, equal_nan=True)
        assert shares(ours, given) == shares(eager, for_eager)


def test_a_singular_matrix_raises_as_in_eager() -> None:
    module = Wrapped(lambda x: torch.linalg.inv(x) + 1)
    with torch.no_grad():
        source = library.compile_graph(export.export_module(module, (regular(),)), "cpu", "fused")["source"]
        candidate = load(source).ModelNew(copy.deepcopy(module))
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            candidate(torch.zeros(3, 5, 5))


def test_an_operator_with_an_effect_is_named() -> None:
    module = Wrapped(
        lambda x: (aten._linalg_check_errors(torch.linalg.inv_ex(x).info, "here", is_matrix=False), x + 1)[1]
    )
    with pytest.raises(errors.Error) as caught:
        export.export_module(module, (regular(),))
    assert caught.value.code == "unsupported-effect" and "_linalg_check_errors" in caught.value.message


@torch.library.custom_op("kernelwright_tests::tell", mutates_args=())
def tell(x: torch.Tensor) -> None:
    print(x.shape)


tell.register_fake(lambda x: None)


def test_an_operator_that_returns_nothing_is_named() -> None:
    module = Wrapped(lambda x: (tell(x), x + 1)[1])
    with pytest.raises(errors.Error) as caught:
        export.export_module(module, (regular(),))
    assert caught.value.code == "unsupported-effect" and "kernelwright_tests.tell" in caught.value.message


def test_a_part_that_is_resized_is_named() -> None:
    module = Wrapped(lambda x: (torch.cumsum(x, 0, out=x[None][:-1]), x)[1])
    with pytest.raises(errors.Error) as caught:
        export.export_module(module, (regular()[0],))
    assert caught.value.code == "resized-output" and "(5, 5)" in caught.value.message
