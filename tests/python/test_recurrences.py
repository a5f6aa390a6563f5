"""Recurrent layers as kernels of ours: what PyTorch computes, and in machine code for an H100."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, machine_code
from interpreter_process import InterpreterProcess
from recurrence_cases import BOTH_WAYS, CASES, Case, Layer

from kernelwright import compile_only, library
from kernelwright.capture import export

SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4}
APART, AS_COLUMNS, AS_ROWS = SMALL | {"gates": 0}, SMALL | {"gates": 1}, SMALL | {"gates": 2, "block_n": 32}

interpreter = interpreter_of("recurrence_cases:interpreted")


def emitted_for(case: Case, parameters: dict[str, int], caution: str = "fused") -> dict[str, Any]:
    """The candidate whose library calls, all of recurrent layers, are the scheduler's."""
    module, arguments = case.build()
    graph = export.export_module(module.eval(), tuple(arguments), device="cpu")
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "extern":
            group |= {"scheduler": "recurrence", "parameters": parameters}
    return library.compile_graph(graph, "triton", schedule=schedule, caution=caution)


# All cases with the gates' products as the planner has them, in full precision; some in TF32, and with the others.
TRIED = [(case, AS_COLUMNS, True) for case in CASES]
TRIED += [
    (case, other, False)
    for case in CASES
    for other in (AS_COLUMNS, APART, AS_ROWS)
    if case.name.endswith(("stacked", "of_one_step"))
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "case, parameters, exact",
    TRIED,
    ids=[f"{case.name}-{how['gates']}{'' if exact else '-tf32'}" for case, how, exact in TRIED],
)
def test_recurrences_are_pytorchs(
    case: Case, parameters: dict[str, int], exact: bool, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = emitted_for(case, parameters, "exact-products" if exact else "fused")
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=exact)
    assert not fault, f"{fault}\n{emitted['source']}"


LARGE = {
    "lstm": Case("", "LSTM", 128, 256, 6, batch=10, steps=512, options={"batch_first": True}),
    "gru": Case("", "GRU", 128, 256, 6, batch=10, steps=512),
    "lstm_both_ways": Case("", "LSTM", 128, 256, 2, batch=10, steps=512, options={"bidirectional": True}),
    "gru_both_ways": Case("", "GRU", 128, 256, 2, batch=10, steps=512, options={"bidirectional": True}),
    "rnn": Case("", "RNN", 256, 512, 2, batch=32, steps=256),
    "of_a_large_batch": Case("", "LSTM", 256, 256, 2, batch=128, steps=128),
    "halves": Case("", "LSTM", 128, 256, 2, batch=16, steps=256, dtype=torch.float16),
    "of_odd_sizes": Case("", "GRU", 100, 300, 2, batch=20, steps=100),
    "projected": Case("", "LSTM", 128, 256, 2, batch=10, steps=512, options={"proj_size": 64}),
    "projected_both_ways": Case("", "LSTM", 128, 256, batch=10, steps=512, options=BOTH_WAYS | {"proj_size": 64}),
    "of_many_units": Case("", "LSTM", 128, 1024, 2, batch=10, steps=100),
    "of_many_units_both_ways": Case("", "GRU", 128, 1024, 2, batch=10, steps=100, options={"bidirectional": True}),
}
LAUNCHED_FOR_EACH_STEP = {
    "rnn",
    "of_odd_sizes",
    "of_many_units",
    "of_many_units_both_ways",
}  # whose weights do not fit on chip


SHARED_BYTES = 227 << 10  # that a block may have on an H100


def compiled(case: Case, **options: Any) -> dict[str, Any]:
    module, arguments = case.build()
    return compile_for_gpu(module, *arguments, **options)


@pytest.mark.parametrize("name", LARGE)
def test_triton_makes_tensor_core_code_of_it(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself, without spilled registers."""
    pytest.importorskip("triton")
    case = LARGE[name]
    emitted = compiled(case)
    assert emitted["library_ops"] == []
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]].count("recurrence") == 1
    waves = case.steps if case.options.get("bidirectional") else case.steps + case.layers - 1
    launched = name in LAUNCHED_FOR_EACH_STEP
    loop = (
        r"^    for step in range\((\d+)\):$" if launched else r"^    for step in tl\.range\(0, (\d+), num_stages=1\):$"
    )
    counts = re.findall(loop, emitted["source"], re.MULTILINE)
    walks = case.layers if launched and case.options.get("bidirectional") else 1
    assert counts == [str(waves)] * walks
    assert ("launch_cooperative_grid=True" in emitted["source"]) == (not launched)
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        # Where in shared memory the operands of the unrolled products lie is computed before the loop, and kept.
        most = 0 if launched or kernel.startswith("multiply_input") else 800
        assert (compile_only._resources(one)["spills"] or 0) <= most, kernel
        assert one.metadata.shared <= SHARED_BYTES, kernel
        if kernel.startswith(("lstm", "gru", "rnn", "multiply_input")):
            keeps_weights = not launched and not kernel.startswith("multiply_input")
            assert "mma" in one.asm["ptx"] and ("cp.async" in one.asm["ptx"] or keeps_weights), kernel


def test_many_launches_are_captured_in_a_graph() -> None:
    emitted = compiled(LARGE["of_many_units"], graphs="auto")
    assert "class ForwardGraphs" in emitted["source"]
    assert emitted["schedule"]["graphs"]


def test_what_pytorch_may_not_round_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'input_precision="ieee"' not in compiled(LARGE["lstm"])["source"]
    assert 'input_precision="tf32"' not in compiled(LARGE["lstm"], caution="exact-products")["source"]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    emitted = compiled(LARGE["lstm"])
    assert emitted["library_ops"] == []
    assert 'input_precision="tf32"' not in emitted["source"]


def test_a_sequence_called_step_is_not_the_counter() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.GRU(8, 1024)

        def forward(self, step: torch.Tensor) -> torch.Tensor:
            return self.layer(step)[0] + step.mean()

    emitted = compile_for_gpu(Named(), torch.randn(40, 4, 8))
    assert emitted["library_ops"] == []
    assert re.search(r"^    for step_+ in range\(40\):$", emitted["source"], re.MULTILINE)


LIBRARYS = {
    "projection_of_halves": Case(
        "", "LSTM", 64, 128, 2, steps=100, begins=False, dtype=torch.float16, options={"proj_size": 32}
    ),
    "dropout": Case("", "LSTM", 64, 128, 2, steps=100, options={"dropout": 0.5}),
    "double": Case("", "LSTM", 64, 128, 2, steps=100, dtype=torch.float64),
    "too_much_memory": Case("", "RNN", 8, 2048, batch=512, steps=512),
}


@pytest.mark.parametrize("name", LIBRARYS)
def test_what_is_not_taken_stays_the_librarys(name: str) -> None:
    assert compiled(LIBRARYS[name])["library_ops"] in (["aten.lstm"], ["aten.rnn_tanh"])


def test_layers_without_a_batch_are_taken() -> None:
    emitted = compile_for_gpu(Layer(Case("", "GRU", 8, 16, 2)), torch.randn(40, 8))
    assert emitted["library_ops"] == []


def test_a_schedule_is_checked() -> None:
    with pytest.raises(Exception, match="'gates' = 3, which is not allowed"):
        emitted_for(CASES[0], SMALL | {"gates": 3})
    with pytest.raises(Exception, match="'block_m' = 8, which is not allowed"):
        emitted_for(CASES[0], SMALL | {"block_m": 8})
