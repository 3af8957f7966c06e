"""DP-FTRL: full gradients whose noise is correlated from step to step.

A banded matrix mechanism (Choquette-Choo et al. 2023) on full batches. Let C be the
lower triangular matrix with the first coefficients of the square root of the matrix of
prefix sums in its bands. The gradients G_t are released as (CG)_t with independent
noise, and C is inverted afterwards. A record is in every batch, so it changes all of CG
by at most L‖C1‖ (the entries of C are not negative). Steps and their number are those
of full DP-SkGD, whose noise is independent.
"""

import numpy as np

from experiments.paths import ENGINE, Callback
from experiments.systems import skgd_full
from skdp.descent.geometry import clip_to_box
from skdp.privacy import accountant, queries
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.solvers.problem import open_run

NAME = "dp_ftrl"
LABEL = "DP-FTRL, banded"
LOSSES = ("logistic", "squared")
#: Full passes take long, so it is run on small tables, at two budgets.
EPSILONS, TABLES = (0.1, 1.0), ("bike", "california", "hospital")
#: The bands of C: the first coefficients of 1/√(1 - x).
BANDS = (1.0, 0.5, 0.375, 0.3125)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    plan = skgd_full.plan(problem, epsilon=epsilon, delta=delta)
    run = open_run(problem, epsilon=epsilon, delta=delta, random_state=seed)
    engine, n_steps = ENGINE(problem.records), plan.n_steps
    step = 1.0 / plan.geometry.smoothness[:, None]
    # A record's largest part in each release, in units of its bound on one gradient.
    parts = np.cumsum(BANDS)[np.minimum(np.arange(n_steps), len(BANDS) - 1)]
    noise = accountant.noise_multiplier(run.mu, 1) * np.linalg.norm(parts)
    ones = np.ones(len(step))
    weights, mean = problem.start, np.zeros_like(problem.start)
    exact: list[FloatArray] = []
    found: list[FloatArray] = []
    for k in range(n_steps):
        total = queries.gradient(
            engine, problem.slopes(), weights, problem.all, problem.neighbours, ones
        )
        exact.insert(0, total.value.astype(np.float64) * total.unit)
        bands = zip(BANDS, exact, strict=False)
        mixed = sum(band * past for band, past in bands)
        reach = parts[k] * total.sensitivity + 2.0**-30 * len(step) ** 0.5
        asked = queries.state_sensitivity(mixed, reach, Kind.STATED, "mixed gradients")
        released = release(asked, noise / parts[k], run.noise, run.record)
        past = sum(band * old for band, old in zip(BANDS[1:], found, strict=False))
        found.insert(0, released.values - past)
        moved = weights - step * found[0] / problem.n_rows
        metric = plan.geometry.smoothness
        weights = clip_to_box(problem.penalty.prox(moved, metric, problem.all))
        del exact[len(BANDS) :], found[len(BANDS) :]
        mean = mean + (weights - mean) / (k + 1)
        if callback is not None:
            callback(k + 1.0, mean)
    return mean
