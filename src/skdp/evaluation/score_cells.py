r"""Sum columns of cells, from which all scores are computed.

A column is a list of cells. Every row divides one unit among the cells of each column,
and a cell holds the sum over all rows. There are three kinds of columns:

- A yes-or-no answer has two cells, which count the rows with each answer.
- A histogram has one cell per bin.
- A number t in [0, 1] has three cells, to which a row adds the Bernstein polynomials
  ((1-t)², 2t(1-t), t²). These are never negative and sum to one. With N rows, the mean
  of t is (N + last - first)/2N and the mean of t² is last/N. The variance of t
  therefore comes at no extra cost.

**Sensitivity.** What a row adds to a column is a vector whose entries are not negative
and sum to at most one. Its Euclidean norm is at most one, and two such vectors form at
most a right angle. If one row is replaced, m columns together change by at most √(2m).
If one row is added or left out, they change by at most √m. `queries.histogram` charges
for this. If the number of rows is public, nothing is lost compared with releasing the
sum of t itself: the sensitivity is √2 times larger, but half the difference of two
cells has noise √2 times smaller.

A row's parts are integers in units of 1/`UNIT`. They are rounded down, and the largest
cell takes what is left. If the row belongs to a person with m rows, each part is
divided by m and rounded down again. So all rows of a person together divide at most one
unit, and everything above holds for persons as it does for rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from skdp.evaluation.predictions import WEIGHT_ONE, Rows
from skdp.privacy import queries
from skdp.privacy.encoding import Records
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
    """

    name: str
    size: int
    divide: Callable[[Rows], tuple[IntArray, IntArray]]

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


def make_histogram(name: str, size: int, cell: Callable[[Rows], IntArray]) -> Column:
    """Make `size` cells. Cell j counts the rows for which `cell` returns j."""

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        at = np.clip(cell(rows), 0, size - 1)[:, None]
        return at, np.full(at.shape, CELL_ONE, dtype=np.int64)

    return Column(name=name, size=size, divide=divide)


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
    records: Records,
    predict: Callable[[Records], Iterable[Rows]],
    neighbours: queries.Neighbours,
) -> queries.BoundedSum:
    """Return the sums of all columns over all rows, and their sensitivity.

    `predict` yields the rows of a part of the table with their margins.
    """
    total = records.add_up(partial(_sum_part, columns, predict))
    names = ", ".join(column.name for column in columns)
    query = f"scores ({names}) in units of 2⁻³⁴ of a row"
    squares = len(columns) * UNIT**2
    return queries.histogram(total, squares, neighbours, query)


def _sum_part(
    columns: list[Column],
    predict: Callable[[Records], Iterable[Rows]],
    records: Records,
) -> queries.BigInts:
    """Return the sums of all columns over a part of the table."""
    total = [queries.big(np.zeros(column.size)) for column in columns]
    for rows in predict(records):
        for i, column in enumerate(columns):
            total[i] = total[i] + column.sum_rows(rows)
    return np.concatenate(total)


def estimate_counts(
    columns: list[Column], values: FloatArray, n_rows: float | None
) -> tuple[dict[str, FloatArray], float]:
    """Return the best linear estimates of each cell's count and of the number of rows.

    Without noise, the cells of every column sum to the number of rows N. Noise that
    contradicts this is removed by projection. If `n_rows` is None, N is estimated as
    the mean of the columns' sums, each weighted by the inverse of its variance.
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
