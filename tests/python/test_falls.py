"""A candidate whose process falls over, in whatever way: the next one has a fresh process and is judged rightly. And
outputs of every dtype that PyTorch has: a verdict, never a fault of ours.
"""

import pytest
import torch
from verification_problems import ELEMENTWISE, check, failed_checks, wrong_outputs  # noqa: F401, F811

from kernelwright import errors

FALLS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "abort": ("import os; os.abort()", "crashed"),
    "exit": ("import os; os._exit(0)", "exited"),
    "stack": (
        "import sys; sys.setrecursionlimit(10**9); inner = []; [inner := [inner] for _ in range(10**6)]; repr(inner)",
        "crashed",
    ),
    "memory": ("torch.empty(1 << 42, dtype=torch.uint8).fill_(1)", "out-of-memory"),
    "kill": ("import os; os.kill(os.getpid(), 9)", "killed"),
}


@pytest.mark.parametrize("fall", FALLS)
def test_the_next_candidate_is_judged_rightly(check, fall):
    does, code = FALLS[fall]
    with pytest.raises(errors.Error) as caught:
        check(
            ELEMENTWISE,
            f"class ModelNew(Model):\n    def forward(self, x):\n        {does}\n        return super().forward(x)\n",
        )
    assert caught.value.kind == "candidate" and code in (None, caught.value.code), caught.value
    right = check(ELEMENTWISE, "class ModelNew(Model):\n    pass\n", draws=2)
    assert wrong_outputs(right) == [] and failed_checks(right) == set()
    wrong = check(ELEMENTWISE, "class ModelNew(Model):\n    def forward(self, x):\n        return x * 2\n", draws=2)
    assert wrong_outputs(wrong)


DTYPES = sorted({str(one)[6:] for one in vars(torch).values() if isinstance(one, torch.dtype)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_of_any_dtype_get_a_verdict(check, dtype):
    body = f"""
    class ModelNew(Model):
        def forward(self, x):
            result = super().forward(x)
            if torch.{dtype} == result.dtype:
                return result + 1
            return torch.empty(result.shape, dtype=torch.{dtype})
    """
    try:
        result = check(ELEMENTWISE, body, draws=2)
    except errors.Error as error:
        assert error.kind == "candidate", error
        return
    assert wrong_outputs(result)
