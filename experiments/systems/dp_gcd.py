"""DP-GCD: the coordinate of the largest noisy derivative, out of a full pass."""

from experiments.paths import ENGINE, Callback, followed
from skdp.descent import algorithm1
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_gcd

NAME = "dp_gcd"
LABEL = "DP-GCD"
LOSSES = ("logistic", "squared")


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    after = followed(callback, lambda step: 1.0, algorithm1.last)
    return dp_gcd(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
    ).weights
