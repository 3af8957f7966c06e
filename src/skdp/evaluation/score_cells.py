r"""Sum columns of cells, from which all scores are computed.

A column is a list of cells. Every row divides one unit among the cells of each column,
and a cell holds the sum over all rows. There are four kinds of columns:

- A yes-or-no answer has two cells, which count the rows with each answer.
- A histogram has one cell per bin.
- A number t in [0, 1] has three cells, to which a row adds the Bernstein polynomials
  ((1-t)², 2t(1-t), t²). These are never negative and sum to one. With N rows, the mean
  of t is (N + last - first)/2N and the mean of t² is last/N. The variance of t
  therefore comes at no extra cost.
- A calibration curve has four cells per bin of the predicted probability p of class 1.
  A row adds 1 - p and p to the two cells of its bin and its class. The cells give the
  number of rows, the number of rows of class 1, and the sum of p.

**Sensitivity.** A row adds a vector to each column. Its entries are not negative and
sum to at most one. Its Euclidean norm is at most one, and two such vectors form at most
a right angle. If one row is replaced, m columns together change by at most √(2m). If
one row is added or left out, they change by at most √m. `queries.histogram` charges for
this. If the number of rows is public, the result is as accurate as a release of the sum
of t itself. The sensitivity is √2 times larger, but the noise in half the difference of
two cells is √2 times smaller.

A row's parts are integers in units of 1/`UNIT`. They are rounded down, and the largest
cell takes the rest. If the row belongs to a person with m rows, each part is divided by
m and rounded down again. So all rows of a person together divide at most one unit, and
everything above holds for persons as it does for rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skdp.evaluation.predictions import WEIGHT_ONE, PredictedRows, Rows
from skdp.privacy import queries
from skdp.schema import FloatArray, IntArray

#: Number of units into which a row is divided, before multiplication by its weight.
CELL_ONE = 1 << 20
UNIT = CELL_ONE * WEIGHT_ONE


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of cells, and the rule by which rows are divided among them.

    Attributes
    ----------
    name : str
        The name of the column, which is part of the query's description.
    size : int
        Number of cells.
    divide : callable Rows -> (cells, parts)
        Returns the indices of the cells that each row adds to, int64 (n, m), and how
        many units the row adds to each of them, int64 (n, m). A row's parts are not
        negative and sum to `CELL_ONE`.
    classes : int64 (size,), optional
        The class of the rows in each cell, if all rows of a cell have the same class.
        Rows of unknown class count as one more class.
    """

    name: str
    size: int
    divide: Callable[[Rows], tuple[IntArray, IntArray]]
    classes: IntArray | None = None

    def sum_rows(self, rows: Rows) -> queries.BigInts:
        """Return the exact sum of each cell over the rows, in units.

        Sums of floats are exact here, because 2¹⁴ rows of 2³⁴ units stay below 2⁵³.
        """
        at, parts = self.divide(rows)
        units = (parts * rows.weight[:, None] // rows.divisor).ravel()
        return queries.big(np.bincount(at.ravel(), units, minlength=self.size))


def make_indicator(name: str, holds: Callable[[Rows], IntArray]) -> Column:
    """Make two cells, for the rows where `holds` is false and where it is true."""
    return make_histogram(name, 2, lambda rows: holds(rows).astype(np.int64))


def make_histogram(
    name: str,
    size: int,
    cell: Callable[[Rows], IntArray],
    classes: IntArray | None = None,
) -> Column:
    """Make `size` cells. Cell j counts the rows for which `cell` returns j."""

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        at = np.clip(cell(rows), 0, size - 1)[:, None]
        return at, np.full(at.shape, CELL_ONE, dtype=np.int64)

    return Column(name=name, size=size, divide=divide, classes=classes)


def make_confusion(name: str, n_classes: int) -> Column:
    """Make one cell per true class and predicted class, and one for unknown classes."""
    last = n_classes**2

    def cell(rows: Rows) -> IntArray:
        at = n_classes * rows.target + rows.predict_class()
        return np.where(rows.known, at, last)

    classes = np.append(np.repeat(np.arange(n_classes), n_classes), n_classes)
    return make_histogram(name, last + 1, cell, classes)


def make_curve(name: str, edges: FloatArray) -> Column:
    """Make four cells per bin of the margin, and one cell for unknown classes.

    The four cells of a bin hold the sums of 1 - p and of p over its rows of class 0,
    and then over its rows of class 1, where p is the predicted probability of class 1.
    """
    n_bins = len(edges) + 1

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        bin_ = np.searchsorted(edges, rows.margin[:, 0], side="right")
        first = np.where(rows.known, 4 * bin_ + 2 * rows.target, 4 * n_bins)
        chance = np.clip(rows.compute_chance(), 0.0, 1.0)
        part = np.where(rows.known, np.floor(chance * CELL_ONE).astype(np.int64), 0)
        second = np.where(rows.known, first + 1, first)
        return np.stack([first, second], 1), np.stack([CELL_ONE - part, part], 1)

    classes = np.append(np.tile([0, 0, 1, 1], n_bins), 2)
    return Column(name=name, size=4 * n_bins + 1, divide=divide, classes=classes)


def make_moments(
    name: str, value: Callable[[Rows], FloatArray], degree: int = 2
) -> Column:
    """Make d + 1 cells that hold the first d moments of t, where d is `degree`.

    Here t in [0, 1] is what `value` returns for a row. The row adds
    C(d, k) tᵏ (1-t)ᵈ⁻ᵏ to cell k.
    """

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        t = np.clip(value(rows), 0.0, 1.0)
        split = np.zeros((len(t), degree + 1), dtype=np.int64)
        for k in range(degree + 1):
            part = np.full(len(t), float(math.comb(degree, k) * CELL_ONE))
            for factor in range(degree):
                part = part * (t if factor < k else 1.0 - t)
            split[:, k] = np.floor(part)
        # Rounded parts may not sum to CELL_ONE. The largest part takes the difference.
        largest = np.argmax(split, axis=1)[:, None]
        rest = CELL_ONE - split.sum(axis=1, keepdims=True)
        kept = np.take_along_axis(split, largest, axis=1) + rest
        np.put_along_axis(split, largest, kept, axis=1)
        return np.broadcast_to(np.arange(degree + 1), split.shape), split

    return Column(name=name, size=degree + 1, divide=divide)


def sum_columns(
    columns: list[Column],
    pieces: PredictedRows | Iterable[Rows],
    neighbours: queries.Neighbours,
) -> queries.BoundedSum:
    """Return the sums of all columns over all rows, and their sensitivity."""
    add_up: Any = getattr(pieces, "add_up", lambda work: work(pieces))
    total = add_up(partial(_sum_part, columns))
    names = ", ".join(column.name for column in columns)
    query = f"scores ({names}) in units of 2⁻³⁴ of a row"
    squares = len(columns) * UNIT**2
    return queries.histogram(total, squares, neighbours, query)


def _sum_part(columns: list[Column], pieces: Iterable[Rows]) -> queries.BigInts:
    """Return the sums of all columns over some rows."""
    total = [queries.big(np.zeros(column.size)) for column in columns]
    for rows in pieces:
        for i, column in enumerate(columns):
            total[i] = total[i] + column.sum_rows(rows)
    return np.concatenate(total)


def estimate_counts(
    columns: list[Column], values: FloatArray, n_rows: float | None
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the best linear estimates of each cell's count and of the number of rows.

    Without noise, the cells of every column sum to the number of rows N, and the cells
    of a class sum to the same number in all columns that distinguish classes. Noise
    that contradicts this is removed by least squares. If the sum over m cells should be
    T but is s, each of these cells changes by (T - s)/m, at a cost of (T - s)²/m. The
    sums T of the classes are chosen to minimise the total cost. If the number of rows
    is public, the sums T must add up to `n_rows`.

    Parameters
    ----------
    columns : list of Column
        The columns that were released.
    values : float64 (..., cells)
        The released cells of all columns, one column after the other. There may be
        several such vectors.
    n_rows : float, optional
        The number of rows, if it is public.
    """
    edges = np.cumsum([column.size for column in columns])[:-1]
    split = np.split(values, edges, axis=-1)
    n_classes = max(
        (1 + int(c.classes.max()) for c in columns if c.classes is not None), default=1
    )
    member = [_find_members(column, n_classes) for column in columns]
    sizes = [one.sum(axis=0) for one in member]
    sums = [part @ one for part, one in zip(split, member, strict=True)]
    precision = np.zeros((n_classes, n_classes))
    pull = np.zeros((*values.shape[:-1], n_classes))
    for column, size, total in zip(columns, sizes, sums, strict=True):
        if column.classes is None:
            precision += 1.0 / column.size
            pull += total[..., :1] / column.size
        else:
            precision += np.diag(1.0 / size)
            pull += total / size
    totals = np.linalg.solve(precision, pull[..., None])[..., 0]
    if n_rows is not None:
        free = np.linalg.solve(precision, np.ones(n_classes))
        short = n_rows - totals.sum(axis=-1, keepdims=True)
        totals = totals + free * (short / free.sum())
    found = {}
    for column, part, one, size, total in zip(
        columns, split, member, sizes, sums, strict=True
    ):
        wanted = totals
        if column.classes is None:
            wanted, total = totals.sum(axis=-1, keepdims=True), total[..., :1]
            size, one = size[:1], one[:, :1]
        found[column.name] = part + ((wanted - total) / size) @ one.T
    return found, totals.sum(axis=-1)


def _find_members(column: Column, n_classes: int) -> FloatArray:
    """Return a matrix (cells, classes), which is 1 if a cell counts rows of a class.

    The cells of a column that does not distinguish classes have ones for all classes.
    """
    if column.classes is None:
        return np.ones((column.size, n_classes))
    return np.asarray(column.classes[:, None] == np.arange(n_classes), np.float64)
