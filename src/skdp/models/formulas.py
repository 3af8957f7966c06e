"""Formulas of slopes, which give the same bits on every engine.

A slope uses additions, multiplications, divisions and table look-ups in one fixed
order, never a library's ``exp``. Tables are rounded to 2⁻⁴⁰ and read by linear
interpolation, with errors far below the grid that slopes are rounded to. A loss names
one of four formulas; engines implement the formulas and need not know the losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from skdp.schema import FloatArray

#: Tables have this many entries per unit of the margin, and start at -16.
TABLE_STEPS = 128
TABLE_LOW = -16.0


def interpolate(table: FloatArray, margin: FloatArray) -> FloatArray:
    """Read a table that starts at `TABLE_LOW`; margins outside it are clipped."""
    known = np.where(np.isnan(margin), 0.0, margin)
    place = (np.maximum(known, TABLE_LOW) - TABLE_LOW) * TABLE_STEPS
    place = np.minimum(place, float(len(table) - 1))
    index = np.minimum(place.astype(np.int64), len(table) - 2)
    below = table[index]
    read: FloatArray = below + (place - index) * (table[index + 1] - below)
    return read


@cache
def tabulate(
    function: Callable[..., FloatArray], high: float, *parameters: float
) -> FloatArray:
    """Tabulate ``function(points, *parameters)`` on [-16, high].

    Each table is computed once per function and parameters, so pass a named function.
    """
    points = np.arange(TABLE_LOW, high + 0.5 / TABLE_STEPS, 1 / TABLE_STEPS)
    values = function(points, *parameters)
    table: FloatArray = np.ldexp(np.rint(np.ldexp(values, 40)), -40)
    table.setflags(write=False)
    return table


def _sigmoid(margin: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-margin))


def sigmoid_table() -> FloatArray:
    """Return the table of 1/(1 + exp(-m)) on [-16, 16]."""
    return tabulate(_sigmoid, 16.0)


def exp_table(high: float) -> FloatArray:
    """Return the table of exp(m) on [-16, high]."""
    return tabulate(np.exp, high)


@dataclass(frozen=True, kw_only=True, eq=False)
class SlopeFormula:
    """The slope of a loss as a function of margin m and target y.

    Attributes
    ----------
    kind : {"mean", "residual", "ramp", "softmax"}
        ``"mean"``
            clip(T(m) - y, ±bound), T read from `table`: means with their canonical
            link (logistic, Poisson).
        ``"residual"``
            clip(T(m - (2y - 1)), ±bound), y in [0, 1]; T is the identity without a
            `table` (squared, Huber).
        ``"ramp"``
            -s clip((1 - s m)/bound, 0, 1), s = 2y - 1 = ±1 (smoothed hinge).
        ``"softmax"``
            T(m_c - max m)/Σ_c T(m_c - max m) - 1{c = y}, T read from `table`.
    bound : float
        As above.
    table : float64, optional
        As `tabulate` makes it.
    target_unit : float
        Value of one unit of a stored target: 1 for classes, 2⁻¹⁴ for numbers.
    """

    kind: Literal["mean", "residual", "ramp", "softmax"]
    bound: float = 1.0
    table: FloatArray | None = None
    target_unit: float = 1.0

    def slopes(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the slopes (n, k) of margins (n, k); engines must equal this."""
        y = np.asarray(target, dtype=np.float64)[:, None] * self.target_unit
        if self.kind == "mean":
            mean = self._read(margin)
            return np.clip(mean - y, -self.bound, self.bound)
        if self.kind == "residual":
            residual = self._read(margin - (2.0 * y - 1.0))
            return np.clip(residual, -self.bound, self.bound)
        if self.kind == "ramp":
            sign = 2.0 * y - 1.0
            return -sign * np.clip((1.0 - sign * margin) / self.bound, 0.0, 1.0)
        with np.errstate(invalid="ignore"):  # infinite margins count as equal
            below = margin - margin.max(axis=1, keepdims=True)
        odds = self._read(below)
        total = np.zeros(len(odds))
        for column in range(odds.shape[1]):  # one fixed order, for every engine
            total += odds[:, column]
        return np.asarray(odds / total[:, None] - is_class(target, odds.shape[1]))

    def _read(self, values: FloatArray) -> FloatArray:
        return values if self.table is None else interpolate(self.table, values)


def is_class(target: npt.ArrayLike, n_classes: int) -> FloatArray:
    """Return the one-hot classes (n, n_classes); other codes give rows of zeros."""
    classes = np.asarray(target, dtype=np.float64)[:, None]
    return np.where(classes == np.arange(n_classes), 1.0, 0.0)
