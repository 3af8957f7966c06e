"""What a model says of encoded rows, each row by itself and to the last bit.

A released sum needs to know what one row can do to it, so that no row's number may
depend on how many other rows there are, not even in its last bit. Rows are therefore
read as ``fit`` reads them, on the grid: margins are exact, and what follows is made of
additions, multiplications and tables. A feature on the grid is within 2⁻¹⁴ of itself,
which moves a margin by at most 2⁻¹⁴ Σ|w|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from skdp.engines.reference import ROWS, to_dense
from skdp.models.formulas import TABLE_LOW, TABLE_STEPS, exp_table, interpolate
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.schema import FloatArray, IntArray, Layout

#: Weights of rows are multiples of this part of the largest.
WEIGHT_ONE = 1 << 14
#: Largest loss that the tables reach.
LARGEST_LOSS = -TABLE_LOW


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Some rows and what the model says of them.

    Attributes
    ----------
    margin : float64 (n, k)
        x·w, exact.
    target : array (n,)
        Class codes, or 0..2¹⁴ for a numeric target scaled to [0, 1].
    known : bool (n,)
        Whether the class is one of the schema's.
    weight : int64 (n,)
        What the row counts for, 0..`WEIGHT_ONE`.
    """

    margin: FloatArray
    target: IntArray
    known: Any
    weight: IntArray

    def right(self) -> Any:
        """Whether the predicted class is the row's, shape (n,)."""
        if self.margin.shape[1] == 1:
            predicted = (self.margin[:, 0] > 0).astype(np.int64)
        else:
            predicted = np.argmax(self.margin, axis=1)
        return (predicted == self.target) & self.known

    def log_loss(self, largest: float) -> FloatArray:
        """Minus the log-probability of the row's class, over `largest`, at most 1."""
        if self.margin.shape[1] == 1:
            wrong = np.where(self.target == 1, -self.margin[:, 0], self.margin[:, 0])
            loss = interpolate(_softplus(), wrong)
        else:
            below = self.margin - self.margin.max(axis=1, keepdims=True)
            odds = interpolate(exp_table(0.0), below)
            total = np.zeros(len(odds))
            for column in odds.T:  # one order, whatever the number of rows is
                total += column
            own = np.take_along_axis(below, self.target[:, None], axis=1)[:, 0]
            table = _logarithm(self.margin.shape[1])
            loss = interpolate(table, total - 1.0 + TABLE_LOW) - own
        share = np.clip(loss / largest, 0.0, 1.0)
        return np.asarray(np.where(self.known, share, 1.0))

    def residual(self, link: str, largest: float) -> FloatArray:
        """|prediction - target| over `largest`, a part of the range, at most 1."""
        if link == "log":
            predicted = interpolate(exp_table(0.0), self.margin)[:, 0]
        else:
            predicted = np.clip((self.margin[:, 0] + 1.0) / 2.0, 0.0, 1.0)
        size = np.abs(predicted - self.outcome()) / largest
        return np.asarray(np.minimum(size, 1.0))

    def outcome(self) -> FloatArray:
        """A numeric target scaled to [0, 1]."""
        return self.target / float(FEATURE_ONE)


def predicted(records: Records, weights: FloatArray, weighted: bool) -> Iterator[Rows]:
    """Read encoded rows a piece at a time.

    Parameters
    ----------
    records : Records
        The table.
    weights : float64 (d, k)
        The model's.
    weighted : bool
        Whether rows have weights of their own. If not, a row that counts for nothing
        is one whose class is unknown, and it counts as a wrong answer.
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
            )


def margin_range(layout: Layout, weights: FloatArray) -> tuple[float, float]:
    """Margins that any row can have, from the weights alone, within ±`LARGEST_LOSS`."""
    low = high = 0.0
    for group in layout.groups:
        own = weights[group.coordinates, 0]
        if group.kind == "ones":
            low, high = low + float(own[0]), high + float(own[0])
        elif group.kind == "code":
            low, high = low + min(0.0, own.min()), high + max(0.0, own.max())
        else:
            reach = float(np.linalg.norm(own))
            signed = group.signed or len(own) > 1
            low -= reach if signed or own[0] < 0 else 0.0
            high += reach if signed or own[0] > 0 else 0.0
    low, high = max(low, -LARGEST_LOSS), min(high, LARGEST_LOSS)
    return (low, high) if low < high else (low - 1.0, low + 1.0)


@cache
def _softplus() -> FloatArray:
    """log(1 + exp(m)) on [-16, 16]."""
    size = round(2 * LARGEST_LOSS * TABLE_STEPS) + 1
    return np.logaddexp(0.0, TABLE_LOW + np.arange(size) / TABLE_STEPS)


@cache
def _logarithm(largest: int) -> FloatArray:
    """log(x) on [1, largest], as `interpolate` reads it: shifted to start at -16."""
    return np.log1p(np.arange((largest - 1) * TABLE_STEPS + 2) / TABLE_STEPS)
