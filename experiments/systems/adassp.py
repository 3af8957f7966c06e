"""AdaSSP: noise on XᵀX and Xᵀy, for least squares."""

from experiments.paths import ENGINE, Callback
from skdp.schema import FloatArray
from skdp.solvers import Problem, adassp

NAME = "adassp"
LABEL = "AdaSSP"
LOSSES = ("squared",)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    weights = adassp(problem, engine=ENGINE, **budget).weights
    if callback is not None:
        callback(1.0, weights)
    return weights
