r"""Columns of cells: a row divides one unit among the cells of each column.

This one shape holds every score. A yes or no is two cells. A number t in [0, 1] is
three, ((1-t)², 2t(1-t), t²), Bernstein's polynomials: they are never negative and sum
to one. With N rows the mean of t is (N + last - first)/2N and the mean of t² is last/N,
so that a mean and its variance come for the price of one number. A histogram has as
many cells as bins.

**Sensitivity.** A row's part of a column has no negative entry and sums to at most one,
so its Euclidean norm is at most one, and two such parts are at an acute angle: a row
that is replaced changes m columns by at most √(2m), one added or left out by √m.
That is what `queries.histogram` charges for. With a public number of rows nothing
is lost against a number by itself: the sensitivity is √2 times larger, and half the
difference of two cells has a noise √2 times smaller.

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

#: Parts of a row that a cell can have, before the row's weight.
CELL_ONE = 1 << 20
UNIT = CELL_ONE * WEIGHT_ONE


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of cells.

    Attributes
    ----------
    name : str
        What it is about.
    size : int
        Number of cells.
    parts : callable Rows -> (cells, parts)
        Which cells each row adds to, int64 (n, m), and its part of each, int64 (n, m),
        not negative and summing to `CELL_ONE`.
    """

    name: str
    size: int
    parts: Callable[[Rows], tuple[IntArray, IntArray]]

    def total(self, rows: Rows) -> queries.BigInts:
        """Exact sums of some rows, in units: 2¹⁴ rows of 2³⁴ units stay below 2⁵³."""
        at, parts = self.parts(rows)
        units = (parts * rows.weight[:, None]).ravel()
        return queries.big(np.bincount(at.ravel(), units, minlength=self.size))


def indicator(name: str, holds: Callable[[Rows], IntArray]) -> Column:
    """Two cells: how many rows it does not hold for, and for how many it does."""
    return histogram(name, 2, lambda rows: holds(rows).astype(np.int64))


def histogram(name: str, size: int, cell: Callable[[Rows], IntArray]) -> Column:
    """A cell for each of the values 0..size-1."""

    def parts(rows: Rows) -> tuple[IntArray, IntArray]:
        at = np.clip(cell(rows), 0, size - 1)[:, None]
        return at, np.full(at.shape, CELL_ONE, dtype=np.int64)

    return Column(name=name, size=size, parts=parts)


def moments(name: str, value: Callable[[Rows], FloatArray], degree: int = 2) -> Column:
    """Cells C(d, k) tᵏ (1-t)ᵈ⁻ᵏ that hold the first d moments of a t in [0, 1]."""

    def parts(rows: Rows) -> tuple[IntArray, IntArray]:
        t = np.clip(value(rows), 0.0, 1.0)
        split = np.zeros((len(t), degree + 1), dtype=np.int64)
        for k in range(degree + 1):
            part = np.full(len(t), float(math.comb(degree, k) * CELL_ONE))
            for factor in range(degree):
                part = part * (t if factor < k else 1.0 - t)
            split[:, k] = np.floor(part)
        # Roundings may sum to a few units more than one: the largest cell gives way.
        largest = np.argmax(split, axis=1)[:, None]
        rest = CELL_ONE - split.sum(axis=1, keepdims=True)
        kept = np.take_along_axis(split, largest, axis=1) + rest
        np.put_along_axis(split, largest, kept, axis=1)
        return np.broadcast_to(np.arange(degree + 1), split.shape), split

    return Column(name=name, size=degree + 1, parts=parts)


def bounded_sum(
    columns: list[Column], pieces: Iterable[Rows], neighbours: queries.Neighbours
) -> queries.BoundedSum:
    """All columns of all rows, as one sum with one bound."""
    total = [queries.big(np.zeros(column.size)) for column in columns]
    for rows in pieces:
        for i, column in enumerate(columns):
            total[i] = total[i] + column.total(rows)
    names = ", ".join(column.name for column in columns)
    query = f"scores ({names}) in units of 2⁻³⁴ of a row"
    squares = len(columns) * UNIT**2
    return queries.histogram(np.concatenate(total), squares, neighbours, query)


def counts(
    columns: list[Column], values: FloatArray, n_rows: float | None
) -> tuple[dict[str, FloatArray], float]:
    """Best linear guess of every cell, in rows, and of the number of rows.

    All columns sum to one number N, public or not: noise that contradicts this is
    projected out. With `n_rows` None, N is the mean of the columns' sums, weighted by
    the inverse of their variance.
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
