"""Losses of a linear model: functions of the margin x·w alone.

A loss is one class: everything that the rest of the library needs to know about it is
an attribute or a method of `Loss`. Defining the class registers it in `LOSSES`. Targets
are in the form in which `privacy.encoding.Chunk` stores them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from skdp.models.formulas import SlopeFormula, exp_table, is_class, sigmoid_table
from skdp.models.registry import Registered
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, check


class Loss(Registered, ABC):
    """A convex loss with bounded slopes.

    A subclass is a frozen dataclass whose fields are saved with a plan. It sets the
    attributes below and defines `value`, `formula` and `constant`; the slope and its
    compiled form follow from the formula.

    Attributes
    ----------
    kind : str
        Its key in `LOSSES`, and how it is saved.
    n_outputs : int
        Columns k of margins and slopes, shape (n, k).
    n_classes : int
        Classes of the target; 0 if it is a number.
    curvature : float
        Bound β on the second derivative in the margin.
    slope_bound : float
        Bound on the norm of a record's slopes.
    usual_curvature : float
        The second derivative to expect where most rows are; `curvature` unless a loss
        says otherwise. It sets the number of steps, never a bound.
    target_law : {"bernoulli", "normal"} or None
        The distribution of targets around their margins, for standard errors; None if
        they are not available.
    no_errors : str
        The message to show if `target_law` is None.
    one_sign : bool
        Whether the class of a record determines the sign of its slope at every margin.
    score : str
        The unit of forecasts: a key of `skdp.planning.calibration.CALIBRATIONS`.
    """

    n_outputs: int = 1
    n_classes: int = 0
    curvature: float
    slope_bound: float
    target_law: ClassVar[Literal["bernoulli", "normal"] | None] = None
    one_sign: ClassVar[bool] = False
    score: ClassVar[str] = "loss"
    no_errors: ClassVar[str] = (
        "Standard errors are not available for this loss, because it is not a "
        "likelihood."
    )

    @property
    def name(self) -> str:
        """The kind, as shown in texts."""
        return self.kind

    @property
    def usual_curvature(self) -> float:
        """The second derivative to expect where most rows are."""
        return self.curvature

    @property
    @abstractmethod
    def formula(self) -> SlopeFormula:
        """The formula by which engines compute the slope."""

    @abstractmethod
    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss (n,) of margins (n, k)."""

    def slope(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the derivative (n, k) of the loss in the margins (n, k)."""
        return self.formula.slopes(margin, target)

    @abstractmethod
    def constant(self, target: FloatArray) -> FloatArray:
        """Return the margins (k,) of the best constant model.

        `target` has the shares of the classes, or the mean of a number in [0, 1].
        """


def _unit_target(target: npt.ArrayLike) -> FloatArray:
    """Return a numeric target scaled to [0, 1], shape (n, 1)."""
    return np.asarray(target, dtype=np.float64)[:, None] / FEATURE_ONE


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(m)) - y m for a class y in {0, 1}."""

    kind = "logistic"
    n_classes = 2
    curvature = 0.25
    slope_bound = 1.0
    one_sign = True
    target_law = "bernoulli"
    score = "log-loss"

    @property
    def formula(self) -> SlopeFormula:
        """sigmoid(m) - y."""
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
    """log Σ_c exp(m_c) - m_y for a class y in 0..n_outputs-1: one joint model."""

    n_outputs: int = 3
    kind = "softmax"
    curvature = 0.5
    slope_bound = math.sqrt(2.0)
    score = "log-loss"
    no_errors = "Standard errors are available for two classes, not for more."

    def __post_init__(self) -> None:
        check(
            self.n_outputs >= 2,
            f"Softmax needs at least 2 classes, got {self.n_outputs}.",
        )

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        """As many as outputs."""
        return self.n_outputs

    @property
    def usual_curvature(self) -> float:
        """¼, that of one class against all others.

        The bound ½ is reached only between two classes that are equally likely.
        """
        return 0.25

    @property
    def formula(self) -> SlopeFormula:
        """Class probabilities minus the indicator of y."""
        return SlopeFormula(kind="softmax", table=exp_table(0.0))

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, k)."""
        chosen = is_class(target, self.n_outputs)
        picked = np.where(chosen, margin, 0.0).sum(axis=1)
        total: FloatArray = np.logaddexp.reduce(margin, axis=1)
        return np.asarray(total - picked)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the logarithms of the shares, shifted to mean zero."""
        logs = np.log(target)
        return np.asarray(logs - logs.mean())


@dataclass(frozen=True)
class Squared(Loss):
    """½ (m - y)², y in [-1, 1], its slope clipped to ±slope_bound.

    Beyond the bound the loss continues as a straight line, so it stays convex.
    """

    slope_bound: float = 2.0
    kind = "squared"
    curvature = 1.0
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
        """Residual m - y, clipped."""
        return SlopeFormula(
            kind="residual", bound=self.slope_bound, target_unit=1.0 / FEATURE_ONE
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1)."""
        size = np.abs(margin - (2.0 * _unit_target(target) - 1.0))[:, 0]
        bound = self.slope_bound
        return np.where(size <= bound, size**2 / 2, bound * size - bound**2 / 2)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the mean on [-1, 1]."""
        return 2.0 * target - 1.0


@dataclass(frozen=True)
class Huber(Squared):
    """Huber's loss: `Squared` with a smaller bound."""

    slope_bound: float = 0.1
    kind = "huber"


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge max(0, 1 - s m), s = ±1, rounded by a parabola over `width`."""

    width: float = 0.5
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

    @property
    def curvature(self) -> float:  # type: ignore[override]
        """1/width."""
        return 1.0 / self.width

    @property
    def formula(self) -> SlopeFormula:
        """-s clip((1 - s m)/width, 0, 1)."""
        return SlopeFormula(kind="ramp", bound=self.width)

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1), classes 0 and 1."""
        missing = 1.0 - (2.0 * np.asarray(target) - 1.0) * margin[:, 0]
        inside = np.clip(missing, 0.0, self.width)
        return inside**2 / (2 * self.width) + np.maximum(missing - self.width, 0.0)

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the difference of the shares, which has the majority's sign."""
        return target[1:] - target[:1]


@dataclass(frozen=True)
class Poisson(Loss):
    """exp(m) - y m for a count y, both divided by the largest count, so y in [0, 1].

    The slope is clipped to ±slope_bound.
    """

    slope_bound: float = 1.0
    kind = "poisson"
    score = "D² (deviance explained)"
    no_errors = (
        "No standard errors for counts: clipping leaves a bias that we cannot "
        "estimate yet."
    )

    def __post_init__(self) -> None:
        check(
            0 < self.slope_bound <= 1000,
            f"Poisson needs 0 < slope_bound ≤ 1000, got {self.slope_bound}.",
        )

    @property
    def curvature(self) -> float:  # type: ignore[override]
        """exp(m) ≤ slope_bound + 1 where the slope is not clipped."""
        return self.slope_bound + 1.0

    @property
    def usual_curvature(self) -> float:
        """⅓, a high guess, since means lie far below the largest count.

        It gives 480 steps; tables with 1/9 to 1/23 did best with 320 to 640.
        """
        return 1 / 3

    @property
    def formula(self) -> SlopeFormula:
        """exp(m) - y, clipped."""
        high = math.ceil(math.log1p(self.slope_bound)) + 1.0
        return SlopeFormula(
            kind="mean",
            bound=self.slope_bound,
            table=exp_table(high),
            target_unit=1.0 / FEATURE_ONE,
        )

    def value(self, margin: FloatArray, target: npt.ArrayLike) -> FloatArray:
        """Return the loss of margins (n, 1), linear where the slope is clipped."""
        y, bound = _unit_target(target)[:, 0], self.slope_bound
        top = np.log(y + bound)
        bottom = np.log(np.maximum(y - bound, np.finfo(float).tiny))
        inside = np.clip(margin[:, 0], bottom, top)
        away = margin[:, 0] - inside
        return np.exp(inside) - y * inside + (np.exp(inside) - y) * away

    def constant(self, target: FloatArray) -> FloatArray:
        """Return the logarithm of the mean."""
        return np.log(np.maximum(target, 1e-3))


#: Every loss by kind; the tests run through them.
LOSSES: dict[str, type[Loss]] = Loss.kinds
