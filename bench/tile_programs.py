"""Kernels lowered from a schedule, on a GPU beside PyTorch: errors against double precision, and times.

python3 bench/tile_programs.py [NAME...]             prints them with build/tests/unit/tile_tool and times them here
python3 bench/tile_programs.py --print FOLDER        prints them only, for a machine without the tool
python3 bench/tile_programs.py --printed FOLDER      times what was printed

NAME: the beginning of a kernel's name.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

HOME = Path(__file__).resolve().parent.parent
KERNELS = HOME / "tests" / "golden" / "kernel"
SIDE, PIXELS = 4096, 64 * 56 * 56


@dataclass(frozen=True)
class Case:
    name: str
    kernel: str
    schedule: str
    inputs: str  # which tensors, and which of PyTorch's calls beside
    operations: float


def _scaled(name: str, changes: dict[str, str]) -> str:
    """A kernel of the tests at another size."""
    text = (KERNELS / f"{name}.kernel").read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def _cases() -> list[Case]:
    blocks = '"order":{"grouped":"m","along":"n","count":8},"warps":8,"bulk":true'
    product = '{{"m":{{"grid":{}}},"n":{{"grid":{}}},"k":{{"loop":{},"stages":{}}},' + blocks + "{}}}"
    product = product.replace('"order":{', '"order":{{').replace("8},", "8}},")
    halves = _scaled(
        "linear_halves",
        {
            "m = 64, n = 48, k = 120": "m = 4096, n = 4096, k = 4096",
            "[64, 120]": "[4096, 4096]",
            "[48, 120]": "[4096, 4096]",
        }
        | {"[64, 48]": "[4096, 4096]", "[64]": "[4096]", "[48]": "[4096]"},
    )
    halves = re.sub(r"  (out )?row_sum.*\n", "", halves)
    linear = re.sub(
        r"  (out )?row_sum.*\n",
        "",
        _scaled(
            "linear_gelu",
            {"m = 40, n = 24, k = 72": "m = 4096, n = 4096, k = 4096", "[40, 72]": "[4096, 4096]"}
            | {"[24, 72]": "[4096, 4096]", "[40, 24]": "[4096, 4096]", "[24]": "[4096]"},
        ),
    )
    narrow = re.sub(r"in (a|w): f32", r"in \1: bf16", linear)
    sizes = {
        "head = 4, query = 48, key = 48, feature = 16, value = 16": "head = 256, query = 2048, key = 2048, feature = 128, value = 128"
    }
    sizes |= {"[4, 48, 16]": "[256, 2048, 128]", "out y: f32": "out y: bf16", "exp(": "exp2("}
    sizes |= {
        "* 0.25": "* 0.12751743073714588",
        "] = dot(bf16(weight)": "] = bf16(dot(bf16(weight)",
        "/ total": "/ total)",
    }
    grouped = _scaled("attention", sizes | {"[2, 48, 16]": "[64, 2048, 128]", "head / 2": "head / 4"})
    plain = _scaled("attention", sizes | {"[2, 48, 16]": "[256, 2048, 128]", "head / 2": "head"})
    plain = re.sub(r"select\(key <= query, (.*), -inf\)", r"\1", plain)
    attention = '{{"head":{{"grid":1}},"query":{{"grid":128}},"key":{{"loop":64,"stages":3,"online":true{}}},'
    attention += '"feature":{{"tile":128}},"value":{{"tile":128}},"warps":8{}}}'
    convolution = f"""kernel convolution {{
  doc "a padded convolution as a product of halves; filters have their channels side by side"
  axis pixel = {PIXELS}, filter = 128, channel = 64, dy = 3, dx = 3
  in image: f32[64, 64, 56, 56]
  in weight: f32[128, 3, 3, 64]
  out y: f32[64, 128, 56, 56]
  top = {{pixel / 56 % 56 + dy - 1}}
  left = {{pixel % 56 + dx - 1}}
  inside = top >= 0 and top < 56 and left >= 0 and left < 56
  patch = (image[pixel / 3136, channel, pixel / 56 % 56 + dy - 1, pixel % 56 + dx - 1] where inside otherwise 0.0)
  y[pixel / 3136, filter, pixel / 56 % 56, pixel % 56] = dot(f16(patch), f16(weight[filter, dy, dx, channel]); channel, dy, dx)
}}
"""
    walk = '{"pixel":{"grid":256},"filter":{"grid":128},"channel":{"loop":32,"stages":3},"dy":{"loop":1},"dx":{"loop":1},"warps":8%s}'
    cube = 2 * SIDE**3
    pairs = 256 * 2048 * 2048 * 128
    window = 2 * PIXELS * 128 * 64 * 9
    return [
        Case("fp16x3", halves, product.format(128, 128, 64, 3, ',"scheme":"fp16x3"'), "halves", cube),
        Case(
            "fp16x3_pointers",
            halves,
            product.format(128, 128, 64, 3, ',"scheme":"fp16x3"').replace("true", "false"),
            "halves",
            cube,
        ),
        Case("bf16", narrow, product.format(128, 256, 64, 4, ""), "bf16", cube),
        Case("tf32", linear.replace("; k)", "; k) precision tf32"), product.format(128, 256, 32, 3, ""), "f32", cube),
        Case("attention", plain, attention.format("", ""), "attention", 4 * pairs),
        Case("attention_causal", grouped, attention.format(',"bounded":true', ',"bulk":true'), "causal", 2 * pairs),
        Case("convolution", convolution, walk % ',"nest":[["dy","dx","channel"]]', "convolution", window),
        Case("convolution_nested", convolution, walk % ',"nest":["dy","dx","channel"]', "convolution", window),
    ]


def _print(case: Case, folder: Path) -> None:
    text = folder / f"{case.name}.kernel"
    text.write_text(case.kernel)
    command = [str(HOME / "build/tests/unit/tile_tool"), "triton", str(text), case.schedule]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr.strip()}")
    (folder / f"{case.name}.py").write_text(done.stdout)


def _halves(values: Any) -> tuple[Any, Any, Any]:
    """Each row as a power of two times the sum of two halves."""
    import torch

    scale = torch.exp2(torch.floor(torch.log2(values.abs().amax(1))))
    scaled = values / scale[:, None]
    high = scaled.half()
    return high, (scaled - high.float()).half(), scale


def _problem(kind: str) -> tuple[dict[str, Any], Callable[[], Any], Any]:
    """Tensors by name, PyTorch's call, and the first of the right results in double precision."""
    import torch
    import torch.nn.functional as F

    def random(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(shape, device="cuda").to(dtype)

    torch.manual_seed(0)
    if kind in ("halves", "f32", "bf16"):
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        a, w, bias = random(SIDE, SIDE, dtype=dtype), random(SIDE, SIDE, dtype=dtype) / 64, random(SIDE)
        given = {"a": a, "w": w, "bias": bias, "y": torch.empty(SIDE, SIDE, device="cuda")}
        if kind == "halves":
            for name in ("a", "w"):
                given |= dict(zip((f"{name}_high", f"{name}_low", f"{name}_scale"), _halves(given[name])))
        right = F.gelu(F.linear(a[:512].double(), w.double(), bias.double()))
        return given, lambda: F.gelu(F.linear(a, w, bias.to(dtype))), right
    if kind in ("attention", "causal"):
        heads = 256 if kind == "attention" else 64
        q, k, v = (random(count, 2048, 128, dtype=torch.bfloat16) for count in (256, heads, heads))
        wide = [one.view(16, -1, 2048, 128).repeat_interleave(256 // one.shape[0], 1) for one in (q, k, v)]

        def attend(tensors: list[Any]) -> Any:
            return F.scaled_dot_product_attention(*tensors, is_causal=kind == "causal")

        right = attend([one[:1].float() for one in wide]).double().reshape(16, 2048, 128)
        return {"q": q, "k": k, "v": v, "y": torch.empty_like(q)}, lambda: attend(wide).view(256, 2048, 128), right
    image, weight = random(64, 64, 56, 56), random(128, 64, 3, 3) / 24
    given = {
        "image": image,
        "weight": weight.permute(0, 2, 3, 1).contiguous(),
        "y": torch.empty(64, 128, 56, 56, device="cuda"),
    }
    right = F.conv2d(image[:4].double(), weight.double(), padding=1)
    return given, lambda: F.conv2d(image, weight, padding=1), right


def _time(case: Case, folder: Path) -> str:
    import torch
    from triton.testing import do_bench

    specification = importlib.util.spec_from_file_location(case.name, folder / f"{case.name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    given, library, right = _problem(case.inputs)
    launch = next(value for name, value in vars(module).items() if name.startswith("launch_"))
    arguments = [given[name] for name in launch.__code__.co_varnames[: launch.__code__.co_argcount]]

    def error(found: Any) -> float:
        return float((found[: len(right)].double() - right).norm() / right.norm())

    given["y"].fill_(float("nan"))
    launch(*arguments)
    torch.cuda.synchronize()
    ours, theirs = error(given["y"]), error(library())
    samples = [
        (do_bench(lambda: launch(*arguments), return_mode="median"), do_bench(library, return_mode="median"))
        for _ in range(3)
    ]
    (own, other) = sorted(samples, key=lambda pair: pair[0] / pair[1])[1]
    rate = case.operations / own / 1e9
    return f"| {case.name} | {own:.3f} | {rate:.0f} | {other:.3f} | {other / own:.2f}× | {ours:.1e} | {theirs:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--print", dest="print_to", type=Path)
    parser.add_argument("--printed", type=Path)
    options = parser.parse_args()
    cases = [case for case in _cases() if not options.names or case.name.startswith(tuple(options.names))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.printed or options.print_to or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases if not options.printed else ():
            _print(case, folder)
        if options.print_to:
            return
        import torch

        if not torch.cuda.is_available():
            sys.exit("error: these kernels are for a GPU, and PyTorch sees none.\n  hint: --print FOLDER prints them.")
        print(
            "| kernel | ours, ms | TFLOP/s | PyTorch, ms | PyTorch / ours | our error | PyTorch's |\n|---|---|---|---|---|---|---|"
        )
        for case in cases:
            print(_time(case, folder), flush=True)


if __name__ == "__main__":
    main()
