"""The passes keep what a graph computes: run before and after with PyTorch, bit for bit where they claim to be exact."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import graph_text
import pytest
import torch
import torch.nn.functional as F

from kernelwright.capture import export

EXACT = ["canonicalise", "fold", "layout", "identities", "cse", "dead_code"]


class Module(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(6, 8))
        self.register_buffer("running", torch.zeros(8))

    def forward(self, x, y, labels):
        return self.function(self, x, y, labels)


def _arithmetic(self, x, y, labels):
    return (
        2 - x,
        torch.rsub(x, y, alpha=3),
        x * 1,
        x + 0,
        x - 0.0,
        x / 4,
        x / 3,
        1 * x,
        x**2,
        x**3,
        x**0.5,
        x**1,
        -(-x),
        x // 2,
        torch.true_divide(labels, 2),
    )


def _promotion(self, x, y, labels):
    two, third = torch.tensor(2.0), torch.tensor(1 / 3)
    half = x.half()
    return (
        labels * two,
        labels + 1,
        labels * 1,
        half * two,
        half + third,
        x * torch.tensor(2),
        labels > third,
        torch.where(x > 0, 1.0, x),
        x.bfloat16() * 3,
    )


def _constants(self, x, y, labels):
    ones = torch.ones(6, 8)
    zero = torch.zeros(())
    mask = torch.full((6, 8), True)
    return (
        x * ones,
        x + zero,
        x - zero,
        ones + ones,
        torch.where(mask, x, y),
        ones[:3] * 5,
        x * torch.full((8,), 0.1),
        zero / zero,
        x.fill_(3.0) + y,
    )


def _views(self, x, y, labels):
    a, b, c = y.split([3, 3, 2], dim=1)
    return (x.t().t() + y, x.unsqueeze(1).squeeze(1), x.transpose(0, 1).reshape(-1), a * c[:, :1], x.view(2, 3, 8).permute(2, 0, 1).permute(1, 2, 0),
            x.flatten().unflatten(0, (4, 12)), x.unbind(1)[3], x.expand(2, 6, 8).expand(3, 2, 6, 8), x.movedim(0, 1), x.narrow(1, -3, 2), x.T.contiguous(),
            b.contiguous().view(-1), torch.stack([x, y], -1), x.diagonal(), x.unfold(1, 3, 2), x[::2, 1:5], x.as_strided((2, 2), (1, 3), 1))  # fmt: skip


def _copies(self, x, y, labels):
    z = torch.exp(x)
    return (
        z.clone(),
        z,
        x.clone(),
        x.to(torch.float32),
        z.contiguous(),
        F.dropout(z, 0.0),
        F.dropout(z, 0.5, training=False),
        x.clone() + 1,
        z.detach().clone().sin(),
    )


def _reductions(self, x, y, labels):
    return (x.sum(), x.mean(), x.max(), x.min(), x.max(1).values, x.max(1), x.min(0, keepdim=True)[0], x.std(1, unbiased=False), x.var(), x.norm(), x.norm(dim=1),
            x.norm(1, 0), F.softmax(x, -1), torch.log_softmax(y, 0), x.amax(), (x > 0).any(), (x > 0).all(1), labels.sum())  # fmt: skip


def _pointwise(self, x, y, labels):
    return (F.hardtanh(x), F.relu6(x), x.clamp(min=0.1), x.clamp(max=0.1), x.clamp(-1, 1), torch.square(x), x.clip(y, y + 1), torch.maximum(x, y), torch.max(x, y),
            torch.remainder(x, 2), torch.fmod(x, 2), labels & 3, labels.clamp(0, 1), F.silu(x), F.gelu(x), x.masked_fill(y > 0, 2.0), torch.where(x > y, x, y))  # fmt: skip


def _mutation(self, x, y, labels):
    self.running.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x + self.running, torch.exp(x), torch.exp(x)


def _chains(self, x, y, labels):
    mask, half = y > 0, x.bfloat16()
    wide = half.float()
    return (x.relu().relu(), F.relu6(x.relu()), F.hardtanh(F.relu6(x), -0.5, 9.0), x.clamp(2.0, 1.0).clamp(-3.0), x.clamp(-1, 1).clamp(2, 3), x.clamp(max=-0.0).relu(), x.relu().clamp(min=-0.0),
            x.clamp(min=-float("inf"), max=2.0).clamp(max=float("inf")), x.relu().abs(), x.abs().abs(), (-x).abs(), x.exp().relu(), y.sigmoid().clamp(0.0, 1.0), y.sigmoid().clamp(1e-6, 1 - 1e-6),
            F.max_pool1d(x.relu(), 2).relu(), x.relu().flatten().relu(), (x * x).abs(), (x * x + y.exp()).relu(), F.leaky_relu(x.abs()), F.leaky_relu(x.abs(), -0.0), F.leaky_relu(x.relu()), x.sqrt().relu(),
            x.floor().round(), x.round().ceil(), x.sign().sign(), x.round(decimals=1).floor(), torch.maximum(x, x), torch.fmin(y, y), ~~mask, torch.logical_not(torch.logical_not(x)),
            torch.where(mask, torch.where(mask, x, y), 1.0), torch.where(mask, 2.0, torch.where(mask, x, y)), torch.where(~mask, x, y), torch.where(mask, x, x),
            x.masked_fill(mask, 1.0).masked_fill(mask, 2.0), wide.bfloat16(), wide.half(), wide.long(), labels.int().double().int(), labels.float().long(), mask.float().long(), half.to(torch.float16).float())  # fmt: skip


LOSSES = {
    "mse": lambda self, x, y, labels: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="none"), F.mse_loss(x, y, reduction="sum")),
    "l1": lambda self, x, y, labels: (F.l1_loss(x, y), F.smooth_l1_loss(x, y, beta=0.7), F.smooth_l1_loss(x, y, beta=0.0), F.huber_loss(x, y, delta=0.6)),
    "kl": lambda self, x, y, labels: (F.kl_div(x, y.abs(), reduction="batchmean"), F.kl_div(x, y, log_target=True), F.kl_div(x, y.relu(), reduction="none")),
    "bce": lambda self, x, y, labels: (F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.binary_cross_entropy(x.sigmoid(), y.sigmoid().round(), weight=y.abs()),
                                       F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y.abs(), reduction="none")),
    "cross entropy": lambda self, x, y, labels: (F.cross_entropy(x, labels[:, 0] % 8), F.cross_entropy(x, labels[:, 0] % 8, ignore_index=2, reduction="sum"),
                                                 F.cross_entropy(x, y.softmax(1)), F.cross_entropy(x, labels[:, 0] % 8, reduction="none"),
                                                 F.cross_entropy(x.view(2, 3, 8), labels[0].view(2, 4).repeat(1, 2) % 3), F.cross_entropy(x, labels[:, 0] % 8, weight=y[0].abs()),
                                                 F.nll_loss(F.log_softmax(x, 1), labels[:, 0] % 8)),
    "hinge": lambda self, x, y, labels: (F.hinge_embedding_loss(x, y.sign()), F.margin_ranking_loss(x, y, x.sign(), margin=0.3), F.soft_margin_loss(x, y.sign())),
    "poisson": lambda self, x, y, labels: (F.poisson_nll_loss(x, y.abs()), F.poisson_nll_loss(x.abs(), y.abs() * 4, log_input=False, full=True)),
    "triplet": lambda self, x, y, labels: (F.triplet_margin_loss(x, y, self.weight), F.triplet_margin_loss(x, y, self.weight, p=1.0, swap=True, reduction="none")),
    "cosine": lambda self, x, y, labels: (F.cosine_embedding_loss(x, y, (labels[:, 0] % 2) * 2 - 1, margin=0.1), F.cosine_similarity(x, y), F.cosine_similarity(x, y, dim=0),
                                          F.pairwise_distance(x, y, keepdim=True)),
}  # fmt: skip

EXACT_CASES = {
    function.__name__.strip("_"): function
    for function in (_arithmetic, _promotion, _constants, _views, _copies, _reductions, _pointwise, _mutation, _chains)
}


@pytest.fixture(scope="session")
def after_passes(home: Path, tmp_path_factory):
    """The text of a module's graph after the named passes."""
    tool = home / "build" / "tests" / "unit" / "graph_tool"
    if not tool.exists():
        pytest.fail("build/tests/unit/graph_tool is missing: configure with -DKW_TESTS=ON and build")
    folder = tmp_path_factory.mktemp("graphs")

    def run(module: Module, inputs: dict[str, torch.Tensor], passes: list[str]) -> str:
        path = folder / f"{id(module.function)}-{inputs['x'].stride()}.json"
        if not path.exists():
            path.write_text(json.dumps(export.export_module(module, tuple(inputs.values()))))
        done = subprocess.run([tool, path, *passes], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _inputs(special: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    if special:
        x.view(-1)[:10] = torch.tensor(
            [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -1.0, 1.0, -3e38]
        )
        y.view(-1)[:6] = torch.tensor([-0.0, 0.0, float("inf"), 2.0, float("nan"), -1e-42])
    return {"x": x, "y": y, "labels": torch.randint(0, 8, (6, 8))}


def _strided_inputs() -> dict[str, torch.Tensor]:
    """The same sizes where memory is not row-major: transposed, expanded, a window of a larger tensor."""
    torch.manual_seed(8)
    return {
        "x": torch.randn(8, 6).t(),
        "y": torch.randn(1, 8).expand(6, 8),
        "labels": torch.randint(0, 8, (8, 10))[1:7, 1:9],
    }


def _copy(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    copies = {}
    for name, tensor in inputs.items():
        extent = (
            tensor.storage_offset()
            + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            + 1
        )
        copies[name] = (
            tensor.as_strided((extent,), (1,), 0)
            .clone()
            .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        )
    return copies


def _assert_same_bits(ours: torch.Tensor, theirs: torch.Tensor, text: str) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride()
    if ours.is_floating_point():
        assert torch.equal(ours.isnan(), theirs.isnan()), text
        ours, theirs = (
            torch.nan_to_num(ours, nan=7.0, posinf=8.0, neginf=9.0),
            torch.nan_to_num(theirs, nan=7.0, posinf=8.0, neginf=9.0),
        )
        assert torch.equal(ours.signbit(), theirs.signbit()), text
    assert torch.equal(ours, theirs), text


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
@pytest.mark.parametrize("name", EXACT_CASES)
def test_exact_passes_keep_every_bit(after_passes, name, special):
    module, inputs = Module(EXACT_CASES[name]), _inputs(special)
    before, after = after_passes(module, inputs, []), after_passes(module, inputs, EXACT)
    with torch.no_grad():
        expected = graph_text.run(before, module, _copy(inputs))
        actual = graph_text.run(after, module, _copy(inputs))
    assert len(expected) == len(actual)
    for ours, theirs in zip(actual, expected):
        _assert_same_bits(ours, theirs, after)


@pytest.mark.parametrize("name", ["arithmetic", "promotion", "copies", "reductions", "pointwise"])
def test_exact_passes_keep_strides(after_passes, name):
    module, inputs = Module(EXACT_CASES[name]), _strided_inputs()
    before, after = after_passes(module, inputs, []), after_passes(module, inputs, EXACT)
    with torch.no_grad():
        for ours, theirs in zip(
            graph_text.run(after, module, _copy(inputs)), graph_text.run(before, module, _copy(inputs)), strict=True
        ):
            _assert_same_bits(ours, theirs, after)


@pytest.mark.parametrize("name", LOSSES)
def test_expanded_losses_agree_with_pytorch(after_passes, name):
    module, inputs = Module(LOSSES[name]), _inputs(special=False)
    text = after_passes(module, inputs, ["all"])
    with torch.no_grad():
        expected = module(**_copy(inputs))
        actual = graph_text.run(text, module, _copy(inputs))
    assert "_loss.default" not in text.replace("weight=", "_") or name == "cross entropy"
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-7, check_stride=True)


def _formulas(self, x, y, labels):
    wide = torch.cat([x, y * 4, x * 16], dim=1)
    soft, gate = F.softmax(wide, 1), torch.sigmoid(wide)
    return (x * torch.sigmoid(x), torch.tanh(F.softplus(wide)) * wide, soft.log(), gate.log(), F.log_softmax(wide, 0).exp(), -(soft * soft.log()).sum(1), (-x).sum(1), (-y).mean(), (-x).amax(0), (-y).amin(),
            (-wide).max(1).values, F.kl_div(F.softmax(x, 1).log(), F.softmax(y, 1), reduction="batchmean"), F.nll_loss(F.softmax(x, 1).log(), labels[:, 0] % 8))  # fmt: skip


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
def test_formulas_that_pytorch_has_an_operator_for(after_passes, special):
    """No further from the result in double precision than PyTorch, and infinite, or NaN, where both runs of PyTorch are."""
    module, inputs = Module(_formulas), _inputs(special)
    if special:
        inputs["x"].view(-1)[10:16] = torch.tensor([-50.0, -95.0, -110.0, -160.0, 2e5, -800.0])
    text = after_passes(module, inputs, ["all"])
    assert len(re.findall(r"= aten.log_softmax", text)) == 3 and not re.search(
        r"= aten.(sigmoid|tanh|softplus|xlogy)", text
    ), text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
        reference = module(
            **{
                name: tensor.double() if tensor.is_floating_point() else tensor
                for name, tensor in _copy(inputs).items()
            }
        )
    for mine, theirs, exact in zip(ours, eager, reference, strict=True):
        agreed = (theirs.isfinite() & exact.isfinite()) | (theirs.isnan() & exact.isnan()) | (theirs == exact)
        torch.testing.assert_close(
            torch.where(agreed, mine, 0.0), torch.where(agreed, theirs, 0.0), rtol=4e-6, atol=2e-6, equal_nan=True
        )
        differs = (
            ~agreed
            & ~torch.isclose(mine.double(), exact, rtol=4e-6, equal_nan=True)
            & (mine != theirs)
            & ~(mine.isnan() & theirs.isnan())
        )
        assert not differs.any(), (mine[differs], theirs[differs], exact[differs])


def _broadcast_extremes(self, x, y, labels):
    wide = x[:, None].expand(6, 5, 8)
    both = wide * 2 + y.unsqueeze(1)
    return (wide.amax(1), both.amin((1, 2)), wide.flatten(0, 1).view(6, 5, 8).amax(), both.transpose(0, 1).amax(0), wide.isnan().any(1), (both > 0).all(), wide.argmax(1), wide.argmin(1, keepdim=True),
            both.max(1).values, wide[1:4].amax(1), x.repeat(5, 1, 1).amax(0), labels.expand(5, 6, 8).sum(0), labels.unsqueeze(2).expand(6, 8, 3).prod(2), (labels > 3)[None].expand(4, 6, 8).sum((0, 1)),
            wide.norm(float("inf"), 1), wide.norm(-float("inf"), (0, 1)), wide.contiguous().amin(1))  # fmt: skip


def _broadcast_sums(self, x, y, labels):
    wide = x[:, None].expand(6, 5, 8)
    both = (wide * 2 + y.unsqueeze(1)).sigmoid()
    row = x[0].expand(4096, 8)
    return (wide.sum(1), both.sum(), both.sum((0, 1)), row.sum(0), row.bfloat16().sum(0), row.half().mean((0, 1)), row.bfloat16().sum(), wide.mean((0, 1)), wide.prod(1), x[:, None].expand(6, 2, 8).prod(1), wide.var(1),
            x[:, None].expand(6, 2, 8).var(1, correction=2), wide.std((0, 1)), wide.var((0, 1), unbiased=False), both.var(), wide.logsumexp(1), wide.logsumexp((0, 1)), x[:, None].half().expand(6, 5, 8).logsumexp(1),
            wide.norm(2, 1), wide.norm(1), both.norm(3, (1, 2)), (wide + labels.unsqueeze(1)).sum(1), (wide * 2 + y.unsqueeze(1)).mean(1))  # fmt: skip


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
def test_folds_of_broadcasts(after_passes, special):
    inputs = _inputs(special)
    inputs["x"][inputs["x"].abs() == 3e38] = 1e15  # PyTorch's sums overflow where ours need not
    for function, exact in (_broadcast_extremes, True), (_broadcast_sums, False):
        module = Module(function)
        text = after_passes(module, inputs, ["canonicalise", "broadcasts", "dead_code"])
        folds = [
            line
            for line in text.splitlines()
            if re.search(
                r"= aten.(sum|mean|amax|amin|argmax|argmin|prod|var|std|logsumexp|linalg_vector_norm|any|all)\.", line
            )
        ]
        with torch.no_grad():
            ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
        assert len(folds) < len(eager) - 3, text
        for mine, theirs in zip(ours, eager, strict=True):
            if exact and not (special and theirs.is_floating_point()):
                _assert_same_bits(mine, theirs, text)
            else:  # which of two zeros an extreme takes is PyTorch's affair, whether anything else differs is not
                tolerance = (
                    0
                    if exact
                    else {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(theirs.dtype, 0)
                )
                torch.testing.assert_close(
                    mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=True
                )


def _row_losses(self, x, y, labels):
    wide = torch.cat([x, y, x, -y, x * y, x], dim=1)
    probability, share = torch.softmax(wide, -1), wide / wide.norm(dim=1, keepdim=True)
    sums = (
        (probability * wide).sum(),
        share.sum(dtype=torch.float64),
        share.to(torch.bfloat16).mean(),
        share.half().sum(dtype=torch.float32),
    )
    return (
        *sums,
        (probability * torch.log_softmax(2 * wide, 1)).mean((0, 1)),
        probability.amax(),
        share.amin((1, 0), keepdim=True),
        probability.sum(0),
    )


def test_folding_rows_first_keeps_sums(after_passes):
    module, inputs = Module(_row_losses), _inputs(special=False)
    text = after_passes(module, inputs, ["canonicalise", "rows_first"])
    assert len(re.findall(r"%\w+_of_rows\w* = ", text)) == 7, text
    with torch.no_grad():
        for ours, theirs in zip(graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-6 if ours.dtype.itemsize > 2 else 2e-2, atol=2e-6)


def _decays(self, x, y, labels):
    large = torch.cat([x * 1024, x[:, :2] * 1e30, torch.full((6, 1), torch.inf)], 1).cumsum(-1)
    sums = F.pad(8 * x.abs(), (1, 0)).cumsum(-1)
    differences = sums[..., :, None] - sums[..., None, :]
    above = torch.ones(9, 9, dtype=torch.bool).triu(1)
    turned = (y * torch.cat([sums[:, -1:] - sums[:, 1:]], 1).flip(-1)).clamp(max=-1)
    return differences.masked_fill(above, -torch.inf).exp(), (8 - sums.cumsum(0)).exp(), turned.exp(), large.exp()


def test_exponentials_of_running_sums_are_as_exact_as_their_type(after_passes):
    module, inputs = Module(_decays), _inputs(special=False)
    text = after_passes(module, inputs, ["canonicalise", "layout", "exponents"])
    assert len(re.findall(r"%abs\w* = aten.abs\S*self=%_to_copy", text)) == 3, text  # not through the clamp
    with torch.no_grad():
        exact = module(**{name: value.double() for name, value in inputs.items()})
        eager, ours = module(**_copy(inputs)), graph_text.run(text, module, _copy(inputs))

    def error(result: torch.Tensor, truth: torch.Tensor) -> float:
        return ((result - truth).abs() / truth.clamp(min=1e-30)).max().item()

    assert error(eager[0], exact[0]) > 1e-6
    for place in (0, 1):
        assert error(ours[place], exact[place]) < 2.5e-7
    torch.testing.assert_close(ours[2], eager[2], rtol=0, atol=0)
    torch.testing.assert_close(ours[3].double(), exact[3].float().double(), rtol=1e-6, atol=0)
    assert ours[3].isinf().any() and (ours[3] == 0).any()


@pytest.mark.parametrize("name", ["copies", "mutation", "views"])
def test_returned_tensors_share_memory_no_more_than_before(after_passes, name):
    module, inputs = Module(EXACT_CASES[name]), _inputs(special=False)

    def sharing(text: str) -> set[tuple[int, int]]:
        given = _copy(inputs)
        with torch.no_grad():
            tensors = [*graph_text.run(text, module, given), *given.values()]
        storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        return {(i, j) for i in range(len(storages)) for j in range(i) if storages[i] == storages[j]}

    assert sharing(after_passes(module, inputs, ["all"])) <= sharing(after_passes(module, inputs, []))


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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["x", "y", "labels"])
def test_dots_and_sums_of_rows_have_nan_and_infinities_where_eager_has(after_passes, name, number):
    module, inputs = Module(_dots_and_rows), _draw_of_sums()
    inputs[name].view(-1)[3] = number
    text = after_passes(module, inputs, ["canonicalise", "linear_sums", "dead_code"])
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        if number != number:
            assert torch.equal(mine.isnan(), theirs.isnan())


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
        # Not these: layers that widen, less than half of the work, a second reader, something in between, 16-bit floats.
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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        tolerance = 1e-5 if theirs.dtype == torch.float32 else 1e-2
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * theirs.abs().max(), check_stride=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_chains_of_products_have_nan_and_infinities_where_eager_has(after_passes, number):
    module, inputs = Module(_chains_of_products), _draw_of_sums()
    inputs["x"].view(-1)[3] = number
    text = after_passes(module, inputs, ["canonicalise", "product_chains", "dead_code"])
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        if number != number:
            assert torch.equal(mine.isnan(), theirs.isnan())


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
    module, inputs = Module(_single_elements), _inputs(special)
    if special:
        inputs["x"][:, 0] = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40])
        inputs["x"][0, 3] = -0.0
    text = after_passes(module, inputs, ["canonicalise", "broadcasts", "dead_code"])
    assert not re.search(r"= aten.(sum|mean|amax|amin|prod|logsumexp|softmax|log_softmax|var|argmax|any)\.", text), text
    assert len(re.findall(r"= aten.add.Tensor\(self=\S+, other=0.0\)", text)) == 10, text  # one for a chain of sums
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        _assert_same_bits(mine, theirs, text)


def _partly_single(self, x, y, labels):
    cube = x.view(6, 1, 8)
    return (cube.sum((1, 2)), cube.amax((0, 1)), cube.softmax(2), x[:, :0].sum(1), x.sum(1))


def test_folds_of_more_than_one_element_stay(after_passes):
    module, inputs = Module(_partly_single), _inputs(special=False)
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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
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
    module, inputs = Module(_diagonals), _inputs(special)
    text = after_passes(module, inputs, ["canonicalise", "diagonal_products", "dead_code"])
    assert len(re.findall(r"= aten.(?:mm|bmm|matmul|mv)\.", text)) == 4, text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        _assert_same_bits(mine + 0, theirs + 0, text)  # of either sign where a product is less than a subnormal number


class Convolutions(torch.nn.Module):
    """Its convolution's result, as `after` sums it."""

    def __init__(self, convolution: torch.nn.Module, after) -> None:
        super().__init__()
        self.convolution, self.function = convolution, after

    def forward(self, x):
        return self.function(self.convolution(x))


# Each with what is convolved afterwards: the shape of a result of a convolution, "product", or None where all stays as it was.
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
        ours, eager = graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs))
    assert torch.equal(ours[0].isfinite(), eager.isfinite())
    assert not (eager.isnan() & ~ours[0].isnan()).any()
    finite = eager.isfinite()
    torch.testing.assert_close(ours[0][finite], eager[finite], rtol=1e-5, atol=1e-5)
    assert ours[0].stride() == eager.stride() and ours[0].shape == eager.shape


def _pooled_functions(self, x, y, labels):
    image = torch.cat([x, x * 4.0, -x], 1).unflatten(1, (3, -1)).unsqueeze(0)
    shift = y[:, 2:3].unsqueeze(-1)  # the first is infinite
    return (
        F.max_pool2d(torch.tanh(image) * 2.0 + shift, 2),
        F.max_pool2d(torch.exp(image), 3, stride=1, padding=1) / 3.0,
        torch.sigmoid(image * 2.0).amin((0, 1), keepdim=True),
        (torch.atan(image) + shift).amax(-1),
        torch.erf(image).amax(),
        (torch.exp(image[..., 3:]) - shift).amin(-1, keepdim=True),  # ∞ − ∞ beside −∞
        (torch.exp(image[..., 3:]) - shift).amax(-1, keepdim=True),
    )


def test_extremes_of_rising_functions_are_functions_of_extremes(after_passes):
    module, inputs = Module(_pooled_functions), _inputs(special=True)
    text = after_passes(module, inputs, ["canonicalise", "fold", "extremes_first"])
    assert len(re.findall(r"%extreme\w* = ", text)) == 5, (
        text
    )  # not where amax loses the axis of what is added, nor amin of exp less a tensor
    with torch.no_grad():
        for ours, theirs in zip(graph_text.run(text, module, _copy(inputs)), module(**_copy(inputs)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
