"""How an emitted file compiles and loads its C++: the cache, its failures, and the threads it shares with PyTorch."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from printed_cpu_kernels import PRINTER

KERNEL = """kernel double_kernel {
  buffer x : f32[100000] input
  buffer out : f32[100000] output
  axis element = 100000 parallel block 1
  %x = load x[element] : f32
  %r = add(%x, %x) : f32
  store %r to out[element]
}
"""
MAIN = """
x = torch.arange(100000.0)
out = torch.empty_like(x)
launch_double_kernel(x, out)
assert torch.equal(out, 2 * x)
with open("/proc/self/maps") as maps:
    print(len({line.split()[-1] for line in maps if "libgomp" in line}), "OpenMP runtimes")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """An emitted file that runs its kernel and checks the result."""
    kernel = tmp_path / "kernel.txt"
    kernel.write_text(KERNEL)
    printed = subprocess.run([PRINTER, kernel], capture_output=True, text=True, check=True)
    path = tmp_path / "module.py"
    path.write_text(printed.stdout + MAIN)
    return path


def start(script: Path, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "XDG_CACHE_HOME": str(script.parent / "cache"), **environment}
    return subprocess.Popen(
        [sys.executable, script], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(script: Path, **environment: str) -> tuple[int, str, str]:
    process = start(script, **environment)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def logging_compiler(folder: Path) -> Path:
    """g++ that notes each call."""
    compiler = folder / "compiler"
    compiler.write_text(f'#!/bin/sh\necho called >> "{folder}/calls"\nexec g++ "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    return compiler


def test_compiles_once_and_shares_the_openmp_runtime(script: Path, tmp_path: Path) -> None:
    compiler = str(logging_compiler(tmp_path))
    for _ in range(2):
        code, out, err = run(script, CXX=compiler)
        assert code == 0, err
        assert out == "1 OpenMP runtimes\n"
    assert (tmp_path / "calls").read_text() == "called\n"


@pytest.mark.slow
def test_processes_at_once_do_not_disturb_each_other(script: Path, tmp_path: Path) -> None:
    processes = [start(script) for _ in range(4)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    left = sorted(path.suffix for path in (tmp_path / "cache" / "kernelwright" / "cpu").iterdir())
    assert left == [".cpp", ".so"]


def test_a_cache_that_cannot_be_written_is_done_without(script: Path) -> None:
    code, _, err = run(script, XDG_CACHE_HOME="/dev/null/cache")
    assert code == 0, err


def test_no_compiler_says_what_to_install(script: Path, tmp_path: Path) -> None:
    code, _, err = run(script, PATH=str(tmp_path), CXX="")
    assert code == 1
    assert "RuntimeError: These kernels need a C++ compiler: install g++" in err


def test_a_failed_compilation_keeps_the_source_and_shows_the_message(script: Path, tmp_path: Path) -> None:
    script.write_text(script.read_text().replace("out[element] = ", "out[element] = y + "))
    code, _, err = run(script)
    assert code == 1
    assert "could not compile the kernels of this file." in err
    assert "was not declared in this scope" in err
    source = next(line.removeprefix("Source: ") for line in err.splitlines() if line.startswith("Source: "))
    assert "double_kernel" in Path(source).read_text()
