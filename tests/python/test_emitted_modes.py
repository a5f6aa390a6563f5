"""In which mode, training or evaluation, an emitted module's kernels run, and what it says where the original runs
instead.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright import library
from kernelwright.capture import export


class Asks(nn.Module):
    """Reads its own mode, to no effect with a probability of 0."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, self.probability, self.training)


class Hides(Asks):
    training = True  # hides the flag that nn.Module declares


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False))
    module[1].eval()
    return module


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("module", "shape", "modes"),
    [
        (nn.Sequential(nn.LayerNorm(4), nn.GELU()), (3, 4), []),
        (nn.Sequential(nn.LayerNorm(4), nn.GELU()).eval(), (3, 4), []),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)), (3, 4), []),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)).eval(), (3, 4), [["self[1]", False]]),
        (frozen(), (3, 4), [["self[1]", False]]),
        (nn.GRU(4, 4), (3, 2, 4), []),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.5), (3, 2, 4), [["self", True]]),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval(), (2, 3, 4), []),
        (Asks(0.0), (3, 4), []),
        (Asks(0.5), (3, 4), [["self", True]]),
        (Asks(0.5).eval(), (3, 4), [["self", False]]),
        (nn.Sequential(Hides(0.5), nn.ReLU()), (3, 4), [["self[0]", True]]),
    ],
    ids=[
        "norm",
        "norm-eval",
        "dropout-0",
        "dropout-eval",
        "frozen-norm",
        "gru",
        "lstm-dropout",
        "encoder-0",
        "asks-0",
        "asks",
        "asks-eval",
        "hides",
    ],
)
def test_capture_tells_whose_mode_matters(module: nn.Module, shape: tuple[int, ...], modes: list[Any]) -> None:
    flags = [one.training for one in module.modules()]
    assert export.export_module(module, (torch.zeros(shape),))["modes"] == modes
    assert [one.training for one in module.modules()] == flags
    assert "training" not in vars(nn.Module)


def load(source: str, folder: Path, name: str = "emitted_for_test") -> ModuleType:
    """An emitted file's text, written to `folder` and imported as `name`."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def emitted(module: nn.Module, *arguments: torch.Tensor, folder: Path, name: str = "emitted_for_test") -> nn.Module:
    """ModelNew of a file made for the CPU, around `module` and in its mode."""
    made: nn.Module = load(
        library.compile_graph(export.export_module(module, arguments), "cpu")["source"], folder, name
    ).ModelNew(module)
    return made.train(module.training)


def calls(made: nn.Module, *arguments: torch.Tensor) -> tuple[Any, list[str]]:
    """The result of a call, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        result = made(*arguments)
    return result, [str(one.message) for one in caught]


@pytest.mark.parametrize("training", [True, False])
def test_what_does_not_depend_on_the_mode_runs_in_both(training: bool, tmp_path: Path) -> None:
    module = nn.Sequential(nn.LayerNorm(4), nn.GELU()).train(training)
    made = emitted(module, X, folder=tmp_path)
    for mode in (training, not training):
        result, warned = calls(made.train(mode), X)
        assert warned == []
        torch.testing.assert_close(result, module(X))


def test_a_layer_in_the_other_mode_runs_the_original(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    made = emitted(module, X, folder=tmp_path)
    assert calls(made, X)[1] == []
    made.module[1].eval()  # the whole stays in training mode
    result, warned = calls(made, X)
    assert len(warned) == 1 and "it was made for training mode; call train()" in warned[0]
    torch.testing.assert_close(result, module(X))
    assert calls(made, X)[1] == []  # once for each reason
    made.eval()
    made.module[1].train()
    before = module[1].num_batches_tracked.item()
    assert calls(made, X)[1] == [] and module[1].num_batches_tracked.item() == before + 1


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(inner)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_the_warning_stands_at_the_line_of_the_call(tmp_path: Path) -> None:
    made = emitted(nn.Sequential(nn.LayerNorm(4), nn.GELU()), X, folder=tmp_path)

    def warned_at(call: Any, *arguments: Any) -> list[tuple[str, str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(*arguments)
        return [
            (Path(one.filename).name, Path(one.filename).read_text().splitlines()[one.lineno - 1].strip())
            for one in caught
        ]

    here = Path(__file__).name
    assert warned_at(user_calls, made, X) == [(here, "return made(x)  # the user's own line")]
    assert warned_at(user_calls, made, X) == []
    # Through other modules' frames and the decorator's of PyTorch, to the line that is not PyTorch's.
    assert warned_at(user_calls, Outer(made), X[:2]) == [(here, "return self.inner(x)")]
    assert warned_at(user_calls, nn.Sequential(made), X.t().contiguous().t()) == [
        (here, "return made(x)  # the user's own line")
    ]


def user_calls(made: nn.Module, x: torch.Tensor) -> Any:
    return made(x)  # the user's own line


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (lambda x: x[:2], "input is not a tensor of shape (3, 4); pass one, or make kernels for the other shape"),
        (
            lambda x: x.t().contiguous().t(),
            "input does not have the strides (4, 1); copy it into a tensor that has, or make kernels for its own",
        ),
    ],
    ids=["shape", "strides"],
)
def test_what_runs_the_original_is_said_with_what_to_do(spoiled: Any, why: str, tmp_path: Path) -> None:
    made = emitted(nn.GELU(), X, folder=tmp_path)
    result, warned = calls(made, spoiled(X))
    assert warned == [f"ModelNew runs the original forward: {why}."]
    torch.testing.assert_close(result, F.gelu(spoiled(X)))
