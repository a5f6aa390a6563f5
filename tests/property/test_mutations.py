"""Modules that update memory in place leave what eager PyTorch leaves: random programs of updates, views, aliases
and `out=` arguments, and those that once
went wrong. `mutation_check.py` checks thousands by one command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from interpreter_process import InterpreterProcess
from mutation_check import CAUTIONS, Program, capture, faults, module_of, observed, sources
from random_mutations import random_program
from recipe_check import examples

MEAN = {"self.mean": 'self.register_buffer("mean", torch.zeros(64))'}
PAIR = {"x0": "torch.arange(12.0).view(3, 4)", "x1": "torch.ones(3, 4)"}
STATE = {"self.b0": 'self.register_buffer("b0", torch.arange(12.0).view(3, 4))'}


def program(name: str, buffers: dict[str, str], inputs: dict[str, str], *body: str, **aliases: str) -> Program:
    """`aliases`: inputs at the calls that were not so at capture."""
    return Program(name, buffers, inputs, inputs | aliases, list(body))


KNOWN = [
    program(
        "a_running_mean_then_what_differs_from_it",
        MEAN,
        {"x": "torch.sin(torch.arange(256.0 * 64)).view(256, 64)"},
        "self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)",
        "return x - self.mean",
    ),
    program("read_then_overwritten", STATE, PAIR, "y = self.b0 * 2", "self.b0.copy_(x0)", "return y"),
    program("two_inputs_change_places", {}, PAIR, "old = x0.clone()", "x0.copy_(x1)", "x1.copy_(old)", "return x1"),
    program(
        "two_inputs_change_places_and_are_viewed",
        {},
        PAIR,
        "old = x0.clone()",
        "x0.copy_(x1)",
        "x1.copy_(old)",
        "return x1, x0[1:]",
    ),
    program(
        "a_buffer_and_an_input_change_places",
        STATE,
        PAIR,
        "v = self.b0.clone()",
        "self.b0.copy_(x0)",
        "x0.copy_(v)",
        "return x1 * 2",
    ),
    program("its_own_transpose", {}, {"x": "torch.arange(16.0).view(4, 4)"}, "x.copy_(x.t().clone())", "return x + 1"),
    program(
        "rows_normalised_in_place", STATE, PAIR, "self.b0.sub_(self.b0.mean(1, keepdim=True))", "return self.b0 * x0"
    ),
    program("shifted_in_place", STATE, PAIR, "self.b0[1:] += self.b0[:-1].clone()", "return self.b0"),
    program(
        "updated_read_updated", STATE, PAIR, "self.b0.mul_(0.5)", "y = self.b0 + x0", "self.b0.add_(y)", "return y"
    ),
    program(
        "a_buffer_of_two_names",
        STATE | {"self.b1": 'self.register_buffer("b1", self.b0)'},
        PAIR,
        "self.b1.mul_(0.5)",
        "y = self.b0 + x0",
        "self.b0.add_(1)",
        "return y, self.b1",
    ),
    program("an_expanded_buffer_filled", STATE, PAIR, "self.b0.expand(2, 3, 4).zero_()", "return self.b0 + x0"),
    program(
        "by_index_into_a_transposed_input",
        {},
        {"x": "torch.ones(8, 17).t()"},
        "x.index_fill_(0, torch.tensor([1, 0]), 0.5)",
        "return x, x[1:3]",
    ),
    program(
        "out_into_a_transposed_buffer_viewed_later",
        {"self.b0": 'self.register_buffer("b0", torch.zeros(3, 3).t())'},
        {"x": "torch.arange(9.0).view(3, 3)"},
        "torch.maximum(x, x * 0.5, out=self.b0)",
        "v = self.b0.unsqueeze(0).reshape(-1)",
        "self.b0.mul_(0.9)",
        "return v[1:] * 2",
    ),
    program(
        "copied_into_a_transposed_buffer_viewed_later",
        {"self.b0": 'self.register_buffer("b0", torch.zeros(3, 3).t())'},
        {"x": "torch.arange(9.0).view(3, 3)"},
        "self.b0.copy_(x)",
        "v = self.b0.reshape(-1)",
        "self.b0.mul_(0.9)",
        "return v[1:] * 2",
    ),
    program(
        "a_transpose_copied_into_a_buffer_viewed_later",
        {"self.b0": 'self.register_buffer("b0", torch.zeros(3, 3))'},
        {"x": "torch.arange(9.0).view(3, 3)"},
        "self.b0.copy_(x.t())",
        "v = self.b0.reshape(-1)",
        "self.b0.mul_(0.9)",
        "return v[1:] * 2",
    ),
    program("a_number_flipped", STATE, PAIR, "v = self.b0[0, 0]", "v.copy_(v.flip(0))", "return v * x0"),
    program(
        "a_transposed_buffer_zeroed_and_its_part_filled",
        {"self.b0": 'self.register_buffer("b0", torch.ones(3, 3).t())'},
        PAIR,
        "self.b0.zero_()",
        "v = self.b0[1:]",
        "v.zero_()",
        "v[0].fill_(0.3)",
        "return v + x0[:2, :3]",
    ),
    program(
        "a_part_of_an_expanded_input_updated",
        {},
        {"x": "torch.arange(16.0).view(4, 4)"},
        "v = x.expand(2, 4, 4)",
        "v.chunk(2)[1].add_(1)",
        "return v[::2] * 2",
    ),
    program(
        "sums_in_place_of_what_lies_transposed",
        {},
        {"x": "torch.arange(16.0).view(2, 8).t()"},
        "v = x[1:3].clone()",
        "v.cumsum_(0)",
        "return v.as_strided((2,), (1,), 1)",
    ),
    program(
        "filled_in_place_and_viewed_as_it_lies",
        {},
        {"x": "torch.arange(64.0).view(8, 8).t()"},
        "v = x.t().view(-1)",
        "x.masked_fill_(x > 40, 0.5)",
        "x.tril_()",
        "x.mul_(0.5)",
        "return v[1:] * 2",
    ),
    program("one_tensor_for_two_inputs", STATE, PAIR, "x0.add_(1)", "return x0 * x1", x1="x0"),
    program(
        "a_view_of_another_input",
        STATE,
        {"x0": "torch.ones(12)", "x1": "torch.ones(4)"},
        "x0.mul_(2)",
        "return x1 + 1",
        x1="x0[2:6]",
    ),
    program("a_buffer_as_input", STATE, PAIR, "self.b0.copy_(x1)", "return x0 * 2", x0="m.b0"),
]


def check(programs: list[Program]) -> None:
    wrong, refused = [], []
    for one, caution, text in faults(programs):
        (refused if caution == "refused" else wrong).append(
            f"{one.name}, {caution}: {text}\n{one.text}"
        ) if text else None
    assert not wrong, "\n".join(wrong)
    assert len(refused) <= len(programs) // 10, "\n".join(refused)


def test_programs_that_once_went_wrong() -> None:
    wrong = [f"{one.name}, {caution}: {text}" for one, caution, text in faults(KNOWN) if text]
    assert not wrong, "\n".join(wrong)


@pytest.mark.time_limit(300)
def test_random_programs_on_the_cpu() -> None:
    check([random_program(seed) for seed in range(examples(full=8, quick=4))])


@pytest.mark.time_limit(300)
def test_random_programs_in_the_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    interpreter = InterpreterProcess(tmp_path, "mutation_check:interpreted")
    for seed in range(examples(full=3, quick=2)):
        for caution, source in sources(random_program(seed), "triton", CAUTIONS[:1]).items():
            path = tmp_path / f"candidate_{seed}.py"
            path.write_text(source)
            fault = interpreter.fault(seed=seed, candidate=str(path))
            assert not fault, f"{caution}: {fault}\n{random_program(seed).text}"
    interpreter.close()


def test_a_safe_update_stays_in_the_kernel_that_reads_the_buffer() -> None:
    for name in ("a_running_mean_then_what_differs_from_it", "rows_normalised_in_place"):
        source = sources(next(one for one in KNOWN if one.name == name), "cpu", CAUTIONS[:1])["fused"]
        assert "copy_(" not in source.partition("class ModelNew")[2], name
        kernel_forward = source.partition("def kernel_forward(")[2].partition("\n\n\n")[0]
        assert len(re.findall(r"load_kernels\(\)", kernel_forward)) == 1, name


def test_what_shares_memory_runs_in_the_original() -> None:
    one = next(one for one in KNOWN if one.name == "one_tensor_for_two_inputs")
    _, warned = observed(one, module_of(sources(one)["fused"], "candidate").ModelNew)
    assert any("memory that two of its tensors share" in text for text in warned), warned


def test_shared_memory_of_the_module_is_refused_by_name() -> None:
    from kernelwright import errors
    from kernelwright.capture import export

    space = program(
        "aliases",
        STATE | {"self.b1": 'self.register_buffer("b1", self.b0[1:])'},
        PAIR,
        "self.b0.mul_(0.5)",
        "return self.b1 + x0[1:]",
    ).namespace()
    with pytest.raises(errors.Error, match="forward writes to self.b0, whose memory is that of self.b1 as well"):
        export.export_module(space["Model"](), tuple(space["get_inputs"]()), device="cpu")
    assert capture(program("alone", STATE, PAIR, "self.b0.mul_(0.5)", "return x0"))["outputs"]
