"""DP-SGD as analysed by Bassily et al.: steps ∝ 1/√t, projected, tight noise."""

from experiments.paths import ENGINE, Callback, followed
from skdp.descent import algorithm1
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_sgd
from skdp.solvers.dp_sgd import ANALYSED_STEPS

NAME = "dp_sgd_analysed"
LABEL = "DP-SGD, analysed"
LOSSES = ("logistic", "squared")
#: At larger budgets, many small batches take long.
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
    rate = ANALYSED_STEPS**-0.5
    after = followed(callback, lambda step: rate, algorithm1.last)
    return dp_sgd(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
        form="analysed",
        rate=rate,
        n_steps=ANALYSED_STEPS,
    ).weights
