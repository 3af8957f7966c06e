"""DP-CD as published: uniform coordinates, M released, slopes clipped to C√(M_j/ΣM)."""

from functools import partial

from experiments.paths import ENGINE, Callback, columns_share, followed
from skdp.descent import algorithm1
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_cd

NAME = "dp_cd"
LABEL = "DP-CD, published"
LOSSES = ("logistic", "squared")
#: At larger budgets, tens of thousands of steps take long.
EPSILONS = (0.03, 0.1, 0.3, 1.0)


def fit_clipped(
    clip: float | None,
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with C = clip, or with the public default for None."""
    # The mean squares of all columns are one pass.
    share = columns_share(problem.layout)
    after = followed(callback, share, algorithm1.mean, before=1.0)
    return dp_cd(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
        clip=clip,
    ).weights


fit = partial(fit_clipped, None)
