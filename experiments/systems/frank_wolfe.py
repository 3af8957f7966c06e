"""DP-Frank–Wolfe in an ℓ₁ ball (Talwar, Thakurta, Zhang 2015), for wide tables.

A step draws a vertex of the ball by the exponential mechanism, with the exact
accounting of our DP-GCD, and moves towards it. Nothing else is released. The radius is
one per column, as in the prior of the other systems.
"""

from fractions import Fraction
from functools import partial

import numpy as np

from experiments.paths import ENGINE, Callback
from skdp.privacy import accountant, profiles, queries
from skdp.privacy.budget import Event
from skdp.privacy.queries import Kind
from skdp.privacy.selection import choose
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.solvers.dp_gcd import SCORE_UNITS, choose_gcd_steps
from skdp.solvers.problem import open_run

NAME = "frank_wolfe"
LABEL = "DP-Frank–Wolfe"
LOSSES = ("logistic", "squared")


def fit_in_ball(
    radius: float | None,
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit in an ℓ₁ ball, by default the one with the public radius."""
    run = open_run(problem, epsilon=epsilon, delta=delta, random_state=seed)
    n_steps, layout = choose_gcd_steps(problem, run.mu), problem.layout
    width = profiles.bounded_range_width(run.mu / n_steps**0.5 * (1 - 1e-12))
    z = accountant.noise_multiplier(profiles.bounded_range_mu(width), 1)
    rate = Fraction(int(width * 2.0**53), 2**54 * (SCORE_UNITS + 2))
    # One record changes the sum of one derivative by at most its slope.
    reach = queries.count_changes(problem.neighbours) * problem.slope_bound * (1 + 1e-9)
    radius = float(len(layout.groups)) if radius is None else radius
    engine = ENGINE(problem.records)
    ones, weights = np.ones(layout.n_features), problem.start
    ridge = problem.n_rows * problem.penalty.quadratic(problem.all)
    query = f"choice among {2 * layout.n_features} vertices"
    for k in range(n_steps):
        total = queries.gradient(
            engine, problem.slopes(), weights, problem.all, problem.neighbours, ones
        )
        exact = (total.value.astype(np.float64) * total.unit)[:, 0]
        slopes = np.concatenate([-exact, exact]) - np.concatenate(
            [ridge * weights[:, 0], -ridge * weights[:, 0]]
        )
        run.record.charge(Event(Kind.CHOICE, query, reach, z, 1))
        scores = [int(s) for s in np.rint(slopes / reach * SCORE_UNITS).tolist()]
        sign, j = divmod(choose(scores, rate, run.noise), layout.n_features)
        vertex = np.zeros_like(weights)
        vertex[j] = -radius if sign else radius
        weights = weights + 2.0 / (k + 2.0) * (vertex - weights)
        if callback is not None:
            callback(k + 1.0, weights)
    return weights


fit = partial(fit_in_ball, None)
