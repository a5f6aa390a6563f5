"""One problem right through the product: capture, every caution, every candidate against the contract, the verdict."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import torch

from kernelwright import api, errors, library
from kernelwright.capture import export

from .problem import NoProblem, Problem, seed_all, stable_hash

CAUTIONS = ("fused", "library-random", "unfused", "library")

# What a record's "outcome" may be; those of the last line are faults of the product.
OUTCOMES = (
    "verified", "no problem", "torch.export refuses", "refused", "judge",
    "internal", "crashed", "time limit", "unverified",
)  # fmt: skip

Stage = Callable[[str], None]


@dataclass(frozen=True)
class _Drawn(api._MemoryProblem):
    """A module in memory whose inputs are drawn by the problem's own rule, where it has one."""

    redraw: Callable[[int], tuple[Any, ...]] | None = None

    def inputs(self, seed: int | None = None, device: Any = "cpu") -> list[Any]:
        if self.redraw is not None:
            drawn = list(self.redraw(seed or 0))
            if _forms(drawn) == _forms(list(self.values)):
                return drawn
        return super().inputs(seed, device)


def _forms(values: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(values)
    return [(leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def check(make: Callable[[], Problem], stage: Stage) -> dict[str, Any]:
    """The problem's record, as far as it came."""
    record: dict[str, Any] = {"outcome": "", "detail": "", "candidates": []}
    began = time.monotonic()
    try:
        stage("making")
        problem = make()
        stage("eager")
        _run_eager(problem)
    except NoProblem as error:
        record |= {"outcome": "no problem", "detail": str(error)}
    except Exception as error:
        record |= {"outcome": "no problem", "detail": f"eager raises {errors.summary(error)}"}
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_captured(problem, record, stage)
    record["seconds"] = round(time.monotonic() - began, 2)
    return record


def _run_eager(problem: Problem) -> None:
    arguments, keywords, module = copy.deepcopy((problem.arguments, problem.keywords, problem.module))
    seed_all(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = module(*arguments, **keywords)
        for seed in (1, 2) if problem.redraw is not None else ():
            values, count = problem.redraw(seed), len(problem.arguments)
            # What the contract draws must be legal too.
            copy.deepcopy(problem.module)(*values[:count], **dict(zip(problem.keywords, values[count:])))
    if not any(isinstance(leaf, torch.Tensor) for leaf in torch.utils._pytree.tree_leaves(result)):
        raise NoProblem("it returns no tensor")


def _check_captured(problem: Problem, record: dict[str, Any], stage: Stage) -> None:
    stage("capture")
    try:
        with torch.no_grad():
            graph = export.export_module(problem.module, problem.arguments, problem.keywords, device="cpu")
    except BaseException as error:
        _note_refusal(problem, error, record, stage)
        return
    record["nodes"] = len(graph["nodes"])
    record["ops"] = sorted({node["op"] for node in graph["nodes"]})
    seen: set[str] = set()
    for caution in CAUTIONS:
        stage(f"compile {caution}")
        row: dict[str, Any] = {"caution": caution, "verdict": "", "reason": ""}
        try:
            compiled = library.compile_graph(graph, "cpu", caution)
        except errors.Error as error:
            record["candidates"].append(row | {"verdict": error.kind, "reason": f"{error.code}: {error.message}"})
            continue
        if compiled["source"] in seen:
            continue
        seen.add(compiled["source"])
        stage(f"run {caution}")
        row |= {"kernels": len(compiled["kernels"]), "library_ops": compiled["library_ops"]}
        row |= _judged(problem, compiled["source"])
        record["candidates"].append(row)
    _conclude(problem, record, stage)


def _judged(problem: Problem, source: str) -> dict[str, str]:
    """The verdict on one candidate: "pass", "fail", "internal", "fell back" where it ran the original, "user" where the
    inputs are at fault."""
    try:
        made = api._load(source)(problem.module)
        made.train(problem.module.training)
        made.source = source
        if message := _falls_back(problem, made):
            return {"verdict": "fell back", "reason": message}
        report = verdict(problem, made)
    except errors.Error as error:
        return {"verdict": error.kind, "reason": f"{error.code}: {error.message}"}
    except Exception as error:
        return {"verdict": "internal", "reason": errors.summary(error)}
    return {"verdict": report["verdict"], "reason": report.get("reason") or ""}


def _falls_back(problem: Problem, made: torch.nn.Module) -> str:
    """The warning with which a candidate runs the original on the very call that it was made for."""
    arguments, keywords = copy.deepcopy((problem.arguments, problem.keywords))
    inner = type(made)(copy.deepcopy(problem.module)).train(problem.module.training)
    seed_all(0)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            inner(*arguments, **keywords)
        except Exception:
            return ""  # The contract meets it too, and says more.
    return next((str(one.message) for one in caught if "original" in str(one.message)), "")


def verdict(problem: Problem, made: torch.nn.Module) -> dict[str, Any]:
    """The contract's verdict on a candidate, with inputs that the problem's own rule draws."""
    from kernelwright.judge.verification import Verification

    memory = api._MemoryProblem.of(problem.module, problem.arguments, problem.keywords)
    held = _Drawn(**{name: getattr(memory, name) for name in memory.__dataclass_fields__}, redraw=problem.redraw)
    params = {
        "problem": held,
        "candidate": api._MemoryCandidate.of(made, held),
        "device": "cpu",
        "seed": stable_hash(problem.name),
        "draws": 5,
        "tolerance_policy": "reference",
    }
    try:
        with torch.random.fork_rng(devices=[]):
            figures = Verification(params, lambda stage, fraction: None).run()
    except errors.Error as error:
        if error.kind != "candidate":
            raise
        return {"verdict": "fail", "reason": f"{error.code}: {error.message}"}
    figures["seed"] = params["seed"]
    return library.judge(figures, "reference")


def _conclude(problem: Problem, record: dict[str, Any], stage: Stage) -> None:
    rows = record["candidates"]
    passed = next((row for row in rows if row["verdict"] == "pass"), None)
    wrong = [row for row in rows if row["verdict"] != "pass"]
    record["first_wrong"] = bool(rows) and rows[0]["verdict"] != "pass"
    record["wrong"] = [row["caution"] for row in wrong]
    if wrong:
        stage("judging eager itself")
        if reason := _fault_of_the_judge(problem):
            record |= {
                "outcome": "judge",
                "detail": f"eager fails its own contract: {reason}",
                "first_wrong": False,
                "wrong": [],
            }
            return
    if any(row["verdict"] == "internal" for row in wrong):
        record |= {
            "outcome": "internal",
            "detail": next(row["reason"] for row in wrong if row["verdict"] == "internal"),
        }
    elif passed is None:
        record |= {"outcome": "unverified", "detail": rows[0]["reason"] if rows else "no candidate"}
    else:
        record |= {"outcome": "verified", "detail": wrong[0]["reason"] if wrong else ""}


def _fault_of_the_judge(problem: Problem) -> str:
    """Why the module itself, as a candidate for itself, would fail; "" where it passes."""
    try:
        report = verdict(problem, copy.deepcopy(problem.module))
    except errors.Error as error:
        return f"{error.code}: {error.message}"
    except Exception as error:
        return errors.summary(error)
    return "" if report["verdict"] == "pass" else report.get("reason") or "fail"


def _note_refusal(problem: Problem, error: BaseException, record: dict[str, Any], stage: Stage) -> None:
    if isinstance(error, KeyboardInterrupt):
        raise error
    told = errors.from_exception(error)
    stage("torch.export")
    try:
        arguments, keywords, module = copy.deepcopy((problem.arguments, problem.keywords, problem.module))
        with torch.no_grad():
            torch.export.export(module, arguments, keywords, strict=False)
    except BaseException as refusal:
        record |= {
            "outcome": "torch.export refuses",
            "detail": f"{type(refusal).__name__}: {' '.join(str(refusal).split())[:160]}",
        }
        if told.kind == "internal":
            record |= {"outcome": "internal", "detail": f"{told.code}: {told.message}"}
        record["told"] = f"{told.code}: {told.message}"
        return
    record |= {
        "outcome": "internal" if told.kind == "internal" else "refused",
        "detail": f"{told.code}: {told.message}",
    }
