"""Whether modules emitted for programs of random_mutations compute what eager PyTorch does: results, inputs and
buffers after each of two calls.

    python tests/property/mutation_check.py [--programs 10000] [--first 0] [--processes 2]

checks many, on the CPU, and prints those that are wrong. The kernels of a batch are compiled as one file.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import ctypes
import multiprocessing
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import torch
from random_mutations import Program, random_program
from torch.utils import _pytree as pytree

State = dict[str, torch.Tensor]
CAUTIONS = ("fused", "exact-products", "library-products", "library-random", "unfused", "library")
BATCH = 50  # programs whose kernels are compiled as one file
ROUND = 20  # batches for a process


class Refused(Exception):
    """Kernelwright says what of the program it does not take."""


def capture(program: Program) -> dict[str, Any]:
    """The program's graph. Raises Refused."""
    from kernelwright import errors
    from kernelwright.capture import export

    space = program.namespace()
    try:
        with torch.no_grad():
            return export.export_module(space["Model"](), tuple(space["get_inputs"]()), device="cpu")
    except errors.Error as error:
        if error.kind != "user":
            raise
        raise Refused(f"{error.code}: {error.message}") from None


def sources(program: Program, target: str = "cpu", cautions: tuple[str, ...] = CAUTIONS) -> dict[str, str]:
    """The different candidates of a program, by the first caution that gives them."""
    from kernelwright import library

    graph = capture(program)
    found: dict[str, str] = {}
    for caution in cautions:
        source = library.compile_graph(graph, target, caution)["source"]
        if source not in found.values():
            found[caution] = source
    return found


def observed(program: Program, wrap: Any = None) -> tuple[list[State], list[str]]:
    """The state that can be seen after each of two calls, and what was warned of."""
    space = program.namespace()
    model = space["Model"]()
    inputs = space["call_inputs"](model)
    called = model if wrap is None else wrap(model)
    states = []
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            result = called(*inputs)
            seen = {f"result {index}": leaf for index, leaf in enumerate(pytree.tree_leaves(result))}
            seen |= {f"input {index}": one for index, one in enumerate(inputs)}
            seen |= {f"buffer {name}": one for name, one in model.state_dict(keep_vars=True).items()}
            states.append({name: one.detach().clone() for name, one in seen.items()})
    return states, [str(one.message) for one in caught]


def fault(program: Program, candidate: ModuleType) -> str:
    """What is wrong with a candidate, or nothing."""
    theirs, _ = observed(program)
    ours, warned = observed(program, candidate.ModelNew)
    if program.call_inputs == program.inputs and any("runs the original" in one for one in warned):
        return f"its kernels did not run: {warned[0]}"
    for call, (left, right) in enumerate(zip(theirs, ours, strict=True), 1):
        for name, expected in left.items():
            got = right[name]
            if (got.dtype, got.shape) != (expected.dtype, expected.shape):
                return f"call {call}: {name} is {got.dtype} {got.shape}, not {expected.dtype} {expected.shape}"
            error = float((got.double() - expected.double()).abs().max()) if expected.numel() else 0.0
            if not error <= 2e-4 * max(1.0, float(expected.double().abs().max()) if expected.numel() else 0.0):
                return f"call {call}: {name} differs by {error:.3g}"
    return ""


class Kernels:
    """The compiled kernels of one candidate, out of a library that holds those of many."""

    def __init__(self, library: ctypes.CDLL, prefix: str, parameters: list[tuple[str, int, int]]) -> None:
        for name, pointers, integers in parameters:
            function = getattr(library, prefix + name)
            function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int] * integers
            function.restype = None
            setattr(self, name, function)


def module_of(source: str, name: str) -> ModuleType:
    """The candidate's file as a module."""
    module = ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def load_together(texts: list[str], folder: Path) -> list[ModuleType]:
    """The candidates, their kernels compiled as one file and with less optimisation, which takes a fraction of the
    time."""
    modules = [module_of(text, f"candidate_{place}") for place, text in enumerate(texts)]
    with_kernels = {place: module for place, module in enumerate(modules) if hasattr(module, "CPP_SOURCE")}
    includes: set[str] = set()
    parts = []
    for place, module in with_kernels.items():
        lines = module.CPP_SOURCE.splitlines()
        includes |= {line for line in lines if line.startswith("#include")}
        text = "\n".join(line for line in lines if not line.startswith("#include"))
        parts.append(
            f"namespace n{place} {{\n"
            + re.sub(r'extern "C" ([\w *]+?)(\w+)\(', rf'extern "C" \1p{place}_\2(', text)
            + "\n}\n"
        )
    if not parts:
        return modules
    path = folder / "kernels.cpp"
    path.write_text("\n".join(sorted(includes)) + "\n" + "\n".join(parts))
    flags = ["-O1" if flag == "-O3" else flag for flag in next(iter(with_kernels.values())).COMPILER_FLAGS]
    compiler = next(iter(with_kernels.values())).find_compiler()
    done = subprocess.run(
        [*compiler, *flags, path, "-o", folder / "kernels.so"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    library = ctypes.CDLL(str(folder / "kernels.so"))
    for place, module in with_kernels.items():
        kernels = Kernels(library, f"p{place}_", module.KERNEL_PARAMETERS)
        module.load_kernels = lambda kernels=kernels: kernels  # type: ignore[attr-defined]
    return modules


def faults(programs: list[Program], cautions: tuple[str, ...] = CAUTIONS) -> Iterator[tuple[Program, str, str]]:
    """Each program with a caution and what is wrong there: "" where nothing is, "refused: …" instead of a caution's
    candidate where it is not taken."""
    made: list[tuple[Program, str, str]] = []
    for program in programs:
        try:
            made += [(program, caution, source) for caution, source in sources(program, "cpu", cautions).items()]
        except Refused as refusal:
            yield program, "refused", str(refusal)
        except Exception as error:
            yield program, "capture", repr(error)
    with tempfile.TemporaryDirectory() as folder:
        modules = load_together([source for _, _, source in made], Path(folder))
    for (program, caution, _), module in zip(made, modules, strict=True):
        try:
            yield program, caution, fault(program, module)
        except Exception as error:
            yield program, caution, repr(error)


def interpreted(request: dict[str, Any]) -> str:
    """{"seed" of a program, "candidate": path}, in Triton's interpreter."""
    from recipe_check import load

    return fault(random_program(request["seed"]), load(Path(request["candidate"])))


def _batch(first: int, count: int) -> tuple[collections.Counter[str], list[str]]:
    torch.set_num_threads(2)
    tally: collections.Counter[str] = collections.Counter()
    wrong = []
    for program, caution, text in faults([random_program(seed) for seed in range(first, first + count)]):
        tally["refused" if caution == "refused" else "wrong" if text else "right"] += 1
        if text:
            wrong.append(f"{program.name}, {caution}: {text}\n" + ("" if caution == "refused" else program.text))
    return tally, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Random programs of in-place updates against eager PyTorch, on the CPU."
    )
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first program's seed")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    batches = [
        (first, min(BATCH, options.first + options.programs - first))
        for first in range(options.first, options.first + options.programs, BATCH)
    ]
    total: collections.Counter[str] = collections.Counter()
    # A program that kills its process fails the run: the executor says so, where a Pool would wait for ever.
    context = multiprocessing.get_context("spawn")
    for first in range(0, len(batches), ROUND * options.processes):
        # Processes of their own for each round: PyTorch's caches grow, and an executor that replaces its processes one
        # by one can hang.
        with concurrent.futures.ProcessPoolExecutor(options.processes, context) as executor:
            futures = {
                executor.submit(_batch, *batch): batch for batch in batches[first : first + ROUND * options.processes]
            }
            for future in concurrent.futures.as_completed(futures):
                try:
                    tally, wrong = future.result()
                except concurrent.futures.process.BrokenProcessPool:
                    print(
                        f"a process died; seeds {futures[future][0]} and following were in work or waited", flush=True
                    )
                    return 1
                total += tally
                for text in wrong:
                    print(text, flush=True)
        done = sum(count for _, count in batches[: first + ROUND * options.processes])
        print(f"{done} of {options.programs} programs", file=sys.stderr, flush=True)
    counted = f"{total['right']} candidates right, {total['wrong']} wrong; {total['refused']} programs refused"
    print(f"{options.programs} programs: {counted}")
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
