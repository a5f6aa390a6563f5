"""Attention as one kernel of ours: what PyTorch computes, and in machine code for an H100."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from attention_cases import CASES, by_hand, operator
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code
from contraction_cases import Case
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only, errors, library
from kernelwright.capture import export

SMALL = {"block_m": 16, "block_n": 16, "stages": 2, "num_warps": 4}
IN_F32 = SMALL | {"scheme": 0}
IN_PARTS = IN_F32 | {"split_keys": 3}
FEW_QUERIES = IN_PARTS | {"block_m": 2, "split_keys": 2, "last_keys": 1}
LAST_KEYS = SMALL | {"last_keys": 1}

interpreter = interpreter_of("attention_cases:interpreted")


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize(
    "parameters",
    [SMALL, IN_F32, IN_PARTS, FEW_QUERIES, LAST_KEYS],
    ids=["split", "f32", "in_parts", "few_queries", "last_keys"],
)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_attention_is_pytorchs(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "attention", parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.parametrize("name", ["halves", "by_hand"])
def test_operands_that_the_bulk_copy_engine_is_not_asked_for(
    name: str, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == name)
    sources = [
        as_one_group(Wrapped(case.function), case.arguments(), "attention", SMALL | {"bulk": bulk})["source"]
        for bulk in (0, 1)
    ]
    assert ["make_tensor_descriptor(" in source for source in sources] == [False, True]
    path = tmp_path / "candidate.py"
    path.write_text(sources[0])
    fault = interpreter.fault(candidate=str(path), case=name)
    assert not fault, fault


@pytest.mark.parametrize("name", ["operator", "shared_keys"])
def test_results_lie_as_those_of_pytorchs_kernels_on_a_gpu(
    name: str, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == name)
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    (node,) = (one for one in graph["nodes"] if "attention" in one["op"])
    kind = graph["values"][node["results"][0]]
    batch, heads, rows, columns = kind["shape"]
    kind["strides"] = [rows * heads * columns, columns, heads * columns, 1]
    schedule = {"target": "triton", "groups": [{"nodes": [0], "scheduler": "attention", "parameters": SMALL}]}
    emitted = library.compile_graph(graph, "triton", schedule=schedule)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=name, heads_side_by_side=True)
    assert not fault, fault


LARGE = {
    "by_hand": ((4, 8, 1024, 64),) * 3,
    "operator": ((4, 8, 1024, 128),) * 3,
    "values_of_256": ((4, 8, 1024, 256),) * 3,
    "causal": ((4, 8, 1024, 256),) * 3,
    "bias_table": ((4, 8, 512, 96),) * 3 + ((1, 1, 1024, 1024),),
    "by_distance": ((2, 16, 1024, 64),) * 3 + ((16,),),
    "causal_square": ((4, 8, 1024, 64),) * 3,
    "some_keys": ((4, 8, 1024, 64),) * 3 + ((4, 1, 1024, 1024),),
    "relu_bfloat16": ((4, 8, 1024, 64),) * 3,
    "biased": ((65536, 64), (512, 64), (512, 64), (512,)),
    "two_layers_in_half": ((16, 4096, 64), (256, 64), (64, 256), (256,), (64,)),
}


@pytest.mark.parametrize("name", LARGE)
def test_triton_makes_tensor_core_code_of_it(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself, without spilled registers where time is spent."""
    pytest.importorskip("triton")
    case = next(one for one in CASES if one.name == name)
    large = Case(name, case.function, LARGE[name], case.dtype, case.arrange)
    emitted = compile_for_gpu(Wrapped(large.function), *large.arguments())
    assert emitted["library_ops"] == [] and [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["attention"]
    code = machine_code(emitted, tmp_path)
    (attention,) = (
        one
        for kernel, one in code.items()
        if not kernel.startswith(("split_", "whole_heads", "last_keys")) and "_in_f32" not in kernel
    )
    assert attention.asm["ptx"].count("wgmma.mma_async") > 0
    assert compile_only._resources(attention)["spills"] in (0, None)


@pytest.mark.parametrize(
    "shapes, options",
    [
        (((1, 32, 1, 128), (1, 32, 32768, 128), (1, 32, 32768, 128)), {}),
        (((1, 16, 1, 64), (1, 16, 32771, 64), (1, 16, 32771, 64)), {}),
        (((4, 32, 1, 128), (4, 8, 8192, 128), (4, 8, 8192, 128)), {"enable_gqa": True}),
        (((2, 8, 8, 128), (2, 8, 16384, 128), (2, 8, 16384, 128)), {}),
    ],
    ids=["one_query", "a_prime_number_of_keys", "shared_keys", "few_queries"],
)
def test_blocks_share_out_the_keys_of_few_queries(
    shapes: tuple[tuple[int, ...], ...], options: dict[str, bool], tmp_path: Path
) -> None:
    """Of heads that share keys, queries are rows of one block."""
    emitted = compile_for_gpu(Wrapped(operator(**options)), *(torch.empty(shape) for shape in shapes))
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "attention" and group["parameters"]["split_keys"] > 1
    (_, heads, queries, _), keys = shapes[0], shapes[1]
    rows = queries * heads // keys[1]
    assert group["parameters"]["block_m"] == min(rows, 2)
    assert len(emitted["kernels"]) == 2
    for code in machine_code(emitted, tmp_path).values():
        assert compile_only._resources(code)["spills"] in (0, None)


@pytest.mark.parametrize(
    "shapes, dtype, options",
    [
        (((1, 16, 1, 512), (1, 16, 8192, 512), (1, 16, 8192, 512)), torch.float32, {}),
        (((1, 16, 4, 1024), (1, 16, 8192, 1024), (1, 16, 8192, 1024)), torch.float32, {}),
        (((4, 16, 1, 576), (4, 16, 8192, 576), (4, 16, 8192, 512)), torch.bfloat16, {}),
        (((4, 128, 1, 576), (4, 1, 8192, 576), (4, 1, 8192, 512)), torch.bfloat16, {"enable_gqa": True}),
        (((4, 16, 16, 1024), (4, 16, 8192, 1024), (4, 16, 8192, 1024)), torch.bfloat16, {}),
    ],
    ids=["one_query", "few_queries", "in_halves", "latent", "many_in_halves"],
)
def test_blocks_share_out_the_keys_of_wide_heads(
    shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype, options: dict[str, bool], tmp_path: Path
) -> None:
    """Decoding reads a long cache once, however wide its heads are: latent attention has 576 features for keys."""
    pytest.importorskip("triton")
    given = [torch.empty(shape, dtype=dtype) for shape in shapes]
    emitted = compile_for_gpu(Wrapped(operator(**options)), *given)
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "attention" and group["parameters"]["split_keys"] > 1
    for code in machine_code(emitted, tmp_path).values():
        assert compile_only._resources(code)["spills"] in (0, None)


@pytest.mark.parametrize("features, rows, dtype, taken", [
    (1024, 16, torch.float32, True), (1040, 16, torch.float32, False), (1024, 17, torch.float32, False),
    (512, 128, torch.float16, True), (512, 129, torch.float16, False),
])  # fmt: skip
def test_wide_heads_are_taken_of_few_rows(features: int, rows: int, dtype: torch.dtype, taken: bool) -> None:
    shapes = ((1, 1, rows, features), (1, 1, 64, features), (1, 1, 64, features))
    given = [torch.empty(shape, dtype=dtype) for shape in shapes]
    if taken:
        assert as_one_group(Wrapped(by_hand), given, "attention", IN_F32)["library_ops"] == []
        return
    with pytest.raises(errors.Error, match="attention"):
        as_one_group(Wrapped(by_hand), given, "attention", IN_F32)


def test_blocks_end_behind_the_last_key_of_a_mask() -> None:
    for name in ("bias_table", "some_keys"):
        case = next(one for one in CASES if one.name == name)
        emitted = compile_for_gpu(
            Wrapped(case.function), *Case(name, case.function, LARGE[name], case.dtype, case.arrange).arguments()
        )
        assert emitted["schedule"]["groups"][0]["parameters"]["last_keys"] == 1
        assert re.search(
            r"for key_start in tl.range\(0, tl.minimum\(tl.max\(last_keys_tile, axis=0\), ", emitted["source"]
        )
    # A mask for every head is as large as what it leaves out.
    whole = [torch.empty(2, 4, 512, 64) for _ in range(3)] + [torch.empty(2, 4, 512, 512)]
    emitted = compile_for_gpu(Wrapped(operator()), *whole)
    assert "last_keys_kernel" not in emitted["source"]


def test_weights_that_change_places_are_not_taken() -> None:
    def turned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT, dim=-1).mT.contiguous() @ v

    def rows_of_queries(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT, dim=-2) @ v

    for function in (turned, rows_of_queries):
        with pytest.raises(errors.Error, match="attention"):
            as_one_group(Wrapped(function), [torch.randn(2, 3, 48, 16) for _ in range(3)], "attention", SMALL)


def test_attention_that_stores_its_weights_is_not_taken() -> None:
    def weights_too(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.softmax(q @ k.mT, dim=-1)
        return weights @ v, weights

    with pytest.raises(errors.Error, match="attention"):
        as_one_group(Wrapped(weights_too), CASES[0].arguments(), "attention", SMALL)
    emitted = compile_for_gpu(Wrapped(by_hand), *(torch.randn(2, 4, 256, 512) for _ in range(3)))
    assert "attention" not in {one["scheduler"] for one in emitted["schedule"]["groups"]}  # heads are too wide
    operator = next(one for one in CASES if one.name == "operator").function
    emitted = compile_for_gpu(Wrapped(operator), *(torch.randn(2, 4, 256, 512) for _ in range(3)))
    assert not any(
        "attention" in op for op in emitted["library_ops"]
    )  # products and a softmax, whose makers the model chooses


@pytest.mark.parametrize("case", ["repeated_heads", "expanded_heads"])
def test_heads_that_are_shared_are_not_repeated_in_memory(case: str) -> None:
    """One kernel reads them where they lie; what splits keys and values does it for each of their own heads."""
    one = next(one for one in CASES if one.name == case)
    shapes = ((1, 32, 2048, 64), (1, 4, 2048, 64), (1, 4, 2048, 64), (1, 1, 2048, 2048))[: len(one.shapes)]
    emitted = compile_for_gpu(Wrapped(one.function), *(torch.empty(shape) for shape in shapes))
    assert [group["scheduler"] for group in emitted["schedule"]["groups"]] == ["attention"]
    assert (
        "k_high = torch.empty((4, 2048, 64)" in emitted["source"]
        and "v_high = torch.empty((4, 2048, 64)" in emitted["source"]
    )


def test_pytorchs_attention_is_given_shared_heads() -> None:
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat_interleave(8, dim=1), v.repeat_interleave(8, dim=1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    shapes = ((2, 32, 2048, 128), (2, 4, 2048, 128), (2, 4, 2048, 128))
    for dtype in (torch.float32, torch.bfloat16):
        emitted = compile_for_gpu(Wrapped(grouped), *(torch.empty(shape, dtype=dtype) for shape in shapes))
        assert len(emitted["schedule"]["groups"]) == 1
        ours = emitted["schedule"]["groups"][0]["scheduler"] == "attention"
        assert ours or "enable_gqa=True" in emitted["source"]


@pytest.mark.parametrize("name", ["near_keys", "near_keys_of_a_table"])
def test_keys_outside_of_a_window_are_not_visited(name: str, tmp_path: Path) -> None:
    """Each block of queries begins at the first key that one of them attends to, and ends behind the last."""
    pytest.importorskip("triton")
    case = next(one for one in CASES if one.name == name)
    emitted = compile_for_gpu(Wrapped(case.function), *(torch.empty(1, 8, 2048, 64) for _ in range(3)))
    assert [group["scheduler"] for group in emitted["schedule"]["groups"]] == ["attention"]
    walks = re.findall(r"for key_start in tl.range\((.*), (.*), 32, num_stages", emitted["source"])
    assert len(walks) == 1
    begin, end = walks[0]
    for query_block in range(32):
        visited = range(eval(begin, {"query_block": query_block}), eval(end, {"query_block": query_block}), 32)
        assert list(visited) == list(range(max(64 * query_block - 32, 0), 64 * query_block + 64, 32))
    machine_code(emitted, tmp_path)
