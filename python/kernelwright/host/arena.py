"""Memory that two processes share: the judge makes it, a candidate's process opens it.

On the CPU it is anonymous shared memory whose size is sealed; on a GPU memory of the driver's, shared by its own
handle where the driver permits that.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Any

import torch

ALIGNMENT = 512

_SEALS = 0x1 | 0x2 | 0x4  # no more seals, no shrinking, no growing: a file cut short would kill its reader
_ADD_SEALS = 1033
_PAGE = mmap.PAGESIZE


class SharingRefused(Exception):
    """The driver does not share GPU memory between these processes."""


def aligned(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


def dtype_of(name: str) -> torch.dtype:
    """The dtype of that name. Raises ValueError."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return found


class HostArena:
    """Bytes in shared memory of the CPU."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self.size = size
        if descriptor is None:
            descriptor = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, -(-max(size, 1) // _PAGE) * _PAGE)
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)

    def bytes(self, offset: int, count: int) -> torch.Tensor:
        """A one-dimensional uint8 tensor over `count` bytes (at least one), in a storage of its own."""
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=count, offset=offset)

    def close(self) -> None:
        """Give the descriptor back; the memory stays for as long as a tensor looks at it."""
        os.close(self.descriptor)


class _Driver:
    """The few calls of CUDA's driver that PyTorch does not offer."""

    HANDLE_BYTES = 64
    _PEER_ACCESS = 1

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _check(self, code: int) -> None:
        if code:
            raise SharingRefused(f"CUDA's driver answers {code}")

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_uint64()
        if self._library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)):
            raise torch.OutOfMemoryError(f"CUDA out of memory: {size} bytes to share with a candidate's process")
        return pointer.value

    def free(self, pointer: int) -> None:
        self._library.cuMemFree_v2(ctypes.c_uint64(pointer))

    def handle(self, pointer: int) -> bytes:
        handle = ctypes.create_string_buffer(self.HANDLE_BYTES)
        self._check(self._library.cuIpcGetMemHandle(handle, ctypes.c_uint64(pointer)))
        return handle.raw

    def open(self, handle: bytes) -> int:
        class Handle(ctypes.Structure):
            _fields_ = [("reserved", ctypes.c_char * self.HANDLE_BYTES)]

        given = Handle.from_buffer_copy(handle)
        pointer = ctypes.c_uint64()
        self._check(self._library.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), given, ctypes.c_uint(self._PEER_ACCESS)))
        return pointer.value

    def close(self, pointer: int) -> None:
        self._library.cuIpcCloseMemHandle(ctypes.c_uint64(pointer))


class _DeviceBytes:
    """What PyTorch makes a tensor of without copying."""

    def __init__(self, pointer: int, count: int) -> None:
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (pointer, False), "version": 2}


class DeviceArena:
    """Bytes in memory of a GPU. The process must have a context there already. Raises SharingRefused."""

    def __init__(self, size: int, device: torch.device, handle: bytes | None = None) -> None:
        self.size = size
        self.device = device
        self._driver = _Driver()
        self._is_owner = handle is None
        torch.zeros(1, device=device)  # makes the device's context the current one
        if handle is None:
            self.pointer = self._driver.allocate(max(size, ALIGNMENT))
            try:
                self.handle = self._driver.handle(self.pointer)
            except SharingRefused:
                self._driver.free(self.pointer)
                raise
        else:
            self.pointer = self._driver.open(handle)

    def bytes(self, offset: int, count: int) -> torch.Tensor:
        return torch.as_tensor(_DeviceBytes(self.pointer + offset, count), device=self.device)

    def close(self) -> None:
        """Free the memory, or let go of it: nobody may look at it any more."""
        torch.cuda.synchronize(self.device)
        if self._is_owner:
            self._driver.free(self.pointer)
        else:
            self._driver.close(self.pointer)


def shaped(
    memory: torch.Tensor, dtype: torch.dtype, shape: list[int], stride: list[int], offset: int = 0
) -> torch.Tensor:
    """A tensor over the bytes of `memory`, which begin with its storage."""
    return (
        memory.view(dtype).as_strided(shape, stride, offset)
        if dtype != torch.uint8
        else memory.as_strided(shape, stride, offset)
    )


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor's storage holds."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


_OVERLAPS = 1  # what PyTorch answers for a tensor some of whose elements share memory


def overlaps_itself(shape: list[int], stride: list[int]) -> bool:
    """Whether some elements of such a tensor share memory."""
    tensor = torch.empty_strided(shape, stride, device="meta")
    return torch._debug_has_internal_overlap(tensor) == _OVERLAPS or 0 in stride


def with_strides(tensor: torch.Tensor, stride: list[int], device: torch.device) -> torch.Tensor:
    """A copy on `device` whose elements lie so, though some of them may share memory."""
    copy = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=device)
    if not overlaps_itself(list(tensor.shape), stride):
        return copy.copy_(tensor)
    reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride))
    places = torch.arange(reach, device=device).as_strided(tensor.shape, stride)
    copy.as_strided((reach,), (1,))[places.reshape(-1)] = tensor.reshape(-1).to(device)
    return copy


_COMPARED_AT_ONCE = 1 << 28


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of as many bytes have the same ones. Not all at once: that takes as much memory again."""
    pairs = zip(one.split(_COMPARED_AT_ONCE), other.split(_COMPARED_AT_ONCE))
    return all(torch.equal(mine.to(theirs.device), theirs) for mine, theirs in pairs)


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """The form of a tensor, as messages have it."""
    return {
        "dtype": str(tensor.dtype)[6:],
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
    }
