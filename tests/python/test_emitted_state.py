"""An emitted module is a module like others: it is saved, copied, pickled, moved, cast and called from threads, and
stays right.
"""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from test_emitted_modes import calls, emitted
from torch import nn

from kernelwright import library
from kernelwright.capture import export

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Counted(nn.Module):
    """A norm, and a buffer that every call moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1.0)
        return self.norm(x) * 2 + self.seen


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return emitted(Counted(), X, folder=tmp_path_factory.mktemp("emitted"), name="emitted_state_for_test")


def same(ours: nn.Module, theirs: nn.Module, x: torch.Tensor, warns: bool) -> None:
    """Both compute the same and are left in the same state; ours warns, or does not."""
    with torch.no_grad():
        expected = theirs(x)
    sys.modules["emitted_state_for_test"].warn_once.cache_clear()
    result, warned = calls(ours, x)
    torch.testing.assert_close(result, expected)
    assert bool(warned) == warns, warned
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()["module." + name], value)


def test_copies_are_modules_of_their_own(made: nn.Module) -> None:
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        before = made.module.seen.item()
        with torch.no_grad():
            again.module.norm.weight.mul_(3.0)
        same(again, copy.deepcopy(again.module), X, warns=False)
        assert made.module.seen.item() == before and made.module.norm.weight.max() == 1.0


def test_a_state_dict_is_loaded(made: nn.Module) -> None:
    ours, other = copy.deepcopy(made), Counted()
    nn.init.normal_(other.norm.weight)
    assert (
        ours.load_state_dict({"module." + name: value for name, value in other.state_dict().items()}).missing_keys == []
    )
    same(ours, other, X, warns=False)


def test_another_dtype_runs_the_original_until_it_is_the_first_again(made: nn.Module) -> None:
    ours = copy.deepcopy(made)
    for dtype, warns in ((torch.float64, True), (torch.bfloat16, True), (torch.float32, False)):
        ours.to(dtype)
        same(ours, copy.deepcopy(ours.module), X.to(dtype), warns)


def test_gradients_come_from_the_original(made: nn.Module) -> None:
    ours = copy.deepcopy(made)
    x = X.clone().requires_grad_()
    with pytest.warns(
        UserWarning, match=r"gradients are wanted, which the kernels do not compute; call it under torch.no_grad\(\)"
    ):
        sys.modules["emitted_state_for_test"].warn_once.cache_clear()
        ours(x).sum().backward()
    assert x.grad is not None and ours.module.norm.weight.grad is not None
    with torch.no_grad():
        assert not ours(x).requires_grad
    with torch.inference_mode():
        assert not calls(copy.deepcopy(made), X)[1]


def test_threads_share_a_module(made: nn.Module) -> None:
    plain = [copy.deepcopy(made) for _ in range(4)]
    sys.modules["emitted_state_for_test"].load_kernels.cache_clear()
    results: list[Any] = [None] * 4

    def run(index: int) -> None:
        with torch.no_grad():
            results[index] = plain[index](X)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        torch.testing.assert_close(result, results[0])


def test_a_fresh_process_without_a_writable_cache(made: nn.Module, tmp_path: Path) -> None:
    """It compiles for itself and leaves nothing behind."""
    source = Path(sys.modules["emitted_state_for_test"].__file__ or "")
    script = tmp_path / "use.py"
    script.write_text(
        "import sys, warnings, torch\n"
        f"sys.path.insert(0, {str(source.parent)!r})\n"
        "from emitted_state_for_test import ModelNew\n"
        "from test_emitted_state import Counted, X\n"
        "warnings.simplefilter('error')\n"
        "module = Counted()\n"
        "with torch.no_grad():\n"
        "    torch.testing.assert_close(ModelNew(module)(X), module.norm(X) * 2 + 1)\n"
    )
    folders = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent.parent / "python")])
    (tmp_path / "scratch").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": folders,
        "XDG_CACHE_HOME": "/dev/null/cache",
        "TMPDIR": str(tmp_path / "scratch"),
    }
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "scratch").iterdir() if path.name.startswith("kernels-")] == []


class Moving(nn.Module):
    """A state that is no buffer, which its first call moves to where it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.state = torch.zeros(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state.to(x.device)
        return torch.relu(self.fc(x) + self.state)


def test_plain_tensors_that_forward_moves_are_moved_before_the_kernels_look_at_them() -> None:
    moved = "if isinstance(self.module.state, torch.Tensor) and self.module.state.is_cpu:"
    graph = export.export_module(Moving(), (X,), device="cuda")
    source = library.compile_graph(graph, "triton")["source"]
    assert moved in source and "self.module.state = self.module.state.to(self.module.fc.weight.device)" in source
    assert source.index(moved) < source.index("reason = why_not(")
    stays = export.export_module(Moving(), (X,), device="cpu")
    assert moved not in library.compile_graph(stays, "cpu")["source"]
