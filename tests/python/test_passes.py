"""The passes keep what a graph computes: run before and after with PyTorch, bit for bit where they claim to be exact."""

from __future__ import annotations

import re

import graph_text
import pytest
import torch
import torch.nn.functional as F
from pass_checks import EXACT, Module, assert_same_bits, copied, drawn_inputs, graphs_after_passes, strided_inputs

after_passes = pytest.fixture(scope="session")(graphs_after_passes)


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


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
@pytest.mark.parametrize("name", EXACT_CASES)
def test_exact_passes_keep_every_bit(after_passes, name, special):
    module, inputs = Module(EXACT_CASES[name]), drawn_inputs(special)
    before, after = after_passes(module, inputs, []), after_passes(module, inputs, EXACT)
    with torch.no_grad():
        expected = graph_text.run(before, module, copied(inputs))
        actual = graph_text.run(after, module, copied(inputs))
    assert len(expected) == len(actual)
    for ours, theirs in zip(actual, expected):
        assert_same_bits(ours, theirs, after)


@pytest.mark.parametrize("name", ["arithmetic", "promotion", "copies", "reductions", "pointwise"])
def test_exact_passes_keep_strides(after_passes, name):
    module, inputs = Module(EXACT_CASES[name]), strided_inputs()
    before, after = after_passes(module, inputs, []), after_passes(module, inputs, EXACT)
    with torch.no_grad():
        for ours, theirs in zip(
            graph_text.run(after, module, copied(inputs)), graph_text.run(before, module, copied(inputs)), strict=True
        ):
            assert_same_bits(ours, theirs, after)


@pytest.mark.parametrize("name", LOSSES)
def test_expanded_losses_agree_with_pytorch(after_passes, name):
    module, inputs = Module(LOSSES[name]), drawn_inputs(special=False)
    text = after_passes(module, inputs, ["all"])
    with torch.no_grad():
        expected = module(**copied(inputs))
        actual = graph_text.run(text, module, copied(inputs))
    assert "_loss.default" not in text.replace("weight=", "_") or name == "cross entropy"
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-7, check_stride=True)


def _formulas(self, x, y, labels):
    wide = torch.cat([x, y * 4, x * 16], dim=1)
    soft, gate = F.softmax(wide, 1), torch.sigmoid(wide)
    return (x * torch.sigmoid(x), torch.tanh(F.softplus(wide)) * wide, soft.log(), gate.log(), F.log_softmax(wide, 0).exp(), -(soft * soft.log()).sum(1), (-x).sum(1), (-y).mean(), (-x).amax(0), (-y).amin(),
            (-wide).max(1).values, F.kl_div(F.softmax(x, 1).log(), F.softmax(y, 1), reduction="batchmean"), F.nll_loss(F.softmax(x, 1).log(), labels[:, 0] % 8),
            F.elu(wide) + 1, 1 / (F.elu(-wide.abs() - 18.0) + 1.0))  # fmt: skip


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special values"])
def test_formulas_that_pytorch_has_an_operator_for(after_passes, special):
    """No further from the result in double precision than PyTorch, and infinite, or NaN, where both runs of PyTorch
    are.
    """
    module, inputs = Module(_formulas), drawn_inputs(special)
    if special:
        inputs["x"].view(-1)[10:16] = torch.tensor([-50.0, -95.0, -110.0, -160.0, 2e5, -800.0])
    text = after_passes(module, inputs, ["all"])
    assert len(re.findall(r"= aten.log_softmax", text)) == 3 and not re.search(
        r"= aten.(sigmoid|tanh|softplus|xlogy|elu)", text
    ), text
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
        reference = module(
            **{
                name: tensor.double() if tensor.is_floating_point() else tensor
                for name, tensor in copied(inputs).items()
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
    inputs = drawn_inputs(special)
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
            ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
        assert len(folds) < len(eager) - 3, text
        for mine, theirs in zip(ours, eager, strict=True):
            if exact and not (special and theirs.is_floating_point()):
                assert_same_bits(mine, theirs, text)
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
    module, inputs = Module(_row_losses), drawn_inputs(special=False)
    text = after_passes(module, inputs, ["canonicalise", "rows_first"])
    assert len(re.findall(r"%\w+_of_rows\w* = ", text)) == 7, text
    with torch.no_grad():
        for ours, theirs in zip(graph_text.run(text, module, copied(inputs)), module(**copied(inputs)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-6 if ours.dtype.itemsize > 2 else 2e-2, atol=2e-6)


def _decays(self, x, y, labels):
    large = torch.cat([x * 1024, x[:, :2] * 1e30, torch.full((6, 1), torch.inf)], 1).cumsum(-1)
    sums = F.pad(8 * x.abs(), (1, 0)).cumsum(-1)
    differences = sums[..., :, None] - sums[..., None, :]
    above = torch.ones(9, 9, dtype=torch.bool).triu(1)
    turned = (y * torch.cat([sums[:, -1:] - sums[:, 1:]], 1).flip(-1)).clamp(max=-1)
    return differences.masked_fill(above, -torch.inf).exp(), (8 - sums.cumsum(0)).exp(), turned.exp(), large.exp()


def test_exponentials_of_running_sums_are_as_exact_as_their_type(after_passes):
    module, inputs = Module(_decays), drawn_inputs(special=False)
    text = after_passes(module, inputs, ["canonicalise", "layout", "exponents"])
    assert len(re.findall(r"%abs\w* = aten.abs\S*self=%_to_copy", text)) == 3, text  # not through the clamp
    with torch.no_grad():
        exact = module(**{name: value.double() for name, value in inputs.items()})
        eager, ours = module(**copied(inputs)), graph_text.run(text, module, copied(inputs))

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
    module, inputs = Module(EXACT_CASES[name]), drawn_inputs(special=False)

    def sharing(text: str) -> set[tuple[int, int]]:
        given = copied(inputs)
        with torch.no_grad():
            tensors = [*graph_text.run(text, module, given), *given.values()]
        storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        return {(i, j) for i in range(len(storages)) for j in range(i) if storages[i] == storages[j]}

    assert sharing(after_passes(module, inputs, ["all"])) <= sharing(after_passes(module, inputs, []))


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
    module, inputs = Module(_pooled_functions), drawn_inputs(special=True)
    text = after_passes(module, inputs, ["canonicalise", "fold", "extremes_first"])
    assert len(re.findall(r"%extreme\w* = ", text)) == 5, (
        text
    )  # not where amax loses the axis of what is added, nor amin of exp less a tensor
    with torch.no_grad():
        for ours, theirs in zip(graph_text.run(text, module, copied(inputs)), module(**copied(inputs)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
