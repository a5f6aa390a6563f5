"""Tensors without storage, on any device: what capture runs forward on.

A FakeTensor has a shape, dtype, strides and device but no numbers, so a module of any size costs nothing and a CUDA graph is captured
on a machine that has no GPU.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
from typing import Any, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map_only

from . import errors


def new_mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


@contextlib.contextmanager
def without_numbers(mode: FakeTensorMode) -> Iterator[None]:
    """Run the body under `mode`, where `.item()` and other questions for numbers raise instead of making symbols."""
    environment, mode.shape_env = mode.shape_env, None
    try:
        with mode:
            yield
    finally:
        mode.shape_env = environment


def device_for(name: str) -> torch.device:
    """The torch.device of a protocol device name; for "cuda" it makes sure that fake tensors work there without a GPU."""
    if name == "cuda":
        _allow_fake_cuda()
        return torch.device("cuda", 0)
    return torch.device(name)


def _allow_fake_cuda() -> None:
    """Give a PyTorch without a GPU a device guard for CUDA that does nothing.

    Some C++ paths (autograd's bookkeeping, copy_) ask for the guard of a tensor's device even where the tensor is fake. A build
    without CUDA aborts the process there, one without a driver fails. The meta device's guard does nothing, which is all that a fake
    tensor needs.
    """
    if torch.cuda.is_available():
        return
    cuda, meta = 1, 14  # c10::DeviceType
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    try:
        registry = (ctypes.c_void_p * (meta + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    except ValueError:
        raise errors.missing_error(
            "no-cuda",
            f"PyTorch {torch.__version__} has no CUDA device here, and this build of it cannot capture for one without.",
            hint="Use device cpu, or a machine with a GPU.",
        ) from None
    registry[cuda] = registry[meta]


def fake_tensor(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> torch.Tensor:
    """A fake twin of `tensor` on `device`, with its shape, dtype and strides (also those of expanded and overlapping tensors)."""
    if tensor.layout is not torch.strided:
        raise errors.user_error(
            "unsupported-layout", f"Tensors of layout {tensor.layout} are not supported.", hint="Use dense tensors: x.to_dense()"
        )
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def fake_values(value: Any, mode: FakeTensorMode, device: torch.device | None) -> Any:
    """`value` with each tensor in it replaced by a fake one, on `device` or, if that is None, where it is. A tensor that occurs twice stays one."""
    twins: dict[int, torch.Tensor] = {}

    def twin(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in twins:
            if isinstance(tensor, FakeTensor) and tensor.fake_mode is mode and device in (None, tensor.device):
                twins[id(tensor)] = tensor
            else:
                twins[id(tensor)] = fake_tensor(tensor, mode, device or tensor.device)
        return twins[id(tensor)]

    return tree_map_only(torch.Tensor, twin, value)


def make_fake(
    module: torch.nn.Module, mode: FakeTensorMode, device: torch.device | None, plain_device: torch.device | None = None
) -> set[str]:
    """Replace every parameter, buffer and plain tensor attribute of `module` by a fake twin, in place.

    Parameters and buffers go to `device` as Module.to would put them; plain attributes stay where they are, as they do there, unless
    `plain_device` says otherwise.
    Plain attributes become buffers, since torch.export refuses a forward that assigns to them otherwise; their dotted names are
    returned. Tensors in an attribute's lists, tuples and dicts stay in them.
    """
    plain: set[str] = set()
    twins: dict[int, torch.Tensor] = {}

    def twin(tensor: torch.Tensor, place: torch.device | None) -> torch.Tensor:
        if id(tensor) not in twins:
            made = fake_tensor(tensor, mode, place or tensor.device)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
            # The original is kept alive with its twin, so that no other tensor can take over its id.
            twins[id(tensor)] = made
            kept.append(tensor)
        return twins[id(tensor)]

    kept: list[torch.Tensor] = []
    for prefix, owner in module.named_modules():
        for name, tensor in owner._parameters.items():
            if tensor is not None:
                owner._parameters[name] = twin(tensor, device)
        for name, tensor in owner._buffers.items():
            if tensor is not None:
                owner._buffers[name] = twin(tensor, device)
    for prefix, owner in module.named_modules():
        for name, value in list(vars(owner).items()):
            if name in _MODULE_STATE:
                continue
            if isinstance(value, torch.Tensor):
                if hasattr(type(owner), name) or "." in name:
                    # A buffer of this name would be hidden behind the class's attribute.
                    vars(owner)[name] = twin(value, plain_device)
                    continue
                delattr(owner, name)
                owner.register_buffer(name, twin(value, plain_device), persistent=False)
                plain.add(f"{prefix}.{name}" if prefix else name)
            elif isinstance(value, (list, tuple, dict)):
                replaced = tree_map_only(torch.Tensor, lambda tensor: twin(tensor, plain_device), value)
                if isinstance(value, list):
                    value[:] = replaced
                elif isinstance(value, dict):
                    value.update(replaced)
                else:
                    setattr(owner, name, replaced)
    return plain


# torch.nn.Module's own bookkeeping.
_MODULE_STATE = frozenset(vars(torch.nn.Module()))


def fake_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of `module` that shares its tensors, for make_fake to work on: the caller's module stays as it is."""
    memo: dict[int, Any] = {}
    for owner in module.modules():
        tree_map_only(torch.Tensor, lambda tensor: memo.setdefault(id(tensor), tensor), [*owner._parameters.values(), *owner._buffers.values()])
        for name, value in vars(owner).items():
            if name not in _MODULE_STATE:
                tree_map_only(torch.Tensor, lambda tensor: memo.setdefault(id(tensor), tensor), value)
    try:
        return copy.deepcopy(module, memo)
    except Exception:
        # A lock, a generator or a file among the attributes; what only refers to them can share them.
        return _copy_of_modules(module, {})


def _copy_of_modules(module: torch.nn.Module, copies: dict[int, torch.nn.Module]) -> torch.nn.Module:
    if id(module) not in copies:
        twin = copies[id(module)] = copy.copy(module)
        for name, value in vars(module).items():
            if isinstance(value, (dict, list)):
                vars(twin)[name] = copy.copy(value)
        for name, child in module._modules.items():
            twin._modules[name] = child if child is None else _copy_of_modules(child, copies)
    return copies[id(module)]
