"""Define the formulas for slopes, which give the same bits on every engine.

A slope is the derivative of a loss in the margin. A formula uses only additions,
multiplications, divisions and table look-ups in one fixed order, and never a library's
``exp``. Tables are rounded to 2⁻⁴⁰ and read by linear interpolation. The errors are far
below the spacing of the grid that slopes are rounded to. Each loss uses one of four
formulas. An engine, which is one of the interchangeable programs that add up records,
implements the formulas and need not know the losses.
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
    """Interpolate linearly in a table that starts at the margin `TABLE_LOW`.

    Margins outside the table are clipped to its ends, and nan is read as 0.
    """
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
    """Return the table of ``function(points, *parameters)`` on [-16, high].

    Tables are cached by function and parameters. Pass a named function, because every
    new lambda would be tabulated again.
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
            clip(T(m) - y, ±bound), with T read from `table`. For models of a mean with
            canonical link (logistic, Poisson).
        ``"residual"``
            clip(T(m - (2y - 1)), ±bound), with y in [0, 1]. T is read from `table`, or
            is the identity if there is no table (squared, Huber).
        ``"ramp"``
            -s clip((1 - s m)/bound, 0, 1), s = 2y - 1 = ±1 (smoothed hinge).
        ``"softmax"``
            T(m_c - max m)/Σ_c T(m_c - max m) - 1{c = y}, with T read from `table`.
    bound : float
        The number `bound` in the formulas above.
    table : float64, optional
        The table of T, as `tabulate` returns it.
    target_unit : float
        The value of one unit of a stored target: 1 for classes, 2⁻¹⁴ for numbers.
    """

    kind: Literal["mean", "residual", "ramp", "softmax"]
    bound: float = 1.0
    table: FloatArray | None = None
    target_unit: float = 1.0

    def slopes(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the slopes (n, k) of margins (n, k).

        This method defines the slopes. Every engine must return the same bits.
        """
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
    """Return class codes as one-hot rows (n, n_classes).

    A code that is not a class gives a row of zeros.
    """
    classes = np.asarray(target, dtype=np.float64)[:, None]
    return np.where(classes == np.arange(n_classes), 1.0, 0.0)
