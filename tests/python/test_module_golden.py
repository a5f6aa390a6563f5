"""Every golden module does what its problem's Model does, and falls back to it where it was made for something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

HERE = Path(__file__).parent
GOLDEN = sorted((HERE.parent / "golden" / "module").glob("*.txt"))


@pytest.fixture(scope="module")
def faults() -> dict[str, list[str]]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parent.parent / "python")}
    command = [sys.executable, str(HERE / "module_golden_worker.py"), *map(str, GOLDEN)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_module_stands_in_for_its_model(path: Path, faults: dict[str, list[str]]) -> None:
    assert faults[path.stem] == []
