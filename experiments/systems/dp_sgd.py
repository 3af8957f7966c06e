"""DP-SGD as practised: Poisson batches, clipping, constant steps."""

from experiments.paths import ENGINE, Callback, followed
from skdp.descent import algorithm1
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_sgd
from skdp.solvers.dp_sgd import choose_batch_rate, choose_sgd_steps
from skdp.solvers.poisson_batches import DELTA_SHARE
from skdp.solvers.problem import open_run

NAME = "dp_sgd"
LABEL = "DP-SGD, practised"
LOSSES = ("logistic", "squared")
#: At larger budgets, many small batches take long.
EPSILONS = (0.03, 0.1, 0.3, 1.0)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with public defaults."""
    facts = open_run(problem, epsilon=epsilon, delta=delta, delta_share=DELTA_SHARE)
    steps = choose_sgd_steps(problem, facts)
    rate = choose_batch_rate(problem.n_rows, facts.mu, steps)
    after = followed(callback, lambda step: rate, algorithm1.most)
    return dp_sgd(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
        n_steps=steps,
        rate=rate,
    ).weights
