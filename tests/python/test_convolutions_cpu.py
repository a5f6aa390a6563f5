"""Convolutions of three by three taps as C++ kernels of ours, by Winograd's scheme: what PyTorch computes, also where
elements differ so much in size that the scheme would lose them, and planned where the model has them faster.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from case_checks import as_one_group, load
from contraction_cases import Case
from convolution_cases import conv, interpreted, padded, transposed
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export

Tensor = torch.Tensor


def _channels_last(drawn: list[Tensor]) -> list[Tensor]:
    return [drawn[0].contiguous(memory_format=torch.channels_last), *drawn[1:]]


def _residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w, b, padding=1) + r) * 0.5


def _normed(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.silu(F.conv2d(x, w, padding=1) * scale[:, None, None] + shift[:, None, None])


def _of_activation(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.silu(x), w, padding=1)


CASES = [
    Case("one_tile", conv(), ((1, 16, 4, 4), (16, 16, 3, 3))),
    Case("one_row", conv(padding=(1, 0)), ((2, 16, 1, 9), (16, 16, 3, 3), (16,))),
    Case("no_padding", conv(), ((2, 16, 8, 11), (20, 16, 3, 3), (20,))),
    Case("padding", conv(padding=1), ((3, 19, 12, 12), (16, 19, 3, 3), (16,))),
    Case("more_padding", conv(padding=(2, 3)), ((2, 16, 5, 6), (33, 16, 3, 3))),
    Case("odd_sides", conv(padding=1), ((2, 32, 13, 7), (16, 32, 3, 3))),
    Case("several_blocks", conv(padding=1), ((2, 40, 20, 18), (48, 40, 3, 3), (48,))),
    Case("channels_last", conv(padding=1), ((2, 16, 9, 10), (16, 16, 3, 3)), arrange=_channels_last),
    Case("transposed", transposed(padding=1), ((2, 16, 9, 10), (16, 18, 3, 3), (18,))),
    Case("residual", _residual, ((2, 16, 10, 12), (16, 16, 3, 3), (16,), (2, 16, 10, 12))),
    Case("normed", _normed, ((2, 16, 9, 12), (24, 16, 3, 3), (24,), (24,))),
    Case("reflected", padded("reflect", 1, 1, 1, 1), ((2, 16, 9, 12), (16, 16, 3, 3), (16,))),
    Case("repeated", padded("replicate", 2, 1, 0, 3), ((2, 16, 9, 12), (16, 16, 3, 3))),
    Case("round", padded("circular", 1, 2, 2, 1, padding=1), ((2, 16, 8, 11), (20, 16, 3, 3))),
    Case("of_activation", _of_activation, ((2, 16, 10, 12), (16, 16, 3, 3))),
]
BLOCKS: list[dict[str, int]] = [{}, {"block_channels": 16, "block_filters": 16, "block_places": 16}]


def emitted(function: Callable[..., Any], arguments: list[Tensor], parameters: dict[str, int]) -> str:
    made = as_one_group(Wrapped(function), arguments, "convolution", parameters, target="cpu")
    assert made["library_ops"] == []
    return made["source"]


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", BLOCKS, ids=["default", "small"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_convolutions_are_pytorchs(case: Case, parameters: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(emitted(case.function, case.arguments(), parameters))
    found = interpreted({"candidate": str(path), "case": case.name, "exact": True}, CASES)
    assert not found, found


def _plain(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


@pytest.fixture(scope="module")
def plain() -> Callable[[Tensor, Tensor], Tensor]:
    source = emitted(_plain, [torch.randn(2, 16, 24, 24), torch.randn(16, 16, 3, 3)], {"block_places": 16})
    module = load(source).ModelNew(Wrapped(_plain))
    return lambda x, w: module(x, w)


def error_of_each(result: Tensor, right: Tensor) -> Tensor:
    """Relative to each element; 0 where both are the same, NaN too."""
    same = (result.double() == right) | (result.isnan() & right.isnan())
    return torch.where(same, 0.0, (result.double() - right).abs() / right.abs())


@pytest.mark.parametrize("size", [1e3, 1e10, 1e30, math.inf, -math.inf, math.nan], ids=str)
def test_an_element_of_another_size_spoils_no_neighbour(plain: Callable[..., Tensor], size: float) -> None:
    """Without the kernel that computes blocks again, results beside it would have no right digit."""
    torch.manual_seed(1)
    x, w = torch.rand(2, 16, 24, 24) + 0.5, torch.rand(16, 16, 3, 3) + 0.5
    x[1, 3, 10, 7] = size
    error = error_of_each(plain(x, w), _plain(x.double(), w.double()))
    assert float(error.max()) < 1e-5


def test_results_of_nothing_are_nothing(plain: Callable[..., Tensor]) -> None:
    torch.manual_seed(2)
    x, w = torch.zeros(2, 16, 24, 24), torch.randn(16, 16, 3, 3)
    x[0, :, 5:9, 3:12] = torch.randn(16, 4, 9)
    right = _plain(x.double(), w.double())
    assert torch.equal(plain(x, w) == 0, right == 0)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-60, 2.0**60, 2.0**100], ids=str)
def test_images_of_any_size_keep_their_digits(plain: Callable[..., Tensor], scale: float) -> None:
    torch.manual_seed(3)
    x, w = torch.randn(2, 16, 24, 24) * scale, torch.randn(16, 16, 3, 3)
    right = _plain(x.double(), w.double())
    assert float((plain(x, w).double() - right).norm() / right.norm()) < 1e-6


@pytest.mark.parametrize("size", [1e20, math.inf, math.nan], ids=str)
def test_a_filter_that_is_too_large_spoils_no_other(plain: Callable[..., Tensor], size: float) -> None:
    torch.manual_seed(4)
    x, w = torch.rand(2, 16, 24, 24) + 0.5, torch.rand(16, 16, 3, 3) + 0.5
    w[3, 5, 1, 1] = size
    # The middle tap: at the image's borders others would be multiplied with zeros that PyTorch leaves out.
    error = error_of_each(plain(x, w), _plain(x.double(), w.double()))
    assert float(error.max()) < 1e-5


def _with_its_image(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    image = F.silu(x)
    return F.conv2d(image, w, padding=1), image


@pytest.mark.parametrize("sides", [(9, 8), (12, 13)], ids=str)
def test_an_image_that_others_read_is_stored_whole(sides: tuple[int, int]) -> None:
    torch.manual_seed(5)
    arguments = [torch.randn(2, 16, *sides), torch.randn(20, 16, 3, 3)]
    module = load(emitted(_with_its_image, arguments, {})).ModelNew(Wrapped(_with_its_image))
    for actual, right in zip(module(*arguments), _with_its_image(*(one.double() for one in arguments)), strict=True):
        torch.testing.assert_close(actual.double(), right, rtol=1e-5, atol=1e-5)


def compiled(module: torch.nn.Module, *arguments: Tensor, **options: Any) -> dict[str, Any]:
    return library.compile_graph(export.export_module(module.eval(), arguments), "cpu", **options)


def schedulers(made: dict[str, Any]) -> list[str]:
    return [group["scheduler"] for group in made["schedule"]["groups"]]


def test_a_residual_unit_is_two_groups() -> None:
    class Unit(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (torch.nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(2))
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(64) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(x + self.norms[1](self.second(hidden)))

    made = compiled(Unit(), torch.randn(1, 64, 28, 28))
    assert schedulers(made) == ["convolution", "convolution"]
    assert made["library_ops"] == []


LEFT_TO_PYTORCH: dict[str, tuple[torch.nn.Module, tuple[int, ...]]] = {
    "strided": (torch.nn.Conv2d(64, 64, 3, stride=2), (4, 64, 28, 28)),
    "dilated": (torch.nn.Conv2d(64, 64, 3, dilation=2), (4, 64, 28, 28)),
    "five_taps": (torch.nn.Conv2d(64, 64, 5), (4, 64, 28, 28)),
    "in_groups": (torch.nn.Conv2d(64, 64, 3, groups=4), (4, 64, 28, 28)),
    "few_channels": (torch.nn.Conv2d(3, 64, 3), (4, 3, 64, 64)),
    "large_weights_and_few_places": (torch.nn.Conv2d(512, 512, 3, padding=1), (1, 512, 7, 7)),
    "one_dimension": (torch.nn.Conv1d(64, 64, 3), (4, 64, 256)),
    "double": (torch.nn.Conv2d(64, 64, 3).double(), (4, 64, 28, 28)),
}


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_stays_the_librarys(name: str) -> None:
    module, shape = LEFT_TO_PYTORCH[name]
    x = torch.randn(shape, dtype=next(module.parameters()).dtype)
    assert "convolution" not in schedulers(compiled(module, x))


@pytest.mark.parametrize("caution", ["library-products", "library"])
def test_a_cautious_candidate_calls_the_library(caution: str) -> None:
    for module, shape in (
        (torch.nn.Conv2d(64, 64, 3, padding=1), (1, 64, 56, 56)),
        (torch.nn.Conv2d(3, 96, 16, stride=16), (1, 3, 64, 64)),
    ):
        made = compiled(module, torch.randn(shape), caution=caution)
        is_product = shape[1] == 3 and caution == "library-products"
        assert made["library_ops"] == ["aten.linear" if is_product else "aten.conv2d"]


def test_what_it_does_not_take_is_refused_by_name() -> None:
    arguments = [torch.randn(1, 16, 9, 9), torch.randn(16, 16, 3, 3)]
    for name in ("stages", "rows"):
        with pytest.raises(Exception, match=f"'{name}'"):
            as_one_group(Wrapped(_plain), arguments, "convolution", {name: 64}, target="cpu")
    with pytest.raises(Exception, match="block_places"):
        as_one_group(Wrapped(_plain), arguments, "convolution", {"block_places": 8}, target="cpu")
