"""Runs kernels with consumers (printed in Gluon) on NumPy: Triton's interpreter knows no warps with work of their own.

Each part of a block is a thread. What is asynchronous happens as late as the program allows: copies land in random
order, only once somebody waits for them, and products are computed when they are waited for, from what shared memory
holds then. A program that forgets a wait, or lets the producer overwrite what is still read, gives wrong numbers; one
that waits for what never comes is a deadlock, which is an error.
"""

from __future__ import annotations

import functools
import itertools
import random
import threading
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np

PATIENCE = 20.0  # seconds until a wait counts as a deadlock


class Tile(np.ndarray):
    def to(self, dtype: Any, bitcast: bool = False) -> Tile:
        return tile(self.view(dtype) if bitcast else self.astype(dtype))


def tile(values: Any, dtype: Any = None) -> Tile:
    return np.asarray(values, dtype).view(Tile)


class Pointer:
    """Elements of a flat buffer."""

    __array_priority__ = 1000

    def __init__(self, memory: np.ndarray, offset: Any = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + np.asarray(more))

    __radd__ = __add__


def load(pointer: Pointer, mask: Any = True, other: Any = 0) -> Tile:
    places, mask = np.broadcast_arrays(pointer.offset, mask)
    found = pointer.memory[np.where(mask, places, 0)]
    return tile(np.where(mask, found, np.asarray(other, found.dtype)))


def store(pointer: Pointer, value: Any, mask: Any = True) -> None:
    places, value, mask = np.broadcast_arrays(pointer.offset, value, mask)
    pointer.memory[places[mask]] = value[mask]


class Shared:
    """A part of shared memory; permuted, it is the same memory."""

    def __init__(self, memory: np.ndarray, simulator: Simulator) -> None:
        self.memory, self.simulator = memory, simulator

    def index(self, place: Any) -> Shared:
        return Shared(self.memory[int(place)], self.simulator)

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.memory.transpose(order), self.simulator)

    def reshape(self, shape: list[int]) -> Shared:
        return Shared(self.memory.reshape(shape), self.simulator)

    def load(self, layout: Any) -> Tile:
        return tile(self.memory.copy())

    def store(self, values: Any) -> None:
        self.memory[...] = values
        self.simulator.mine().unfenced = True


class Barrier:
    """One mbarrier: a phase ends when all have arrived and all bytes that were announced have landed."""

    def __init__(self, block: Block) -> None:
        self.block, self.count, self.arrived, self.bytes, self.phase = block, 0, 0, 0, 0

    def settle(self) -> None:
        if self.arrived == self.count and self.bytes == 0:
            self.arrived, self.phase = 0, self.phase + 1
            self.block.changed.notify_all()


class Block:
    """What the parts of one block share."""

    def __init__(self, seed: int) -> None:
        self.changed = threading.Condition()
        self.copies: list[tuple[Callable[[], None], Barrier, int]] = []
        self.chance = random.Random(seed)

    def land_one(self) -> bool:
        if not self.copies:
            return False
        copy, barrier, size = self.copies.pop(self.chance.randrange(len(self.copies)))
        copy()
        barrier.bytes -= size
        barrier.settle()
        return True

    def wait(self, barrier: Barrier, parity: int) -> None:
        with self.changed:
            while (barrier.phase - 1) % 2 != parity % 2:
                if not self.land_one() and not self.changed.wait(PATIENCE):
                    raise RuntimeError("a deadlock: nothing ends the phase that is waited for")


class Window:
    def __init__(
        self, base: Pointer, shape: list[int], strides: list[int], block_shape: list[int], layout: Any
    ) -> None:
        self.base, self.shape, self.strides, self.widths = base, shape, strides, block_shape

    def box(self, origin: list[int]) -> np.ndarray:
        """Zeros outside of the buffer."""
        return load(*self.places(origin))

    def places(self, origin: list[int]) -> tuple[Pointer, Any]:
        places: Any = 0
        inside: Any = True
        for start, size, stride, width, place in zip(
            origin, self.shape, self.strides, self.widths, itertools.count(1 - len(self.widths))
        ):
            along = (int(start) + np.arange(width)).reshape(-1, *[1] * -place)
            places, inside = places + along * stride, inside & (along >= 0) & (along < size)
        return self.base + places, inside


class Product:
    """A sum of products, which is computed once somebody has waited for it."""

    def __init__(self, left: Shared | Tile, right: Shared, start: Any) -> None:
        self.left, self.right, self.start = left, right, start
        self.found: Tile | None = None

    def value(self) -> Tile:
        if self.found is None:
            start = self.start.value() if isinstance(self.start, Product) else self.start
            left = self.left if isinstance(self.left, Tile) else self.left.memory
            self.found = tile(start + left.astype(np.float32) @ self.right.memory.astype(np.float32))
        return self.found


class Simulator:
    """The names that printed kernels use. `run` makes one launch of them."""

    def __init__(self) -> None:
        self.block, self.program, self.grid = Block(0), 0, 1
        mbarrier = SimpleNamespace(
            MBarrierLayout=lambda: Barrier, init=self._init, wait=self._wait, expect=self._expect, arrive=self._arrive
        )
        tma = SimpleNamespace(
            make_tensor_descriptor=Window,
            async_copy_global_to_shared=self._copy,
            async_copy_shared_to_global=self._store,
            store_wait=self._wait_for_stores,
        )
        self.threads = threading.local()
        self.hopper = SimpleNamespace(
            mbarrier=mbarrier,
            tma=tma,
            warpgroup_mma=self._multiply,
            warpgroup_mma_wait=self._product,
            fence_async_shared=self._fence,
        )
        layout = SimpleNamespace(get_default_for=lambda shape, dtype: None)
        self.gl = SimpleNamespace(
            constexpr=int,
            float16=np.float16,
            float32=np.float32,
            int32=np.int32,
            int64=np.int64,
            NVMMASharedLayout=layout,
            NVMMADistributedLayout=lambda **options: None,
            DotOperandLayout=lambda *place: None,
            SliceLayout=lambda *place: None,
            BlockedLayout=lambda *shape: None,
            convert_layout=lambda values, layout: values,
            static_range=range,
            allocate_shared_memory=self._allocate,
            warp_specialize=self._specialize,
            arange=lambda low, high: tile(np.arange(low, high)),
            full=lambda shape, value, dtype, layout=None: tile(np.full(shape, value, dtype)),
        )
        self.tl = SimpleNamespace(
            constexpr=int,
            float16=np.float16,
            float32=np.float32,
            int32=np.int32,
            int64=np.int64,
            PropagateNan=SimpleNamespace(ALL=None),
            program_id=lambda axis: self.program,
            num_programs=lambda axis: self.grid,
            minimum=lambda left, right, propagate_nan=None: tile(np.minimum(left, right)),
            maximum=lambda left, right, propagate_nan=None: tile(np.maximum(left, right)),
            where=lambda condition, left, right: tile(np.where(condition, left, right)),
            load=load,
            store=store,
            exp=np.exp,
            abs=np.abs,
            exp2=np.exp2,
            log2=np.log2,
            floor=np.floor,
            sum=np.sum,
            reduce=lambda values, axis, combine: functools.reduce(combine, np.moveaxis(values, axis, 0)),
        )

    def names(self) -> dict[str, Any]:
        keep = SimpleNamespace(jit=lambda function: function)
        return {"gluon": keep, "triton": keep, "gl": self.gl, "tl": self.tl, "hopper": self.hopper}

    def run(self, kernel: Callable[..., None], blocks: int, buffers: list[np.ndarray]) -> None:
        self.grid = blocks
        for self.program in range(blocks):
            self.block = Block(self.program)
            kernel(*(Pointer(one.reshape(-1)) for one in buffers))
            if self.block.copies:
                raise RuntimeError("the block ends while copies are under way")

    def _allocate(self, dtype: Any, shape: list[int], layout: Any) -> Any:
        if layout is Barrier:
            barriers = [Barrier(self.block) for _ in range(shape[0])]
            return SimpleNamespace(index=lambda place: barriers[int(place)])
        return Shared(np.full(shape, np.nan, dtype), self)

    def mine(self) -> Any:
        """What a thread has under way: copies to global memory, products, and shared memory that the engine does not
        see yet."""
        if not hasattr(self.threads, "stores"):
            self.threads.stores, self.threads.unfenced, self.threads.products = [], False, []
        return self.threads

    def _fence(self) -> None:
        self.mine().unfenced = False

    def _store(self, window: Window, origin: list[int], place: Shared) -> None:
        if self.mine().unfenced:
            raise RuntimeError("the engine copies what it does not see yet")

        def copy() -> None:
            pointer, inside = window.places(origin)
            store(pointer, place.memory, inside)

        self.mine().stores.append(copy)

    def _wait_for_stores(self, left_under_way: int) -> None:
        assert left_under_way == 0
        for copy in self.mine().stores:
            copy()
        self.mine().stores.clear()

    def _init(self, barrier: Barrier, count: int) -> None:
        barrier.count = count

    def _wait(self, barrier: Barrier, parity: int) -> None:
        barrier.block.wait(barrier, parity)

    def _expect(self, barrier: Barrier, size: int) -> None:
        with barrier.block.changed:
            barrier.bytes += size
            barrier.arrived += 1

    def _arrive(self, barrier: Barrier, count: int, pred: Any = True) -> None:
        if not pred:
            return
        with barrier.block.changed:
            barrier.arrived += count
            barrier.settle()

    def _copy(self, window: Window, origin: list[int], barrier: Barrier, place: Shared) -> None:
        def copy() -> None:
            place.memory[...] = window.box(origin)

        with barrier.block.changed:
            barrier.block.copies.append((copy, barrier, place.memory.nbytes))
            barrier.block.changed.notify_all()

    def _multiply(
        self, left: Shared | Tile, right: Shared, start: Any, use_acc: bool = True, is_async: bool = False
    ) -> Any:
        product = Product(left, right, start if use_acc else 0 * start)
        self.mine().products.append(product)
        return product

    def _product(self, left_under_way: int, deps: list[Product]) -> Any:
        """All but the last `left_under_way` that were started are done."""
        products = self.mine().products
        while len(products) > left_under_way:
            products.pop(0).value()
        return deps[0] if deps[0] in products else deps[0].value()

    def _specialize(self, parts: list[Any], warps: list[int], registers: list[int]) -> None:
        faults: list[BaseException] = []

        def work(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
            try:
                function(*arguments)
                if self.mine().stores:
                    raise RuntimeError("a part of the block ends while its stores are under way")
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work, args=part) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
