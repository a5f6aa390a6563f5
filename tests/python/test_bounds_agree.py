"""The worker's question for further runs (judge/sensitivity.py) and the core's bound (src/judge/contract.cpp)."""

import copy

import pytest

from kernelwright import errors, library
from kernelwright.judge.sensitivity import is_beyond

EPSILONS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def row_of(epsilon, eager, summands, compared, **further):
    return {
        "name": "output[0]",
        "shape_ok": True,
        "dtype_ok": True,
        "device_ok": True,
        "strides_ok": True,
        "exact": False,
        "nonfinite_ok": True,
        "mismatches": 0,
        "where": [],
        "ours_value": 0.0,
        "reference_value": 0.0,
        "epsilon": epsilon,
        "summands": summands,
        "compared": compared,
        "eager": {"norm": eager[0] * epsilon, "max": eager[1] * epsilon},
        "ours": {"norm": 0.0, "max": 0.0},
    } | {key: {"norm": one[0] * epsilon, "max": one[1] * epsilon} for key, one in further.items()}


def judged(row):
    """What the core says of that row: its bound, and whether the row passes."""
    draw = {"kind": "generator", "outputs": [row]}
    verdict = library.judge({"reference": "fp64", "checks": [], "draws": [draw]}, "reference")
    (told,) = verdict["errors"]
    return told["bound"], told["ok"]


@pytest.fixture(scope="module", autouse=True)
def core():
    try:
        library.version()
    except errors.Error as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("sense", ["norm", "max"])
@pytest.mark.parametrize("compared", [1, 7, 4096])
@pytest.mark.parametrize("summands", [1, 300, 1 << 20])
@pytest.mark.parametrize("dtype", EPSILONS)
def test_the_worker_asks_where_the_core_would_fail_and_hardly_anywhere_else(dtype, summands, compared, sense):
    epsilon = EPSILONS[dtype]
    half_of_the_digits = epsilon**0.5 / epsilon
    for eager in ((0.0, 0.0), (0.3, 2.0), (40.0, 900.0)):
        for further in (
            {},
            {"sensitivity": (7.0, 60.0)},
            {"rounding": (5.0, 30.0)},
            {"rounding": (2 * half_of_the_digits, 3 * half_of_the_digits)},
            {"sensitivity": (7.0, 60.0), "rounding": (2 * half_of_the_digits, 3 * half_of_the_digits)},
        ):
            row = row_of(epsilon, eager, summands, compared, **further)
            bound, _ = judged(row)
            for share, passes in ((1.0001, False), (0.98, True)):
                tried = copy.deepcopy(row)
                tried["ours"][sense] = share * bound[sense]
                assert (judged(tried)[1], is_beyond(tried)) == (passes, not passes), (eager, further, share)
