"""bench/harvest.py: a run goes on where another ended, and what counts as whose fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.append(str(BENCH))

from harvesting.check import check  # noqa: E402
from harvesting.problem import NoProblem, of_call  # noqa: E402
from harvesting.samples import resized  # noqa: E402
from harvesting.table import summary  # noqa: E402


def harvest(out: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(BENCH / "harvest.py"), str(out), *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(out / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    lines = (out / "harvest.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_a_run_goes_on_where_another_ended(tmp_path: Path) -> None:
    only = ("--only", "^op/(abs|cumsum)/float32", "--count", "2")
    first = harvest(tmp_path, *only)
    assert [one["outcome"] for one in first] == ["verified", "verified"]
    assert all(row["verdict"] == "pass" for one in first for row in one["candidates"])
    # The second line was cut off by what ended the run.
    (tmp_path / "harvest.jsonl").write_text(json.dumps(first[0]) + "\n" + json.dumps(first[1])[:50] + "\n")
    lines = (tmp_path / "harvest.jsonl").read_text().count("\n")
    again = harvest(tmp_path, *only)
    assert {one["name"] for one in again} == {one["name"] for one in first}
    assert (tmp_path / "harvest.jsonl").read_text().count("\n") == lines + 1
    assert "| all | 2 | 2 | 2 | 100.0 % |" in (tmp_path / "summary.txt").read_text()


def test_sizes_are_replaced_alike() -> None:
    left, right = resized((torch.randn(5, 4), torch.randn(4, 5)), "prime")
    assert left.shape == right.shape[::-1] and not {4, 5} & set(left.shape)
    assert resized(torch.randint(4, (3, 4)), "one").tolist() == [[0]]
    with pytest.raises(NoProblem):
        resized(torch.randn(2), "zero")


def test_what_eager_raises_on_is_no_problem() -> None:
    record = check(lambda: of_call("x", torch.linalg.cholesky, lambda seed: ((-torch.eye(3),), {})), lambda stage: None)
    assert record["outcome"] == "no problem" and "positive-definite" in record["detail"]


def test_the_judge_is_told_from_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose answers no two calls share fails its own contract."""
    count = iter(range(1000))

    def other_each_time(x: torch.Tensor) -> torch.Tensor:
        return x + (0 if torch.compiler.is_exporting() else next(count))

    record = check(lambda: of_call("x", other_each_time, lambda seed: ((torch.ones(3),), {})), lambda stage: None)
    assert record["outcome"] == "judge"


def test_the_table_counts_what_export_takes() -> None:
    def record(name: str, outcome: str, **fields: Any) -> dict[str, Any]:
        return {"name": f"op/{name}", "outcome": outcome, "detail": "x 3.5", "candidates": [], "wrong": [], **fields}

    wrong = record("b", "verified", wrong=["fused"], first_wrong=True)
    text = summary([record("a", "verified"), wrong, record("c", "torch.export refuses"), record("d", "internal")], {})
    assert "| all | 4 | 3 | 2 | 66.7 % | 1 | 1 | 0 | 1 | 0 | 0 | 0 | 0 |" in text
    assert "internal: x #  [op/d]" in text
