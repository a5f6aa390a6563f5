"""Tensors without storage, on any device: what capture runs forward on.

A FakeTensor has a shape, dtype, strides and device but no numbers, so a module of any size costs nothing and a CUDA
graph is captured on a machine that has no GPU.
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

from .. import errors


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

    Some C++ paths (autograd's bookkeeping, copy_) ask for the guard of a tensor's device even where the tensor is fake.
    A build without CUDA aborts the process there, one without a driver fails. The meta device's guard does nothing,
    which is all that a fake tensor needs.
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


def check_dense(tensor: torch.Tensor) -> None:
    """Raises for a tensor whose elements do not lie in memory by shape and strides alone."""
    if tensor.is_nested:
        kind, instead = "nested", "Pad them to one shape: torch.nested.to_padded_tensor(x, 0)"
    elif tensor.layout is not torch.strided:
        kind, instead = f"sparse ({tensor.layout})", "Use dense tensors: x.to_dense()"
    elif tensor.is_quantized:
        kind, instead = (
            f"quantised ({str(tensor.dtype)[6:]})",
            "Use x.dequantize(), or x.int_repr() with the scale as an argument",
        )
    else:
        return
    raise errors.user_error(
        "unsupported-layout",
        f"The module is given a {kind} tensor, which Kernelwright does not compile.",
        hint=f"{instead}; or leave the module to PyTorch.",
    )


def fake_tensor(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> torch.Tensor:
    """A fake twin of `tensor` on `device`, with its shape, dtype and strides (also those of expanded and overlapping
    tensors).
    """
    if tensor.layout is not torch.strided:
        raise errors.user_error(
            "unsupported-layout",
            f"Tensors of layout {tensor.layout} are not supported.",
            hint="Use dense tensors: x.to_dense()",
        )
    if torch.nn.parameter.is_lazy(tensor):
        raise errors.user_error(
            "uninitialised",
            "A parameter or buffer of the module has no shape yet (a lazy layer such as nn.LazyLinear).",
            hint="Call the module once on example inputs first, or use the layer that is not lazy.",
        )
    made = _at_its_place(tensor, mode, device)
    made.kw_original = (
        tensor  # whose memory tells what else lies there; kept alive, so that no other tensor can take over its id
    )
    return made


def _at_its_place(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> torch.Tensor:
    """Beginning as far into its memory as `tensor` does: forward may ask for it, and as_strided counts from there."""
    begin = tensor.storage_offset()
    with mode, torch.no_grad():
        if begin == 0 or tensor.numel() == 0:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        memory = torch.empty(begin + reach + 1, dtype=tensor.dtype, device=device)
        return memory.as_strided(tensor.shape, tensor.stride(), begin).data  # no view of another tensor to autograd


def fake_values(value: Any, mode: FakeTensorMode, device: torch.device | None) -> Any:
    """`value` with each tensor in it replaced by a fake one, on `device` or, if that is None, where it is. Each has
    memory of its own: PyTorch refuses to trace an update of one that another shares, and memory.check_written tells of
    it better.
    """
    memories: set[int] = set()

    def twin(tensor: torch.Tensor) -> torch.Tensor:
        check_dense(tensor)
        memory = tensor.untyped_storage()._cdata
        alone = memory not in memories
        memories.add(memory)
        if alone and isinstance(tensor, FakeTensor) and tensor.fake_mode is mode and device in (None, tensor.device):
            return tensor
        return fake_tensor(tensor, mode, device or tensor.device)

    return tree_map_only(torch.Tensor, twin, value)


def make_fake(
    module: torch.nn.Module, mode: FakeTensorMode, device: torch.device | None, plain_device: torch.device | None = None
) -> set[str]:
    """Replace every parameter, buffer and plain tensor attribute of `module` by a fake twin, in place.

    Parameters and buffers go to `device` as Module.to would put them; plain attributes stay where they are, as they do
    there, unless `plain_device` says otherwise. Plain attributes become buffers, since torch.export refuses a forward
    that assigns to them otherwise; their dotted names are returned. Tensors in an attribute's lists, tuples and dicts
    stay in them.
    """
    plain: set[str] = set()
    twins: dict[int, torch.Tensor] = {}

    def twin(tensor: torch.Tensor, place: torch.device | None) -> torch.Tensor:
        if id(tensor) not in twins:
            made = fake_tensor(tensor, mode, place or tensor.device)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
                made.kw_original = tensor
            twins[id(tensor)] = made
        return twins[id(tensor)]

    for owner in module.modules():
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
        tree_map_only(
            torch.Tensor,
            lambda tensor: memo.setdefault(id(tensor), tensor),
            [*owner._parameters.values(), *owner._buffers.values()],
        )
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
