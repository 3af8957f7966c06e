"""Define penalties and their proximal maps, which are applied to released weights.

``prox(w, metric, at)`` is argmin_u ½ Σ_j metric_j (u_j - w_j)² + ψ(u) over the
coordinates `at`, where ψ is the penalty. It is post-processing and costs no privacy.

`ElasticNet` and `Box` are separable: ψ is a sum over coordinates, so a step may move
any set of them. Every other penalty has `parts` and couples the coordinates of a part,
so a step must move all coordinates of a part or none. `skdp.solvers.dp_sega` can use
every penalty, because each of its steps moves all coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from skdp.models import proximal
from skdp.models.registry import Registered
from skdp.schema import FloatArray, IntArray, check

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

    @property
    def is_ridge(self) -> bool:
        """Whether the penalty is quadratic."""
        return False

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

    @property
    def is_ridge(self) -> bool:
        """Whether there is no ℓ₁ term."""
        return self.l1 == 0

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
        return proximal.shrink_norm(weights, metric, strength)


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
        each = [proximal.fuse(w, metric, self.strength) for w in weights.T]
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
        return np.stack([proximal.sort_up(w, metric) for w in weights.T], axis=1)


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
        each = [proximal.project_simplex(w, metric, self.total) for w in weights.T]
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
        return proximal.shrink_singular_values(weights, self.strength / metric[0])


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
