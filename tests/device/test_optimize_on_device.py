"""`kw optimize` on the GPU, end to end. KW_BINARY names the program where it is not build/kw."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import GOOD, CommandLine


@pytest.mark.time_limit(400)
def test_optimize_verifies_and_measures(tmp_path: Path, home: Path, target: str) -> None:
    binary = Path(os.environ.get("KW_BINARY") or home / "build" / "kw")
    assert binary.exists(), f"{binary} is missing: build it, or set KW_BINARY"
    kw = CommandLine(binary, tmp_path)
    problem = kw.file("problem.py", GOOD.replace("16, 64", "4096, 1000").replace("[64]", "[1000]"))
    result = kw("optimize", problem, "--target", target, "--budget", 1, "--min-speedup", 0, "--json", "report.json")
    assert result.code == 0, result.text
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "pass" and report["target"] == target
    assert report["kernels"] and report["library_calls"] == 0
    assert report["time_ms"]["ours"] > 0 and report["time_ms"]["eager"] > 0
    assert 0 < report["roofline"]["fraction"] <= 1.05
    assert "class ModelNew(Model)" in Path(report["candidate"]).read_text()
