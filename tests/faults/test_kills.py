"""A few of the kills of `kills.py`, each time the same ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.time_limit(400)
def test_processes_that_are_killed_lose_nothing_and_change_no_verdict(kw_binary):
    environment = os.environ | {"PYTHONPATH": f"{HERE.parent}", "KW_BINARY": str(kw_binary)}
    command = [sys.executable, HERE / "kills.py", "--runs", "6", "--seed", "3", "--only", "verify,cheat"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kills" in done.stdout and ", 0 faults" in done.stdout, done.stdout
