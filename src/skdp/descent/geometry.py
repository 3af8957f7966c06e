"""Define geometries: the start, the norm of the steps and the shape of the noise.

A geometry turns a task (records, loss, penalty) into the two functions that Algorithm 1
needs: a query for the exact sum, and an update that sees only released values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import ClassVar, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from skdp.descent.algorithm1 import Query, Update
from skdp.descent.samplings import FollowingLaw, Sampling
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.models.registry import Registered
from skdp.privacy import queries
from skdp.privacy.grid import FEATURE_BITS, WEIGHT_BOX
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.privacy.visits import CountVisits, Visits, visit_gradients
from skdp.schema import FloatArray, Group, IntArray, Layout, check

# ---- State what forecasts assume about a table, and the public facts of a run
#
# The prior assumes that
#
# * columns are independent, numeric columns are uniform on their range, and the
#   categories of a column are equally frequent;
# * the curvature of the loss is half of its largest value, or equal to its largest
#   value for squared losses;
# * the residuals of squared losses have a standard deviation of a fifth of the
#   half-range of the target;
# * the margins of the best model vary around a constant with variance 3, like the
#   log-odds of common tables, or with the variance of the residuals for squared losses;
# * this variance is spread evenly over all directions.


#: Residual variance of a target in [-1, 1], under the prior.
RESIDUAL_VARIANCE = 0.04
#: Variance of x·w* under the prior, for losses that are not squared.
SIGNAL_VARIANCE = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorRun:
    """The public facts of a run, from which a geometry forecasts its cost.

    Attributes
    ----------
    layout : Layout
        The coordinates of an encoded row.
    n_rows, n_outputs : int
        The numbers of rows and of outputs k.
    slope_bound, curvature : float
        The largest slope of the loss, and its curvature c under the prior.
    signal : float
        What the best model gains over a constant, in units of the loss.
    noise : float
        The standard deviation of the noise on a sum to which each record adds at
        most 1.
    n_steps : int
        The number of steps.
    n_averaged : float
        The number of equally weighted iterates that an average of independent noise
        would need to have the same variance.
    probabilities : float64
        The probability with which a step moves each coordinate.
    """

    layout: Layout
    n_rows: int
    n_outputs: int
    slope_bound: float
    curvature: float
    signal: float
    noise: float
    n_steps: int
    n_averaged: float
    probabilities: FloatArray


def prior_moments(group: Group) -> tuple[float, float]:
    """Return E[x] and E[x²] of each coordinate of a group, under the prior."""
    if group.kind in ("code", "hats"):
        return 1.0 / group.width, 1.0 / group.width
    if group.kind == "ones":
        return 1.0, 1.0
    return (0.0, 1.0 / group.width) if group.signed else (0.5, 1.0 / 3.0)


def prior_spectrum(layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of E[x xᵀ] under the prior, and their multiplicities.

    The coordinates of a group have equal moments and are orthogonal, so contrasts
    between them have the eigenvalue E[x²]. One direction per group remains, the sum of
    its coordinates. If these sums have means z and second moments s, the remaining
    matrix is diag(s - z²) + zzᵀ. The entries of s - z² take few distinct values. Among
    the groups that share a value, every direction orthogonal to z has this value as its
    eigenvalue, and one direction is left. So only a matrix with one row per distinct
    value must be decomposed, and a thousand columns take hardly any time.
    """
    widths = np.array([group.width for group in layout.groups], dtype=np.float64)
    moments = np.array([prior_moments(group) for group in layout.groups])
    mean, second = moments[:, 0] * np.sqrt(widths), moments[:, 1]
    own, kind = np.unique(np.round(second - mean**2, 12), return_inverse=True)
    joint = np.sqrt(np.bincount(kind, mean**2))
    left = np.linalg.eigvalsh(np.diag(own) + np.outer(joint, joint))
    values = np.concatenate([second, own, left])
    counts = np.concatenate([widths - 1, np.bincount(kind) - 1.0, np.ones(len(own))])
    return np.maximum(values, 0.0)[counts > 0], counts[counts > 0]


# ---- Estimate the target's location and spread before the first step
#
# This spends a small share of the budget (of μ²) on one histogram of the target. The
# histogram gives the constant model, which makes the same prediction for every row. For
# a numeric target, it also gives the spread of the target around that prediction. The
# descent starts at the constant model, and weights are shrunk towards it.


#: Number of equal bins for a numeric target.
N_BINS = 32
#: Prior guesses, which decide how noisy estimates are shrunk. CLASS_VARIANCE and
#: MEAN_VARIANCE are the variances of a class's share, and of the mean of a target in
#: [-1, 1], from table to table. USUAL_SCALE is the usual mean absolute deviation of a
#: target in [-1, 1].
CLASS_VARIANCE, MEAN_VARIANCE, USUAL_SCALE = 0.08, 0.1, 0.25
#: Spread of the residuals relative to the spread of the target, if the model explains
#: two thirds of the target's variance.
RESIDUAL = 0.6
#: If the estimated distribution function of the target has this error, the estimated
#: scale and the prior guess get equal weight.
DOUBTFUL = 0.15


@dataclass(frozen=True, eq=False)
class ConstantModel:
    """A model that makes the same prediction for every row.

    `margins` has one entry per output of the loss. `scale` estimates the mean
    absolute deviation of a numeric target from the prediction. It is 1 for classes.
    """

    margins: FloatArray
    scale: float


def release_constant(
    engine: queries.Engine,
    loss: Loss,
    neighbours: queries.Neighbours,
    n_rows: float,
    release: Callable[[queries.BoundedSum], Released],
) -> ConstantModel:
    """Release the target's histogram and fit a constant model to it."""
    if loss.n_classes:
        total = queries.counts(engine, loss.n_classes, neighbours)
        return fit_constant(release(total), loss, n_rows)
    fine = engine.counts((1 << FEATURE_BITS) + 1)
    fine[-2] += fine[-1]  # the largest value belongs to the last bin
    starts = np.arange(0, 1 << FEATURE_BITS, (1 << FEATURE_BITS) // N_BINS)
    counts = np.add.reduceat(fine[:-1], starts)
    kind, query = Kind.TARGET_HISTOGRAM, f"histogram of the target, {N_BINS} bins"
    one = engine.records.one
    total = queries.histogram(counts, 1, neighbours, kind, query, one)
    return fit_constant(release(total), loss, n_rows)


def fit_constant(released: Released, loss: Loss, n_rows: float) -> ConstantModel:
    """Fit a constant model to a released histogram."""
    if loss.n_classes:
        return ConstantModel(loss.constant(_shares(released, n_rows)), 1.0)
    mean, scale = _location_and_scale(released, n_rows)
    return ConstantModel(loss.constant(np.array([(1.0 + mean) / 2.0])), scale)


def estimate_variance(released: Released, n_rows: float) -> tuple[float, float]:
    """Estimate the variance of a target in [-1, 1].

    Also return the standard deviation of the estimate's noise. Unlike
    `ConstantModel.scale`, the estimate is not shrunk to a prior guess. Rounding values
    to the midpoints of bins adds the variance of a uniform distribution within a bin,
    so this variance is subtracted.
    """
    shares, middles = _rising_shares(released, n_rows)
    squares = (middles - shares @ middles) ** 2
    found = float(shares @ squares) - (2.0 / N_BINS) ** 2 / 12.0
    away = squares - squares.mean()  # shares add up to one
    return max(found, 0.0), _error(released, n_rows) * float(np.linalg.norm(away))


def _error(released: Released, n_rows: float) -> float:
    """Return the standard deviation of the noise in the share of one bin."""
    return float(np.max(released.noise_std)) / n_rows


def _shares(released: Released, n_rows: float) -> FloatArray:
    """Estimate the share of each class.

    The more noise there is, the more the estimates are shrunk to equal shares.
    """
    error = _error(released, n_rows)
    equal = 1.0 / released.values.size
    trust = CLASS_VARIANCE / (CLASS_VARIANCE + error**2)
    shares = equal + trust * (released.values.ravel() / n_rows - equal)
    shares = np.maximum(shares, min(max(error, 1e-4), equal))
    return np.asarray(shares / shares.sum())


def _location_and_scale(released: Released, n_rows: float) -> tuple[float, float]:
    """Estimate the mean and the mean absolute deviation of a target in [-1, 1].

    The noisier the estimates are, the more they are shrunk to prior guesses.
    """
    error = _error(released, n_rows)
    shares, middles = _rising_shares(released, n_rows)
    mean = float(shares @ middles)
    off = error * math.sqrt(N_BINS / 3.0)
    mean *= MEAN_VARIANCE / (MEAN_VARIANCE + off**2)
    # At least half a bin, because the histogram resolves nothing finer.
    scale = max(float(shares @ np.abs(middles - mean)), 1.0 / N_BINS)
    doubt = (error * math.sqrt(N_BINS) / 2.0 / DOUBTFUL) ** 2
    log_scale = (math.log(scale) + doubt * math.log(USUAL_SCALE)) / (1.0 + doubt)
    return mean, math.exp(log_scale)


def _rising_shares(released: Released, n_rows: float) -> tuple[FloatArray, FloatArray]:
    """Return each bin's share of the rows, and the midpoints of the bins.

    The shares are adjusted to sum to one. Isotonic regression then makes their
    cumulative sums nondecreasing, so no share is negative.
    """
    from sklearn.isotonic import isotonic_regression  # slow to import

    shares = released.values.ravel() / n_rows
    shares = shares + (1.0 - shares.sum()) / N_BINS
    rising = isotonic_regression(np.cumsum(shares), y_min=0.0, y_max=1.0)
    rising[-1] = 1.0
    shares = np.diff(rising, prepend=0.0)
    return shares, (np.arange(N_BINS) + 0.5) * 2.0 / N_BINS - 1.0


# ---- Define geometries, which set the norm of the steps and the shape of the noise
#
# A geometry turns a task (records, loss, penalty) into the two functions that Algorithm
# 1 needs: a query for the exact sum, and an update that sees only released values.


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
    sampling. `visits` counts how much of the steps on given public sets one record can
    take part in. If it is None, every step is paid for.
    """

    query: Query
    update: Update
    start: FloatArray
    finish: Callable[[FloatArray], FloatArray] = keep
    law: FollowingLaw | None = None
    visits: CountVisits | None = None


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

    def count_visits(self, layout: Layout, sets: Sequence[IntArray]) -> Visits | None:
        """Return how much of the steps on these sets one record can take part in.

        It is None if it depends on releases, or if every step must be paid for.
        """
        return None

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


def make_sega_update(
    metric: FloatArray,
    probabilities: FloatArray,
    damping: float,
    penalty: Penalty,
    n_rows: float,
) -> Update:
    """Return an update that keeps a memory of the gradient and moves all coordinates.

    The memory starts at zero. It depends on released values alone.
    """
    everything = np.arange(len(metric))
    memory: list[FloatArray] = []

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError(
                f"An update takes only released values, got {type(released).__name__}."
            )
        known = memory.pop() if memory else np.zeros_like(weights)
        new = released.values / n_rows - known[at]
        estimate, corrected = known.copy(), known.copy()
        estimate[at] += new / probabilities[at, None]
        corrected[at] += damping * new
        memory.append(corrected)
        moved = weights - estimate / metric[:, None]
        return clip_to_box(penalty.prox(moved, metric, everything))

    return update


def accelerate(update: Update, metric: FloatArray | None = None) -> Update:
    """Add Nesterov's momentum to full steps, and reset it when it points uphill.

    Use this only for runs without noise, because momentum adds up the noise of many
    steps. `metric` (d, d) is the metric of the steps, by default the identity.
    """
    before: list[FloatArray] = []
    speed = [1.0]

    def faster(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        reached = update(weights, released, at)
        last = before.pop() if before else reached
        before.append(reached)
        moved = reached - last if metric is None else metric @ (reached - last)
        if float(((weights - reached) * moved).sum()) > 0:
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

    @property
    def target_share(self) -> float:
        """The share spent on the target's histogram, which is all of `share`."""
        return self.share

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

    def count_visits(self, layout: Layout, sets: Sequence[IntArray]) -> Visits:
        """Return how much of the steps on these sets one record can take part in."""
        group_of = layout.group_of
        return visit_gradients(layout, sets, lambda at: self.shape(at, group_of))

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
        visits = partial(self.count_visits, layout)
        return Prepared(query, update, start, visits=visits)


# ---- Run linear algebra on small matrices on one thread
#
# BLAS libraries split the decomposition of even a small matrix over all cores, and wait
# for the slowest core after each piece. If the cores are busy, this can take a hundred
# times as long as on one core.


#: Matrices with more rows than this use all cores.
SMALL = 256

# If two limits overlapped in time, they could be undone in the wrong order.
_ONE_AT_A_TIME = Lock()


@contextmanager
def one_thread(n_rows: int) -> Iterator[None]:
    """Limit linear algebra to one thread, if `n_rows` is at most `SMALL`."""
    if n_rows > SMALL:
        yield
        return
    with _ONE_AT_A_TIME, _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Return the loaded BLAS libraries, cached because searching for them is slow."""
    return ThreadpoolController()
