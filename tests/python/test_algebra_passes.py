"""Algebra of linear maps as passes: what stays of a product, beside eager, with NaN and infinities where eager has
them.
"""

from __future__ import annotations

import re

import graph_text
import pytest
import torch
import torch.nn.functional as F
from pass_checks import (
    Module,
    assert_finite_where_eager_is,
    assert_same_bits,
    copied,
    drawn_inputs,
    graphs_after_passes,
)

after_passes = pytest.fixture(scope="session")(graphs_after_passes)


def _sums_over_outputs(self, x, y, labels):
    product = F.linear(x, self.weight)
    two = F.linear(x, self.weight) / 3 - y @ self.weight[:, :6]
    return (
        F.linear(x, self.weight, labels).sum(1),
        (-(F.linear(x, self.weight, labels) * 0.5)).mean(-1, keepdim=True),
        (F.linear(x, self.weight) - labels).mean(1),
        (F.linear(x, self.weight) + y).sum(1),
        (2.5 - x @ self.weight.T).sum(1),
        two.sum(1),
        torch.addmm(labels, x, self.weight.T, beta=2.0, alpha=0.5).sum(1, keepdim=True),
        F.linear(x.view(4, 5, 8), self.weight, labels).sum(2),
        F.avg_pool1d(F.linear(x, self.weight, labels).unsqueeze(1), 2).squeeze(1),
        # Not these: the product is read twice, windows overlap, and rows are few.
        product.sum(1) + product.amax(1),
        F.avg_pool1d(F.linear(x, self.weight - 1), 2, stride=1),
        F.linear(x[:4], self.weight).sum(1),
    )


def _draw_of_sums() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {"x": torch.randn(20, 8), "y": torch.randn(20, 6), "labels": torch.randn(6)}


def test_sums_over_a_products_outputs_leave_the_product_out(after_passes):
    module, inputs = Module(_sums_over_outputs), _draw_of_sums()
    text = after_passes(module, inputs, ["canonicalise", "linear_sums", "dead_code"])
    products = re.findall(r"= aten.(?:linear|mm|matmul|addmm).*: f32\[(.*?)\]", text)
    assert products == ["20, 6", "20, 3", "20, 6", "4, 6"], text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["x", "labels"])
def test_sums_over_a_products_outputs_have_nan_and_infinities_where_eager_has(after_passes, name, number):
    """An infinity that meets outputs of both signs is NaN in eager mode, and may be an infinity: both are none."""
    module, inputs = Module(_sums_over_outputs), _draw_of_sums()
    inputs[name].view(-1)[3] = number
    text = after_passes(module, inputs, ["canonicalise", "linear_sums", "dead_code"])
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours[:9], eager[:9], strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        if number != number:
            assert torch.equal(mine.isnan(), theirs.isnan())


def _dots_and_rows(self, x, y, labels):
    cube = torch.cat([x, x + 1, x - 1, x * 2]).view(4, 20, 8)
    column = y[:, :1]
    return (
        F.linear(x, self.weight, labels) @ labels,
        torch.mv(x @ self.weight.T, labels),
        (F.linear(x, self.weight, labels) * labels).sum(-1),
        (labels * F.linear(cube, self.weight) / 2).mean(-1, keepdim=True),
        ((F.linear(x, self.weight, labels) + y) * labels[None]).sum(1),
        ((3.0 - F.linear(x, self.weight) + column) * labels).sum(1),
        (F.linear(x, self.weight, labels) * 2 - y).mean(),
        F.linear(x, self.weight, labels).mean(0),
        (F.linear(cube, self.weight, labels) * 0.5).sum(1, keepdim=True),
        (F.linear(cube, self.weight) + labels).mean((0, 1)),
        (y - x @ self.weight.T + column).sum(0),
        torch.addmm(y, x, self.weight.T, beta=2.0, alpha=0.5).mean(0, keepdim=True),
        torch.matmul(cube, self.weight.T).mean(1),
        # Not these: few rows are summed, one is read twice, a weight is of rows, and one of all elements.
        F.linear(cube, self.weight).mean(0),
        (lambda product: product.mean(0) + product.amax(0))(F.linear(x, self.weight)),
        (F.linear(x, self.weight) * column).sum(1),
        (F.linear(x, self.weight) * y).sum(1),
        F.linear(x[:4], self.weight) @ labels,
        F.linear(x.half(), self.weight.half()).mean(0),
    )


def test_dots_with_a_products_outputs_and_sums_of_its_rows_leave_it_out(after_passes):
    module, inputs = Module(_dots_and_rows), _draw_of_sums()
    text = after_passes(module, inputs, ["canonicalise", "linear_sums", "dead_code"])
    products = re.findall(r"= aten.(?:linear|mm|matmul|addmm|mv).*: f(?:32|16)\[(.*?)\]", text)
    smaller = ["1, 6", "4, 1, 6", "1, 1, 6", "1, 6", "1, 6", "4, 1, 6"]
    assert products == [*smaller, "4, 20, 6", "20, 6", "20, 6", "20, 6", "4, 6", "4", "20, 6"], text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["x", "y", "labels"])
def test_dots_and_sums_of_rows_have_nan_and_infinities_where_eager_has(after_passes, name, number):
    module, inputs = Module(_dots_and_rows), _draw_of_sums()
    inputs[name].view(-1)[3] = number
    assert_finite_where_eager_is(after_passes, module, inputs, ["canonicalise", "linear_sums", "dead_code"])


def _chains_of_products(self, x, y, labels):
    wide = torch.cat([self.weight, self.weight + 1, self.weight - 1, self.weight * 2, self.weight * 3])  # 30, 8
    narrow = torch.stack([wide[:, 0], wide[:, 5]])  # 2, 30
    rows = torch.cat([x, x + 1, x - 1, x * 2])  # 80, 8
    hidden = F.linear(rows * 3, wide)
    return (
        F.linear(F.linear(rows, wide, wide[:, 1]), narrow, labels[:2]),
        rows @ wide.T @ narrow.T,
        F.linear(F.linear(rows.view(4, 20, 8), wide), narrow),
        F.linear(rows @ wide.T, narrow) * 2,
        torch.addmm(labels[:2], F.linear(rows, wide), narrow.T, alpha=0.5, beta=3.0),
        F.linear(F.linear(F.linear(rows, wide), wide.T.contiguous()), narrow[:, :8]),
        narrow[:, :8] @ (rows.T @ rows),
        F.linear(narrow[:, :8], rows @ narrow[:, :8].T @ narrow[:, 8:16]),
        narrow[:, 8:16] @ (rows @ narrow[:, :8].T @ narrow[:, 8:16]).T,
        # Not these: layers that widen, less than half of the work, a second reader, something in between, 16-bit
        # floats.
        F.linear(F.linear(rows, narrow[:, :8]), wide[:, :2]),
        F.linear(F.linear(rows, self.weight), self.weight[:, :6]),
        F.linear(hidden, narrow) + hidden[:, :2],
        F.linear(F.linear(rows, wide).relu(), narrow),
        F.linear(F.linear(rows.half(), wide.half()), narrow.half()),
    )


def test_chains_of_products_take_the_order_of_less_work(after_passes):
    module, inputs = Module(_chains_of_products), _draw_of_sums()
    before = after_passes(module, inputs, ["canonicalise"])
    text = after_passes(module, inputs, ["canonicalise", "product_chains", "dead_code"])

    def products(graph: str, shape: str) -> int:
        return len(re.findall(rf"= aten.(?:linear|mm|matmul|addmm)\.\S+\(.*: f(?:32|16)\[{shape}\]", graph))

    assert products(before, r".*\b30") == 10 and products(text, r".*\b30") == 4, text
    assert products(before, "80, 8") == 3 and products(text, "80, 8") == 0, text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        tolerance = 1e-5 if theirs.dtype == torch.float32 else 1e-2
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * theirs.abs().max(), check_stride=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_chains_of_products_have_nan_and_infinities_where_eager_has(after_passes, number):
    module, inputs = Module(_chains_of_products), _draw_of_sums()
    inputs["x"].view(-1)[3] = number
    assert_finite_where_eager_is(after_passes, module, inputs, ["canonicalise", "product_chains", "dead_code"])


def _single_elements(self, x, y, labels):
    one, ones = x[:, :1], x.view(-1)[3:4]
    return (
        one.sum(1),
        one.mean(1, keepdim=True),
        one.amax(1),
        one.max(1, keepdim=True).values,
        one.min(1).values,
        one.prod(1),
        one.logsumexp(1),
        one.softmax(1),
        one.log_softmax(1),
        one.var(1, unbiased=False),
        one.argmax(1),
        labels[:, :1].sum(1),
        (one > 0).any(1),
        (labels[:, :1] > 3).sum(1),
        one.bfloat16().mean(1),
        one.half().softmax(1),
        one.sum(1, dtype=torch.float64),
        ones.sum(),
        ones.logsumexp(0),
        one.sum(1, keepdim=True).amax(1, keepdim=True).mean(1, keepdim=True).logsumexp(1, keepdim=True).logsumexp(1),
        F.gelu(one - one.mean(1, keepdim=True)),
        1 / one.sum(1),
    )


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
def test_folds_of_one_element_keep_every_bit(after_passes, special):
    module, inputs = Module(_single_elements), drawn_inputs(special)
    if special:
        inputs["x"][:, 0] = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40])
        inputs["x"][0, 3] = -0.0
    text = after_passes(module, inputs, ["canonicalise", "broadcasts", "dead_code"])
    assert not re.search(r"= aten.(sum|mean|amax|amin|prod|logsumexp|softmax|log_softmax|var|argmax|any)\.", text), text
    assert len(re.findall(r"= aten.add.Tensor\(self=\S+, other=0.0\)", text)) == 10, text  # one for a chain of sums
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        assert_same_bits(mine, theirs, text)


def _partly_single(self, x, y, labels):
    cube = x.view(6, 1, 8)
    return (cube.sum((1, 2)), cube.amax((0, 1)), cube.softmax(2), x[:, :0].sum(1), x.sum(1))


def test_folds_of_more_than_one_element_stay(after_passes):
    module, inputs = Module(_partly_single), drawn_inputs(special=False)
    before = after_passes(module, inputs, ["canonicalise"])
    assert after_passes(module, inputs, ["canonicalise", "broadcasts"]) == before


def _differences_of_extremes(self, x, y, labels):
    largest = F.linear(x, self.weight, self.weight[:, 0]).max(1, keepdim=True).values
    smallest = (x @ self.weight.T).amin(-1)
    other = F.linear(x - 1, self.weight).amax(1, keepdim=True)
    given = (x @ y[:8]).amax(1, keepdim=True)
    few = F.linear(x[:4], self.weight).amax(1, keepdim=True)
    return (
        F.gelu(largest - largest.mean(1, keepdim=True)),
        smallest - smallest,
        # Not these: a second reader, a matrix that is an input, few rows, other axes, and another factor.
        other - other,
        other,
        given - given,
        few - few,
        (lambda rows: rows - rows)(F.linear(x, self.weight).amax(0)),
        (lambda extreme: torch.sub(extreme, extreme, alpha=2))(F.linear(x, self.weight).amax(1)),
    )


# Not infinities of a weight, which an extreme may pass over.
@pytest.mark.parametrize(
    ("name", "number"),
    [("x", 0.5), ("x", float("nan")), ("x", float("inf")), ("x", -float("inf")), ("weight", float("nan"))],
)
def test_a_products_extreme_less_itself_needs_no_product(after_passes, name, number):
    module, inputs = Module(_differences_of_extremes), _draw_of_sums()
    (inputs["x"] if name == "x" else module.weight.data).view(-1)[3] = number
    text = after_passes(module, inputs, ["canonicalise", "broadcasts", "self_differences", "dead_code"])
    assert len(re.findall(r"= aten.(?:linear|mm)\.", text)) == 5, text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True, check_stride=True)


def _diagonals(self, x, y, labels):
    a, b = torch.diag(x[:, 0]), torch.diag(y[0])
    cube = torch.stack([x, y])
    return (
        a @ x,
        x @ b,
        torch.diag_embed(x[0]) @ y.T,
        cube @ b,
        a @ x.T.contiguous().T,
        (a @ y).bfloat16(),
        torch.diag(x[:, 0].double()) @ y.double(),
        torch.diag(x[0].bfloat16()) @ y.T.bfloat16(),
        # Not these: beside the main diagonal, diagonals of a batch, a vector, integers.
        torch.diag(x[:5, 0], 1) @ x,
        torch.diag_embed(x[:, :6]) @ x,
        a @ x[:, 1],
        torch.diag(labels[0]) @ labels.T,
    )


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
def test_products_with_a_diagonal_keep_every_bit(after_passes, special):
    module, inputs = Module(_diagonals), drawn_inputs(special)
    text = after_passes(module, inputs, ["canonicalise", "diagonal_products", "dead_code"])
    assert len(re.findall(r"= aten.(?:mm|bmm|matmul|mv)\.", text)) == 4, text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        assert_same_bits(mine + 0, theirs + 0, text)  # of either sign where a product is less than a subnormal number


class Convolutions(torch.nn.Module):
    """Its convolution's result, as `after` sums it."""

    def __init__(self, convolution: torch.nn.Module, after) -> None:
        super().__init__()
        self.convolution, self.function = convolution, after

    def forward(self, x):
        return self.function(self.convolution(x))


# Each with what is convolved afterwards: the shape of a result of a convolution, "product", or None where all stays as
# it was.
SUMMED_CONVOLUTIONS = {
    "all_positions": (torch.nn.Conv2d(3, 6, 3), lambda y: y.mean((2, 3)), "product"),
    "padded": (torch.nn.Conv2d(3, 6, (3, 5), padding=1), lambda y: (y * 0.5).sum((-1, -2), keepdim=True), "product"),
    "dilated": (torch.nn.Conv1d(3, 6, 3, padding=3, dilation=2), lambda y: y.mean(2) / 3, "product"),
    "pooled": (torch.nn.Conv2d(3, 6, 3, bias=False), lambda y: F.adaptive_avg_pool2d(y, 1), "product"),
    "transposed": (torch.nn.ConvTranspose2d(3, 6, 3), lambda y: y.sum((2, 3)), "product"),
    "interleaved": (
        torch.nn.ConvTranspose2d(3, 6, 3, 2, 1, output_padding=1),
        lambda y: y.mean((2, 3), keepdim=True),
        "product",
    ),
    "wide_steps": (torch.nn.ConvTranspose1d(3, 6, 4, 3, 2, dilation=3), lambda y: y.mean(2), "product"),
    "depth": (torch.nn.Conv3d(3, 6, 3, padding=1), lambda y: y.mean(2, keepdim=True), "2, 6, 9, 9"),
    "transposed_depth": (
        torch.nn.ConvTranspose3d(3, 6, (5, 2, 3), stride=(1, 2, 2)),
        lambda y: y.sum(2),
        "2, 6, 18, 19",
    ),
    "rows": (torch.nn.Conv3d(3, 6, 3, bias=False), lambda y: y.mean((2, 4)), "2, 6, 7"),
    "filters": (torch.nn.Conv2d(3, 6, 3, stride=2), lambda y: y.mean(1, keepdim=True), "2, 1, 8, 8"),
    "transposed_filters": (torch.nn.ConvTranspose1d(3, 6, 3, stride=2), lambda y: (2 * y).sum(1), "2, 1, 37"),
    "windows": (torch.nn.Conv2d(3, 6, 3), lambda y: F.avg_pool2d(y, 4), "2, 6, 4, 3"),
    "uneven_windows": (torch.nn.Conv2d(3, 6, 3, (1, 2), 2), lambda y: F.avg_pool2d(y * 3, (3, 2)), "2, 6, 6, 5"),
    # Not these: the result is read twice, groups, image lines between strides, windows that overlap or are padded, and
    # a sum of filters and positions.
    "read_twice": (torch.nn.Conv2d(3, 6, 3), lambda y: y.mean((2, 3)) + y.amax((2, 3)), None),
    "groups": (torch.nn.Conv2d(3, 6, 3, groups=3), lambda y: y.mean((2, 3)), None),
    "strides": (torch.nn.Conv2d(3, 6, 3, stride=2), lambda y: y.mean((2, 3)), None),
    "overlapping": (torch.nn.Conv2d(3, 6, 3), lambda y: F.avg_pool2d(y, 3, stride=2), None),
    "padded_windows": (torch.nn.Conv2d(3, 6, 3), lambda y: F.avg_pool2d(y, 3, padding=1), None),
    "pointwise": (torch.nn.Conv2d(3, 6, 1), lambda y: F.avg_pool2d(y, 3), None),
    "both": (torch.nn.Conv2d(3, 6, 3), lambda y: y.mean((1, 2, 3)), None),
    "few_positions": (torch.nn.Conv2d(3, 6, 16), lambda y: y.mean((2, 3)), None),
}


@pytest.mark.parametrize("number", [0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("name", SUMMED_CONVOLUTIONS)
def test_sums_over_a_convolutions_result_leave_the_convolution_out(after_passes, name, number):
    convolution, after, left = SUMMED_CONVOLUTIONS[name]
    torch.manual_seed(3)
    dims = convolution.weight.dim() - 2
    inputs = {"x": torch.randn(2, 3, *((18,) if dims == 1 else (18, 17) if dims == 2 else (17, 9, 9)))}
    inputs["x"].view(-1)[20] = number
    module = Convolutions(convolution, after)
    text = after_passes(module, inputs, ["canonicalise", "convolution_sums", "dead_code"])
    convolved = re.findall(r"= aten.conv.*: f32\[(.*?)\]", text)
    if left is not None:
        assert convolved == ([] if left == "product" else [left]), text
    else:
        assert "summed" not in text and len(convolved) == 1 and "cat" not in text, text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    assert torch.equal(ours[0].isfinite(), eager.isfinite())
    assert not (eager.isnan() & ~ours[0].isnan()).any()
    finite = eager.isfinite()
    torch.testing.assert_close(ours[0][finite], eager[finite], rtol=1e-5, atol=1e-5)
    assert ours[0].stride() == eager.stride() and ours[0].shape == eager.shape


# Each with a function of its own, by which graphs are told apart, and whether it is a product.
PATCHES = {
    "embedding": (lambda y: y, torch.nn.Conv2d(3, 6, (3, 2), stride=(3, 2)), (2, 3, 9, 8), True),
    "whole": (lambda y: y, torch.nn.Conv2d(3, 6, (9, 8)), (2, 3, 9, 8), True),
    "one_row": (lambda y: y, torch.nn.Conv2d(3, 6, (9, 2), stride=(1, 2), bias=False), (2, 3, 9, 8), True),
    "line": (lambda y: y, torch.nn.Conv1d(3, 6, 4, stride=4), (2, 3, 8), True),
    "volume": (lambda y: y, torch.nn.Conv3d(3, 6, 2, stride=2), (2, 3, 4, 6, 2), True),
    "double": (lambda y: y, torch.nn.Conv2d(3, 6, 2, stride=2).double(), (2, 3, 4, 6), True),
    "left_over": (lambda y: y, torch.nn.Conv2d(3, 6, 2, stride=2), (2, 3, 5, 4), False),
    "padded": (lambda y: y, torch.nn.Conv2d(3, 6, 2, stride=2, padding=1), (2, 3, 4, 4), False),
    "dilated": (lambda y: y, torch.nn.Conv2d(3, 6, 2, stride=2, dilation=2), (2, 3, 6, 6), False),
    "groups": (lambda y: y, torch.nn.Conv2d(3, 6, 2, stride=2, groups=3), (2, 3, 4, 4), False),
    "overlapping": (lambda y: y, torch.nn.Conv2d(3, 6, 2), (2, 3, 4, 4), False),
    "one_tap": (lambda y: y, torch.nn.Conv2d(3, 6, 1), (2, 3, 4, 4), False),
}


@pytest.mark.parametrize("number", [0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("name", PATCHES)
def test_convolutions_of_patches_are_products(after_passes, name, number):
    after, convolution, shape, is_product = PATCHES[name]
    torch.manual_seed(3)
    inputs = {"x": torch.randn(shape, dtype=convolution.weight.dtype)}
    inputs["x"].view(-1)[20] = number
    module = Convolutions(convolution, after)
    text = after_passes(module, inputs, ["canonicalise", "patches", "dead_code"])
    assert ("aten.linear" in text, "aten.conv" in text) == (is_product, not is_product), text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs))[0], module(**copied(inputs))
    assert torch.equal(ours.isfinite(), eager.isfinite())
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5, equal_nan=True)
    strides = [[step for step, size in zip(one.stride(), one.shape) if size > 1] for one in (ours, eager)]
    assert strides[0] == strides[1]
