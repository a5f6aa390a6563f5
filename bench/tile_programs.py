"""Kernels lowered from a schedule (bench/tile_kernels), on a GPU beside PyTorch: errors against double precision,
times.

python3 bench/tile_programs.py [NAME...]             prints them with build/tests/unit/tile_tool and times them here
python3 bench/tile_programs.py --print FOLDER        prints them only, for a machine without the tool
python3 bench/tile_programs.py --printed FOLDER      times what was printed

NAME: the beginning of a row's name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

HOME = Path(__file__).resolve().parent.parent
TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"
SIDE = 4096


@dataclass
class Problem:
    """Tensors by the kernel's names; PyTorch's call, where there is one; the first of the right results, in double
    precision."""

    given: dict[str, Any]
    library: Callable[[], Any] | None
    right: Any


@dataclass(frozen=True)
class Row:
    name: str
    kernel: str
    schedule: dict[str, Any]
    problem: Callable[[], Problem]
    operations: float


def _random(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def _empty(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.empty(shape, device="cuda", dtype=getattr(torch, dtype))


def _halves(name: str, values: Any) -> dict[str, Any]:
    """Each row as a power of two times the sum of two halves."""
    import torch

    scale = torch.exp2(torch.floor(torch.log2(values.abs().amax(1))))
    scaled = values / scale[:, None]
    high = scaled.half()
    return {f"{name}_high": high, f"{name}_low": (scaled - high.float()).half(), f"{name}_scale": scale}


def _linear(dtype: str = "float32", tf32: bool = False) -> Problem:
    import torch
    import torch.nn.functional as F

    a, w, bias = _random(SIDE, SIDE, dtype=dtype), _random(SIDE, SIDE, dtype=dtype) / 64, _random(SIDE)
    given = {"a": a, "w": w, "bias": bias, "y": _empty(SIDE, SIDE)} | _halves("a", a) | _halves("w", w)

    def library() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return F.gelu(F.linear(a, w, bias.to(a.dtype)))

    return Problem(given, library, F.gelu(F.linear(a[:512].double(), w.double(), bias.double())))


def _attention(causal: bool) -> Problem:
    import torch.nn.functional as F

    heads = 64 if causal else 256
    q, k, v = (_random(count, 2048, 128, dtype="bfloat16") for count in (256, heads, heads))
    wide = [one.view(16, -1, 2048, 128).repeat_interleave(256 // one.shape[0], 1) for one in (q, k, v)]

    def attend(tensors: list[Any]) -> Any:
        return F.scaled_dot_product_attention(*tensors, is_causal=causal).reshape(-1, 2048, 128)

    given = {"q": q, "k": k, "v": v, "y": _empty(256, 2048, 128, dtype="bfloat16")}
    return Problem(given, lambda: attend(wide), attend([one[:1].double() for one in wide]))


def _convolution() -> Problem:
    import torch.nn.functional as F

    image, weight = _random(64, 64, 56, 56), _random(128, 64, 3, 3) / 24
    given = {"image": image, "weight": weight.permute(0, 2, 3, 1).contiguous(), "y": _empty(64, 128, 56, 56)}
    right = F.conv2d(image[:4].double(), weight.double(), padding=1)
    return Problem(given, lambda: F.conv2d(image, weight, padding=1), right)


def _lstm() -> Problem:
    """PyTorch's multiplies its inputs too; the kernel is given the gates' part of them."""
    import torch

    inputs, net = _random(512, 64, 64), torch.nn.LSTM(64, 64).cuda().requires_grad_(False)
    start = _random(64, 64), _random(64, 64)
    given_gates = inputs @ net.weight_ih_l0.T + net.bias_ih_l0 + net.bias_hh_l0
    given = {"gates": given_gates.reshape(512, 64, 4, 64), "w": net.weight_hh_l0.reshape(4, 64, 64)}
    given |= {"h0": start[0], "c0": start[1], "y": _empty(512, 64, 64)}

    def run(module: Any, tensors: tuple[Any, ...]) -> Any:
        return module(tensors[0], (tensors[1][None], tensors[2][None]))[0]

    wide = torch.nn.LSTM(64, 64, dtype=torch.float64).requires_grad_(False)
    wide.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    right = run(wide, tuple(one.double().cpu() for one in (inputs, *start))).cuda()
    return Problem(given, lambda: run(net, (inputs, *start)), right)


def _state_space() -> Problem:
    """Step after step: s = exp(decay) · s + b xᵀ, y = c · s."""
    import torch

    shape = 64, 64, 64
    given = {"decay": -torch.rand(64, 64, device="cuda") / 8, "b": _random(*shape) / 8, "c": _random(*shape) / 8}
    given |= {"x": _random(*shape), "y": _empty(*shape)}
    decay, b, c, x = (given[name].double().cpu().flatten(0, 1) for name in ("decay", "b", "c", "x"))
    state, rows = torch.zeros(64, 64, dtype=torch.float64), []
    for at in range(64 * 64):
        state = state * decay[at].exp() + torch.outer(b[at], x[at])
        rows.append(c[at] @ state)
    return Problem(given, None, torch.stack(rows).reshape(shape).cuda())


def _blocks(m: int, n: int, k: int, stages: int, **more: Any) -> dict[str, Any]:
    order = {"grouped": "m", "along": "n", "count": 8}
    return {
        "m": {"grid": m},
        "n": {"grid": n},
        "k": {"loop": k, "stages": stages},
        "order": order,
        "warps": 8,
        **more,
    }


def _pairs(m: int, n: int, k: int, stages: int) -> dict[str, Any]:
    consumers = {"along": "m", "count": 2, "programs": 132}
    return _blocks(m, n, k, stages, scheme="fp16x3", bulk=True, warps=4, consumers=consumers)


def _heads(key: dict[str, Any], **more: Any) -> dict[str, Any]:
    tiles = {"feature": {"tile": 128}, "value": {"tile": 128}}
    walk = {"loop": 64, "stages": 3, "online": True, **key}
    return {"head": {"grid": 1}, "query": {"grid": 128}, "key": walk, **tiles, "warps": 8, **more}


CUBE, PAIRS = 2 * SIDE**3, 256 * 2048 * 2048 * 128
WINDOWS = {
    "pixel": {"grid": 256},
    "filter": {"grid": 128},
    "channel": {"loop": 32, "stages": 3},
    "dy": {"loop": 1},
    "dx": {"loop": 1},
    "warps": 8,
}
STEPS = {"step": {"loop": 1}, "batch": {"grid": 16}, "unit": {"tile": 64}, "source": {"tile": 64}, "warps": 8}
CHUNKS = {"chunk": {"loop": 1}, "channel": {"grid": 16}, "warps": 8} | {
    name: {"tile": 64} for name in ("at", "before", "inner")
}

ROWS = [
    Row("fp16x3", "linear_halves", _blocks(128, 128, 64, 3, scheme="fp16x3", bulk=True), _linear, CUBE),
    Row("fp16x3_consumers", "linear_halves", _pairs(64, 128, 64, 3), _linear, CUBE),
    Row("fp16x3_pointers", "linear_halves", _blocks(128, 128, 64, 3, scheme="fp16x3"), _linear, CUBE),
    Row("bf16", "linear_bf16", _blocks(128, 256, 64, 4, bulk=True), lambda: _linear("bfloat16"), CUBE),
    Row("tf32", "linear_tf32", _blocks(128, 256, 32, 3, bulk=True), lambda: _linear(tf32=True), CUBE),
    Row("attention", "attention", _heads({}), lambda: _attention(False), 4 * PAIRS),
    Row(
        "attention_causal",
        "attention_causal",
        _heads({"bounded": True}, bulk=True),
        lambda: _attention(True),
        2 * PAIRS,
    ),
    Row(
        "convolution",
        "convolution",
        WINDOWS | {"nest": [["dy", "dx", "channel"]]},
        _convolution,
        2 * 64 * 56 * 56 * 128 * 64 * 9,
    ),
    Row("lstm", "lstm", STEPS, _lstm, 8 * 512 * 64 * 64 * 64),
    Row("state_space", "state_space", CHUNKS, _state_space, 8 * 64 * 64**3),
]


def _print(row: Row, folder: Path) -> None:
    kernel = HOME / "bench" / "tile_kernels" / f"{row.kernel}.kernel"
    done = subprocess.run([TOOL, "triton", kernel, json.dumps(row.schedule)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row.name}: {done.stderr.strip()}")
    (folder / f"{row.name}.py").write_text(done.stdout)


def _time(row: Row, folder: Path) -> str:
    import torch
    from triton.testing import do_bench

    specification = importlib.util.spec_from_file_location(row.name, folder / f"{row.name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    torch.manual_seed(0)
    problem = row.problem()
    launch = next(value for name, value in vars(module).items() if name.startswith("launch_"))
    names = launch.__code__.co_varnames[: launch.__code__.co_argcount]

    def ours() -> Any:
        launch(*(problem.given[name] for name in names))
        return problem.given["y"]

    def error(found: Any) -> float:
        return float((found[: len(problem.right)].double() - problem.right).norm() / problem.right.norm())

    def milliseconds(call: Callable[[], Any]) -> float:
        return do_bench(call, return_mode="median")

    problem.given["y"].fill_(float("nan"))
    own_error = error(ours())
    if problem.library is None:
        own = milliseconds(ours)
        return f"| {row.name} | {own:.3f} | {row.operations / own / 1e9:.0f} | | | {own_error:.1e} | |"
    samples = [(milliseconds(ours), milliseconds(problem.library)) for _ in range(3)]
    own, other = sorted(samples, key=lambda pair: pair[0] / pair[1])[1]
    figures = f"{own:.3f} | {row.operations / own / 1e9:.0f} | {other:.3f} | {other / own:.2f}×"
    return f"| {row.name} | {figures} | {own_error:.1e} | {error(problem.library()):.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--print", dest="print_to", type=Path)
    parser.add_argument("--printed", type=Path)
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.names or row.name.startswith(tuple(options.names))]
    if not rows:
        parser.error(f"no row begins so; they are {', '.join(row.name for row in ROWS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.printed or options.print_to or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows if not options.printed else ():
            _print(row, folder)
        if options.print_to:
            return
        import torch

        if not torch.cuda.is_available():
            sys.exit("error: these kernels are for a GPU, and PyTorch sees none.\n  hint: --print FOLDER prints them.")
        print("| kernel | ours, ms | TFLOP/s | PyTorch, ms | PyTorch / ours | our error | PyTorch's |")
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            print(_time(row, folder), flush=True)


if __name__ == "__main__":
    main()
