"""Define pairs of columns, and the hat functions of curves and surfaces.

The hat function of a knot is 1 at the knot, 0 at all other knots, and linear in
between. At every position, at most two hats are nonzero. No hat is negative, and their
sum is one. Products of the hats of two columns have the same properties, but up to four
of them are nonzero. In a pair, the categories of a categorical column are treated like
knots, and its cells lie on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from skdp.schema.columns import Categorical, Numeric, check_knots
from skdp.schema.validation import FloatArray, InputError, IntArray, check
from skdp.schema.vectors import Vector

#: The largest number of coordinates of a pair.
MOST_CELLS = 65_000


@dataclass(frozen=True)
class Pair:
    """A surface over two columns of the schema, in addition to their own effects.

    Along a numeric column, the surface is made of hat functions on equally spaced
    knots. Along a column of categories or bins, it is constant within each category or
    bin. The pair has one coordinate for each combination of knots or levels.

    Parameters
    ----------
    first, second : str
        The names of two columns of the schema, each Numeric or Categorical.
    knots : int or "auto"
        The number of knots along each numeric column. With ``"auto"``, an estimator
        chooses it from public facts.
    scale : float
        The factor, in (0, 1], by which a matrix geometry multiplies the coordinates. A
        smaller factor shrinks the surface more, and adds less noise to other columns.
    """

    first: str
    second: str
    knots: int | Literal["auto"] = "auto"
    scale: float = 0.5
    #: Descriptions of the two columns, which the schema fills in.
    columns: tuple[Numeric | Categorical, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check(
            self.first != self.second,
            f"A pair must have two different columns, got {self.first!r} twice.",
        )
        check(self.knots is not None, "knots must be 'auto' or an integer, got None.")
        check_knots(self.knots)
        check(0 < self.scale <= 1, f"scale must be in (0, 1], got {self.scale}.")

    signed = False
    title: ClassVar[str] = "pair"

    def describe(self) -> str:
        """Name the two columns and, if they are known, the numbers of knots."""
        chosen = bool(self.columns) and not isinstance(self.knots, str)
        sizes = " × ".join(f"{part.width:,}" for part in self.parts)
        return f"{self.first} and {self.second}" + (
            f", {sizes} knots or levels" if chosen else ""
        )

    def join(self, name: str, columns: Mapping[str, Column]) -> Pair:
        """Return this pair, with the descriptions of its two columns filled in."""
        found: list[Numeric | Categorical] = []
        for other in (self.first, self.second):
            column = columns.get(other)
            if not isinstance(column, (Numeric, Categorical)):
                raise InputError(
                    f"Pair {name!r} must join two numeric or categorical columns of "
                    f"the schema, got {other!r}."
                )
            found.append(column)
        joined = replace(self, columns=tuple(found))
        check(
            joined.width <= MOST_CELLS,
            f"Pair {name!r} may have at most {MOST_CELLS} combinations, got "
            f"{joined.width}.",
        )
        return joined

    @cached_property
    def parts(self) -> tuple[Numeric | Categorical, ...]:
        """The descriptions of both columns. Numbers without bins become curves."""
        knots = 2 if isinstance(self.knots, str) else self.knots
        return tuple(
            column.choose_knots(knots)
            if isinstance(column, Numeric) and column.bins is None
            else column
            for column in self.columns
        )

    @property
    def kind(self) -> Literal["dense", "code", "hats"]:
        """How a cell is stored: as positions or, if no column has knots, as a code."""
        return "hats" if any(p.kind == "hats" for p in self.parts) else "code"

    @property
    def axes(self) -> tuple[int, ...]:
        """The widths of the two axes, or () if cells are stored as codes."""
        return tuple(p.width for p in self.parts) if self.kind == "hats" else ()

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """The width of each axis and its number of knots (see `Group`)."""
        return tuple(
            (p.width, (isinstance(p, Numeric) and p.n_knots) or 0) for p in self.parts
        )

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return math.prod(part.width for part in self.parts)

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return no names, because the two columns already list the inputs."""
        return ()

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        names = zip((self.first, self.second), self.parts, strict=True)
        first, second = (part.list_labels(one) for one, part in names)
        return tuple(f"{a}:{b}" for a in first for b in second)

    def compute_features(self, cells: Any) -> npt.NDArray[Any]:
        """Map the cells of both columns to codes (n,) or positions (n, 2).

        If one of the cells has no level, the row has the code `width`, or the positions
        (width of the first axis, 0). Both mean that all coordinates are zero.
        """
        a, b = (part.width for part in self.parts)
        found = [p.compute_features(c) for p, c in zip(self.parts, cells, strict=True)]
        first, second = (np.reshape(values, len(values)) for values in found)
        null = (first >= a) | (second >= b)
        if self.kind == "code":  # the codes of a part may have a single byte
            return np.where(null, a * b, first.astype(np.int64) * b + second)
        none = np.array([a, 0.0])
        return np.where(null[:, None], none, np.stack([first, second], axis=1))

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets of zero and divisors of one, because a surface has no unit."""
        return np.zeros(self.width), np.ones(self.width)


Column = Numeric | Categorical | Vector | Pair


def split_hats(
    positions: npt.NDArray[Any], axes: tuple[int, ...], one: int = 1
) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return the coordinates that are not zero, and their values.

    Parameters
    ----------
    positions : array (n, len(axes))
        The position on each axis, in units of 1 / `one`. Positions are at most the
        width of the axis.
    axes : tuple of int
        The widths of the axes.
    one : int
        If `one` is 1, positions and values are floats. Otherwise they are integers in
        units of 1 / `one`, and products are rounded down.

    Returns
    -------
    places : (n, 2 or 4)
        Indices of coordinates. The index ``prod(axes)`` means no coordinate.
    values : (n, 2 or 4)
        The values of these coordinates.

    Notes
    -----
    **Guarantee.** For all positions in range, the values v of a row are not negative
    and Σ v ≤ one, so Σ v² ≤ (Σ v)² ≤ one². On one axis the values are one - f and f,
    where f in [0, one) is the fraction of the position, so their sum is exactly one. On
    two axes they are ⌊a c / one⌋, where a is one - f or f, and c is one - g or g. Their
    sum is at most Σ a c / one = one.
    """
    places = np.zeros((len(positions), 1), np.intp)
    values: npt.NDArray[Any] = np.full((len(positions), 1), one, positions.dtype)
    for axis, width in enumerate(axes):
        below = np.floor_divide(positions[:, axis], one).astype(np.intp)
        fraction = positions[:, axis] - (below * one).astype(positions.dtype)
        above = below + (fraction > 0)
        shares = np.stack([one - fraction, fraction], axis=1)
        products = values[:, :, None] * shares[:, None, :]
        values = products if one == 1 else products // one
        values = values.reshape(len(positions), -1)
        steps = np.stack([below, above], axis=1)
        places = (places[:, :, None] * width + steps[:, None, :]).reshape(values.shape)
    return np.minimum(places, math.prod(axes)), values
