"""Tile programs compute what PyTorch does: interpreted, and as Triton kernels in Triton's interpreter; and Triton
compiles them for an H100.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import traceback
from pathlib import Path
from typing import Any

import interpreter_process
import pytest
import torch
from benchmark_rows import tile_programs
from tile_cases import CASES, HOME, PROGRAMS, Case, Tensors, expected, fault_of

TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"

RUNS = [(case, schedule) for case in CASES for schedule in case.schedules or (None,)]
NAMES = [f"{case.name}-{number}" for number, (case, _) in enumerate(RUNS)]
ON_GPU = [number for number, (case, _) in enumerate(RUNS) if case.on_gpu]
on_gpu = pytest.mark.parametrize(
    ("case", "schedule"), [RUNS[number] for number in ON_GPU], ids=[NAMES[number] for number in ON_GPU]
)

TRITON_TYPES = {"f64": "*fp64", "f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "i64": "*i64", "i32": "*i32"}


def tool(command: str, file: Path, schedule: str | None, given: str = "") -> str:
    if not TOOL.exists():
        pytest.fail("build/tests/unit/tile_tool is missing: configure with -DKW_TESTS=ON and build")
    done = subprocess.run(
        [TOOL, command, file, *([schedule] if schedule else [])],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def drawn(case: Case) -> Tensors:
    torch.manual_seed(len(case.name))
    return case.make()


@pytest.mark.parametrize(("case", "schedule"), RUNS, ids=NAMES)
def test_interpreted_programs_compute_what_pytorch_does(case: Case, schedule: str | None) -> None:
    made = drawn(case)
    buffers = {name: tensor.flatten().tolist() for name, tensor in made.items()}
    written = expected(case, made)
    printed = tool("print", case.file, schedule)
    kept = re.findall(r"store (\w+)\[.* combine ", printed) + re.findall(r"buffer (\w+): .* inout", printed)
    given = {name: values for name, values in buffers.items() if name not in written or name in kept}
    answer = json.loads(tool("run", case.file, schedule, json.dumps({"buffers": given, "sizes": case.sizes})))
    found = {
        name: torch.tensor([float(one) for one in answer["buffers"][name]]).reshape(right.shape)
        for name, right in written.items()
    }
    assert fault_of(case, found, written) == ""


def run_at_once(module: Any, tensors: Tensors, program: str) -> None:
    """Each block in a process of its own: they take tickets, and wait for each other in memory that they share."""
    name = re.findall(r"^program (\w+)", program)[0]
    blocks = math.prod(map(int, re.findall(r"= (\d+)", re.findall(r"^  grid (.*)", program, re.MULTILINE)[0])))
    for buffer, dtype, size in re.findall(r"^  buffer (\w+): (\w+)\[(\d+)\] scratch", program, re.MULTILINE):
        tensors[buffer] = torch.zeros(int(size), dtype=torch.int32 if dtype == "i32" else torch.float32)
    for tensor in tensors.values():
        tensor.share_memory_()
    kernel, arguments = (
        getattr(module, name),
        [tensors[buffer] for buffer in re.findall(r"^  buffer (\w+)", program, re.M)],
    )
    children = []
    for _ in range(blocks):
        if (child := os.fork()) == 0:
            try:
                kernel[(1,)](*arguments)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    assert int(tensors["counters"][0]) == blocks


def run_in_triton(request: dict[str, Any]) -> str:
    """In the interpreter's process: the printed file's launch on the case's tensors."""
    specification = importlib.util.spec_from_file_location("printed", request["file"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CASES if one.name == request["case"])
    made = drawn(case)
    wanted = expected(case, made)
    if case.waits:
        run_at_once(module, made, request["program"])
        return fault_of(case, made, wanted)
    launch = next(function for name, function in vars(module).items() if name.startswith("launch_"))
    names = launch.__code__.co_varnames[: launch.__code__.co_argcount]
    launch(*(made[name] if name in made else case.sizes[name] for name in names))
    return fault_of(case, made, wanted)


@pytest.fixture(scope="module")
def triton_process(tmp_path_factory: pytest.TempPathFactory) -> Any:
    process = interpreter_process.InterpreterProcess(
        tmp_path_factory.mktemp("triton"), "test_tile_programs:run_in_triton"
    )
    yield process
    process.close()


@on_gpu
def test_triton_kernels_compute_what_pytorch_does(
    triton_process: Any, tmp_path: Path, case: Case, schedule: str | None
) -> None:
    source = tool("triton", case.file, schedule)
    assert max(map(len, source.rpartition("@triton.jit")[2].splitlines())) <= 140
    file = tmp_path / "printed.py"
    file.write_text(source)
    program = tool("print", case.file, schedule)
    assert triton_process.fault(file=str(file), case=case.name, program=program) == ""


# --- At sizes that tensor cores want ---

ROWS = """kernel rows {
  size rows = 1..65536
  axis row = rows, column = 4096
  in x: f32[rows, 4096]
  out y: f32[rows, 4096]
  total = sum(x[row, column] * x[row, column]; column)
  y[row, column] = x[row, column] * rsqrt(total / 4096.0 + 1e-05)
}
"""

SIZES = {"48": "4096", "96": "4096", "192": "4096", "16": "128", "32": "128"}


def norm_linear_at_4096() -> str:
    """tests/golden/tile/norm_linear_fp16x3.tile at sizes that tensor cores want."""
    doc, rest = (PROGRAMS / "norm_linear_fp16x3.tile").read_text().split("\n  lane ")
    rest = re.sub(rf"\b({'|'.join(SIZES)})\b", lambda found: SIZES[found[0]], rest)
    return doc.replace("block = 3", "block = 32") + "\n  lane " + rest


def benchmark_kernel(name: str) -> str:
    return (HOME / "bench" / "tile_kernels" / f"{name}.kernel").read_text()


TILES = '{"m":{"grid":128},"n":{"grid":128},"k":{"loop":64,"stages":3},"order":{"grouped":"m","along":"n","count":8},"warps":8}'
LARGE = {
    "rows": (ROWS, '{"row":{"grid":1},"column":{"tile":4096},"warps":8}', None),
    "norm_fp16x3": (norm_linear_at_4096(), None, "wgmma"),
    "linear_tf32": (benchmark_kernel("linear_tf32"), TILES.replace("64", "32"), "wgmma"),
    "linear_bf16": (benchmark_kernel("linear_bf16"), TILES, "wgmma"),
}
# Too few rows of a batch, and products that must be as exact as fp32.
WITHOUT_TENSOR_CORES = {"lstm", "state_space"}
LARGE |= {
    row.name: (
        row.text,
        json.dumps(row.schedule),
        None if row.name in WITHOUT_TENSOR_CORES else "wgmma",
    )
    for row in tile_programs.ROWS
}
# Bytes a thread: 256 columns of sums and GELU, and products without tensor cores, are a little more than fits.
MOST_SPILLS = {"bf16": 128, "tf32": 128, "state_space": 16}


def compiled_for_hopper(folder: Path, file: Path, schedule: str | None) -> Any:
    from kernelwright import compile_only

    printed = folder / "printed.py"
    printed.write_text(tool("triton", file, schedule))
    specification = importlib.util.spec_from_file_location("printed", printed)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    program = tool("print", file, schedule)
    buffers = dict(re.findall(r"^  buffer (\w+): (\w+)\[", program, re.MULTILINE))
    signature = {buffer: TRITON_TYPES[dtype] for buffer, dtype in buffers.items()}
    signature |= dict.fromkeys(re.findall(r"^  size (\w+)", program, re.MULTILINE), "i32")
    entry = {"kernel": re.findall(r"^program (\w+)", program)[0], "signature": signature}
    entry |= {"divisible_by_16": list(buffers), "num_warps": int(re.findall(r"launch warps (\d+)", program)[0])}
    return compile_only.compile_entry(module, entry, 90)


@on_gpu
def test_triton_compiles_what_its_interpreter_runs(tmp_path: Path, case: Case, schedule: str | None) -> None:
    assert compiled_for_hopper(tmp_path, case.file, schedule).asm["cubin"]


@pytest.mark.parametrize("name", LARGE)
def test_triton_compiles_them_for_a_hopper_gpu(tmp_path: Path, name: str) -> None:
    from kernelwright import compile_only

    text, schedule, instruction = LARGE[name]
    file = tmp_path / f"large.{'kernel' if schedule else 'tile'}"
    file.write_text(text)
    compiled = compiled_for_hopper(tmp_path, file, schedule)
    if instruction:
        assert instruction in compiled.asm["ptx"]
    assert compiled.metadata.shared <= 227 * 1024
    assert compile_only._resources(compiled)["spills"] <= MOST_SPILLS.get(name, 0)
