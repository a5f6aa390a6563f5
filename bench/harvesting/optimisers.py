"""Problems from torch.optim: one step of every _single_tensor function, states updated in place."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, Callable, Iterator

import torch

from .problem import Problem, seed_all

_NUMBERS = {
    "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01, "eps": 1e-6, "momentum": 0.9, "dampening": 0.1,
    "alpha": 0.9, "rho": 0.9,
    "lr_decay": 0.01, "lambd": 1e-4, "t0": 1e6, "momentum_decay": 0.004, "step_size_min": 1e-6, "step_size_max": 50.0,
    "etaminus": 0.5,
    "etaplus": 1.2, "ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 2, "adjust_lr_fn": None,
    "beta2_decay": -0.8, "d": 1.0,
}  # fmt: skip
_FIXED = {"has_complex": False, "has_sparse_grad": False, "differentiable": False}
_SCALARS = ("state_steps", "mu_products", "etas", "mus")


class Step(torch.nn.Module):
    """One call of a single-tensor function; the parameters are what it returns."""

    def __init__(self, function: Callable[..., None], names: list[str], settings: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.names, self.settings = function, names, settings

    def forward(self, *lists: list[torch.Tensor]) -> list[torch.Tensor]:
        given = dict(zip(self.names, lists))
        self.function(**given, **self.settings)
        return [parameter * 1.0 for parameter in given["params"]]


class Optimisers:
    source = "optim"

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., None]] = {}
        for item in pkgutil.iter_modules(torch.optim.__path__):
            if item.name == "lr_scheduler" or item.ispkg:
                continue
            module = importlib.import_module(f"torch.optim.{item.name}")
            for name, function in vars(module).items():
                if name.startswith("_single_tensor_"):
                    self.functions[name.removeprefix("_single_tensor_")] = function

    def names(self, seed: int, share: int) -> Iterator[str]:
        for name, function in self.functions.items():
            for dtype in ("float32", "float64"):
                yield f"optim/{name}/{dtype}/"
            for parameter in inspect.signature(function).parameters.values():
                if parameter.annotation == "bool" and parameter.name not in _FIXED:
                    yield f"optim/{name}/float32/{parameter.name}"

    def make(self, name: str) -> Problem:
        _, title, dtype, flag = name.split("/")
        function = self.functions[title]
        names, settings = [], {}
        for parameter in inspect.signature(function).parameters.values():
            if str(parameter.annotation).startswith("list"):
                names.append(parameter.name)
            elif parameter.name in _NUMBERS or parameter.name in _FIXED:
                settings[parameter.name] = {**_NUMBERS, **_FIXED}[parameter.name]
            elif parameter.annotation == "bool":
                settings[parameter.name] = parameter.name == flag
            else:
                settings[parameter.name] = None

        def draw(seed: int) -> tuple[Any, ...]:
            seed_all(seed)
            return tuple(_state(one, getattr(torch, dtype)) for one in names)

        return Problem(name, Step(function, names, settings), draw(0), {}, draw)


def _state(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    if name in _SCALARS:
        return [torch.tensor(3.0 if name == "state_steps" else 0.5) for _ in range(2)]
    drawn = [torch.randn(7, 5, dtype=dtype), torch.randn(3, 4, dtype=dtype)]
    return drawn if name in ("params", "grads") else [one.abs() for one in drawn]
