"""Define the queries, which are exact sums over records with bounded sensitivity.

Only this module creates a `BoundedSum`. A query takes as arguments the engine, which
adds up the records, and the loss. The bound on a record's influence holds whatever
slopes the loss returns, because features, slopes and caps are bounded on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from skdp.privacy import grid
from skdp.privacy.encoding import AnyArray, Chunk, Records
from skdp.privacy.persons import divide_caps, divide_slopes
from skdp.schema import FloatArray, IntArray, Layout, check, count_in_words

Neighbours = Literal["replace-one", "zero-out", "add-remove"]
NEIGHBOURS: tuple[Neighbours, ...] = ("replace-one", "zero-out", "add-remove")
#: Python integers of any size, in numpy arrays of objects.
BigInts = npt.NDArray[Any]


def big(values: npt.ArrayLike) -> BigInts:
    """Convert an array of integers below 2⁶³ to an array of Python integers."""
    return np.asarray(values).astype(np.int64).astype(object)


class BoundedLoss(Protocol):
    """The part of a loss that queries use."""

    @property
    def slope_bound(self) -> float:
        """Bound on the norm of a record's slopes."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return slopes (n, k) of margins (n, k), each row independently."""


class Engine(Protocol):
    """An engine adds up records exactly and returns Python integers."""

    records: Records

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return Σ_i x_i s_i (len(at), k) on coordinates `at`, at weights `units`."""

    def gram(self) -> BigInts:
        """Return Σ_i share_i x_i x_iᵀ (d, d), with shares from `Records.find_share`."""

    def counts(self, n_classes: int) -> BigInts:
        """Add up the shares (`Records.find_share`) of the rows of each class.

        Rows of weight zero are left out. If n_classes = 1, however, all rows count.
        Codes beyond the last class count as the last class.
        """

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[AnyArray]:
        """Return `Metric.caps` of each chunk's rows."""


class Kind(StrEnum):
    """What a release is, for programs. Its `query` says the same to people.

    The kind is public, like the sentence. Both are fixed before records are read.
    """

    # ---- Before the plan
    LOOK = "look"
    FINER_LOOK = "finer look"
    TARGET_LOOK = "target look"
    ROW_COUNT = "row count"
    RANGES = "magnitudes"
    CATEGORIES = "categories"
    KNOT_SHARES = "shares"
    CLASS_WEIGHTS = "class weights"
    WEIGHT_HISTOGRAM = "weight histogram"
    # ---- Before the first step
    GRAM = "Gram matrix"
    CLASS_COUNTS = "class counts"
    TARGET_HISTOGRAM = "target histogram"
    EIGENVALUE = "least eigenvalue"  # AdaSSP
    MOMENTS = "moments"  # AdaSSP
    MEANS = "means"  # DP-GCD
    SQUARES = "squares"  # DP-CD
    # ---- Steps. One charge may cover many of them.
    GRADIENT = "gradient"
    MAPPED_GRADIENT = "mapped gradient"
    CHOICE = "choice"  # DP-GCD
    BATCHES = "Poisson batches"
    # ---- After the last step
    LEVEL = "level"
    MINIMISER = "minimiser"
    TILT = "tilt"
    DISTANCE = "distance"
    # ---- Not by a fit
    SCORES = "scores"
    TRIAL = "trial"
    STATED = "stated sum"


@dataclass(frozen=True, eq=False, repr=False)
class BoundedSum:
    """An exact sum over records, before noise is added. It must not be shown.

    Attributes
    ----------
    value : array of Python integers
        The exact sum in units of `unit`.
    unit : float
        A power of two.
    shape : float64, broadcastable to value
        Relative noise scale of each entry.
    sensitivity : float
        An upper bound on ‖(value - value') · unit / shape‖₂ over neighbouring tables.
    kind : Kind
        What the sum is.
    query : str
        A description of the sum, for people.
    n_columns : int
        The number of columns, in each of which a record counts once. It is 0 for sums
        that are not made of such counts.
    """

    value: BigInts
    unit: float
    shape: FloatArray
    sensitivity: float
    kind: Kind
    query: str
    n_columns: int = 0


@dataclass(frozen=True, eq=False)
class Metric:
    """A public matrix B that multiplies gradients before they are bounded and released.

    A record's slopes are capped at radius / ‖B x‖, so its gradient g satisfies
    ‖B g‖ ≤ radius. B is stored as units · 2⁻ᵇⁱᵗˢ, with integer `units` below 2²⁴.
    """

    units: FloatArray
    bits: int
    radius: float

    @classmethod
    def of(cls, matrix: FloatArray, radius: float) -> Metric:
        """Return the metric for a released or public matrix, rounded to the grid."""
        largest = float(np.abs(matrix).max())
        check(0 < largest < math.inf, "Metric requires a finite, nonzero matrix.")
        check(0 < radius < 1e99, f"radius must be in (0, 1e99), got {radius}.")
        bits = 23 - math.frexp(largest)[1]
        return cls(np.rint(np.ldexp(matrix, bits)), bits, radius)

    def caps(self, images: FloatArray, slopes: Slopes) -> FloatArray:
        """Return the integer cap on each row's slopes, shape (n,).

        `images` are the products B x of the rows, in units, shape (n, r).

        Notes
        -----
        **Guarantee.** For every row, cap · unit · ‖B x‖ ≤ radius holds in real numbers.
        The images are exact, the squares are always added in the same order, and the
        norm is raised by a factor 1 + 2⁻⁴⁰ to cover rounding.
        """
        squares = np.zeros(len(images))
        for column in images.T:
            squares += column * column
        norm = np.sqrt(squares) * (1.0 + 2.0**-40)
        reach, shortest, cap = self.limits(slopes)
        caps: FloatArray = np.floor(reach / np.maximum(norm, shortest))
        return np.minimum(caps, cap)

    def limits(self, slopes: Slopes) -> tuple[float, float, float]:
        """Return r, s and c such that a row's cap is min(⌊r / max(norm, s)⌋, c).

        Here norm is the norm of the row's image B x, in units of the integer grid.
        """
        unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS - self.bits)
        reach, cap = self.radius / unit, float(slopes.grid.cap)
        return reach, reach / cap, cap


@dataclass(frozen=True, eq=False)
class Slopes:
    """How a record's slopes are computed and bounded.

    A record adds x_i s_i to a gradient. Here s_i is weight_i times the slope of the
    loss, divided by the chunk's divisor, rounded to the grid and clipped to
    min(cap, caps_i). `metric` and the integer `caps`, one array per chunk, are set only
    by `capped` and `divide_slopes`.
    """

    loss: BoundedLoss
    max_weight: float = 1.0
    metric: Metric | None = None
    caps: Sequence[AnyArray] | None = None
    bits: int = grid.SLOPE_BITS

    @property
    def grid(self) -> grid.SlopeGrid:
        """The grid of slopes, including the cap that applies to every record."""
        return grid.SlopeGrid.of(self.loss.slope_bound * self.max_weight, self.bits)

    def units(self, margin: FloatArray, i: int, chunk: Chunk, at: slice) -> FloatArray:
        """Return bounded integer slopes (n, k) of the rows `at` of the i-th chunk."""
        with np.errstate(all="ignore"):
            raw = self.loss.slope(margin, chunk.target[at]) * chunk.weight[at, None]
            raw = raw * (1.0 / chunk.divisor)
        check(raw.shape == margin.shape, "Slopes must have the shape of the margins.")
        caps = np.full(len(raw), np.inf) if self.caps is None else self.caps[i][at]
        return self.grid.units(raw, caps)

    def take_chunks(self, at: Sequence[int]) -> Slopes:
        """Return these slopes for only the chunks `at` of the table."""
        return replace(self, caps=self.caps and [self.caps[i] for i in at])


def cap_slopes(engine: Engine, slopes: Slopes, metric: Metric) -> Slopes:
    """Return slopes that are also capped by the metric. Nothing is released.

    Notes
    -----
    **Guarantee.** For every person, Σ c_i · unit · ‖B x_i‖ over all rows is at most the
    metric's radius, where c_i are the new caps. A person has at most m rows, where m is
    the divisor, and m = 1 without a unit. The caps from `Metric.caps` are divided by m,
    so each row has c_i · unit · ‖B x_i‖ ≤ radius/m.
    """
    slopes = divide_slopes(engine.records, slopes)
    caps = divide_caps(engine.records, engine.caps(metric, slopes))
    return replace(slopes, metric=metric, caps=caps)


def gradient(
    engine: Engine,
    slopes: Slopes,
    weights: FloatArray,
    at: IntArray,
    neighbours: Neighbours,
    shape: FloatArray,
) -> BoundedSum:
    """Sum the records' gradients on the coordinates `at`.

    The noise that will be added to each coordinate is proportional to `shape`.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under `neighbours` and all
    weights, the two sums, divided by `shape`, differ by at most `sensitivity` in
    Euclidean norm. A record's contribution is at most s·sup‖x_at / shape‖, where s is
    the cap on slopes (Lemma 3.9 of the paper, with slopes clipped instead of a
    Lipschitz assumption). All rows of a person together contribute no more, because
    their slopes add up to at most s (`divide_slopes`). If a record may be replaced, the
    difference is at most twice that.
    """
    layout, slopes = engine.records.layout, divide_slopes(engine.records, slopes)
    within = bool(np.all((shape > 1e-50) & (shape < 1e50)))
    check(within, "shape must be between 1e-50 and 1e50.")
    check(len(set(at.tolist())) == len(at), "at must not repeat a coordinate.")
    slope = slopes.grid.cap * slopes.grid.unit
    reach = slope * math.sqrt(layout.squared_norm(at, 1.0 / shape**2))
    value = engine.gradient(grid.WeightGrid.of(layout).units(weights), at, slopes)
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS)
    sensitivity = grid.round_up(count_changes(neighbours) * reach)
    query = f"gradient of {count_in_words(len(at), 'coordinate')}"
    return BoundedSum(value, unit, shape[:, None], sensitivity, Kind.GRADIENT, query)


def mapped_gradient(
    engine: Engine, slopes: Slopes, weights: FloatArray, neighbours: Neighbours
) -> BoundedSum:
    """Sum B times the records' gradients, with slopes capped by the metric B.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under `neighbours` and all
    weights, the two sums differ by at most `sensitivity` in Euclidean norm. A record,
    or all rows of a person together, add a vector of norm at most the metric's radius
    (`capped`). If a record may be replaced, the difference is at most twice the radius.
    """
    layout, metric = engine.records.layout, slopes.metric
    if metric is None:
        raise TypeError("A mapped gradient requires slopes from queries.cap_slopes.")
    units = grid.WeightGrid.of(layout).units(weights)
    at = np.flatnonzero(metric.units.any(axis=0))  # B is zero on the others
    value = grid.multiply(metric.units[:, at], engine.gradient(units, at, slopes))
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS - metric.bits)
    sensitivity = grid.round_up(count_changes(neighbours) * metric.radius)
    many = count_in_words(layout.n_features, "coordinate")
    query = f"gradient of {many} in a matrix metric"
    ones = np.ones((len(value), 1))
    return BoundedSum(value, unit, ones, sensitivity, Kind.MAPPED_GRADIENT, query)


def count_changes(neighbours: Neighbours) -> int:
    """Return how many records may differ: 2 if one is replaced by another, else 1."""
    return {"replace-one": 2, "zero-out": 1, "add-remove": 1}[neighbours]


@dataclass(frozen=True, eq=False)
class GramPattern:
    """The entries of Σ_i x_i x_iᵀ to release, and the noise scale of each.

    Some entries need not be released. Products of two different coordinates of a
    one-hot group are zero. A one-hot coordinate times the intercept equals the square
    of that coordinate. The squares of the intercept add up to the number of rows, which
    may be public. (With a unit, they add up to a private sum of shares.) Every other
    entry of the upper triangle is released once. If it appears k times in the Frobenius
    norm of the whole matrix, its noise scale is 1/√k: 1 on the diagonal, 1/√2 off it,
    and 1/√3 for the square of a one-hot coordinate if there is an intercept.

    If `centred`, numeric columns of width one are measured from the middle of their
    range, which is shift_j/2 above its lower end. Such a coordinate is at most 1/2 in
    magnitude instead of 1, so its square is at most 1/4. A number with an inner part
    [a, b] (`Group.inner`) is clipped to it, and is measured from the middle of it. It
    is at most (b - a)/2 in magnitude. The k hats of a curve or
    surface are measured from c = shift_j/2, which is 1/k rounded down to the grid. Hats
    h are not negative and have a sum s ≤ 1, so ‖h‖² ≤ s² and ‖h - c‖² ≤ s² - 2cs + kc².
    This is convex in s, so it is at most the larger of 1 - 2c + kc² and kc².

    If the layout has scales, x is multiplied by them. An entry is released as it is,
    but its noise is divided by the scales of its row and column.
    """

    rows: IntArray
    columns: IntArray
    shape: FloatArray
    sensitivity: float
    shift: FloatArray

    @classmethod
    def of(cls, layout: Layout, neighbours: Neighbours, centred: bool = False) -> Self:
        """Return the pattern of a layout under a neighbour relation."""
        d, group = layout.n_features, layout.group_of
        kind = np.array([layout.groups[g].kind for g in group.tolist()])
        code, one = kind == "code", kind == "ones"
        rows, columns = np.triu_indices(d)
        known = (rows != columns) & (group[rows] == group[columns]) & code[rows]
        public = neighbours != "add-remove" and layout.unit is None
        number = one[rows] & public
        keep = ~(known | number | (code[rows] & one[columns]))
        rows, columns = rows[keep], columns[keep]
        same, scale = rows == columns, layout.scales
        times = np.where(same, 1.0, 2.0) * (scale[rows] * scale[columns]) ** 2
        both = code[rows] & same & one.any()
        times[both] += 2.0 * scale[rows[both]] ** 2
        signed = np.array([g.signed for g in layout.groups])[group]
        single = (kind == "dense") & ~signed & (np.bincount(group)[group] == 1)
        hats, width = kind == "hats", np.bincount(group)[group]
        centre = np.where(hats, grid.FEATURE_ONE // width / grid.FEATURE_ONE, 0.0)
        low, high = np.array([g.inner for g in layout.groups]).T[:, group]
        middle = np.rint((low + high) * grid.FEATURE_ONE) / (2 * grid.FEATURE_ONE)
        centre[single] = middle[single]
        centre *= centred and one.any() and layout.row_norm is None
        half = np.maximum(high - middle, middle - low)
        most = np.where(single & (centre > 0), half**2, 1.0)
        lost = width * centre**2
        most[hats] = np.maximum(1.0 - 2.0 * centre + lost, lost)[hats]
        squared = layout.squared_norm(np.arange(d), most * scale**2) ** 2
        acute = not (signed | (centre > 0)).any()
        # Without the number of rows, the bound is lower. If records may be replaced,
        # this requires that the other entries of two rows never form an obtuse angle.
        if number.any() and (neighbours == "zero-out" or acute):
            squared -= 1.0
        reach = grid.round_up(math.sqrt(count_changes(neighbours) * squared))
        return cls(rows, columns, 1.0 / np.sqrt(times), reach, 2.0 * centre)


def gram(engine: Engine, pattern: GramPattern) -> BoundedSum:
    """Sum x xᵀ over the records, with each x measured from the pattern's centre.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under the pattern's relation, the
    entries differ by at most `sensitivity` in the Frobenius norm. The norm of one
    record's matrix is ‖xxᵀ‖ = ‖x‖². The angle between two such matrices is never
    obtuse, so replacing a record costs a factor √2 and not 2. Both also hold for a
    person, whose matrix is a sum of such matrices times shares that sum to at most one.
    """
    gram, twice = engine.gram(), big(np.ldexp(pattern.shift, grid.FEATURE_BITS))
    i, j, sums = pattern.rows, pattern.columns, gram[:, -1] >> grid.FEATURE_BITS
    value = 4 * gram[i, j] - 2 * (twice[i] * sums[j] + sums[i] * twice[j])
    n_rows = sums[-1] >> grid.FEATURE_BITS
    value = value + twice[i] * twice[j] * n_rows  # (2x - shift)(2x - shift)ᵀ
    unit = math.ldexp(1.0, -2 * grid.FEATURE_BITS - 2) / engine.records.one
    query = f"{count_in_words(len(value), 'entry', 'entries')} of the Gram matrix"
    shape, sensitivity = pattern.shape, pattern.sensitivity
    return BoundedSum(value, unit, shape, sensitivity, Kind.GRAM, query)


def counts(engine: Engine, n_classes: int, neighbours: Neighbours) -> BoundedSum:
    """Count the records of each class, without records of weight zero.

    If n_classes = 1, count all records, including those of weight zero.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the counts differ by at most
    `sensitivity` in Euclidean norm, because a record is in at most one class, and the
    shares of a person's rows add up to at most one.
    """
    kind = Kind.CLASS_COUNTS
    query = f"counts of {count_in_words(n_classes, 'class', 'classes')}"
    if n_classes == 1:
        kind, query = Kind.ROW_COUNT, f"number of {engine.records.layout.counted}"
    value, one = engine.counts(n_classes), engine.records.one
    return histogram(value, 1, neighbours, kind, query, one)


def histogram(
    value: BigInts,
    n: int,
    neighbours: Neighbours,
    kind: Kind,
    query: str,
    one: int = 1,
) -> BoundedSum:
    """Return counts together with the bound on a record's influence on them.

    To each of the `n` columns of counts, a record adds nonnegative integers with a sum
    of at most `one`, a power of two. It is enough that the squares of all these
    integers sum to at most n·one². The counts are released in units of 1/one.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, such counts differ by at most
    `sensitivity` in Euclidean norm. The sensitivity is √n, or √(2n) if a record may be
    replaced, since two records' contributions form at most a right angle.
    """
    sensitivity = grid.round_up(math.sqrt(count_changes(neighbours) * n))
    ones = np.ones(value.shape)
    return BoundedSum(value, 1.0 / one, ones, sensitivity, kind, query)


def histograms(
    parts: Sequence[IntArray],
    weights: Sequence[float],
    neighbours: Neighbours,
    kind: Kind,
    query: str,
    one: int = 1,
) -> BoundedSum:
    """Return several families of counts together, each with a weight.

    To each family, a record adds nonnegative integers with a sum of at most `one`, a
    power of two. So do all rows of a person together. The counts are released in units
    of 1/one. The noise of family f is proportional to 1/√w_f, where w_f is its weight.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the counts, divided by their shapes
    1/√w, differ by at most `sensitivity` in Euclidean norm. A record changes family f
    by at most 1 in the units of the release, and all families together by at most
    √(Σ w_f) after the division. Two records' contributions form at most a right angle,
    so replacing one costs √2.
    """
    shape = np.repeat(1.0 / np.sqrt(weights), [len(part) for part in parts])
    square = count_changes(neighbours) * math.fsum(weights)
    sensitivity = grid.round_up(math.sqrt(square))
    value = big(np.concatenate(parts))
    return BoundedSum(value, 1.0 / one, shape, sensitivity, kind, query)


def state_sensitivity(
    values: FloatArray, sensitivity: float, kind: Kind, query: str
) -> BoundedSum:
    """Wrap values whose sensitivity the caller states.

    The values are not sums over records. Either they depend on no record (the
    quadratics that are used to study Algorithm 1), or a theorem bounds their
    sensitivity (the solutions of a minimisation). A test lists all permitted callers.

    Notes
    -----
    **Guarantee.** For all pairs of `values` with d entries that differ by at most
    `sensitivity` - 2⁻³⁰√d in Euclidean norm, the wrapped values differ by at most
    `sensitivity`. Wrapping reads nan as 0, clips to ±2³², and rounds to units of 2⁻³⁰.
    """
    value = big(np.rint(np.clip(np.nan_to_num(values), -(2.0**32), 2.0**32) * 2.0**30))
    ones = np.ones(values.shape)
    return BoundedSum(value, 2.0**-30, ones, sensitivity, kind, query)
