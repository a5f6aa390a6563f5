"""Kernels whose blocks run in pairs, fed by a warp that copies: what they compute, without a GPU, and what they are
refused for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from case_checks import Wrapped, compile_for_gpu
from test_tile_programs import TOOL, compiled_for_hopper, tool

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import gluon_simulator

HALVES = """kernel halves {{
  axis {axes}
  in a_high: f16[{a}]
  in a_low: f16[{a}]
  in a_scale: f32[{m}]
  in w_high: f16[{w}]
  in w_low: f16[{w}]
  in bias: f32[{n}]
  out y: f32[{m}, {n}]
  a = f32(a_high[{a_at}]) + f32(a_low[{a_at}])
  w = f32(w_high[{w_at}]) + f32(w_low[{w_at}])
  y[m, n] = maximum(dot(a, w; k) * a_scale[m] + bias[n], 0.5)
}}
"""
BATCHES = """kernel batches {{
  axis b = 3, m = {m}, n = {n}, k = {k}
  in a: f16[3, {m}, {k}]
  in w: f16[3, {n}, {k}]
  out y: f32[3, {m}, {n}]
  y[b, m, n] = dot(a[b, m, k], w[b, n, k]; k)
}}
"""
# The left operand is split where it is read, 64 of the depth at a time.
STREAMED = """kernel streamed {{
  axis m = {m}, n = {n}, chunk = {chunks}, k = 64
  in a: f32[{m}, {depth}]
  in w_high: f16[{n}, {depth}]
  in w_low: f16[{n}, {depth}]
  in bias: f32[{m}]
  out y: f32[{n}, {m}]
  out small: i32[{m}]
  largest = max(abs(a[m, chunk * 64 + k]); k)
  exponent = floor(log2(maximum(largest, 1e-30)))
  scaled = a[m, chunk * 64 + k] * exp2(14.0 - exponent)
  w = f32(w_high[n, chunk * 64 + k]) + f32(w_low[n, chunk * 64 + k])
  product = dot(scaled, w; k) * exp2(exponent - 14.0)
  y[n, m] = sum(product; chunk) + bias[m]
  few = sum(select(abs(scaled) < 1024.0, 1.0, 0.0); k)
  small[m] = max(i32(few); chunk)
}}
"""
# By one half.
STREAMED_ONE = (
    STREAMED.replace("  in w_low: f16[{n}, {depth}]\n", "")
    .replace("f32(w_high[n, chunk * 64 + k]) + f32(w_low[n, chunk * 64 + k])", "w_high[n, chunk * 64 + k]")
    .replace("dot(scaled, w; k)", "dot(f16(scaled), w; k)")
)


@dataclass(frozen=True)
class Case:
    m: int
    n: int
    k: int
    schedule: str
    streamed: bool = False
    one_half: bool = False
    a_along_k: bool = True
    w_along_k: bool = True
    batches: bool = False
    addend: bool = False
    kept: str = ""  # a condition on m and n: 0 where it does not hold
    sizes: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        if not self.kept:
            return self.text_of_all()
        return re.sub(r"(  y\[[^]]*\] = )(.*)", rf"\1select({self.kept}, \2, 0.0)", self.text_of_all())

    def text_of_all(self) -> str:
        if self.streamed:
            return (STREAMED_ONE if self.one_half else STREAMED).format(
                m=self.m, n=self.n, chunks=self.k // 64, depth=self.k
            )
        if self.batches:
            return BATCHES.format(m=self.m, n=self.n, k=self.k)
        order = "mnk" if self.w_along_k else "mkn" if self.a_along_k else "kmn"
        axes = ", ".join(f"{axis} = {getattr(self, axis)}" for axis in order)
        a, w = ("mk" if self.a_along_k else "km"), ("nk" if self.w_along_k else "kn")

        def shape(axes: str) -> str:
            return ", ".join(str(getattr(self, axis)) for axis in axes)

        form = HALVES
        if self.addend:
            form = form.replace("  out y", "  in before: f32[{m}, {n}]\n  out y").replace(
                " + bias", " + before[m, n] + bias"
            )
        return form.format(axes=axes, m=self.m, n=self.n, a=shape(a), w=shape(w), a_at=", ".join(a), w_at=", ".join(w))

    def tensors(self) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(self.m + self.n + self.k)
        if self.batches:
            a, w = (draw.standard_normal((3, rows, self.k)).astype(np.float16) for rows in (self.m, self.n))
            return {"a": a, "w": w, "y": np.full((3, self.m, self.n), np.nan, np.float32)}
        if self.streamed:
            a, w = (draw.standard_normal((rows, self.k)).astype(np.float32) for rows in (self.m, self.n))
            a *= 2.0 ** draw.integers(-20, 20, (self.m, self.k // 64)).repeat(64, axis=1).astype(np.float32)
            high = w.astype(np.float16)
            return {
                "a": a,
                "w_high": high,
                "w_low": (w - high.astype(np.float32)).astype(np.float16),
                "bias": draw.standard_normal(self.m).astype(np.float32),
                "y": np.full((self.n, self.m), np.nan, np.float32),
                "small": np.full(self.m, -1, np.int32),
            }
        made: dict[str, np.ndarray] = {}
        for name, rows, along in (("a", self.m, self.a_along_k), ("w", self.n, self.w_along_k)):
            values = draw.standard_normal((rows, self.k) if along else (self.k, rows)).astype(np.float32)
            made[f"{name}_high"] = values.astype(np.float16)
            made[f"{name}_low"] = (values - made[f"{name}_high"].astype(np.float32)).astype(np.float16)
        made["a_scale"] = draw.uniform(0.5, 2, self.m).astype(np.float32)
        made["bias"] = draw.standard_normal(self.n).astype(np.float32)
        made["before"] = draw.standard_normal((self.m, self.n)).astype(np.float32)
        return made | {"y": np.full((self.m, self.n), np.nan, np.float32)}

    def expected(self, given: dict[str, np.ndarray]) -> np.ndarray:
        if not self.kept:
            return self.all_expected(given)
        m, n = np.arange(self.m)[:, None], np.arange(self.n)
        return np.where(eval(self.kept.replace(" and ", " & "), {"m": m, "n": n}), self.all_expected(given), 0.0)

    def all_expected(self, given: dict[str, np.ndarray]) -> np.ndarray:
        if self.streamed:
            w = given["w_high"].astype(np.float64) + (0.0 if self.one_half else given["w_low"])
            return w @ given["a"].T.astype(np.float64) + given["bias"]
        if self.batches:
            return np.einsum("bmk,bnk->bmn", given["a"].astype(np.float64), given["w"].astype(np.float64))
        a, w = (given[f"{name}_high"].astype(np.float64) + given[f"{name}_low"] for name in "aw")
        product = (a if self.a_along_k else a.T) @ (w.T if self.w_along_k else w)
        before = given["before"] if self.addend else 0.0
        return np.maximum(product * given["a_scale"][:, None] + before + given["bias"], 0.5)


def schedule(
    m: int = 64, n: int = 32, k: int = 32, stages: int = 2, more: str = "", halves: bool = True, programs: int = 0
) -> str:
    several = f',"programs":{programs}' if programs else ""
    scheme = '"scheme":"fp16x3",' if halves else ""
    return (
        f'{{"m":{{"grid":{m}}},"n":{{"grid":{n}}},"k":{{"loop":{k},"stages":{stages}}},{scheme}"bulk":true,{more}'
        f'"consumers":{{"along":"m","count":2{several}}}}}'
    )


def streamed(n: int = 32, stages: int = 2, programs: int = 0, one_half: bool = False) -> str:
    several = f',"programs":{programs}' if programs else ""
    scheme = '"scheme":"fp16x3",'
    return (
        f'{{"m":{{"grid":64}},"n":{{"grid":{n}}},"chunk":{{"loop":1,"stages":{stages}}},"k":{{"tile":64}},'
        f'{"" if one_half else scheme}"bulk":true,"consumers":{{"along":"m","count":2{several}}}}}'
    )


def in_turn(
    programs: int, m: int = 64, n: int = 32, k: int = 32, stages: int = 2, halves: bool = False, more: str = ""
) -> str:
    return schedule(m, n, k, stages, more, halves, programs).replace('"along":"m",', "")


ORDER = '"order":{"grouped":"m","along":"n","count":2},'
BULK_STORES = '"bulk_stores":true,'
CASES = {
    "plain": Case(128, 64, 96, schedule()),
    "ragged": Case(200, 88, 104, schedule(more=ORDER)),
    "many blocks": Case(520, 136, 64, schedule(k=16, stages=3, more=ORDER)),
    "more stages than steps": Case(128, 32, 64, schedule(stages=4)),
    "one stage": Case(136, 40, 160, schedule(stages=1)),
    "columns side by side": Case(128, 72, 96, schedule(), w_along_k=False),
    "both side by side": Case(264, 72, 80, schedule(more=ORDER), a_along_k=False, w_along_k=False),
    "wide blocks of a consumer": Case(300, 64, 96, schedule(m=128)),
    "batches": Case(136, 48, 72, '{"b":{"grid":1},' + schedule(halves=False)[1:], batches=True),
    "with an addend": Case(200, 64, 96, schedule(more=ORDER), addend=True),
    "several pairs for each program": Case(520, 136, 80, schedule(stages=3, more=ORDER, programs=4)),
    "some pairs more for one": Case(
        300, 104, 64, '{"b":{"grid":1},' + schedule(halves=False, programs=5)[1:], batches=True
    ),
    "programs for more than there are": Case(128, 64, 96, schedule(programs=100)),
    "stored by the engine": Case(200, 88, 104, schedule(more=ORDER + BULK_STORES)),
    "several stored by each program": Case(520, 136, 80, schedule(stages=3, more=ORDER + BULK_STORES, programs=4)),
    "batches stored by the engine": Case(
        136, 48, 72, '{"b":{"grid":1},' + schedule(halves=False, more=BULK_STORES, programs=3)[1:], batches=True
    ),
    "batches, one stage": Case(136, 48, 96, '{"b":{"grid":1},' + schedule(halves=False, stages=1)[1:], batches=True),
    "batches, many steps": Case(
        136, 48, 416, '{"b":{"grid":1},' + schedule(halves=False, stages=3, programs=2)[1:], batches=True
    ),
    "in turn": Case(200, 104, 160, '{"b":{"grid":1},' + in_turn(4, stages=3)[1:], batches=True),
    "in turn, one block for some": Case(128, 96, 64, '{"b":{"grid":1},' + in_turn(5)[1:], batches=True),
    "in turn, one program": Case(136, 40, 224, '{"b":{"grid":1},' + in_turn(1, stages=4)[1:], batches=True),
    "in turn, halves": Case(200, 88, 104, in_turn(3, halves=True, more=ORDER)),
    "in turn, stored by the engine": Case(200, 88, 104, in_turn(3, halves=True, more=BULK_STORES)),
    "split where it is read": Case(256, 32, 320, streamed(), streamed=True),
    "split, ragged": Case(200, 72, 256, streamed(stages=3), streamed=True),
    "split, several pairs for each program": Case(520, 128, 192, streamed(128, programs=2), streamed=True),
    "one half": Case(200, 72, 256, streamed(stages=3, one_half=True), streamed=True, one_half=True),
}


# Triangles and bands: some pairs have all iterations, others one alone.
BOUNDED = {
    "upper triangle": Case(
        392, 264, 128, schedule(stages=3, more=ORDER, programs=3).replace('"loop":32', '"loop":32,"bounded":true'),
        kept="(n >= m)",
    ),
    "lower triangle": Case(
        392, 264, 128, schedule(more=ORDER + BULK_STORES, programs=2).replace('"loop":32', '"loop":32,"bounded":true'),
        kept="(n <= m - 40)",
    ),
    "band": Case(
        520, 392, 96, schedule(programs=4).replace('"loop":32', '"loop":32,"bounded":true'),
        kept="((n <= m + 70) and (n > m - 33))",
    ),
    "triangles of a batch": Case(
        264, 200, 128,
        '{"b":{"grid":1},' + schedule(halves=False, programs=5)[1:].replace('"loop":32', '"loop":32,"bounded":true'),
        batches=True, kept="(m - 70 < n)",
    ),
}  # fmt: skip
CASES |= BOUNDED


def kernel_of(case: Case) -> str:
    return "streamed" if case.streamed else "batches" if case.batches else "halves"


def printed(tmp_path: Path, case: Case) -> tuple[Path, str]:
    file = tmp_path / "case.kernel"
    file.write_text(case.text())
    return file, tool("triton", file, case.schedule)


def blocks_of(source: str) -> int:
    return int(eval(re.findall(r"    blocks = ([\d *min(,)]+)\n", source)[0]))


@pytest.mark.parametrize("name", CASES)
def test_simulated_warps_compute_the_product(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    _, source = printed(tmp_path, case)
    simulator = gluon_simulator.Simulator()
    names: dict[str, Any] = simulator.names()
    functions = source[source.index("@") : source.index("\ndef launch_")]
    exec(functions, names)
    given = case.tensors()
    kernel = names[kernel_of(case)]
    order = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    simulator.run(kernel, blocks_of(source), [given[name] for name in order])
    wanted = case.expected(given)
    exact = 1e-3 if case.one_half else 1e-4
    assert np.abs(given["y"] - wanted).max() <= exact * np.abs(wanted).max()
    if case.streamed:
        chunks = np.abs(given["a"].reshape(case.m, -1, 64))
        few = (chunks < chunks.max(axis=2, keepdims=True) / 32).sum(axis=2).max(axis=1)
        many = (chunks < chunks.max(axis=2, keepdims=True) / 16).sum(axis=2).max(axis=1)
        assert (given["small"] >= few).all() and (given["small"] <= many).all()


# Blocks fold what they have of rows or columns, of which the last has fewer.
FOLDS = """kernel folds {{
  axis {axes}
  in a: f16[200, 96]
  in w: f16[104, 96]
  out y: f32[4, {others}]
  inside = {{{place}}} < {extent}
  product = dot({a}, {w}; k)
  y[block, {other}] = {fold}(select(inside, product, {beyond}); {folded})
}}
"""
FOLDED = {
    "rows": (
        {
            "axes": "block = 4, m = 64, n = 104, k = 96",
            "a": "(a[block * 64 + m, k] where inside otherwise 0.0)",
            "w": "w[n, k]",
            "place": "block * 64 + m",
            "extent": 200,
            "others": 104,
            "other": "n",
            "folded": "m",
        },
        '{"block":{"grid":1},"m":{"tile":64},"n":{"grid":32},"k":{"loop":32,"stages":2},"bulk":true,'
        '"consumers":{"along":"block","count":2,"programs":3}}',
    ),
    "columns": (
        {
            "axes": "m = 200, block = 4, n = 32, k = 96",
            "a": "a[m, k]",
            "w": "(w[block * 32 + n, k] where inside otherwise 0.0)",
            "place": "block * 32 + n",
            "extent": 104,
            "others": 200,
            "other": "m",
            "folded": "n",
        },
        '{"m":{"grid":64},"block":{"grid":1},"n":{"tile":32},"k":{"loop":32,"stages":2},"bulk":true,'
        '"consumers":{"along":"m","count":2}}',
    ),
}


@pytest.mark.parametrize(("fold", "beyond"), [("max", "-inf"), ("sum", "0.0")])
@pytest.mark.parametrize("name", FOLDED)
def test_consumers_fold_what_they_have(tmp_path: Path, name: str, fold: str, beyond: str) -> None:
    words, how = FOLDED[name]
    file = tmp_path / "folds.kernel"
    file.write_text(FOLDS.format(**words, fold=fold, beyond=beyond))
    source = tool("triton", file, how)
    simulator = gluon_simulator.Simulator()
    names: dict[str, Any] = simulator.names()
    exec(source[source.index("@") : source.index("\ndef launch_")], names)
    draw = np.random.default_rng(3)
    a, w = (draw.standard_normal((extent, 96)).astype(np.float16) for extent in (200, 104))
    y = np.full((4, words["others"]), np.nan, np.float32)
    given = {"a": a, "w": w, "y": y}
    kernel = names["folds"]
    order = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    simulator.run(kernel, blocks_of(source), [given[one] for one in order])
    product = a.astype(np.float64) @ w.astype(np.float64).T
    rows = product if name == "rows" else product.T
    width = 64 if name == "rows" else 32
    parts = [rows[start : start + width] for start in range(0, len(rows), width)]
    wanted = np.stack([one.max(0) if fold == "max" else one.sum(0) for one in parts])
    assert np.abs(y - wanted).max() <= 1e-4 * np.abs(wanted).max()
    compiled = compiled_for_hopper(tmp_path, file, how)
    assert "wgmma" in compiled.asm["ptx"] and "cp.async.bulk.tensor" in compiled.asm["ptx"]


def test_masks_that_say_more_than_where_a_buffer_ends_make_no_boxes(tmp_path: Path) -> None:
    words, how = FOLDED["rows"]
    file = tmp_path / "folds.kernel"
    file.write_text(FOLDS.format(**(words | {"extent": 199}), fold="sum", beyond="0.0"))
    run = subprocess.run([TOOL, "triton", file, how], capture_output=True, text=True, check=False)
    assert run.returncode != 0 and "the loop of consumers loads boxes" in run.stderr


def is_wrong_with(tmp_path: Path, monkeypatch: Any, case: Case, place: str, wrong: str) -> bool:
    """Is the result wrong, or an error raised, once `wrong` stands at `place`?"""
    monkeypatch.setattr(gluon_simulator, "PATIENCE", 0.5)
    _, source = printed(tmp_path, case)
    functions = source[source.index("@") : source.index("\ndef launch_")]
    assert place in functions
    simulator = gluon_simulator.Simulator()
    names: dict[str, Any] = simulator.names()
    exec(functions.replace(place, wrong), names)
    given = case.tensors()
    kernel = names[kernel_of(case)]
    order = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    try:
        simulator.run(kernel, blocks_of(source), [given[name] for name in order])
    except RuntimeError:
        return True
    wanted = case.expected(given)
    return not np.abs(given["y"] - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("case_name", ["ragged", "split, ragged"])
@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("hopper.mbarrier.wait(ready.index(stage), turn)", "pass"),
        ("hopper.mbarrier.wait(free.index(stage), turn ^ 1)", "pass"),
        ("hopper.mbarrier.wait(free.index(stage), turn ^ 1)", "hopper.mbarrier.wait(free.index(stage), turn)"),
        ("hopper.mbarrier.arrive(free.index(stage), count=1)", "pass"),
    ],
)
def test_the_simulator_sees_a_missing_wait(
    tmp_path: Path, monkeypatch: Any, case_name: str, place: str, wrong: str
) -> None:
    assert is_wrong_with(tmp_path, monkeypatch, CASES[case_name], place, wrong)


@pytest.mark.parametrize(
    ("case_name", "place", "wrong"),
    [
        # Of products that run on while the next iteration's begin.
        ("batches, many steps", "product = hopper.warpgroup_mma_wait(1, deps=[product])", "pass"),
        ("batches, many steps", "free.index((stage + 2) % 3)", "free.index(stage)"),
        ("batches, many steps", ", pred=k_start > 0", ""),
        ("batches, many steps", "hopper.mbarrier.arrive(free.index((step - 1) % 3), count=1)", "pass"),
        # Of blocks that consumers take in turn.
        ("in turn", "hopper.mbarrier.arrive(done.index(consumer), count=1)", "pass"),
        ("in turn", "step += 5", "pass"),
        ("in turn", "number_of_block += 2", "number_of_block += 1"),
        (
            "in turn",
            "hopper.mbarrier.init(free.index(stage), count=1)",
            "hopper.mbarrier.init(free.index(stage), count=2)",
        ),
    ],
)
def test_the_simulator_sees_what_products_must_wait_for(
    tmp_path: Path, monkeypatch: Any, case_name: str, place: str, wrong: str
) -> None:
    assert is_wrong_with(tmp_path, monkeypatch, CASES[case_name], place, wrong)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("        hopper.tma.store_wait(0)\n        y_tiles", "        y_tiles"),
        ("\n    hopper.tma.store_wait(0)\n", "\n"),
        ("hopper.fence_async_shared()", "pass"),
        ("y_tiles.index(consumer)", "y_tiles.index(0)"),
    ],
)
def test_the_simulator_sees_what_stores_must_wait_for(tmp_path: Path, monkeypatch: Any, place: str, wrong: str) -> None:
    assert is_wrong_with(tmp_path, monkeypatch, CASES["several stored by each program"], place, wrong)


def test_a_box_that_is_none_is_stored_by_threads(tmp_path: Path) -> None:
    """Rows of 90 numbers do not begin at multiples of 16 bytes."""
    _, bulk = printed(tmp_path, CASES["stored by the engine"])
    _, plain = printed(tmp_path, Case(200, 90, 104, schedule(more=ORDER + BULK_STORES)))
    assert "async_copy_shared_to_global" in bulk and "tl.store(y" not in bulk
    assert "async_copy_shared_to_global" not in plain and "tl.store(y" in plain


@pytest.mark.parametrize("name", BOUNDED)
def test_blocks_of_which_nothing_is_kept_take_one_step(tmp_path: Path, name: str) -> None:
    """No quotient is of a negative number: the interpreter rounds it down, a GPU towards zero."""
    case = BOUNDED[name]
    _, source = printed(tmp_path, case)
    of_producer = source[source.index("_producer(") :]
    match = re.search(r"for k_start in range\(0, (.*), 32\):", of_producer)
    assert match
    ends = set()
    for pair in range(-(-case.m // 128)):
        for n_block in range(-(-case.n // 32)):
            names = {"m_block_pair": pair, "n_block": n_block}
            for dividend in re.findall(r"\(([^()]*)\) //", match[1]):
                assert eval(dividend, names) >= 0
            end = eval(match[1].replace("tl.minimum", "min"), names)
            m, n = np.arange(128 * pair, 128 * pair + 128)[:, None], np.arange(32 * n_block, 32 * n_block + 32)
            each = [eval(part, {"m": m, "n": n}) for part in case.kept.strip("()").split(") and (")]
            assert end == (case.k if all(one.any() for one in each) else 32)
            ends.add(end)
    assert len(ends) == 2


@pytest.mark.parametrize("name", CASES)
def test_triton_compiles_them_for_a_hopper_gpu(tmp_path: Path, name: str) -> None:
    file, _ = printed(tmp_path, CASES[name])
    compiled = compiled_for_hopper(tmp_path, file, CASES[name].schedule)
    assert "wgmma" in compiled.asm["ptx"] and "setmaxnreg" in compiled.asm["ptx"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (schedule(m=32), "consumers multiply multiples of 64 rows"),
        (schedule().replace('"bulk":true,', ""), "the loop of consumers loads boxes"),
        (schedule().replace('"loop":32,"stages":2', '"loop":32'), "the loop of consumers has stages"),
        (schedule(more='"warps":8,'), "a consumer has 4 warps"),
        (schedule().replace('"count":2', '"count":3'), "'count' of consumers is 3"),
        (schedule().replace('"along":"m"', '"along":"k"'), "consumers names 'k', which is not in the grid"),
        (schedule().replace('"along":"m",', '"alone":"m",'), "consumers has no parameter 'alone'"),
        (schedule().replace('"along":"m",', ""), "consumers without 'along' take blocks in turn, and need 'programs'"),
    ],
)
def test_what_consumers_cannot_do_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "case.kernel"
    file.write_text(CASES["plain"].text())
    done = subprocess.run([TOOL, "triton", file, text], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and why in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        # Both operands are split.
        (
            "w = f32(w_high[n, chunk * 64 + k]) + f32(w_low[n, chunk * 64 + k])",
            "w = f32(w_high[n, chunk * 64 + k]) * 2.0",
            "what consumers multiply by is a box",
        ),
        # What is split is multiplied by another number for each column.
        ("exp2(exponent - 14.0)\n", "f32(w_low[n, chunk * 64])\n", "the loop of consumers loads boxes"),
        # It is kept element by element.
        ("product = dot(scaled, w; k)", "product = dot(scaled, w; k) + a[m, n]", "has the lanes of a product's left"),
    ],
)
def test_what_consumers_cannot_split_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    file = tmp_path / "case.kernel"
    text = CASES["split where it is read"].text()
    assert old in text
    file.write_text(text.replace(old, new))
    done = subprocess.run([TOOL, "triton", file, streamed()], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and why in done.stderr, done.stderr


@pytest.mark.parametrize("batches, consumers", [(2, 2), (4, None)])
def test_operands_of_more_dimensions_than_a_box_has_are_multiplied_without(batches: int, consumers: int | None) -> None:
    """The bulk copy engine takes five; batch axes in two orders stay apart."""
    sizes = (3, 4, 5, 6)[:batches]
    back = (*range(batches)[::-1], batches, batches + 1)
    left, right = torch.empty(*sizes, 512, 1024), torch.empty(*sizes[::-1], 1024, 512)
    emitted = compile_for_gpu(Wrapped(lambda a, b: torch.matmul(a.permute(back), b)), left, right)
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "contraction" and group["parameters"].get("consumers") == consumers
