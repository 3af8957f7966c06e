"""DP-SkGD with one column per step, in the paper's diagonal geometry."""

from experiments.paths import ENGINE, Callback, columns_share, followed
from skdp.descent.plan import Plan, run
from skdp.descent.rule import preset
from skdp.schema import FloatArray
from skdp.solvers import Problem

NAME = "skgd_columns"
LABEL = "DP-SkGD, columns"
LOSSES = ("logistic", "squared")


def plan(problem: Problem, *, epsilon: float, delta: float) -> Plan:
    """Plan with public defaults."""
    return preset(
        "dp_skgd",
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=delta,
        neighbours=problem.neighbours,
        penalty=problem.penalty,
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
