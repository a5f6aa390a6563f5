"""Races: what is compared before anything is timed."""

import pytest

from kernelwright.judge import race

# The mean of what has no mean: its value is rounding, and so is the difference of two right ways to it.
PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x - x.mean()).mean().reshape(1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
AS_EAGER = PROBLEM + "\n\nModelNew = Model\n"
OTHERWISE = AS_EAGER.replace(
    "ModelNew = Model", "class ModelNew(Model):\n    def forward(self, x):\n        return 1.7 * super().forward(x)"
)


@pytest.mark.parametrize("errors, timed", [({}, False), ({"output[0]": 0.9}, True)])
def test_a_difference_that_eager_has_from_the_truth_is_none_to_fail_for(tmp_path, errors, timed):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    problem = write("problem.py", PROBLEM)
    candidates = [
        {"name": name, "path": write(f"{name}.py", text), "keep": False}
        for name, text in (("anchor", AS_EAGER), ("other", OTHERWISE))
    ]
    try:
        reply = race.run(
            {
                "problem": problem,
                "device": "cpu",
                "candidates": candidates,
                "seed": 1,
                "budget_seconds": 0.1,
                "eager_errors": errors,
            },
            lambda *_: None,
        )
    finally:
        race.release()
    other = reply["results"][1]
    assert bool(other["samples_ms"]) is timed and (other["error"] is None) is timed, other
    assert timed or "of its norm away from eager's" in other["error"]
