"""The public interface: `optimize`, `verify` and `measure` for modules in memory.

The same way as `kw optimize` takes, in this process: export, compile (in libkernelwright.so), verify against double
precision, measure.
"""

from __future__ import annotations

import copy
import hashlib
import os
import secrets
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import torch

from . import errors, hello, library
from .running import candidate as candidates
from .running import problem as problems
from .running.tf32 import Tf32

_CAUTIONS = ("fused", "exact-products", "library-products", "no-graphs", "library-random", "unfused", "library")
# What optimize() can be told, by keyword and in the options of torch.compile's backend.
SETTINGS = ("target", "policy", "graphs", "unverified_kernels_may_be_wrong", "draws", "seed")
_CHOICES = {
    "target": ("auto", "cpu", "triton"),
    "policy": ("reference", "ieee", "relaxed"),
    "graphs": ("auto", "on", "off"),
}
_NUMBERS = {"draws": (1, 10_000), "seed": (0, 2**62 - 1)}
_RUNS_ORIGINAL = "On inputs like the examples the module itself ran instead of its kernels: {}."
# In the repr of a module that was never verified; a plain string's method, so that the module can be copied and
# pickled.
_UNVERIFIED = "UNVERIFIED: nothing checked these kernels"


class UnverifiedKernelsWarning(UserWarning):
    """A module was made without verification, because its caller asked for that."""


class VerificationError(RuntimeError):
    """No candidate passed the contract. `report` holds the last one's verdict."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(f"no candidate passed verification: {report['reason']}")
        self.report = report


def optimize(
    module: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    target: str = "auto",
    policy: str = "reference",
    graphs: str = "auto",
    unverified_kernels_may_be_wrong: bool = False,
    draws: int = 5,
    seed: int | None = None,
    **unknown: Any,
) -> torch.nn.Module:
    """A module that computes what `module` does, faster, and shares its parameters and buffers.

    `example_inputs` (the positional arguments in a list or tuple, or one tensor) and `example_kwargs` give the shapes,
    dtypes, strides, devices and non-tensor arguments that the kernels are made for. Called with anything else, where
    gradients are wanted, or in the other mode (train, eval) where a layer depends on it, the result runs `module`
    itself, with one warning for each reason. `target` is "cpu", "triton" or "auto" (by the devices of the tensors);
    `policy` as in docs/contract.md; `graphs` as `kw optimize --graphs`: whether a GPU's kernels run as a CUDA graph
    from the third call on.

    Candidates are checked against the contract and the first that passes is returned, from fused kernels down to plain
    library calls; VerificationError is raised when none passes. The result's `report` says what was found; `source` is
    the kernels' text. With `unverified_kernels_may_be_wrong` nothing is checked: the first candidate is returned, with
    an UnverifiedKernelsWarning, and says so in its repr and its report. Raises kernelwright.errors.Error when the
    module cannot be exported (data-dependent control flow, an unsupported dtype …).
    """
    from .capture.export import export_module

    check_settings({**unknown, "target": target, "policy": policy, "graphs": graphs, "draws": draws, "seed": seed})
    arguments, keywords = _examples(module, example_inputs, example_kwargs)
    target = _target(target, module, arguments, keywords)
    with torch.no_grad():
        graph = export_module(module, arguments, keywords, device="cuda" if target == "triton" else "cpu")
    graph |= {
        f"tf32_{kind}": allowed for kind, allowed in Tf32.under(policy, on_gpu=target == "triton").to_json().items()
    }
    card = hello.card("cuda") if target == "triton" else None
    report: dict[str, Any] = {}
    previous = None
    for caution in _CAUTIONS:
        try:
            compiled = library.compile_graph(graph, target, caution, graphs=graphs, card=card)
        except errors.Error as error:
            if error.kind != "internal" or caution == _CAUTIONS[-1]:
                raise
            continue
        if compiled["source"] == previous:
            continue
        previous = compiled["source"]
        made = _load(compiled["source"])(module)
        made.training = module.training  # its parts are the caller's, each in a mode of its own
        made.source = compiled["source"]
        made.report = {key: compiled[key] for key in ("kernels", "library_calls", "library_ops", "cuda_graph")} | {
            "target": target,
            "caution": caution,
        }
        if unverified_kernels_may_be_wrong:
            return _unverified(made, module)
        report = verify(module, made, arguments, keywords, policy=policy, draws=draws, seed=seed)
        if report["verdict"] == "pass" and (why := report.get("runs_original")):
            report |= {"verdict": "fail", "code": "runs-original", "reason": _RUNS_ORIGINAL.format(why)}
        made.report |= report
        if report["verdict"] == "pass":
            return made
    raise VerificationError(report)


def verify(
    module: torch.nn.Module,
    candidate: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    policy: str = "reference",
    draws: int = 5,
    seed: int | None = None,
) -> dict[str, Any]:
    """The contract's verdict on `candidate`, a module of `optimize` or any module with the state_dict of `module`.

    Returns the verdict of docs/json.md: "verdict" ("pass" or "fail"), "reason", "errors", "checks" … Inputs are drawn
    afresh with the forms of the examples. Neither module nor the examples are changed. This runs in the calling
    process; a candidate that crashes takes it along, so use `kw verify` for code you do not trust.
    """
    from .judge import verification

    check_settings({"policy": policy, "draws": draws, "seed": seed})
    _require_module(candidate, "candidate")
    held = _MemoryProblem.of(module, *_examples(module, example_inputs, example_kwargs))
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
            figures = verification.run(params, _say_who_is_waited_for())
    except errors.Error as error:
        if error.kind != "candidate":
            raise
        return {
            "verdict": "fail",
            "code": error.code,
            "reason": error.message,
            "policy": policy,
            "errors": [],
            "checks": [],
            "detail": error.detail,
        }
    figures["seed"] = params["seed"]
    return library.judge(figures, policy)


def measure(
    module: torch.nn.Module,
    candidate: torch.nn.Module | None,
    example_inputs: torch.Tensor | Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    baselines: Sequence[str] = ("eager", "compile"),
    budget_seconds: float = 5.0,
) -> dict[str, Any]:
    """Times `candidate`, `module` and torch.compile of it in turns: "time_ms", "speedup" … of docs/json.md. Runs under
    no_grad.
    """
    from .judge import measurement

    if candidate is not None:
        _require_module(candidate, "candidate")
    held = _MemoryProblem.of(module, *_examples(module, example_inputs, example_kwargs))
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
        return library.summarise(measurement.run(params, _say_who_is_waited_for()))


def _say_who_is_waited_for() -> Callable[..., None]:
    """Of all progress only this, and once: nobody should wonder why a call takes minutes."""
    told: set[str] = set()

    def progress(stage: str, fraction: float, waited: float | None = None) -> None:
        if waited is not None and stage and stage not in told:
            told.add(stage)
            print(f"kernelwright: {stage}", file=sys.stderr, flush=True)

    return progress


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises TypeError for a setting that optimize() does not have (the former name of one gets the present one), and
    errors.Error for a value that it cannot take."""
    if "verified" in settings:
        raise errors.user_error(
            "renamed-setting",
            'There is no setting "verified": kernels are verified unless unverified_kernels_may_be_wrong=True.',
            hint="Leave it out, or write unverified_kernels_may_be_wrong=True to run kernels that nothing has checked.",
        )
    if unknown := set(settings) - set(SETTINGS):
        raise TypeError(f"kernelwright has no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    for name, value in settings.items():
        if name in _CHOICES and value not in _CHOICES[name]:
            choices = ", ".join(map(repr, _CHOICES[name]))
            raise errors.user_error("bad-setting", f"There is no {name} {value!r}.", hint=f"Use {choices}.")
        if name in _NUMBERS and value is not None:
            low, high = _NUMBERS[name]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                problem = f"{name}={value!r} is not a whole number from {low} to {high}."
                raise errors.user_error("bad-setting", problem, hint=f"Leave {name} out, or name such a number.")


def _unverified(made: torch.nn.Module, module: torch.nn.Module) -> torch.nn.Module:
    made.report |= {
        "verdict": "unverified",
        "reason": "verification was switched off by unverified_kernels_may_be_wrong",
    }
    made.extra_repr = _UNVERIFIED.__str__
    warnings.warn(
        f"the kernels of this {type(module).__name__} were not verified (unverified_kernels_may_be_wrong=True): their results may be wrong",
        UnverifiedKernelsWarning,
        stacklevel=3,
    )
    return made


def _require_module(value: Any, what: str) -> None:
    if isinstance(value, torch.nn.Module):
        return
    instance = (
        f"Construct it first: {value.__name__}(...)."
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
        else ""
    )
    is_ = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    raise errors.user_error(
        "not-a-module",
        f"The {what} is {is_}, not a torch.nn.Module.",
        hint=instance or f"Pass an instance of torch.nn.Module as the {what}.",
    )


def _examples(module: Any, inputs: Any, keywords: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments of one example call."""
    _require_module(module, "module")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if isinstance(inputs, Mapping):
        raise errors.user_error(
            "wrong-example-inputs",
            f"example_inputs is a {type(inputs).__name__}, which has no order for forward's positional arguments.",
            hint="Pass a list or tuple of them; keyword arguments go into example_kwargs: optimize(model, [], {...}).",
        )
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise errors.user_error(
            "wrong-example-inputs",
            f"example_inputs is of type {type(inputs).__name__}, not a list or tuple of forward's arguments.",
            hint="Pass a list or tuple, such as [x, y], or a single tensor.",
        )
    if keywords is not None and not (isinstance(keywords, Mapping) and all(isinstance(name, str) for name in keywords)):
        raise errors.user_error(
            "wrong-example-kwargs",
            f"example_kwargs is of type {type(keywords).__name__}, not a dict of forward's keyword arguments by name.",
            hint='Pass a dict such as {"mask": mask}; positional arguments go into example_inputs, together in a list.',
        )
    return tuple(inputs), dict(keywords or {})


def _own_generators(device: torch.device) -> Any:
    """Seeds that are set inside leave the caller's random stream as it was."""
    return torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.type == "cuda" else [])


def _target(asked: str, *places: Any) -> str:
    if asked != "auto":
        return asked
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


# A module in memory in the place of a problem file. Both sides stand in modules of the same form, so that every
# parameter, buffer and attribute has the same name in both: `Model` as _Held(module), ModelNew as itself, each inside
# _Call.


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
    def of(cls, module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _MemoryProblem:
        device = _device(module, arguments, keywords)
        return cls(
            path=f"<{type(module).__name__}>",
            source="",
            module=None,  # type: ignore[arg-type]
            Model=type(module),
            get_inputs=list,
            get_init_inputs=list,
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

    def construct(
        self, device: Any = "cpu", dtype: torch.dtype | None = None, seed: int | None = None
    ) -> torch.nn.Module:
        made = _Call(_Held(self.copy()), self.keywords)
        made.training = made.held.training = self.original.training
        return made.to(device=device, dtype=dtype)

    def init_arguments(self, seed: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {}

    def inputs(self, seed: int | None = None, device: Any = "cpu") -> list[Any]:
        generator = torch.Generator(device="cpu").manual_seed(seed or 0)
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda tensor: _drawn_like(tensor, generator).to(device), list(self.values)
        )


def _empty_like(example: torch.Tensor) -> torch.Tensor:
    """Without numbers, with the strides of `example` and beginning as far into its memory."""
    begin = example.storage_offset()
    reach = begin + 1 + sum((size - 1) * stride for size, stride in zip(example.shape, example.stride()))
    memory = torch.empty(reach, dtype=example.dtype, device=example.device)
    return memory.as_strided(example.shape, example.stride(), begin)


def _drawn_like(example: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Fresh numbers with the form of `example`; its own values, in another order, where they may be indices or flags."""
    example = example.detach()
    drawn = _empty_like(example)
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
    def of(cls, candidate: torch.nn.Module, held: _MemoryProblem) -> _MemoryCandidate:
        source = getattr(type(candidate).forward, "__code__", None)
        return cls(path=source.co_filename if source else "<candidate>", ModelNew=type(candidate), made=candidate)

    def construct(self, problem: Any, model: torch.nn.Module, device: torch.device, seed: int) -> torch.nn.Module:
        if hasattr(self.made, "source") and hasattr(self.made, "module"):  # of optimize()
            inner: torch.nn.Module = type(self.made)(problem.copy())
        else:
            inner = _Held(copy.deepcopy(self.made))
            if inner.module.training != model.training:
                inner.module.train(model.training)
        made = _Call(inner, problem.keywords).to(device)
        made.training = inner.training = model.training
        candidates.check_state(made, model.state_dict())
        candidates.copy_state(model, made)
        return made
