"""What schedulers want to see whole comes through whole: layers, norms, losses, recurrent layers, attention."""

import time

import pytest
import torch
from capture_check import compare, module_of, ops
from torch import nn

from kernelwright.capture import export


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, layer, shape",
    [
        ("linear.default", nn.Linear(4, 5), (3, 4)),
        ("conv1d.default", nn.Conv1d(4, 6, 3, padding="same", dilation=2), (2, 4, 9)),
        ("conv2d.default", nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 9, 9)),
        ("conv2d.default", nn.Conv2d(4, 6, (2, 4), padding="same"), (2, 4, 9, 9)),
        ("conv3d.default", nn.Conv3d(2, 4, 3, groups=2), (1, 2, 5, 5, 5)),
        ("conv_transpose2d.input", nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
        ("softmax.int", nn.Softmax(1), (3, 4)),
        ("log_softmax.int", nn.LogSoftmax(-1), (3, 4)),
        ("layer_norm.default", nn.LayerNorm(4), (3, 4)),
        ("group_norm.default", nn.GroupNorm(2, 4), (3, 4, 5)),
        ("rms_norm.default", nn.RMSNorm(4), (3, 4)),
        ("instance_norm.default", nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 5)),
        ("max_pool1d.default", nn.MaxPool1d(3, 2, 1), (2, 3, 9)),
        ("max_pool2d.default", nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 3, 9, 9)),
        ("max_pool3d.default", nn.MaxPool3d(2), (2, 3, 4, 4, 4)),
        ("avg_pool1d.default", nn.AvgPool1d(3), (2, 3, 9)),
        ("avg_pool2d.default", nn.AvgPool2d(3, count_include_pad=False, padding=1), (2, 3, 9, 9)),
        ("avg_pool3d.default", nn.AvgPool3d(2), (2, 3, 4, 4, 4)),
        ("adaptive_avg_pool1d.default", nn.AdaptiveAvgPool1d(2), (2, 3, 9)),
        ("adaptive_avg_pool2d.default", nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 9, 9)),
        ("adaptive_max_pool2d.default", nn.AdaptiveMaxPool2d(2), (2, 3, 9, 9)),
        ("gelu.default", nn.GELU(approximate="tanh"), (3, 4)),
        ("silu.default", nn.SiLU(inplace=False), (3, 4)),
        ("mish.default", nn.Mish(), (3, 4)),
        ("softplus.default", nn.Softplus(beta=2), (3, 4)),
        ("elu.default", nn.ELU(0.5), (3, 4)),
        ("selu.default", nn.SELU(), (3, 4)),
        ("celu.default", nn.CELU(), (3, 4)),
        ("hardswish.default", nn.Hardswish(), (3, 4)),
        ("hardsigmoid.default", nn.Hardsigmoid(), (3, 4)),
        ("hardtanh.default", nn.Hardtanh(-2, 0.5), (3, 4)),
        ("leaky_relu.default", nn.LeakyReLU(0.2), (3, 4)),
        ("cumsum.default", module_of(lambda self, x: torch.cumsum(x, 1)), (3, 4)),
        ("cumprod.default", module_of(lambda self, x: torch.cumprod(x, 1)), (3, 4)),
        ("linalg_vector_norm.default", module_of(lambda self, x: torch.norm(x, p=3, dim=1)), (3, 4)),
        ("logsumexp.default", module_of(lambda self, x: torch.logsumexp(x, 1)), (3, 4)),
        ("mm.default", module_of(lambda self, x: x @ x.T), (3, 4)),
        ("bmm.default", module_of(lambda self, x: torch.matmul(x, x.mT)), (2, 3, 4)),
        ("matmul.default", module_of(lambda self, x: torch.matmul(x, x[0, 0].T)), (2, 5, 3, 4)),
        ("upsample_nearest2d.vec", nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
        ("upsample_bilinear2d.vec", nn.Upsample(size=(5, 7), mode="bilinear"), (1, 2, 3, 3)),
        ("tril.default", module_of(lambda self, x: torch.tril(x)), (4, 4)),
        ("diag_embed.default", module_of(lambda self, x: torch.diag(x)), (4,)),
        ("masked_fill.Scalar", module_of(lambda self, x: x.masked_fill(x > 0, float("-inf"))), (3, 4)),
        ("roll.default", module_of(lambda self, x: torch.roll(x, (1, 2), (0, 1))), (3, 4)),
    ],
)
def test_composites_stay_whole(name, layer, shape):
    graph = compare(layer, torch.randn(shape))
    assert ops(graph).count(name) == 1


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "name, loss, target",
    [
        ("mse_loss", nn.MSELoss, torch.randn(3, 4)),
        ("l1_loss", nn.L1Loss, torch.randn(3, 4)),
        ("smooth_l1_loss", nn.SmoothL1Loss, torch.randn(3, 4)),
        ("huber_loss", nn.HuberLoss, torch.randn(3, 4)),
        ("kl_div", nn.KLDivLoss, torch.rand(3, 4)),
        ("cross_entropy_loss", nn.CrossEntropyLoss, torch.tensor([0, 3, 1])),
        ("nll_loss_nd", nn.NLLLoss, torch.tensor([0, 3, 1])),
        ("binary_cross_entropy_with_logits", nn.BCEWithLogitsLoss, torch.rand(3, 4)),
        ("hinge_embedding_loss", nn.HingeEmbeddingLoss, torch.ones(3, 4)),
    ],
)
def test_losses_stay_whole(name, loss, target, reduction):
    graph = compare(loss(reduction=reduction), torch.randn(3, 4), target)
    assert ops(graph) == [f"{name}.default"]


def test_triplet_and_cosine_losses_stay_whole():
    triplet = torch.randn(3, 5, 4)
    assert ops(compare(nn.TripletMarginLoss(margin=0.5), *triplet)) == ["triplet_margin_loss.default"]
    sign = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    assert ops(compare(nn.CosineEmbeddingLoss(), triplet[0], triplet[1], sign)) == ["cosine_embedding_loss.default"]


@pytest.mark.parametrize(
    "name, layer",
    [
        ("lstm.input", nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)),
        ("gru.input", nn.GRU(4, 5)),
        ("rnn_tanh.input", nn.RNN(4, 5)),
        ("rnn_relu.input", nn.RNN(4, 5, nonlinearity="relu")),
    ],
)
def test_recurrent_layers_stay_whole(name, layer):
    graph = compare(layer, torch.randn(6, 2, 4))
    assert ops(graph).count(name) == 1 and len(graph["nodes"]) < 6


@pytest.mark.alone
def test_long_sequences_are_not_traced_step_by_step():
    """Shapes without numbers: 4,096 steps of an LSTM and a GRU with projections, directions and dropout, in seconds."""
    layer = nn.LSTM(4, 6, num_layers=2, proj_size=3, bidirectional=True, batch_first=True, dropout=0.5)
    began = time.monotonic()
    graph = export.export_module(layer, (torch.randn(2, 4096, 4),))
    assert "lstm.input" in ops(graph) and time.monotonic() - began < 20
    values = [graph["values"][item["value"]]["shape"] for item in graph["outputs"]]
    assert values == [[2, 4096, 6], [4, 2, 3], [4, 2, 6]]
    assert ops(
        export.export_module(nn.GRU(4, 5).half(), (torch.randn(4096, 2, 4).half(), torch.zeros(1, 2, 5).half()))
    ) == ["gru.input"]
    assert torch.equal(layer.eval()(torch.ones(2, 3, 4))[0], layer(torch.ones(2, 3, 4))[0]), (
        "the layer itself no longer works"
    )


@pytest.mark.parametrize("training", [True, False])
def test_attention_stays_whole(training):
    graph = compare(
        nn.MultiheadAttention(8, 2, batch_first=True).train(training), *torch.randn(3, 2, 5, 8), need_weights=False
    )
    assert ops(graph).count("scaled_dot_product_attention.default") == 1
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train(training)
    assert {"linear.default", "layer_norm.default", "scaled_dot_product_attention.default"} <= set(
        ops(compare(layer, torch.randn(2, 5, 8)))
    )


def test_einsum_becomes_products_and_views():
    graph = compare(
        module_of(lambda self, x, y: torch.einsum("bij,bkj->bik", x, y)), torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    )
    assert "bmm.default" in ops(graph) and "einsum.default" not in ops(graph)
