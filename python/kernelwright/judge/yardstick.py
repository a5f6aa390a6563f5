"""What a candidate is held against, draw by draw: the module in eager, and the reference in double precision.

None of it depends on the candidate, so it can be made before there is one (`ahead`), as far as memory allows.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch
from torch.utils import _pytree as pytree

from ..running import guards
from ..running import problem as problems
from ..running.limits import free_memory, limit_memory
from ..running.seeding import seed_everything
from ..running.state import Snapshot, StateCopy
from ..running.tf32 import precision
from . import draws
from .buffers import OtherBuffers
from .reference import Record, Reference
from .runs import Inputs, InputsCopy, Outcome, fingerprints, held_tensors, module_tensors, outcome
from .ties import Ties
from .ties import operators as operators_with_ties
from .work import is_one_function, keeps_subnormals, multiplies_matrices, reorders_sums

# Buffers that can be moved by a rounding: 8-bit floats are codes.
_MOVABLE = {torch.float16, torch.bfloat16, torch.float32, torch.float64}

# Operators that abort the process, or poison the GPU's context, on values outside a range that only the problem's
# generator knows.
_ASSERTING = {
    "aten::binary_cross_entropy",
    "aten::multinomial",
    "aten::bernoulli",
    "aten::bernoulli_.Tensor",
    "aten::poisson",
    "aten::_assert_async",
    "aten::_assert_async.msg",
}

# What draws made ahead may hold on to.
_AHEAD_BYTES = 1 << 30

# Weights and inputs of a GPU's problem that the host may have to compute as well.
_HOST_BYTES = 1 << 26


@dataclass
class Draw:
    """One draw's yardstick. `eager` and `reference` are empty where `error` says what eager raised on it."""

    number: int
    kind: str
    seed: int
    error: Exception | None = None
    eager: Outcome = field(default_factory=lambda: Outcome({}, {}, ""))
    reference: dict[str, torch.Tensor] = field(default_factory=dict)
    is_double: bool = True
    leaves_ties_open: bool = False
    keeps_signs_of_zeros: bool = False
    keeps_subnormals: bool = False
    is_one_function: bool = False
    multiplies_matrices: bool = False
    reorders_sums: bool = False
    summands: int = 1
    strides_with_gradients: dict[str, tuple[int, ...]] | None = None  # of eager's results, once somebody asked

    @property
    def forward_seed(self) -> int:
        return draws.derive_seed(self.seed, "forward")

    def size(self) -> int:
        tensors = [*self.eager.tensors.values(), *self.reference.values()]
        return sum(tensor.nbytes for tensor in tensors)


@dataclass
class _Kept:
    """A draw made ahead, with the state and the inputs that belong to it; without them where no later one has replaced
    them.
    """

    draw: Draw
    state: StateCopy | None
    inputs: InputsCopy | None

    def restore(self) -> None:
        if self.state is not None and self.inputs is not None:
            self.state.restore()
            self.inputs.restore()


class Yardstick:
    """A problem's model and inputs, which stand as the draw that was asked for last needs them."""

    def __init__(self, params: dict[str, Any]) -> None:
        seed = int(params["seed"])
        self.seed = seed
        self.device = torch.device(problems.check_device(params.get("device") or "cpu"))
        self.policy = params.get("tolerance_policy") or "reference"
        self.kinds = draws.kinds(int(params.get("draws") or 5))
        # A path, or for modules in memory (api.py) the thing itself.
        given = params["problem"]
        self.problem = given if isinstance(given, problems.Problem) else problems.load(given, params.get("size"))
        limit_memory(params.get("memory_limit_bytes"), self.device)
        self.construction_seed = draws.derive_seed(seed, "construct")
        self.model = self.problem.construct(self.device, seed=self.construction_seed)
        self.reference = Reference(self.problem, self.device, self.construction_seed)
        self._host: Reference | None = None
        self.inputs = Inputs(self.problem, self.device)
        self.seconds_ahead = 0.0
        self._bounded = False
        self._keeps_subnormals = False
        self.constants: tuple[float, ...] = ()
        self._buffers: OtherBuffers | None = None
        self._kept: dict[int, _Kept] = {}
        self._written: set[str] = set()

    def ahead(self) -> Iterator[None]:
        """Make the draws one by one, for `draw` to hand out later; ends where memory says so."""
        limit = min(_AHEAD_BYTES, free_memory(self.device) // 16)
        held = size = 0
        for number in range(len(self.kinds)):
            if held + size > limit:
                return
            began = time.monotonic()
            with _spare_threads(self.device):
                draw = self._make(number)
            self.seconds_ahead += time.monotonic() - began
            size = draw.size() + sum(tensor.nbytes for tensor in held_tensors(self.model, self.inputs).values())
            held += size
            if held > limit and number:
                return
            fits = held <= limit
            self._kept[number] = _Kept(
                draw, StateCopy(self.model) if fits else None, InputsCopy(self.inputs) if fits else None
            )
            yield

    def rewind(self) -> None:
        """Put the model back into the state in which it was constructed, which `ahead` has left."""
        if 0 in self._kept:
            self._kept[0].restore()

    def draw(self, number: int) -> Draw:
        """Draw `number`, with model and inputs as it has them. To be asked for in order: weights are redrawn from those
        before.
        """
        kept = self._kept.pop(number, None)
        if kept is None:
            return self._make(number)
        kept.restore()
        return kept.draw

    def refill(self, draw: Draw, anyway: bool = False) -> None:
        """Put back the inputs where eager changes them, or `anyway`."""
        if anyway or draw.eager.changes("input"):
            self.fill(draw)

    def fill(self, draw: Draw, seed: int | None = None) -> None:
        """The inputs of this draw, or with another seed other inputs of its kind."""
        self.inputs.fill(
            draw.kind,
            draw.seed if seed is None else seed,
            self._bounded,
            self.constants,
            subnormals=self._keeps_subnormals,
        )

    def run_eager(self, seed: int, around: contextlib.AbstractContextManager | None = None) -> tuple[Outcome, Record]:
        """Eager from the current state and inputs, which it leaves as they were but for inputs that it changes.
        `around`: a mode to run it in.
        """
        snapshot = Snapshot(self.model)
        before = fingerprints(held_tensors(self.model, self.inputs))
        seed_everything(seed)
        with torch.no_grad(), precision(self.policy), Record() as record, around or contextlib.nullcontext():
            result = self.model(*self.inputs.values)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        left = outcome(result, self.model, self.inputs, before)
        self._add_written(left)
        snapshot.restore()
        return left, record

    def strides_with_gradients(self, draw: Draw) -> dict[str, tuple[int, ...]]:
        """The strides of eager's results where gradients are wanted: PyTorch then has other kernels for some modules
        (self-attention in eval mode), and a caller that bears both may be given either. Empty where eager cannot be run
        so. Leaves model and inputs as they are before a call."""
        if draw.strides_with_gradients is None:
            draw.strides_with_gradients = {}
            snapshot = Snapshot(self.model)
            self.refill(draw)
            with contextlib.suppress(Exception):
                left, _ = self.run_eager(draw.forward_seed, torch.enable_grad())
                draw.strides_with_gradients = {name: tensor.stride() for name, tensor in left.tensors.items()}
            snapshot.restore()  # where eager raised half-way
            self.refill(draw)
        return draw.strides_with_gradients

    def _add_written(self, left: Outcome) -> None:
        """Buffers that an earlier draw has shown eager to write to count as changed, though every bit may be what it
        was: the mean of zeros is zero, and a candidate's may be a little beside it.
        """
        held = module_tensors(self.model)
        for name in self._written:
            if name in held and name not in left.tensors:
                left.tensors[name] = held[name].detach().clone()
        self._written |= set(left.changes("buffer"))

    def _find_silent_writes(self, draw: Draw) -> None:
        """Buffers into which eager writes what they hold anyway on the first draw (the running mean of samples that a
        norm made opposite is 0 and stays 0, where a candidate's mean is off by a rounding): one more run, in which
        they hold something a little beside, shows them. Only where eager changes other buffers."""
        unchanged = {
            name: tensor
            for name, tensor in module_tensors(self.model).items()
            if name.startswith("buffer") and tensor.dtype in _MOVABLE and name not in draw.eager.tensors
        }
        if not unchanged or not draw.eager.changes("buffer"):
            return
        snapshot = Snapshot(self.model)
        self.refill(draw)
        for tensor in unchanged.values():
            move_from_zero(tensor)
        # An exception says only that these contents are none that forward bears.
        with contextlib.suppress(Exception):
            self.run_eager(draw.forward_seed)
        snapshot.restore()
        self._add_written(draw.eager)
        self.refill(draw)

    def _make(self, number: int) -> Draw:
        draw = Draw(number, self.kinds[number], draws.derive_seed(self.seed, "draw", number))
        if number:
            draws.redraw_weights(self.model, draw.seed)
            self._redraw_buffers(number)
        self.fill(draw)
        return self.completed(draw)

    def completed(self, draw: Draw) -> Draw:
        """With eager's outcome and the reference's on the inputs and weights as they are."""
        try:
            draw.eager, record = self._eager_that_bears_its_buffers(draw)
        except Exception as error:
            draw.error = error
            return draw
        if draw.number == 0:
            self._bounded = bool(record.operators & _ASSERTING)
            self.constants = tuple(sorted(record.constants))
            self._keeps_subnormals = self.device.type == "cpu" and keeps_subnormals(record.calls)
            self._find_silent_writes(draw)
        draw.leaves_ties_open = bool(record.operators & operators_with_ties())
        draw.keeps_signs_of_zeros = record.keeps_signs_of_zeros and bool(record.calls)
        draw.keeps_subnormals = self.device.type == "cpu" and keeps_subnormals(record.calls)
        draw.is_one_function = is_one_function(record.calls)
        draw.multiplies_matrices = multiplies_matrices(record.calls)
        draw.reorders_sums, draw.summands = reorders_sums(record.calls), record.summands
        self.refill(draw)
        draw.reference = self._reference(draw.eager, draw.forward_seed, record.drawn)
        draw.is_double = self.reference.is_double
        return draw

    def _redraw_buffers(self, number: int) -> None:
        """Every other draw has other buffers, the first has the model's own."""
        if self._buffers is None:
            self._buffers = OtherBuffers(self.problem, self.model, self.device, draws.derive_seed(self.seed, "buffers"))
        self._buffers.put(own=number % 2 == 0)

    def _eager_that_bears_its_buffers(self, draw: Draw) -> tuple[Outcome, Record]:
        """Eager on this draw; with the model's own buffers from now on where it raises or answers with NaN otherwise."""
        if self._buffers is None or not self._buffers.other or draw.number % 2 == 0:
            return self.run_eager(draw.forward_seed)
        try:
            eager, record = self.run_eager(draw.forward_seed)
            if draw.kind == "special" or not _has_nan(eager):
                return eager, record
            raised = False
        except Exception:
            raised = True
        self._buffers.put(own=True)
        self.fill(draw)
        eager, record = self.run_eager(draw.forward_seed)
        if raised or not _has_nan(eager):
            self._buffers.forget()
        return eager, record

    def run_again(self, draw: Draw, ties: Ties) -> tuple[Outcome, dict[str, torch.Tensor]]:
        """Eager and the reference on this draw with another choice among equal elements."""
        self.refill(draw)
        eager, record = self.run_eager(draw.forward_seed, ties)
        self.refill(draw)
        return eager, self._reference(eager, draw.forward_seed, record.drawn, ties.anew())

    def reference_on_host(self, draw: Draw) -> dict[str, torch.Tensor] | None:
        """A draw's reference by PyTorch's kernels for the host; None where it is theirs anyway, or would take long."""
        size = sum(tensor.nbytes for tensor in held_tensors(self.model, self.inputs).values())
        if self.reference.device.type == "cpu" or size > _HOST_BYTES:
            return None
        if self._host is None:
            self._host = Reference(self.problem, torch.device("cpu"), self.construction_seed)
        self.refill(draw)
        eager, record = self.run_eager(draw.forward_seed)
        self.refill(draw)
        found = self._reference(eager, draw.forward_seed, record.drawn, by=self._host)
        return found if self._host.is_double else None

    def _reference(
        self,
        eager: Outcome,
        seed: int,
        drawn: list[tuple[str, Any]],
        around: contextlib.AbstractContextManager | None = None,
        by: Reference | None = None,
    ) -> dict[str, torch.Tensor]:
        """The reference's value of every tensor in `eager`."""
        reference = by or self.reference
        got = reference.run(self.model, self.inputs.values, seed, drawn, around)
        if got is None:
            return dict(eager.tensors)
        result, arguments, module = got
        values = {
            f"output[{index}]": leaf
            for index, leaf in enumerate(pytree.tree_leaves(result))
            if isinstance(leaf, torch.Tensor)
        }
        state = module_tensors(module)
        values |= Inputs.named(arguments) | state
        for name, tensor in eager.tensors.items():
            if name not in values or values[name].shape != tensor.shape:
                reference.give_up(f"{name} has another shape in double precision")
                return dict(eager.tensors)
        return {name: _own(values[name].detach(), state) for name in eager.tensors}


@torch.no_grad()
def move_from_zero(tensor: torch.Tensor) -> None:
    """Change every finite element a little, away from zero: one that is cast to an integer stays the same one."""
    step = max(2.0**-20, torch.finfo(tensor.dtype).eps)
    tensor.copy_(torch.where(tensor == 0, step, tensor * (1 + step)))


def _has_nan(left: Outcome) -> bool:
    floats = (tensor for tensor in left.outputs.values() if tensor.is_floating_point() or tensor.is_complex())
    return any(bool(tensor.isnan().any()) for tensor in floats)


def _own(tensor: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """`tensor`, or a copy where the next draw's run would overwrite it."""
    return tensor.clone() if any(guards.overlap(tensor, other) for other in state.values()) else tensor


@contextlib.contextmanager
def _spare_threads(device: torch.device) -> Iterator[None]:
    """Leave one core of the CPU to the process that captures meanwhile, which all wait for."""
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(before - 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
