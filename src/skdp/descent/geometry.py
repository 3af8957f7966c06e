"""The norm in which steps are taken, and the shape of the noise.

A geometry turns a task (records, loss, penalty) into the two functions that Algorithm 1
needs: a query for the exact sum, and an update that sees only released values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from skdp.descent.algorithm1 import Query, Update
from skdp.descent.target import ConstantModel, release_constant
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.models.registry import Registered
from skdp.privacy import queries
from skdp.privacy.grid import WEIGHT_BOX
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """The problem that a geometry prepares.

    `n_rows` is the public or released number of rows. `release` spends a share of the
    budget (of μ²); all calls together spend the geometry's `share`.
    """

    engine: queries.Engine
    loss: Loss
    slopes: queries.Slopes
    curvature: float
    neighbours: queries.Neighbours
    n_rows: float
    penalty: Penalty
    release: Callable[[queries.BoundedSum, float], Released]

    def release_constant(self, share: float) -> ConstantModel:
        """Release a histogram of the target and fit a constant model to it."""
        return release_constant(
            self.engine,
            self.loss,
            self.neighbours,
            self.n_rows,
            lambda total: self.release(total, share),
        )


class Prepared(NamedTuple):
    """The query and the update of Algorithm 1, and its start w⁰ (d, k)."""

    query: Query
    update: Update
    start: FloatArray


class Geometry(Registered, ABC):
    """Step and noise shape of a run; to add one, write a subclass.

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
        """Release what the geometry needs and return what Algorithm 1 needs."""


def clip_to_box(weights: FloatArray) -> FloatArray:
    """Clip weights to the box that queries clip them to."""
    return np.clip(weights, -WEIGHT_BOX, WEIGHT_BOX)


def make_diagonal_update(step: FloatArray, penalty: Penalty, n_rows: float) -> Update:
    """Return the update θ_S - ΓC(∇f + η) and proximal map, ΓC = Diag(step) on S.

    With Γ = PM⁻¹ and C = I_S P⁻¹ the probabilities cancel: step = 1/M.
    """

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError("An update takes only released values.")
        moved = weights[at] - step[at, None] * released.values / n_rows
        result = weights.copy()
        result[at] = clip_to_box(penalty.prox(moved, 1.0 / step[at], at))
        return result

    return update


def accelerate(update: Update) -> Update:
    """Add Nesterov's momentum to full steps, restarted where it points uphill.

    Only for runs without noise, because momentum adds up the noise of many steps.
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
        return clip_to_box(reached + push * (reached - last))

    return faster


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagonal(Geometry):
    """Steps Γ = PM⁻¹ in the norm of a diagonal smoothness M (the paper's).

    Parameters
    ----------
    smoothness : float64 (d,)
        M, valid for the sampling (`descent.smoothness`).
    elliptical : bool
        Shape the noise by group: variance ∝ τ_G^(-1/2), τ_G = Σ_{j in G} 1/M_j, which
        minimises Σ_j s_j²/M_j at a given sensitivity. Isotropic otherwise.
    momentum : bool
        Accelerate full steps, for runs without noise.
    share : float
        Share of μ² spent on a histogram of the target. The run then starts at a
        constant model; with a share of 0 it starts at zero.
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
            "smoothness must be positive and finite in every coordinate.",
        )
        check(
            0 <= self.share < 1,
            f"share must be at least 0 and below 1, got {self.share}.",
        )

    @classmethod
    def of_step_sizes(cls, gamma: FloatArray, probabilities: FloatArray) -> Diagonal:
        """Return the geometry of given step sizes Γ: M = P Γ⁻¹."""
        return cls(smoothness=probabilities / gamma)

    def shape(self, at: IntArray, group_of: IntArray) -> FloatArray:
        """Return the relative noise scale of each coordinate in `at`."""
        if not self.elliptical:
            return np.ones(len(at))
        groups = group_of[at]
        tau = np.bincount(groups, weights=1.0 / self.smoothness[at])
        shape = np.power(tau[groups], -0.25)
        return np.asarray(shape / shape.max(), dtype=np.float64)

    def prepare(self, task: Task) -> Prepared:
        """Release the target's histogram if `share` is positive."""
        layout = task.engine.records.layout
        group_of = layout.group_of

        def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
            shape = self.shape(at, group_of)
            return queries.gradient(
                task.engine, task.slopes, weights, at, task.neighbours, shape
            )

        update = make_diagonal_update(1.0 / self.smoothness, task.penalty, task.n_rows)
        update = accelerate(update) if self.momentum else update
        start = np.zeros((len(self.smoothness), task.loss.n_outputs))
        if self.share > 0 and layout.groups[-1].kind == "ones":
            start[-1] = task.release_constant(self.share).margins
        return Prepared(query, update, start)
