"""Capture: a PyTorch module and example inputs → Graph JSON, through torch.export on fake tensors.

`run` answers the worker's `capture` request for a problem file; `export_module` does the same for a module in memory.
Forward never runs on real numbers.
"""

from __future__ import annotations

import contextlib
import keyword
import os
import time
import traceback
import warnings
from typing import Any, Callable, Iterator

import torch
import torch.export

from .. import errors, hello
from ..running import problem
from . import decompositions, fake, graph_json, memory, modes, tracing
from .access import contained_tensors
from .call_json import call_path

with contextlib.suppress(ImportError):
    # What torch.export imports at its first use. Here the worker's garbage collector rests meanwhile.
    import torch.export._trace
    import torch.fx.experimental.validator

# No single tensor may be larger than this on a CUDA device: sixteen of the largest GPUs to be had.
_CUDA_LIMIT_BYTES = 16 * 141_000_000_000


def run(params: dict[str, Any], progress: Callable[[str, float], None]) -> dict[str, Any]:
    """The `capture` method: {"problem": path, "size", "device"} → {"graph", "card", "seconds"}."""
    device = problem.check_device(params.get("device", "cpu"))
    clock = _Clock()
    progress("import", 0.0)
    loaded = problem.load(params["problem"], params.get("size"))
    clock.lap("import")
    graph = capture(loaded, device, clock, progress)
    return {"graph": graph, "card": hello.card(device), "seconds": clock.seconds}


def capture(
    loaded: problem.Problem,
    device: str = "cpu",
    clock: _Clock | None = None,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> dict[str, Any]:
    """The Graph JSON of a problem's forward on `device` ("cpu" or "cuda")."""
    clock = clock or _Clock()
    place = fake.device_for(device)

    def attempt(plain_device: torch.device | None) -> dict[str, Any]:
        progress("construct", 0.2)
        mode = fake.new_mode()
        model = _construct(loaded, mode)
        arguments = _inputs(loaded, mode, place)
        origin = _origin(loaded.name, loaded.path, model, mode, place, plain_device)
        clock.lap("construct")
        return _export(origin, mode, tuple(arguments), {}, device, clock, progress)

    return _with_plain_tensors_settled(attempt, place)


def export_module(
    module: torch.nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, device: str | None = None
) -> dict[str, Any]:
    """The Graph JSON of `module(*args, **kwargs)`.

    The module and the arguments stay untouched; only shapes, dtypes, strides and devices of tensors are read. With
    `device` given, the graph is as if module and arguments had been moved there; otherwise tensors stay on the devices
    they are on.
    """
    device = device if device is None else problem.check_device(device)
    place = None if device is None else fake.device_for(device)
    tensors = [*module.parameters(), *module.buffers(), *torch.utils._pytree.tree_leaves((args, kwargs))]
    found = next((item.device for item in tensors if isinstance(item, torch.Tensor)), torch.device("cpu"))

    def attempt(plain_device: torch.device | None) -> dict[str, Any]:
        mode = fake.new_mode()
        origin = _origin(type(module).__name__, "", fake.fake_copy(module), mode, place, plain_device)
        given, named = fake.fake_values((tuple(args), dict(kwargs or {})), mode, place)
        return _export(origin, mode, given, named, (place or found).type, _Clock(), lambda stage, fraction: None)

    return _with_plain_tensors_settled(attempt, place or found)


def _origin(
    name: str,
    path: str,
    model: torch.nn.Module,
    mode: Any,
    place: torch.device | None,
    plain_device: torch.device | None,
) -> graph_json.Origin:
    """Make `model` fake and note what the graph's description needs to know of it."""
    requires_grad = {
        name for name, parameter in model.named_parameters(remove_duplicate=False) if parameter.requires_grad
    }
    plain = fake.make_fake(model, mode, place, plain_device)
    return graph_json.Origin(name, path, model, plain, contained_tensors(model), model.training, requires_grad)


def _with_plain_tensors_settled(
    attempt: Callable[[torch.device | None], dict[str, Any]], place: torch.device
) -> dict[str, Any]:
    """`attempt(None)`, or `attempt(place)` where that spares copies between devices.

    Module.to leaves plain tensor attributes on the CPU, and a forward that copes with it (`self.mask.to(x.device)`, or
    `self.state = new_state`, which moves the attribute at the first call) would be captured with copies to and fro at
    every call.
    """
    graph = attempt(None)
    if place.type == "cpu" or not _copies_between_devices(graph):
        return graph
    with contextlib.suppress(errors.Error):
        settled = attempt(place)
        if not _copies_between_devices(settled):
            settled["source"]["moves_tensors"] = True
            return settled
    return graph


def _copies_between_devices(graph: dict[str, Any]) -> bool:
    values = graph["values"]
    for node in graph["nodes"]:
        if node["op"] == "aten._to_copy.default":
            source = values[node["args"][0][1]["v"]]
            if source["device"] != values[node["results"][0]]["device"] and source["shape"]:
                return True
    return False


class _Clock:
    """Seconds spent in each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + now - self._last, 4)
        self._last = now


def _construct(loaded: problem.Problem, mode: Any) -> torch.nn.Module:
    """The model, built without storage where its constructor allows; one that computes with its tensors' numbers gets
    real ones.
    """
    with contextlib.suppress(Exception), _quiet(), tracing.Tracing(), fake.without_numbers(mode):
        return loaded.construct(device=None, seed=0)
    with _quiet():
        return loaded.construct(device=None, seed=0)


def _inputs(loaded: problem.Problem, mode: Any, place: torch.device) -> list[Any]:
    """Fake arguments of forward on `place`, drawn without storage where get_inputs() allows."""
    with contextlib.suppress(Exception), _quiet(), tracing.Tracing(), fake.without_numbers(mode):
        drawn = loaded.inputs(seed=0, device=place)
        return fake.fake_values(drawn, mode, place)
    with _quiet():
        return fake.fake_values(loaded.inputs(seed=0, device="cpu"), mode, place)


def _export(
    origin: graph_json.Origin,
    mode: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: str,
    clock: _Clock,
    progress: Callable[[str, float], None],
) -> dict[str, Any]:
    _check_sizes(origin, args, kwargs, device)
    state = tracing.python_state(origin.model)
    progress("export", 0.4)
    with modes.watched(origin.model) as readers:
        program = _traced(origin, args, kwargs)
    clock.lap("export")
    progress("serialise", 0.9)
    graph = graph_json.serialise(program, origin, args, kwargs)
    memory.check_written(graph, origin.model, args, kwargs)
    _check_values(graph, origin, device)
    clock.lap("serialise")
    after = tracing.python_state(origin.model)

    def trace_again() -> dict[str, Any]:
        return graph_json.serialise(_traced(origin, args, kwargs), origin, args, kwargs)

    if after != state:
        _check_repeats(graph, trace_again(), state, after)
    graph["modes"] = modes.that_matter(origin.model, readers, graph, trace_again)
    clock.lap("export")
    return graph


def _traced(origin: graph_json.Origin, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    """The functional program of forward, decomposed to the ops that `decompositions` allows."""

    def trace(grad: bool) -> torch.export.ExportedProgram:
        with torch.set_grad_enabled(grad), mode:
            program = torch.export.export(origin.model, args, kwargs, strict=False)
            graph_json.refuse_effects(program)
            origin.same = memory.name_once(program)
        with torch.set_grad_enabled(grad), _names_made_free(program) as restored:
            return restored(program.run_decompositions(decompositions.table()))

    mode = tracing.Tracing(generators=False)
    with _explained(origin), _quiet(), tracing.collector_paused(), tracing.surroundings(origin.is_user_file):
        try:
            return trace(grad=False)
        except Exception as error:
            if "A view was created in no_grad mode" in str(error):
                # Of a parameter that is then written to; PyTorch's tracing compares with gradients on.
                origin.model.requires_grad_(False)
                return trace(grad=False)
            if not mode.enables_grad:
                raise
            # torch.export fails on a forward that turns gradients on; with gradients on from the start that changes
            # nothing.
            return trace(grad=True)


@contextlib.contextmanager
def _names_made_free(
    program: torch.export.ExportedProgram,
) -> Iterator[Callable[[torch.export.ExportedProgram], torch.export.ExportedProgram]]:
    """A program whose state has no name that torch.fx.GraphModule has too (a buffer called "code" or "graph") or that
    Python keeps for itself ("class"), on which decomposing it would fail; what is yielded gives a program its names
    back.
    """
    taken = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    parts = {part for spec in program.graph_signature.input_specs if spec.target for part in spec.target.split(".")}
    free = {part: part + "_of_model" for part in parts if hasattr(taken, part) or keyword.iskeyword(part)}
    while any(name in parts for name in free.values()):
        free = {part: name + "_" for part, name in free.items()}
    _rename(program, free)
    yield lambda decomposed: _rename(decomposed, {name: part for part, name in free.items()})


def _rename(program: torch.export.ExportedProgram, parts: dict[str, str]) -> torch.export.ExportedProgram:
    def renamed(name: str) -> str:
        return ".".join(parts.get(part, part) for part in name.split("."))

    if parts:
        for spec in [*program.graph_signature.input_specs, *program.graph_signature.output_specs]:
            if spec.target:
                spec.target = renamed(spec.target)
        for table in (program.state_dict, program.constants):
            for name in list(table):
                table[renamed(name)] = table.pop(name)
    return program


def _check_repeats(graph: dict[str, Any], again: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    """A forward that changed Python attributes must still compute the same at its second call."""
    if all(graph[part] == again[part] for part in ("values", "inputs", "nodes", "outputs", "result")):
        return
    name = next(name for name in after if after[name] != before.get(name))
    raise errors.user_error(
        "stateful",
        f"forward changes self.{name} from {before.get(name)!r} to {after[name]!r} and computes something else at its next call.",
        hint="Keep what changes between calls in a tensor: self.register_buffer(name, tensor), updated in place.",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def memory_limit_bytes(device: str) -> int:
    """The largest single tensor that a graph for `device` may hold."""
    if device == "cuda":
        return _CUDA_LIMIT_BYTES
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _size_text(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def _too_large(what: str, count: int, device: str, **place: str) -> errors.Error:
    return errors.user_error(
        "too-large",
        f"{what} would take {_size_text(count)}, more than the {_size_text(memory_limit_bytes(device))} there can be on this device ({device}).",
        hint="Use smaller shapes.",
        **place,
    )


def _check_sizes(origin: graph_json.Origin, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> None:
    limit = memory_limit_bytes(device)

    def extent(tensor: torch.Tensor) -> int:
        return (
            tensor.itemsize * (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())))
            if tensor.numel()
            else 0
        )

    for name, tensor in (*origin.model.named_parameters(), *origin.model.named_buffers()):
        if extent(tensor) > limit:
            raise _too_large(f"The parameter {name}, of shape {list(tensor.shape)},", extent(tensor), device)
    for path, value in torch.utils._pytree.tree_flatten_with_path((args, kwargs))[0]:
        if isinstance(value, torch.Tensor) and extent(value) > limit:
            name = ".".join(map(str, call_path(path)))
            raise _too_large(f"The input {name}, of shape {list(value.shape)},", extent(value), device)


def _check_values(graph: dict[str, Any], origin: graph_json.Origin, device: str) -> None:
    limit = memory_limit_bytes(device)
    if graph["bytes"]["largest"] <= limit:
        return
    for node in graph["nodes"]:
        for result in node["results"]:
            count = graph_json.extent_bytes(graph["values"][result]) if result >= 0 else 0
            if count > limit:
                place = {}
                if node["location"] and origin.path:
                    where, source = errors.line_of(origin.path, int(node["location"].rpartition(":")[2]))
                    place = {"where": where, "source": source}
                shape = graph["values"][result]["shape"]
                raise _too_large(f"A tensor of shape {shape} computed by {node['op']}", count, device, **place)


@contextlib.contextmanager
def _explained(origin: graph_json.Origin) -> Iterator[None]:
    """Turn what torch.export raises into an error that points at the user's line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        told = _explain(error, origin)
        raise told from (None if told is error else error)


_DATA_DEPENDENT = (
    "GuardOnDataDependentSymNode",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UserError",
    "PendingUnbackedSymbolNotFound",
)
_DATA_DEPENDENT_HINT = (
    "Kernels are made for one fixed sequence of operations: choose with torch.where(condition, a, b) instead of if, and keep numbers in "
    "tensors instead of calling .item(), .tolist() or nonzero()."
)


def _explain(error: BaseException, origin: graph_json.Origin) -> errors.Error:
    chain = list(_causes(error))
    where, source = _user_line(chain, origin)
    place = {"where": where, "source": source, "detail": errors.trace(error)}
    for told in chain:
        if isinstance(told, errors.Error):
            told.where, told.source = told.where or where, told.source or source
            return told
    names = {type(cause).__name__ for cause in chain}
    text = " ".join(str(cause) for cause in chain)
    if names & set(_DATA_DEPENDENT) and (
        "data-dependent" in text.lower() or "data dependent" in text.lower() or "UserError" not in names
    ):
        return errors.user_error(
            "data-dependent",
            "What forward does depends on the values in its inputs.",
            **place,
            hint=_DATA_DEPENDENT_HINT,
        )
    if _reads_numbers(text):
        return errors.user_error(
            "data-dependent",
            "forward takes the values out of a tensor (NumPy, .tolist(), or a Python number).",
            **place,
            hint=_DATA_DEPENDENT_HINT,
        )
    root = chain[-1]
    if not origin.path:
        return errors.user_error(
            "forward-raised",
            f"The module's forward raised an exception: {errors.summary(root)}",
            **place,
            hint="Check that it runs on these inputs.",
        )
    told = errors.blame(root, origin.path, "running forward", "forward-raised")
    if not told.where:
        told.where, told.source = where, source
    told.detail = place["detail"]
    return told


def _reads_numbers(text: str) -> bool:
    return any(
        phrase in text
        for phrase in (
            ".numpy() is not supported for tensor subclasses",
            "Cannot access data pointer",
            ".tolist() is not supported",
            "can't be converted to numpy",
        )
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _user_line(chain: list[BaseException], origin: graph_json.Origin) -> tuple[str, str]:
    """The innermost line of the user's code that any of the exceptions passed, those nearest the cause first."""
    for error in reversed(chain):
        if origin.path:
            where, source = errors.innermost_line(error.__traceback__, origin.path)
            if where:
                return where, source
        else:
            for frame in reversed(traceback.extract_tb(error.__traceback__)):
                if graph_json.is_user_file(frame.filename):
                    return f"{os.path.basename(frame.filename)}:{frame.lineno}", frame.line or ""
    return "", ""
