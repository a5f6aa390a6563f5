"""ExportedProgram → Graph JSON (docs/worker-protocol.md, "Graph JSON")."""

from __future__ import annotations

import keyword
import operator
import os
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from .. import errors
from ..running.tf32 import Tf32
from . import access
from .call_json import DTYPES, call_names, call_path, constant_data, forward_signature, literal, number, result_shape
from .schemas import Schema, is_default

VERSION = 1

_IDENTITIES = frozenset({"aten.alias.default", "aten.detach.default", "aten.lift_fresh.default"})
# Checks that export itself adds, or whose failure would be an error rather than another result.
_CHECKS = re.compile(
    r"aten\.(_assert_\w+|sym_constrain_range\w*|_functional_assert_async|_functional_sym_constrain\w*)\."
)
_WITH_EFFECTS = torch.ops.higher_order.with_effects
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_user_file(path: str) -> bool:
    """Whether a frame of this file is the user's code rather than PyTorch's or ours."""
    return not path.startswith("<") and not os.path.abspath(path).startswith((_TORCH_FOLDER, _OWN_FOLDER))


@dataclass
class Origin:
    """Where a graph comes from. `path` is the user's file, or "" for a module given in memory; `plain` holds the dotted
    names of tensor attributes that became buffers for the export; `contained` the expressions of tensors in lists and
    dicts, by id.
    """

    name: str
    path: str
    model: torch.nn.Module
    plain: set[str] = field(default_factory=set)
    contained: dict[int, str] = field(default_factory=dict)
    training: bool = True
    requires_grad: set[str] = field(default_factory=set)
    same: list[tuple[str, str]] = field(
        default_factory=list
    )  # names of one tensor of which the graph knows the first alone

    def is_user_file(self, path: str) -> bool:
        """Whether a frame of the file `path` is the user's code: the problem file or, without one, all but PyTorch's
        and ours.
        """
        return path == self.path if self.path else is_user_file(path)


def unsupported_effect(operator: Any) -> errors.Error:
    return errors.user_error(
        "unsupported-effect",
        f"forward calls an operator that does more than compute its results ({operator}).",
        hint="Leave that part to PyTorch, outside the module.",
    )


def refuse_effects(program: torch.export.ExportedProgram) -> None:
    """Raises for an operator that returns nothing and writes to nothing: it prints, or checks what is known at run time
    alone. Decomposing a program drops some of them, in PyTorch before 2.13 more."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            target = node.target
            if not isinstance(target, OpOverload) or target.namespace == "profiler" or _CHECKS.match(str(target)):
                continue
            if not target._schema.returns and not target._schema.is_mutable:
                raise unsupported_effect(target)


def serialise(
    program: torch.export.ExportedProgram, origin: Origin, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The Graph JSON of a functional, decomposed program that was exported from `origin.model` with (fake) `args` and
    `kwargs`.
    """
    return _Writer(program, origin).write(args, kwargs)


class _Writer:
    def __init__(self, program: torch.export.ExportedProgram, origin: Origin) -> None:
        self.program = program
        self.origin = origin
        self.values: list[dict[str, Any]] = []
        self.names: dict[str, int] = {}
        self.ids: dict[str, Any] = {}  # fx node name → value id, or a list of one id a result
        self.locations: dict[str | None, str] = {}
        self.schemas: dict[OpOverload, Schema] = {}
        self.data_constants: set[int] = set()  # values of constants whose elements travel with the graph

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        signature = self.program.graph_signature
        expressions = access.tensor_expressions(self.origin.model)
        inputs = self.write_inputs(args, kwargs, expressions)
        nodes = self.write_nodes()
        outputs: list[dict[str, Any]] = []
        leaves: list[dict[str, Any]] = []
        for spec in signature.output_specs:
            if isinstance(spec.arg, TensorArgument):
                if spec.kind is OutputKind.USER_OUTPUT:
                    leaves.append({"output": len(outputs)})
                outputs.append({"value": self.ids[spec.arg.name], **self.output_kind(spec)})
            elif isinstance(spec.arg, ConstantArgument):
                leaves.append({"constant": literal(spec.arg.value)})
            else:
                raise errors.user_error(
                    "data-dependent",
                    "forward returns a number that depends on the values in its inputs.",
                    hint="Return a tensor instead.",
                )
        return {
            "version": VERSION,
            "name": self.origin.name,
            "training": self.origin.training,
            **{f"tf32_{kind}": allowed for kind, allowed in Tf32.here().to_json().items()},
            "values": self.values,
            "inputs": inputs,
            "nodes": nodes,
            "outputs": outputs,
            "result": result_shape(self.program.call_spec.out_spec, leaves),
            "user_inputs": self.user_inputs,
            "signature": forward_signature(self.origin.model),
            "source": {
                "path": self.origin.path,
                "class": type(self.origin.model).__name__,
                **self.same_tensors(expressions),
                **self.beginnings(inputs),
            },
            "bytes": self.count_bytes(inputs, outputs),
        }

    # -- inputs and outputs

    def write_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], expressions: dict[str, str]
    ) -> list[dict[str, Any]]:
        placeholders = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        paths = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
        parameter_names = call_names(self.origin.model, args)
        user_specs = [spec for spec in self.program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        if len(paths) != len(user_specs):
            raise errors.internal_error(
                "user-inputs", f"The export has {len(user_specs)} user inputs where the call has {len(paths)}."
            )
        inputs: list[dict[str, Any]] = []
        self.user_inputs: list[dict[str, Any]] = []
        self.user_targets: dict[str, str] = {}  # placeholder → "args.0"
        users = iter(paths)
        for spec in self.program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                keys, leaf = next(users)
                path = call_path(keys)
                described: dict[str, Any] = {
                    "path": path,
                    "name": parameter_names.get((path[0], path[1]), str(path[1])),
                }
                if isinstance(spec.arg, TensorArgument):
                    value = self.add_input(
                        placeholders[spec.arg.name], "_".join([described["name"], *map(str, path[2:])])
                    )
                    self.user_targets[spec.arg.name] = ".".join(map(str, path))
                    inputs.append(
                        {
                            "value": value,
                            "kind": "user",
                            "target": self.user_targets[spec.arg.name],
                            "access": described["name"],
                            "requires_grad": bool(getattr(leaf, "requires_grad", False)),
                            "path": path,
                        }
                    )
                    self.user_inputs.append({**described, "value": value})
                else:
                    self.user_inputs.append({**described, "constant": literal(leaf)})
                continue
            if spec.kind is InputKind.TOKEN:
                effect = next(one for one in placeholders[spec.arg.name].users if one.target is _WITH_EFFECTS)
                raise unsupported_effect(effect.args[1])
            if not isinstance(spec.arg, TensorArgument):
                made = getattr(spec.arg, "class_fqn", "") or spec.target
                raise errors.user_error(
                    "unsupported-constant",
                    f"forward uses an object that is not a tensor and cannot be captured ({made.rpartition('.')[2]}).",
                    hint="Use tensors, numbers and the standard containers in forward, and the default random number generator.",
                )
            inputs.append(self.held_input(spec, placeholders[spec.arg.name], expressions))
        return inputs

    def held_input(self, spec: Any, placeholder: torch.fx.Node, expressions: dict[str, str]) -> dict[str, Any]:
        target = spec.target
        value = self.add_input(placeholder, target)
        described = {
            "value": value,
            "kind": "constant",
            "target": target,
            "access": expressions.get(target),
            "requires_grad": False,
            "path": None,
        }
        if spec.kind is InputKind.PARAMETER:
            described.update(kind="parameter", requires_grad=target in self.origin.requires_grad)
        elif spec.kind is InputKind.BUFFER:
            described.update(kind="constant" if target in self.origin.plain else "buffer")
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            tensor = self.program.constants[target]
            described["access"] = self.origin.contained.get(id(tensor))
            if described["access"] is None:
                described["data"] = constant_data(tensor, target)
                self.data_constants.add(value)
        else:
            raise errors.user_error(
                "unsupported-constant",
                f"forward uses an object of kind {spec.kind.name.lower()} that cannot be captured: {target}.",
                hint="Use tensors, numbers and the standard containers in forward.",
            )
        return described

    def same_tensors(self, expressions: dict[str, str]) -> dict[str, Any]:
        return {"same": [[expressions[name] for name in pair] for pair in self.origin.same]} if self.origin.same else {}

    def beginnings(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Where in their memory the inputs begin of which forward makes a view that counts from there."""
        by_value = {one["value"]: one for one in inputs}
        found = {}
        for node in self.program.graph.nodes:
            if node.target is torch.ops.aten.as_strided.default and _argument(node, "storage_offset", 3) is not None:
                value = self.ids[_viewed(node).name]
                if value in by_value:
                    held = by_value[value]
                    found[value] = [held["kind"] == "user", held["target"], self.values[value]["offset"]]
        return {"begins": list(found.values())} if found else {}

    def output_kind(self, spec: Any) -> dict[str, str]:
        if spec.kind is OutputKind.USER_OUTPUT:
            return {"kind": "user", "target": ""}
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            return {"kind": "input_mutation", "target": self.user_targets[spec.target]}
        return {"kind": "buffer_mutation", "target": spec.target}

    # -- nodes

    def write_nodes(self) -> list[dict[str, Any]]:
        nodes = []
        for node in self.program.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            target = node.target
            if target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
                self.ids[node.name] = self.ids[node.args[0].name][node.args[1]]
            elif isinstance(target, OpOverload):
                name = str(target)
                if name in _IDENTITIES or self.folds_into_constant(node, name):
                    self.ids[node.name] = self.ids[node.args[0].name]
                elif not _CHECKS.match(name):
                    self.refuse_resized(node, name)
                    nodes.append(self.write_node(node, target, name))
            else:
                raise self.unsupported(node)
        return nodes

    def refuse_resized(self, node: torch.fx.Node, name: str) -> None:
        """Raises where an `out=` that PyTorch resizes was a part of another tensor: the trace then writes the result
        over memory of another shape."""
        if name != "aten.slice_scatter.default":
            return
        (whole, part), rest = (argument.meta["val"] for argument in node.args[:2]), node.args[2:]
        given = dict(zip(("dim", "start", "end", "step"), rest)) | node.kwargs
        dim = given.get("dim", 0)
        shape = list(whole.shape)
        shape[dim] = len(range(*slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(shape[dim])))
        if list(part.shape) != shape:
            raise errors.user_error(
                "resized-output",
                f"forward writes a result of shape {tuple(part.shape)} to a part of a tensor that has shape {tuple(shape)}"
                " (`out=`), which PyTorch resizes and traces wrongly.",
                where=self.location(node),
                hint="Give `out=` the shape of the result.",
            )

    def folds_into_constant(self, node: torch.fx.Node, name: str) -> bool:
        """Whether `node` only copies or moves a constant whose data travels with the graph; a move changes the
        constant's device.

        `torch.tensor(2.0, device=x.device)` in forward becomes a constant, its copy, and a move of the copy.
        """
        if name not in ("aten.clone.default", "aten._to_copy.default") or len(node.args) != 1:
            return False
        source = node.args[0]
        made = node.meta["val"]
        constant = self.ids.get(source.name)
        users = [user for user in source.users if not _CHECKS.match(str(user.target))]
        if constant not in self.data_constants or len(users) != 1 or any(user.op == "output" for user in node.users):
            return False
        value = self.values[constant]
        if DTYPES.get(made.dtype) != value["dtype"] or list(made.stride()) != value["strides"]:
            return False
        value["device"] = made.device.type
        return True

    def write_node(self, node: torch.fx.Node, op: OpOverload, name: str) -> dict[str, Any]:
        schema = self.schemas.get(op)
        if schema is None:
            schema = self.schemas[op] = Schema(op)
        args = []
        position, given = 0, len(node.args)
        for argument in schema.arguments:
            if position < given:
                value = node.args[position]
                position += 1
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                continue
            if argument.has_default and is_default(value, argument.default):
                continue
            encoded = self.encode(value, argument.is_tensor_list, node)
            if encoded is not _OMIT and not (argument.name == "pin_memory" and encoded is False):
                args.append([argument.name, encoded])
        if name == "aten.matmul.default":
            name, args = _plain_product(name, args, node)
        location = self.location(node)
        made = node.meta.get("val")
        if isinstance(made, torch.Tensor):
            results = [self.add_value(made, node.name, location)]
            self.ids[node.name] = results[0]
        elif isinstance(made, (list, tuple)):
            results = []
            for index, item in enumerate(made):
                if item is not None and not isinstance(item, torch.Tensor):
                    raise self.unsupported(node)
                results.append(
                    -1 if item is None else self.add_value(item, schema.result_name(node.name, index), location)
                )
            self.ids[node.name] = results
        elif made is None:
            results = []
        else:
            raise self.unsupported(node)
        encoded_node: dict[str, Any] = {"op": name, "args": args, "results": results, "location": location}
        if isinstance(made, (list, tuple)) and len(results) == 1:
            encoded_node["in_list"] = True
        return encoded_node

    def encode(self, value: Any, is_tensor_list: bool, node: torch.fx.Node) -> Any:
        if isinstance(value, torch.fx.Node):
            found = self.ids.get(value.name)
            if not isinstance(found, int):
                raise self.unsupported(node)
            return {"v": found}
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return number(value)
        if isinstance(value, (list, tuple)):
            if is_tensor_list or any(isinstance(item, torch.fx.Node) for item in value):
                return {"vs": [None if item is None else self.encode(item, False, node)["v"] for item in value]}
            return {"list": [self.encode(item, False, node) for item in value]}
        if isinstance(value, str):
            return {"s": value}
        if isinstance(value, torch.dtype):
            return {"dtype": self.dtype(value, self.location(node))}
        if isinstance(value, torch.device):
            return {"device": value.type}
        if isinstance(value, torch.layout):
            return _OMIT if value is torch.strided else {"layout": str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.")}
        if isinstance(value, complex):
            where, source = self.place(node)
            raise errors.user_error(
                "unsupported-constant",
                f"forward computes with the complex number {value}.",
                where=where,
                source=source,
                hint="Use a complex tensor instead.",
            )
        raise self.unsupported(node)

    def unsupported(self, node: torch.fx.Node) -> errors.Error:
        where, source = self.place(node)
        target = node.target
        if isinstance(target, HigherOrderOperator):
            return errors.user_error(
                "higher-order",
                f"forward uses {target.name()}, which has functions as arguments and cannot be captured.",
                where=where,
                source=source,
                hint=_HIGHER_ORDER_HINTS.get(target.name(), "Rewrite this part with ordinary tensor operations."),
            )
        if node.op == "get_attr":
            used = next((user.target for user in node.users if isinstance(user.target, HigherOrderOperator)), None)
            if used is not None:
                return self.unsupported(next(iter(node.users)))
            message = f"forward uses {target}, an object that cannot be captured."
            return errors.user_error(
                "unsupported-constant", message, where=where, source=source, hint="Use tensors and numbers in forward."
            )
        return errors.user_error(
            "data-dependent",
            f"A shape or number in forward depends on the values in its inputs ({target}).",
            where=where,
            source=source,
            hint="Kernels are made for fixed shapes: use torch.where and masks instead of .item(), nonzero() or boolean indexing.",
        )

    # -- values

    def add_input(self, placeholder: torch.fx.Node, name: str) -> int:
        value = self.add_value(placeholder.meta["val"], name, "")
        self.ids[placeholder.name] = value
        return value

    def add_value(self, tensor: torch.Tensor, name: str, location: str) -> int:
        try:
            shape = [int(size) for size in tensor.shape] if _static(tensor.shape) else None
            strides = (
                [int(stride) for stride in tensor.stride()]
                if shape is not None and tensor.layout is torch.strided
                else None
            )
        except RuntimeError:
            strides = shape = None
        if shape is None:
            raise errors.user_error(
                "data-dependent",
                "The shape of a tensor in forward depends on the values in its inputs.",
                **self.source_of(location),
                hint="Kernels are made for fixed shapes: use torch.where and masks instead of nonzero() or boolean indexing.",
            )
        if strides is None:
            raise errors.user_error(
                "unsupported-layout",
                f"A tensor of layout {tensor.layout} is not supported.",
                **self.source_of(location),
                hint="Use dense tensors.",
            )
        self.values.append(
            {
                "name": self.unique(name),
                "dtype": self.dtype(tensor.dtype, location),
                "shape": shape,
                "strides": strides,
                "offset": int(tensor.storage_offset()),
                "device": tensor.device.type,
            }
        )
        return len(self.values) - 1

    def unique(self, name: str) -> str:
        name = re.sub(r"\W", "_", name)
        if not name or name[0].isdigit() or keyword.iskeyword(name) or name == "self":
            name = "_" + name
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        if count == 0:
            return name
        return self.unique(f"{name}_{count}")

    def dtype(self, dtype: torch.dtype, location: str) -> str:
        if dtype not in DTYPES:
            raise errors.user_error(
                "unsupported-dtype",
                f"Tensors of type {str(dtype).removeprefix('torch.')} are not supported.",
                **self.source_of(location),
                hint="Supported are " + ", ".join(str(known).removeprefix("torch.") for known in DTYPES) + ".",
            )
        return DTYPES[dtype]

    def count_bytes(self, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, int]:
        sizes = [extent_bytes(value) for value in self.values]
        counted = {
            kind: sum(sizes[item["value"]] for item in inputs if item["kind"] == kind)
            for kind in ("user", "parameter", "buffer", "constant")
        }
        counted["output"] = sum(sizes[value] for value in {item["value"] for item in outputs})
        counted["largest"] = max(sizes, default=0)
        return counted

    # -- places

    def location(self, node: torch.fx.Node) -> str:
        trace = node.meta.get("stack_trace")
        found = self.locations.get(trace)
        if found is None:
            found = self.locations[trace] = self.find_location(trace or "")
        return found

    def find_location(self, trace: str) -> str:
        frames = _FRAME.findall(trace)
        for path, line in reversed(frames):
            if self.origin.is_user_file(path):
                return f"{os.path.basename(path)}:{line}"
        return ""

    def place(self, node: torch.fx.Node) -> tuple[str, str]:
        fields = self.source_of(self.location(node))
        return fields["where"], fields["source"]

    def source_of(self, location: str) -> dict[str, str]:
        if not location or not self.origin.path:
            return {"where": location, "source": ""}
        where, source = errors.line_of(self.origin.path, int(location.rpartition(":")[2]))
        return {"where": where, "source": source}


_HIGHER_ORDER_HINTS = {
    "wrap_with_set_grad_enabled": "Remove torch.enable_grad() from forward.",
    "wrap_with_autocast": "Convert with x.to(dtype) instead of torch.autocast.",
}

_OMIT = object()


def _argument(node: torch.fx.Node, name: str, position: int) -> Any:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name)


def _viewed(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor whose memory the views behind `node` look at."""
    while node.op == "call_function" and isinstance(node.args[0], torch.fx.Node):
        views = isinstance(node.target, OpOverload) and any(one.alias_info for one in node.target._schema.returns)
        if not views and node.target is not operator.getitem:
            break
        node = node.args[0]
    return node


def _plain_product(name: str, args: list[Any], node: torch.fx.Node) -> tuple[str, list[Any]]:
    """matmul of two matrices is mm, of two equal batches of matrices bmm; the general form stays whole."""
    left, right = (argument.meta["val"] for argument in node.args[:2])
    if left.dim() == right.dim() == 2:
        return "aten.mm.default", [["self", args[0][1]], ["mat2", args[1][1]]]
    if left.dim() == right.dim() == 3 and left.shape[0] == right.shape[0]:
        return "aten.bmm.default", [["self", args[0][1]], ["mat2", args[1][1]]]
    return name, args


def _static(shape: Any) -> bool:
    return all(type(size) is int or isinstance(size, int) for size in shape)


def extent_bytes(value: dict[str, Any]) -> int:
    """Bytes that a value occupies, the elements that an expanded one repeats counted once."""
    if 0 in value["shape"]:
        return 0
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value["shape"], value["strides"]))
    return extent * _ITEM_BYTES[value["dtype"]]


_ITEM_BYTES = {name: dtype.itemsize for dtype, name in DTYPES.items()}
