"""Ties that eager leaves open: topk, an unstable sort, kthvalue and median promise neither an order among equal
elements nor a choice of them.

Any such choice is eager's answer as much as the one that it happened to give. So where a candidate differs, eager and
the reference are run again with another legal choice, and everything that follows from it follows: the candidate's own,
where an output is what such an operator answered, or the elements in the order in which they stand. A choice is legal
in a row if its positions are distinct, lie in the row, and hold the very elements that the operator answers with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .reference import Mode

_OPEN = {"topk", "sort", "kthvalue", "median"}

# Operators whose results are the positions that they are given, in another form.
_PASSING_ON = {"_to_copy", "alias", "clone", "detach", "view", "_unsafe_view", "squeeze", "unsqueeze"}


def operators() -> set[str]:
    """The operators that leave ties open, by their full names."""
    return {"aten::topk", "aten::sort", "aten::sort.stable", "aten::kthvalue", "aten::median.dim"}


@dataclass
class Question:
    """One call of an operator that leaves ties open: the elements of `x` along `dim`, and which of them are asked for."""

    operator: str
    x: torch.Tensor
    dim: int
    given: dict[str, Any]

    @staticmethod
    def of(func: Any, args: tuple, kwargs: dict) -> Question | None:
        schema = func._schema
        name = schema.name.partition("::")[2]
        if name not in _OPEN or schema.is_mutable or len(schema.returns) != 2:
            return None
        given = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
        given |= dict(zip((argument.name for argument in schema.arguments), args)) | kwargs
        x, dim = given["self"], given["dim"]
        if (
            given.get("stable")
            or not isinstance(x, torch.Tensor)
            or x.dim() == 0
            or x.numel() == 0
            or not isinstance(dim, int)
        ):
            return None
        return Question(name, x, dim % x.dim(), given)

    @property
    def keeps_dim(self) -> bool:
        return self.operator in ("topk", "sort") or bool(self.given["keepdim"])

    @property
    def in_any_order(self) -> bool:
        return self.operator == "topk" and not self.given["sorted"]

    def as_they_stand(self) -> torch.Tensor:
        """The positions of what is asked for, equal elements in the order in which they stand."""
        size = self.x.shape[self.dim]
        descending = (
            self.given["largest"]
            if self.operator == "topk"
            else self.given["descending"]
            if self.operator == "sort"
            else False
        )
        order = torch.sort(self.x, dim=self.dim, descending=bool(descending), stable=True).indices
        if self.operator == "topk":
            return order.narrow(self.dim, 0, self.given["k"])
        if self.operator == "sort":
            return order
        place = self.given["k"] - 1 if self.operator == "kthvalue" else (size - 1) // 2
        return order.narrow(self.dim, place, 1)

    def with_choice(
        self, values: torch.Tensor, indices: torch.Tensor, choice: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`values` and `indices`, eager's answer, with `choice` in the rows where that is legal."""
        if not self.keeps_dim:
            values, indices = values.unsqueeze(self.dim), indices.unsqueeze(self.dim)
        if choice.numel() != indices.numel():
            chosen = values, indices
        else:
            choice = choice.to(device=indices.device, dtype=torch.int64).reshape(indices.shape)
            legal = ~strays(choice, self.dim, self.x.shape[self.dim]).any(self.dim, keepdim=True)
            elements = self.x.gather(self.dim, choice.clamp(0, self.x.shape[self.dim] - 1))
            left, right = (
                (elements, values)
                if not self.in_any_order
                else (part.sort(self.dim).values for part in (elements, values))
            )
            legal &= ((left == right) | ((left != left) & (right != right))).all(self.dim, keepdim=True)
            chosen = torch.where(legal, elements, values), torch.where(legal, choice, indices)
        return chosen if self.keeps_dim else (chosen[0].squeeze(self.dim), chosen[1].squeeze(self.dim))


def strays(indices: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Where positions lie outside of a row of `size` elements, or stand there a second time."""
    order, places = indices.sort(dim)
    again = torch.zeros_like(order, dtype=torch.bool)
    again.narrow(dim, 1, max(order.shape[dim] - 1, 0)).copy_(
        order.narrow(dim, 1, max(order.shape[dim] - 1, 0)) == order.narrow(dim, 0, max(order.shape[dim] - 1, 0))
    )
    return torch.zeros_like(again).scatter_(dim, places, again) | (indices < 0) | (indices >= size)


class Ties(Mode):
    """Eager with other legal choices: `proposals` by the number of the call, for the other calls eager's own, or the
    elements as they stand.
    """

    def __init__(self, proposals: dict[int, torch.Tensor] | None = None, as_they_stand: bool = False) -> None:
        super().__init__()
        self.proposals = proposals or {}
        self.as_they_stand = as_they_stand
        self._rows: list[
            tuple[int, int, torch.Size | None]
        ] = []  # of each call: dim, elements of a row, and the shape of the positions where they keep dim
        # What holds the positions of a call, kept alive so that nothing else comes to lie there.
        self._positions: list[tuple[torch.Tensor, int]] = []

    def anew(self) -> Ties:
        """The same choices for another run."""
        return Ties(self.proposals, self.as_they_stand)

    @property
    def asked(self) -> bool:
        """Whether any such operator was called."""
        return bool(self._rows)

    def call_behind(self, output: torch.Tensor) -> int | None:
        """The call whose positions an output is."""
        return next((call for held, call in self._positions if _same_place(held, output)), None)

    def row_of(self, call: int, output: torch.Tensor) -> tuple[int | None, int]:
        """Along which dim of an output the positions of one row lie, if that can be told, and how many elements such a
        row has.
        """
        dim, size, shape = self._rows[call]
        return (dim if shape == output.shape else None), size

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        question = Question.of(func, args, kwargs)
        if question is None:
            self._follow(func, args, result)
            return result
        number = len(self._rows)
        self._rows.append(
            (question.dim, question.x.shape[question.dim], result[1].shape if question.keeps_dim else None)
        )
        choice = self.proposals.get(number)
        values, indices = result
        if choice is None and self.as_they_stand:
            choice = question.as_they_stand()
        if choice is not None:
            chosen = question.with_choice(values, indices, choice)
            values, indices = (
                torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device).copy_(new)
                for old, new in zip(result, chosen)
            )
        self._positions.append((indices, number))
        return values, indices

    def _follow(self, func: Any, args: tuple, result: Any) -> None:
        if (
            func._schema.name.partition("::")[2] not in _PASSING_ON
            or not isinstance(result, torch.Tensor)
            or result.is_floating_point()
        ):
            return
        call = next(
            (
                call
                for held, call in self._positions
                if isinstance(args[0], torch.Tensor) and _same_place(held, args[0])
            ),
            None,
        )
        if call is not None and result.numel() == args[0].numel() and result.dtype in (torch.int64, torch.int32):
            self._positions.append((result, call))


def _same_place(one: torch.Tensor, other: torch.Tensor) -> bool:
    def strides(tensor: torch.Tensor) -> list[tuple[int, int]]:
        return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]

    return (
        one.data_ptr() == other.data_ptr()
        and one.dtype == other.dtype
        and one.numel() > 0
        and strides(one) == strides(other)
    )
