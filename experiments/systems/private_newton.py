"""Private Newton: each step releases a gradient and a Hessian.

Ganesh, Haghifam, Steinke and Thakurta (2023). The eigenvalues of the released Hessian
are raised to the operator norm of its noise, so that a step is not longer than the
noise allows. Half of μ² is for gradients, half for Hessians.
"""

import math

import numpy as np

from experiments.paths import ENGINE, Callback
from experiments.problems import rows_of
from skdp.privacy import accountant, queries
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.solvers.problem import open_run

NAME = "private_newton"
LABEL = "private Newton"
LOSSES = ("logistic",)
#: Newton's method without noise takes about as many steps on these tables.
N_STEPS = 8
#: The largest second derivative of the logistic loss.
STEEPEST = 0.25


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
    z = accountant.noise_multiplier(run.share(0.5).mu, N_STEPS)
    engine, rows, d = (
        ENGINE(problem.records),
        rows_of(problem),
        problem.layout.n_features,
    )
    weights, ones = problem.start, np.ones(d)
    ridge = problem.penalty.quadratic(problem.all)
    upper = np.triu_indices(d)
    scale = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    reach = STEEPEST * problem.row_norm**2 + 2.0**-30 * d
    floor = z * reach * math.sqrt(2.0 * d) / problem.n_rows
    for step in range(N_STEPS):
        relation = problem.neighbours
        total = queries.gradient(
            engine, problem.slopes(), weights, problem.all, relation, ones
        )
        slope = release(total, z, run.noise, run.record).values / problem.n_rows
        chance = 1.0 / (1.0 + np.exp(-(rows @ weights)[:, 0]))
        hessian = (rows.T.multiply(chance * (1.0 - chance)) @ rows).toarray()
        # Entries off the diagonal stand for two, so the norm is that of the matrix.
        asked = queries.state_sensitivity(
            (hessian[upper] * scale)[:, None], reach, Kind.STATED, "Hessian"
        )
        found = release(asked, z, run.noise, run.record).values[:, 0] / scale
        half = np.zeros((d, d))
        half[upper] = found / problem.n_rows
        curve = half + np.triu(half, 1).T + np.diag(ridge)
        values, vectors = np.linalg.eigh(curve)
        slope = slope + ridge[:, None] * weights
        weights = weights - vectors @ (
            (vectors.T @ slope) / np.maximum(values, floor)[:, None]
        )
        if callback is not None:
            callback(2.0 * (step + 1), weights)
    return weights
