"""Tensors that share memory: a graph knows each tensor as memory of its own, so that an update of one that others
see would be lost on them."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from .. import errors
from .call_json import call_path


def name_once(program: torch.export.ExportedProgram) -> list[tuple[str, str]]:
    """Has all of a program that writes to tensors read a buffer or parameter of two names by its first; returns
    such pairs of names.

    PyTorch's decomposition takes no tensor twice once one is written to. What has lost its readers becomes a tensor
    of its own, which nothing reads.
    """
    if not any(
        node.op == "call_function" and getattr(node.target, "_schema", None) and node.target._schema.is_mutable
        for node in program.graph.nodes
    ):
        return []
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    first: dict[int, Any] = {}
    pairs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER) or spec.target is None:
            continue
        held = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = held.get(spec.target)
        if not isinstance(tensor, torch.Tensor):
            continue
        before = first.setdefault(id(tensor), spec)
        if before is spec:
            continue
        placeholders[spec.arg.name].replace_all_uses_with(placeholders[before.arg.name])
        with torch.no_grad():
            alone = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        held[spec.target] = (
            torch.nn.Parameter(alone, requires_grad=tensor.requires_grad)
            if isinstance(tensor, torch.nn.Parameter)
            else alone
        )
        pairs.append((before.target, spec.target))
    if pairs:
        program.graph_module.recompile()
    return pairs


def check_written(graph: dict[str, Any], model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An error where forward writes to a tensor whose memory another tensor of the module or the call shares."""
    written = {
        (output["kind"] == "input_mutation", output["target"])
        for output in graph["outputs"]
        if output["kind"] != "user"
    }
    if not written:
        return
    held = [
        ((False, name), "self." + name, tensor)
        for name, tensor in (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        )
    ]
    for path, tensor in pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]:
        if isinstance(tensor, torch.Tensor):
            place = ".".join(map(str, call_path(path)))
            held.append(((True, place), f"the input {place}", tensor))
    by_memory: dict[int, list[tuple[tuple[bool, str], str, torch.Tensor]]] = {}
    for key, name, tensor in held:
        original = getattr(tensor, "kw_original", tensor)
        by_memory.setdefault(original.untyped_storage()._cdata, []).append((key, name, original))
    for group in by_memory.values():
        for key, name, tensor in group:
            for other, other_name, other_tensor in group:
                if (
                    key not in written
                    or key == other
                    or not _overlap(tensor, other_tensor)
                    or (not key[0] and not other[0] and tensor is other_tensor)
                ):
                    continue
                raise errors.user_error(
                    "shared-memory",
                    f"forward writes to {name}, whose memory is that of {other_name} as well.",
                    hint="Give each a memory of its own (tensor.clone()), or have forward leave it as it is.",
                )


def _overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether what lies from first to last element of two tensors of one storage has a byte in common."""

    def span(tensor: torch.Tensor) -> tuple[int, int]:
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        begin = tensor.storage_offset() * tensor.itemsize
        return (begin, begin + (reach + 1) * tensor.itemsize) if tensor.numel() else (begin, begin)

    (a, b), (c, d) = span(left), span(right)
    return a < d and c < b
