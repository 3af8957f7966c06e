"""Define separable penalties and their proximal maps, which act after the noise.

``prox(w, metric, at)`` is argmin_u ½ Σ_j metric_j (u_j - w_j)² + Σ_j ψ_j(u_j) over the
coordinates `at`, where ψ is the penalty. It is post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skdp.models.registry import Registered
from skdp.schema import FloatArray, IntArray, check


class Penalty(Registered, ABC):
    """A separable convex penalty on weights (d, k).

    To add a penalty, write a subclass.
    """

    @abstractmethod
    def value(self, weights: FloatArray) -> float:
        """Return the penalty of all weights."""

    @abstractmethod
    def prox(self, weights: FloatArray, metric: FloatArray, at: IntArray) -> FloatArray:
        """Return the proximal map of weights (len(at), k) in the metric (len(at),)."""


@dataclass(frozen=True, eq=False)
class ElasticNet(Penalty):
    """The penalty Σ_j s_j (l1 abs(w_j) + ½ l2 w_j²) with s = `penalised`.

    Parameters
    ----------
    l1, l2 : float
        The strengths of the two terms. Ridge has ``l1=0``, and the lasso has ``l2=0``.
    penalised : float64 (d,), optional
        1 for each coordinate that is penalised and 0 for the others, which usually
        include the intercept. By default all coordinates are penalised.
    """

    l1: float = 0.0
    l2: float = 0.0
    penalised: FloatArray | None = None
    kind = "elastic-net"

    def __post_init__(self) -> None:
        if self.penalised is not None:
            on = np.asarray(self.penalised, dtype=np.float64)
            object.__setattr__(self, "penalised", on)
        check(
            0 <= self.l1 < math.inf and 0 <= self.l2 < math.inf,
            f"l1 and l2 must be finite and at least 0, got {self.l1} and {self.l2}.",
        )

    def _strength(self, at: IntArray | slice) -> FloatArray:
        return np.ones(1) if self.penalised is None else self.penalised[at, None]

    def value(self, weights: FloatArray) -> float:
        """Return the penalty of all weights."""
        each = self.l1 * np.abs(weights) + self.l2 / 2 * weights**2
        return float((self._strength(slice(None)) * each).sum())

    def prox(self, weights: FloatArray, metric: FloatArray, at: IntArray) -> FloatArray:
        """Soft-threshold the weights, then shrink them."""
        step = self._strength(at) / metric[:, None]
        kept = np.maximum(np.abs(weights) - self.l1 * step, 0.0)
        return np.copysign(kept, weights) / (1.0 + self.l2 * step)


def ridge(alpha: float, penalised: FloatArray | None = None) -> ElasticNet:
    """Return the penalty ½ alpha ‖w‖²."""
    return ElasticNet(l2=alpha, penalised=penalised)


def lasso(alpha: float, penalised: FloatArray | None = None) -> ElasticNet:
    """Return the penalty alpha ‖w‖₁."""
    return ElasticNet(l1=alpha, penalised=penalised)


@dataclass(frozen=True)
class Box(Penalty):
    """A penalty that is zero for weights in [low, high] and infinite outside.

    The default box (0, ∞) makes weights non-negative.
    """

    low: float = 0.0
    high: float = math.inf
    kind = "box"

    def __post_init__(self) -> None:
        check(
            self.low <= self.high,
            f"low must be at most high, got {self.low} and {self.high}.",
        )

    def value(self, weights: FloatArray) -> float:
        """Return the penalty of all weights."""
        inside = (weights >= self.low) & (weights <= self.high)
        return 0.0 if bool(inside.all()) else math.inf

    def prox(self, weights: FloatArray, metric: FloatArray, at: IntArray) -> FloatArray:
        """Project the weights to the box."""
        return np.clip(weights, self.low, self.high)


#: An example of every penalty, by name. The tests check each of them.
PENALTIES: dict[str, Callable[[], Penalty]] = {
    "none": ElasticNet,
    "ridge": lambda: ridge(0.1),
    "lasso": lambda: lasso(0.1),
    "elastic-net": lambda: ElasticNet(l1=0.05, l2=0.1),
    "box": lambda: Box(-0.5, 0.5),
    "non-negative": Box,
}
