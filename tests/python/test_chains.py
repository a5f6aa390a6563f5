"""Convolutions that make their images of each other's results, as the planner schedules them where that pays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of
from chain_cases import CHAINS, Chain
from interpreter_process import InterpreterProcess

from kernelwright import library
from kernelwright.capture import export

PARAMETERS = {
    "convolution": {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4, "scheme": 0},
    "reduction": {"r_block": 64},
    "pointwise": {"block": 128},
}

interpreter = interpreter_of("chain_cases:interpreted")


def _schedule(case: Chain) -> dict[str, Any]:
    emitted = compile_for_gpu(case.module(64), torch.empty((32, 64, 112, 112)))
    assert len(re.findall(r"^    launch\(\s*\w+_channels_last_kernel\w*,", emitted["source"], re.M)) == case.images
    schedule = emitted["schedule"]
    for group in schedule["groups"]:
        group["parameters"] = PARAMETERS.get(group["scheduler"], {})
    return schedule


@pytest.mark.parametrize("case", CHAINS, ids=[case.name for case in CHAINS])
def test_chains_are_pytorchs(case: Chain, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """Of a small input, as for a large one."""
    schedule = _schedule(case)
    graph = json.dumps(export.export_module(case.module(), (torch.empty((2, 16, 10, 9)),), device="cpu"))
    emitted = library.compile_graph(json.loads(graph.replace('"cpu"', '"cuda"')), "triton", schedule=schedule)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault
