"""The queries: exact sums over records, each with a bound on the influence of a record.

Nothing else makes a `BoundedSum`. The engine, which adds up the records, and the loss
are arguments. The bound holds for anything that they return for a record, because
features, slopes and caps are bounded on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from skdp.privacy import grid
from skdp.privacy.encoding import AnyArray, Chunk, Records
from skdp.schema import FloatArray, IntArray, Layout, check

Neighbours = Literal["replace-one", "zero-out", "add-remove"]
NEIGHBOURS: tuple[Neighbours, ...] = ("replace-one", "zero-out", "add-remove")
#: Python integers of any size, in numpy arrays of objects.
BigInts = npt.NDArray[Any]


def big(values: npt.ArrayLike) -> BigInts:
    """Return integers below 2⁶³, of any dtype, as Python integers."""
    return np.asarray(values).astype(np.int64).astype(object)


class Loss(Protocol):
    """The part of a loss that queries use."""

    @property
    def slope_bound(self) -> float:
        """Bound on the norm of a record's slopes."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return slopes (n, k) of margins (n, k), each row independently."""


class Engine(Protocol):
    """Adds up records exactly; sums are Python integers."""

    records: Records

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return Σ_i x_i,at s_i, shape (len(at), k), for weights in `units`."""

    def gram(self) -> BigInts:
        """Return Σ_i x_i x_iᵀ, shape (d, d)."""

    def counts(self, n_classes: int) -> BigInts:
        """Count the rows of each class except null rows, or all rows if n_classes = 1.

        Larger codes count as the last class.
        """

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[AnyArray]:
        """Return `Metric.caps` of each chunk's rows."""


@dataclass(frozen=True, eq=False, repr=False)
class BoundedSum:
    """A sum over records that is not private yet.

    Attributes
    ----------
    value : array of Python integers
        The exact sum in units of `unit`.
    unit : float
        A power of two.
    shape : float64, broadcastable to value
        Relative noise scale of each entry.
    sensitivity : float
        sup over neighbouring tables of ‖(value - value') · unit / shape‖₂.
    query : str
        A description of the sum.
    """

    value: BigInts
    unit: float
    shape: FloatArray
    sensitivity: float
    query: str


@dataclass(frozen=True, eq=False)
class Metric:
    """A public matrix B, on a grid, in which gradients are measured and released.

    Each record's gradient g satisfies ‖B g‖ ≤ radius: its slopes are capped at
    radius / ‖B x‖. `units` are integers below 2²⁴; B = units · 2⁻ᵇⁱᵗˢ.
    """

    units: FloatArray
    bits: int
    radius: float

    @classmethod
    def of(cls, matrix: FloatArray, radius: float) -> Metric:
        """Round a released or public matrix to the grid."""
        largest = float(np.abs(matrix).max())
        check(0 < largest < math.inf, "Metric requires a finite, nonzero matrix.")
        check(0 < radius < 1e99, f"radius must be in (0, 1e99), got {radius}.")
        bits = 23 - math.frexp(largest)[1]
        return cls(np.rint(np.ldexp(matrix, bits)), bits, radius)

    def caps(self, images: FloatArray, slopes: Slopes) -> FloatArray:
        """Return integer caps (n,) of rows from their images B x in units, (n, r).

        Notes
        -----
        **Guarantee.** For every row, cap · unit · ‖B x‖ ≤ radius in real numbers: the
        images are exact, and squares are added in one order and inflated by 2⁻⁴⁰.
        """
        squares = np.zeros(len(images))
        for column in images.T:
            squares += column * column
        norm = np.sqrt(squares) * (1.0 + 2.0**-40)
        unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS - self.bits)
        reach, cap = self.radius / unit, float(slopes.grid.cap)
        caps: FloatArray = np.floor(reach / np.maximum(norm, reach / cap))
        return np.minimum(caps, cap)


@dataclass(frozen=True, eq=False)
class Slopes:
    """How a record's slopes are computed and bounded.

    A record adds x_i s_i, s_i = weight_i · loss slope rounded to the grid and clipped
    to min(cap, caps_i). `metric` and its integer `caps`, one array per chunk, are set
    by `capped` alone.
    """

    loss: Loss
    max_weight: float = 1.0
    metric: Metric | None = None
    caps: Sequence[AnyArray] | None = None

    @property
    def grid(self) -> grid.SlopeGrid:
        """The grid of slopes, including its cap."""
        return grid.SlopeGrid.of(self.loss.slope_bound * self.max_weight)

    def units(self, margin: FloatArray, i: int, chunk: Chunk, at: slice) -> FloatArray:
        """Return bounded integer slopes (n, k) of the rows `at` of the i-th chunk."""
        with np.errstate(over="ignore", invalid="ignore"):
            raw = self.loss.slope(margin, chunk.target[at]) * chunk.weight[at, None]
        check(raw.shape == margin.shape, "Slopes must have the shape of the margins.")
        caps = np.full(len(raw), np.inf) if self.caps is None else self.caps[i][at]
        return self.grid.units(raw, caps)


def capped(engine: Engine, slopes: Slopes, metric: Metric) -> Slopes:
    """Cap every record's slopes by the metric; nothing is released."""
    return replace(slopes, metric=metric, caps=engine.caps(metric, slopes))


def gradient(
    engine: Engine,
    slopes: Slopes,
    weights: FloatArray,
    at: IntArray,
    neighbours: Neighbours,
    shape: FloatArray,
) -> BoundedSum:
    """Sum the records' gradients on the coordinates `at`, with noise like `shape`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables (as `neighbours` says) and all weights,
    the two sums differ by at most `sensitivity` in the norm of `shape`: a record's part
    is at most s·sup‖x_at / shape‖ (Lemma 3.3 of the paper, with slopes clipped instead
    of a Lipschitz assumption), twice that if it may be replaced.
    """
    layout = engine.records.layout
    within = bool(np.all((shape > 1e-50) & (shape < 1e50)))
    check(within, "shape must be between 1e-50 and 1e50.")
    check(len(set(at.tolist())) == len(at), "at must not repeat a coordinate.")
    slope = slopes.grid.cap * slopes.grid.unit
    reach = slope * math.sqrt(layout.squared_norm(at, 1.0 / shape**2))
    value = engine.gradient(grid.WeightGrid.of(layout).units(weights), at, slopes)
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS)
    sensitivity = grid.round_up(_difference(neighbours) * reach)
    query = f"gradient of {count_in_words(len(at), 'coordinate')}"
    return BoundedSum(value, unit, shape[:, None], sensitivity, query)


def mapped_gradient(
    engine: Engine, slopes: Slopes, weights: FloatArray, neighbours: Neighbours
) -> BoundedSum:
    """Sum B times the records' gradients, with slopes capped by the metric B.

    Notes
    -----
    **Guarantee.** For all neighbouring tables (as `neighbours` says) and all weights,
    the two sums differ by at most `sensitivity` in Euclidean norm: every record's part
    has norm at most the metric's radius, twice that if it may be replaced.
    """
    layout, metric = engine.records.layout, slopes.metric
    if metric is None:
        raise TypeError("A mapped gradient requires slopes from queries.capped.")
    units = grid.WeightGrid.of(layout).units(weights)
    total = engine.gradient(units, np.arange(layout.n_features), slopes)
    value = _exact_product(metric.units, total)
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS - metric.bits)
    sensitivity = grid.round_up(_difference(neighbours) * metric.radius)
    many = count_in_words(layout.n_features, "coordinate")
    query = f"gradient of {many} in a matrix metric"
    return BoundedSum(value, unit, np.ones((len(value), 1)), sensitivity, query)


def count_in_words(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 column", "2 columns"."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def _difference(neighbours: Neighbours) -> float:
    """Return by how many bounds a record and its replacement can differ."""
    return {"replace-one": 2.0, "zero-out": 1.0, "add-remove": 1.0}[neighbours]


def _exact_product(matrix: FloatArray, total: BigInts) -> BigInts:
    """Multiply an integer matrix below 2²⁴ by big integers, in exact float64 limbs."""
    bits = 29 - matrix.shape[1].bit_length()
    product = big(np.zeros((len(matrix), total.shape[1])))
    rest, sign, shift = abs(total), np.sign(total), 0
    while rest.any():
        limb = sign * (rest & ((1 << bits) - 1))
        product = product + (big(matrix @ limb.astype(np.float64)) << shift)
        rest, shift = rest >> bits, shift + bits
    return product


@dataclass(frozen=True, eq=False)
class GramPattern:
    """The entries of Σ_i x_i x_iᵀ that can differ between tables, and their noise.

    Zeros inside a one-hot group are known, and so is the number of rows if it is
    public. A one-hot coordinate times the intercept equals its own square. Each other
    entry of the upper triangle is released once, with scale 1 on the diagonal, 1/√2 off
    it, because it occurs twice in the Frobenius norm, and 1/√3 if it occurs three
    times.

    If `centred`, x is measured from the middle of each single number's range, shift_j/2
    above its lower end. It is then half as long, and its square costs a quarter.
    """

    rows: IntArray
    columns: IntArray
    shape: FloatArray
    sensitivity: float
    shift: IntArray

    @classmethod
    def of(cls, layout: Layout, neighbours: Neighbours, centred: bool = False) -> Self:
        """Return the pattern of a layout under a neighbour relation."""
        d, group = layout.n_features, layout.group_of
        kind = np.array([layout.groups[g].kind for g in group.tolist()])
        code, one = kind == "code", kind == "ones"
        rows, columns = np.triu_indices(d)
        known = (rows != columns) & (group[rows] == group[columns]) & code[rows]
        number = one[rows] & (neighbours != "add-remove")
        keep = ~(known | number | (code[rows] & one[columns]))
        rows, columns = rows[keep], columns[keep]
        times = np.where(code[rows] & one.any(), 3.0, 1.0)
        times[rows != columns] = 2.0
        signed = np.array([g.signed for g in layout.groups])[group]
        single = (kind == "dense") & ~signed & (np.bincount(group)[group] == 1)
        shift = single & (centred and one.any() and layout.row_norm is None)
        squared = layout.squared_norm(np.arange(d), np.where(shift, 0.25, 1.0)) ** 2
        # Without the constant entry, the angle to a replaced row may be obtuse.
        if number.any() and (neighbours == "zero-out" or not (signed | shift).any()):
            squared -= 1.0
        reach = grid.round_up(math.sqrt(_difference(neighbours) * squared))
        return cls(rows, columns, 1.0 / np.sqrt(times), reach, shift.astype(np.int64))


def gram(engine: Engine, pattern: GramPattern) -> BoundedSum:
    """Sum x xᵀ over the records, measured from the pattern's centre.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under the pattern's relation, the
    entries differ by at most `sensitivity` in the Frobenius norm: ‖xxᵀ‖ = ‖x‖², and
    two such matrices are at an acute angle, so a replacement costs √2 and not 2.
    """
    gram, half = engine.gram(), big(pattern.shift)
    one, i, j = gram[:, -1], pattern.rows, pattern.columns
    value = 4 * gram[i, j] - 2 * (half[i] * one[j] + one[i] * half[j])
    value = value + half[i] * half[j] * one[-1]  # (2x - shift)(2x - shift)ᵀ
    unit = math.ldexp(1.0, -2 * grid.FEATURE_BITS - 2)
    many = count_in_words(len(value), "entry", "entries")
    query = f"{many} of the Gram matrix"
    return BoundedSum(value, unit, pattern.shape, pattern.sensitivity, query)


def counts(engine: Engine, n_classes: int, neighbours: Neighbours) -> BoundedSum:
    """Count the records of each class except null ones, or all if n_classes = 1.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the counts differ by at most
    `sensitivity` in Euclidean norm: a record is in one class.
    """
    query = f"counts of {count_in_words(n_classes, 'class', 'classes')}"
    return histogram(engine.counts(n_classes), 1, neighbours, query)


def histogram(value: BigInts, n: int, neighbours: Neighbours, query: str) -> BoundedSum:
    """Bound counts to which a record adds at most one in each of `n` columns.

    More generally, it may add nonnegative integers whose squares sum to at most `n`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, such counts differ by at most
    `sensitivity` in Euclidean norm: by √n, or by √(2n) if a record is replaced, since
    the angle between the parts of two records is at most a right angle.
    """
    sensitivity = grid.round_up(math.sqrt(_difference(neighbours) * n))
    return BoundedSum(value, 1.0, np.ones(value.shape), sensitivity, query)


def stated(values: FloatArray, sensitivity: float, query: str) -> BoundedSum:
    """Wrap values whose sensitivity the caller states.

    They are not sums: either no record enters (quadratics, to study Algorithm 1), or a
    theorem bounds them (solutions). The tests list all callers.

    Notes
    -----
    **Guarantee.** For all pairs of `values` that differ by at most `sensitivity` minus
    2⁻³⁰√d in Euclidean norm, d their number: clipped to ±2³² and rounded to multiples
    of 2⁻³⁰, they differ by at most `sensitivity`.
    """
    value = big(np.rint(np.ldexp(np.clip(values, -(2.0**32), 2.0**32), 30)))
    return BoundedSum(value, 2.0**-30, np.ones(values.shape), sensitivity, query)
