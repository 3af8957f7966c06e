"""Choose the cells in which rows are counted, for all scores of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from skdp.estimators.fit import PrivateLinearModel
from skdp.evaluation.metrics import (
    WEIGHT_ONE,
    PredictedRows,
    Rows,
    Scale,
    bound_margins,
)
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray

# ---- Sum columns of cells, from which all scores are computed
#
# A column is a list of cells. Every row divides one unit among the cells of each
# column, and a cell holds the sum over all rows. There are four kinds of columns:
#
# - A yes-or-no answer has two cells, which count the rows with each answer.
# - A histogram has one cell per bin.
# - A number t in [0, 1] has three cells, to which a row adds the Bernstein polynomials
#   ((1-t)², 2t(1-t), t²). These are never negative and sum to one. With N rows, the
#   mean of t is (N + last - first)/2N and the mean of t² is last/N. The variance of t
#   therefore comes at no extra cost.
# - A calibration curve has four cells per bin of the predicted probability p of class
#   1. A row adds 1 - p and p to the two cells of its bin and its class. The cells give
#   the number of rows, the number of rows of class 1, and the sum of p.
#
# **Sensitivity.** A row adds a vector to each column. Its entries are not negative and
# sum to at most one. Its Euclidean norm is at most one, and two such vectors form at
# most a right angle. If one row is replaced, m columns together change by at most
# √(2m). If one row is added or left out, they change by at most √m. `queries.histogram`
# charges for this. If the number of rows is public, the result is as accurate as a
# release of the sum of t itself. The sensitivity is √2 times larger, but the noise in
# half the difference of two cells is √2 times smaller.
#
# A row's parts are integers in units of 1/`UNIT`. They are rounded down, and the
# largest cell takes the rest. If the row belongs to a person with m rows, each part is
# divided by m and rounded down again. So all rows of a person together divide at most
# one unit, and everything above holds for persons as it does for rows.


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


def split_by_group(column: Column, n_groups: int, by: str) -> Column:
    """Give each subgroup cells of its own: first those of group 0, then of group 1.

    A row adds to the cells of its own group only. It still divides one unit, so scores
    of subgroups need no more noise per cell than scores of all rows.
    """

    def divide(rows: Rows) -> tuple[IntArray, IntArray]:
        at, parts = column.divide(rows)
        assert rows.group is not None
        group = np.clip(rows.group, 0, n_groups - 1)
        return at + column.size * group[:, None], parts

    name = f"{column.name} by {by}"
    return Column(name=name, size=column.size * n_groups, divide=divide)


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
    return queries.histogram(total, squares, neighbours, Kind.SCORES, query)


def _sum_part(columns: list[Column], pieces: Iterable[Rows]) -> queries.BigInts:
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


# ---- Release bins of the margin and bounds on residuals, before scores are computed
#
# Both are found from histograms with public bins, for a tenth of the budget.


#: Share of μ² that is spent on choosing bins of the margin, or bounds on residuals.
BINS_SHARE = 0.1
#: Smallest and largest number of bins of the margin.
FEWEST_BINS, MOST_BINS = 8, 512
#: Residuals are counted in this many bins, each of which spans a factor of two. Targets
#: are counted in this many bins of equal width.
SIZES, TARGETS = 20, 64
#: A bound is not doubled if noise can hide less than this share of all rows in a bin.
FEW_ROWS = 0.01
#: The range of the target is found from bins that stand out from the noise. Together,
#: these bins must hold at least this share of the rows.
MOST_ROWS = 0.75
#: The quantity that each bound of a `Scale` limits.
NAMES = {"largest": "residuals", "deviance": "deviances", "target": "targets"}
#: Probability that noise alone makes a bound larger than necessary.
FALSE_ALARM = 0.01


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of the margin, each with about as many rows as the others.

    Attributes
    ----------
    edges : float64 (b - 1,)
        The inner edges of the b bins.
    n_rows : float
        The released number of rows, at least 1.
    """

    edges: FloatArray
    n_rows: float

    @property
    def classes(self) -> IntArray:
        """The class of each cell that `find_cells` returns."""
        return np.append(np.tile([0, 1], len(self.edges) + 1), 2)

    def find_cells(self, rows: Rows) -> IntArray:
        """Return the cell that each row is counted in.

        The cell is twice the index of the bin plus the class, 0 or 1. Rows of unknown
        class are counted in the last cell.
        """
        at = np.searchsorted(self.edges, rows.margin[:, 0], side="right")
        return np.where(rows.known, 2 * at + rows.target, 2 * len(self.edges) + 2)

    def merge(self, n_bins: int) -> FloatArray:
        """Merge bins until at most `n_bins` are left, and return their inner edges."""
        parts = np.array_split(np.arange(len(self.edges) + 1), n_bins)
        return self.edges[[part[-1] for part in parts[:-1] if len(part)]]


def release_bins(
    model: PrivateLinearModel,
    pieces: PredictedRows,
    budget: float,
    expected_rows: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Bins:
    """Release a histogram of margins, and return bins with about equal counts.

    The number of bins grows with (n μ)^0.4, where n is the released number of rows.
    """
    low, high = bound_margins(model._layout, model.weights_)
    edges = np.linspace(low, high, 4 * _count_bins(expected_rows, budget) + 1)
    column = make_histogram(
        "margins",
        len(edges) - 1,
        lambda rows: np.searchsorted(edges[1:-1], rows.margin[:, 0], side="right"),
    )
    found = _release([column], pieces, budget, noise, record)
    counts = found.values / UNIT
    n_rows = max(float(counts.sum()), 1.0)
    kept = np.maximum(counts, 0.0) + 1e-6 / len(counts)
    reached = np.concatenate([[0.0], np.cumsum(kept)]) / kept.sum()
    n_bins = _count_bins(n_rows, budget)
    return Bins(np.interp(np.arange(1, n_bins) / n_bins, reached, edges), n_rows)


def _count_bins(n_rows: float, budget: float) -> int:
    power = n_rows * math.sqrt(budget)
    return round(float(min(max(power**0.4, FEWEST_BINS), MOST_BINS)))


def release_bounds(
    model: PrivateLinearModel,
    pieces: PredictedRows,
    scale: Scale,
    wanted: Sequence[str],
    budget: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Scale:
    """Release histograms of residuals, deviances or targets, to find tighter bounds.

    The noise of a score is proportional to the bound on a row's residual, deviance or
    target, but few rows come near the largest possible value. So rows are counted in
    public bins, and bounds follow from the bins whose counts stand out from the noise.
    The bound on residuals is the upper end of the last such bin. It is doubled if noise
    may hide many rows. The square roots of deviances are bounded in the same way.
    `_find_range` bounds the target. If no bin stands out, the bounds are not changed.

    Parameters
    ----------
    model, pieces : PrivateLinearModel, PredictedRows
        The model and its predictions.
    scale : Scale
        The units of scores, with the largest possible bounds.
    wanted : sequence of {"largest", "deviance", "target"}
        The bounds of the scale to replace.
    budget, noise, record : float, Randomness, PrivacyRecord
        The μ² of the whole evaluation, the source of the noise, and the record to
        charge.

    Returns
    -------
    Scale
        The scale with the new bounds.
    """
    link = model.link
    part, deviance = scale.largest / scale.width, scale.deviance / scale.width
    steps = 2.0 ** -np.arange(SIZES, 0.0, -1)
    cells: dict[str, Callable[[Rows], IntArray]] = {
        "largest": lambda rows: np.searchsorted(
            steps, rows.compute_residual(link, part)
        ),
        "deviance": lambda rows: np.searchsorted(
            steps, np.sqrt(rows.compute_deviance(deviance))
        ),
        "target": lambda rows: np.floor(TARGETS * rows.scale_target()).astype(np.int64),
    }
    sizes = [TARGETS if name == "target" else SIZES + 1 for name in wanted]
    columns = [
        make_histogram(f"sizes of {NAMES[name]}", size, cells[name])
        for name, size in zip(wanted, sizes, strict=True)
    ]
    found = _release(columns, pieces, budget, noise, record)
    values, std = found.values / UNIT, float(found.noise_std.max())
    std /= UNIT
    _, n_rows = estimate_counts(columns, values, None)
    for name, counts in zip(
        wanted, np.split(values, np.cumsum(sizes)[:-1]), strict=True
    ):
        if name == "target":
            # Clip targets no more than residuals, or R² and D² would be too low.
            reach = scale.largest / scale.width
            low, high = _find_range(counts, std, float(n_rows), reach)
            low = 0.0 if link == "log" else low  # counts start at 0
            scale = replace(scale, target=(low, high))
        elif len(frequent := _find_frequent(counts, std)):
            # Double the bound if noise can hide many rows in later bins.
            reach = 1.0 if _find_threshold(counts, std) < FEW_ROWS * n_rows else 2.0
            share = min(1.0, reach * 2.0 ** float(frequent[-1] - SIZES))
            power = 2 if name == "deviance" else 1
            scale = replace(scale, **{name: share**power * getattr(scale, name)})
    return scale


def _find_threshold(counts: FloatArray, std: float) -> float:
    """Return the count that noise alone is unlikely to reach in any bin."""
    return max(std * float(ndtri(1.0 - FALSE_ALARM / len(counts))), 0.5)


def _find_frequent(counts: FloatArray, std: float) -> IntArray:
    """Return the bins whose counts are unlikely to be noise alone."""
    return np.flatnonzero(counts > _find_threshold(counts, std))


def _find_range(
    counts: FloatArray, std: float, n_rows: float, reach: float
) -> tuple[float, float]:
    """Return a part of [0, 1] that has nearly all rows, given counts in equal bins.

    Adjacent bins are merged until the frequent bins have most of the rows. The range
    from the first to the last frequent bin is extended by its width at both ends. It
    is then extended, if necessary, to contain the mean ± `reach`.
    """
    merged, n_bins = counts, len(counts)
    while n_bins >= 4:
        frequent = _find_frequent(merged, std * math.sqrt(len(counts) / n_bins))
        if merged[frequent].sum() >= MOST_ROWS * n_rows and len(frequent):
            low, high = frequent[0] / n_bins, (frequent[-1] + 1) / n_bins
            wide, kept = high - low, merged[frequent]
            middle = float(kept @ (frequent + 0.5) / kept.sum() / n_bins)
            low, high = (
                min(low - wide, middle - reach),
                max(high + wide, middle + reach),
            )
            return max(0.0, float(low)), min(1.0, float(high))
        merged, n_bins = merged.reshape(-1, 2).sum(axis=1), n_bins // 2
    return 0.0, 1.0


def _release(
    columns: list[Column],
    pieces: PredictedRows,
    budget: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Released:
    """Release the cells of all columns, using the share `BINS_SHARE` of the budget."""
    asked = sum_columns(columns, pieces, record.neighbours)
    z = accountant.noise_multiplier(math.sqrt(budget * BINS_SHARE), 1)
    return release(asked, z, noise, record)
