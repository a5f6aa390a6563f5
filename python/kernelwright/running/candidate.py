"""Candidates: Python files with `ModelNew(nn.Module)`, which claims to compute what a problem's `Model` does."""

from __future__ import annotations

import inspect
import os
import subprocess
from dataclasses import dataclass
from typing import Any

import torch

from .. import errors
from ..errors import candidate_error
from . import problem as problems
from .seeding import seed_everything
from .state import copy_state


@dataclass(frozen=True)
class Candidate:
    path: str
    ModelNew: type[torch.nn.Module]

    def construct(
        self, problem: problems.Problem, model: torch.nn.Module, device: torch.device, seed: int
    ) -> torch.nn.Module:
        """`ModelNew` made with the problem's own arguments, in the mode and with the parameters and buffers of `model`."""
        made = self.make(*problem.init_arguments(seed), device, seed, model.training)
        check_state(made, model.state_dict())
        try:
            copy_state(model, made)
        except Exception as error:
            raise explain(error, self.path, "loading Model's state into ModelNew", "state-dict") from None
        return made

    def make(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], device: torch.device, seed: int, training: bool
    ) -> torch.nn.Module:
        """`ModelNew` in its own state. The seed is set as for `Model`, so that what both draw on construction and do
        not register is equal too.
        """
        seed_everything(seed)
        try:
            made = self.ModelNew(*arguments, **keywords).to(device)
        except BaseException as error:
            raise explain(error, self.path, "constructing ModelNew", "constructor-raised") from None
        if made.training != training:  # otherwise its parts stay in the modes that their constructors chose
            made.train(training)
        return made


def check_state(made: torch.nn.Module, theirs: dict[str, Any]) -> None:
    """Raises a candidate error where the state_dict of `made` is not of the form of Model's."""
    ours = made.state_dict()
    faults = [f"{name} is missing" for name in theirs if name not in ours]
    faults += [f"{name} is not in Model" for name in ours if name not in theirs]
    faults += [
        f"{name} is {_describe(ours[name])} and should be {_describe(theirs[name])}"
        for name in theirs
        if name in ours and isinstance(ours[name], torch.Tensor) and _describe(ours[name]) != _describe(theirs[name])
    ]
    if faults:
        shown = "; ".join(faults[:5]) + ("; …" if len(faults) > 5 else "")
        raise candidate_error(
            "state-dict",
            f"ModelNew's state_dict differs from Model's: {shown}.",
            hint="Keep the names, shapes and dtypes of Model's parameters and buffers (subclassing Model does).",
        )


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype)[6:]} of shape {list(tensor.shape)}"


def load(path: str) -> Candidate:
    """Run the candidate file and find `ModelNew`. Raises candidate errors."""
    try:
        module, _ = problems.load_module(path, kind="candidate")
    except errors.Error as error:
        if error.kind == "missing" or not isinstance(error.__cause__, BaseException):
            raise
        raise explain(error.__cause__, os.path.abspath(path), "running the file", error.code) from None
    name = os.path.basename(path)
    found = getattr(module, "ModelNew", None)
    if found is None:
        raise candidate_error(
            "no-model-new", f"{name} defines no class ModelNew.", where=name, hint="Name the module's class ModelNew."
        )
    if not (inspect.isclass(found) and issubclass(found, torch.nn.Module)):
        raise candidate_error(
            "model-new-not-module",
            f"ModelNew in {name} is not a subclass of torch.nn.Module.",
            where=name,
            hint="Derive ModelNew from torch.nn.Module.",
        )
    return Candidate(str(module.__file__), found)


def of_problem(problem: problems.Problem) -> Candidate:
    """The problem's own Model, where it takes a candidate's place."""
    return Candidate(problem.path, problem.Model)


def explain(error: BaseException, path: str, doing: str, code: str) -> errors.Error:
    """A candidate error for whatever its code raised; a compiler's complaint becomes the message, its whole output the
    detail.
    """
    if isinstance(error, (KeyboardInterrupt, errors.Error)):
        raise error
    if errors.is_disk_full(error):
        raise errors.disk_full(error)
    output = "" if _is_device_fault(error) else _compiler_output(error)
    if output:
        where, source = errors.innermost_line(error.__traceback__, path)
        first = next(
            (line.strip() for line in output.splitlines() if "error:" in line or "Error:" in line),
            output.strip().splitlines()[0],
        )
        return candidate_error(
            "compile-failed",
            f"The kernels of {os.path.basename(path)} did not compile: {first[:300]}",
            where=where,
            source=source,
            hint="The compiler's whole output is in the detail.",
            detail=output,
        )
    if _is_device_fault(error):
        return candidate_error(
            "device-error",
            f"{os.path.basename(path)} left the GPU in an error state while {doing}: {errors.summary(error)}",
            hint="A kernel read or wrote outside its memory, or failed to launch.",
            detail=errors.trace(error),
        )
    return errors.blame(error, path, doing, code, kind="candidate")


def _compiler_output(error: BaseException) -> str:
    seen: Any = error
    while seen is not None:
        if isinstance(seen, subprocess.CalledProcessError):
            parts = [
                part.decode(errors="replace") if isinstance(part, bytes) else part or ""
                for part in (seen.stdout, seen.stderr)
            ]
            return "\n".join(part for part in parts if part) or str(seen)
        if type(seen).__module__.startswith("triton") and "Compil" in type(seen).__name__:
            return str(seen)
        text = str(seen)
        if isinstance(seen, RuntimeError) and "\n" in text and " error: " in text:
            return text
        seen = seen.__cause__
    return ""


def _is_device_fault(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return False
    text = str(error)
    if "out of memory" in text:  # CUDA's own words, where a context or a module of kernels finds no room
        return False
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in text or "device-side assert" in text
