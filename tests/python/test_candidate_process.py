"""A candidate's process: what it holds, what passes between it and the judge, and how it ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from candidate_process import returning, starter
from verification_problems import ELEMENTWISE

from kernelwright import errors
from kernelwright.host.arena import HostArena
from kernelwright.judge import nursing
from kernelwright.judge import remote as remotes
from kernelwright.judge import shared_arenas
from kernelwright.judge.nursing import Confinement
from kernelwright.judge.remote import Remote
from kernelwright.timing.clocks import Clocks

resident = starter()


def made(resident, expression, problem=ELEMENTWISE):
    remote, inputs = resident(returning(expression), problem)
    return remote.run(inputs, 5, "running forward"), inputs.values[0]


def test_it_holds_nothing_that_judges(resident):
    code = """
    import gc, os, sys

    class ModelNew(nn.Module):
        def forward(self, x):
            modules = [name for name in sys.modules if name.startswith("kernelwright")]
            kinds = ("Verification", "Yardstick", "Draw", "Model")
            judges = [type(one).__name__ for one in gc.get_objects() if type(one).__name__ in kinds]
            variables = [name for name in os.environ if name.startswith("KW_")]
            return x, str(modules + judges + variables)
    """
    remote, inputs = resident(code)
    assert remote.run(inputs, 5, "running forward").constants["output[1]"].text == "'[]'"


def test_secrets_of_the_environment_stay_outside(resident, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "precious")
    monkeypatch.setattr(nursing, "_nursery", None)
    remote, inputs = resident(
        "import os\n" + returning("(x, str('SOME_API_KEY' in os.environ), str('HOME' in os.environ))")
    )
    constants = remote.run(inputs, 5, "running forward").constants
    assert (constants["output[1]"].text, constants["output[2]"].text) == ("'False'", "'True'")


@pytest.mark.parametrize(
    "expression",
    [
        "x.t()",
        "x[:, ::3]",
        "x[:1].expand(24, 40)",
        "x.unfold(0, 3, 1)",
        "x.new_empty(0, 7)",
        "x.sum()",
        "torch.complex(x, -x)",
        "torch.complex(x, -x).conj()",
        "(x > 0.5)",
        "(x * 100).to(torch.uint8)",
        "x.to(torch.float8_e4m3fn)",
        "x.bfloat16()",
        "(x, [x + 1, {'a': x.double()}])",
    ],
)
def test_outputs_come_with_their_contents_and_form(resident, expression):
    left, x = made(resident, expression)
    expected = torch.utils._pytree.tree_leaves(eval(expression, {"x": x, "torch": torch}))
    assert len(left.outputs) == len(expected)
    for ours, theirs in zip(left.outputs.values(), expected):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.stride() == theirs.stride()
        assert torch.equal(torch.nan_to_num(ours.to(torch.complex128)), torch.nan_to_num(theirs.to(torch.complex128)))


@pytest.mark.parametrize(
    "expression",
    ["x.to_sparse()", "torch.empty(3, device='meta')", "nn.Parameter(x).as_subclass(type('T', (torch.Tensor,), {}))"],
)
def test_outputs_that_are_no_plain_tensors_are_refused(resident, expression):
    with pytest.raises(errors.Error) as caught:
        made(resident, expression)
    assert (caught.value.kind, caught.value.code) == ("candidate", "output-type")


NESTED = """
import torch
import torch.nn as nn

class Scale:
    def __init__(self, factor):
        self.factor = factor

class Model(nn.Module):
    def __init__(self, scale, function):
        super().__init__()
        self.scale, self.function = scale, function

    def forward(self, pair, options, empty):
        return self.function(pair[0] * self.scale.factor + pair[1] + options["shift"]) + empty.sum()

def get_inputs():
    whole = torch.rand(6, 8)
    return [(whole[:, :5], whole[:, 3:]), {"shift": 2, "name": "x"}, torch.zeros(0, 3)]

def get_init_inputs():
    return [Scale(3.0), FUNCTION]
"""


@pytest.mark.parametrize("function", ["torch.tanh", "lambda x: x * x"])
def test_nested_inputs_that_share_memory_and_arguments_of_own_classes_arrive(resident, function):
    code = """
    class ModelNew(nn.Module):
        def __init__(self, scale, function):
            super().__init__()
            self.scale, self.function = scale, function

        def forward(self, pair, options, empty):
            assert pair[0].untyped_storage().data_ptr() == pair[1].untyped_storage().data_ptr()
            return self.function(pair[0] * self.scale.factor + pair[1] + options["shift"]) + empty.sum()
    """
    remote, inputs = resident(code, NESTED.replace("FUNCTION", function))
    left = remote.run(inputs, 5, "running forward")
    expected = remote.problem.construct("cpu", seed=1)(*inputs.values)
    assert torch.allclose(left.tensors["output[0]"], expected)


def test_only_the_candidate_sees_what_it_does_to_its_inputs(resident):
    remote, inputs = resident(returning("x.add_(1)"))
    before = inputs.values[0].clone()
    left = remote.run(inputs, 5, "running forward")
    assert torch.equal(inputs.values[0], before)
    assert torch.equal(left.tensors["input[0]"], before + 1) and left.shares == {"output[0]": "input[0]"}


def test_outputs_that_change_later_are_seen(resident):
    code = """
    class ModelNew(nn.Module):
        kept = ()

        def forward(self, x):
            for one in self.kept:
                one.zero_()
            self.kept = [x * 2]
            return self.kept[0]
    """
    remote, inputs = resident(code)
    first = remote.run(inputs, 5, "running forward")
    assert remote.altered(first) == []
    remote.run(inputs, 5, "running forward")
    assert remote.altered(first) == ["output[0]"]


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "crashed with signal 11"),
        ("os.abort()", "crashed", "crashed with signal 6"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "was killed by SIGKILL"),
        ("os._exit(3)", "exited", "ended the process with exit code 3"),
        ("time.sleep(60)", "hung", "gave no answer within"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "hung", "gave no answer within"),
        (
            "[os.write(number, b'x' * 64) for number in range(3, 20) if is_socket(number)]",
            "broken-protocol",
            "something else than an answer",
        ),
    ],
)
@pytest.mark.parametrize("namespaces", [False, True])
def test_its_end_is_told_in_words_and_ends_nothing_else(resident, does, code, says, namespaces):
    helper = """
    import os, signal, stat, time

    def is_socket(number):
        try:
            return stat.S_ISSOCK(os.fstat(number).st_mode)
        except OSError:
            return False
    """
    deadline = time.monotonic() + (4 if code == "hung" else 60)
    remote, inputs = resident(
        textwrap.dedent(helper) + returning(f"({does}, x)[1]"), deadline=deadline, namespaces=namespaces
    )
    with pytest.raises(errors.Error) as caught:
        remote.run(inputs, 5, "running forward")
    assert caught.value.kind == "candidate" and caught.value.code == code and says in caught.value.message
    remote.close()
    assert not alive(remote.host.first)
    other, inputs = resident(returning("x"))
    assert torch.equal(other.run(inputs, 5, "running forward").tensors["output[0]"], inputs.values[0])


def test_two_processes_can_have_the_same_inputs(resident, monkeypatch):
    for module in (remotes, shared_arenas):
        monkeypatch.setattr(module, "is_large", lambda size, device: True)
    remote, inputs = resident(returning("x * 2"))
    first = remote.run(inputs, 5, "running forward")
    other = Remote(
        remote.path, remote.problem, None, remote._model, remote.device, 1, inputs_of=remote, confinement=Confinement()
    )
    second = other.run(inputs, 5, "running forward")
    assert other.arenas["inputs"] is remote.arenas["inputs"] and torch.equal(
        first.tensors["output[0]"], second.tensors["output[0]"]
    )
    other.close()
    inputs.fill("signed", 4, False)
    assert torch.equal(remote.run(inputs, 5, "running forward").tensors["output[0]"], inputs.values[0] * 2)


def test_inputs_that_are_not_copied_are_still_compared(resident, monkeypatch):
    for module in (remotes, shared_arenas):
        monkeypatch.setattr(module, "is_large", lambda size, device: True)
    remote, inputs = resident(returning("x.add_(1) * 2"))
    remote.shares_large = True
    before = inputs.values[0].clone()
    left = remote.run(inputs, 5, "running forward")
    assert torch.equal(left.tensors["input[0]"], before + 1) and torch.equal(
        left.tensors["output[0]"], (before + 1) * 2
    )
    assert remote.altered(left) == []


def test_nothing_that_it_started_outlives_it(resident):
    code = """
    import subprocess

    class ModelNew(nn.Module):
        def forward(self, x):
            return x, subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    """
    for namespaces in (False, True):
        remote, inputs = resident(code, namespaces=namespaces)
        activity = remote.activity()
        remote.run(inputs, 5, "running forward")
        assert "1 child process(es) still run" in activity.leftovers()[0]
        children = remote.host.descendants()
        remote.close()
        assert children and not any(alive(child) for child in children)


def alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_nursery_that_was_killed_is_replaced(resident):
    remote, _ = resident(returning("x"))
    os.kill(number := nursing.nursery().number, signal.SIGKILL)
    os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    other, inputs = resident(returning("x"))
    assert torch.equal(other.run(inputs, 5, "running forward").tensors["output[0]"], inputs.values[0])


def test_both_nurseries_that_were_killed_are_replaced_where_they_are_the_parents(resident, monkeypatch):
    monkeypatch.setattr(remotes, "Host", lambda *given, **_: nursing.Host(*given, compilers=True))
    resident(returning("x"))
    monkeypatch.setattr(nursing, "_is_inherited", True)
    os.kill(number := nursing.nursery().number, signal.SIGKILL)
    os.waitpid(number, 0)
    other, inputs = resident(returning("x"))
    assert torch.equal(other.run(inputs, 5, "running forward").tensors["output[0]"], inputs.values[0])


TELLS_IMPORTS = """
import sys
LOADED = "torch._inductor.compile_fx" in sys.modules
class ModelNew(nn.Module):
    def forward(self, x):
        return x + (1.0 if LOADED else 0.0)
"""


def test_what_torch_compile_needs_is_there_in_the_process_for_it_alone(resident, monkeypatch):
    def answer():
        remote, inputs = resident(TELLS_IMPORTS)
        return float((remote.run(inputs, 5, "running forward").tensors["output[0]"] - inputs.values[0]).max())

    assert answer() == 0.0
    monkeypatch.setattr(remotes, "Host", lambda *given, **_: nursing.Host(*given, compilers=True))
    assert answer() == 1.0
    # Where that one has ended, the process comes from the other.
    nursing._compilers.control.close()
    assert answer() == 0.0


def test_a_process_that_reads_nothing_is_given_up_at_its_deadline(resident):
    remote, inputs = resident(returning("x"), deadline=time.monotonic() + 60)
    os.kill(remote.host.process(), signal.SIGSTOP)
    remote.renew(1.0)
    began = time.monotonic()
    with pytest.raises(errors.Error) as caught:
        remote._ask({"op": "threads", "filling": "x" * (1 << 24)}, "being asked")
    assert caught.value.code == "hung" and time.monotonic() - began < 10


def test_shared_memory_cannot_be_cut_short():
    arena = HostArena(10)
    with pytest.raises(OSError):
        os.ftruncate(arena.descriptor, 0)
    arena.close()


def test_settings_made_at_import_are_told(resident):
    remote, _ = resident(
        "import gc\ngc.set_threshold(50)\ntorch.set_num_threads(torch.get_num_threads() + 1)\ntorch.sum = max\n"
        + returning("x")
    )
    told = " ".join(remote.settings_at_load)
    assert "garbage collector" in told and "number of threads" in told and "torch.sum was replaced" in told


def test_what_torch_compile_replaces_by_itself_is_no_fault(resident):
    remote, inputs = resident("import torch._dynamo\n" + returning("x"))
    assert remote.settings_at_load == [] and remote.run(inputs, 5, "running forward").faults["global-state"] == []


def test_a_clock_that_runs_slow_is_found_out():
    clocks = Clocks()
    for _ in range(10):
        clocks.note(0.25, 0.05, empty=True)
        clocks.note(1.5, 0.05, empty=False)
    assert clocks.untold_ms() == pytest.approx(1.25)
    honest = Clocks()
    for _ in range(10):
        honest.note(0.25, 0.05, empty=True)
        honest.note(1.5, 1.27, empty=False)
    assert honest.untold_ms() == 0.0


@pytest.mark.alone
def test_a_candidate_that_stops_its_clock_is_timed_by_the_judges(resident):
    code = """
    import time
    real = time.perf_counter
    time.perf_counter = lambda: real() / 1000

    class ModelNew(nn.Module):
        def forward(self, x):
            time.sleep(0.01)
            return x
    """
    remote, inputs = resident(code)
    remote.timer(inputs)
    samples = [remote.sample(inputs) for _ in range(5)]
    assert max(samples) < 1 and remote.untold_ms() > 8


def test_progress_bars_start_no_threads(tmp_path):
    """torch.compile makes a bar of tqdm's while it compiles, where tqdm is installed: its thread counted as left over."""
    (tmp_path / "tqdm.py").write_text("class tqdm:\n    monitor_interval = 10\n")
    check = "from kernelwright.host import nursery; nursery.import_libraries(); import tqdm; print(tqdm.tqdm.monitor_interval)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
