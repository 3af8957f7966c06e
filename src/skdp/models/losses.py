"""Define losses, and the formulas by which every engine computes their slopes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from skdp.models.registry import Registered
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, check
from skdp.schema.validation import fact

# ---- Define the formulas for slopes, which give the same bits on every engine
#
# A slope is the derivative of a loss in the margin. A formula uses only additions,
# multiplications, divisions and table look-ups in one fixed order, and never a
# library's ``exp``. Tables are rounded to 2⁻⁴⁰ and read by linear interpolation. The
# errors are far below the spacing of the grid that slopes are rounded to. Each loss
# uses one of four formulas. An engine, which is one of the interchangeable programs
# that add up records, implements the formulas and need not know the losses.


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


# ---- Define the losses of linear models, as functions of the margin x·w and the target
#
# Each loss is one class. Everything that the rest of the library needs to know about a
# loss is an attribute or a method of `Loss`. Defining a class registers it in `LOSSES`.
# Targets are integers, as `privacy.encoding.Chunk` stores them.


class Loss(Registered, ABC):
    """A convex loss with a bounded slope, which is the derivative in the margin.

    A subclass is a frozen dataclass whose fields are saved with a plan. It sets the
    attributes below and defines `value`, `formula` and `constant`. The slope and its
    compiled version follow from the formula.

    Attributes
    ----------
    kind : str
        The name of the loss in `LOSSES`, in messages and in saved models.
    n_outputs : int
        The number k of columns of margins and slopes, which have shape (n, k).
    n_classes : int
        The number of classes of the target, or 0 if the target is a number.
    curvature : float
        Bound β on the second derivative in the margin.
    slope_bound : float
        Bound on the norm of a record's slopes.
    usual_curvature : float or None
        The second derivative that most rows have at their margins, or None if it is
        `curvature`. It helps to choose the number of steps and is never used as a
        bound.
    target_law : {"bernoulli", "multinomial", "normal", "poisson"} or None
        The distribution of a target given its margin, which standard errors need. None
        if standard errors are not available.
    no_errors : str
        The message that says why there are no standard errors, if `target_law` is None.
    one_sign : bool
        Whether a record's class alone determines the sign of its slope, at all margins.
    canonical : bool
        Whether the slope is the predicted mean minus the target, except where it is
        clipped.
    score : str
        The score that is forecast, a key of
        `skdp.descent.forecast.FORECAST_CONSTANTS`.
    """

    n_outputs: int = 1
    n_classes: int = 0
    curvature: float
    usual_curvature: float | None = None
    slope_bound: float
    target_law: ClassVar[
        Literal["bernoulli", "multinomial", "normal", "poisson"] | None
    ] = None
    one_sign: ClassVar[bool] = False
    canonical: ClassVar[bool] = False
    score: ClassVar[str] = "loss"
    no_errors: ClassVar[str] = (
        "Standard errors are not available for this loss, because it is not a "
        "likelihood."
    )

    @property
    @abstractmethod
    def formula(self) -> SlopeFormula:
        """The formula with which engines compute the slope."""

    @abstractmethod
    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss (n,) of margins (n, k)."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the derivative (n, k) of the loss in the margins (n, k)."""
        return self.formula.slopes(margin, target)

    @abstractmethod
    def constant(self, target: FloatArray) -> FloatArray:
        """Return the margins (k,) of the best constant model.

        `target` contains the share of each class, or the mean of a numeric target that
        was scaled to [0, 1].
        """


def _unit_target(target: npt.ArrayLike) -> FloatArray:
    """Return a numeric target scaled to [0, 1], shape (n, 1)."""
    return np.asarray(target, dtype=np.float64)[:, None] / FEATURE_ONE


@dataclass(frozen=True)
class Logistic(Loss):
    """The logistic loss log(1 + exp(m)) - y m for a class y in {0, 1}."""

    kind = "logistic"
    n_classes = 2
    curvature = 0.25
    slope_bound = 1.0
    one_sign = True
    canonical = True
    target_law = "bernoulli"
    score = "log-loss"

    @property
    def formula(self) -> SlopeFormula:
        """The slope sigmoid(m) - y."""
        return SlopeFormula(kind="mean", table=sigmoid_table())

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1)."""
        m = margin[:, 0]
        return np.logaddexp(0.0, m) - np.asarray(target) * m

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the log-odds of the second class."""
        return np.log(target[1:] / target[:1])


@dataclass(frozen=True)
class Softmax(Loss):
    """The softmax loss log Σ_c exp(m_c) - m_y for a class y in 0..n_outputs-1.

    All classes are fitted in one joint model.
    """

    n_outputs: int = 3
    #: The number of classes, which equals the number of outputs.
    n_classes: int = fact()
    kind = "softmax"
    curvature = 0.5
    #: The curvature of a logistic loss for one class against all others. The curvature
    #: of this loss can be up to ½, but only if two classes are equally likely and the
    #: others have probability zero.
    usual_curvature = 0.25
    slope_bound = math.sqrt(2.0)
    canonical = True
    target_law = "multinomial"
    score = "log-loss"

    def __post_init__(self) -> None:
        check(
            self.n_outputs >= 2,
            f"Softmax needs at least 2 classes, got {self.n_outputs}.",
        )
        vars(self).update(n_classes=self.n_outputs)

    @property
    def formula(self) -> SlopeFormula:
        """The slope, which is the class probabilities minus the indicator of y."""
        return SlopeFormula(kind="softmax", table=exp_table(0.0))

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, k)."""
        chosen = is_class(target, self.n_outputs)
        picked = np.where(chosen, margin, 0.0).sum(axis=1)
        total: FloatArray = np.logaddexp.reduce(margin, axis=1)
        return np.asarray(total - picked)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the logarithms of the classes' shares, shifted to mean zero."""
        logs = np.log(target)
        return np.asarray(logs - logs.mean())


@dataclass(frozen=True)
class Squared(Loss):
    """The squared loss ½ (m - y)² for y in [-1, 1], with its slope clipped.

    Where the slope would exceed ±slope_bound, the loss continues as a straight line, so
    it stays convex.
    """

    slope_bound: float = 2.0
    kind = "squared"
    curvature = 1.0
    canonical = True
    target_law = "normal"
    score = "R²"

    def __post_init__(self) -> None:
        check(
            0 < self.slope_bound < math.inf,
            f"{type(self).__name__} needs a finite slope_bound > 0, "
            f"got {self.slope_bound}.",
        )

    @property
    def formula(self) -> SlopeFormula:
        """The slope m - y, clipped to ±slope_bound."""
        return SlopeFormula(
            kind="residual", bound=self.slope_bound, target_unit=1.0 / FEATURE_ONE
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1)."""
        size = np.abs(margin - (2.0 * _unit_target(target) - 1.0))[:, 0]
        bound = self.slope_bound
        return np.where(size <= bound, size**2 / 2, bound * size - bound**2 / 2)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the mean of the target, rescaled from [0, 1] to [-1, 1]."""
        return 2.0 * target - 1.0


@dataclass(frozen=True)
class Huber(Squared):
    """Huber's loss, which is `Squared` with a smaller bound on the slope."""

    slope_bound: float = 0.1
    kind = "huber"
    canonical = False  # the slope is clipped too often


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge loss max(0, 1 - s m) for a class s = ±1, made smooth.

    A parabola replaces the kink over an interval of length `width`.
    """

    width: float = 0.5
    #: The curvature 1/width of the parabola.
    curvature: float = fact()
    kind = "hinge"
    n_classes = 2
    slope_bound = 1.0
    one_sign = True
    score = "hinge loss"

    def __post_init__(self) -> None:
        check(
            0 < self.width < math.inf,
            f"SmoothedHinge needs a finite width > 0, got {self.width}.",
        )
        vars(self).update(curvature=1.0 / self.width)

    @property
    def formula(self) -> SlopeFormula:
        """The slope -s clip((1 - s m)/width, 0, 1)."""
        return SlopeFormula(kind="ramp", bound=self.width)

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1) and targets in {0, 1}."""
        missing = 1.0 - (2.0 * np.asarray(target) - 1.0) * margin[:, 0]
        inside = np.clip(missing, 0.0, self.width)
        return inside**2 / (2 * self.width) + np.maximum(missing - self.width, 0.0)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the share of the second class minus the share of the first.

        So the result is positive if and only if the second class is more frequent.
        """
        return target[1:] - target[:1]


@dataclass(frozen=True)
class Poisson(Loss):
    """The Poisson loss exp(m) - y m for a count y.

    Counts and predicted means exp(m) are divided by the largest count, so y is in
    [0, 1]. The slope is clipped to ±slope_bound.
    """

    slope_bound: float = 1.0
    #: The bound slope_bound + 1 on the second derivative. Where the slope is not
    #: clipped, the second derivative is exp(m). Elsewhere it is zero.
    curvature: float = fact()
    #: The second derivative is exp(m), the predicted mean divided by the largest count.
    #: On the tables that were tried, its usual value was lower than ⅓, between 1/23 and
    #: 1/9, and 320 to 640 steps gave the best fits. With the default `slope_bound`, the
    #: value ⅓ gives 480 steps.
    usual_curvature = 1 / 3
    kind = "poisson"
    canonical = True
    target_law = "poisson"
    score = "D² (deviance explained)"

    def __post_init__(self) -> None:
        check(
            0 < self.slope_bound <= 1000,
            f"Poisson needs 0 < slope_bound ≤ 1000, got {self.slope_bound}.",
        )
        vars(self).update(curvature=self.slope_bound + 1.0)

    @property
    def formula(self) -> SlopeFormula:
        """The slope exp(m) - y, clipped to ±slope_bound."""
        high = math.ceil(math.log1p(self.slope_bound)) + 1.0
        return SlopeFormula(
            kind="mean",
            bound=self.slope_bound,
            table=exp_table(high),
            target_unit=1.0 / FEATURE_ONE,
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1). It is linear where slopes are clipped."""
        y, bound = _unit_target(target)[:, 0], self.slope_bound
        top = np.log(y + bound)
        bottom = np.log(np.maximum(y - bound, np.finfo(float).tiny))
        inside = np.clip(margin[:, 0], bottom, top)
        away = margin[:, 0] - inside
        return np.exp(inside) - y * inside + (np.exp(inside) - y) * away

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the logarithm of the mean, or of 1e-3 if the mean is smaller."""
        return np.log(np.maximum(target, 1e-3))


#: Every loss by its kind. The tests check each of them.
LOSSES: dict[str, type[Loss]] = Loss.kinds
