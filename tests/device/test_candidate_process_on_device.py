"""A candidate's process and the judge's on one GPU: memory that both reach, work that comes late, kernels that fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch

from kernelwright import errors
from kernelwright.judge import remote as remotes
from kernelwright.judge import shared_arenas
from kernelwright.judge.nursing import Confinement
from kernelwright.judge.remote import Remote
from kernelwright.judge.runs import Inputs
from kernelwright.running import problem as problems

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""

Start = Callable[..., tuple[Remote, Inputs]]


@pytest.fixture
def start(tmp_path: Path, device: str) -> Iterator[Start]:
    started: list[Remote] = []

    def begin(body: str, **options: Any) -> tuple[Remote, Inputs]:
        (tmp_path / "problem.py").write_text(PROBLEM)
        head = "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        (tmp_path / "candidate.py").write_text(head + "".join(f"        {line}\n" for line in body.splitlines()))
        loaded, place = problems.load(tmp_path / "problem.py"), torch.device(device)
        model = loaded.construct(place, seed=1)
        confinement = Confinement(namespaces=True)
        path = str(tmp_path / "candidate.py")
        remote = Remote(path, loaded, None, model, place, 1, confinement=confinement, **options)
        started.append(remote)
        inputs = Inputs(loaded, place)
        inputs.fill("generator", 3, False)
        return remote, inputs

    yield begin
    for remote in reversed(started):
        remote.close()


def test_memory_is_shared_in_namespaces(start: Start) -> None:
    remote, inputs = start("return torch.relu(x)")
    left = remote.run(inputs, 5, "running forward", guarded=True)
    assert remote.arenas.can_share and torch.equal(left.tensors["output[0]"], torch.relu(inputs.values[0]))
    assert left.tensors["output[0]"].device == inputs.values[0].device and left.changes("input") == []


def test_where_the_driver_refuses_the_way_is_through_the_host(
    start: Start, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device != "cuda":
        pytest.skip("on a CPU all memory is the host's")

    class Refused(shared_arenas.DeviceArena):
        def __init__(self, *_: Any) -> None:
            raise shared_arenas.SharingRefused("not here")

    monkeypatch.setattr(shared_arenas, "DeviceArena", Refused)
    remote, inputs = start("x.add_(1)\nreturn torch.relu(x)")
    before = inputs.values[0].clone()
    left = remote.run(inputs, 5, "running forward")
    assert not remote.arenas.can_share and torch.equal(left.tensors["output[0]"], torch.relu(before + 1))
    assert torch.equal(left.tensors["input[0]"], before + 1) and torch.equal(inputs.values[0], before)


def test_large_inputs_are_given_as_they_are(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (remotes, shared_arenas):
        monkeypatch.setattr(module, "is_large", lambda size, device: True)
    remote, inputs = start("x.add_(1)\nreturn x * 2", shares_large=True)
    before = inputs.values[0].clone()
    left = remote.run(inputs, 5, "running forward")
    assert torch.equal(left.tensors["input[0]"], before + 1)
    assert torch.equal(left.tensors["output[0]"], (before + 1) * 2) and remote.altered(left) == []


def test_work_on_another_stream_is_seen(start: Start, device: str) -> None:
    if device != "cuda":
        pytest.skip("streams are a GPU's")
    remote, inputs = start(
        "out = torch.empty_like(x)\n"
        "side = torch.cuda.Stream()\n"
        "side.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(side):\n"
        "    torch.cuda._sleep(50_000_000)\n"
        "    out.copy_(torch.relu(x))\n"
        "return out"
    )
    remote.run(inputs, 5, "running forward", guarded=True)  # kernels are loaded, which waits for the device
    left = remote.run(inputs, 5, "running forward", guarded=True)
    assert left.faults["no-leftover-work"]


def test_a_kernel_that_faults_takes_its_own_process_along(start: Start, device: str) -> None:
    if device != "cuda":
        pytest.skip("on a CPU the index raises")
    remote, inputs = start("return x + x.view(-1)[torch.full((1,), 1 << 40, device=x.device)]")
    with pytest.raises(errors.Error) as caught:
        remote.run(inputs, 5, "running forward")
    assert caught.value.kind == "candidate" and caught.value.code == "device-error"
    other, inputs = start("return torch.relu(x)")
    assert torch.equal(other.run(inputs, 5, "running forward").tensors["output[0]"], torch.relu(inputs.values[0]))


def test_an_honest_clock_is_believed(start: Start) -> None:
    remote, inputs = start("return torch.relu(x)")
    remote.run(inputs, 5, "running forward")
    remote.timer(inputs)
    assert all(remote.sample(inputs) > 0 for _ in range(15))
    assert remote.untold_ms() == 0.0
