"""bench/old_and_new.py: which modules it pairs, and what it says of the faster one and of one that cannot run."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch

PROBLEM = """
import torch

def get_init_inputs():
    return [3.0]

def get_inputs(size="full"):
    return [torch.rand(64 if size == "cpu" else 1 << 30)]
"""

CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        for _ in range({times}):
            y = x * self.scale
        return y
"""


@pytest.fixture
def script(home: Path) -> Iterator[Any]:
    """The script as a module; what it sets of PyTorch is set back."""
    specification = importlib.util.spec_from_file_location("old_and_new", home / "bench" / "old_and_new.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    threads, modules = torch.get_num_threads(), set(sys.modules)
    yield module
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / "candidates" / "suite" / f"{name}_kw.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pair_of(script: Any, tmp_path: Path, old: str, new: str) -> dict[str, Any]:
    problem = tmp_path / "scaled.py"
    problem.write_text(PROBLEM)
    for which, text in (("old", old), ("new", new)):
        written(tmp_path / which, "scaled", text)
    files = {which: script.candidates(tmp_path / which)["scaled"] for which in ("old", "new")}
    return {"name": "scaled", "problem": str(problem), "size": "cpu", "device": "cpu", "threads": 1, **files}


def test_more_work_takes_longer(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "MOST_SECONDS", 0.3)
    slow, quick = CANDIDATE.format(times=200), CANDIDATE.format(times=1)
    found = script.compare(pair_of(script, tmp_path, slow, quick))
    assert found["ratio"] > 4 and found["old_ms"] > found["new_ms"] > 0
    assert found["quartiles"][0] <= found["ratio"] <= found["quartiles"][1]


def test_a_module_that_fails_is_told_by_its_error(script: Any, tmp_path: Path) -> None:
    quick = CANDIDATE.format(times=1)
    found = script.compare(pair_of(script, tmp_path, quick, quick.replace("return y", "return y + z")))
    assert found == {"name": "scaled", "error": "NameError: name 'z' is not defined"}


def test_without_a_pair_there_is_a_message(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair_of(script, tmp_path, CANDIDATE, CANDIDATE)
    (tmp_path / "other.py").write_text(PROBLEM)
    arguments = ["old_and_new.py", str(tmp_path / "old"), str(tmp_path / "new"), str(tmp_path / "other.py")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert script.main() == 2
    assert "no problem has a module in both folders" in capsys.readouterr().err


def test_the_line_of_every_pair_and_their_mean(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Here:
        """A pool whose one process is this one."""

        def Pool(self, *count: int, **options: int) -> Here:
            return self

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *error: object) -> None: ...

        def imap_unordered(self, function: Any, pairs: list[Any]) -> Iterator[Any]:
            return map(function, pairs)

    answers = [{"name": "scaled", "old_ms": 2.0, "new_ms": 1.0, "ratio": 2.0}, {"name": "scaled", "error": "no"}]
    monkeypatch.setattr(script, "compare", lambda pair: answers.pop(0))
    monkeypatch.setattr(script.multiprocessing, "get_context", lambda kind: Here())
    pair = pair_of(script, tmp_path, CANDIDATE, CANDIDATE)
    arguments = ["x", str(tmp_path / "old"), str(tmp_path / "new"), pair["problem"], pair["problem"]]
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(tmp_path / "times.jsonl")])
    assert script.main() == 0
    assert "1 of 2: geometric mean of old over new 2.000, lowest 2.000 (scaled)" in capsys.readouterr().out
    assert [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()][1]["error"] == "no"
