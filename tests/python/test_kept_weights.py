"""What an emitted module makes of its weights alone, in evaluation mode: made once, and again when one has changed."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from case_checks import compile_for_gpu
from interpreter_process import InterpreterProcess
from kernelwright import library
from kernelwright.capture import export
from test_emitted_modes import load


class TwoLayers(torch.nn.Module):
    """What is made of each layer's weights has more than a megabyte, which is freed elsewhere as soon as nothing reads
    it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Linear(600, 600) for _ in range(2))
        self.scale = torch.nn.Parameter(torch.rand(600, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.relu(F.linear(x, self.first.weight * self.scale)), self.second.weight * self.scale)


X = torch.randn(8, 96, generator=torch.Generator().manual_seed(1))


class Scaled(torch.nn.Module):
    """A linear layer whose matrix is a product of two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(96, 64)
        self.scale = torch.nn.Parameter(torch.rand(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.linear(x, self.linear.weight * self.scale, self.linear.bias))


class Counted:
    """An emitted module for the CPU, with a count of how often its weights were prepared."""

    def __init__(self, module: torch.nn.Module, folder: Path, *arguments: torch.Tensor) -> None:
        source = library.compile_graph(export.export_module(module, arguments), "cpu")["source"]
        self.module, self.file = module, load(source, folder, "kept_weights_for_test")
        self.made, self.times, self.prepare = self.file.ModelNew(module), 0, self.file.prepared_weights
        self.file.prepared_weights = self._prepare

    def _prepare(self, *weights: torch.Tensor) -> Any:
        self.times += 1
        return self.prepare(*weights)

    def check(self, x: torch.Tensor, times: int) -> None:
        """It computes what the original does, and has prepared its weights so often by now."""
        with torch.no_grad():
            torch.testing.assert_close(self.made(x), self.module(x))
        assert self.times == times


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    torch.manual_seed(2)
    return Counted(Scaled().eval(), tmp_path, X)


def test_weights_are_prepared_once_while_they_stay(counted: Counted) -> None:
    for call in range(3):
        counted.check(X + call, 1)


def test_large_tensors_are_kept_though_nothing_reads_them_there(tmp_path: Path) -> None:
    x = torch.randn(4, 600, generator=torch.Generator().manual_seed(3))
    layers = Counted(TwoLayers().eval(), tmp_path, x)
    for _ in range(2):
        layers.check(x, 1)


def test_whatever_changes_a_weight_is_noticed(counted: Counted) -> None:
    counted.check(X, 1)
    module, times = counted.module, 1
    other = Scaled().state_dict()

    def replace() -> None:
        module.scale = torch.nn.Parameter(torch.rand(64, 1))

    def through_a_view() -> None:
        module.linear.weight[3].zero_()

    def new_storage() -> None:
        module.linear.weight.data = torch.randn(64, 96)

    def step() -> None:
        module.scale.grad = torch.ones(64, 1)
        torch.optim.SGD([module.scale], 0.1).step()

    for change in (replace, through_a_view, new_storage, step, lambda: module.load_state_dict(other)):
        with torch.no_grad():
            change()
        times += 1
        counted.check(X, times)
        counted.check(X, times)


def test_an_address_is_not_taken_for_a_tensor(counted: Counted) -> None:
    """A new parameter that lies where an old one was freed has the old one's address and version."""
    counted.check(X, 1)
    for round in range(2, 6):
        counted.module.scale = None
        counted.module.scale = torch.nn.Parameter(torch.full((64, 1), float(round)))
        counted.check(X, round)


def test_kept_tensors_stay_where_graphs_read_them(counted: Counted) -> None:
    counted.check(X, 1)
    places = [tensor.data_ptr() for tensor in counted.file.kept_weights(counted.made, _tensors(counted))]
    with torch.no_grad():
        counted.module.scale.mul_(2)
    counted.check(X, 2)
    assert [tensor.data_ptr() for tensor in counted.file.kept_weights(counted.made, _tensors(counted))] == places


def _tensors(counted: Counted) -> tuple[torch.Tensor, ...]:
    module = counted.module
    return tuple(
        {"scale": module.scale, "linear.weight": module.linear.weight}.get(name[0], X) for name in _names(counted)
    )


def _names(counted: Counted) -> list[tuple[Any, ...]]:
    return [(expected[0].removeprefix("module."),) for expected in counted.file.EXPECTED]


def test_copies_threads_and_inference_tensors(counted: Counted) -> None:
    counted.check(X, 1)
    twin = copy.deepcopy(counted.made)
    with torch.no_grad():
        twin.module.scale.fill_(3.0)
        torch.testing.assert_close(twin(X), twin.module(X))
    counted.check(X, 2)
    wrong: list[bool] = []

    def call() -> None:
        with torch.no_grad():
            wrong.append(not torch.equal(counted.made(X), expected))

    with torch.no_grad():
        expected = counted.made(X)
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 4
    with torch.inference_mode():
        counted.check(X, 2)  # kept from before
        counted.module.scale = torch.nn.Parameter(torch.rand(64, 1))  # of a kind that has no version
        counted.check(X, 3)
        counted.check(X, 4)
    counted.module.scale = torch.nn.Parameter(torch.rand(64, 1))
    counted.check(X, 5)
    counted.check(X, 5)


def test_each_device_has_its_own(counted: Counted) -> None:
    kept = counted.file.KeptWeights()
    counted.file.prepared_weights = lambda *weights: (torch.zeros(3, device=weights[0].device),)
    for device in ("cpu", "meta", "cpu"):
        (made,) = kept(torch.zeros(2, device=device))
        assert made.device.type == device


class Positions(torch.nn.Module):
    """Slopes that depend on no weight, beside a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distances = torch.arange(-2047, 1, device=x.device).view(1, 1, 2048)
        slopes = 1 / torch.pow(2, torch.arange(1, 5, device=x.device).float() * 2).view(4, 1, 1)
        biases = (distances * slopes)[:, :, -7:]
        once = torch.softmax(x * self.scale + biases, dim=-1)
        return torch.softmax(once @ once + biases, dim=-1)


class BarePositions(Positions):
    def __init__(self) -> None:
        super().__init__()
        del self.scale
        self.scale = 1.0


def test_what_hangs_on_no_weight_is_kept_with_one(tmp_path: Path) -> None:
    x = torch.randn(4, 7, 7)
    counted = Counted(Positions().eval(), tmp_path, x)
    for _ in range(3):
        counted.check(x, 1)
    made = copy.deepcopy(counted.made)
    with torch.no_grad():
        torch.testing.assert_close(made(x), counted.module(x))


def test_without_weights_nothing_is_kept() -> None:
    assert not _is_kept(BarePositions().eval(), torch.randn(4, 7, 7))


def _is_kept(module: torch.nn.Module, *arguments: torch.Tensor) -> bool:
    source = library.compile_graph(export.export_module(module, arguments), "cpu")["source"]
    return "prepared_weights" in source


class Returns(Scaled):
    def forward(self, x: torch.Tensor) -> Any:
        matrix = self.linear.weight * self.scale
        return F.linear(x, matrix), matrix.T


class Writes(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64, 96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.add_(self.linear.weight)
        return F.linear(x, self.mean * self.scale)


def test_what_is_returned_or_hangs_on_what_forward_changes_is_not_kept() -> None:
    assert _is_kept(Scaled().eval(), X)
    assert not _is_kept(Scaled(), X)  # training: weights change with every call
    assert not _is_kept(Returns().eval(), X)
    assert not _is_kept(Writes().eval(), X)


class Beside(torch.nn.Module):
    """As many elements as the matrix that is kept has, made of what a call passes, or returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.rand(64, 96)) for _ in range(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return F.linear(x, self.first * 3 + 1), torch.tanh(y), self.second * 2


def test_what_is_kept_is_no_part_of_another_kernel(tmp_path: Path) -> None:
    y = torch.randn(64, 96)
    source = library.compile_graph(export.export_module(Beside().eval(), (X, y)), "cpu")["source"]
    prepared = source.partition("def prepared_weights(")[2].partition("def kernel_forward(")[0]
    assert "first.data_ptr()" in prepared and "second" not in prepared and "tanh" not in prepared
    module = Beside().eval()
    with torch.no_grad():
        made = load(source, tmp_path, "beside").ModelNew(module)
        torch.testing.assert_close(made(X, y), module(X, y))


class Words(torch.nn.Module):
    """Rows that are looked up by what a call passes, and by positions of its own: on a GPU the host looks at each call
    at the indices that kernels refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(50, 96), torch.nn.Embedding(512, 96)
        self.register_buffer("positions", torch.arange(512))
        self.scaled = Scaled()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.scaled(self.words(words) + torch.cumsum(self.places(self.positions), 0)[-3:])


def test_what_the_host_looks_at_is_made_in_each_call() -> None:
    pytest.importorskip("triton")
    source = compile_for_gpu(Words().eval(), torch.arange(3))["source"]
    prepared = source.partition("def prepared_weights(")[2].partition("\n\n\n")[0]
    forward = source.partition("def kernel_forward(")[2].partition("\n\n\n")[0]
    assert "scale" in prepared and "refused" not in prepared
    assert "raise_refused()" in forward and "places" in forward


def test_filters_of_convolutions_and_split_matrices_are_kept() -> None:
    pytest.importorskip("triton")
    convolution = torch.nn.Sequential(torch.nn.Conv2d(64, 128, 3), torch.nn.ReLU()).eval()
    linear = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()).eval()
    for module, x, kernels in (
        (convolution, torch.randn(32, 64, 64, 64), ["filters_kernel"]),
        (linear, torch.randn(2048, 1024), ["split"]),
    ):
        source = compile_for_gpu(module, x)["source"]
        prepared = source.partition("def prepared_weights(")[2].partition("\n\n\n")[0]
        forward = source.partition("def kernel_forward(")[2].partition("\n\n\n")[0]
        for kernel in kernels:
            assert kernel in prepared and prepared.count("launch(") == 1, prepared
        assert "image_scale_kernel" not in prepared
        assert "filters_kernel" not in forward


class Walked(torch.nn.Module):
    """What is kept takes several kernels, with tensors between them that nothing else reads; the rest takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64, 64, generator=torch.Generator().manual_seed(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        for dim in (0, 1, 0, 1, 0):
            weight = torch.cumsum(weight, dim) * 0.1
        return x + weight


def walked(request: dict[str, Any]) -> str:
    """In the interpreter: two calls."""
    made = load(Path(request["path"]).read_text(), Path(request["path"]).parent, "walked").ModelNew(Walked().eval())
    with torch.no_grad():
        for call in range(2):
            x = torch.full((64, 64), float(call))
            torch.testing.assert_close(made(x), Walked()(x))
    return ""


def test_what_is_kept_may_take_scratch_memory_where_the_rest_takes_none(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    source = compile_for_gpu(Walked().eval(), torch.empty(64, 64))["source"]
    assert "scratch_part(" in source.partition("def prepared_weights(")[2].partition("def kernel_forward(")[0]
    assert "scratch_part(" not in source.partition("def kernel_forward(")[2]
    path = tmp_path / "candidate.py"
    path.write_text(source)
    process = InterpreterProcess(tmp_path, "test_kept_weights:walked")
    assert process.fault(path=str(path)) == ""
    process.close()
