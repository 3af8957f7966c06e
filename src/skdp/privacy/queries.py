"""The queries: exact sums over records, each with a bound on what one record can do.

Nothing else makes a `BoundedSum`. What adds the records up (an engine) and what the
slope of a loss is are handed in; the bound holds whatever they return for a record,
because features, slopes and caps are bounded on the grid.
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
    """Integers below 2⁶³, held in any dtype, as Python integers."""
    return np.asarray(values).astype(np.int64).astype(object)


class Loss(Protocol):
    """What a query needs of a loss."""

    @property
    def slope_bound(self) -> float:
        """Bound on the norm of a record's slopes."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Slopes (n, k) of margins (n, k), each row by itself."""


class Engine(Protocol):
    """What adds up records, exactly: sums are Python integers."""

    records: Records

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Σ_i x_i,at s_i, shape (len(at), k), for weights in `units`."""

    def gram(self) -> BigInts:
        """Σ_i x_i x_iᵀ, shape (d, d)."""

    def counts(self, n_classes: int) -> BigInts:
        """Rows of each class but null ones, of one class all; codes above are last."""

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[AnyArray]:
        """`Metric.caps` of each chunk's rows."""


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
        What was asked.
    """

    value: BigInts
    unit: float
    shape: FloatArray
    sensitivity: float
    query: str


@dataclass(frozen=True, eq=False)
class Metric:
    """A public matrix B, on a grid, in which gradients are measured and released.

    Each record's gradient g obeys ‖B g‖ ≤ radius: its slopes are capped at
    radius / ‖B x‖. `units` are integers below 2²⁴; B = units · 2⁻ᵇⁱᵗˢ.
    """

    units: FloatArray
    bits: int
    radius: float

    @classmethod
    def of(cls, matrix: FloatArray, radius: float) -> Metric:
        """Put a released or public matrix on the grid: what is rounded is used."""
        largest = float(np.abs(matrix).max())
        check(0 < largest < math.inf, "Metric needs a finite matrix: floor it first.")
        check(0 < radius < 1e99, f"Metric needs 0 < radius < 1e99. Got {radius}.")
        bits = 23 - math.frexp(largest)[1]
        return cls(np.rint(np.ldexp(matrix, bits)), bits, radius)

    def caps(self, images: FloatArray, slopes: Slopes) -> FloatArray:
        """Integer caps (n,) of rows from their images B x in units, shape (n, r).

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
    to min(cap, caps_i). `metric` and its `caps`, integers, one array a chunk, are set
    by `capped` alone.
    """

    loss: Loss
    max_weight: float = 1.0
    metric: Metric | None = None
    caps: Sequence[AnyArray] | None = None

    @property
    def grid(self) -> grid.SlopeGrid:
        """The grid that slopes live on, its cap included."""
        return grid.SlopeGrid.of(self.loss.slope_bound * self.max_weight)

    def units(self, margin: FloatArray, i: int, chunk: Chunk, at: slice) -> FloatArray:
        """Bounded integer slopes (n, k) of the rows `at` of the i-th chunk."""
        with np.errstate(over="ignore", invalid="ignore"):
            raw = self.loss.slope(margin, chunk.target[at]) * chunk.weight[at, None]
        check(raw.shape == margin.shape, "A loss needs slopes of its margins' shape.")
        caps = np.full(len(raw), np.inf) if self.caps is None else self.caps[i][at]
        return self.grid.units(raw, caps)


def capped(engine: Engine, slopes: Slopes, metric: Metric) -> Slopes:
    """Cap every record's slopes by the metric; costs nothing, releases nothing."""
    return replace(slopes, metric=metric, caps=engine.caps(metric, slopes))


def gradient(
    engine: Engine,
    slopes: Slopes,
    weights: FloatArray,
    at: IntArray,
    neighbours: Neighbours,
    shape: FloatArray,
) -> BoundedSum:
    """Sum of the records' gradients on the coordinates `at`, noise shaped by `shape`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables (as `neighbours` says) and all weights,
    the two sums differ by at most `sensitivity` in the norm of `shape`: a record's part
    is at most s·sup‖x_at / shape‖ (Lemma 3.3 of the paper, with slopes clipped instead
    of a Lipschitz assumption), twice that if it may be replaced.
    """
    layout = engine.records.layout
    check(bool(np.all((shape > 1e-50) & (shape < 1e50))), "Keep shapes within 1e±50.")
    check(len(set(at.tolist())) == len(at), "Ask for each coordinate once.")
    slope = slopes.grid.cap * slopes.grid.unit
    reach = slope * math.sqrt(layout.squared_norm(at, 1.0 / shape**2))
    value = engine.gradient(grid.WeightGrid.of(layout).units(weights), at, slopes)
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS)
    sensitivity = grid.round_up(_difference(neighbours) * reach)
    query = f"gradient of {len(at)} coordinates"
    return BoundedSum(value, unit, shape[:, None], sensitivity, query)


def mapped_gradient(
    engine: Engine, slopes: Slopes, weights: FloatArray, neighbours: Neighbours
) -> BoundedSum:
    """B times the sum of the records' gradients, slopes capped by the metric B.

    Notes
    -----
    **Guarantee.** For all neighbouring tables (as `neighbours` says) and all weights,
    the two sums differ by at most `sensitivity` in Euclidean norm: every record's part
    has norm at most the metric's radius, twice that if it may be replaced.
    """
    layout, metric = engine.records.layout, slopes.metric
    if metric is None:
        raise TypeError("A mapped gradient needs capped slopes: call sums.capped.")
    units = grid.WeightGrid.of(layout).units(weights)
    total = engine.gradient(units, np.arange(layout.n_features), slopes)
    value = _exact_product(metric.units, total)
    unit = math.ldexp(slopes.grid.unit, -grid.FEATURE_BITS - metric.bits)
    sensitivity = grid.round_up(_difference(neighbours) * metric.radius)
    query = f"gradient of {layout.n_features} coordinates in a matrix metric"
    return BoundedSum(value, unit, np.ones((len(value), 1)), sensitivity, query)


def _difference(neighbours: Neighbours) -> float:
    """How many bounds apart the parts of a record and of its replacement can be."""
    return {"replace-one": 2.0, "zero-out": 1.0, "add-remove": 1.0}[neighbours]


def _exact_product(matrix: FloatArray, total: BigInts) -> BigInts:
    """Integer matrix below 2²⁴ times big integers: float64 on limbs that are exact."""
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
    """Which entries of Σ_i x_i x_iᵀ can differ between tables, and their noise scales.

    Zeros inside a one-hot group are known, as is the number of rows where it is public;
    a one-hot coordinate times the intercept equals its own square. Each other entry of
    the upper triangle is released once: scale 1 on the diagonal, 1/√2 off it, because
    it stands twice in the Frobenius norm, 1/√3 where it stands three times.

    If `centred`, x is taken from the middle of each single number's range, shift_j/2
    below it: half as long, so that its square costs a quarter.
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
        # A replaced row may be at an obtuse angle once the constant entry is left out.
        if number.any() and (neighbours == "zero-out" or not (signed | shift).any()):
            squared -= 1.0
        reach = grid.round_up(math.sqrt(_difference(neighbours) * squared))
        return cls(rows, columns, 1.0 / np.sqrt(times), reach, shift.astype(np.int64))


def gram(engine: Engine, pattern: GramPattern) -> BoundedSum:
    """Sum of x xᵀ over the records, taken from the pattern's centre; its entries.

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
    query = f"{len(value)} entries of the Gram matrix"
    return BoundedSum(value, unit, pattern.shape, pattern.sensitivity, query)


def counts(engine: Engine, n_classes: int, neighbours: Neighbours) -> BoundedSum:
    """Number of records of each class but null ones; with one class, of all records.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the counts
    differ by at most `sensitivity` in Euclidean norm: a record is in one class.
    """
    query = f"counts of {n_classes} classes"
    return histogram(engine.counts(n_classes), 1, neighbours, query)


def histogram(value: BigInts, n: int, neighbours: Neighbours, query: str) -> BoundedSum:
    """Counts to which a record adds at most one in each of `n` columns.

    Or, more generally, counts to which it adds integers that are not negative and
    whose squares sum to at most `n`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, such counts
    differ by at most `sensitivity` in Euclidean norm: by √n, by √(2n) if replaced,
    since two records' parts are at an acute angle.
    """
    sensitivity = grid.round_up(math.sqrt(_difference(neighbours) * n))
    return BoundedSum(value, 1.0, np.ones(value.shape), sensitivity, query)


def stated(values: FloatArray, sensitivity: float, query: str) -> BoundedSum:
    """Values whose sensitivity the caller states: no sum, so that none is known here.

    They are functions that no record enters (quadratics, to study Algorithm 1 on), or
    solutions that a theorem bounds: where it is called from is listed in the tests.

    Notes
    -----
    **Guarantee.** For all pairs of `values` that differ by at most `sensitivity` less
    2⁻³⁰√d in Euclidean norm, d their number, what is clipped to ±2³² and rounded to
    multiples of 2⁻³⁰ differs by at most `sensitivity`.
    """
    value = big(np.rint(np.ldexp(np.clip(values, -(2.0**32), 2.0**32), 30)))
    return BoundedSum(value, 2.0**-30, np.ones(values.shape), sensitivity, query)
