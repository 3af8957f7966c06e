"""Define penalties and their proximal maps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from skdp.models.registry import Registered
from skdp.schema import FloatArray, IntArray, check
from skdp.schema.validation import fact

# ---- Compute proximal maps of penalties that couple coordinates, exactly
#
# The proximal map of ψ at w, in a metric with positive numbers q, is
# argmin_u ½ Σ_j q_j (u_j - w_j)² + ψ(u). Each function here computes one such map by a
# finite algorithm, or by one search for a root. `iterate` computes the map in a metric
# that is a matrix. All of these functions read only released values.


#: `iterate` stops when no coordinate moves by more than `TOLERANCE`, relative to the
#: largest coordinate, and in any case after `MOST_ITERATIONS` iterations.
TOLERANCE, MOST_ITERATIONS = 1e-10, 20_000


def shrink_norm(weights: FloatArray, metric: FloatArray, strength: float) -> FloatArray:
    """Return the proximal map of strength·‖u‖ at weights w (m, k), metric q (m,).

    The norm is over all m·k numbers. If the result is not zero, it is
    u_j = q_j w_j τ/(q_j τ + strength), where τ = ‖u‖ solves
    Σ_j ‖q_j w_j‖²/(q_j τ + strength)² = 1. The left side decreases in τ.
    """
    pulls = metric * np.linalg.norm(weights, axis=1)
    total = float(np.linalg.norm(pulls))
    if total <= strength:
        return np.zeros_like(weights)
    low, high = ((total - strength) / q for q in (metric.max(), metric.min()))

    def excess(norm: float) -> float:
        return float(np.square(pulls / (metric * norm + strength)).sum()) - 1.0

    norm = float(low)
    if high - low > 1e-15 * high and excess(low) > 0 > excess(high):
        norm = brentq(excess, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps)
    kept = metric * norm / (metric * norm + strength)
    return np.asarray(kept[:, None] * weights)


def fuse(weights: FloatArray, metric: FloatArray, strength: float) -> FloatArray:
    """Return the proximal map of strength·Σ_i |u_{i+1} - u_i| at weights (m,).

    This is the dynamic program of N. Johnson, "A dynamic programming algorithm for the
    fused lasso and L0-segmentation", Journal of Computational and Graphical Statistics
    22 (2013), extended to a diagonal metric. Let
    c_i(b) be the least cost of u_1, …, u_i given u_i = b. The program computes the
    derivative of each c_i, clipped to ±strength. It is piecewise linear in b, and is
    stored as a list of knots. At each knot, the list has the changes of the slope and
    of the constant term.
    """
    m = len(weights)
    if m == 1 or strength == 0:
        return weights.copy()
    y, q = weights.tolist(), metric.tolist()
    knots, slopes, levels = ([0.0] * (2 * m) for _ in range(3))
    lower, upper = [0.0] * (m - 1), [0.0] * (m - 1)
    left, right = m, m - 1  # no knots yet
    for i in range(m - 1):
        cut = strength if i else 0.0
        slope, level = q[i], -q[i] * y[i] - cut
        at = left
        while at <= right and slope * knots[at] + level <= -strength:
            slope, level, at = slope + slopes[at], level + levels[at], at + 1
        lower[i] = (-strength - level) / slope
        first = (slope, level + strength)
        slope, level = -q[i], q[i] * y[i] - cut
        end = right
        while end >= at and -slope * knots[end] - level >= strength:
            slope, level, end = slope + slopes[end], level + levels[end], end - 1
        upper[i] = (strength + level) / -slope
        left, right = at - 1, end + 1
        knots[left], (slopes[left], levels[left]) = lower[i], first
        knots[right], slopes[right], levels[right] = upper[i], slope, level + strength
    slope, level, at = q[-1], -q[-1] * y[-1] - strength, left
    while at <= right and slope * knots[at] + level <= 0:
        slope, level, at = slope + slopes[at], level + levels[at], at + 1
    found = [-level / slope]
    for low, high in zip(reversed(lower), reversed(upper), strict=True):
        found.append(min(max(found[-1], low), high))
    return np.array(found[::-1])


def sort_up(weights: FloatArray, metric: FloatArray) -> FloatArray:
    """Return the increasing sequence that is nearest to weights (m,), in the metric.

    The algorithm is pool adjacent violators.
    """
    return np.asarray(isotonic_regression(weights, weights=metric).x)


def project_simplex(
    weights: FloatArray, metric: FloatArray, total: float
) -> FloatArray:
    """Project weights w (m,) to the simplex u ≥ 0, Σ_j u_j = total, in the metric q.

    The result is u_j = max(0, w_j - τ/q_j). The coordinates with the largest
    q_j w_j are the positive ones, so τ follows from sorting (Held, Wolfe and Crowder
    1974).
    """
    order = np.argsort(-(metric * weights), kind="stable")
    sums, spread = np.cumsum(weights[order]), np.cumsum(1.0 / metric[order])
    shifts = (sums - total) / spread
    last = np.flatnonzero((metric * weights)[order] > shifts)[-1]
    return np.asarray(np.maximum(weights - shifts[last] / metric, 0.0))


def shrink_singular_values(weights: FloatArray, threshold: float) -> FloatArray:
    """Return the weights (m, k) with each singular value lowered by `threshold`."""
    left, values, right = np.linalg.svd(weights, full_matrices=False)
    return np.asarray((left * np.maximum(values - threshold, 0.0)) @ right)


def iterate(
    prox: Callable[[FloatArray], FloatArray],
    step: FloatArray,
    metric: FloatArray,
    weights: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Return argmin_u ½ ‖u - weights‖² + ψ(u), in the norm of the matrix `metric`.

    This is FISTA (Beck and Teboulle 2009) with restarts. `prox` is the proximal map of
    ψ in the diagonal metric 1/step, and Diag(1/step) ⪰ metric is required.

    Parameters
    ----------
    prox : callable (m, k) -> (m, k)
        The proximal map in the diagonal metric.
    step : float64 (m, 1)
        The step of each coordinate.
    metric : float64 (m, m)
        The matrix.
    weights, start : float64 (m, k)
        The point at which the map is computed, and the start of the iterations.
    """
    found = ahead = start
    speed = 1.0
    for _ in range(MOST_ITERATIONS):
        reached = prox(ahead - step * (metric @ (ahead - weights)))
        move = reached - found
        if float(((ahead - reached) * move / step).sum()) > 0:
            speed = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * speed**2)) / 2.0
        residual = float(np.abs(reached - ahead).max())
        ahead = reached + (speed - 1.0) / following * move
        found, speed = reached, following
        if residual <= TOLERANCE * (1.0 + float(np.abs(found).max())):
            break
    return found


# ---- Define penalties and their proximal maps, which are applied to released weights
#
# ``prox(w, metric, at)`` is argmin_u ½ Σ_j metric_j (u_j - w_j)² + ψ(u) over the
# coordinates `at`, where ψ is the penalty. It is post-processing and costs no privacy.
#
# `ElasticNet` and `Box` are separable: ψ is a sum over coordinates, so a step may move
# any set of them. Every other penalty has `parts` and couples the coordinates of a
# part, so a step must move all coordinates of a part or none. `skdp.solvers.dp_sega`
# can use every penalty, because each of its steps moves all coordinates.


#: Weights count as feasible if they violate a constraint by less than this, relative to
#: their size. Rounding can cause such a violation in an average of feasible weights.
ROUNDING = 1e-9


class Penalty(Registered, ABC):
    """A convex penalty on weights (d, k).

    To add a penalty, write a subclass.

    Attributes
    ----------
    separable : bool
        Whether the penalty is a sum over coordinates. If not, `splits` says which sets
        of coordinates a step may move.
    trusted : bool
        Whether plans rely on `separable` without a test.
    is_ridge : bool
        Whether the penalty is ½ Σ_j λ_j w_j² with the λ of `quadratic`, and no more.
    """

    separable: ClassVar[bool] = True
    trusted: ClassVar[bool] = False
    is_ridge: bool = False

    def quadratic(self, at: IntArray) -> FloatArray:
        """Return λ ≥ 0 (len(at),) such that ψ(w) - ½ Σ_j λ_j w_j² is convex."""
        return np.zeros(len(at))

    @abstractmethod
    def value(self, weights: FloatArray) -> float:
        """Return the penalty of all weights."""

    @abstractmethod
    def prox(self, weights: FloatArray, metric: FloatArray, at: IntArray) -> FloatArray:
        """Return the proximal map of weights (len(at), k) in the metric (len(at),)."""

    def splits(self, at: IntArray) -> bool:
        """Return True if the penalty does not couple `at` with other coordinates."""
        return self.separable

    def raise_metric(self, metric: FloatArray, at: IntArray) -> FloatArray:
        """Return a metric (len(at),), at least `metric`, in which `prox` is known."""
        return metric


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
    #: Whether there is no ℓ₁ term.
    is_ridge: bool = fact()
    kind = "elastic-net"
    trusted = True

    def __post_init__(self) -> None:
        if self.penalised is not None:
            on = np.asarray(self.penalised, dtype=np.float64)
            object.__setattr__(self, "penalised", on)
        check(
            0 <= self.l1 < math.inf and 0 <= self.l2 < math.inf,
            f"l1 and l2 must be finite and at least 0, got {self.l1} and {self.l2}.",
        )
        vars(self).update(is_ridge=bool(self.l1 == 0))

    def quadratic(self, at: IntArray) -> FloatArray:
        """Return l2 for penalised coordinates and 0 for the others."""
        on = np.ones(len(at)) if self.penalised is None else self.penalised[at]
        return np.asarray(self.l2 * on, dtype=np.float64)

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
    trusted = True

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


class CoupledPenalty(Penalty):
    """A penalty that couples the coordinates of each of its `parts`.

    To add one, write a subclass with `_value` and `_prox` of one part.

    Attributes
    ----------
    parts : sequence of sequences of int
        Disjoint sets of coordinates. Coordinates in no part, which should include the
        intercept, are not penalised.
    """

    separable = False
    parts: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        parts = tuple(tuple(int(j) for j in part) for part in self.parts)
        object.__setattr__(self, "parts", parts)
        listed = [j for part in parts for j in part]
        check(
            bool(parts) and all(parts) and min(listed) >= 0,
            "parts must be one or more nonempty sets of nonnegative coordinates, got "
            f"{self.parts!r}.",
        )
        check(
            len(set(listed)) == len(listed),
            f"parts must be disjoint sets of coordinates, got {self.parts!r}.",
        )

    @abstractmethod
    def _value(self, weights: FloatArray) -> float:
        """Return the penalty of one part's weights (m, k)."""

    @abstractmethod
    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        """Return the proximal map of one part's weights (m, k)."""

    def _places(self, at: IntArray) -> Iterator[IntArray]:
        """Yield the positions in `at` of each part's coordinates, or -1 if absent.

        Parts without any coordinate in `at` are left out.
        """
        end = 1 + max(int(at.max(initial=-1)), max(map(max, self.parts)))
        place = np.full(end, -1)
        place[at] = np.arange(len(at))
        for part in self.parts:
            found = place[list(part)]
            if found.max() >= 0:
                yield found

    def splits(self, at: IntArray) -> bool:
        """Return whether each part is entirely inside `at` or entirely outside."""
        return all(place.min() >= 0 for place in self._places(at))

    def value(self, weights: FloatArray) -> float:
        """Return the penalty of all weights."""
        return float(sum(self._value(weights[list(part)]) for part in self.parts))

    def prox(self, weights: FloatArray, metric: FloatArray, at: IntArray) -> FloatArray:
        """Apply the proximal map of each part."""
        result = weights.copy()
        for place in self._places(at):
            check(
                place.min() >= 0,
                f"{type(self).__name__} couples coordinates, but the step moves only "
                "some of them. Use full steps, or skdp.solvers.dp_sega.",
            )
            result[place] = self._prox(weights[place], metric[place])
        return result


@dataclass(frozen=True, eq=False)
class GroupLasso(CoupledPenalty):
    """The penalty strength·Σ_P √m ‖w_P‖, summed over parts P of m coordinates.

    Usually, each part is a column of the table. The norm is over all coordinates and
    outputs of a part, so the weights of a part become zero together.
    """

    strength: float
    parts: Sequence[Sequence[int]]
    kind = "group-lasso"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strength(self.strength)

    def _value(self, weights: FloatArray) -> float:
        root = math.sqrt(len(weights))
        return self.strength * root * float(np.linalg.norm(weights))

    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        strength = self.strength * math.sqrt(len(weights))
        return shrink_norm(weights, metric, strength)


@dataclass(frozen=True, eq=False)
class TotalVariation(CoupledPenalty):
    """The penalty strength·Σ_P Σ_i abs(w_P(i+1) - w_P(i)) over ordered parts P.

    Neighbouring weights of a part, such as those of a curve's knots, become equal.
    Each output is penalised separately.
    """

    strength: float
    parts: Sequence[Sequence[int]]
    kind = "total-variation"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strength(self.strength)

    def _value(self, weights: FloatArray) -> float:
        return self.strength * float(np.abs(np.diff(weights, axis=0)).sum())

    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        each = [fuse(w, metric, self.strength) for w in weights.T]
        return np.stack(each, axis=1)


@dataclass(frozen=True, eq=False)
class Monotone(CoupledPenalty):
    """A penalty that is zero if weights increase along each part, otherwise infinite.

    To make weights decrease, list the coordinates of the part in reverse order.
    """

    parts: Sequence[Sequence[int]]
    kind = "monotone"

    def _value(self, weights: FloatArray) -> float:
        slack = ROUNDING * (1.0 + float(np.abs(weights).max()))
        return 0.0 if (np.diff(weights, axis=0) >= -slack).all() else math.inf

    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        return np.stack([sort_up(w, metric) for w in weights.T], axis=1)


@dataclass(frozen=True, eq=False)
class Simplex(CoupledPenalty):
    """A penalty that makes weights non-negative with a given sum on each part.

    It is zero if w ≥ 0 and Σ_j w_j = total for each part and output, else infinite.
    """

    parts: Sequence[Sequence[int]]
    total: float = 1.0
    kind = "simplex"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            0 < self.total < math.inf,
            f"total must be positive and finite, got {self.total}.",
        )

    def _value(self, weights: FloatArray) -> float:
        slack = ROUNDING * (1.0 + self.total)
        gap = float(np.abs(weights.sum(axis=0) - self.total).max())
        return 0.0 if gap <= slack and (weights >= -slack).all() else math.inf

    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        each = [project_simplex(w, metric, self.total) for w in weights.T]
        return np.stack(each, axis=1)


@dataclass(frozen=True, eq=False)
class NuclearNorm(CoupledPenalty):
    """The penalty strength·Σ_P ‖W_P‖_*, the sum of the singular values of W_P (m, k).

    With several outputs, such as classes, the weights get a low rank, which means that
    the outputs share a few directions. The proximal map is known only in a metric that
    is the same for all rows of a part. `raise_metric` returns such a metric.
    """

    strength: float
    parts: Sequence[Sequence[int]]
    kind = "nuclear-norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strength(self.strength)

    def raise_metric(self, metric: FloatArray, at: IntArray) -> FloatArray:
        """Return the metric with each part's values raised to the largest of them."""
        raised = metric.copy()
        for place in self._places(at):
            raised[place] = metric[place].max()
        return raised

    def _value(self, weights: FloatArray) -> float:
        return self.strength * float(np.linalg.norm(weights, "nuc"))

    def _prox(self, weights: FloatArray, metric: FloatArray) -> FloatArray:
        check(
            bool(np.ptp(metric) <= 1e-12 * metric.max()),
            "NuclearNorm requires the same smoothness for all coordinates of a part, "
            f"got {metric.min():g} to {metric.max():g}.",
        )
        return shrink_singular_values(weights, self.strength / metric[0])


def check_strength(strength: float) -> None:
    """Raise if the strength of a penalty is negative or infinite."""
    check(
        0 <= strength < math.inf,
        f"strength must be finite and at least 0, got {strength}.",
    )


#: An example of every penalty, by name. The tests check each of them. The examples of
#: coupled penalties are meant for models with eight coordinates.
PENALTIES: dict[str, Callable[[], Penalty]] = {
    "none": ElasticNet,
    "ridge": lambda: ridge(0.1),
    "lasso": lambda: lasso(0.1),
    "elastic-net": lambda: ElasticNet(l1=0.05, l2=0.1),
    "box": lambda: Box(-0.5, 0.5),
    "non-negative": Box,
    "group-lasso": lambda: GroupLasso(0.1, [(0, 1, 2), (4, 6), (5,)]),
    "total-variation": lambda: TotalVariation(0.1, [(0, 1, 2, 3), (6, 5)]),
    "monotone": lambda: Monotone([(0, 1, 2, 3), (6, 5)]),
    "simplex": lambda: Simplex([(0, 1, 2, 3), (5, 6)], total=0.7),
    "nuclear-norm": lambda: NuclearNorm(0.1, [(0, 1, 2, 3, 4, 5)]),
}
