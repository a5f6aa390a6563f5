"""A detection head that needs no suppression: boxes from distance distributions, scores, and the best hundred of all places."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 4, "side": 40, "classes": 80, "bins": 16}, "full": {"batch": 64, "side": 80, "classes": 80, "bins": 16}}


class Model(nn.Module):
    def __init__(self, side: int, bins: int, stride: float):
        super().__init__()
        self.bins, self.stride = bins, stride
        row, column = torch.meshgrid(torch.arange(side) + 0.5, torch.arange(side) + 0.5, indexing="ij")
        self.register_buffer("centre", torch.stack([column.flatten(), row.flatten()], dim=-1))
        self.register_buffer("distance", torch.arange(bins, dtype=torch.float32))

    def forward(self, classes: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        reach = (torch.softmax(edges.unflatten(-1, (4, self.bins)), dim=-1) * self.distance).sum(dim=-1)
        boxes = torch.cat([self.centre - reach[..., :2], self.centre + reach[..., 2:]], dim=-1) * self.stride
        best, label = torch.sigmoid(classes).max(dim=-1)
        score, place = torch.topk(best, 100, dim=-1)
        return score, label.gather(1, place), boxes.gather(1, place.unsqueeze(-1).expand(-1, -1, 4))


def get_inputs(size="full"):
    at = SIZES[size]
    places = at["side"] * at["side"]
    return [torch.randn(at["batch"], places, at["classes"]), torch.randn(at["batch"], places, 4 * at["bins"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["side"], SIZES[size]["bins"], 8.0]
