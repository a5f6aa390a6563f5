"""bench/suite_table.py: what it says of a run's results, problem by problem and together."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20


@pytest.fixture(scope="module")
def script(home: Path) -> Any:
    specification = importlib.util.spec_from_file_location("suite_table", home / "bench" / "suite_table.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def result(name: str, ours: float, eager: float | None, compiled: float | None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "verdict": "pass",
        "time_ms": {"ours": ours, "eager": eager, "compile": compiled},
        "kernels": ["relu_kernel"],
        "library_ops": [],
        "peak_memory_bytes": {"ours": 64 * MIB, "eager": 64 * MIB},
        "seconds": {"capture": 1.0, "compile": 0.5, "build": 2.0, "verify": 50.0, "total": 60.0},
        "roofline": {"fraction": 0.5},
    } | more


RESULTS = [
    result("fast", 1.0, 4.0, 2.0, kernels=["conv2d_relu_kernel", "filters_kernel"]),
    result("slow", 2.0, 1.0, None, library_ops=["aten.mm"], kernels=[]),
    result("hungry", 1.0, 8.0, 8.0, peak_memory_bytes={"ours": 96 * MIB, "eager": 32 * MIB}),
    result("long", 1.0, 2.0, 2.0, seconds={"capture": 70.0, "compile": 1.0, "build": 9.0}),
    {"name": "wrong", "verdict": "fail", "reason": "values: differ", "seconds": {"capture": 500.0}},
]


def without_times(name: str) -> dict[str, Any]:
    one = result(name, 1.0, None, None)
    del one["time_ms"], one["peak_memory_bytes"], one["roofline"]
    return one


def printed(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any, results: list[Any], *options: str) -> str:
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in results))
    monkeypatch.setattr(sys, "argv", ["suite_table.py", str(path), *options])
    script.main()
    return str(capsys.readouterr().out)


def test_rows_and_sums(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    lines = printed(script, tmp_path, capsys, monkeypatch, RESULTS).splitlines()
    columns = lines[0].count("|")
    assert all(line.count("|") == columns for line in lines[:7])
    assert "| fast | 1 | 4 | 2 | 2.000 | 50% | 1.00 | 3.5 |" in lines
    assert "| slow | 2 | 1 |  | 0.500 | 50% | 1.00 | 3.5 |" in lines
    assert "| wrong | fail | | | | values | | |" in lines
    assert "4 of 5 verified." in lines
    assert "Geometric mean over eager: 2.38 (4 problems)." in lines
    assert "Geometric mean over compile: 3.17 (3 problems)." in lines
    assert "Faster than the better of both: 3 of 4 (75%); geometric mean over it 2.00." in lines
    assert "The lowest: slow 0.50." in lines
    assert "More memory than eager (by over 1 MiB): 1 of 4: the most hungry 3.00." in lines
    assert "The longest compile time: long 80.0 s; above 60 s: 1." in lines


def test_problems_of_several_kinds_have_a_table(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    text = printed(script, tmp_path, capsys, monkeypatch, RESULTS)
    assert "| convolution | 1 | 2.00 | 1 | fast 2.00 |" in text
    assert "| product | 1 | 0.50 | 0 | slow 0.50 |" in text
    assert "| other | 2 | 4.00 | 2 | long 2.00 |" in text
    assert "| kind |" not in printed(script, tmp_path, capsys, monkeypatch, RESULTS[2:])


def test_only_problems_without_a_library_call(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    text = printed(script, tmp_path, capsys, monkeypatch, RESULTS, "--own")
    assert "| slow |" not in text and "3 of 4 verified." in text


def test_results_without_times_or_memory(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    emitted = {"name": "emitted", "verdict": "emitted", "seconds": {}}
    text = printed(script, tmp_path, capsys, monkeypatch, [emitted])
    assert "0 of 1 verified." in text and "nan" not in text
    alone = result("alone", 1.0, None, None, peak_memory_bytes={}, roofline=None)
    text = printed(script, tmp_path, capsys, monkeypatch, [alone])
    assert "| alone | 1 |  |  |  |  |  | 3.5 |" in text and "memory than eager (" not in text
    assert "nan" not in text


@pytest.mark.parametrize(
    ("kernels", "library_ops", "kind"),
    [
        (["copy_kernel", "gather_biases_kernel", "lstm_kernel", "linear_kernel"], [], "recurrent"),
        (["linear_relu_kernel"], ["aten.gru"], "recurrent"),
        (["conv2d_kernel", "split_q_kernel", "attention_kernel"], [], "attention"),
        (["arange_sub_softmax_matmul_kernel_in_f32"], [], "attention"),
        (["conv2d_kernel", "add_softmax_kernel", "matmul_kernel_2"], [], "attention"),
        (["softmax_kernel"], ["aten.bmm", "aten.conv2d"], "attention"),
        (["layer_norm_kernel"], ["aten.scaled_dot_product_attention"], "attention"),
        (["conv_transpose3d_softmax_kernel", "linear_kernel"], [], "convolution"),
        (["relu_kernel"], ["aten.convolution"], "convolution"),
        (["mm_softmax_kernel"], [], "product"),
        (["addmm_kernel_of_parts"], [], "product"),
        (["softmax_kernel", "convert_kernel", "hammer_kernel"], ["aten.cat"], "other"),
    ],
)
def test_kinds_are_told_by_operators(script: Any, kernels: list[str], library_ops: list[str], kind: str) -> None:
    assert script.kind({"kernels": kernels, "library_ops": library_ops}) == kind


def test_what_was_verified_and_not_timed_has_a_row(script: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    lines = printed(script, tmp_path, capsys, monkeypatch, [RESULTS[0], without_times("large")]).splitlines()
    assert "| large |  |  |  |  |  |  | 3.5 |" in lines
    assert "2 of 2 verified." in lines and "Verified and not timed: large." in lines
    assert "Geometric mean over eager: 4.00 (1 problems)." in lines
