"""In which norm a step is taken, and how the noise is shaped.

A geometry turns a task (records, loss, penalty) into the two functions that Algorithm 1
needs: a query for the exact sum and an update that sees released values only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from skdp.descent.algorithm1 import Query, Update
from skdp.descent.target import Constant, constant
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.models.registry import Registered
from skdp.privacy import queries
from skdp.privacy.grid import WEIGHT_BOX
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What a geometry works on.

    `n_rows` is the public or released number of rows; `release` spends a share of the
    budget (of μ²), all of them together what the geometry's `share` says.
    """

    engine: queries.Engine
    loss: Loss
    slopes: queries.Slopes
    curvature: float
    relation: queries.Relation
    n_rows: float
    penalty: Penalty
    release: Callable[[queries.BoundedSum, float], Released]

    def constant(self, share: float) -> Constant:
        """Release a histogram of the target: the constant model that it suggests."""
        return constant(
            self.engine,
            self.loss,
            self.relation,
            self.n_rows,
            lambda total: self.release(total, share),
        )


class Prepared(NamedTuple):
    """The query and the update of Algorithm 1, and where it starts, (d, k)."""

    query: Query
    update: Update
    start: FloatArray


class Geometry(Registered, ABC):
    """Step and noise shape of a run; adding one means adding a class.

    Attributes
    ----------
    share : float
        The share of the budget (of μ²) that `prepare` spends.
    is_constant : bool
        Whether the model is an intercept alone.
    """

    share: float
    is_constant: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, task: Task) -> Prepared:
        """Release what the geometry needs; return what Algorithm 1 needs."""


def boxed(weights: FloatArray) -> FloatArray:
    """Weights clipped to the box that queries clip them to."""
    return np.clip(weights, -WEIGHT_BOX, WEIGHT_BOX)


def diagonal_update(step: FloatArray, penalty: Penalty, n_rows: float) -> Update:
    """θ_S - ΓC(∇f + η) then the proximal map, ΓC = Diag(step) on S.

    With Γ = PM⁻¹ and C = I_S P⁻¹ the probabilities cancel: step = 1/M.
    """

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError("An update takes released values only: call release first.")
        moved = weights[at] - step[at, None] * released.values / n_rows
        result = weights.copy()
        result[at] = boxed(penalty.prox(moved, 1.0 / step[at], at))
        return result

    return update


def accelerated(update: Update) -> Update:
    """Nesterov's momentum on full steps, restarted where it points uphill.

    For runs without noise: momentum would add up the noise of many steps.
    """
    before: list[FloatArray] = []
    speed = [1.0]

    def faster(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        reached = update(weights, released, at)
        last = before.pop() if before else reached
        before.append(reached)
        if float(((weights - reached) * (reached - last)).sum()) > 0:
            speed[0] = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * speed[0] ** 2)) / 2.0
        push = (speed[0] - 1.0) / following
        speed[0] = following
        return boxed(reached + push * (reached - last))

    return faster


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagonal(Geometry):
    """Steps Γ = PM⁻¹ in the norm of a diagonal smoothness M (the paper's).

    Parameters
    ----------
    smoothness : float64 (d,)
        M, valid for the sampling (`descent.smoothness`).
    elliptical : bool
        Shape the noise to the groups: variance ∝ τ_G^(-1/2), τ_G = Σ_{j in G} 1/M_j,
        which minimises Σ_j s_j²/M_j at a given sensitivity. Isotropic otherwise.
    momentum : bool
        Accelerate full steps, for runs without noise.
    share : float
        Share of μ² spent on a histogram of the target: the run then starts at a
        constant model, at zero if nothing is spent.
    """

    smoothness: FloatArray
    elliptical: bool = True
    momentum: bool = False
    share: float = 0.0
    kind = "diagonal"

    def __post_init__(self) -> None:
        given = np.asarray(self.smoothness, dtype=np.float64)
        object.__setattr__(self, "smoothness", given)
        check(
            bool(np.all(self.smoothness > 0) and np.all(np.isfinite(self.smoothness))),
            "Diagonal needs positive, finite smoothness: see descent.smoothness.",
        )
        check(
            0 <= self.share < 1,
            f"Diagonal needs 0 ≤ share < 1. Got {self.share}: 0 starts at zero.",
        )

    @classmethod
    def of_step_sizes(cls, gamma: FloatArray, probabilities: FloatArray) -> Diagonal:
        """Return the geometry of given step sizes Γ: M = P Γ⁻¹."""
        return cls(smoothness=probabilities / gamma)

    def shape(self, at: IntArray, group_of: IntArray) -> FloatArray:
        """Relative noise scale of each coordinate in `at`."""
        if not self.elliptical:
            return np.ones(len(at))
        groups = group_of[at]
        tau = np.bincount(groups, weights=1.0 / self.smoothness[at])
        shape = np.power(tau[groups], -0.25)
        return np.asarray(shape / shape.max(), dtype=np.float64)

    def prepare(self, task: Task) -> Prepared:
        """Release the target's histogram, if it is paid for."""
        layout = task.engine.records.layout
        group_of = layout.group_of

        def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
            shape = self.shape(at, group_of)
            return queries.gradient(
                task.engine, task.slopes, weights, at, task.relation, shape
            )

        update = diagonal_update(1.0 / self.smoothness, task.penalty, task.n_rows)
        update = accelerated(update) if self.momentum else update
        start = np.zeros((len(self.smoothness), task.loss.n_outputs))
        if self.share > 0 and layout.groups[-1].kind == "ones":
            start[-1] = task.constant(self.share).margins
        return Prepared(query, update, start)
