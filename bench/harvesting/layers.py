"""Problems from classes and functions whose signatures say what they take: the first guess that eager runs is one."""

from __future__ import annotations

import inspect
import itertools
import warnings
from typing import Any, Callable, Iterator

import torch

from .problem import NoProblem, Problem, of_call, seed_all

_SHAPES = ((2, 16, 8, 8), (2, 9, 16), (3, 16), (2, 3, 32, 32), (16,), (2, 8, 8, 16), (2, 4, 9, 16))
# What constructors' parameters are called, and small values for them.
_SIZES = {
    "dim": 16, "dims": 16, "in_features": 16, "out_features": 16, "hidden_features": 16, "in_channels": 16,
    "out_channels": 16, "channels": 16,
    "num_features": 16, "num_channels": 16, "in_chs": 16, "out_chs": 16, "in_dim": 16, "out_dim": 16, "embed_dim": 16,
    "input_channels": 16,
    "squeeze_channels": 4, "hidden_channels": [16, 8], "hidden_size": 16, "hidden_dim": 16, "normalized_shape": 16,
    "num_heads": 4, "nhead": 4,
    "kernel_size": 3, "p": 0.1, "block_size": 3, "mode": "row", "feat_size": 8, "window_size": (4, 4),
    "num_classes": 5, "nx": 16, "nf": 16,
    "d_model": 16, "inplanes": 16, "planes": 16, "inp": 16, "oup": 16, "width": 16, "layer_scale": 0.1,
    "stochastic_depth_prob": 0.0,
    "num_input_features": 16, "growth_rate": 8, "bn_size": 2, "drop_rate": 0.0, "squeeze_planes": 4,
    "expand1x1_planes": 8, "expand3x3_planes": 8,
    "in_planes": 16, "mlp_dim": 32, "dropout": 0.0, "attention_dropout": 0.0, "eps": 1e-5, "drop_prob": 0.1,
    "num_embeddings": 11,
    "embedding_dim": 16, "input_size": 16, "pool_size": 2, "input_dim": 16, "output_dim": 16, "head_dim": 8, "size": 8,
    "img_size": 32,
    "patch_size": 4, "in_chans": 3, "expand_ratio": 2, "stride": 1, "act_layer": torch.nn.ReLU,
    "norm_layer": torch.nn.LayerNorm,
}  # fmt: skip


class Layers:
    """Layers of a package: constructed from their parameters' names, called on the first shape that they take."""

    def __init__(self, source: str, classes: dict[str, type[torch.nn.Module]]) -> None:
        self.source = source
        self.classes = classes

    def names(self, seed: int, share: int) -> Iterator[str]:
        for title in self.classes:
            for mode in ("train", "eval"):
                yield f"{self.source}/{title}/{mode}"

    def make(self, name: str) -> Problem:
        _, title, mode = name.split("/")
        module = self._constructed(self.classes[title]).train(mode == "train")
        count = len(_required(type(module).forward)) - 1
        for shape in _SHAPES:
            draw = _drawn(shape, max(1, count))
            if _runs(module, draw(0)):
                return Problem(name, module, draw(0), {}, draw)
        raise NoProblem("no guess at its inputs runs")

    def _constructed(self, made: type[torch.nn.Module]) -> torch.nn.Module:
        required = [one for one in _required(made.__init__) if one != "self"]
        if not all(one in _SIZES for one in required):
            raise NoProblem(f"nothing is known of its parameters {[one for one in required if one not in _SIZES]}")
        seed_all(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return made(**{one: _SIZES[one] for one in required})
        except Exception as error:
            raise NoProblem(f"its constructor raises {type(error).__name__}: {error}") from None


def _drawn(shape: tuple[int, ...], count: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    def draw(seed: int) -> tuple[torch.Tensor, ...]:
        seed_all(seed)
        return tuple(torch.randn(shape) for _ in range(count))

    return draw


def _required(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.default is inspect.Parameter.empty and one.kind in plain]


def _runs(module: torch.nn.Module, arguments: tuple[Any, ...]) -> bool:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module(*arguments)
        return True
    except Exception:
        return False


def _boxes(count: int = 6) -> torch.Tensor:
    corner = torch.rand(count, 2) * 10
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 5], 1)


# What functions' parameters are called. A value is made anew for each seed.
_VALUES: dict[str, Callable[[], Any]] = {
    "image": lambda: torch.rand(3, 12, 10), "inpt": lambda: torch.rand(3, 12, 10), "img": lambda: torch.rand(3, 12, 10),
    "video": lambda: torch.rand(2, 3, 12, 10), "boxes": _boxes, "boxes1": _boxes, "boxes2": _boxes,
    "bounding_boxes": _boxes,
    "inputs": lambda: torch.randn(6, 4), "targets": lambda: torch.rand(6, 4), "input": lambda: torch.randn(4, 8, 6, 6),
    "x": lambda: torch.randn(2, 16, 8, 8),
    "scores": lambda: torch.rand(6), "iou_threshold": lambda: 0.5, "p": lambda: 0.0, "mode": lambda: "batch",
    "block_size": lambda: 3,
    "size": lambda: [8, 6], "angle": lambda: 30.0, "translate": lambda: [1, 2], "scale": lambda: 1.2,
    "shear": lambda: [3.0, 1.0],
    "brightness_factor": lambda: 1.2, "contrast_factor": lambda: 0.8, "saturation_factor": lambda: 1.3,
    "hue_factor": lambda: 0.1, "gamma": lambda: 0.7,
    "sharpness_factor": lambda: 1.5, "bits": lambda: 4, "threshold": lambda: 0.5, "top": lambda: 1, "left": lambda: 2,
    "height": lambda: 6, "width": lambda: 5,
    "output_size": lambda: [6, 6], "padding": lambda: [1, 2], "mean": lambda: [0.5, 0.4, 0.3], "std": lambda: [0.2,
    0.3, 0.1], "kernel_size": lambda: [3, 3],
    "sigma": lambda: [0.8, 0.8], "i": lambda: 1, "j": lambda: 2, "h": lambda: 4, "w": lambda: 5,
    "v": lambda: torch.zeros(3, 4, 5), "dtype": lambda: torch.float64,
    "startpoints": lambda: [[0, 0], [9, 0], [9, 11], [0, 11]], "endpoints": lambda: [[1, 0], [8, 1], [9, 10], [0, 11]],
    "in_fmt": lambda: "xyxy",
    "out_fmt": lambda: "cxcywh", "displacement": lambda: torch.rand(1, 12, 10, 2) * 0.1,
    "num_temporal_samples": lambda: 1, "alpha": lambda: 0.3,
    "quality": lambda: 50, "min_size": lambda: 2.0, "size_boxes": lambda: (12, 12),
}  # fmt: skip


class Functions:
    """Functions of a package, called by their parameters' names."""

    def __init__(self, source: str, functions: dict[str, Callable[..., Any]]) -> None:
        self.source = source
        self.functions = functions

    def names(self, seed: int, share: int) -> Iterator[str]:
        for title in self.functions:
            yield f"{self.source}/{title}"

    def make(self, name: str) -> Problem:
        function = self.functions[name.split("/")[1]]
        required = _required(function)
        unknown = [one for one in required if one not in _VALUES]
        if unknown or not required:
            raise NoProblem(f"nothing is known of its parameters {unknown}")

        def draw(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            seed_all(seed)
            return tuple(_VALUES[one]() for one in required), {}

        return of_call(name, function, draw)


class Calls:
    """Problems that are written out: name → (function, maker of its arguments)."""

    def __init__(self, source: str, calls: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]) -> None:
        self.source = source
        self.calls = calls

    def names(self, seed: int, share: int) -> Iterator[str]:
        for title in self.calls:
            yield f"{self.source}/{title}"

    def make(self, name: str) -> Problem:
        function, arguments = self.calls[name.split("/", 1)[1]]

        def draw(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            seed_all(seed)
            return arguments(), {}

        if isinstance(function, torch.nn.Module):
            return Problem(name, function, draw(0)[0], {}, lambda seed: draw(seed)[0])
        return of_call(name, function, draw)


def modules_of(*namespaces: Any) -> dict[str, type[torch.nn.Module]]:
    """The module classes that stand in these Python modules, by name."""
    found = itertools.chain.from_iterable(vars(one).items() for one in namespaces)
    return {
        name: value
        for name, value in sorted(found, key=lambda item: item[0])
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    }


def functions_of(namespace: Any) -> dict[str, Callable[..., Any]]:
    """The public functions of a Python module, by name."""
    return {
        name: value
        for name, value in sorted(vars(namespace).items())
        if inspect.isfunction(value) and not name.startswith("_")
    }
