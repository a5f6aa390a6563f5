"""Building ahead: what is compiled must be what the first run looks up."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from kernelwright import build

CPU_CANDIDATE = """\
def load_kernels():
    if {broken}:
        raise RuntimeError("no such instruction")
    open({mark!r}, "w").close()


ModelNew = None
"""


def test_candidates_are_built_side_by_side_and_faults_are_told(tmp_path):
    paths = []
    for number in range(3):
        path = tmp_path / f"candidate_{number}.py"
        path.write_text(CPU_CANDIDATE.format(broken=number == 1, mark=str(tmp_path / f"mark_{number}")))
        paths.append(str(path))
    # In a process without other threads, as the worker's builder is.
    script = f"from kernelwright import build; import json; print(json.dumps(build.run({{'candidates': {paths!r}, 'jobs': 2}}, lambda *_: None)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.environ["KW_PYTHONPATH"]},
    )
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert [row["ok"] for row in results] == [True, False, True]
    assert "no such instruction" in results[1]["error"]
    assert (tmp_path / "mark_0").exists() and (tmp_path / "mark_2").exists()


LAUNCH = """\
import importlib.util, json, os, sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver
from kernelwright.compile_only import compile_entry

class Device:
    # What Triton asks of a driver before it compiles.
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return 0
    def get_active_torch_device(self): return torch.device("cpu")

driver.set_active(Device())
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for entry in module.KERNEL_SIGNATURES:
    compile_entry(module, entry, 90)
ahead = set(os.listdir(os.environ["TRITON_CACHE_DIR"]))
whole = JITFunction.run
JITFunction.run = lambda self, *args, grid, warmup, **kw: whole(self, *args, grid=grid, warmup=True, **kw)
module.kernel_forward(*[torch.empty_strided(shape, strides, dtype=dtype) for name, shape, strides, dtype, device in module.EXPECTED])
print(json.dumps({"ahead": len(ahead), "kernels": len(module.KERNEL_SIGNATURES), "more": len(set(os.listdir(os.environ["TRITON_CACHE_DIR"])) - ahead)}))
"""

PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.tanh(x), torch.softmax(y, dim=-1), y.sum(dim=0)


def get_inputs():
    return [torch.randn(300), torch.randn(8, 70000)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_triton_finds_in_its_cache_what_was_built_ahead(tmp_path, emitter):
    pytest.importorskip("triton")
    answer = emitter(emitter.kw.file("ahead.py", PROBLEM), "triton")
    assert answer["verdict"] == "emitted", answer
    environment = {**os.environ, "PYTHONPATH": os.environ["KW_PYTHONPATH"], "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LAUNCH), answer["candidate"]],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ahead"] == found["kernels"] >= 2
    assert found["more"] == 0


def test_build_is_a_method_of_the_worker():
    from kernelwright import worker

    assert worker.handler("build") is build.run
