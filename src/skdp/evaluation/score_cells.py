r"""Columns of cells: a row divides one unit among the cells of each column.

Every score has this form. A yes-or-no answer has two cells. A number t in [0, 1] has
three, the Bernstein polynomials ((1-t)², 2t(1-t), t²), which are never negative and sum
to one. With N rows, the mean of t is (N + last - first)/2N and the mean of t² is
last/N, so the variance comes at no extra cost. A histogram has one cell per bin.

**Sensitivity.** A row's part of a column has no negative entry and sums to at most one,
so its Euclidean norm is at most one, and the angle between two such parts is at most a
right angle. A row that is replaced changes m columns by at most √(2m), one that is
added or left out by at most √m. `queries.histogram` charges for this. If the number of
rows is public, nothing is lost compared with releasing the number itself: the
sensitivity is √2 times larger, and half the difference of two cells has noise √2 times
smaller.

Parts are integers, in units of `UNIT`⁻¹, rounded down with the rest in one cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from skdp.evaluation.predictions import WEIGHT_ONE, Rows
from skdp.privacy import queries
from skdp.schema import FloatArray, IntArray

#: The units into which a row is divided, before its weight.
CELL_ONE = 1 << 20
UNIT = CELL_ONE * WEIGHT_ONE


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of cells.

    Attributes
    ----------
    name : str
        Its name, shown in the query.
    size : int
        Number of cells.
    divide : callable Rows -> (cells, parts)
        The cells that each row adds to, int64 (n, m), and its part of each, int64
        (n, m). Parts are not negative and sum to `CELL_ONE`.
    """

    name: str
    size: int
    divide: Callable[[Rows], tuple[IntArray, IntArray]]

    def sum_rows(self, rows: Rows) -> queries.BigInts:
        """Return exact sums in units: 2¹⁴ rows of 2³⁴ units stay below 2⁵³."""
        at, parts = self.divide(rows)
        units = (parts * rows.weight[:, None]).ravel()
        return queries.big(np.bincount(at.ravel(), units, minlength=self.size))


def make_indicator(name: str, holds: Callable[[Rows], IntArray]) -> Column:
    """Make two cells: rows for which `holds` is false, and rows where it is true."""
    return make_histogram(name, 2, lambda rows: holds(rows).astype(np.int64))


def make_histogram(name: str, size: int, cell: Callable[[Rows], IntArray]) -> Column:
    """Make one cell for each of the values 0..size-1."""

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        at = np.clip(cell(rows), 0, size - 1)[:, None]
        return at, np.full(at.shape, CELL_ONE, dtype=np.int64)

    return Column(name=name, size=size, divide=divide)


def make_moments(
    name: str, value: Callable[[Rows], FloatArray], degree: int = 2
) -> Column:
    """Make cells C(d, k) tᵏ (1-t)ᵈ⁻ᵏ, which hold the first d moments of t in [0, 1]."""

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        t = np.clip(value(rows), 0.0, 1.0)
        split = np.zeros((len(t), degree + 1), dtype=np.int64)
        for k in range(degree + 1):
            part = np.full(len(t), float(math.comb(degree, k) * CELL_ONE))
            for factor in range(degree):
                part = part * (t if factor < k else 1.0 - t)
            split[:, k] = np.floor(part)
        # Rounded parts may not sum to one, so the largest cell takes the difference.
        largest = np.argmax(split, axis=1)[:, None]
        rest = CELL_ONE - split.sum(axis=1, keepdims=True)
        kept = np.take_along_axis(split, largest, axis=1) + rest
        np.put_along_axis(split, largest, kept, axis=1)
        return np.broadcast_to(np.arange(degree + 1), split.shape), split

    return Column(name=name, size=degree + 1, divide=divide)


def sum_columns(
    columns: list[Column], pieces: Iterable[Rows], neighbours: queries.Neighbours
) -> queries.BoundedSum:
    """Return the sum of all columns over all rows, with its bound."""
    total = [queries.big(np.zeros(column.size)) for column in columns]
    for rows in pieces:
        for i, column in enumerate(columns):
            total[i] = total[i] + column.sum_rows(rows)
    names = ", ".join(column.name for column in columns)
    query = f"scores ({names}) in units of 2⁻³⁴ of a row"
    squares = len(columns) * UNIT**2
    return queries.histogram(np.concatenate(total), squares, neighbours, query)


def estimate_counts(
    columns: list[Column], values: FloatArray, n_rows: float | None
) -> tuple[dict[str, FloatArray], float]:
    """Return the best linear estimate of every cell, in rows, and of their number.

    All columns sum to the same number N, so noise that contradicts this is projected
    out. If `n_rows` is None, N is the mean of the columns' sums, weighted by the
    inverse of their variance.
    """
    edges = np.cumsum([column.size for column in columns])[:-1]
    split = np.split(values, edges)
    sizes = np.array([column.size for column in columns], dtype=np.float64)
    totals = np.array([float(part.sum()) for part in split])
    n = float((totals / sizes).sum() / (1 / sizes).sum()) if n_rows is None else n_rows
    return {
        column.name: part + (n - float(part.sum())) / len(part)
        for column, part in zip(columns, split, strict=True)
    }, n
