"""Predict encoded rows, such that no bit of a prediction depends on other rows.

The sensitivity of a released sum bounds the influence of one row. The number computed
for a row must therefore not depend on other rows, not even in its last bit. For this
reason rows are rounded to the same grid as in ``fit``, and margins x·w are computed
exactly. All further steps are additions, multiplications and table look-ups. Rounding
to the grid moves a feature by at most 2⁻¹⁴ and a margin by at most 2⁻¹⁴ Σ|w|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from skdp.engines.reference import ROWS, to_dense
from skdp.models.formulas import (
    TABLE_LOW,
    TABLE_STEPS,
    exp_table,
    interpolate,
    sigmoid_table,
)
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.schema import FloatArray, IntArray, Layout

#: Row weights are rounded to multiples of the largest allowed weight / WEIGHT_ONE.
WEIGHT_ONE = 1 << 14
#: Largest loss that the look-up tables cover.
LARGEST_LOSS = -TABLE_LOW


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Some rows of a table, with their margins.

    Attributes
    ----------
    margin : float64 (n, k)
        The exact margins x·w.
    target : array (n,)
        The class codes, or a numeric target scaled from [0, 1] to integers in 0..2¹⁴.
    known : bool (n,)
        Whether the class of the row is in the schema.
    weight : int64 (n,)
        The weight of the row, an integer in 0..`WEIGHT_ONE`.
    divisor : int
        The number m such that every row counts as 1/m. It is 1 unless rows belong to
        persons. In that case each row belongs to a person with at most m rows.
    """

    margin: FloatArray
    target: IntArray
    known: Any
    weight: IntArray
    divisor: int = 1

    def predict_class(self) -> IntArray:
        """Return the code of each row's predicted class, shape (n,)."""
        codes: IntArray = np.argmax(self.margin, axis=1)
        if self.margin.shape[1] == 1:
            codes = (self.margin[:, 0] > 0).astype(np.int64)
        return codes

    def find_right(self) -> Any:
        """Return for each row whether the predicted class is right, shape (n,)."""
        return (self.predict_class() == self.target) & self.known

    def compute_chance(self) -> FloatArray:
        """Return each row's predicted probability of class 1, shape (n,)."""
        return interpolate(sigmoid_table(), self.margin[:, 0])

    def compute_log_loss(self, largest: float) -> FloatArray:
        """Return each row's log-loss divided by `largest`, clipped to [0, 1]."""
        if self.margin.shape[1] == 1:
            wrong = np.where(self.target == 1, -self.margin[:, 0], self.margin[:, 0])
            loss = interpolate(_tabulate_softplus(), wrong)
        else:
            below = self.margin - self.margin.max(axis=1, keepdims=True)
            odds = interpolate(exp_table(0.0), below)
            total = np.zeros(len(odds))
            for column in odds.T:  # in the same order for any number of rows
                total += column
            own = np.take_along_axis(below, self.target[:, None], axis=1)[:, 0]
            table = _tabulate_logarithm(self.margin.shape[1])
            loss = interpolate(table, total - 1.0 + TABLE_LOW) - own
        share = np.clip(loss / largest, 0.0, 1.0)
        return np.asarray(np.where(self.known, share, 1.0))

    def compute_residual(self, link: str, largest: float) -> FloatArray:
        """Return each row's |prediction - target| / `largest`, at most 1.

        Prediction and target are scaled to [0, 1].
        """
        if link == "log":
            predicted = interpolate(exp_table(0.0), self.margin)[:, 0]
        else:
            predicted = np.clip((self.margin[:, 0] + 1.0) / 2.0, 0.0, 1.0)
        size = np.abs(predicted - self.scale_target()) / largest
        return np.asarray(np.minimum(size, 1.0))

    def compute_deviance(self, largest: float) -> FloatArray:
        """Return each row's Poisson deviance divided by `largest`, clipped to [0, 1].

        With target t and prediction e^m, both divided by the largest count, the
        deviance is 2 (t log t - t m - t + e^m). It is in units of that count.
        """
        margin = np.clip(self.margin[:, 0], TABLE_LOW, 0.0)
        rate = interpolate(exp_table(0.0), margin)
        t = self.scale_target()
        half = _tabulate_entropy()[self.target] - t * margin - t + rate
        return np.asarray(np.clip(2.0 * half / largest, 0.0, 1.0))

    def compute_entropy(self, high: float) -> FloatArray:
        """Return -e u log u of each row, where u = t/`high` for the scaled target t.

        Multiplication by Euler's number e puts the result in [0, 1]. Targets above
        `high` are clipped to `high`.
        """
        t = self.scale_target()
        part = (_tabulate_entropy()[self.target] - t * math.log(high)) / high
        return np.asarray(np.clip(np.where(t < high, -math.e * part, 0.0), 0.0, 1.0))

    def scale_target(self, low: float = 0.0, high: float = 1.0) -> FloatArray:
        """Return each row's numeric target, scaled to [0, 1].

        If a part [`low`, `high`] of that range is given, the target is clipped to it
        and scaled to [0, 1] again.
        """
        t = self.target / float(FEATURE_ONE)
        return np.asarray(np.clip((t - low) / (high - low), 0.0, 1.0))


def predict_rows(
    records: Records, weights: FloatArray, weighted: bool
) -> Iterator[Rows]:
    """Yield encoded rows with their margins, some rows at a time.

    Parameters
    ----------
    records : Records
        The table.
    weights : float64 (d, k)
        The model's weights.
    weighted : bool
        Whether the user gave weights. If not, a weight of 0 means that the class of the
        row is unknown. Such a row counts fully, as a wrong answer.
    """
    layout, grid = records.layout, WeightGrid.of(records.layout)
    units, at = grid.units(weights), np.arange(records.layout.n_features)
    used = np.flatnonzero(units.any(axis=1))
    at, units = at[used], units[used]
    scale = math.ldexp(1.0, -grid.bits - FEATURE_BITS)
    for chunk in records.chunks:
        for start in range(0, len(chunk.target), ROWS):
            piece = slice(start, start + ROWS)
            share = chunk.weight[piece].astype(np.float64) / records.max_weight
            weight = np.floor(np.clip(share, 0.0, 1.0) * WEIGHT_ONE).astype(np.int64)
            known = weight > 0 if not weighted else np.ones(len(weight), bool)
            if not weighted:
                weight = np.full(len(weight), WEIGHT_ONE, np.int64)
            yield Rows(
                margin=(to_dense(chunk, piece, at, layout) @ units) * scale,
                target=chunk.target[piece].astype(np.int64),
                known=known,
                weight=weight,
                divisor=chunk.divisor,
            )


@dataclass(frozen=True, eq=False, repr=False)
class PredictedRows:
    """The rows of a table with their margins, computed where the rows are stored."""

    records: Records
    weights: FloatArray
    weighted: bool

    def add_up(self, work: Callable[[Iterable[Rows]], Any]) -> Any:
        """Return the sum of `work` over the rows of all parts of the table."""
        return self.records.add_up(partial(_apply, work, self.weights, self.weighted))


def _apply(work: Any, weights: FloatArray, weighted: bool, records: Records) -> Any:
    return work(predict_rows(records, weights, weighted))


def bound_margins(layout: Layout, weights: FloatArray) -> tuple[float, float]:
    """Return a lower and an upper bound on the margin of any possible row.

    The bounds follow from the weights alone and are clipped to ±`LARGEST_LOSS`.
    """
    low = high = 0.0
    for group in layout.groups:
        own = weights[group.coordinates, 0]
        if group.kind == "ones":
            low, high = low + float(own[0]), high + float(own[0])
        elif group.kind in ("code", "hats"):
            low, high = low + min(0.0, own.min()), high + max(0.0, own.max())
        else:
            reach = float(np.linalg.norm(own))
            signed = group.signed or len(own) > 1
            low -= reach if signed or own[0] < 0 else 0.0
            high += reach if signed or own[0] > 0 else 0.0
    low, high = max(low, -LARGEST_LOSS), min(high, LARGEST_LOSS)
    return (low, high) if low < high else (low - 1.0, low + 1.0)


@cache
def _tabulate_softplus() -> FloatArray:
    """Return a table of log(1 + exp(m)) for m in [-16, 16]."""
    size = round(2 * LARGEST_LOSS * TABLE_STEPS) + 1
    return np.logaddexp(0.0, TABLE_LOW + np.arange(size) / TABLE_STEPS)


@cache
def _tabulate_logarithm(largest: int) -> FloatArray:
    """Return a table of log(x) for x in [1, largest].

    `interpolate` expects tables that start at -16, so it must be called with x - 17.
    """
    return np.log1p(np.arange((largest - 1) * TABLE_STEPS + 2) / TABLE_STEPS)


@cache
def _tabulate_entropy() -> FloatArray:
    """Return t log t for each value t of a scaled target, in steps of 2⁻¹⁴."""
    t = np.arange(FEATURE_ONE + 1) / FEATURE_ONE
    return np.asarray(t * np.log(np.where(t > 0, t, 1.0)))
