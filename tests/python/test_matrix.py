"""The matrix of instruction sets and threads: what it consists of, and a sample of it."""

import os
import shlex
import subprocess
import sys

import matrix
import pytest

SAMPLE = "on_the_cpu and (negative_zero or over_numbers or special_reductions)"


def test_every_kernel_of_pytorch_meets_each_of_ours_on_every_number_of_threads():
    combinations = matrix.combinations()
    assert {(one.aten, one.wide) for one in combinations} == {
        (aten, wide) for aten in matrix.ATEN_NEEDS for wide in (True, False)
    }
    assert {(one.aten, one.threads) for one in combinations} == {
        (aten, threads) for aten in matrix.ATEN_NEEDS for threads in (1, 2, 8)
    }


def test_what_a_processor_lacks_is_named():
    old = {"sse2", "avx2", "fma"}
    assert (
        matrix.Combination("avx2", False, 2).lacks(old) == []
        and matrix.Combination("default", False, 1).lacks(set()) == []
    )
    assert matrix.Combination("avx2", True, 2).lacks(old) == ["avx512f"]
    assert matrix.Combination("avx512", False, 2).lacks(old) == ["avx512bw", "avx512dq", "avx512f", "avx512vl"]


def test_the_files_are_there(home):
    assert all((home / name).exists() for name in matrix.NUMERIC)


def test_a_compiler_without_avx_512_makes_none(monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    words = shlex.split(matrix.Combination("default", False, 1).environment()["CXX"])
    macros = subprocess.run(
        [*words, "-O3", "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "__x86_64__" in macros and "__AVX512" not in macros


@pytest.mark.slow
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("aten", ["default", "avx2"])
def test_a_sample_of_the_edges(home, aten):
    combination = matrix.Combination(aten, False, 2)
    if missing := combination.lacks(matrix.features()):
        pytest.skip(f"this processor has no {', '.join(missing)}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/e2e/test_edges.py", "-k", SAMPLE]
    done = subprocess.run(
        command, cwd=home, env={**os.environ, **combination.environment()}, capture_output=True, text=True
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:]
