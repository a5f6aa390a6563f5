"""The emitted class that runs kernel_forward as a CUDA graph, on the CPU: CUDA's part is played by functions that
record, and kernel_forward by PyTorch's operators. tests/device has the real one.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import pickle
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import pytest
import torch
from kernelwright import errors, library
from kernelwright.capture import export

pytest.importorskip("triton")

GOLDEN = Path(__file__).parent.parent / "golden" / "module" / "graphed_statistics.txt"


class Device:
    """What CUDA would do: while a graph is captured kernels are noted and do not run; a replay runs them."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.capturing: Graph | None = None
        self.latest: Graph | None = None
        self.launches = self.captures = self.replays = self.stream = 0
        self.fails = False

    def kernel_forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.capturing is None:
            self.launches += 1
            return self._run(*tensors)
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.capturing.tensors = tensors
        with torch.inference_mode(False):  # the fake replay writes to them through PyTorch, a real one does not
            self.capturing.results = tuple(torch.full_like(tensors[-1], float("nan")) for _ in range(2))
        return self.capturing.results

    def graph_tensors(self) -> tuple[torch.Tensor, ...]:
        """What the graph captured last reads."""
        assert self.latest is not None
        return self.latest.tensors

    @staticmethod
    def _run(total: torch.Tensor, negated: torch.Tensor, calls: torch.Tensor, x: torch.Tensor) -> Any:
        total.mul_(0.5).add_(x.sum(0))
        negated.copy_(total.neg())
        calls.add_(1)
        return x + 1.0, (x + 1.0) * 2.0

    @contextlib.contextmanager
    def graph(self, graph: Graph, stream: Any = None, capture_error_mode: str = "global") -> Iterator[None]:
        assert capture_error_mode == "thread_local" and stream is not None
        self.captures += 1
        self.capturing = self.latest = graph
        try:
            yield
        finally:
            self.capturing = None


class Graph:
    device: Device

    def replay(self) -> None:
        self.device.replays += 1
        for result, fresh in zip(self.results, self.device._run(*self.tensors), strict=True):
            result.copy_(fresh)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a graph")


class Stream:
    cuda_stream = 0


class Generator:
    """Of random numbers; a capture that fails leaves it unable to draw."""

    restored = 0

    def clone_state(self) -> str:
        return "as before"

    def graphsafe_set_state(self, state: str) -> None:
        assert state == "as before"
        self.restored += 1


def load(tmp_path: Path) -> ModuleType:
    file = tmp_path / "graphed.py"
    file.write_text(GOLDEN.read_text().split("----\n", 3)[3])
    spec = importlib.util.spec_from_file_location("graphed", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    module = load(tmp_path)
    device = Device(module)
    module.kernel_forward = device.kernel_forward
    module.why_not = lambda *_: None  # which asks for tensors on a GPU
    monkeypatch.setattr(Graph, "device", device, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", device.graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "default_generators", {None: Generator()})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: device.capturing is not None)

    def current_stream(*_: Any) -> Stream:
        stream = Stream()
        stream.cuda_stream = device.stream
        return stream

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    return device


def check_call(
    ours: torch.nn.Module, reference: torch.nn.Module, x: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """x: what is passed; left out, a tensor that no other call passed."""
    if x is None:
        x = torch.randn(4, 8)
        PASSED.append(x)
    given = x.clone()
    results, expected = ours(x), reference(given.clone())
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(dict(ours.state_dict()), dict(reference.state_dict()))
    assert torch.equal(x, given)
    return results


PASSED: list[torch.Tensor] = []  # kept, so that no later one lies where they do


def pair(device: Device) -> tuple[torch.nn.Module, torch.nn.Module]:
    return device.module.ModelNew(), device.module.Model()


def test_two_calls_warm_up_the_third_captures_and_later_ones_replay(device: Device) -> None:
    ours, reference = pair(device)
    for number in range(1, 6):
        check_call(ours, reference)
        assert device.launches == min(number, 2)
        assert device.captures == (number > 2)
        assert device.replays == max(number - 2, 0)


def test_what_stays_at_its_address_is_read_there(device: Device) -> None:
    ours, reference = pair(device)
    x = torch.randn(4, 8)
    for number in range(1, 6):
        x.normal_()
        check_call(ours, reference, x)
        assert device.replays == max(number - 2, 0)
    assert device.graph_tensors()[-1] is x


def test_what_moves_after_a_capture_is_launched_and_then_copied(device: Device) -> None:
    ours, reference = pair(device)
    x = torch.randn(4, 8)
    for _ in range(3):
        check_call(ours, reference, x)
    check_call(ours, reference)
    check_call(ours, reference, x)
    assert (device.captures, device.launches, device.replays) == (1, 3, 2)
    check_call(ours, reference)
    check_call(ours, reference)
    assert (device.captures, device.launches, device.replays) == (2, 4, 3)
    check_call(ours, reference, x)
    assert (device.captures, device.launches, device.replays) == (2, 4, 4)
    assert all(device.graph_tensors()[-1] is not passed for passed in [x, *PASSED])


def test_results_of_earlier_calls_stay(device: Device) -> None:
    ours, reference = pair(device)
    kept = [check_call(ours, reference) for _ in range(5)]
    copies = [[result.clone() for result in results] for results in kept]
    check_call(ours, reference)
    torch.testing.assert_close([list(results) for results in kept], copies)


def test_a_buffer_of_another_address_is_captured_anew(device: Device) -> None:
    ours, reference = pair(device)
    for _ in range(4):
        check_call(ours, reference)
    old = ours.total
    ours.total = old.clone()
    for number in range(1, 5):
        kept = old.clone()
        check_call(ours, reference)
        assert torch.equal(old, kept)
        assert device.captures == (1 if number <= 2 else 2)
    assert device.launches == 4


def test_addresses_that_keep_changing_end_the_captures(device: Device) -> None:
    ours, reference = pair(device)
    for _ in range(8):
        ours.total = ours.total.clone()
        for _ in range(3):
            check_call(ours, reference)
    assert device.captures == device.module.ForwardGraphs.MOST_CAPTURES
    assert device.launches == 8 * 3 - device.captures


def test_each_stream_has_a_graph(device: Device) -> None:
    ours, reference = pair(device)
    for stream in (0, 7, 0):
        device.stream = stream
        for _ in range(3):
            check_call(ours, reference)
    assert (device.captures, device.launches, device.replays) == (2, 4, 5)


def test_a_capture_that_fails_leaves_plain_launches_and_one_warning(device: Device) -> None:
    ours, reference = pair(device)
    device.fails = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            check_call(ours, reference)
    assert [str(one.message) for one in caught] == [
        "ModelNew launches its kernels one by one, for they cannot be captured in a graph: operation not permitted when"
        " stream is capturing"
    ]
    assert (device.captures, device.launches, device.replays) == (1, 6, 0)
    assert torch.cuda.default_generators[None].restored == 1


def test_a_callers_own_capture_takes_the_kernels(device: Device) -> None:
    ours, reference = pair(device)
    for _ in range(4):
        check_call(ours, reference)
    outer, x = Graph(), torch.randn(4, 8)
    with device.graph(outer, stream=Stream(), capture_error_mode="thread_local"):
        results = ours(x)
    assert outer.tensors[-1] is x and results == outer.results
    assert device.replays == 2  # those of the calls before


def test_inference_mode_may_begin_and_end_between_calls(device: Device) -> None:
    ours, reference = pair(device)
    for number in range(6):
        with torch.inference_mode(number == 2):
            ours(torch.randn(4, 8))
    assert device.replays == 4


def test_a_module_with_graphs_can_be_copied_pickled_and_dropped(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, reference = pair(device)
    for _ in range(4):
        check_call(ours, reference)
    assert set(ours.state_dict()) == set(reference.state_dict())
    monkeypatch.setitem(__import__("sys").modules, "graphed", device.module)
    restored = pickle.loads(pickle.dumps(ours))
    other = copy.deepcopy(reference)
    check_call(restored, other)
    copied, other = copy.deepcopy(ours), copy.deepcopy(reference)
    for _ in range(4):
        check_call(copied, other)
    assert device.captures == 2
    assert len(device.module.FORWARD_GRAPHS) == 3
    del ours, copied
    assert len(device.module.FORWARD_GRAPHS) == 1


def test_the_library_takes_the_option_and_tells_what_came_of_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    graph = export.export_module(model, (torch.randn(8, 64),), {}, device="cuda")
    for asked, is_graph in (("on", True), ("auto", False), ("off", False)):
        made = library.compile_graph(graph, "triton", graphs=asked)
        assert made["cuda_graph"] == is_graph
        assert ("class ForwardGraphs" in made["source"]) == is_graph
        assert made["schedule"].get("graphs", False) == is_graph
    again = library.compile_graph(
        graph, "triton", schedule=library.compile_graph(graph, "triton", graphs="on")["schedule"]
    )
    assert again["cuda_graph"]
    with pytest.raises(errors.Error, match="graphs"):
        library.compile_graph(graph, "triton", graphs="perhaps")
