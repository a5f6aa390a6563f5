"""The candidate's process: loads one candidate, takes weights and inputs from the judge's memory, calls it, and puts
its outputs there.

What it answers is the candidate's own word, since the candidate may change anything in this process; the judge
believes none of it but the time at which it came, and looks at the outputs themselves. The functions that stand here
are taken before the candidate's file runs, so that a replaced one at least shows.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import os
import pickle
import socket
import sys
import threading
import time
from typing import Any, Iterator

import torch
from torch.utils import _pytree as pytree

from .. import errors
from ..protocol import Channel
from ..running import candidate as candidates
from ..running import fallbacks
from ..running import problem as problems
from ..running.guards import GuardedAllocations, address_range
from ..running.limits import free_memory, is_scarce, limit_memory, size_text
from ..running.seeding import generator_state, seed_everything
from ..running.settings import ENVIRONMENT, Functions, GlobalState, Operators
from ..running.state import marks_of, slots
from ..running.tf32 import Tf32
from ..timing.profiling import profile_call
from ..timing.timer import Timer
from .arena import DeviceArena, HostArena, SharingRefused, aligned, describe, dtype_of, same_bytes, shaped

_synchronise = torch.cuda.synchronize
_current_stream = torch.cuda.current_stream
_clock = time.perf_counter
_threads, _main_thread = threading.enumerate, threading.main_thread

# Inputs on a GPU up to this size lie in another place on every other draw, as all do on a CPU: whoever takes an address
# for the contents, or keeps the first one, is wrong there.
_MOVED_BYTES = 1 << 26

# For so long a call that is to be timed waits on its core for the word, which comes after some 100 microseconds.
_AWAKE_SECONDS = 0.02


class Resident:
    """One candidate and what it has been given. `missing`: protections that this process does not have, in words."""

    def __init__(self, descriptor: int, missing: list[str]) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.channel = Channel(descriptor, descriptor)
        self.missing = missing
        self.arenas: dict[str, HostArena | DeviceArena] = {}
        self.made: torch.nn.Module | None = None
        self.called: Any = None  # `made`, or what stands for it
        self.device = torch.device("cpu")
        self.share: int | None = None  # bytes of a GPU's memory
        self.path = ""
        self.outputs = "outputs"
        self.values: list[Any] = []
        self.staged: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # storages of inputs on the device, and what stands for them in the arena
        self.given: dict[bool, tuple[Any, ...]] = {}  # inputs in memory of this process, and in the arena
        self.kept: dict[int, list[torch.Tensor]] = {}
        self.places: list[tuple[Any, torch.Tensor, dict[str, Any] | None]] = []
        self.functions: Functions | None = None
        self.operators: Operators | None = None
        self.result: Any = None
        self.keeps_memory = False  # what PyTorch has of a GPU's, so that timed calls need not get it again
        self.reserve = 0  # bytes of it to have before each of them
        self.answers = {
            "missing": lambda message: {"missing": self.missing},
            "arena": self.take_arena,
            "construct": self.construct,
            "adopt": self.adopt,
            "inputs": self.take_inputs,
            "call": self.call,
            "rewind": self.rewind,
            "state": self.give_state,
            "outputs": self.give_kept,
            "threads": self.give_threads,
            "timer": self.make_timer,
            "sample": self.sample,
            "timed": self.give_timed,
            "wall": self.wall,
            "rest": self.rest,
            "peak": self.peak_memory,
            "profile": self.profile,
        }

    def serve(self) -> None:
        while (message := self.channel.receive()) is not None:
            try:
                reply = {"ok": self.answers[message["op"]](message)}
            except BaseException as error:  # SystemExit and KeyboardInterrupt too: they are the candidate's
                reply = {"error": self._explained(error, message).to_json()}
                error.__traceback__ = None
            if not self.keeps_memory:
                self._give_back_memory()
            self.channel.send(reply)

    def _give_back_memory(self) -> None:
        """What PyTorch keeps of a GPU's memory others cannot have; where it grows scarce that counts for more than
        the time to get it again.
        """
        if self.device.type != "cuda" or not torch.cuda.is_initialized():
            return
        with contextlib.suppress(RuntimeError):  # of a GPU that a kernel has left in an error state
            if is_scarce(self.device):
                torch.cuda.empty_cache()

    def _explained(self, error: BaseException, message: dict[str, Any]) -> errors.Error:
        try:
            if isinstance(error, KeyboardInterrupt):
                raise errors.candidate_error(
                    message["code"],
                    f"The candidate raised KeyboardInterrupt while {message['doing']}.",
                    hint="Let no such exception out of the module.",
                )
            explained = candidates.explain(error, self.path, message["doing"], message["code"])
            if explained.code == "out-of-memory" and self.share is not None:
                explained.message += f" It may have {size_text(self.share)} of this GPU's memory."
            return explained
        except errors.Error as explained:
            return explained
        except BaseException:
            return errors.candidate_error(
                message.get("code", "forward-raised"),
                f"The candidate raised {type(error).__name__}, whose text cannot be had, while {message.get('doing')}.",
            )

    # What the judge sends

    def take_arena(self, message: dict[str, Any]) -> dict[str, Any]:
        """Memory under a name. The answer says whether this process can reach it."""
        if message["name"] == "inputs":
            self.given.clear()
        if message["kind"] == "host":
            _, (descriptor,), _, _ = socket.recv_fds(self.socket, 1, 1)
            self.arenas[message["name"]] = HostArena(message["size"], descriptor)
            return {"shared": True}
        try:
            self.arenas[message["name"]] = DeviceArena(
                message["size"], self.device, base64.b64decode(message["handle"])
            )
        except SharingRefused:
            return {"shared": False}
        return {"shared": True}

    def construct(self, message: dict[str, Any]) -> dict[str, Any]:
        self.device = torch.device(message["device"])
        self.path = message["path"]
        Tf32(**message["tf32"]["own"]).set()  # a module's file may set what it likes, and ours repeats it
        before = GlobalState()
        self.functions, self.operators = Functions(), Operators()
        limit_memory(message["memory_limit_bytes"], self.device)
        self.share = message["memory_limit_bytes"] if self.device.type == "cuda" else None
        problems.look_beside(message["problem"])
        loaded = (
            candidates.load(self.path)
            if message["role"] == "candidate"
            else candidates.of_problem(problems.load(self.path, message["size"]))
        )
        arguments, keywords = self._arguments(message)
        self.made = loaded.make(arguments, keywords, self.device, message["seed"], message["training"])
        candidates.check_state(
            self.made,
            {
                name: torch.empty(form["shape"], dtype=dtype_of(form["dtype"]), device="meta")
                for name, form in message["state"].items()
            },
        )
        self.called = _compiled(self.made) if message["role"] == "compiled" else self.made
        gc.collect()
        # Compilers are told by the environment where and what for; nothing is called yet that it could change.
        settings = before.undo("Loading it", but=(ENVIRONMENT,))
        Tf32(**message["tf32"]["policy"]).set()
        return {"settings": settings + self._replaced(), "missing": self.missing}

    def _replaced(self) -> list[str]:
        assert self.functions is not None and self.operators is not None
        return self.functions.replaced() + self.operators.overridden()

    def _arguments(self, message: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if message["arguments"] is None:
            return problems.load(message["problem"], message["size"]).init_arguments(message["seed"])
        return self._unpickled(message["arguments"], [], message)

    def _unpickled(self, text: str, tensors: list[torch.Tensor], message: dict[str, Any]) -> Any:
        return _Unpickler(base64.b64decode(text), tensors, lambda: problems.load_module(message["problem"])).load()

    def adopt(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give the candidate the state that stands in the arena: by load_state_dict, and plain attributes by their
        names.
        """
        assert self.made is not None
        state = {name: self._tensor("state", form) for name, form in message["dict"].items()}
        state |= {name: self._unpickled(text, [], message) for name, text in message["objects"].items()}
        try:
            self.made.load_state_dict(state)
        except Exception as error:
            raise candidates.explain(error, self.path, "loading Model's state into ModelNew", "state-dict") from None
        forms = message["slots"]
        self.places = []
        with torch.no_grad():
            for slot in list(slots(self.made)):
                form = forms.get(slot.name)
                if form is None:
                    continue
                has_form = list(slot.tensor.shape) == form["shape"]
                if slot.kind != "parameter" and has_form:
                    slot.tensor.copy_(self._tensor("state", form))
                self.places.append((slot, slot.tensor, form if slot.kind != "parameter" and has_form else None))
        return {"strides": {f"{slot.kind} {slot.name}": list(tensor.stride()) for slot, tensor, _ in self.places}}

    def rewind(self, message: dict[str, Any]) -> dict[str, Any]:
        """Every tensor that Model has too back in its place; buffers and attributes with the contents that were
        adopted.
        """
        with torch.no_grad():
            for slot, tensor, form in self.places:
                slot.store[slot.key] = tensor
                if form is not None:
                    tensor.copy_(self._tensor("state", form))
        return {}

    def take_inputs(self, message: dict[str, Any]) -> dict[str, Any]:
        """`private`: they are to lie in memory of this process, not in the arena. Tensors of the same form are the same
        objects each time.
        """
        form, known = [message["values"], message["tensors"]], self.given.get(message["private"])
        if known is None or known[0] != form:
            known = self.given[message["private"]] = form, *self._made_inputs(message)
        _, self.values, self.staged = known
        return {}

    def _made_inputs(self, message: dict[str, Any]) -> tuple[list[Any], list[tuple[torch.Tensor, torch.Tensor]]]:
        storages: dict[int, torch.Tensor] = {}
        tensors, staged = [], []
        for form in message["tensors"]:
            if form["bytes"] and form["at"] not in storages:
                shared = self.arenas["inputs"].bytes(form["at"], form["bytes"])
                storages[form["at"]] = place = self._place_of_input(form, message["private"])
                if place.data_ptr() != shared.data_ptr():
                    staged.append((_alias(place), _alias(shared)))
            dtype = dtype_of(form["dtype"])
            if form["bytes"]:
                tensors.append(shaped(storages[form["at"]], dtype, form["shape"], form["stride"], form["offset"]))
            else:
                tensors.append(torch.empty_strided(form["shape"], form["stride"], dtype=dtype, device=self.device))
        return self._unpickled(message["values"], tensors, message), staged

    def _place_of_input(self, form: dict[str, Any], private: bool) -> torch.Tensor:
        """The memory that a storage of the inputs has in this process."""
        if private and (self.device.type == "cpu" or form["bytes"] <= _MOVED_BYTES):
            return torch.empty(form["bytes"], dtype=torch.uint8, device=self.device)
        return self._bytes("inputs", form)

    def _bytes(self, arena: str, form: dict[str, Any]) -> torch.Tensor:
        held = self.arenas[arena]
        memory = held.bytes(form["at"], form["bytes"])
        return memory if isinstance(held, DeviceArena) or self.device.type == "cpu" else memory.to(self.device)

    def _tensor(self, arena: str, form: dict[str, Any]) -> torch.Tensor:
        dtype = dtype_of(form["dtype"])
        return (
            self._bytes(arena, form).view(dtype).view(form["shape"])
            if form["bytes"]
            else torch.empty(form["shape"], dtype=dtype, device=self.device)
        )

    # Calls

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Runs forward. The outputs stand in the arena that "outputs" names where that is large enough; "total" says
        how large it would have to be.
        """
        assert self.made is not None and self.functions is not None
        self._forget(message)
        watch = GuardedAllocations(free_memory(self.device) // 4) if message["guarded"] else None
        settings = GlobalState()
        self._copy_staged(back=False)
        self._overwrite_stages()
        seed_everything(message["seed"])
        reasons: list[str] = []
        try:
            with (
                self._gradients(message["gradients"]),
                fallbacks.noted(self.made, reasons),
                watch or contextlib.nullcontext(),
            ):
                result = self.called(*self.values)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # of a GPU in an error state, which is what is raised
                self._copy_staged(back=True)
            raise
        return {**self._told(message, result, watch, settings), "fallbacks": reasons}

    def rest(self, message: dict[str, Any]) -> dict[str, Any]:
        """Forget the outputs of earlier calls that are numbered in "drop", and those of the last timed one; keep no
        memory for others.
        """
        self._forget(message)
        self.keeps_memory = False
        return {}

    def _forget(self, message: dict[str, Any]) -> None:
        for number in message["drop"]:
            self.kept.pop(number, None)
        self.result = None

    def _told(
        self, message: dict[str, Any], result: Any, watch: GuardedAllocations | None, settings: GlobalState | None
    ) -> dict[str, Any]:
        """What a call has left, with its outputs in the arena."""
        leaves, structure = pytree.tree_flatten(result)
        if not message["export"]:
            leaves = []
        marks = iter([marks_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)])
        tensors = [leaf.detach() if type(leaf) in _PLAIN else leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.outputs = message["outputs"]
        is_guarded = self.device.type == "cuda" and watch is not None
        early = self._outputs_of_this_stream(tensors) if is_guarded else None
        busy_ms = self._others_busy_ms() if is_guarded else 0.0
        if self.device.type == "cuda":
            _synchronise(self.device)
        self._copy_staged(back=True)
        reply = self._export(tensors)
        is_late = early is not None and any(map(_differ, early, self._comparable(tensors)))
        self.kept[message["number"]] = tensors
        forms = iter(reply.pop("forms"))
        return reply | {
            "leaves": [
                next(forms) | {"marks": next(marks)} if isinstance(leaf, torch.Tensor) else {"constant": _plainly(leaf)}
                for leaf in leaves
            ],
            "structure": repr(structure),
            "form": structure.type.__name__ if structure.type is not None else "one value",
            "held": {name: address_range(tensor) for name, tensor in self._held().items()},
            "generators": [bytes(state.tolist()).hex() for state in generator_state(self.device)],
            "guards": watch.violations() if watch is not None else [],
            "settings": (settings.undo() if settings is not None else []) + self._replaced(),
            "late": is_late,
            "busy_ms": busy_ms,
            "fallbacks": [],
            **self.give_threads(message),
        }

    def _gradients(self, wanted: bool) -> contextlib.AbstractContextManager:
        return _without_leaves(self.made) if wanted else torch.no_grad()

    def _copy_staged(self, *, back: bool) -> None:
        """Where inputs do not lie in the arena itself: from there to their places, or back."""
        for place, stage in self.staged:
            target, source = (stage, place) if back else (place, stage)
            target.copy_(source)

    def _overwrite_stages(self) -> None:
        """Whoever still reads inputs where earlier ones lay finds no numbers there; what the call leaves is copied over
        it.
        """
        for _, stage in self.staged:
            stage.fill_(0xFF)

    def _held(self) -> dict[str, torch.Tensor]:
        assert self.made is not None
        held = {f"{slot.kind} {slot.name}": slot.tensor for slot in slots(self.made)}
        return held | {
            f"input[{index}]": leaf
            for index, leaf in enumerate(pytree.tree_leaves(self.values))
            if isinstance(leaf, torch.Tensor)
        }

    def _outputs_of_this_stream(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs once the current stream is done; what changes them later ran on another."""
        _current_stream(self.device).synchronize()
        return self._dense(tensors)

    def _others_busy_ms(self) -> float:
        """How long the GPU goes on after the current stream is done: with work on other streams of this process."""
        _current_stream(self.device).synchronize()
        began = _clock()
        _synchronise(self.device)
        return (_clock() - began) * 1e3

    def _dense(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor.clone(memory_format=torch.contiguous_format) for tensor in self._comparable(tensors)]

    def _comparable(self, tensors: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        for tensor in tensors:
            if type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type == self.device.type:
                yield tensor.resolve_conj().resolve_neg()

    def _total(self, tensors: list[torch.Tensor]) -> int:
        return sum(aligned(tensor.nbytes) for tensor in tensors if tensor.layout is torch.strided)

    def _export(self, tensors: list[torch.Tensor]) -> dict[str, Any]:
        """Copy tensors into the arena for outputs one after the other."""
        arena = self.arenas[self.outputs]
        fits = self._total(tensors) <= arena.size
        forms, at = [], 0
        for tensor in tensors:
            if (
                type(tensor) not in _PLAIN
                or tensor.layout is not torch.strided
                or tensor.device.type == "meta"
                or tensor.is_quantized
            ):
                forms.append(
                    {
                        "odd": type(tensor).__name__
                        if type(tensor) not in _PLAIN
                        else f"tensor of layout {tensor.layout} on {tensor.device}"
                    }
                )
                continue
            real = tensor.resolve_conj().resolve_neg()
            form = describe(tensor) | {
                "at": at,
                "bytes": tensor.nbytes,
                "device": str(tensor.device.type),
                "range": address_range(tensor),
            }
            if fits and tensor.nbytes:
                arena.bytes(at, tensor.nbytes).view(tensor.dtype).view(tensor.shape).copy_(real)
            forms.append(form)
            at += aligned(tensor.nbytes)
        if self.device.type == "cuda":
            _synchronise(self.device)
        return {"forms": forms, "exported": fits, "total": self._total(tensors)}

    # Timing

    def make_timer(self, message: dict[str, Any]) -> dict[str, Any]:
        self.timer = Timer(self.device)
        self.reserve = message["reserve"] or 0
        self.keeps_memory = True
        return {}

    def _forward(self) -> None:
        """One call; its result is freed by the next, since that takes time that is not the call's."""
        assert self.made is not None
        with torch.no_grad():
            self.result = self.called(*self.values)

    def sample(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ready to call forward (or nothing, where it is only to be seen what the way here and back takes); once told
        to go, milliseconds by this process's clock.
        """
        call = (lambda: None) if message["empty"] else self._forward
        self.result = None
        if self.reserve:
            torch.empty(
                self.reserve, dtype=torch.uint8, device=self.device
            )  # PyTorch keeps it, and cuts calls' from it
        self._copy_staged(back=False)
        seed_everything(message["seed"])
        self.timer.prepare()
        self.channel.send({"ok": {"ready": True}})
        if not self._word_to_go():
            raise SystemExit(0)
        return {"ms": self.timer.timed(call)}

    def _word_to_go(self) -> bytes:
        """What the judge sends, or nothing where it has gone. On a CPU this thread keeps its core meanwhile: woken from
        sleep it may be put on the core on which another of OpenMP's threads spins, and wait there for milliseconds.
        """
        until = time.monotonic() + (_AWAKE_SECONDS if self.device.type == "cpu" else 0.0)
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                return self.socket.recv(1, socket.MSG_DONTWAIT)
            os.sched_yield()
        return self.socket.recv(1)

    def give_timed(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the timed call before has left."""
        result, self.result = self.result, None
        self.outputs = message["outputs"]
        return self._told(message | {"export": True}, result, None, None)

    def wall(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ms": self.timer.wall(self._forward, message["repeats"])}

    def peak_memory(self, message: dict[str, Any]) -> dict[str, Any]:
        """Bytes that one call takes beyond what it was given."""
        _synchronise(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self.result = None
        self._forward()
        _synchronise(self.device)
        return {"bytes": torch.cuda.max_memory_allocated(self.device) - before}

    def profile(self, message: dict[str, Any]) -> dict[str, Any]:
        found = profile_call(self._forward, message["kernels"], self.device)
        return {"share": found.share, "parts": found.parts}

    def give_threads(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"threads": [thread.name for thread in _threads() if thread is not _main_thread() and thread.is_alive()]}

    def give_kept(self, message: dict[str, Any]) -> dict[str, Any]:
        """The outputs of an earlier call as they are now."""
        self.outputs = message["outputs"]
        return self._export(self.kept[message["number"]])

    def give_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """The tensors that Model has too as they are now, in the arena for outputs."""
        wanted, self.outputs = message["names"], message["outputs"]
        found = [(f"{slot.kind} {slot.name}", slot.tensor.detach()) for slot in slots(self.made) if slot.name in wanted]
        reply = self._export([tensor for _, tensor in found])
        return reply | {"names": [name for name, _ in found]}


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@contextlib.contextmanager
def _without_leaves(module: torch.nn.Module) -> Any:
    """Gradients are recorded, as in any script, but nothing wants one."""
    wanted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


def _compiled(model: torch.nn.Module) -> Any:
    if not torch.cuda.is_initialized():
        from torch._inductor import config

        # A pool of compiler processes costs more than it saves for a few C++ kernels, and competes with what is timed.
        config.compile_threads = 1
    return torch.compile(model)


# Bytes of two tensors that are compared at once: a byte of memory each.


def _alias(memory: torch.Tensor) -> torch.Tensor:
    """The same bytes, written to as the judge does: no version of another tensor counts it."""
    return torch.empty(0, dtype=torch.uint8, device=memory.device).set_(
        memory.untyped_storage(), memory.storage_offset(), memory.shape, memory.stride()
    )


def _differ(dense: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a dense tensor and another of its shape have other bytes."""
    one, two = (tensor.reshape(-1).view(torch.uint8) for tensor in (dense, other))
    return not same_bytes(one, two)


def _plainly(value: Any) -> list[str]:
    """A value that is no tensor, as both sides can compare it."""
    return [type(value).__name__, repr(value)[:1000]]


class _Unpickler(pickle.Unpickler):
    """Of what the judge wrote: tensors by their numbers; classes of the problem's file by loading it, which only they
    need.
    """

    def __init__(self, data: bytes, tensors: list[torch.Tensor], load_problem: Any) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors
        self._load_problem = load_problem

    def persistent_load(self, number: Any) -> torch.Tensor:
        return self._tensors[number]

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("_kernelwright_user_") and module not in sys.modules:
            self._load_problem()
        return super().find_class(module, name)
