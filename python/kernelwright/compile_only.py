"""Compiles the kernels of an emitted Triton file to machine code without a GPU.

The file ends with `KERNEL_SIGNATURES`, a list of dicts: `kernel` (the function's name), `signature` (argument → Triton
type), `constexprs`, `num_warps`, `num_stages`, `enable_fp_fusion`, `divisible_by_16` (the arguments that a launch would
specialise on), and `true_from_sm` (constexprs that depend on the device: from which compute capability on they are
true).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Any, Callable

from . import errors
from .running import problem as problems

Progress = Callable[[str, float], None]


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "compile_only" (docs/worker-protocol.md)."""
    if (target := params.get("target", "triton")) != "triton":
        raise errors.user_error(
            "unknown-target", f"Only Triton kernels can be compiled without being run, not {target!r}."
        )
    try:
        import triton  # noqa: F401
    except ModuleNotFoundError:
        raise errors.missing_error("no-triton", "Triton is not installed.", hint="pip install triton") from None
    module, _ = problems.load_module(params["candidate"], kind="candidate")
    signatures = getattr(module, "KERNEL_SIGNATURES", None)
    if signatures is None:
        raise errors.candidate_error(
            "no-signatures",
            f"{os.path.basename(params['candidate'])} has no KERNEL_SIGNATURES, so its kernels' types are unknown.",
        )
    rows = []
    for index, entry in enumerate(signatures):
        progress(f"kernel {index + 1} of {len(signatures)}", index / max(1, len(signatures)))
        rows.append(_compile(module, entry, int(params.get("sm") or 90)))
    return {"kernels": rows}


def _compile(module: Any, entry: dict[str, Any], sm: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry["kernel"],
        "ok": False,
        "registers": None,
        "shared_bytes": None,
        "spills": None,
        "seconds": 0.0,
        "error": "",
    }
    began = time.perf_counter()
    try:
        compiled = compile_entry(module, entry, sm)
        row |= {"ok": True, "shared_bytes": compiled.metadata.shared, **_resources(compiled)}
    except Exception as error:
        row["error"] = str(error) or type(error).__name__
    row["seconds"] = time.perf_counter() - began
    return row


def compile_entry(module: Any, entry: dict[str, Any], sm: int) -> Any:
    """One kernel of KERNEL_SIGNATURES as Triton compiles it at its first launch, which then finds it in Triton's cache."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction

    function = getattr(module, entry["kernel"])
    # Autotuner and heuristics wrap the kernel itself.
    while not isinstance(function, JITFunction):
        function = function.fn
    constants = dict(entry.get("constexprs") or {})
    constants |= {name: sm >= least for name, least in (entry.get("true_from_sm") or {}).items()}
    given = dict(entry["signature"])
    signature = {
        name: "constexpr" if name in constants else given[name]
        for name in function.arg_names
        if name in given or name in constants
    }
    aligned = set(entry.get("divisible_by_16") or ())
    attributes = {
        (position,): [["tt.divisibility", 16]] for position, name in enumerate(function.arg_names) if name in aligned
    }
    source = _source_type(function)(
        function, signature, {(function.arg_names.index(name),): value for name, value in constants.items()}, attributes
    )
    options = {
        key: entry[key]
        for key in ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
        if entry.get(key) is not None
    }
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)


def _source_type(function: Any) -> Any:
    """What Triton compiles a function from, which differs for those in Gluon."""
    from triton.compiler import ASTSource

    if not getattr(function, "is_gluon", bool)():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def _resources(compiled: Any) -> dict[str, int | None]:
    """Registers a thread, and bytes of registers that it spills, as the CUDA tools read them from the machine code."""
    cubin, tool = compiled.asm.get("cubin"), _tool("cuobjdump")
    if not cubin or tool is None:
        return {"registers": None, "spills": None}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=False).stdout
    registers, stack = re.search(r"REG:(\d+)", text), re.search(r"STACK:(\d+)", text)
    on_stack = int(stack.group(1)) if stack else None
    return {
        "registers": int(registers.group(1)) if registers else None,
        "spills": on_stack and _spilled(compiled, on_stack),
    }


def _spilled(compiled: Any, on_stack: int) -> int:
    """How much of what lies on a thread's stack is spilled registers: sines and cosines keep the digits of π there.
    Only the assembler tells, and not its output.
    """
    code, tool = compiled.asm.get("ptx"), _tool("ptxas")
    target = re.search(r"^\.target\s+(\w+)", code or "", re.MULTILINE)
    if tool is None or target is None:
        return on_stack
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "kernel.ptx")
        with open(source, "w", encoding="utf-8") as file:
            file.write(code)
        command = [tool, "-v", f"--gpu-name={target.group(1)}", source, "-o", os.path.join(folder, "kernel.cubin")]
        if not getattr(compiled.metadata, "enable_fp_fusion", True):
            command.append("--fmad=false")
        text = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    stores = re.search(r"(\d+) bytes spill stores", text)
    return min(on_stack, int(stores.group(1))) if stores else on_stack


def _tool(name: str) -> str | None:
    try:
        from triton import knobs

        path = getattr(knobs.nvidia, name).path
        if os.path.exists(path):
            return path
    except (ImportError, AttributeError, RuntimeError):
        pass
    return shutil.which(name)
