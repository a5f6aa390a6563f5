"""Convolutions of images that are made element by element: cases for one group of the convolution scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F
from contraction_cases import Case

Tensor = torch.Tensor


@dataclass(frozen=True)
class Produced(Case):
    """The filters are the last argument. Of the others `before` makes an image; `size` is what the magnitudes of its
    terms add up to, of the arguments' magnitudes. `after` makes the results of the convolution and the image, and
    `error` bounds on their errors of bounds on those two's."""

    before: Callable[..., Tensor] = torch.relu
    size: Callable[..., Tensor] = torch.relu
    convolve: Callable[[Tensor, Tensor], Tensor] = F.conv2d
    error: Callable[[Tensor, Tensor], Any] = lambda result, image: result

    def bounds(self, sizes: list[Tensor], digits: float) -> Any:
        """Of a convolution that keeps these digits, where halves hold its numbers, and 11 more of the largest."""
        image = self.size(*sizes[:-1])
        largest = image.amax(tuple(range(1, image.ndim)), keepdim=True).expand_as(image)
        own = 2.0**-21 if self.dtype == torch.float32 else torch.finfo(self.dtype).eps
        result = (digits + own) * self.convolve(image, sizes[-1])
        result = result + digits * 2.0**-11 * self.convolve(largest, sizes[-1]) + 2.0**-126
        return self.error(result, own * image + 2.0**-126)


def _produced(
    name: str,
    before: Callable[..., Tensor],
    size: Callable[..., Tensor],
    convolve: Callable[[Tensor, Tensor], Tensor],
    shapes: Any,
    *,
    after: Callable[[Tensor, Tensor], Any] = lambda result, image: torch.relu(result),
    stored: bool = False,
    **options: Any,
) -> Produced:
    def function(*arguments: Tensor) -> Any:
        image = before(*arguments[:-1])
        result = after(convolve(image, arguments[-1]), image)
        return (result, image) if stored else result

    if stored:
        options["error"] = lambda result, image: (result, image)
    return Produced("image_" + name, function, shapes, before=before, size=size, convolve=convolve, **options)


def conv(dims: int = 2, **options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, w: {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims](x, w, **options)


def transposed(**options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, w: F.conv_transpose2d(x, w, **options)


def _wide(channels: Tensor, like: Tensor) -> Tensor:
    return channels.view(-1, *[1] * (like.ndim - 2))


def _scaled(x: Tensor, s: Tensor) -> Tensor:
    return torch.relu(x * _wide(s, x))


def _scaled_size(x: Tensor, s: Tensor) -> Tensor:
    return x * _wide(s, x)


def _normalised(x: Tensor, r: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.batch_norm(x, mean, variance.abs(), weight, bias) + r)


def _normalised_size(x: Tensor, r: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    scale = weight / (variance + 1e-5).sqrt()
    return (x + _wide(mean, x)) * _wide(scale, x) + _wide(bias, x) + r


def _once(x: Tensor, *rest: Tensor) -> Tensor:
    return torch.ones_like(x)


def _mish(x: Tensor, s: Tensor) -> Tensor:
    return F.silu(x) * _wide(s, x) + 0.5


def _mish_size(x: Tensor, s: Tensor) -> Tensor:
    return (x + 1.0) * _wide(s, x) + 0.5


def _both(x: Tensor, r: Tensor) -> Tensor:
    return torch.cat([torch.relu(x), r * 2.0, x[:, :1]], 1)


def _both_size(x: Tensor, r: Tensor) -> Tensor:
    return torch.cat([x, r * 2.0, x[:, :1]], 1)


def _channels_last(drawn: list[Tensor]) -> list[Tensor]:
    return [drawn[0].contiguous(memory_format=torch.channels_last), *drawn[1:]]


def _of_two_types(drawn: list[Tensor]) -> list[Tensor]:
    return [drawn[0].to(torch.bfloat16), *drawn[1:]]


def _widened(x: Tensor, s: Tensor) -> Tensor:
    return torch.relu(x.float() * _wide(s, x))


def _widened_size(x: Tensor, s: Tensor) -> Tensor:
    return x.to(s.dtype) * _wide(s, x)


PLANE = (2, 5, 9, 11)
NORMALISED = (PLANE, PLANE, (5,), (5,), (5,), (5,), (18, 5, 3, 3))

PRODUCED = [
    _produced("scaled", _scaled, _scaled_size, conv(padding=1), (PLANE, (5,), (18, 5, 3, 3))),
    _produced("of_one_at_zero", torch.exp, torch.exp, conv(padding=2), ((2, 5, 6, 7), (18, 5, 3, 3))),
    _produced("sigmoid", torch.sigmoid, _once, conv(padding=1, stride=2), (PLANE, (18, 5, 3, 3))),
    _produced("normalised", _normalised, _normalised_size, conv(padding=1), NORMALISED),
    _produced("normalised_and_stored", _normalised, _normalised_size, conv(padding=1), NORMALISED, stored=True),
    _produced(
        "stored_where_no_tap_is", _scaled, _scaled_size, conv(stride=4), (PLANE, (5,), (18, 5, 1, 1)), stored=True
    ),
    _produced(
        "stored_by_groups",
        _mish,
        _mish_size,
        conv(padding=1, groups=2),
        ((2, 10, 6, 7), (10,), (36, 5, 3, 3)),
        stored=True,
    ),
    _produced(
        "stored_in_many_channels",
        _scaled,
        _scaled_size,
        conv(padding=(0, 1)),
        ((2, 70, 6, 5), (70,), (18, 70, 2, 3)),
        stored=True,
    ),
    _produced("large_image", _scaled, _scaled_size, conv(padding=1), ((1, 4, 20, 20), (4,), (18, 4, 3, 3))),
    _produced("one_dimension", _mish, _mish_size, conv(1, padding=3, dilation=2), ((2, 5, 40), (5,), (18, 5, 4))),
    _produced(
        "three_dimensions",
        _scaled,
        _scaled_size,
        conv(3, padding=(1, 0, 1)),
        ((2, 3, 5, 6, 7), (3,), (18, 3, 3, 2, 3)),
        stored=True,
    ),
    _produced("depthwise", _mish, _mish_size, conv(groups=6, padding=1), ((2, 6, 9, 11), (6,), (6, 1, 3, 3))),
    _produced("phases", _scaled, _scaled_size, transposed(stride=2, padding=1), ((2, 5, 7, 6), (5,), (5, 18, 3, 3))),
    _produced(
        "phases_and_stored",
        _scaled,
        _scaled_size,
        transposed(stride=2),
        ((2, 5, 7, 6), (5,), (5, 18, 3, 3)),
        stored=True,
    ),
    _produced("concatenated", _both, _both_size, conv(padding=1), (PLANE, (2, 3, 9, 11), (18, 9, 3, 3))),
    _produced(
        "filled",
        lambda x: F.pad(torch.relu(x), (1, 2, 0, 1), value=0.75),
        lambda x: F.pad(x, (1, 2, 0, 1), value=0.75),
        conv(padding=1),
        (PLANE, (18, 5, 3, 3)),
    ),
    _produced(
        "flat",
        lambda x: torch.relu(x).view(2, 6, 5, 4),
        lambda x: x.view(2, 6, 5, 4),
        conv(padding=1),
        ((2, 3, 40), (18, 6, 3, 3)),
    ),
    _produced(
        "turned",
        lambda x: torch.relu(x.mT.reshape(2, 6, 5, 4)),
        lambda x: x.mT.reshape(2, 6, 5, 4),
        conv(padding=1),
        ((2, 20, 6), (18, 6, 3, 3)),
    ),
    _produced(
        "enlarged",
        lambda x: torch.relu(x).repeat_interleave(2, 2).repeat_interleave(3, 3),
        lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, 3),
        conv(padding=2),
        ((2, 5, 4, 3), (18, 5, 3, 3)),
    ),
    _produced(
        "flipped",
        lambda x: torch.relu(x.flip(3)) + 0.5,
        lambda x: x.flip(3) + 0.5,
        conv(padding=2),
        ((2, 5, 4, 3), (18, 5, 3, 3)),
    ),
    _produced(
        "by_place",
        lambda x, s: torch.relu(x) * s + torch.arange(x.shape[3], dtype=x.dtype),
        lambda x, s: x * s + torch.arange(x.shape[3], dtype=x.dtype),
        conv(padding=2),
        ((2, 5, 4, 3), (4, 3), (18, 5, 3, 3)),
    ),
    _produced(
        "channels_last",
        _scaled,
        _scaled_size,
        conv(padding=1),
        ((2, 8, 9, 11), (8,), (18, 8, 3, 3)),
        arrange=_channels_last,
        stored=True,
    ),
    _produced("widened", _widened, _widened_size, conv(padding=1), (PLANE, (5,), (18, 5, 3, 3)), arrange=_of_two_types),
    _produced(
        "read_behind_it",
        _scaled,
        _scaled_size,
        conv(padding=1),
        ((2, 18, 6, 7), (18,), (18, 18, 3, 3)),
        after=lambda result, image: result + image,
        error=lambda result, image: result + image,
    ),
    _produced("halves", _mish, _mish_size, conv(padding=1), (PLANE, (5,), (18, 5, 3, 3)), dtype=torch.float16),
    _produced(
        "bfloat16",
        _normalised,
        _normalised_size,
        conv(padding=1),
        NORMALISED,
        dtype=torch.bfloat16,
        stored=True,
    ),
]
