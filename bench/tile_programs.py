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
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

HOME = Path(__file__).resolve().parent.parent
TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"
SIDE = 4096

Tensors = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


@dataclass
class Problem:
    """Tensors by the kernel's names; PyTorch's call, where there is one; the first of the right results, in double
    precision."""

    given: Tensors
    library: Callable[[], Any] | None
    right: Tensors


@dataclass(frozen=True)
class Row:
    """`bound`: what an error may be, as a norm, of the right results'."""

    name: str
    kernel: str
    schedule: dict[str, Any]
    problem: Callable[[Shapes], Problem]
    operations: float
    bound: float

    @property
    def text(self) -> str:
        return (HOME / "bench" / "tile_kernels" / f"{self.kernel}.kernel").read_text()


def shapes_of(kernel: str) -> Shapes:
    """Of a kernel's buffers."""
    found = re.findall(r"^  (?:in|out|inout) (\w+): \w+\[([\d, ]+)\]", kernel, re.MULTILINE)
    return {name: tuple(map(int, extents.split(","))) for name, extents in found}


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _random(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(shape, device=_device()).to(getattr(torch, dtype))


def _zeros(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.zeros(shape, device=_device(), dtype=getattr(torch, dtype))


def _halves(name: str, values: Any) -> Tensors:
    """Each row as a power of two times the sum of two halves."""
    import torch

    scale = torch.exp2(torch.floor(torch.log2(values.abs().amax(1))))
    scaled = values / scale[:, None]
    high = scaled.half()
    return {f"{name}_high": high, f"{name}_low": (scaled - high.float()).half(), f"{name}_scale": scale}


def _linear(shapes: Shapes, dtype: str = "float32", tf32: bool = False) -> Problem:
    import torch
    import torch.nn.functional as F

    (m, n), k = shapes["y"], shapes["a" if "a" in shapes else "a_high"][1]
    a, w, bias = _random(m, k, dtype=dtype), _random(n, k, dtype=dtype) / k**0.5, _random(n)
    given = {"a": a, "w": w, "bias": bias, "y": _zeros(m, n)} | _halves("a", a) | _halves("w", w)

    def library() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return F.gelu(F.linear(a, w, bias.to(a.dtype)))

    return Problem(given, library, {"y": F.gelu(F.linear(a[:512].double(), w.double(), bias.double()))})


def _norm_linear(shapes: Shapes, dtype: str = "float32", tf32: bool = False) -> Problem:
    """Rows are normalised before the product, and summed behind it."""
    import torch
    import torch.nn.functional as F

    (m, n), k = shapes["y"], shapes["x"][1]
    x, w, gain, bias = _random(m, k, dtype=dtype), _random(n, k, dtype=dtype) / k**0.5, _random(k), _random(n)
    given = {"x": x, "w": w, "gain": gain, "bias": bias, "y": _zeros(m, n), "row_sum": _zeros(m)} | _halves("w", w)

    def run(rows: Any, weight: Any, scale: Any, shift: Any) -> Tensors:
        y = F.gelu(F.linear(F.rms_norm(rows, (k,), scale, 1e-5), weight, shift))
        return {"y": y, "row_sum": y.sum(1)}

    def library() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return run(x, w, gain.to(x.dtype), bias.to(x.dtype))["y"]

    return Problem(given, library, run(x[:512].double(), w.double(), gain.double(), bias.double()))


def _attention(shapes: Shapes, causal: bool) -> Problem:
    import torch.nn.functional as F

    heads, length, width = shapes["q"]
    q, k, v = (_random(*shapes[name], dtype="bfloat16") for name in "qkv")
    batch = math.gcd(shapes["k"][0], 16)
    wide = [one.view(batch, -1, length, width).repeat_interleave(heads // one.shape[0], 1) for one in (q, k, v)]

    def attend(tensors: list[Any]) -> Any:
        # The kernel's scale is that of heads of 128.
        return F.scaled_dot_product_attention(*tensors, is_causal=causal, scale=128**-0.5).reshape(-1, length, width)

    given = {"q": q, "k": k, "v": v, "y": _zeros(*shapes["y"], dtype="bfloat16")}
    return Problem(given, lambda: attend(wide), {"y": attend([one[:1].double() for one in wide])})


def _convolution(shapes: Shapes) -> Problem:
    import torch.nn.functional as F

    filters, high, wide, channels = shapes["weight"]
    image, weight = _random(*shapes["image"]), _random(filters, channels, high, wide) / (channels * high * wide) ** 0.5
    given = {"image": image, "weight": weight.permute(0, 2, 3, 1).contiguous(), "y": _zeros(*shapes["y"])}
    right = F.conv2d(image[:4].double(), weight.double(), padding=1)
    return Problem(given, lambda: F.conv2d(image, weight, padding=1), {"y": right})


def _lstm(shapes: Shapes) -> Problem:
    """PyTorch's multiplies its inputs too; the kernel is given the gates' part of them."""
    import torch

    steps, batch, units = shapes["y"]
    inputs, net = _random(steps, batch, units), torch.nn.LSTM(units, units).to(_device()).requires_grad_(False)
    start = _random(batch, units), _random(batch, units)
    given_gates = inputs @ net.weight_ih_l0.T + net.bias_ih_l0 + net.bias_hh_l0
    given = {"gates": given_gates.reshape(steps, batch, 4, units), "w": net.weight_hh_l0.reshape(4, units, units)}
    given |= {"h0": start[0], "c0": start[1], "y": _zeros(*shapes["y"])}

    def run(module: Any, tensors: tuple[Any, ...]) -> Any:
        return module(tensors[0], (tensors[1][None], tensors[2][None]))[0]

    wide = torch.nn.LSTM(units, units, dtype=torch.float64).requires_grad_(False)
    wide.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    right = run(wide, tuple(one.double().cpu() for one in (inputs, *start))).to(_device())
    return Problem(given, lambda: run(net, (inputs, *start)), {"y": right})


def _state_space(shapes: Shapes) -> Problem:
    """Step after step: s = exp(decay) · s + b xᵀ, y = c · s."""
    import torch

    given = {"decay": -_random(*shapes["decay"]).sigmoid() / 8, "x": _random(*shapes["x"]), "y": _zeros(*shapes["y"])}
    given |= {name: _random(*shapes[name]) / 8 for name in "bc"}
    decay, b, c, x = (given[name].double().cpu().flatten(0, 1) for name in ("decay", "b", "c", "x"))
    state, rows = torch.zeros(b.shape[1], x.shape[1], dtype=torch.float64), []
    for at in range(len(decay)):
        state = state * decay[at].exp() + torch.outer(b[at], x[at])
        rows.append(c[at] @ state)
    return Problem(given, None, {"y": torch.stack(rows).reshape(shapes["y"]).to(_device())})


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
    Row("fp16x3", "linear_halves", _blocks(128, 128, 64, 3, scheme="fp16x3", bulk=True), _linear, CUBE, 1e-6),
    Row("fp16x3_consumers", "linear_halves", _pairs(64, 128, 64, 3), _linear, CUBE, 1e-6),
    Row("fp16x3_pointers", "linear_halves", _blocks(128, 128, 64, 3, scheme="fp16x3"), _linear, CUBE, 1e-6),
    Row("bf16", "linear_bf16", _blocks(128, 256, 64, 4, bulk=True), lambda of: _linear(of, "bfloat16"), CUBE, 1e-5),
    Row("tf32", "linear_tf32", _blocks(128, 256, 32, 3, bulk=True), lambda of: _linear(of, tf32=True), CUBE, 2e-3),
    Row("norm_fp16x3", "norm_linear_f32", _blocks(128, 128, 32, 2, scheme="fp16x3"), _norm_linear, CUBE, 3e-6),
    Row("norm_bf16", "norm_linear_bf16", _blocks(128, 128, 64, 3), lambda of: _norm_linear(of, "bfloat16"), CUBE, 5e-3),
    Row("norm_tf32", "norm_linear_tf32", _blocks(128, 128, 32, 3), lambda of: _norm_linear(of, tf32=True), CUBE, 2e-3),
    Row("attention", "attention", _heads({}), lambda of: _attention(of, False), 4 * PAIRS, 5e-3),
    Row(
        "attention_causal",
        "attention_causal",
        _heads({"bounded": True}, bulk=True),
        lambda of: _attention(of, True),
        2 * PAIRS,
        5e-3,
    ),
    Row(
        "convolution",
        "convolution",
        WINDOWS | {"nest": [["dy", "dx", "channel"]]},
        _convolution,
        2 * 64 * 56 * 56 * 128 * 64 * 9,
        1e-3,
    ),
    Row("lstm", "lstm", STEPS, _lstm, 8 * 512 * 64 * 64 * 64, 1e-3),
    Row("state_space", "state_space", CHUNKS, _state_space, 8 * 64 * 64**3, 1e-5),
]


def print_row(row: Row, folder: Path, kernel: str = "") -> Path:
    """The module of the row's kernel, or of another text under its schedule."""
    text = folder / f"{row.name}.kernel"
    text.write_text(kernel or row.text)
    done = subprocess.run([TOOL, "triton", text, json.dumps(row.schedule)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{row.name}: {done.stderr.strip()}")
    printed = folder / f"{row.name}.py"
    printed.write_text(done.stdout)
    return printed


def launch_of(printed: Path) -> Callable[[Tensors], None]:
    """What launches a printed kernel on tensors by their names."""
    specification = importlib.util.spec_from_file_location(printed.stem, printed)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    launch = next(value for name, value in vars(module).items() if name.startswith("launch_"))
    names = launch.__code__.co_varnames[: launch.__code__.co_argcount]
    return lambda given: launch(*(given[name] for name in names))


def error_of(found: Any, right: Any) -> float:
    """As a norm, of the first results."""
    return float((found[: len(right)].double() - right).norm() / right.norm())


def errors_of(problem: Problem, launch: Callable[[Tensors], None]) -> dict[str, float]:
    """A kernel's, of each of its results."""
    problem.given["y"].fill_(float("nan"))
    launch(problem.given)
    return {name: error_of(problem.given[name], right) for name, right in problem.right.items()}


def _time(row: Row, folder: Path) -> str:
    import torch
    from triton.testing import do_bench

    launch = launch_of(folder / f"{row.name}.py")
    torch.manual_seed(0)
    problem = row.problem(shapes_of(row.text))

    def ours() -> None:
        launch(problem.given)

    def milliseconds(call: Callable[[], Any]) -> float:
        return do_bench(call, return_mode="median")

    own_error = errors_of(problem, launch)["y"]
    if problem.library is None:
        own = milliseconds(ours)
        return f"| {row.name} | {own:.3f} | {row.operations / own / 1e9:.0f} | | | {own_error:.1e} | |"
    samples = [(milliseconds(ours), milliseconds(problem.library)) for _ in range(3)]
    own, other = sorted(samples, key=lambda pair: pair[0] / pair[1])[1]
    figures = f"{own:.3f} | {row.operations / own / 1e9:.0f} | {other:.3f} | {other / own:.2f}×"
    return f"| {row.name} | {figures} | {own_error:.1e} | {error_of(problem.library(), problem.right['y']):.1e} |"


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
            print_row(row, folder)
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
