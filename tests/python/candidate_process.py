"""Candidates in processes of their own, for the tests of what passes between these and the judge."""

import textwrap
from typing import Callable

import pytest
import torch
from verification_problems import ELEMENTWISE

from kernelwright.judge.nursing import Confinement
from kernelwright.judge.remote import Remote
from kernelwright.judge.runs import Inputs
from kernelwright.running import problem as problems

HEAD = "import torch\nimport torch.nn as nn\n"


def starter() -> Callable:
    """A fixture that starts a candidate's process, of a source of ModelNew and the problem that it is for."""

    @pytest.fixture
    def resident(tmp_path):
        started = []

        def start(candidate, problem=ELEMENTWISE, deadline=None, **confinement):
            (tmp_path / "problem.py").write_text(textwrap.dedent(problem))
            (tmp_path / "candidate.py").write_text(HEAD + textwrap.dedent(candidate))
            loaded = problems.load(tmp_path / "problem.py")
            device = torch.device("cpu")
            model = loaded.construct(device, seed=1)
            remote = Remote(
                str(tmp_path / "candidate.py"),
                loaded,
                None,
                model,
                device,
                1,
                confinement=Confinement(**confinement),
                deadline=deadline,
            )
            started.append(remote)
            inputs = Inputs(loaded, device)
            inputs.fill("generator", 3, False)
            return remote, inputs

        yield start
        for remote in started:
            remote.close()

    return resident


def returning(expression):
    return f"class ModelNew(nn.Module):\n    def forward(self, x):\n        return {expression}\n"
