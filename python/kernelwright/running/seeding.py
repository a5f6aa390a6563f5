"""The state of the generators that a forward may draw from."""

from __future__ import annotations

import random
import sys

import torch


def seed_everything(seed: int) -> None:
    """The state of every generator that a forward could draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def generator_state(device: torch.device) -> list[torch.Tensor]:
    """The state of the generators that a forward on `device` may draw from."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
