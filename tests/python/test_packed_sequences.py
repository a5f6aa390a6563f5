"""Packed sequences whose lengths forward says itself: a layer is called once for each length, and the result is PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from capture_check import compare, module_of
from case_checks import interpreter_of, with_ours
from interpreter_process import InterpreterProcess
from packed_cases import CASES, FIRST, Packing, built, interpreted
from test_recurrences import AS_COLUMNS
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from kernelwright import errors, library
from kernelwright.capture import export

Tensor = torch.Tensor

interpreter = interpreter_of("packed_cases:interpreted")


@pytest.mark.parametrize("begins", [False, True], ids=["from_zeros", "from_states"])
@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name: str, begins: bool) -> None:
    module, arguments = built(name, begins)
    graph = compare(module, *arguments)
    layers = [node for node in graph["nodes"] if node["op"].endswith(".input")]
    assert len(layers) == len(set(module.lengths))


def constants(self: nn.Module, x: Tensor) -> Tensor:
    lengths = torch.as_tensor([3, 4]).to(torch.int32)
    return pad_packed_sequence(self.layer(pack_padded_sequence(x, lengths, True, False))[0], True)[0]


def sequences(self: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    return pad_packed_sequence(self.layer(pack_sequence([x[0], x[1, :3], x[0, :3]]))[0])


def data(self: nn.Module, x: Tensor) -> Any:
    packed = pack_padded_sequence(x, [1, 5, 5], True, False)
    doubled = PackedSequence(packed.data * 2, *packed[1:])
    output = self.layer(doubled)[0]
    return pad_packed_sequence(PackedSequence(output.data.relu(), *output[1:])), output.data


def data_in_place(self: nn.Module, x: Tensor) -> Any:
    packed = pack_padded_sequence(x, [5, 2, 2], True)
    packed.data[:3].mul_(2)
    return pad_packed_sequence(self.layer(packed)[0])


def input_in_place(self: nn.Module, x: Tensor) -> Any:
    x = x + 1
    packed = pack_padded_sequence(x, [5, 2, 2], True)
    x.zero_()
    return pad_packed_sequence(self.layer(packed)[0])


def reordered(self: nn.Module, x: Tensor) -> Any:
    packed = pack_padded_sequence(x, [2, 5, 3], True, False)
    return packed.data, packed.sorted_indices, packed.unsorted_indices


def no_layer(self: nn.Module, x: Tensor) -> Any:
    return pad_packed_sequence(pack_padded_sequence(x, [2, 5, 3], True, enforce_sorted=False), padding_value=7)


@pytest.mark.parametrize(
    "forward, samples",
    [(constants, 2), (sequences, 2), *((one, 3) for one in (data, data_in_place, input_in_place, reordered, no_layer))],
)
def test_other_ways_to_pack(forward: Callable[..., Any], samples: int) -> None:
    compare(module_of(forward, layer=nn.GRU(4, 6, **FIRST)), torch.randn(samples, 5, 4))


@pytest.mark.parametrize("name", ["lstm_both_ways", "gru", "rnn_stacked"])
def test_what_is_emitted_for_a_cpu_is_pytorchs(name: str, tmp_path: Path) -> None:
    module, arguments = built(name, begins=False)
    path = tmp_path / "candidate.py"
    path.write_text(library.compile_graph(export.export_module(module, tuple(arguments)), "cpu")["source"])
    assert not interpreted({"candidate": str(path), "case": name})


def test_what_is_emitted_for_a_gpu_is_pytorchs(interpreter: InterpreterProcess, tmp_path: Path) -> None:
    module, arguments = built("gru", begins=False)
    path = tmp_path / "candidate.py"
    path.write_text(with_ours(module, arguments, "recurrence", AS_COLUMNS, caution="exact-products")["source"])
    fault = interpreter.fault(candidate=str(path), case="gru")
    assert not fault, fault


def test_lengths_stay_on_the_cpu() -> None:
    module, arguments = built("gru_both_ways", begins=False)
    graph = export.export_module(module, tuple(arguments), device="cuda")
    lengths = graph["outputs"][1]["value"]
    assert graph["values"][lengths]["device"] == "cpu"
    # A kernel of a GPU reads and writes none of its own.
    emitted = library.compile_graph(graph, "triton")
    assert "aten.clone" in emitted["library_ops"]


def not_sorted(self: nn.Module, x: Tensor) -> Any:
    return self.layer(pack_padded_sequence(x, self.lengths, True))


def test_errors_are_pytorchs() -> None:
    x, layer = torch.randn(3, 5, 4), nn.GRU(4, 6, **FIRST)
    for lengths, message in [
        ([3, 4, 4], "sorted"),
        ([4, 0, 0], "greater than 0"),
        ([4, 4], "batch_size"),
        ([6, 4, 4], "start"),
    ]:
        with pytest.raises(errors.Error, match=message) as caught:
            export.export_module(module_of(not_sorted, layer=layer, lengths=lengths), (x,))
        assert caught.value.code == "forward-raised"


def refusal(module: nn.Module, *args: Any) -> errors.Error:
    with pytest.raises(errors.Error) as caught:
        export.export_module(module, args)
    assert caught.value.code == "packed-sequence" and caught.value.hint
    return caught.value


def of_an_input(self: nn.Module, x: Tensor, lengths: Tensor) -> Any:
    return self.layer(pack_padded_sequence(x, lengths, True, enforce_sorted=False))[1]


def of_a_buffer(self: nn.Module, x: Tensor) -> Any:
    return self.layer(pack_padded_sequence(x, self.lengths, True, enforce_sorted=False))[1]


def of_a_changed_constant(self: nn.Module, x: Tensor) -> Any:
    lengths = torch.tensor([3, 4])
    lengths[0] = 2
    return self.layer(pack_padded_sequence(x, lengths, True, enforce_sorted=False))[1]


def sizes(self: nn.Module, x: Tensor) -> Tensor:
    return x * pack_padded_sequence(x, [2, 2], True).batch_sizes


def sum_of_sizes(self: nn.Module, x: Tensor) -> Tensor:
    return x * pack_padded_sequence(x, [2, 2], True).batch_sizes.sum()


def own_order(self: nn.Module, x: Tensor) -> Any:
    packed = pack_padded_sequence(x, [1, 5], True, False)
    return pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes, packed[3].flip(0), packed[2].flip(0)))


def test_what_is_refused_says_what_to_do() -> None:
    gru, x = nn.GRU(4, 6, **FIRST), torch.randn(2, 5, 4)
    dropped = Packing(nn.GRU(4, 6, 2, dropout=0.5), [3, 1])
    for error, message, hint in [
        (refusal(module_of(of_an_input, layer=gru), x, torch.tensor([3, 4])), "in a tensor", "list of numbers"),
        (refusal(module_of(of_a_buffer, layer=gru, lengths=torch.tensor([3, 4])), x), "in a tensor", "list of numbers"),
        (refusal(module_of(of_a_changed_constant, layer=gru), x), "in a tensor", "list of numbers"),
        (refusal(Packing(gru, list(range(1, 18))), torch.randn(17, 17, 4)), "17 different", "padded tensor"),
        (refusal(dropped, torch.randn(5, 2, 4)), "dropout between", "evaluation mode"),
        (refusal(module_of(sizes), x), "batch sizes", "padded tensor"),
        (refusal(module_of(sum_of_sizes), x), ".sum of the batch sizes", "padded tensor"),
        (refusal(module_of(own_order), x), "order", "padded tensor"),
    ]:
        assert message in error.message and hint in error.hint
    compare(dropped.eval(), torch.randn(5, 2, 4))


def test_pytorchs_functions_are_pytorchs_again() -> None:
    x = torch.randn(2, 5, 4)
    compare(Packing(nn.GRU(4, 6, **FIRST), [3, 1]), x)
    packed = pack_padded_sequence(x, torch.tensor([3, 1]), True)
    assert isinstance(packed.batch_sizes, Tensor) and pad_packed_sequence(packed)[1].tolist() == [3, 1]
