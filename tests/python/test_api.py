"""The Python interface: modules in memory, and the torch.compile backend."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import errors
from kernelwright.backend import kernelwright as backend

pytestmark = pytest.mark.skipif(
    not (Path(__file__).resolve().parents[2] / "build" / "libkernelwright.so").exists(),
    reason="libkernelwright.so is not built",
)


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.softmax(torch.relu(self.norm(self.linear(x))) * scale, dim=-1)


@pytest.fixture(scope="module")
def optimised() -> tuple[torch.nn.Module, torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module, x = Gated(), torch.randn(8, 16)
    return module, kernelwright.optimize(module, [x], draws=2), x


def test_result_is_verified_and_shares_parameters(optimised):
    module, faster, _ = optimised
    assert faster.report["verdict"] == "pass" and faster.report["kernels"]
    assert {id(parameter) for parameter in faster.parameters()} == {id(parameter) for parameter in module.parameters()}
    assert "def kernel_forward" in faster.source


def test_random_stream_and_module_are_untouched():
    module, x = Gated(), torch.randn(8, 16)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    kernelwright.optimize(module, [x], draws=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


@torch.no_grad()
def test_same_results_and_same_buffer_updates(optimised):
    _, faster, x = optimised
    import copy

    mine, original = copy.deepcopy(faster), copy.deepcopy(faster.module)
    torch.testing.assert_close(mine(x), original(x))
    torch.testing.assert_close(mine.module.norm.running_mean, original.norm.running_mean)
    assert mine.module.norm.num_batches_tracked == original.norm.num_batches_tracked


def test_gradients_and_other_shapes_run_the_original(optimised):
    module, faster, x = optimised
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loss = faster(x).square().sum()
        loss.backward()
        assert module.linear.weight.grad is not None
        module.zero_grad()
        with torch.no_grad():
            assert faster(torch.randn(5, 16)).shape == (5, 32)
            assert faster(x, scale=3.0).shape == (8, 32)
    assert any("gradients" in str(warning.message) for warning in seen)


def test_verify_tells_right_from_wrong(optimised):
    module, faster, x = optimised
    assert kernelwright.verify(module, faster, [x], draws=2)["verdict"] == "pass"

    class Wrong(Gated):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            return super().forward(x, scale) * 1.01

    verdict = kernelwright.verify(module, Wrong(), [x], draws=2)
    assert verdict["verdict"] == "fail" and verdict["code"] == "inaccurate"

    class Raises(Gated):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            raise ValueError("not today")

    assert "not today" in kernelwright.verify(module, Raises(), [x], draws=1)["reason"]


def test_measure_reports_a_speedup(optimised):
    module, faster, x = optimised
    times = kernelwright.measure(module, faster, [x], baselines=["eager"], budget_seconds=0.3)
    assert times["time_ms"]["ours"] > 0 and times["speedup"]["eager"]["value"] > 0


def test_keyword_arguments():
    module, x = Gated().eval(), torch.randn(4, 16)
    faster = kernelwright.optimize(module, [x], {"scale": 0.5}, draws=2)
    with torch.no_grad():
        torch.testing.assert_close(faster(x, scale=0.5), module(x, scale=0.5))


def test_integers_keep_their_range():
    class Lookup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 8)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.table(index))

    faster = kernelwright.optimize(Lookup(), [torch.randint(0, 10, (5, 7))], draws=2)
    assert faster.report["verdict"] == "pass"


def test_data_dependent_module_is_refused_with_its_line():
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(errors.Error) as caught:
        kernelwright.optimize(Branch(), [torch.randn(4)])
    assert caught.value.code == "data-dependent"
    with pytest.raises(errors.Error, match="target"):
        kernelwright.optimize(Branch(), [torch.randn(4)], target="tpu")


def test_backend_compiles_each_shape_and_steps_back_for_gradients():
    torch._dynamo.reset()
    module = Gated().eval()
    compiled = torch.compile(module, backend=backend, options={"draws": 1})
    with torch.no_grad():
        for rows in (4, 6):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(compiled(x), module(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.randn(4, 16)).sum().backward()
    assert module.linear.weight.grad is not None


def test_named_results_stay_named() -> None:
    class Named(torch.nn.Module):
        def forward(self, x):
            return torch.max(x * 2, dim=1), torch.sort(x, dim=1, stable=True)

    x = torch.randn(20, 9)
    with pytest.warns(kernelwright.UnverifiedKernelsWarning):
        faster = kernelwright.optimize(Named(), x, target="cpu", unverified_kernels_may_be_wrong=True)
    ours = faster(x)
    for mine, theirs in zip(ours, Named()(x), strict=True):
        assert type(mine) is type(theirs)
        assert torch.equal(mine.values, theirs.values) and torch.equal(mine.indices, theirs.indices)


def test_one_tensor_stands_for_a_list_of_it(optimised):
    module, faster, x = optimised
    assert kernelwright.optimize(module, x, draws=1).source == faster.source
    assert kernelwright.verify(module, faster, x, draws=1)["verdict"] == "pass"
    assert kernelwright.measure(module, None, x, baselines=["eager"], budget_seconds=0.1)["time_ms"]["eager"] > 0


@pytest.mark.parametrize("call", ["optimize", "verify", "measure"])
@pytest.mark.parametrize(
    "inputs, says",
    [
        ({"x": torch.ones(2, 16)}, "example_inputs is a dict.*example_kwargs"),
        (3, "example_inputs is of type int"),
        ("x", "example_inputs is of type str"),
        (None, "example_inputs is of type NoneType"),
        ((value for value in ()), "example_inputs is of type generator"),
        (torch.ones(2, 16).numpy(), "example_inputs is of type ndarray"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) or value == "x" else "says",
)
def test_example_inputs_of_a_wrong_type_get_a_sentence(call, inputs, says):
    modules = (Gated(),) if call == "optimize" else (Gated(), Gated())
    with pytest.raises(errors.Error, match="(?s)" + says) as caught:
        getattr(kernelwright, call)(*modules, inputs)
    assert caught.value.kind == "user" and caught.value.hint


def test_other_arguments_of_a_wrong_type_get_a_sentence():
    x = torch.randn(4, 16)
    with pytest.raises(errors.Error, match=r"(?s)module is the class Gated.*Gated\(\.\.\.\)"):
        kernelwright.optimize(Gated, x)
    with pytest.raises(errors.Error, match="module is of type Tensor"):
        kernelwright.optimize(x, Gated())
    with pytest.raises(errors.Error, match="candidate is of type NoneType"):
        kernelwright.verify(Gated(), None, x)
    with pytest.raises(errors.Error, match="candidate is of type Tensor"):
        kernelwright.measure(Gated(), x, x)
    with pytest.raises(errors.Error, match="(?s)example_kwargs is of type Tensor.*example_inputs"):
        kernelwright.optimize(Gated(), x, x)


def test_nothing_unverified_runs_in_silence():
    import copy

    module, x = Gated(), torch.randn(8, 16)
    with pytest.warns(kernelwright.UnverifiedKernelsWarning, match="Gated were not verified") as seen:
        faster = kernelwright.optimize(module, x, unverified_kernels_may_be_wrong=True)
    assert len(seen) == 1 and seen[0].filename == __file__
    assert faster.report["verdict"] == "unverified"
    for one in (faster, copy.deepcopy(faster)):
        assert "UNVERIFIED" in repr(one)


def test_a_verified_module_says_nothing_of_the_kind(optimised):
    assert "UNVERIFIED" not in repr(optimised[1]) and optimised[1].report["verdict"] == "pass"


def test_the_former_name_of_the_switch_tells_the_present_one():
    with pytest.raises(errors.Error, match="unverified_kernels_may_be_wrong=True"):
        kernelwright.optimize(Gated(), torch.randn(8, 16), verified=False)
    with pytest.raises(TypeError, match="no setting verrified; there are target, "):
        kernelwright.optimize(Gated(), torch.randn(8, 16), verrified=False)


BAD_SETTINGS = [
    ({"policy": "strict"}, "no policy 'strict'"),
    ({"target": "tpu"}, "no target 'tpu'"),
    ({"draws": 0}, "draws=0 is not a whole number"),
    ({"draws": 2.5}, "draws=2.5 is not a whole number"),
    ({"seed": "abc"}, "seed='abc' is not a whole number"),
    ({"seed": -1}, "seed=-1 is not a whole number"),
]


@pytest.mark.parametrize("settings, says", BAD_SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused_at_once(settings, says):
    with pytest.raises(errors.Error, match=says):
        kernelwright.optimize(Gated(), torch.randn(8, 16), **settings)


@pytest.mark.parametrize(
    "options, says",
    [({"verified": False}, "unverified_kernels_may_be_wrong"), ({"speed": 11}, "no setting speed"), *BAD_SETTINGS],
)
def test_backend_refuses_settings_it_does_not_know(options, says):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=says):
        torch.compile(Gated(), backend=backend, options=options)(torch.randn(4, 16))


def test_backend_warns_of_unverified_kernels():
    torch._dynamo.reset()
    compiled = torch.compile(Gated().eval(), backend=backend, options={"unverified_kernels_may_be_wrong": True})
    with torch.no_grad(), pytest.warns(kernelwright.UnverifiedKernelsWarning):
        compiled(torch.randn(4, 16))


def test_library_calls_with_a_keyword_of_python_and_of_other_libraries():
    """`from` is no name of an argument in Python; operators outside aten go by their whole names."""

    class Drawn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.xlogy(2.0, x.abs() + torch.empty_like(x).uniform_(1.0, 1.5))

    faster = kernelwright.optimize(Drawn(), torch.rand(5, 3), draws=1)
    assert faster.report["verdict"] == "pass" and '**{"from": 1.0}' in faster.source

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.prims.tan(x) * 2.0

    faster = kernelwright.optimize(Scaled(), torch.rand(5, 3), draws=1)
    assert faster.report["verdict"] == "pass"
