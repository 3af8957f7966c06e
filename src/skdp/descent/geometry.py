"""Define geometries, which set the norm of the steps and the shape of the noise.

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

from skdp.descent.adaptive import FollowingLaw
from skdp.descent.algorithm1 import Query, Update
from skdp.descent.prior import PriorRun, prior_moments
from skdp.descent.samplings import Sampling
from skdp.descent.target import ConstantModel, release_constant
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.models.registry import Registered
from skdp.privacy import queries
from skdp.privacy.grid import WEIGHT_BOX
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, Layout, check


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """The problem that a geometry prepares for Algorithm 1.

    `n_rows` is the public or released number of rows. The second argument of
    `release` is the share of the budget (of μ²) that the call spends. All calls
    together spend the geometry's `share`. `sampling` is the sampling of the plan. Only
    geometries that adapt the sampling use it.
    """

    engine: queries.Engine
    loss: Loss
    slopes: queries.Slopes
    curvature: float
    neighbours: queries.Neighbours
    n_rows: float
    penalty: Penalty
    release: Callable[[queries.BoundedSum, float], Released]
    sampling: Sampling | None = None

    def release_constant(self, share: float) -> ConstantModel:
        """Release a histogram of the target and fit a constant model to it."""
        return release_constant(
            self.engine,
            self.loss,
            self.neighbours,
            self.n_rows,
            lambda total: self.release(total, share),
        )


def keep(weights: FloatArray) -> FloatArray:
    """Return the weights unchanged."""
    return weights


class Prepared(NamedTuple):
    """The arguments of Algorithm 1: the query, the update and the start w⁰ (d, k).

    `finish` maps the result of Algorithm 1 to the weights of the model. It may release
    a last sum. If `law` is not None, the sets are drawn by `law` and not by the plan's
    sampling.
    """

    query: Query
    update: Update
    start: FloatArray
    finish: Callable[[FloatArray], FloatArray] = keep
    law: FollowingLaw | None = None


class Geometry(Registered, ABC):
    """The norm of the steps and the shape of the noise in a run.

    To add a geometry, write a subclass.

    Attributes
    ----------
    share : float
        The share of the budget (of μ²) that `prepare` and `Prepared.finish` spend.
    is_constant : bool
        Whether the model consists of an intercept only.
    is_diagonal : bool
        Whether the penalty's proximal map is applied in a diagonal metric. Full steps
        may then have any penalty.
    no_errors : str
        Why a model has no standard errors in this geometry.
    title : str
        What DP-SkGD does in this geometry, for reports: "DP-SkGD {title}".
    """

    share: float
    title: ClassVar[str] = "in a custom geometry"
    is_constant: ClassVar[bool] = False
    is_diagonal: ClassVar[bool] = False
    no_errors: ClassVar[str] = (
        "There are no standard errors in this geometry. The effect of its noise on the "
        "weights is not known."
    )

    @abstractmethod
    def prepare(self, task: Task) -> Prepared:
        """Return the query, update and start, after any release that they require."""

    def count_directions(self, layout: Layout) -> int:
        """Return the number of directions from which the sampling draws its sets."""
        return layout.n_features

    def scale_caps(self, max_weight: float) -> Geometry:
        """Return the geometry with the caps of a fit whose weights are at most this."""
        return self

    def describe(self) -> str:
        """Describe the geometry in one or more lines, for the text of a plan."""
        return type(self).__name__

    def linearise_cost(self, run: PriorRun) -> float | None:
        """Return the expected cost of noise and shrinkage, in units of the loss.

        The cost is None if it is not known. Plans then have no forecast.
        """
        return None


def clip_to_box(weights: FloatArray) -> FloatArray:
    """Clip weights to ±WEIGHT_BOX, as the queries do."""
    return np.clip(weights, -WEIGHT_BOX, WEIGHT_BOX)


def make_diagonal_update(step: FloatArray, penalty: Penalty, n_rows: float) -> Update:
    """Return an update that computes θ - ΓC(∇f + η) on S and applies the proximal map.

    In the paper, Γ = PM⁻¹ holds the step sizes, C = I_S P⁻¹ is the sketch, and η is
    noise. P is the diagonal matrix of the probabilities of the coordinates, and M is
    the smoothness. P cancels in ΓC, so `step` is 1/M.
    """

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError(
                f"An update takes only released values, got {type(released).__name__}."
            )
        moved = weights[at] - step[at, None] * released.values / n_rows
        result = weights.copy()
        result[at] = clip_to_box(penalty.prox(moved, 1.0 / step[at], at))
        return result

    return update


def accelerate(update: Update) -> Update:
    """Add Nesterov's momentum to full steps, and reset it when it points uphill.

    Use this only for runs without noise, because momentum adds up the noise of many
    steps.
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
    """The paper's geometry: steps in the norm of a diagonal smoothness M.

    The step sizes are Γ = PM⁻¹, where P is the diagonal matrix of the probabilities
    with which the sampling draws each coordinate.

    Parameters
    ----------
    smoothness : float64 (d,)
        M, which must be valid for the sampling (`descent.smoothness`).
    elliptical : bool
        If False, the noise is isotropic on every set S, as in the paper. If True, it is
        elliptical: each group G of coordinates has its own noise variance, proportional
        to τ_G^(-1/2) with τ_G = Σ_{j in G} 1/M_j. This minimises Σ_j s_j²/M_j, where
        s_j is the noise scale of coordinate j, at a given sensitivity. On a set within
        one group, both kinds of noise are the same.
    momentum : bool
        Whether to accelerate full steps. Use this only for runs without noise.
    share : float
        Share of μ² spent on a histogram of the target. If it is positive, the run
        starts at a constant model; otherwise it starts at zero.
    """

    smoothness: FloatArray
    elliptical: bool = False
    momentum: bool = False
    share: float = 0.0
    kind = "diagonal"
    title = "in a diagonal metric from public bounds"
    is_diagonal = True
    no_errors = (
        "There are no standard errors in the diagonal geometry. Its steps release "
        "gradients, which say too little about how much each column varies, so no "
        "effect could be told from noise."
    )

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
        """Return the geometry whose step sizes Γ are `gamma`."""
        return cls(smoothness=probabilities / gamma)

    def describe(self) -> str:
        """Name the kind of metric and of noise."""
        shape = "elliptical" if self.elliptical else "isotropic"
        return f"diagonal, from public bounds, {shape} noise"

    def linearise_cost(self, run: PriorRun) -> float:
        """Return the expected cost of noise and of weights that are not yet learnt.

        Once a weight has converged, it has the noise of an averaged gradient. Before
        that, it has the sum of the noise of all steps.
        """
        reach = run.noise * (run.slope_bound / run.n_rows)
        drawn = run.n_steps * run.probabilities
        seconds = [prior_moments(group)[1] for group in run.layout.groups]
        curves = run.curvature * np.array(seconds)[run.layout.group_of]
        learnt = reach / np.sqrt(drawn) / curves
        walked = reach * np.sqrt(drawn) / self.smoothness
        noise = (
            0.5
            * run.n_outputs
            * float((curves * np.minimum(learnt, walked) ** 2).sum())
        )
        reached = np.minimum(1.0, drawn * curves / self.smoothness)
        return noise + run.signal * float(np.mean((1.0 - reached) ** 2))

    def shape(self, at: IntArray, group_of: IntArray) -> FloatArray:
        """Return the relative noise scale of each coordinate in `at`."""
        if not self.elliptical:
            return np.ones(len(at))
        groups = group_of[at]
        tau = np.bincount(groups, weights=1.0 / self.smoothness[at])
        shape = np.power(tau[groups], -0.25)
        return np.asarray(shape / shape.max(), dtype=np.float64)

    def prepare(self, task: Task) -> Prepared:
        """Return the query, the update and the start.

        If `share` > 0, the target's histogram is released first, and the start is the
        constant model fitted to that histogram. Otherwise the start is zero.
        """
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
