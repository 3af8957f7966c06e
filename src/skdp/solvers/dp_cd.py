"""DP-CD (Mangold, Bellet, Salmon, Tommasi 2022), which moves one coordinate at a time.

A step draws a coordinate j uniformly and releases its partial derivative. It moves the
coordinate by the derivative divided by M_j, the smoothness constant of the coordinate.
Then it applies the penalty's proximal map. Each of T inner loops has K steps and
returns the average of its iterates. This is `skdp.descend` with sets of one coordinate,
and the accounting of `skdp.descend` applies.

Slopes are clipped to C_j = C √(M_j / Σ M), where C is the parameter `clip`. Coordinates
that are seldom nonzero, such as rare categories, have a small M_j. They move further
and have smaller clips. M is either public or private. The public M is β times the
largest x_j², where β bounds the curvature of the loss. The private M is β times the
mean of x_j², which is released for a share of the budget. Means below a floor are
raised to the floor, because small means are mostly noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from skdp.descent import algorithm1, rule, samplings
from skdp.descent.algorithm1 import draw_course, run_steps
from skdp.descent.bounds import Budget, Prior, paper_noise_multiplier
from skdp.descent.geometry import make_diagonal_update
from skdp.engines.reference import ReferenceEngine
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.privacy.visits import visit_gradients
from skdp.schema import FloatArray, IntArray, check, check_integer, count_in_words
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    Run,
    Solved,
    open_run,
    refuse_coupled_penalty,
    register_solver,
)

#: Share of μ² spent on private estimates of M.
SMOOTHNESS_SHARE = 0.1
#: Number of passes over the coordinates in a run without noise, and the largest default
#: number of steps in a run with noise.
NOISELESS_PASSES, MOST_STEPS = 400, 50_000
#: Columns of several numbers (vectors, text) with more coordinates than this keep the
#: public M.
MOST_JOINT = 8


@register_solver(persons=True)
def dp_cd(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    calibration: Literal["exact", "paper"] = "exact",
    smoothness: FloatArray | Literal["private", "public"] = "private",
    smoothness_share: float = SMOOTHNESS_SHARE,
    floor: float | None = None,
    clip: float | None = None,
    n_steps: int | None = None,
    n_restarts: int = 1,
) -> Solved:
    """Fit by DP-CD, which moves one random coordinate at a time.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    calibration : {"exact", "paper"}
        "exact" uses exact accounting. "paper" uses the noise of the paper's Theorem
        3.1, σ_j² = 12 L_j² T K log(1/δ)/(nε)². Here L_j bounds a record's derivative.
    smoothness : {"private", "public"} or float64 (d,)
        How the smoothness constants M_j of the coordinates are chosen. See the
        docstring of the module. An array is used as M, and must be public.
    smoothness_share : float
        Share of the budget μ² spent on private estimates of M.
    floor : float, optional
        Private estimates of the mean of x_j² are raised to this value. The default is
        (√d/(nμ))^½.
    clip : float, optional
        The constant C. A record's slope is clipped to C_j = C √(M_j / Σ M). The
        default, for runs with noise, is √d times the slope bound of the loss. A
        coordinate with an average M_j is then not clipped.
    n_steps, n_restarts : int, optional
        The number K of steps in an inner loop, and the number T of inner loops. By
        default, `choose_cd_steps` chooses K, and T is 1.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, as the problem defines them, the
    weights and everything that the callback receives cost what the record says: at most
    d releases for M and K·T steps, each Gaussian (`descent.algorithm1.run_steps`).
    """
    check(
        0 < smoothness_share < 1,
        f"smoothness_share must be in (0, 1), got {smoothness_share}.",
    )
    check(clip is None or clip > 0, f"clip must be positive, got {clip}.")
    refuse_coupled_penalty(problem)
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
        persons=True,
    )
    private = isinstance(smoothness, str) and smoothness == "private"
    share = smoothness_share if private and run.mu < math.inf else 0.0
    floor = floor or _choose_floor(problem, run)
    M = _choose_smoothness(problem, run.share(share or 1.0), smoothness, floor)
    left = run.share(1.0 - share)
    sampling = samplings.SingleCoordinate.uniform(problem.layout.n_features)
    steps = n_steps or choose_cd_steps(problem, left, sampling, M, calibration)
    steps = check_integer(steps, "n_steps")
    restarts = check_integer(n_restarts, "n_restarts")
    if clip is None and run.mu < math.inf:
        clip = problem.slope_bound * math.sqrt(problem.layout.n_features)
    course = draw_course(
        sampling.sets,
        partial(visit_gradients, problem.layout),
        n_steps=steps,
        n_restarts=restarts,
        randomness=run.noise,
    )
    z = accountant.noise_multiplier(left.mu, course.most)
    if calibration == "paper" and z:
        wide = paper_noise_multiplier(
            run.record.epsilon, run.record.delta, steps * restarts
        )
        z = max(z, wide / math.sqrt(1.0 - share))
    weights = run_steps(
        query=_make_derivative_query(problem, M, clip, engine),
        update=make_diagonal_update(1.0 / M, problem.penalty, problem.n_rows),
        course=course,
        average=algorithm1.mean if z else algorithm1.last,
        start=problem.start,
        noise_multiplier=z,
        randomness=run.noise,
        record=run.record,
        callback=callback,
    )
    settings = {
        "calibration": calibration,
        "smoothness": M,
        "smoothness_share": share,
        "clip": clip,
        "n_steps": steps,
        "n_restarts": restarts,
        "noise_multiplier": z,
    }
    return Solved(
        weights=weights, record=run.record, n_steps=steps * restarts, settings=settings
    )


def compute_clips(smoothness: FloatArray, clip: float) -> FloatArray:
    """Return the clip C_j = C √(M_j / Σ M) of each coordinate."""
    return np.asarray(clip * np.sqrt(smoothness / smoothness.sum()))


def choose_cd_steps(
    problem: Problem,
    run: Run,
    sampling: samplings.Sampling,
    M: FloatArray,
    calibration: Literal["exact", "paper"] = "exact",
) -> int:
    """Return the number of steps that minimises the bound on the error, at most 50,000.

    The bound is Theorem B of docs/guide/theory.md, with the noise of the calibration.
    """
    if run.mu == math.inf:
        return NOISELESS_PASSES * problem.layout.n_features
    budget = Budget(
        n_rows=problem.n_rows,
        epsilon=run.record.epsilon,
        delta=run.record.delta,
        neighbours=problem.neighbours,
        calibration=calibration,
    )
    rate = rule.choose_rate(sampling, M, problem.layout, problem.loss, Prior(), budget)
    return min(rate.n_steps, MOST_STEPS)


def _make_derivative_query(
    problem: Problem, M: FloatArray, clip: float | None, engine: EngineOf
) -> Callable[[IntArray, FloatArray], queries.BoundedSum]:
    """Return the query for one coordinate's derivative, with slopes clipped to C_j."""
    table = engine(problem.records)
    bounds = np.full(len(M), problem.slope_bound)
    if clip is not None:
        bounds = np.minimum(bounds, compute_clips(M, clip))

    def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        slopes = problem.slopes(float(bounds[at].max()))
        shape = np.ones(len(at))
        return queries.gradient(table, slopes, weights, at, problem.neighbours, shape)

    return query


def _choose_floor(problem: Problem, run: Run) -> float:
    """Return the default floor (√d/(nμ))^½, at most 1.

    With a lower floor, more would be lost to noise than gained.
    """
    d = problem.layout.n_features
    return min(1.0, math.sqrt(math.sqrt(d) / (problem.n_rows * run.mu)) + 1e-6)


def _choose_smoothness(
    problem: Problem, run: Run, smoothness: Any, floor: float
) -> FloatArray:
    d, beta = problem.layout.n_features, problem.curvature
    if isinstance(smoothness, str):
        check(
            smoothness in ("private", "public"),
            f"smoothness must be 'private', 'public' or an array, got {smoothness!r}.",
        )
        if smoothness == "public" or run.mu == math.inf:
            return np.full(d, beta)
        return beta * np.clip(release_squares(problem, run), floor, 1.0)
    given = np.asarray(smoothness, dtype=np.float64)
    check(
        given.shape == (d,) and bool(np.all((given > 0) & (given < math.inf))),
        f"smoothness must have one positive number for each of {d} coordinates.",
    )
    return given


@dataclass(frozen=True)
class Moment:
    """A pseudo-loss with which a gradient query returns the sum of x_j or of x_j².

    If `square` is true, the derivative in w_j at the unit vector w = e_j is x_j².
    Otherwise the derivative is x_j, at any weights.
    """

    square: bool
    slope_bound = 1.0

    def slope(self, margin: FloatArray, target: Any) -> FloatArray:
        """Return the margin if `square` is true, and 1 otherwise.

        At the weights w = e_j, the margin is x_j.
        """
        return margin if self.square else np.ones_like(margin)


def release_squares(problem: Problem, run: Run) -> FloatArray:
    """Release the mean of x_j² over records for each coordinate.

    For categories x_j² = x_j, and for the hat functions of curves x_j² ≤ x_j. So the
    x_j of all categories and hat functions are released together, as one vector of
    sums. Each other coordinate is released separately. All releases have the same
    noise. The result is 1 for coordinates that are not released. These are the
    intercept, whose mean is known, and wide joint columns, which are not worth the
    noise.
    """
    layout, table = problem.layout, ReferenceEngine(problem.records)
    most, d = problem.records.max_weight, problem.layout.n_features

    def ask(at: IntArray, moment: Moment, weights: FloatArray) -> queries.BoundedSum:
        slopes, shape = queries.Slopes(moment, most), np.ones(len(at))
        relation = problem.neighbours
        total = queries.gradient(table, slopes, weights, at, relation, shape)
        query = f"squares of {count_in_words(len(at), 'coordinate')}"
        return replace(total, kind=Kind.SQUARES, query=query)

    asked: list[tuple[IntArray, queries.BoundedSum]] = []
    codes = [g.coordinates for g in layout.groups if g.kind in ("code", "hats")]
    if codes:
        at = np.concatenate(codes)
        asked.append((at, ask(at, Moment(square=False), np.zeros((d, 1)))))
    for group in layout.groups:
        if group.kind == "dense" and group.width <= MOST_JOINT:
            for j in group.coordinates.tolist():
                at, unit = np.array([j]), np.zeros((d, 1))
                unit[j] = 1.0
                asked.append((at, ask(at, Moment(square=True), unit)))
    found = np.ones(d)
    reach = math.sqrt(sum(total.sensitivity**2 for _, total in asked))
    for at, total in asked:
        z = reach / total.sensitivity / run.mu * (1 + 1e-12)
        released = release(total, z, run.noise, run.record)
        found[at] = released.values[:, 0] / problem.n_rows
    return found
