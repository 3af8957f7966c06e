"""Output perturbation: noise on the minimiser. It has no path."""

from experiments.paths import ENGINE, Callback
from skdp.schema import FloatArray
from skdp.solvers import Problem, output_perturbation

NAME = "output_perturbation"
LABEL = "output perturbation"
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
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    return output_perturbation(problem, engine=ENGINE, **budget).weights
