"""DP-CD (Mangold, Bellet, Salmon, Tommasi 2022): one coordinate at a time.

A step picks a coordinate uniformly, releases its partial derivative and moves by 1/M_j
of it, through the penalty's proximal map; T inner loops of K steps each end in their
average. It is Algorithm 1 with sets of one, so accounting is exact.

Of its own are step sizes M_j and clips C_j = C √(M_j / Σ M): coordinates that are
seldom other than zero (rare categories) move further and are clipped harder. M is
public (β times the largest x_j²) or found privately: the mean of x_j² for a share of
the budget, raised to a floor below which it would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from skdp.descent import averages, samplings
from skdp.descent.algorithm1 import descend
from skdp.descent.geometry import make_diagonal_update
from skdp.engines.reference import ReferenceEngine
from skdp.planning import presets, theory
from skdp.planning.theorem1 import paper_noise_multiplier
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, check
from skdp.solvers.problem import Callback, EngineOf, Problem, Run, Solved, opened, whole

#: Share of μ² that private estimates of M get.
SMOOTHNESS_SHARE = 0.1
#: Passes over the coordinates without noise, and most steps with it by default.
NOISELESS_PASSES, MOST_STEPS = 400, 50_000
#: Joint columns of more coordinates than this keep their public smoothness.
MOST_JOINT = 8


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
    calibration: Literal["tight", "printed"] = "tight",
    smoothness: FloatArray | Literal["private", "public"] = "private",
    smoothness_share: float = SMOOTHNESS_SHARE,
    floor: float | None = None,
    clip: float | None = None,
    n_steps: int | None = None,
    n_restarts: int = 1,
) -> Solved:
    """Fit by DP-CD.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    calibration : {"tight", "printed"}
        Exact accounting, or the noise of their Theorem 3.1, σ_j² = 12 L_j² T K log(1/δ)
        /(nε)².
    smoothness : {"private", "public"} or float64 (d,)
        Where M comes from; an array is taken as public.
    smoothness_share : float
        Part of μ² that private estimates get.
    floor : float, optional
        Least mean of x_j² that private estimates may give; (√d/(nμ))^½ by default.
    clip : float, optional
        C; a record's slope is clipped to C_j = C √(M_j / Σ M). By default (with noise)
        √d times the loss's own bound, so that the mean M_j leaves slopes as they are.
    n_steps, n_restarts : int, optional
        K and T; K* of the ESO bound, at most 50,000, and 1 by default.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, as the problem defines them, the
    weights and all that the callback sees cost what the record says: at most d releases
    for M and K·T steps, each Gaussian (`descent.algorithm1.descend`).
    """
    check(
        calibration in ("tight", "printed"),
        f"calibration must be 'tight' or 'printed'. Got {calibration!r}.",
    )
    check(
        0 < smoothness_share < 1,
        f"smoothness_share must be in (0, 1). Got {smoothness_share}.",
    )
    check(clip is None or clip > 0, f"clip must be positive. Got {clip}.")
    run = opened(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
    )
    private = isinstance(smoothness, str) and smoothness == "private"
    share = smoothness_share if private and run.mu < math.inf else 0.0
    M = _smoothness(
        problem, run.share(share or 1.0), smoothness, floor or _floor(problem, run)
    )
    left = run.share(1.0 - share)
    sampling = samplings.SingleCoordinate.uniform(problem.layout.n_features)
    steps = whole(n_steps or default_steps(problem, left, sampling, M), "n_steps")
    restarts = whole(n_restarts, "n_restarts")
    if clip is None and run.mu < math.inf:
        clip = problem.slope_bound * math.sqrt(problem.layout.n_features)
    z = accountant.noise_multiplier(left.mu, steps * restarts)
    if calibration == "printed" and z:
        wide = paper_noise_multiplier(
            run.record.epsilon, run.record.delta, steps * restarts
        )
        z = max(z, wide / math.sqrt(1.0 - share))
    weights = descend(
        query=_query(problem, M, clip, engine),
        update=make_diagonal_update(1.0 / M, problem.penalty, problem.n_rows),
        sets=sampling.sets,
        average=averages.mean if z else averages.last,
        start=problem.start,
        n_steps=steps,
        n_restarts=restarts,
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


def clips(smoothness: FloatArray, clip: float) -> FloatArray:
    """C_j = C √(M_j / Σ M)."""
    return np.asarray(clip * np.sqrt(smoothness / smoothness.sum()))


def default_steps(
    problem: Problem, run: Run, sampling: samplings.Sampling, M: FloatArray
) -> int:
    """K* of the ESO bound for one coordinate at a time."""
    if run.mu == math.inf:
        return NOISELESS_PASSES * problem.layout.n_features
    budget = theory.Budget(
        n_rows=problem.n_rows,
        epsilon=run.record.epsilon,
        delta=run.record.delta,
        neighbours=problem.neighbours,
    )
    rate = presets.choose_rate(
        sampling, M, problem.layout, problem.loss, theory.Prior(), budget
    )
    return min(rate.n_steps, MOST_STEPS)


def _query(
    problem: Problem, M: FloatArray, clip: float | None, engine: EngineOf
) -> Callable[[IntArray, FloatArray], queries.BoundedSum]:
    """The exact partial derivative of one coordinate, slopes clipped to C_j."""
    table = engine(problem.records)
    bounds = np.full(len(M), problem.slope_bound)
    if clip is not None:
        bounds = np.minimum(bounds, clips(M, clip))

    def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        slopes = problem.slopes(float(bounds[at].max()))
        shape = np.ones(len(at))
        return queries.gradient(table, slopes, weights, at, problem.neighbours, shape)

    return query


def _floor(problem: Problem, run: Run) -> float:
    """(√d/(nμ))^½, at most 1: where noise in the weights outgrows what they gain."""
    d = problem.layout.n_features
    return min(1.0, math.sqrt(math.sqrt(d) / (problem.n_rows * run.mu)) + 1e-6)


def _smoothness(
    problem: Problem, run: Run, smoothness: Any, floor: float
) -> FloatArray:
    d, beta = problem.layout.n_features, problem.curvature
    if isinstance(smoothness, str):
        check(
            smoothness in ("private", "public"),
            f"smoothness must be 'private', 'public' or numbers. Got {smoothness!r}.",
        )
        if smoothness == "public" or run.mu == math.inf:
            return np.full(d, beta)
        return beta * np.clip(squares(problem, run), floor, 1.0)
    given = np.asarray(smoothness, dtype=np.float64)
    check(
        given.shape == (d,) and bool(np.all((given > 0) & (given < math.inf))),
        f"smoothness must be {d} positive numbers, one a coordinate.",
    )
    return given


@dataclass(frozen=True)
class Moment:
    """Slopes that sum up x_j (`square` false, any weights) or x_j² (weights e_j)."""

    square: bool
    slope_bound = 1.0

    def slope(self, margin: FloatArray, target: Any) -> FloatArray:
        """The margin x_j, or one."""
        return margin if self.square else np.ones_like(margin)


def squares(problem: Problem, run: Run) -> FloatArray:
    """Release the mean of x_j² over records, 1 where it is not asked for.

    A category's x_j is its own square, so all of them are one sum; other coordinates
    are asked for one by one, all with the same noise. The intercept is known, and wide
    joint columns are not worth it.
    """
    layout, table = problem.layout, ReferenceEngine(problem.records)
    most, d = problem.records.max_weight, problem.layout.n_features

    def ask(at: IntArray, moment: Moment, weights: FloatArray) -> queries.BoundedSum:
        slopes, shape = queries.Slopes(moment, most), np.ones(len(at))
        return queries.gradient(table, slopes, weights, at, problem.neighbours, shape)

    asked: list[tuple[IntArray, queries.BoundedSum]] = []
    codes = [g.coordinates for g in layout.groups if g.kind == "code"]
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
