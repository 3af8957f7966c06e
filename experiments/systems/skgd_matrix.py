"""Our default: full steps in the metric of a released Gram matrix."""

from experiments.paths import ENGINE, Callback, followed
from skdp.descent.plan import run
from skdp.descent.rule import make_plan
from skdp.schema import FloatArray
from skdp.solvers import Problem

NAME = "skgd_matrix"
LABEL = "ours (matrix)"
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
    plan = make_plan(
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=delta,
        neighbours=problem.neighbours,
        alpha=problem.penalty.l2,
    )
    # The Gram matrix and the target's histogram are a pass each.
    after = followed(callback, lambda step: 1.0, plan.average, before=2.0)
    options = {"engine": ENGINE, "random_state": seed, "callback": after}
    return run(plan, problem.records, **options).weights
