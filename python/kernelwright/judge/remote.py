"""A candidate in a process of its own, which holds nothing else: its inputs and weights are copies, its outputs are
looked at as bytes (host/resident.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Iterator

import torch

from ..errors import Error, candidate_error
from ..host.arena import aligned, describe, same_bytes, shaped, storage_bytes
from ..running import problem as problems
from ..running.limits import free_memory, is_large, is_scarce, share_of_candidate
from ..running.state import slots
from ..running.tf32 import Tf32
from ..timing.clocks import Clocks
from ..timing.noise import wait_until_idle
from ..timing.profiling import Profile
from . import metrics
from .activity import RemoteActivity
from .answers import LONGEST_STATE, LONGEST_TEXT, bounded, meet, milliseconds, profile_of, span_of, texts
from .contestants import odd_output, other_streams
from .nursing import Confinement, Ended, Host
from .portable import constructor_arguments, pickled
from .runs import Constant, Inputs, Outcome
from .shared_arenas import SharedArenas

_OUTPUT_SLACK = 1 << 16
_EMPTY_SAMPLES = 10
_MOST_PAIRS = 10_000_000  # of an output and a tensor that it may share memory with
_TIMED = {"sample", "wall"}  # questions whose answers hold times


class Remote:
    """One candidate's process, with what it was given and what it has told. Ended by `close`. `role`: "candidate", or
    "model" or "compiled" for the problem's own Model, by torch.compile. `shares_large`: inputs of which a GPU's
    memory would hardly take a second copy are given as they are; the caller draws them anew where an outcome shows
    that they were changed. `inputs_of`: where inputs are as large as that, the same memory holds them for both
    processes, which must be closed after this one. `private`: its inputs lie in memory that is its own, large ones on a
    GPU excepted.
    """

    def __init__(
        self,
        path: str,
        problem: problems.Problem,
        size: str | None,
        model: torch.nn.Module,
        device: torch.device,
        seed: int,
        *,
        role: str = "candidate",
        shares_large: bool = False,
        inputs_of: Remote | None = None,
        policy: str = "reference",
        confinement: Confinement,
        memory_limit: int | None = None,
        deadline: float | None = None,
        limit_seconds: float | None = None,
    ) -> None:
        self.path, self.problem, self.device = path, problem, device
        self.subject = "The candidate" if role == "candidate" else "Model"
        self.host = Host(confinement, deadline, limit_seconds, compilers=role == "compiled")
        self.fallbacks: list[str] = []
        self.arenas: SharedArenas = SharedArenas(
            lambda message, descriptor: self._ask(message, "taking memory", descriptor=descriptor),
            device,
            self.subject,
            inputs_of.arenas if inputs_of is not None else None,
        )
        self._inputs: Any = None
        self._calls = 0
        self._dropped: list[int] = []
        self._numbers: dict[int, int] = {}
        self._marks: dict[int, dict[str, tuple[int, ...]]] = {}
        self.threads: list[str] = []
        self.shares_large = shares_large
        self.private = False
        self.memory_share = memory_limit or (share_of_candidate(device) if role == "candidate" else None)
        try:
            message = {
                "op": "construct",
                "role": role,
                "device": str(device),
                "path": path,
                "problem": problem.path,
                "size": size,
                "seed": seed,
                "training": model.training,
                "tf32": {"own": Tf32.here().to_json(), "policy": Tf32.under(policy).to_json()},
                "memory_limit_bytes": self.memory_share,
                "arguments": constructor_arguments(problem, seed),
                "state": {
                    name: _form(value) for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)
                },
            }
            reply = self._ask(
                message, "constructing " + ("ModelNew" if role == "candidate" else "Model"), "constructor-raised"
            )
            with self._reading("being loaded"):
                self.settings_at_load = texts(reply.get("settings"))
                self.missing = texts(reply.get("missing"))
            self.arenas.make("outputs", _OUTPUT_SLACK)
            self.arenas.make("repeated", _OUTPUT_SLACK)
            self.adopt(model)
        except BaseException:
            self.close()
            raise

    def renew(self, seconds: float | None) -> None:
        """From now on it has `seconds` for its answers."""
        self.host.deadline = None if seconds is None else time.monotonic() + seconds

    def grant(self, seconds: float) -> None:
        """Its answers may come so much later."""
        if self.host.deadline is not None:
            self.host.deadline += seconds

    def _ask(
        self, message: dict[str, Any], doing: str, code: str = "forward-raised", descriptor: int | None = None
    ) -> dict[str, Any]:
        if message["op"] not in _TIMED:
            self._give_back_memory()
        try:
            return self.host.ask({**message, "doing": doing, "code": code, "problem": self.problem.path}, descriptor)
        except Ended as end:
            raise candidate_error(end.code, f"{self.subject} {end.what} while {doing}.") from None

    def _give_back_memory(self) -> None:
        """What PyTorch keeps of a GPU's memory for this process, the candidate's cannot have."""
        if self.device.type == "cuda" and is_scarce(self.device):
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _reading(self, doing: str) -> Iterator[None]:
        """Whatever is wrong with the form of an answer is the candidate's fault."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError):
            raise candidate_error(
                "broken-protocol", f"{self.subject} wrote something else than an answer while {doing}."
            ) from None

    # State

    @torch.no_grad()
    def adopt(self, model: torch.nn.Module) -> None:
        tensors: list[torch.Tensor] = []
        placed: dict[int, dict[str, Any]] = {}
        end = 0

        def place(tensor: torch.Tensor) -> dict[str, Any]:
            nonlocal end
            known = placed.get(id(tensor))
            if known is None:
                known = placed[id(tensor)] = _form(tensor) | {"at": end, "bytes": tensor.nbytes}
                tensors.append(tensor)
                end += aligned(tensor.nbytes)
            return known

        given = {slot.name: slot.tensor for slot in slots(model)}
        by_storage = {(tensor.data_ptr(), tensor.shape, tensor.stride()): tensor for tensor in given.values()}
        state, objects = {}, {}
        for name, value in model.state_dict().items():
            if isinstance(value, torch.Tensor):
                state[name] = place(by_storage.get((value.data_ptr(), value.shape, value.stride()), value))
            else:
                objects[name] = pickled(value, [])
        self.arenas.make("state", max(end + sum(aligned(tensor.nbytes) for tensor in given.values()), 1))
        named = {name: place(tensor) for name, tensor in given.items()}
        for tensor in tensors:
            self.arenas.put("state", placed[id(tensor)]["at"], tensor.detach())
        self._synchronise()
        self._model = model
        doing = "loading Model's state into ModelNew"
        reply = self._ask({"op": "adopt", "dict": state, "objects": objects, "slots": named}, doing, "state-dict")
        with self._reading(doing):
            self._strides = dict(reply.get("strides") or {})

    def rewind(self) -> None:
        self._ask({"op": "rewind"}, "putting state back")

    # Inputs

    @torch.no_grad()
    def _send_inputs(self, inputs: Inputs) -> None:
        """The inputs' bytes, and, where their form or anything but tensors is new, that."""
        tensors: list[torch.Tensor] = []
        text = pickled(inputs.values, tensors)
        places: dict[int, tuple[int, torch.Tensor]] = {}
        forms, end = [], 0
        for tensor in tensors:
            memory = storage_bytes(tensor)
            key = memory.data_ptr()
            if key not in places:
                places[key] = end, memory
                end += aligned(memory.numel())
            forms.append(describe(tensor) | {"at": places[key][0], "bytes": memory.numel() if tensor.numel() else 0})
        self.arenas.make("inputs", max(end, 1))
        arena = self.arenas["inputs"]
        self._sent = list(places.values())
        self._shared = {}
        for at, memory in self._sent:
            if memory.numel() and memory.data_ptr() != arena.bytes(at, memory.numel()).data_ptr():
                arena.bytes(at, memory.numel()).copy_(memory)
        if self.shares_large and self.arenas.can_share and is_large(end, self.device):
            for tensor, form in zip(tensors, forms):
                if form["bytes"]:
                    tensor.data = shaped(
                        arena.bytes(form["at"], form["bytes"]),
                        tensor.dtype,
                        form["shape"],
                        form["stride"],
                        form["offset"],
                    )
            self._shared = {name: metrics.fingerprint(tensor) for name, tensor in inputs.tensors().items()}
            self._sent = []
        self._synchronise()
        if self._inputs != (text, forms, self.private):
            message = {"op": "inputs", "values": text, "tensors": forms, "private": self.private}
            self._ask(message, "taking its inputs")
            self._inputs = text, forms, self.private

    def _changed_inputs(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """What a call left in its inputs where that is not what it was given."""
        arena = self.arenas["inputs"]
        if self._shared:
            return {
                name: tensor.clone()
                for name, tensor in inputs.tensors().items()
                if metrics.fingerprint(tensor) != self._shared[name]
            }
        if all(same_bytes(arena.bytes(at, memory.numel()), memory) for at, memory in self._sent if memory.numel()):
            return {}
        assert self._inputs is not None
        changed = {}
        for (name, tensor), form in zip(inputs.tensors().items(), self._inputs[1]):
            if form["bytes"]:
                theirs = shaped(
                    arena.bytes(form["at"], form["bytes"]), tensor.dtype, form["shape"], form["stride"], form["offset"]
                )
                if metrics.fingerprint(theirs) != metrics.fingerprint(tensor):
                    changed[name] = theirs.clone().to(tensor.device)
        return changed

    # Calls

    def run(
        self,
        inputs: Inputs,
        seed: int,
        doing: str,
        *,
        guarded: bool = False,
        with_gradients: bool = False,
        with_state: bool = True,
        with_outputs: bool = True,
    ) -> Outcome:
        """`with_state` also says that this is a draw's first call: further ones leave what it has returned as it is."""
        try:
            return self._run(inputs, seed, doing, guarded, with_gradients, with_state, with_outputs)
        except (torch.OutOfMemoryError, Error) as error:
            if self.device.type != "cuda" or isinstance(error, Error) and error.code != "out-of-memory":
                raise
        # Once more, when every process has given back what it does not use.
        torch.cuda.empty_cache()
        self.rewind()
        return self._run(inputs, seed, doing, guarded, with_gradients, with_state, with_outputs)

    def _run(
        self,
        inputs: Inputs,
        seed: int,
        doing: str,
        guarded: bool,
        with_gradients: bool,
        with_state: bool,
        with_outputs: bool,
    ) -> Outcome:
        self._send_inputs(inputs)
        self._calls += 1
        self._outputs = "outputs" if with_state else "repeated"
        message = {
            "op": "call",
            "outputs": self._outputs,
            "export": with_outputs,
            "number": self._calls,
            "drop": self._dropped,
            "seed": seed,
            "guarded": guarded,
            "gradients": with_gradients,
        }
        self._dropped = []
        reply = self._ask(message, doing)
        if with_gradients:  # which kernels do not compute
            reply["fallbacks"] = []
        return self._outcome(reply, inputs, doing, with_state)

    def timed_outcome(self, inputs: Inputs) -> Outcome:
        """What the last timed call has left, as `run` has it."""
        self._calls += 1
        self._outputs, doing = "outputs", "being timed"
        reply = self._ask({"op": "timed", "outputs": self._outputs, "number": self._calls}, doing)
        return self._outcome(reply, inputs, doing, with_state=True)

    def _outcome(self, reply: dict[str, Any], inputs: Inputs, doing: str, with_state: bool) -> Outcome:
        changed = self._changed_inputs(inputs)
        relaid: list[str] = []
        with self._reading(doing):
            tensors, constants, ranges = self._taken_outputs(reply, doing)
            held = {str(name): span_of(span) for name, span in dict(reply["held"]).items()}
            bounded(len(held) * len(ranges), _MOST_PAIRS)
            shares = {
                name: other
                for name, span in ranges.items()
                if (other := next((other for other, theirs in held.items() if meet(span, theirs)), None))
            }
            faults = {
                "guard-bands": texts(reply["guards"]),
                "no-leftover-work": other_streams(reply["late"], reply["busy_ms"]),
                "global-state": texts(reply["settings"]),
            }
            generators = [
                torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
                for text in texts(reply["generators"], LONGEST_STATE)
            ]
            self.threads = texts(reply["threads"])
            structure, form = str(reply["structure"]), str(reply["form"])[:LONGEST_TEXT]
            marks = {f"output[{index}]": set(texts(leaf.get("marks"))) for index, leaf in enumerate(reply["leaves"])}
            self.fallbacks += texts(reply["fallbacks"])
        state = self._changed_state(doing, relaid) if with_state else {}
        faults["weights-unchanged"] = [f"forward has laid {name} out anew in memory." for name in relaid]
        left = Outcome(
            tensors | changed | state,
            constants,
            structure,
            shares,
            generators,
            ranges=ranges,
            faults=faults,
            form=form,
            marks=marks,
        )
        self._numbers[id(left)] = self._calls
        # What stands in the arena itself is gone with the next call.
        self._marks[id(left)] = {
            name: metrics.fingerprint(tensor)
            for name, tensor in left.outputs.items()
            if is_large(tensor.nbytes, self.device)
        }
        return left

    def _taken_outputs(
        self, reply: dict[str, Any], doing: str
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, tuple[int, int]]]:
        leaves = reply["leaves"]
        if any("odd" in leaf for leaf in leaves):
            raise odd_output(next(str(leaf["odd"])[:200] for leaf in leaves if "odd" in leaf))
        named = {f"output[{index}]": leaf for index, leaf in enumerate(leaves)}
        forms = {name: leaf for name, leaf in named.items() if "constant" not in leaf}
        constants = {name: Constant(*texts(leaf["constant"])) for name, leaf in named.items() if "constant" in leaf}
        if reply["exported"] is not True:
            self.arenas.make(self._outputs, bounded(reply["total"], free_memory(self.device) // 2))
            reply = self._ask({"op": "outputs", "number": self._calls, "outputs": self._outputs}, doing)
            forms = dict(zip(forms, reply["forms"]))
        return (
            {name: self.arenas.taken(self._outputs, form) for name, form in forms.items()},
            constants,
            {name: span_of(form["range"]) for name, form in forms.items()},
        )

    def _changed_state(self, doing: str, relaid: list[str]) -> dict[str, torch.Tensor]:
        """The parameters and buffers that the call changed, as they are now; `relaid` gets the names of those whose
        strides it changed.
        """
        given = {f"{slot.kind} {slot.name}": slot.tensor for slot in slots(self._model) if slot.kind != "attribute"}
        if not given:
            return {}
        names = [name.partition(" ")[2] for name in given]
        self._outputs = "repeated"
        self.arenas.make(self._outputs, sum(aligned(slot.tensor.nbytes) for slot in slots(self._model)) + _OUTPUT_SLACK)
        reply = self._ask({"op": "state", "names": names, "outputs": self._outputs}, doing)
        if reply.get("exported") is not True:
            raise candidate_error("state-dict", "ModelNew's parameters and buffers have grown to more than Model's.")
        changed = {}
        with self._reading(doing):
            for name, form in zip(texts(reply["names"]), reply["forms"]):
                if name not in given or "odd" in form:
                    continue
                theirs, own = self.arenas.taken(self._outputs, form), given[name].detach()
                if form["stride"] != self._strides.get(name, form["stride"]):
                    relaid.append(name)
                is_same = theirs.dtype == own.dtype and theirs.shape == own.shape
                if not is_same or metrics.fingerprint(theirs) != metrics.fingerprint(own):
                    changed[name] = theirs.clone()
        return changed

    def altered(self, earlier: Outcome) -> list[str]:
        doing = "giving an earlier call's outputs"
        self._outputs = "repeated"
        self.arenas.make(
            self._outputs, sum(aligned(tensor.nbytes) for tensor in earlier.outputs.values()) + _OUTPUT_SLACK
        )
        reply = self._ask({"op": "outputs", "number": self._numbers[id(earlier)], "outputs": self._outputs}, doing)
        large = self._marks[id(earlier)]
        found = []
        with self._reading(doing):
            if reply["exported"] is not True:
                raise ValueError("they have grown")
            for (name, tensor), form in zip(earlier.outputs.items(), reply["forms"]):
                mark = large.get(name) or metrics.fingerprint(tensor)
                if "odd" in form or metrics.fingerprint(self.arenas.taken(self._outputs, form)) != mark:
                    found.append(name)
        return found

    def release(self, earlier: Outcome) -> None:
        self._marks.pop(id(earlier), None)
        if (number := self._numbers.pop(id(earlier), None)) is not None:
            self._dropped.append(number)

    def rest(self) -> None:
        if self.device.type == "cuda":
            self._ask({"op": "rest", "drop": self._dropped}, "giving back memory")
            self._dropped = []

    def activity(self) -> RemoteActivity:
        return RemoteActivity(self.host, self.live_threads, knows_pools=self.device.type == "cpu")

    # Timing

    def first_call(self, inputs: Inputs, limit_seconds: float | None = None) -> None:
        if limit_seconds is not None:
            self.host.deadline, self.host.limit_seconds = time.monotonic() + limit_seconds, limit_seconds
        try:
            self.release(self.run(inputs, 0, "running forward", with_state=False, with_outputs=False))
        except Error as error:
            if limit_seconds is None or error.code != "hung":
                raise
            raise TimeoutError(f"took longer than {limit_seconds:.0f} s to compile") from None
        finally:
            if limit_seconds is not None:
                self.host.deadline = None

    def timer(self, inputs: Inputs, reserve: int | None = None) -> None:
        self._ask({"op": "timer", "reserve": reserve}, "being timed")
        self.clocks = Clocks()
        for number in range(_EMPTY_SAMPLES):
            self._send_inputs(inputs)
            self._timed_sample(empty=True, counts=number > 0)

    def sample(self, inputs: Inputs, seed: int = 0) -> float:
        self._send_inputs(inputs)
        return self._timed_sample(empty=False, seed=seed)

    def _timed_sample(self, empty: bool, counts: bool = True, seed: int = 0) -> float:
        doing = "being timed"
        wait_until_idle(os.getpid(), self.device.type)
        with self._reading(doing):
            if self._ask({"op": "sample", "empty": empty, "seed": seed}, doing)["ready"] is not True:
                raise ValueError("it is not ready")
            try:
                began = time.perf_counter()
                reply = self.host.go()
                taken = (time.perf_counter() - began) * 1e3
            except Ended as end:
                raise candidate_error(end.code, f"{self.subject} {end.what} while {doing}.") from None
            theirs = milliseconds(reply["ms"])
        wait_until_idle(self.host.process(), self.device.type)
        if counts:
            self.clocks.note(taken, theirs, empty)
        return theirs

    def wall(self, inputs: Inputs, repeats: int) -> float:
        doing = "being timed"
        with self._reading(doing):
            return milliseconds(self._ask({"op": "wall", "repeats": repeats}, doing)["ms"])

    def peak_memory(self, inputs: Inputs) -> int:
        self._send_inputs(inputs)
        doing = "running forward"
        with self._reading(doing):
            return int(self._ask({"op": "peak"}, doing)["bytes"])

    def profile(self, inputs: Inputs, kernels: list[str]) -> Profile:
        doing = "being profiled"
        reply = self._ask({"op": "profile", "kernels": kernels}, doing)
        with self._reading(doing):
            return profile_of(reply)

    def processor_seconds(self) -> float:
        return self.host.processor_seconds()

    def untold_ms(self) -> float:
        return self.clocks.untold_ms()

    def live_threads(self) -> list[str]:
        """Names of the threads that its process's threading module knows, besides the first."""
        doing = "telling its threads"
        reply = self._ask({"op": "threads"}, doing)
        with self._reading(doing):
            self.threads = texts(reply.get("threads"))
        return self.threads

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.host.close()
        self.arenas.close()


def _form(tensor: torch.Tensor) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape)}
