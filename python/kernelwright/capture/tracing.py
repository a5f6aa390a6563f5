"""What capture watches and adjusts while PyTorch traces forward."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import traceback
from typing import Any, Callable, Iterator
from unittest import mock

import torch
import torch._decomp
from torch.fx.proxy import TracerBase
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from .. import errors
from . import packed


class Tracing(TorchFunctionMode):
    """Adjusts a few calls while forward is traced.

    - `x.to("cuda")` names no index, and a machine without CUDA has no current device to take it from.
    - `torch.tensor(data, device="cuda")` makes a real tensor, which such a machine cannot put there; it becomes a fill, or is made on the
      CPU and moved.
    - instance_norm updates the running statistics it is given without its schema saying so, so the update would be lost.
    - zero_ and fill_ of an expanded tensor write what it was expanded from; PyTorch's tracing would subtract its old contents as often as it is repeated.
    - gaussian_nll_loss looks for a negative variance, which nothing that is traced can tell.
    - `out=` a tensor that is not contiguous becomes a copy into it: PyTorch's tracing takes the memory for contiguous afterwards.
    - Dropout that drops nothing, and lift_fresh, return their argument itself, as in eager. PyTorch's tracing makes a
      copy: writing to the result would not reach the argument, and the strides would be others.
    - The operator `copy` keeps gaps between elements, as in eager.
    - In-place operators whose result is contiguous become a copy into a tensor that lies otherwise, for the same reason.
    - A recurrent layer of packed sequences is called once for each of their lengths (packed.py).

    `enables_grad` tells afterwards whether forward turned gradients on.
    """

    enables_grad = False

    def __init__(self, generators: bool = True) -> None:
        """`generators`: whether calls may draw from a random number generator other than PyTorch's own."""
        super().__init__()
        self.generators = generators

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.generators and isinstance(kwargs.get("generator"), torch.Generator):
            raise errors.user_error(
                "unsupported-constant",
                "forward draws from a random number generator of its own, which kernels cannot repeat.",
                hint="Leave `generator` out: forward then draws from PyTorch's own generator.",
            )
        return packed.with_numbers(func, args, kwargs, self._adjusted(func, args, kwargs))

    def _adjusted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in packed.LAYERS and isinstance(args[1], packed.BatchSizes):
            return packed.layer(func, *args, **kwargs)
        if func is torch.Tensor.to or func is torch.Tensor.cuda:
            if func is torch.Tensor.cuda:
                device = args[1] if len(args) > 1 else kwargs.get("device")
                args, kwargs = (
                    (args[0], torch.device("cuda", device) if isinstance(device, int) else device or "cuda"),
                    {},
                )
            args = tuple(_indexed(value) for value in args)
            return _moved(args, {key: _indexed(value) for key, value in kwargs.items()})
        if func in _FROM_DATA and _is_cuda(kwargs.get("device")):
            device = _indexed(torch.device(kwargs["device"]))
            if isinstance(args[0], (bool, int, float)):
                dtype = (
                    kwargs.get("dtype")
                    or {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}[type(args[0])]
                )
                return torch.full((), args[0], dtype=dtype, device=device)
            return _moved((func(*args, **{**kwargs, "device": "cpu"}), device), {})
        if func is torch._C._set_grad_enabled:
            self.enables_grad |= bool(args[0])
        elif func in (torch.Tensor.zero_, torch.Tensor.fill_) and 0 in args[0].stride():
            func(_unexpanded(args[0]), *args[1:], **kwargs)
            return args[0]
        elif func is torch.instance_norm:
            return _instance_norm(*args, **kwargs)
        elif func is torch.nn.functional.instance_norm:
            return _functional_instance_norm(*args, **kwargs)
        elif func is torch.nn.functional.gaussian_nll_loss:
            with mock.patch.object(torch, "any", return_value=False):
                return func(*args, **kwargs)
        elif isinstance(out := kwargs.get("out"), torch.Tensor) and not out.is_contiguous() and _takes_tensor(args):
            result = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
            if (result.shape, result.dtype) == (out.shape, out.dtype):
                return out.copy_(result)
        elif func in _DROPOUTS and _drops_nothing(*args, **kwargs) or func in _LIFTS:
            return args[0] if args else next(iter(kwargs.values()))
        elif func in _COPIES and _has_gaps(args[0]):
            return _copy_with_gaps(*args, **kwargs)
        elif func in _CONTIGUOUS_RESULTS and _is_transposed(args[0]):
            return args[0].copy_(_CONTIGUOUS_RESULTS[func](*args, **kwargs))
        return func(*args, **kwargs)


# In-place methods whose operators give a contiguous result, whatever they are given.
_CONTIGUOUS_RESULTS = {
    getattr(torch.Tensor, name + "_"): getattr(torch.Tensor, name)
    for name in (
        *("tril", "triu", "renorm", "cumsum", "cumprod", "addmm", "masked_fill", "masked_scatter"),
        *("index_add", "index_copy", "index_reduce", "scatter", "scatter_add", "scatter_reduce"),
    )
}


_aten = torch.ops.aten
_DROPOUTS = (torch.nn.functional.dropout, torch.dropout, _aten.dropout, _aten.dropout.default)
_LIFTS = (_aten.lift_fresh, _aten.lift_fresh.default)
_COPIES = (_aten.copy, _aten.copy.default)


def _drops_nothing(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
) -> bool:
    return 0 <= p <= 1 and (p == 0 or not (training and train) or input.numel() == 0)


def _reach(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def _has_gaps(tensor: torch.Tensor) -> bool:
    return 0 < tensor.numel() < _reach(tensor)


def _copy_with_gaps(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    memory = self.new_zeros(_reach(self))
    return memory.as_strided(self.shape, self.stride()).copy_(src)


def _is_transposed(tensor: torch.Tensor) -> bool:
    """Whether it covers its memory once, in another order than a contiguous tensor; of a part of one PyTorch keeps
    track.
    """
    if tensor.is_contiguous() or tensor.layout is not torch.strided:
        return False
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    return tensor.permute(order).is_contiguous()


def _moved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    try:
        return torch.Tensor.to(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        if torch.cuda.is_available() or args[0].numel() != 1:
            raise
        # Tracing keeps the real number of a one-element constant beside its fake tensor, and would move that too. Two
        # elements it lets be.
        pair = args[0].expand(2, *args[0].shape)
        return torch.Tensor.to(pair, *args[1:], **kwargs)[0]


def _takes_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves(args))


def _unexpanded(tensor: torch.Tensor) -> torch.Tensor:
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.size(dim) > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


_FROM_DATA = (torch.tensor, torch.as_tensor)


def _is_cuda(device: Any) -> bool:
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"


def _indexed(value: Any) -> Any:
    """The device "cuda" with the index that it stands for; any other argument as it is."""
    if (
        value == "cuda"
        if isinstance(value, str)
        else isinstance(value, torch.device) and value.type == "cuda" and value.index is None
    ):
        return torch.device("cuda", 0)
    return value


def _instance_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor:
    if not use_input_stats:
        return torch.instance_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled)
    positions = list(range(2, input.dim()))
    if running_mean is not None:
        running_mean.copy_(running_mean * (1 - momentum) + input.mean(positions).mean(0) * momentum)
    if running_var is not None:
        running_var.copy_(running_var * (1 - momentum) + input.var(positions, correction=1).mean(0) * momentum)
    return torch.instance_norm(input, weight, bias, None, None, True, momentum, eps, cudnn_enabled)


def _functional_instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    return _instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, torch.backends.cudnn.enabled
    )


@contextlib.contextmanager
def surroundings(is_user_file: Callable[[str], bool]) -> Iterator[None]:
    """The settings under which forward is traced, restored afterwards.

    - nn.MultiheadAttention and nn.TransformerEncoderLayer stay off their fused inference calls, which hide what they compute.
    - A node's stack trace holds the user's own frames, helper functions included; PyTorch by itself keeps methods named forward only.
    - Numbers that forward draws outside PyTorch's generator, or a seed that it sets, would be frozen into the graph: both are errors.
    """

    def user_frames(self: TracerBase, summary: traceback.StackSummary) -> traceback.StackSummary:
        return traceback.StackSummary.from_list([frame for frame in summary if is_user_file(frame.filename)])

    def refuse_seed(*_: Any, **__: Any) -> None:
        raise errors.user_error(
            "seeds-generator",
            "forward sets the seed of the random number generator, which kernels cannot repeat.",
            hint="Set the seed outside the model.",
        )

    fast_path = torch.backends.mha.get_fastpath_enabled()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        if hasattr(TracerBase, "_filter_traceback_frames"):
            stack.enter_context(mock.patch.object(TracerBase, "_filter_traceback_frames", user_frames))
        stack.enter_context(mock.patch.object(torch, "manual_seed", refuse_seed))
        stack.enter_context(_recurrent_layers())
        stack.enter_context(packed.taken_over())
        stack.enter_context(mock.patch.object(torch._C, "_select_conv_backend", _library_of_convolution()))
        stack.enter_context(
            mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _layout_of_convolution)
        )
        before = _generators()
        yield
        if _generators() != before:
            raise errors.user_error(
                "foreign-random",
                "forward takes random numbers from Python or NumPy, which would be the same at every call of the kernels.",
                hint="Take them from PyTorch: torch.rand, torch.randint or torch.bernoulli.",
            )


_pytorchs_library = torch._C._select_conv_backend
_pytorchs_layout = torch._C._conv_determine_backend_memory_format


def _library_of_convolution() -> Callable[..., Any]:
    """Which library computes a convolution on a CPU, on which the layout of its result depends. PyTorch would take fake
    tensors for those of another device, and torch.export turns oneDNN off."""
    is_enabled = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled

    def real(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    # Called as PyTorch 2.11 does, which names all arguments, and as later ones.
    def select(input: torch.Tensor, weight: torch.Tensor, **options: Any) -> Any:
        if input.device.type != "cpu":
            return _pytorchs_library(input, weight, **options)
        with no_dispatch(), torch.backends.mkldnn.flags(enabled=is_enabled):
            return _pytorchs_library(real(input), real(weight), **options | {"bias": real(options.get("bias"))})

    return select


def _layout_of_convolution(image: torch.Tensor, filters: torch.Tensor, library: Any) -> torch.memory_format:
    """How a convolution's result lies. On a GPU as cuDNN has it, channels last where the image or the filters are:
    PyTorch asks the library at hand, which on a machine without a GPU is no cuDNN.
    """
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    if image.dim() not in layouts or image.device.type == "cpu":
        return _pytorchs_layout(image, filters, library)
    last = layouts[image.dim()]
    is_last = any(torch._prims_common.suggest_memory_format(tensor) == last for tensor in (image, filters))
    return last if is_last and image.dtype != torch.float64 else torch.contiguous_format


@contextlib.contextmanager
def _recurrent_layers() -> Iterator[None]:
    """Let a recurrent layer's results be told from its arguments' shapes, and a cell be its formula.

    PyTorch would trace every step of a layer, minutes for a long sequence."""

    def output(input: torch.Tensor, hidden: torch.Tensor, bidirectional: bool, batch_first: bool) -> torch.Tensor:
        features = hidden.shape[2] * (2 if bidirectional else 1)
        if batch_first:
            return input.new_empty((input.shape[1], input.shape[0], features)).transpose(0, 1)
        return input.new_empty((input.shape[0], input.shape[1], features))

    def one_state(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # type: ignore[no-untyped-def]
        return output(input, hx, bidirectional, batch_first), hx.new_empty(hx.shape)

    def two_states(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # type: ignore[no-untyped-def]
        return (
            output(input, hx[0], bidirectional, batch_first),
            hx[0].new_empty(hx[0].shape),
            hx[1].new_empty(hx[1].shape),
        )

    linear, sigmoid, tanh = torch.nn.functional.linear, torch.sigmoid, torch.tanh

    # PyTorch's formulas. Its kernel for a GPU, which makes all of a cell at once, cannot be traced.
    def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):  # type: ignore[no-untyped-def]
        of_input, of_state = linear(input, w_ih, b_ih).chunk(3, 1), linear(hx, w_hh, b_hh).chunk(3, 1)
        reset, update = sigmoid(of_state[0] + of_input[0]), sigmoid(of_state[1] + of_input[1])
        candidate = tanh(of_input[2] + reset * of_state[2])
        return (hx - candidate) * update + candidate

    def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):  # type: ignore[no-untyped-def]
        gates = (linear(hx[0], w_hh, b_hh) + linear(input, w_ih, b_ih)).chunk(4, 1)
        cell = sigmoid(gates[1]) * hx[1] + sigmoid(gates[0]) * tanh(gates[2])
        return sigmoid(gates[3]) * tanh(cell), cell

    aten, key = torch.ops.aten, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels = {
        aten.gru_cell.default: gru_cell,
        aten.lstm_cell.default: lstm_cell,
        aten.lstm.input: two_states,
        aten.gru.input: one_state,
        aten.rnn_tanh.input: one_state,
        aten.rnn_relu.input: one_state,
    }
    saved = {op: dict(op.py_kernels) for op in kernels}
    try:
        for op, kernel in kernels.items():
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()
        with mock.patch.dict(torch._decomp.decomposition_table, kernels):
            yield
    finally:
        for op, before in saved.items():
            op.py_kernels.clear()
            op.py_kernels.update(before)
            op._dispatch_cache.clear()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a graph again and again while it is being built."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _generators() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None
    return random.getstate(), drawn and (drawn[1].tobytes(), drawn[2:])


def python_state(module: torch.nn.Module) -> dict[str, Any]:
    """The numbers, flags and sizes of containers among a module's attributes: what a forward that counts its calls
    changes.
    """
    own = vars(torch.nn.Module())
    state: dict[str, Any] = {}
    for prefix, owner in module.named_modules():
        for name, value in vars(owner).items():
            place = f"{prefix}.{name}" if prefix else name
            if name == "training" or (name not in own and isinstance(value, (bool, int, float, str, type(None)))):
                state[place] = value
            elif name not in own and isinstance(value, (list, tuple, dict, set)):
                state[place] = f"{len(value)} items"
    return state
