"""The public interface: `optimize`, `verify` and `measure` for modules in memory.

The same way as `kw optimize` takes, in this process: export, compile (in libkernelwright.so), verify against double precision, measure.
"""

from __future__ import annotations

import copy
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import torch

from . import candidate as candidates, errors, library, problem as problems

_CAUTIONS = ("fused", "library-draws", "unfused", "library")


class VerificationError(RuntimeError):
    """No candidate passed the contract. `report` holds the last one's verdict."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(f"no candidate passed verification: {report['reason']}")
        self.report = report


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    target: str = "auto",
    policy: str = "reference",
    verified: bool = True,
    draws: int = 5,
    seed: int | None = None,
) -> torch.nn.Module:
    """A module that computes what `module` does, faster, and shares its parameters and buffers.

    `example_inputs` (positional) and `example_kwargs` give the shapes, dtypes, strides, devices and non-tensor arguments that the kernels
    are made for. Called with anything else, in the other mode (train, eval) or where gradients are wanted, the result runs `module` itself, with
    one warning. `target` is "cpu", "triton" or "auto" (by the devices of the tensors); `policy` as in docs/contract.md.

    With `verified`, candidates are checked against the contract and the first that passes is returned, from fused kernels down to plain library
    calls; VerificationError is raised when none passes. The result's `report` says what was found; `source` is the kernels' text.
    Raises kernelwright.errors.Error when the module cannot be exported (data-dependent control flow, an unsupported dtype …).
    """
    from .export import export_module

    arguments, keywords = tuple(example_inputs), dict(example_kwargs or {})
    target = _target(target, module, arguments, keywords)
    with torch.no_grad():
        graph = export_module(module, arguments, keywords, device="cuda" if target == "triton" else "cpu")
    report: dict[str, Any] = {}
    previous = None
    for caution in _CAUTIONS:
        try:
            compiled = library.compile_graph(graph, target, caution)
        except errors.Error as error:
            if error.kind != "internal" or caution == _CAUTIONS[-1]:
                raise
            continue
        if compiled["source"] == previous:
            continue
        previous = compiled["source"]
        made = _load(compiled["source"])(module)
        made.train(module.training)
        made.source = compiled["source"]
        made.report = {key: compiled[key] for key in ("kernels", "library_calls", "library_ops")} | {"target": target, "caution": caution}
        if not verified:
            return made
        report = verify(module, made, arguments, keywords, policy=policy, draws=draws, seed=seed)
        made.report |= report
        if report["verdict"] == "pass":
            return made
    raise VerificationError(report)


def verify(
    module: torch.nn.Module,
    candidate: torch.nn.Module,
    example_inputs: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    policy: str = "reference",
    draws: int = 5,
    seed: int | None = None,
) -> dict[str, Any]:
    """The contract's verdict on `candidate`, a module of `optimize` or any module with the state_dict of `module`.

    Returns the verdict of docs/json.md: "verdict" ("pass" or "fail"), "reason", "errors", "checks" … Inputs are drawn afresh with the forms of the
    examples. Neither module nor the examples are changed. This runs in the calling process; a candidate that crashes takes it along, so use
    `kw verify` for code you do not trust.
    """
    from .verification import Verification

    held = _MemoryProblem.of(module, tuple(example_inputs), dict(example_kwargs or {}))
    params = {
        "problem": held,
        "candidate": _MemoryCandidate.of(candidate, held),
        "device": held.device.type,
        "seed": secrets.randbits(62) if seed is None else seed,
        "draws": draws,
        "tolerance_policy": policy,
    }
    try:
        with _own_generators(held.device):
            figures = Verification(params, lambda stage, fraction: None).run()
    except errors.Error as error:
        if error.kind != "candidate":
            raise
        return {"verdict": "fail", "code": error.code, "reason": error.message, "policy": policy, "errors": [], "checks": [], "detail": error.detail}
    figures["seed"] = params["seed"]
    return library.judge(figures, policy)


def measure(
    module: torch.nn.Module,
    candidate: torch.nn.Module | None,
    example_inputs: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    baselines: Sequence[str] = ("eager", "compile"),
    budget_seconds: float = 5.0,
) -> dict[str, Any]:
    """Times `candidate`, `module` and torch.compile of it in turns: "time_ms", "speedup" … of docs/json.md. Runs under no_grad."""
    from .measurement import Measurement

    held = _MemoryProblem.of(module, tuple(example_inputs), dict(example_kwargs or {}))
    params: dict[str, Any] = {
        "problem": held,
        "candidate": None if candidate is None else _MemoryCandidate.of(candidate, held),
        "device": held.device.type,
        "baselines": list(baselines),
        "seed": secrets.randbits(62),
        "budget_seconds": budget_seconds,
        "kernels": getattr(candidate, "report", {}).get("kernels", []),
    }
    with _own_generators(held.device):
        return library.summarise(Measurement(params, lambda stage, fraction: None).run())


def _own_generators(device: torch.device) -> Any:
    """Seeds that are set inside leave the caller's random stream as it was."""
    return torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.type == "cuda" else [])


def _target(asked: str, *places: Any) -> str:
    if asked in ("cpu", "triton"):
        return asked
    if asked != "auto":
        raise errors.user_error("unknown-target", f"There is no target {asked!r}.", hint='Use "auto", "cpu" or "triton".')
    return "triton" if _device(*places).type == "cuda" else "cpu"


def _device(module: torch.nn.Module, *arguments: Any) -> torch.device:
    tensors = [*torch.utils._pytree.tree_leaves(arguments), *module.parameters(), *module.buffers()]
    return next((item.device for item in tensors if isinstance(item, torch.Tensor)), torch.device("cpu"))


def _load(source: str) -> type[torch.nn.Module]:
    """ModelNew of a candidate's source, from a file: Triton reads a kernel's text, and tracebacks show it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelwright" / "modules"
    path = cache / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.py"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".tmp{os.getpid()}")
        temporary.write_text(source)
        temporary.replace(path)
    return candidates.load(str(path)).ModelNew


# A module in memory in the place of a problem file. Both sides stand in modules of the same form, so that every parameter, buffer and attribute
# has the same name in both: `Model` as _Held(module), ModelNew as itself, each inside _Call.


class _Held(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class _Call(torch.nn.Module):
    """Takes the keyword arguments after the positional ones, since draws of inputs are lists."""

    def __init__(self, held: torch.nn.Module, keywords: Sequence[str]) -> None:
        super().__init__()
        self.held = held
        self.keywords = tuple(keywords)

    def forward(self, *values: Any) -> Any:
        count = len(values) - len(self.keywords)
        return self.held(*values[:count], **dict(zip(self.keywords, values[count:])))


@dataclass(frozen=True)
class _MemoryProblem(problems.Problem):
    original: torch.nn.Module
    values: tuple[Any, ...]
    keywords: tuple[str, ...]
    device: torch.device

    @classmethod
    def of(cls, module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> "_MemoryProblem":
        device = _device(module, arguments, keywords)
        return cls(
            path=f"<{type(module).__name__}>",
            source="",
            module=None,  # type: ignore[arg-type]
            Model=type(module),
            get_inputs=lambda: [],
            get_init_inputs=lambda: [],
            original=module,
            values=(*arguments, *keywords.values()),
            keywords=tuple(keywords),
            device=device,
        )

    @property
    def name(self) -> str:
        return type(self.original).__name__

    def copy(self) -> torch.nn.Module:
        with torch.no_grad():
            return copy.deepcopy(self.original)

    def construct(self, device: Any = "cpu", dtype: torch.dtype | None = None, seed: int | None = None) -> torch.nn.Module:
        return _Call(_Held(self.copy()), self.keywords).train(self.original.training).to(device=device, dtype=dtype)

    def init_arguments(self, seed: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {}

    def inputs(self, seed: int | None = None, device: Any = "cpu") -> list[Any]:
        generator = torch.Generator(device="cpu").manual_seed(seed or 0)
        return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: _drawn_like(tensor, generator).to(device), list(self.values))


def _drawn_like(example: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Fresh numbers with the form of `example`; its own values, in another order, where they may be indices or flags."""
    example = example.detach()
    drawn = torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device=example.device)
    if 0 in example.stride() and example.numel():
        drawn = example.clone(memory_format=torch.preserve_format)
    if not example.numel():
        return drawn
    with torch.no_grad():
        if example.is_floating_point() or example.is_complex():
            wide = example.double() if example.is_floating_point() else example.to(torch.complex128)
            finite = wide[torch.isfinite(wide)]
            spread = finite.std().item() if finite.numel() > 1 else 1.0
            centre = finite.mean().item() if finite.numel() else 0.0
            noise = torch.randn(example.shape, generator=generator, dtype=torch.float64) * (spread or 1.0)
            # What is never negative (probabilities, variances, distances) may have to stay so.
            values = noise.to(wide.device) + centre
            if example.is_floating_point() and finite.numel() and finite.min() >= 0:
                values = values.abs().clamp(finite.min().item(), finite.max().item())
            drawn.copy_(values)
        else:
            order = torch.randperm(example.numel(), generator=generator).to(example.device)
            drawn.copy_(example.reshape(-1)[order].reshape(example.shape))
    return drawn


@dataclass(frozen=True)
class _MemoryCandidate(candidates.Candidate):
    made: torch.nn.Module

    @classmethod
    def of(cls, candidate: torch.nn.Module, held: _MemoryProblem) -> "_MemoryCandidate":
        source = getattr(type(candidate).forward, "__code__", None)
        return cls(path=source.co_filename if source else "<candidate>", ModelNew=type(candidate), made=candidate)

    def construct(self, problem: Any, model: torch.nn.Module, device: torch.device, seed: int) -> torch.nn.Module:
        if hasattr(self.made, "source") and hasattr(self.made, "module"):  # of optimize()
            inner: torch.nn.Module = type(self.made)(problem.copy())
        else:
            inner = _Held(copy.deepcopy(self.made))
        made = _Call(inner, problem.keywords).to(device).train(model.training)
        self.check_state(model, made)
        candidates.copy_state(model, made)
        return made
