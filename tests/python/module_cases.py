"""Every module of torch.nn that moves memory or reduces, with small inputs: what tests hold against the list of library
calls.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

Tensor = torch.Tensor
Example = tuple[nn.Module, tuple[Any, ...]]


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def _unit(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)))


def _signs(*shape: int) -> Tensor:
    return _x(*shape).sign()


def _whole(most: int, *shape: int) -> Tensor:
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(len(shape)))


_PICTURES = {1: (2, 4, 11), 2: (2, 4, 11, 9), 3: (2, 4, 7, 6, 9)}


def _by_dims(
    name: str, *arguments: Any, dims: tuple[int, ...] = (1, 2, 3), **keywords: Any
) -> dict[str, Callable[[], Example]]:
    """The 1-D, 2-D and 3-D modules of one name."""
    title = ", ".join(map(str, [*arguments, *keywords.values()]))
    return {
        f"{name}{d}d({title})": lambda d=d: (getattr(nn, f"{name}{d}d")(*arguments, **keywords), (_x(*_PICTURES[d]),))
        for d in dims
    }


def _elementwise() -> dict[str, Callable[[], Example]]:
    names = ["CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "SELU",
             "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Softmax2d", "Identity"]  # fmt: skip
    cases = {name: lambda name=name: (getattr(nn, name)(), (_x(2, 4, 5, 6),)) for name in names}
    cases |= {
        name: lambda name=name: (getattr(nn, name)(1), (_x(2, 4, 5, 6),))
        for name in ("GLU", "Softmax", "Softmin", "LogSoftmax")
    }
    cases["Threshold"] = lambda: (nn.Threshold(0.1, 2.0), (_x(4, 5),))
    cases["RReLU eval"] = lambda: (nn.RReLU().eval(), (_x(4, 5),))
    cases["Flatten"] = lambda: (nn.Flatten(), (_x(4, 5, 6),))
    cases["Unflatten"] = lambda: (nn.Unflatten(1, (2, 3)), (_x(4, 6),))
    return cases


def _losses() -> dict[str, Callable[[], Example]]:
    def of(name: str, *arguments: Callable[[], Any], **keywords: Any) -> dict[str, Callable[[], Example]]:
        return {
            f"{name}({reduction})": lambda reduction=reduction: (
                getattr(nn, name)(reduction=reduction, **keywords),
                tuple(one() for one in arguments),
            )
            for reduction in ("none", "mean", "sum")
        }

    def x() -> Tensor:
        return _x(6, 5)

    def y() -> Tensor:
        return _x(6, 5) * 0.5 + 0.1

    cases: dict[str, Callable[[], Example]] = {}
    for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
        cases |= of(name, x, y)
    cases |= of("BCELoss", lambda: _unit(6, 5), lambda: _unit(6, 5)) | of("BCEWithLogitsLoss", x, lambda: _unit(6, 5))
    cases |= of("KLDivLoss", x, lambda: _unit(6, 5)) | of("PoissonNLLLoss", x, lambda: _unit(6, 5))
    cases |= (
        of("GaussianNLLLoss", x, y, lambda: _unit(6, 5))
        | of("SoftMarginLoss", x, lambda: _signs(6, 5))
        | of("HingeEmbeddingLoss", x, lambda: _signs(6, 5))
    )
    cases |= of("MarginRankingLoss", lambda: _x(6), lambda: _x(6) * 0.5, lambda: _signs(6)) | of(
        "CosineEmbeddingLoss", x, y, lambda: _signs(6)
    )
    cases |= of("TripletMarginLoss", x, y, lambda: _x(6, 5).flip(0)) | of(
        "TripletMarginWithDistanceLoss", x, y, lambda: _x(6, 5).flip(0)
    )
    cases |= of("CrossEntropyLoss", x, lambda: _whole(5, 6)) | of("NLLLoss", x, lambda: _whole(5, 6))
    cases |= {
        "smoothed " + name: case
        for name, case in of("CrossEntropyLoss", x, lambda: _whole(5, 6), label_smoothing=0.1).items()
    }
    cases |= {"soft " + name: case for name, case in of("CrossEntropyLoss", x, lambda: _unit(6, 5)).items()}
    cases |= {
        "pictures " + name: case
        for name, case in of("CrossEntropyLoss", lambda: _x(2, 5, 3, 4), lambda: _whole(5, 2, 3, 4)).items()
    }
    cases |= of("MultiLabelMarginLoss", x, lambda: torch.cat((_whole(5, 6, 1), torch.full((6, 4), -1)), 1))
    cases |= of("MultiLabelSoftMarginLoss", x, lambda: _whole(2, 6, 5).float()) | of(
        "MultiMarginLoss", x, lambda: _whole(5, 6)
    )
    cases |= {"squared " + name: case for name, case in of("MultiMarginLoss", x, lambda: _whole(5, 6), p=2).items()}
    cases["CosineSimilarity"] = lambda: (nn.CosineSimilarity(), (x(), y()))
    cases["PairwiseDistance"] = lambda: (nn.PairwiseDistance(), (x(), y()))
    return cases


def _pools() -> dict[str, Callable[[], Example]]:
    cases: dict[str, Callable[[], Example]] = {}
    cases |= (
        _by_dims("MaxPool", 3, 2, 1)
        | _by_dims("MaxPool", 2, return_indices=True)
        | _by_dims("AvgPool", 3, 2, 1)
        | _by_dims("LPPool", 2, 3)
    )
    for output in (1, 2, 3, 5):
        cases |= (
            _by_dims("AdaptiveAvgPool", output)
            | _by_dims("AdaptiveMaxPool", output)
            | _by_dims("AdaptiveMaxPool", output, return_indices=True)
        )
    cases |= _by_dims("FractionalMaxPool", 2, output_size=3, dims=(2, 3))
    for d in (1, 2, 3):
        shape = _PICTURES[d]
        half = tuple(size // 2 for size in shape[2:])
        cases[f"MaxUnpool{d}d"] = lambda d=d, shape=shape, half=half: (
            getattr(nn, f"MaxUnpool{d}d")(2),
            (
                _x(*shape[:2], *half),
                getattr(nn.functional, f"max_pool{d}d")(
                    _x(*shape[:2], *(2 * one for one in half)), 2, return_indices=True
                )[1],
            ),
        )
    cases["Fold(overlapping)"] = lambda: (nn.Fold((8, 9), 3, padding=1, stride=2), (_x(2, 18, 20),))
    cases["Fold(side by side)"] = lambda: (nn.Fold((8, 6), 2, stride=2), (_x(2, 12, 12),))
    cases["Fold(dilated)"] = lambda: (nn.Fold((8, 9), 3, dilation=2, padding=1, stride=1), (_x(2, 18, 42),))
    cases["Unfold"] = lambda: (nn.Unfold(3, padding=1, stride=2), (_x(2, 3, 8, 9),))
    return cases


def _borders_and_shuffles() -> dict[str, Callable[[], Example]]:
    cases: dict[str, Callable[[], Example]] = {}
    cases |= (
        _by_dims("ReflectionPad", 2)
        | _by_dims("ReplicationPad", 2)
        | _by_dims("ZeroPad", 2)
        | _by_dims("ConstantPad", 2, 1.5)
        | _by_dims("CircularPad", 2)
    )
    cases["PixelShuffle"] = lambda: (nn.PixelShuffle(2), (_x(2, 8, 3, 5),))
    cases["PixelUnshuffle"] = lambda: (nn.PixelUnshuffle(2), (_x(2, 3, 4, 6),))
    cases["ChannelShuffle"] = lambda: (nn.ChannelShuffle(2), (_x(2, 8, 3, 5),))
    for mode, d in (
        ("nearest", 1),
        ("nearest", 2),
        ("nearest", 3),
        ("nearest-exact", 2),
        ("linear", 1),
        ("bilinear", 2),
        ("trilinear", 3),
        ("bicubic", 2),
    ):
        cases[f"Upsample({mode}, {d})"] = lambda mode=mode, d=d: (
            nn.Upsample(scale_factor=2, mode=mode),
            (_x(*_PICTURES[d]),),
        )
    cases["UpsamplingNearest2d"] = lambda: (nn.UpsamplingNearest2d(scale_factor=2), (_x(*_PICTURES[2]),))
    cases["UpsamplingBilinear2d"] = lambda: (nn.UpsamplingBilinear2d(scale_factor=2), (_x(*_PICTURES[2]),))
    return cases


def _norms() -> dict[str, Callable[[], Example]]:
    cases: dict[str, Callable[[], Example]] = {}
    for mode in ("train", "eval"):
        for name, case in (
            _by_dims("BatchNorm", 4)
            | _by_dims("InstanceNorm", 4, affine=True)
            | _by_dims("InstanceNorm", 4, track_running_stats=True)
        ).items():
            cases[f"{name} {mode}"] = lambda case=case, mode=mode: (case()[0].train(mode == "train"), case()[1])
    cases["GroupNorm"] = lambda: (nn.GroupNorm(2, 4), (_x(*_PICTURES[2]),))
    cases["LayerNorm"] = lambda: (nn.LayerNorm([11, 9]), (_x(*_PICTURES[2]),))
    cases["RMSNorm"] = lambda: (nn.RMSNorm([9]), (_x(*_PICTURES[2]),))
    cases["LocalResponseNorm"] = lambda: (nn.LocalResponseNorm(3), (_x(*_PICTURES[2]),))
    return cases


def _embeddings() -> dict[str, Callable[[], Example]]:
    cases: dict[str, Callable[[], Example]] = {}
    cases["Embedding"] = lambda: (nn.Embedding(10, 6), (_whole(10, 3, 4),))
    cases["Embedding(padding)"] = lambda: (nn.Embedding(10, 6, padding_idx=0), (_whole(10, 3, 4),))
    for mode in ("sum", "mean", "max"):
        cases[f"EmbeddingBag({mode}, rows)"] = lambda mode=mode: (
            nn.EmbeddingBag(10, 6, mode=mode),
            (_whole(10, 3, 4),),
        )
        cases[f"EmbeddingBag({mode}, offsets)"] = lambda mode=mode: (
            nn.EmbeddingBag(10, 6, mode=mode),
            (_whole(10, 9), torch.tensor([0, 4, 4, 7])),
        )
        cases[f"EmbeddingBag({mode}, padding)"] = lambda mode=mode: (
            nn.EmbeddingBag(10, 6, mode=mode, padding_idx=1),
            (_whole(10, 9), torch.tensor([0, 4, 4, 7])),
        )
        cases[f"EmbeddingBag({mode}, last offset)"] = lambda mode=mode: (
            nn.EmbeddingBag(10, 6, mode=mode, include_last_offset=True),
            (_whole(10, 9), torch.tensor([0, 4, 4, 9])),
        )
    cases["EmbeddingBag(weights)"] = lambda: (
        nn.EmbeddingBag(10, 6, mode="sum"),
        (_whole(10, 9), torch.tensor([0, 4, 4, 7]), _x(9)),
    )
    return cases


def _random() -> dict[str, Callable[[], Example]]:
    names = {"Dropout": 2, "Dropout1d": 3, "Dropout2d": 4, "Dropout3d": 5, "AlphaDropout": 2, "FeatureAlphaDropout": 3}
    cases: dict[str, Callable[[], Example]] = {}
    for mode in ("train", "eval"):
        for name, rank in names.items():
            cases[f"{name} {mode}"] = lambda name=name, rank=rank, mode=mode: (
                getattr(nn, name)().train(mode == "train"),
                (_x(*range(2, 2 + rank)),),
            )
    cases["RReLU train"] = lambda: (nn.RReLU().train(), (_x(4, 5),))
    return cases


CASES: dict[str, Callable[[], Example]] = (
    _elementwise() | _losses() | _pools() | _borders_and_shuffles() | _norms() | _embeddings() | _random()
)
