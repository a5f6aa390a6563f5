"""Arguments as text, for another process: pickled, with their tensors apart. Only what the judge writes is ever read
back.
"""

from __future__ import annotations

import base64
import io
import pickle
from typing import Any

import torch

from ..errors import user_error
from ..running import problem as problems


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor] | None) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_id(self, value: Any) -> int | None:
        if self._tensors is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return None
        for number, known in enumerate(self._tensors):
            if known is value:
                return number
        self._tensors.append(value)
        return len(self._tensors) - 1


def pickled(value: Any, tensors: list[torch.Tensor]) -> str:
    """`value`, in which numbers stand for the tensors that are added to `tensors`. Raises a user error."""
    file = io.BytesIO()
    try:
        _Pickler(file, tensors).dump(value)
    except Exception as error:
        raise user_error(
            "inputs-not-portable",
            f"The inputs cannot be handed to another process: {error}",
            hint="get_inputs() may return tensors, numbers, texts, and lists, tuples and dicts of them.",
        ) from None
    return base64.b64encode(file.getvalue()).decode()


def constructor_arguments(problem: problems.Problem, seed: int) -> str | None:
    """The constructor's arguments; None where they cannot be written, and the candidate's process must ask the
    problem's file for them.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, None).dump(problem.init_arguments(seed))
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return base64.b64encode(file.getvalue()).decode()
