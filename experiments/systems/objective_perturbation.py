"""Objective perturbation, tight: noise in the objective. It has no path."""

from experiments.paths import ENGINE, Callback
from skdp.schema import FloatArray
from skdp.solvers import Problem, objective_perturbation

NAME = "objective_perturbation"
LABEL = "objective perturbation"
LOSSES = ("logistic", "squared")
#: Below, no noise is found for the default ridge of squared losses.
EPSILONS = (0.1, 0.3, 1.0, 3.0)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    budget = {"epsilon": epsilon, "delta": delta, "seed": seed}
    return objective_perturbation(problem, engine=ENGINE, **budget).weights
