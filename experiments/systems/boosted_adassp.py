"""Boosted AdaSSP: one noisy XᵀX, and noisy sums of clipped residuals in each round.

Tang, Aydore, Kearns, Rho, Roth, Wang, Wang and Wu (2023). A round adds the ridge
solution for the residuals, which are clipped. Half of μ² is for XᵀX.
"""

import math

import numpy as np

from experiments.paths import ENGINE, Callback
from skdp.descent.geometry import clip_to_box
from skdp.models.losses import Squared
from skdp.privacy import accountant, queries
from skdp.privacy.mechanism import release
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.solvers.adassp import RHO, _fill_gram
from skdp.solvers.problem import open_run

NAME = "boosted_adassp"
LABEL = "AdaSSP, boosted"
LOSSES = ("squared",)
N_ROUNDS, GRAM_SHARE = 30, 0.5


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    run = open_run(problem, epsilon=epsilon, delta=delta, random_state=seed)
    engine, layout, d = ENGINE(problem.records), problem.layout, len(problem.all)
    pattern = queries.GramPattern.of(layout, problem.neighbours)
    z_gram = accountant.noise_multiplier(run.share(GRAM_SHARE).mu, 1)
    z_step = accountant.noise_multiplier(run.share(1 - GRAM_SHARE).mu, N_ROUNDS)
    released = release(queries.gram(engine, pattern), z_gram, run.noise, run.record)
    gram = _fill_gram(layout, pattern, released.values, problem.n_rows)
    bound = math.sqrt(2 * d) + math.sqrt(2 * math.log(1 / RHO))
    bound *= z_gram * pattern.sensitivity
    values, vectors = np.linalg.eigh(gram)
    ridge = max(0.0, bound - max(0.0, float(values[0]) - bound))
    values = np.maximum(values + ridge, 0.01 * bound)
    slopes = queries.Slopes(loss=Squared(1.0), max_weight=problem.records.max_weight)
    weights = problem.start
    for k in range(N_ROUNDS):
        total = queries.gradient(
            engine, slopes, weights, problem.all, problem.neighbours, np.ones(d)
        )
        slope = release(total, z_step, run.noise, run.record).values
        weights = weights - vectors @ ((vectors.T @ slope) / values[:, None])
        weights = clip_to_box(weights)
        if callback is not None:
            callback(k + 2.0, weights)
    return weights
