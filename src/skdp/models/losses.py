"""Losses of a linear model: functions of the margin x·w alone.

A slope is the same bits everywhere: it is made of additions, multiplications and table
look-ups in one fixed order, never of a library's ``exp``. Tables are rounded to 2⁻⁴⁰
and read by linear interpolation, far below the grid that slopes are rounded to.
Targets are as `privacy.encoding.Chunk` stores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, check

#: Tables have this many entries per unit of the margin, and start at -16.
TABLE_STEPS = 128
TABLE_LOW = -16.0


class Loss(Protocol):
    """A convex loss with bounded slopes; adding one means adding a class here.

    Attributes
    ----------
    name : str
        Key in `LOSSES`.
    n_outputs : int
        Columns k of margins and slopes, shape (n, k).
    curvature : float
        Bound on the second derivative, β.
    slope_bound : float
        Bound on the norm of a record's slopes.
    n_classes : int
        Classes of the target; 0 if it is a number.
    """

    name: str

    @property
    def n_classes(self) -> int:
        """Classes of the target; 0 if it is a number."""

    @property
    def n_outputs(self) -> int:
        """Columns k of margins and slopes."""

    @property
    def curvature(self) -> float:
        """Bound β on the second derivative in the margin."""

    @property
    def slope_bound(self) -> float:
        """Bound on the norm of a record's slopes."""

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss (n,) of margins (n, k)."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Derivative (n, k) of the loss in the margins (n, k)."""

    def constant(self, target: FloatArray) -> FloatArray:
        """Margins (k,) of the constant model.

        For classes with the shares `target`, or a number in [0, 1] with that mean.
        """


def interpolate(table: FloatArray, margin: FloatArray) -> FloatArray:
    """Read a table that starts at `TABLE_LOW`, margins outside clipped to its ends."""
    known = np.where(np.isnan(margin), 0.0, margin)
    place = (np.maximum(known, TABLE_LOW) - TABLE_LOW) * TABLE_STEPS
    place = np.minimum(place, float(len(table) - 1))
    index = np.minimum(place.astype(np.int64), len(table) - 2)
    below = table[index]
    read: FloatArray = below + (place - index) * (table[index + 1] - below)
    return read


@cache
def _table(function: Callable[[FloatArray], FloatArray], high: float) -> FloatArray:
    points = np.arange(TABLE_LOW, high + 0.5 / TABLE_STEPS, 1 / TABLE_STEPS)
    table: FloatArray = np.ldexp(np.rint(np.ldexp(function(points), 40)), -40)
    table.setflags(write=False)
    return table


def _sigmoid(margin: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-margin))


def sigmoid_table() -> FloatArray:
    """1/(1 + exp(-m)) on [-16, 16]."""
    return _table(_sigmoid, 16.0)


def exp_table(high: float) -> FloatArray:
    """exp(m) on [-16, high]."""
    return _table(np.exp, high)


def _unit_target(target: npt.ArrayLike) -> FloatArray:
    """A numeric target scaled to [0, 1], shape (n, 1)."""
    return np.asarray(target, dtype=np.float64)[:, None] / FEATURE_ONE


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(m)) - y m for a class y in {0, 1}."""

    name = "logistic"
    n_outputs = 1
    n_classes = 2
    curvature = 0.25
    slope_bound = 1.0

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss of margins (n, 1)."""
        m = margin[:, 0]
        return np.logaddexp(0.0, m) - np.asarray(target) * m

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """sigmoid(m) - y."""
        chance = interpolate(sigmoid_table(), margin)
        return chance - np.asarray(target, dtype=np.float64)[:, None]

    def constant(self, target: FloatArray) -> FloatArray:
        """Log-odds of the second class."""
        return np.log(target[1:] / target[:1])


@dataclass(frozen=True)
class Softmax:
    """log Σ_c exp(m_c) - m_y for a class y in 0..n_outputs-1: one joint model."""

    n_outputs: int
    name = "softmax"
    curvature = 0.5
    slope_bound = math.sqrt(2.0)

    def __post_init__(self) -> None:
        check(
            self.n_outputs >= 2,
            f"Softmax needs at least 2 classes. Got {self.n_outputs}: list them all.",
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss of margins (n, k)."""
        picked = np.where(self._is_class(target), margin, 0.0).sum(axis=1)
        total: FloatArray = np.logaddexp.reduce(margin, axis=1)
        return np.asarray(total - picked)

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Class probabilities minus the indicator of y."""
        with np.errstate(invalid="ignore"):  # infinities are equally likely
            below = margin - margin.max(axis=1, keepdims=True)
        odds = interpolate(exp_table(0.0), below)
        total = np.zeros(len(odds))
        for column in range(odds.shape[1]):  # one fixed order, for every engine
            total += odds[:, column]
        return np.asarray(odds / total[:, None] - self._is_class(target))

    @property
    def n_classes(self) -> int:
        """As many as outputs."""
        return self.n_outputs

    def constant(self, target: FloatArray) -> FloatArray:
        """Logarithms of the shares, of mean zero."""
        logs = np.log(target)
        return np.asarray(logs - logs.mean())

    def _is_class(self, target: npt.ArrayLike) -> FloatArray:
        """One where a column is the class of the row: nowhere for a code beyond."""
        classes = np.asarray(target, dtype=np.float64)[:, None]
        return np.where(classes == np.arange(self.n_outputs), 1.0, 0.0)


@dataclass(frozen=True)
class Squared:
    """½ (m - y)², y in [-1, 1], its slope clipped to ±slope_bound.

    Beyond the bound the loss goes on as a straight line, so it stays convex.
    """

    slope_bound: float = 2.0
    name = "squared"
    n_outputs = 1
    n_classes = 0
    curvature = 1.0

    def __post_init__(self) -> None:
        check(
            0 < self.slope_bound < math.inf,
            f"{type(self).__name__} needs 0 < slope_bound < ∞. Got {self.slope_bound}.",
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss of margins (n, 1)."""
        size = np.abs(margin - (2.0 * _unit_target(target) - 1.0))[:, 0]
        bound = self.slope_bound
        return np.where(size <= bound, size**2 / 2, bound * size - bound**2 / 2)

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Residual m - y, clipped."""
        residual = margin - (2.0 * _unit_target(target) - 1.0)
        return np.clip(residual, -self.slope_bound, self.slope_bound)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the mean on [-1, 1]."""
        return 2.0 * target - 1.0


@dataclass(frozen=True)
class Huber(Squared):
    """Huber's loss: `Squared` whose bound is meant, a robust statistician's choice."""

    slope_bound: float = 0.1
    name = "huber"


@dataclass(frozen=True)
class SmoothedHinge:
    """The hinge max(0, 1 - s m), s = ±1, rounded by a parabola over `width`."""

    width: float = 0.5
    name = "hinge"
    n_outputs = 1
    n_classes = 2
    slope_bound = 1.0

    def __post_init__(self) -> None:
        check(
            0 < self.width < math.inf,
            f"SmoothedHinge needs 0 < width < ∞. Got {self.width}: take 0.5.",
        )

    @property
    def curvature(self) -> float:
        """1/width."""
        return 1.0 / self.width

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss of margins (n, 1), classes 0 and 1."""
        missing = 1.0 - (2.0 * np.asarray(target) - 1.0) * margin[:, 0]
        inside = np.clip(missing, 0.0, self.width)
        return inside**2 / (2 * self.width) + np.maximum(missing - self.width, 0.0)

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """-s clip((1 - s m)/width, 0, 1)."""
        sign = 2.0 * np.asarray(target, dtype=np.float64)[:, None] - 1.0
        return -sign * np.clip((1.0 - sign * margin) / self.width, 0.0, 1.0)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the majority's side, by as much as it leads."""
        return target[1:] - target[:1]


@dataclass(frozen=True)
class Poisson:
    """exp(m) - y m for a count y, both divided by the largest count, so y in [0, 1].

    The slope is clipped to ±slope_bound.
    """

    slope_bound: float = 1.0
    name = "poisson"
    n_outputs = 1
    n_classes = 0

    def __post_init__(self) -> None:
        check(
            0 < self.slope_bound <= 1000,
            f"Poisson needs 0 < slope_bound ≤ 1000. Got {self.slope_bound}: take 1.",
        )

    @property
    def curvature(self) -> float:
        """exp(m) ≤ slope_bound + 1 where the slope is not clipped."""
        return self.slope_bound + 1.0

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Loss of margins (n, 1), a straight line where the slope is clipped."""
        y, bound = _unit_target(target)[:, 0], self.slope_bound
        top = np.log(y + bound)
        bottom = np.log(np.maximum(y - bound, np.finfo(float).tiny))
        inside = np.clip(margin[:, 0], bottom, top)
        away = margin[:, 0] - inside
        return np.exp(inside) - y * inside + (np.exp(inside) - y) * away

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """exp(m) - y, clipped."""
        high = math.ceil(math.log1p(self.slope_bound)) + 1.0
        rate = interpolate(exp_table(high), margin)
        excess = rate - _unit_target(target)
        return np.clip(excess, -self.slope_bound, self.slope_bound)

    def constant(self, target: FloatArray) -> FloatArray:
        """Logarithm of the mean."""
        return np.log(np.maximum(target, 1e-3))


#: Every loss, by name: a new entry is tested with no new test.
LOSSES: dict[str, Callable[[], Loss]] = {
    "logistic": Logistic,
    "softmax": lambda: Softmax(3),
    "squared": Squared,
    "huber": Huber,
    "hinge": SmoothedHinge,
    "poisson": Poisson,
}
