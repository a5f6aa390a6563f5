"""What the kernels that both targets have in their goldens compute, in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

Buffers = dict[str, torch.Tensor]


def pooled(b: Buffers) -> Buffers:
    x = b["x"].view(6, 17, 19)
    return {"largest": F.max_pool2d(torch.relu(x), 3, 2, 1), "average": F.avg_pool2d(x, 3, 2, 1)}


def looked_up(b: Buffers) -> Buffers:
    table, place = b["table"].view(100, 12), b["token"].long() % 100
    return {"out": torch.where((place % 3 != 0)[:, None], table[place], torch.tensor(-1.0)) - table[place, 11][:, None]}


def scanned_columns(b: Buffers) -> Buffers:
    x, mask = b["x"].view(2, 30, 100).float(), b["mask"].view(2, 30, 100)
    return {
        "out": torch.where(mask, x, 0.0).flip(1).cumsum(1).flip(1).bfloat16(),
        "counted": mask.flip(1).cumsum(1).flip(1),
    }


def products_in_order(x: torch.Tensor, chunk: int) -> torch.Tensor:
    """Running products of rows as PyTorch's CUDA kernel multiplies: chunk by chunk, each after the last product of the
    one before, in a Sklansky network.
    """
    products = []
    last = torch.ones(len(x))
    for block in x.split(chunk, dim=1):
        block = torch.cat([block[:, :1] * last[:, None], block[:, 1:]], 1)
        half = 1
        while half < block.shape[1]:
            groups = F.pad(block, (0, -block.shape[1] % (2 * half))).unflatten(1, (-1, 2, half))
            right = groups[:, :, 1] * groups[:, :, :1, -1]
            block = torch.stack([groups[:, :, 0], right], 2).flatten(1)[:, : block.shape[1]]
            half *= 2
        last = block[:, -1]
        products.append(block)
    return torch.cat(products, 1)
