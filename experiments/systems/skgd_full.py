"""DP-SkGD with the full gradient, in the paper's diagonal geometry."""

from experiments.paths import ENGINE, Callback, columns_share, followed
from skdp.planning.plan import run
from skdp.planning.presets import preset
from skdp.schema import FloatArray
from skdp.solvers import Problem

NAME = "skgd_full"
LABEL = "DP-SkGD, full"
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
    plan = preset(
        "dp_gd",
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=delta,
        neighbours=problem.neighbours,
        penalty=problem.penalty,
    )
    after = followed(callback, columns_share(problem.layout), plan.average)
    options = {"engine": ENGINE, "random_state": seed, "callback": after}
    return run(plan, problem.records, **options).weights
