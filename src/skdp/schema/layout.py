"""Describe which coordinates each column fills in an encoded row, and their norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from skdp.schema.validation import FloatArray, IntArray, check


@dataclass(frozen=True, kw_only=True)
class Group:
    """The consecutive coordinates that one column fills.

    Their joint norm is at most one. `kind` says how a row's coordinates are stored:

    - ``"ones"``: the intercept, which is not stored.
    - ``"dense"``: one integer per coordinate.
    - ``"code"``: the index of the coordinate that is one.
    - ``"hats"``: a position on each of the `axes`. From these positions,
      `skdp.schema.pairs.split_hats` computes the few coordinates that are not zero.

    The coordinates of codes and hats are not negative, and their sum is at most one.
    `scale` is the factor by which a matrix geometry multiplies the coordinates. `sides`
    has one entry for a curve, two for a pair, and none for other columns. Each entry
    has two numbers: how many coordinates the side has, and how many of these are knots.
    The knots come first and are in order.
    """

    name: str
    kind: Literal["ones", "dense", "code", "hats"]
    start: int
    labels: tuple[str, ...]
    signed: bool = False
    axes: tuple[int, ...] = ()
    scale: float = 1.0
    sides: tuple[tuple[int, int], ...] = ()

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.labels)

    @property
    def n_entries(self) -> int:
        """The largest number of coordinates of a row that are not zero."""
        return self.width if self.kind == "dense" else 1 << len(self.axes)

    @property
    def coordinates(self) -> IntArray:
        """The indices of the group's coordinates in a row."""
        return np.arange(self.start, self.start + self.width)


def name_record(unit: Any) -> str:
    """Return the noun for a record: "person" if there is a unit, else "row"."""
    return "row" if unit is None else "person"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The coordinates of an encoded row, and an optional bound on the row's norm.

    If `unit` is not None, it names the columns that identify a person, and all rows of
    a person together count as one record.
    """

    groups: tuple[Group, ...]
    row_norm: float | None = None
    unit: str | None = None

    @property
    def counted(self) -> str:
        """The plural noun for records: "persons" if there is a unit, else "rows"."""
        return f"{name_record(self.unit)}s"

    @property
    def n_features(self) -> int:
        """Number of coordinates, including the intercept."""
        return sum(group.width for group in self.groups)

    @cached_property
    def group_of(self) -> IntArray:
        """Index of the group of each coordinate, shape (n_features,)."""
        widths = [group.width for group in self.groups]
        return np.repeat(np.arange(len(widths)), widths)

    @property
    def blocks(self) -> list[IntArray]:
        """The coordinates of each group, for steps that update one group at a time."""
        return [group.coordinates for group in self.groups]

    @property
    def labels(self) -> list[str]:
        """Name of each coordinate."""
        return [label for group in self.groups for label in group.labels]

    @property
    def scales(self) -> FloatArray:
        """The scale of each coordinate's group, shape (n_features,)."""
        return np.array([group.scale for group in self.groups])[self.group_of]

    @property
    def penalised(self) -> FloatArray:
        """Array with one for each penalised coordinate, and zero for the intercept."""
        return np.array(
            [float(self.groups[g].kind != "ones") for g in self.group_of.tolist()]
        )

    @property
    def absolute_sum(self) -> float:
        """A bound on Σ_j abs(x_j) that holds for all encoded rows x."""
        return sum(
            math.sqrt(group.width) if group.kind == "dense" else 1.0
            for group in self.groups
        )

    def squared_norm(self, at: IntArray, weights: FloatArray | None = None) -> float:
        """Return a bound on sup_x Σ_{j in at} weights_j x_j² over all encoded rows x.

        By default all weights are 1. The coordinates of a group lie in a ball of radius
        one, so the group's part of the sum is at most the group's largest weight.
        `row_norm` bounds the norm of all groups together, except the intercept.
        """
        weight = np.ones(len(at)) if weights is None else weights
        largest = np.zeros(len(self.groups))
        np.maximum.at(largest, self.group_of[at], weight)
        fixed = np.array([group.kind == "ones" for group in self.groups])
        inside, ones = largest[~fixed], float(largest[fixed].sum())
        total = float(inside.sum())
        if self.row_norm is not None and len(inside):
            total = min(total, self.row_norm**2 * float(inside.max()))
        return total + ones

    def list_columns(
        self, names: Sequence[str] | None = None, *, ordered: bool = False
    ) -> list[list[int]]:
        """Return the coordinates of each column, for the `parts` of a penalty.

        Parameters
        ----------
        names : sequence of str, optional
            The columns, by default all of them. The intercept is never included.
        ordered : bool
            If True, return only coordinates that have an order: categories in the order
            of the schema, bins, and knots of curves, but not the indicator of missing
            cells. A column with fewer than two of them is left out, or refused if
            `names` lists it.
        """
        groups = {group.name: group for group in self.groups if group.kind != "ones"}
        unknown = sorted(set(names or ()) - set(groups))
        check(not unknown, f"names must be columns of the schema, got {unknown}.")
        found = []
        for name in groups if names is None else names:
            group = groups[name]
            at = group.coordinates.tolist()
            if ordered:
                at = at[:-1] if group.labels[-1] == f"{name}?" else at
                pair = max(len(group.axes), len(group.sides)) > 1
                in_order = group.kind in ("code", "hats") and not pair
                if not in_order or len(at) < 2:
                    check(names is None, f"Column {name!r} has no ordered coordinates.")
                    continue
            found.append(at)
        return found
