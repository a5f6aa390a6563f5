"""The memory that the judge shares with one candidate's process: what it lends by name, and tensors that are put there
or taken from there (host/arena.py).
"""

from __future__ import annotations

import base64
import contextlib
from typing import Any, Callable

import torch

from ..errors import candidate_error
from ..host.arena import (
    DeviceArena,
    HostArena,
    SharingRefused,
    dtype_of,
    overlaps_itself,
    with_strides,
)
from ..running.limits import free_memory, is_large
from .answers import bounded

_GAP = 64  # how many times its elements an output's memory may reach, to be taken with its gaps

Ask = Callable[[dict[str, Any], "int | None"], dict[str, Any]]  # a message and a descriptor → the answer


class SharedArenas:
    """`ask` puts a message to the process. `inputs_of`: arenas whose "inputs" serve for these too where they are large.
    `subject` is who is to blame where the memory is not taken.
    """

    def __init__(self, ask: Ask, device: torch.device, subject: str, inputs_of: SharedArenas | None) -> None:
        self._ask, self._device, self._subject, self._inputs_of = ask, device, subject, inputs_of
        self._made: list[HostArena | DeviceArena] = []
        self._named: dict[str, HostArena | DeviceArena] = {}
        self.can_share = True  # what lies on the device; until a GPU's memory is refused

    def __getitem__(self, name: str) -> HostArena | DeviceArena:
        return self._named[name]

    def make(self, name: str, size: int) -> None:
        """Memory of at least `size` bytes under that name."""
        held = self._named.get(name)
        if held is not None and held.size >= size:
            return
        theirs = None
        if name == "inputs" and self._inputs_of is not None and is_large(size, self._device):
            theirs = self._inputs_of._named.get(name)
        if theirs is not None and theirs.size >= size and self._offer(name, theirs):
            return
        if self._device.type == "cuda" and self.can_share:
            with contextlib.suppress(SharingRefused):
                made = DeviceArena(size, self._device)
                self._made.append(made)
                if self._offer(name, made):
                    return
            self.can_share = False
        shared = HostArena(size)
        self._made.append(shared)
        if not self._offer(name, shared):
            raise candidate_error("broken-protocol", f"{self._subject} did not take the memory that it was given.")

    def _offer(self, name: str, arena: HostArena | DeviceArena) -> bool:
        """Have the process open the memory; False where it cannot reach it."""
        message = {"op": "arena", "name": name, "size": arena.size}
        if isinstance(arena, DeviceArena):
            message |= {"kind": "device", "handle": base64.b64encode(arena.handle).decode()}
            reply = self._ask(message, None)
        else:
            reply = self._ask({**message, "kind": "host"}, arena.descriptor)
        if reply.get("shared") is not True:
            return False
        self._named[name] = arena
        return True

    def put(self, name: str, at: int, tensor: torch.Tensor) -> None:
        """The elements of a tensor, densely."""
        if tensor.nbytes:
            place = self[name].bytes(at, tensor.nbytes).view(tensor.dtype).view(tensor.shape)
            place.copy_(tensor.resolve_conj().resolve_neg())

    def taken(self, name: str, form: dict[str, Any]) -> torch.Tensor:
        """What stands there, with the strides that it has in the process: a copy, but for what takes so much of a GPU's
        memory that two are too many. A form that is no tensor's raises, ValueError among others.
        """
        dtype = dtype_of(form["dtype"])
        shape, stride = [int(size) for size in form["shape"]], [int(step) for step in form["stride"]]
        device = torch.device("cpu" if form["device"] == "cpu" else self._device)
        plain = torch.empty(shape, dtype=dtype, device="meta")
        arena = self[name]
        reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if plain.numel() else 0
        if (
            len(stride) != len(shape)
            or min(stride, default=0) < 0
            or plain.nbytes > arena.size
            or reach > _GAP * plain.numel() + 4096
            or reach * dtype.itemsize > free_memory(device)
        ):
            raise ValueError("no such tensor")
        if not plain.nbytes:
            return torch.empty_strided(shape, stride, dtype=dtype, device=device)
        memory = arena.bytes(bounded(form["at"], arena.size - plain.nbytes), plain.nbytes)
        given = memory.view(dtype).view(shape)
        if memory.is_cuda and is_large(plain.nbytes, self._device) and list(plain.stride()) == stride:
            return given
        if overlaps_itself(shape, stride):
            bounded(8 * reach, free_memory(device))
        return with_strides(given, stride, device)

    def close(self) -> None:
        self._named.clear()
        for arena in self._made:
            arena.close()
        self._made.clear()
