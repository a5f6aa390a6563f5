"""A few thousand of the answers of tests/fuzz/candidate_answers.py, each time the same ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_whatever_a_candidates_process_answers_is_its_own_fault():
    environment = os.environ | {"PYTHONPATH": os.environ["KW_PYTHONPATH"]}
    command = [sys.executable, TESTS / "fuzz" / "candidate_answers.py", "--executions", "3000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 executions, 0 faults" in done.stdout, done.stdout
