"""Measurement, ceilings and compilation without a device: the shape of what is returned, and what must not go
unnoticed.
"""

import math
import os
import subprocess
import sys
import time
import timeit

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kernelwright import compile_only, errors, library
from kernelwright.judge import measurement as measure
from kernelwright.timing import ceilings
from kernelwright.timing.profiling import Intervals, profile_call
from kernelwright.timing.timer import Perturbation, is_settled

pytestmark = pytest.mark.alone

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def timed(tmp_path):
    def run(candidate, problem=PROBLEM, **params):
        (tmp_path / "problem.py").write_text(problem)
        given = {
            "problem": str(tmp_path / "problem.py"),
            "device": "cpu",
            "seed": 3,
            "baselines": ["eager"],
            "budget_seconds": 0.2,
        }
        if candidate is not None:
            (tmp_path / "candidate.py").write_text(problem.split("def get_inputs")[0] + candidate)
            given["candidate"] = str(tmp_path / "candidate.py")
        return measure.run(given | params, lambda stage, fraction: None)

    return run


def test_candidate_and_eager_are_timed_in_turns(timed):
    result = timed("class ModelNew(Model):\n    pass\n", budget_seconds=4)
    assert set(result["samples_ms"]) == {"ours", "eager"} == set(result["wall_ms"])
    assert len(result["samples_ms"]["ours"]) == len(result["samples_ms"]["eager"]) >= 10
    assert all(0 < sample < 1e3 for samples in result["samples_ms"].values() for sample in samples)
    assert result["order"] == "interleaved" and result["timer"] == "steady_clock" and result["flush_bytes"] >= 16 << 20
    assert result["recheck"] == {"ok": True, "detail": ""}
    assert result["share_in_our_kernels"] == 0.0 and result["baseline_errors"] == {}


def test_without_a_candidate_only_the_baselines_are_timed(timed):
    result = timed(None)
    assert set(result["samples_ms"]) == {"eager"} and result["share_in_our_kernels"] is None


def test_a_slow_candidate_reads_slow(timed):
    result = timed(
        "import time\nclass ModelNew(Model):\n    def forward(self, x):\n        time.sleep(0.2)\n        return super().forward(x)\n"
    )
    assert min(result["samples_ms"]["ours"]) >= 200 > min(result["samples_ms"]["eager"])


def test_a_budget_that_is_too_small_still_gives_three_samples(timed):
    result = timed(
        "import time\nclass ModelNew(Model):\n    def forward(self, x):\n        time.sleep(0.05)\n        return super().forward(x)\n",
        budget_seconds=0.01,
    )
    assert len(result["samples_ms"]["ours"]) == 3


def test_a_result_remembered_by_address_fails_the_recheck(timed):
    result = timed(
        "kept = {}\nclass ModelNew(Model):\n    def forward(self, x):\n        return kept.setdefault(x.data_ptr(), torch.tanh(x) * 2) if x.data_ptr() not in kept else kept[x.data_ptr()]\n"
    )
    assert not result["recheck"]["ok"] and "output[0]" in result["recheck"]["detail"]


def test_a_candidate_that_cheats_once_warm_fails_the_recheck(timed):
    result = timed(
        "class ModelNew(Model):\n    calls = 0\n    def forward(self, x):\n        self.calls += 1\n        return torch.tanh(x) * 2 if self.calls < 8 else torch.empty_like(x)\n"
    )
    assert not result["recheck"]["ok"]


# Eager is off by a quarter of the norm: 2^22 leaves fractions one bit.
ROUGH = PROBLEM.replace("torch.tanh(x) * 2", "(x + 2.0**22) - 2.0**22")


@pytest.mark.parametrize(("result", "ok"), [("x.clone()", True), ("torch.zeros_like(x)", False)])
def test_the_recheck_knows_how_far_off_eager_is_itself(timed, result, ok):
    candidate = f"class ModelNew(Model):\n    def forward(self, x):\n        return {result}\n"
    assert timed(candidate, ROUGH)["recheck"]["ok"] is ok


def test_contents_change_between_timed_calls_and_keep_their_values(timed):
    inputs = [torch.rand(50, 7), torch.arange(5), torch.rand(1)]
    before = inputs[0].clone()
    change = Perturbation(inputs)
    seen = set()
    for _ in range(5):
        change.apply()
        seen.add(tuple(inputs[0].flatten().tolist()))
    assert len(seen) == 5
    assert torch.equal(inputs[0].flatten().sort().values, before.flatten().sort().values)
    assert inputs[1].tolist() == [0, 1, 2, 3, 4]


class _NoRollOfEightBits(TorchFunctionMode):
    """Raises as CUDA does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.roll and args[0].is_floating_point() and args[0].itemsize == 1:
            raise NotImplementedError("\"roll_cuda\" not implemented for 'Float8_e4m3fn'")
        return func(*args, **(kwargs or {}))


def test_inputs_of_8_bit_floats_change_between_calls():
    codes = torch.arange(64, dtype=torch.uint8).view(torch.float8_e4m3fn)
    before = codes.clone()
    change = Perturbation([codes])
    with _NoRollOfEightBits():
        change.apply()
    assert not torch.equal(codes.view(torch.uint8), before.view(torch.uint8))
    assert torch.equal(codes.view(torch.uint8).sort().values, before.view(torch.uint8))


TIES = PROBLEM.replace("torch.tanh(x) * 2", "x.topk(9, 1).indices").replace(
    "torch.rand(64, 64)", "torch.randint(0, 3, (64, 64)).float()"
)


@pytest.mark.parametrize(
    ("positions", "ok"),
    [("63 - x.flip(1).sort(1, True).indices[:, :9]", True), ("x.sort(1).indices[:, :9].contiguous()", False)],
)
def test_ties_that_eager_leaves_open_pass_the_recheck(timed, positions, ok):
    assert (
        timed(f"class ModelNew(Model):\n    def forward(self, x):\n        return ({positions}).contiguous()\n", TIES)[
            "recheck"
        ]["ok"]
        is ok
    )


@pytest.mark.slow
def test_random_modules_and_running_statistics_pass_the_recheck(timed):
    problem = PROBLEM.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.bn = nn.BatchNorm1d(64)\n    def forward",
    ).replace("torch.tanh(x) * 2", "torch.dropout(self.bn(x), 0.5, True)")
    assert timed("class ModelNew(Model):\n    pass\n", problem)["recheck"]["ok"]


UNTRACEABLE = PROBLEM.replace(
    "class Model",
    """
@torch.library.custom_op("kernelwright_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    raise ZeroDivisionError("no shape")

class Model""",
    1,
).replace("torch.tanh(x) * 2", "twice(x)")


def test_a_baseline_that_fails_is_reported_and_left_out(timed):
    result = timed(
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x * 2\n",
        UNTRACEABLE,
        baselines=["eager", "compile"],
    )
    assert (
        set(result["samples_ms"]) == {"ours", "eager"} and "ZeroDivisionError" in result["baseline_errors"]["compile"]
    )


def test_a_baseline_that_compiles_for_ever_is_given_up(timed):
    result = timed(None, baselines=["eager", "compile"], compile_limit_seconds=0.2)
    assert "longer than" in result["baseline_errors"]["compile"]


def test_faults_are_blamed_on_whose_they_are(timed):
    with pytest.raises(errors.Error) as caught:
        timed("class ModelNew(Model):\n    def forward(self, x):\n        raise ValueError('no')\n")
    assert caught.value.kind == "candidate" and caught.value.where.startswith("candidate.py:")
    with pytest.raises(errors.Error) as caught:
        timed(None, PROBLEM.replace("torch.tanh(x) * 2", "x @ x[:3]"))
    assert caught.value.kind == "user" and caught.value.where.startswith("problem.py:")


def test_settled_means_a_tight_interval_of_the_median():
    assert not is_settled([1.0] * 9) and is_settled([1.0] * 10)
    assert not is_settled([1.0, 2.0] * 10)
    assert is_settled([1.0, 1.001, 0.999] * 10 + [50.0])


PAGES = """
import resource, sys, torch
from kernelwright.timing.timer import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
def call():
    return [torch.empty(size << 20).fill_(1) for size in (4, 4, 12)]
for _ in range(6): call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_kept_while_timing():
    def faults(*arguments: str) -> int:
        thresholds = {
            "MALLOC_MMAP_THRESHOLD_": "131072",
            "MALLOC_TRIM_THRESHOLD_": "131072",
        }  # what glibc begins with, held there
        done = subprocess.run(
            [sys.executable, "-c", PAGES, *arguments],
            env=os.environ | thresholds,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    # Ten calls of 80 MB in pages of 4 KB: 204,800. The heap may still grow a time or two.
    assert faults("keep") < 60_000 < 150_000 < faults()


def test_library_time_is_not_ours():
    values = torch.rand(400, 400)
    library = profile_call(lambda: values @ values @ values, ["kernel"], torch.device("cpu"))
    assert library.share < 0.4 and library.parts[0]["name"] == "aten::mm" and not library.parts[0]["ours"]
    own = profile_call(lambda: sum(range(200_000)), ["kernel"], torch.device("cpu"))
    assert own.share > 0.9 and own.parts[0]["ours"]
    unnamed = profile_call(lambda: values @ values, [], torch.device("cpu"))
    assert unnamed.share == 0.0 and unnamed.parts[0]["ours"] is None
    assert profile_call(lambda: None, [], torch.device("cpu")).share == 0.0


@pytest.mark.slow
class Tick:
    """An event of a device whose clock ticks with each."""

    clock = 0

    def __init__(self):
        Tick.clock += 1
        self.at = Tick.clock

    def elapsed_time(self, later):
        return float(later.at - self.at)


def test_of_intervals_inside_each_other_the_innermost_count():
    intervals = Intervals(Tick)
    with intervals.around("aten::mm"):
        pass
    with intervals.around("mylib::layer"):  # an operator of the candidate's own, which launches two kernels
        for kernel in ("first", "second"):
            with intervals.around(kernel):
                pass
    with intervals.around("aten::mm"):
        pass
    assert intervals.milliseconds() == {"aten::mm": 2.0, "first": 1.0, "second": 1.0}


def test_ceilings_of_the_cpu_are_plausible_and_quick():
    began = time.monotonic()
    found = ceilings.run({"device": "cpu"}, lambda stage, fraction: None)
    assert time.monotonic() - began < 15
    assert 1e8 < found["read_bytes_per_second"] < 1e13 and 1e8 < found["copy_bytes_per_second"] < 1e13
    assert found["flops"]["fp32"] > 1e9 and found["flops"]["tf32"] is None
    assert 0 < found["launch_seconds"] < 1e-2 and found["name"] and math.isfinite(found["launch_seconds"])


KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, out_ptr, count, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + offsets, mask=offsets < count)
    tl.store(out_ptr + offsets, values * factor, mask=offsets < count)

@triton.jit
def broken_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), nothing)

KERNEL_SIGNATURES = [
    {"kernel": "scale_kernel", "signature": {"x_ptr": "*fp32", "out_ptr": "*fp32", "count": "i32", "factor": "fp32"}, "constexprs": {"BLOCK": 1024},
     "num_warps": 4, "num_stages": 2, "divisible_by_16": ["x_ptr", "out_ptr"]},
    {"kernel": "broken_kernel", "signature": {"x_ptr": "*fp32"}, "constexprs": {"BLOCK": 64}, "num_warps": 4, "num_stages": 1, "divisible_by_16": []},
]
"""


def test_kernels_compile_for_hopper_without_a_gpu(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "kernels.py").write_text(KERNELS)
    good, bad = compile_only.run(
        {"candidate": str(tmp_path / "kernels.py"), "target": "triton", "sm": 90}, lambda stage, fraction: None
    )["kernels"]
    assert (
        good["ok"]
        and good["name"] == "scale_kernel"
        and 0 < good["registers"] <= 255
        and good["spills"] == 0
        and good["shared_bytes"] >= 0
    )
    assert not bad["ok"] and "nothing" in bad["error"]


SPILLING = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def spilling_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    y = tl.load(x_ptr + BLOCK + offsets)
    tl.store(out_ptr + offsets, x / tl.sum(x * y) + y)

@triton.jit
def sine_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, libdevice.sin(tl.load(x_ptr + offsets)))

KERNEL_SIGNATURES = [
    {"kernel": "spilling_kernel", "signature": {"x_ptr": "*fp32", "out_ptr": "*fp32"}, "constexprs": {"BLOCK": 8192}, "num_warps": 4, "maxnreg": 64, "divisible_by_16": []},
    {"kernel": "sine_kernel", "signature": {"x_ptr": "*fp32", "out_ptr": "*fp32"}, "constexprs": {"BLOCK": 128}, "num_warps": 4, "divisible_by_16": []},
]
"""


def test_spilled_registers_are_told_from_what_a_sine_keeps_on_the_stack(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "kernels.py").write_text(SPILLING)
    spilling, sine = compile_only.run(
        {"candidate": str(tmp_path / "kernels.py"), "target": "triton", "sm": 90}, lambda stage, fraction: None
    )["kernels"]
    assert spilling["ok"] and spilling["registers"] == 64 and spilling["spills"] > 100, spilling
    assert sine["ok"] and sine["spills"] == 0, sine


def test_a_file_without_signatures_is_explained(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "kernels.py").write_text("x = 1\n")
    with pytest.raises(errors.Error) as caught:
        compile_only.run({"candidate": str(tmp_path / "kernels.py")}, lambda stage, fraction: None)
    assert caught.value.code == "no-signatures" and caught.value.kind == "candidate"


def judged(reply):
    """The core's verdict on a measurement's reply, in which timed calls are judged by the whole contract."""
    return library.judge(reply["timed"], "reference")


# Which function of the process calls forward tells timed calls from others.
ONLY_WHEN_TIMED = """
import sys

def is_timed():
    frame, names = sys._getframe(), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "sample" in names

class ModelNew(Model):
    def forward(self, x):
        return torch.tanh(x).bfloat16().float() * 2 if is_timed() else torch.tanh(x) * 2
"""


def test_what_timed_calls_return_is_judged_by_the_whole_contract(timed):
    honest = timed("class ModelNew(Model):\n    pass\n")
    assert honest["timed"]["draws"] and judged(honest)["verdict"] == "pass"
    cheat = timed(ONLY_WHEN_TIMED)
    assert cheat["recheck"]["ok"] and judged(cheat)["code"] == "inaccurate"


LOOKUP = PROBLEM.replace("torch.tanh(x) * 2", "x.sort().values").replace(
    "torch.rand(64, 64)", "torch.randint(1 << 30, (1 << 16,))"
)

BY_WHOLE_CONTENT = """
class ModelNew(Model):
    last = None

    def forward(self, x):
        if self.last is None or not torch.equal(x, self.last[0]):
            self.last = x.clone(), super().forward(x)
        return self.last[1].clone()
"""


def test_results_kept_by_whole_contents_are_not_faster(timed):
    """Integers are drawn anew before each call, so that none is repeated; sorting takes many times a copy."""
    samples = timed(BY_WHOLE_CONTENT, LOOKUP, budget_seconds=2)["samples_ms"]
    assert min(samples["ours"]) > 0.5 * min(samples["eager"])


WEIGHTED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(600, 600))
        self.train(TRAINING)

    def forward(self, x):
        return x @ self.weight

def get_inputs():
    return [torch.rand(2, 600)]

def get_init_inputs():
    return []
"""

CONVERTED_WHERE_NEW = """
class ModelNew(Model):
    version = None

    def forward(self, x):
        if self.weight._version != self.version:
            self.version = self.weight._version
            self.kept = torch.linalg.qr(self.weight.detach()).Q * 0 + self.weight.detach()
        return x @ self.kept
"""


@pytest.mark.parametrize("training", [True, False])
def test_work_for_new_weights_counts_in_training_and_stands_apart_otherwise(timed, training):
    problem = WEIGHTED.replace("TRAINING", str(training))
    reply = timed(CONVERTED_WHERE_NEW, problem, budget_seconds=4, candidate_seconds=None)
    usual, apart = sorted(reply["samples_ms"]["ours"])[0], reply["new_weights_ms"].get("ours")
    weight = torch.randn(600, 600)
    once = min(timeit.repeat(lambda: torch.linalg.qr(weight), number=1, repeat=9))
    half = 1e3 * once / 2  # milliseconds of the work for new weights
    assert judged(reply)["verdict"] == "pass"
    if training:
        assert apart is None and usual > half
    else:
        assert usual < half < apart
