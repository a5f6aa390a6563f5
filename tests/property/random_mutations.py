"""Random programs that update memory in place: the text of a module whose forward writes to buffers, inputs, views
of them and `out=` arguments.

A program is made statement by statement, each tried in eager PyTorch: what raises, or leaves numbers in which no error
could be told from rounding, is left out again. Nothing is drawn but from the seed, so a program is its seed.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re
import warnings
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# {u}, {w}, {v}: tensors there are; {n}: a new name. Places that stand twice get one number, for PyTorch takes any of
# several.
VIEWS = [
    "{n} = {u}[1:]",
    "{n} = {u}[:-1]",
    "{n} = {u}[::2]",
    "{n} = {u}[..., 1:]",
    "{n} = {u}[..., :-1]",
    "{n} = {u}[0]",
    "{n} = {u}[..., 0]",
    "{n} = {u}[..., ::2]",
    "{n} = {u}.t()",
    "{n} = {u}.transpose(0, -1)",
    "{n} = {u}.unsqueeze(0)",
    "{n} = {u}.unsqueeze(-1)",
    "{n} = {u}.view(-1)",
    "{n} = {u}.reshape(-1)",
    "{n} = {u}.expand(2, *{u}.shape)",
    "{n} = {u}.expand({w}.shape)",
    "{n} = {u}.diagonal()",
    "{n} = {u}.narrow(0, 1, 2)",
    "{n} = {u}.chunk(2)[-1]",
    "{n} = {u}.unfold(-1, 2, 1)",
    "{n} = {u}.detach()",
    "{n} = {u}.contiguous()",
    "{n} = {u}.view({w}.shape)",
    "{n} = {u}.reshape({w}.shape)",
    "{n} = {u}.to(torch.float32)",
    "{n} = {u}.squeeze()",
    "{n} = {u}.as_strided((2,), (1,), 1)",
]
COPIES = [
    "{n} = {u} * 0.5 + 0.1",
    "{n} = torch.sigmoid({u})",
    "{n} = {u} - {w}",
    "{n} = {u} + {w}",
    "{n} = {u} * {w}",
    "{n} = {u}.mean(0)",
    "{n} = {u}.mean(-1, keepdim=True)",
    "{n} = {u}.clone()",
    "{n} = {u}.mean()",
    "{n} = torch.softmax({u}, -1)",
    "{n} = torch.cumsum({u}, 0) * 0.1",
    "{n} = torch.cat([{u}, {w}])",
    "{n} = torch.maximum({u}, {w})",
    "{n} = {u}.flip(0)",
    "{n} = torch.roll({u}, 1, 0)",
    "{n} = torch.stack([{u}, {w}])",
    "{n} = {u}[self.at]",
    "{n} = {u}.index_select(0, self.at)",
    "{n} = torch.tanh({u} @ {w})",
    "{n} = {u}.amax(-1)",
    "{n} = {u}.sub({w}, alpha=0.1)",
    "{n} = torch.nn.functional.pad({u}, (1, 1))",
    "{n} = torch.relu({u})",
    "{n} = torch.zeros_like({u})",
    "{n} = torch.full_like({u}, 0.5)",
    "{n} = torch.where(self.mask, {u}, {w})",
]
UPDATES = [
    "{u}.add_({w})",
    "{u}.mul_(0.9)",
    "{u}.mul_(0.9).add_({w}, alpha=0.1)",
    "{u}.copy_({w})",
    "{u}.sub_({u}.mean())",
    "{u}.sub_({u}.mean(0))",
    "{u}.sub_({u}.mean(-1, keepdim=True))",
    "{u}.div_({u}.norm(dim=-1, keepdim=True) + 1)",
    "{u}.sigmoid_()",
    "{u}.clamp_(-1, 1)",
    "{u}.zero_()",
    "{u}.fill_(0.3)",
    "{u}.lerp_({w}, 0.3)",
    "{u}.addcmul_({w}, {v}, value=0.1)",
    "{u}[0] = {w}",
    "{u}[1:] = {w}",
    "{u}[..., 0] += {w}",
    "{u} += {w}",
    "{u} -= {u}",
    "{u}[1:] += {u}[:-1].clone()",
    "{u}[1:] = {u}[:-1].clone()",
    "{u}[:-1] -= {u}[1:] * 0.5",
    "{u}.index_add_(0, self.at, {w})",
    "{u}.index_copy_(0, self.at, {w})",
    "{u}[self.at] = {w}",
    "{u}[self.at] += 0.5",
    "{u}.scatter_(0, self.places, 0.5)",
    "{u}.scatter_add_(0, self.places, {w})",
    "{u}.masked_fill_(self.mask, 0.1)",
    "{u}.index_fill_(0, self.at, 0.5)",
    "{u}.relu_()",
    "torch.nn.functional.relu({u}, inplace=True)",
    "{n} = {u}.add_(1)",
    "{u}.copy_({u}.flip(0))",
    "{u}.copy_({u}.t())",
    "{u}.copy_(torch.roll({u}, 1, 0))",
    "{n} = {u}.clone(); {u}.copy_({w}); {w}.copy_({n})",
    "{u}.index_put_((self.at,), {w}, accumulate=True)",
    "{u}.copy_(torch.cumsum({u}, 0) * 0.1)",
    "{u}.cumsum_(0).mul_(0.1)",
    "{u}.addmm_({w}, {v}, alpha=0.1)",
    "{u}.diagonal().add_(0.5)",
    "{u}[...] = {w}",
    "{u}.mul_({w}).add_({u})",
    "{u}.mul_({u})",
    "{u}.neg_().add_({w})",
    "{u}.where(self.mask, {u}.zero_())",
    "{u}.sub_({w}.mean(0))",
    "{u}.mul_(0.9).add_({w}.mean(0), alpha=0.1)",
    "{u}.square_().add_({w}, alpha=0.1)",
    "{u}.tanh_()",
    "{u}.unsqueeze(0).mul_(0.5)",
    "{u}.view(-1)[1:].mul_(0.5)",
    "{u}.t().sub_({w})",
    "{u}.mul_(0.9).add_({w}.mean(0), alpha=0.1); {n} = {w} - {u}",
    "{n} = {u} * 2; {u}.copy_({w})",
    "{u}.lerp_({w}.mean(-1), 0.1); {n} = ({w} - {u}.unsqueeze(-1)).amax(0)",
    "{n} = {u}.softmax(-1); {u}.add_({n}); {n} = {u}.sum(0)",
    "{u}.mul_(0.5); {n} = {u} + {w}; {u}.sub_({n}, alpha=0.1)",
]
OUT_ARGUMENTS = [
    "torch.add({u}, {w}, out={v})",
    "torch.mul({u}, 0.5, out={v})",
    "torch.sum({u}, 0, out={v})",
    "torch.mean({u}, -1, out={v})",
    "torch.sigmoid({u}, out={v})",
    "torch.cumsum({u}, 0, out={v})",
    "{n} = torch.maximum({u}, {w}, out={v})",
    "torch.clamp({u}, -1, 1, out={v})",
    "torch.index_select({u}, 0, self.at, out={v})",
    "torch.cat([{u}, {w}], out={v})",
    "torch.mm({u}, {w}, out={v})",
    "{n} = torch.sub({u}, {w}, out={u})",
    "torch.addcmul({u}, {w}, {v}, value=0.1, out={u})",
    "torch.softmax({u}, -1, out={v})",
    "torch.mean({u}, -1, keepdim=True, out={v})",
    "torch.amax({u}, 0, out={v})",
]


@dataclass
class Program:
    """A module and the call it is made for. `expressions` of inputs may name earlier ones: they alias them."""

    name: str
    buffers: dict[str, str]  # name → expression in __init__
    inputs: dict[str, str]  # name → expression, in order
    call_inputs: dict[str, str]  # as `inputs`, at the calls, where they differ from those at capture
    body: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The problem file."""
        lines = [
            "import torch",
            "",
            "",
            "class Model(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
        ]
        lines += [f"        {expression}" for expression in self.buffers.values()]
        lines += [
            "",
            f"    def forward(self, {', '.join(self.inputs)}):",
            *(f"        {line}" for line in self.body),
            "",
            "",
        ]
        for name, inputs in (("get_inputs", self.inputs), ("call_inputs", self.call_inputs)):
            lines += [
                f"def {name}(m=None):",
                *(f"    {one} = {expression}" for one, expression in inputs.items()),
                f"    return [{', '.join(inputs)}]",
                "",
                "",
            ]
        return "\n".join([*lines, "def get_init_inputs():", "    return []", ""])

    def namespace(self) -> dict[str, Any]:
        space: dict[str, Any] = {"__name__": self.name}
        exec(compile(self.text, self.name + ".py", "exec"), space)
        return space


def random_program(seed: int) -> Program:
    """The program of a seed: one to eight statements that eager PyTorch takes, and a result."""
    draw = random.Random(seed)
    program = _frame(draw, seed)
    names = [
        *program.inputs,
        *(
            name
            for name in program.buffers
            if name.startswith("self.") and name not in ("self.at", "self.places", "self.mask")
        ),
    ]
    wanted, tried, fresh = draw.randint(1, 8), 0, 0
    if not runs(program, names):
        return random_program(seed + (1 << 32))
    written = False
    while len(program.body) < wanted and tried < 40:
        tried += 1
        family = draw.choices([VIEWS, COPIES, UPDATES, OUT_ARGUMENTS], [4, 3, 6, 1])[0]
        recent = names if draw.random() < 0.5 else names[-3:]
        statement = draw.choice(family).format(
            u=draw.choice(recent), w=draw.choice(names), v=draw.choice(names), n=f"v{fresh}"
        )
        candidate = copy.copy(program)
        candidate.body = [*program.body, statement]
        if not runs(candidate, names):
            continue
        program, written = candidate, written or family in (UPDATES, OUT_ARGUMENTS)
        if statement.startswith(f"v{fresh} "):
            names.append(f"v{fresh}")
            fresh += 1
    if not written:
        return random_program(seed + (1 << 32))
    count = draw.choice([1, 1, 2, 3])
    chosen = [draw.choice(names[-4:] if draw.random() < 0.6 else names) for _ in range(count)]
    program.body.append("return " + ", ".join(chosen))
    return program


def _frame(draw: random.Random, seed: int) -> Program:
    rows = draw.choice([2, 3, 4, 4, 5, 8, 16, 33])
    columns = rows if draw.random() < 0.25 else draw.choice([2, 3, 4, 8, 17, 64])
    if draw.random() < 0.04:
        rows, columns = draw.choice([(64, 640), (300, 128), (40, 1100)])
    dtype = draw.choice(["float32", "float32", "float32", "float64"])
    shapes = [(rows, columns), (rows, columns), (columns,), (rows, 1), (rows,), (1, columns), (columns, rows)]

    def tensor(place: int) -> str:
        shape, salt = draw.choice(shapes if place else shapes[:2]), draw.randint(1, 99)
        flat = f"torch.sin(torch.arange({math.prod(shape)}, dtype=torch.float64) * {salt}.7).to(torch.{dtype}).view"
        return f"{flat}{shape}" if draw.random() < 0.85 or len(shape) < 2 else f"{flat}{shape[::-1]}.t()"

    buffers: dict[str, str] = {}
    for place in range(draw.choice([0, 1, 1, 2, 2, 3])):
        name = f"b{place}"
        made = tensor(place)
        if place and draw.random() < 0.1:
            made = f"self.b{place - 1}"
        kind = draw.random()
        if kind < 0.8:
            buffers["self." + name] = f'self.register_buffer("{name}", {made})'
        elif kind < 0.9:
            buffers["self." + name] = f"self.{name} = {made}"
        else:
            buffers["self." + name] = f"self.{name} = torch.nn.Parameter({made})"
    at = [draw.randrange(2) for _ in range(draw.choice([1, 2, 3]))]
    buffers["self.at"] = f'self.register_buffer("at", torch.tensor({at}))'
    buffers["self.mask"] = f'self.register_buffer("mask", torch.arange({columns}) % 3 == 1)'
    buffers["self.places"] = (
        f'self.register_buffer("places", torch.arange({rows * columns}).view({rows}, {columns}) % 2)'
    )
    inputs = {f"x{place}": tensor(place) for place in range(draw.choice([1, 1, 2, 2, 3]))}
    call_inputs = dict(inputs)
    if len(inputs) > 1 and draw.random() < 0.1:
        call_inputs["x1"] = draw.choice(
            ["x0", "x0", "x0.view(-1)[: x0.numel()].view(x0.shape)", "x0[:1]", "x0.t()", "m.b0"]
        )
    elif draw.random() < 0.04:
        call_inputs["x0"] = "m.b0"
    return Program(f"program_{seed}", buffers, inputs, call_inputs)


class Ordered(TorchDispatchMode):
    """Raises where an operator writes to memory that it reads through another tensor, so that its result depends on
    the order of its own work.

    PyTorch promises nothing there and notices some of it. A pointwise operator may read the very elements that it
    writes.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(zip([one.name for one in func._schema.arguments], args)) | (kwargs or {})
        written = {
            one.name: given[one.name]
            for one in func._schema.arguments
            if one.alias_info and one.alias_info.is_write and isinstance(given.get(one.name), torch.Tensor)
        }
        for name, left in written.items():
            if len(elements(left)) < left.numel() and func._schema.name not in ("aten::zero_", "aten::fill_"):
                raise RuntimeError(f"{func} writes some elements more than once")
            others = [value for other, value in given.items() if other != name]
            for right in tree_leaves(others):
                if (
                    isinstance(right, torch.Tensor)
                    and overlap(left, right)
                    and not (_places(left) == _places(right) and torch.Tag.pointwise in func.tags)
                ):
                    raise RuntimeError(f"{func} reads what it writes")
        return func(*args, **(kwargs or {}))


def _places(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tensor.shape, tensor.stride())


def overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have a byte in common."""
    if left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return False

    return left.dtype != right.dtype or not elements(left).isdisjoint(elements(right))


def elements(tensor: torch.Tensor) -> set[int]:
    """Their places in the storage."""
    if tensor.is_contiguous():
        return set(range(tensor.storage_offset(), tensor.storage_offset() + tensor.numel()))
    storage = torch.arange(tensor.untyped_storage().nbytes() // tensor.element_size())
    return set(storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).flatten().tolist())


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """What PyTorch warns of (an `out=` that is resized) counts as an error."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        yield


def runs(program: Program, names: list[str]) -> bool:
    """Whether eager PyTorch takes two calls, and every tensor stays finite and small."""
    probe = copy.copy(program)
    probe.body = [*program.body, "return [" + ", ".join([*names, *_assigned(program)]) + "]"]
    space = probe.namespace()
    try:
        with strict(), Ordered():
            model = space["Model"]()
            inputs = space["call_inputs"](model)
            if any(
                left.shape != right.shape or left.stride() != right.stride() or left.dtype != right.dtype
                for left, right in zip(inputs, space["get_inputs"]())
            ):
                return False
            for _ in range(2):
                made = model(*inputs)
                if not all(isinstance(one, torch.Tensor) and one.numel() <= 1 << 18 for one in made):
                    return False
                if not all(
                    bool(one.isfinite().all()) and float(one.double().abs().max()) < 100 for one in made if one.numel()
                ):
                    return False
    except Exception:
        return False
    return True


def _assigned(program: Program) -> list[str]:
    return [found[1] for line in program.body if (found := re.match(r"(v\d+) = ", line))]
