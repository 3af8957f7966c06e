"""DP-SkGD with the full gradient, and elliptical noise instead of the paper's."""

from experiments.paths import ENGINE, Callback, columns_share, followed
from skdp.descent.plan import Plan, run
from skdp.descent.rule import preset
from skdp.schema import FloatArray
from skdp.solvers import Problem

NAME = "skgd_full_elliptical"
LABEL = "DP-SkGD, full, elliptical"
LOSSES = ("logistic", "squared")


def plan(problem: Problem, *, epsilon: float, delta: float) -> Plan:
    """Plan with public defaults."""
    return preset(
        "dp_gd",
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=delta,
        neighbours=problem.neighbours,
        penalty=problem.penalty,
        elliptical=True,
    )


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    made = plan(problem, epsilon=epsilon, delta=delta)
    after = followed(callback, columns_share(problem.layout), made.average)
    options = {"engine": ENGINE, "random_state": seed, "callback": after}
    return run(made, problem.records, **options).weights
