"""Objective perturbation, tight: noise in the objective. It has no path."""

from experiments.paths import ENGINE, Callback
from skdp.schema import FloatArray
from skdp.solvers import Problem, objective_perturbation

NAME = "objective_perturbation"
LABEL = "objective perturbation"
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
    return objective_perturbation(problem, engine=ENGINE, **budget).weights
