"""An index out of range on a GPU: the call that meets it goes on, the next one raises, and the one after that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import emit_for_gpu
from index_cases import CASES, inputs, message
from movement_cases import Case, Wrapped

from kernelwright.running import problem


@pytest.mark.parametrize("name", CASES)
def test_at_the_next_call(name: str, device: str, tmp_path: Path) -> None:
    if device != "cuda":
        pytest.skip("on a CPU the call itself raises")
    function, wrong = CASES[name]
    path = tmp_path / "candidate.py"
    path.write_text(emit_for_gpu(Case(function, inputs(5, 0)))["source"])
    candidate = problem.load_module(str(path), kind="candidate")[0].ModelNew(Wrapped(function))
    good, bad = ([tensor.to(device) for tensor in inputs(5, index)] for index in (0, wrong))
    with torch.no_grad():
        expected = function(*good)
        torch.testing.assert_close(candidate(*good), expected)
        candidate(*bad)
        torch.cuda.synchronize()
        with pytest.raises(IndexError, match=message(wrong, 5)):
            candidate(*good)
        torch.testing.assert_close(candidate(*good), expected)
