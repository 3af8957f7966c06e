"""DP-SkGD with one coordinate per step, p_j ∝ M_j, in the paper's diagonal geometry.

From public bounds all M_j are equal, so they are released, for a tenth of μ² and by the
rule of our DP-CD.
"""

import math

import numpy as np

from experiments.paths import ENGINE, Callback, columns_share, followed
from skdp.descent.geometry import Diagonal
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import SingleCoordinate
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.solvers.dp_cd import SMOOTHNESS_SHARE, choose_cd_steps, release_squares
from skdp.solvers.problem import open_run

NAME = "skgd_importance"
LABEL = "DP-SkGD, importance"
LOSSES = ("logistic", "squared")
#: At larger budgets, tens of thousands of steps take long.
EPSILONS = (0.03, 0.1, 0.3, 1.0)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    opening = open_run(problem, epsilon=epsilon, delta=delta, random_state=seed)
    size = math.sqrt(problem.layout.n_features)
    floor = min(1.0, math.sqrt(size / (problem.n_rows * opening.mu)))
    means = release_squares(problem, opening.share(SMOOTHNESS_SHARE))
    smoothness = problem.curvature * np.clip(means, floor, 1.0)
    sampling = SingleCoordinate.importance(smoothness)
    left = opening.share(1.0 - SMOOTHNESS_SHARE)
    plan = Plan(
        layout=problem.layout,
        loss=problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        geometry=Diagonal(smoothness=smoothness),
        n_steps=choose_cd_steps(problem, left, sampling, smoothness),
        penalty=problem.penalty,
        neighbours=problem.neighbours,
    )
    share = columns_share(problem.layout)
    after = followed(callback, share, plan.average, before=1.0)
    spent = {"noise": opening.noise, "record": opening.record}
    return run(plan, problem.records, engine=ENGINE, callback=after, **spent).weights
