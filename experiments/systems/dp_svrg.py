"""DP-SVRG, its noise made tight: an epoch returns the mean of its steps."""

import math

from experiments.paths import ENGINE, Callback, running
from skdp.descent import algorithm1
from skdp.descent.algorithm1 import Step
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_svrg
from skdp.solvers.dp_sgd import choose_batch_rate, choose_sgd_steps
from skdp.solvers.dp_svrg import FULL_SHARE
from skdp.solvers.poisson_batches import DELTA_SHARE
from skdp.solvers.problem import open_run

NAME = "dp_svrg"
LABEL = "DP-SVRG"
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
    epochs = math.ceil(math.sqrt(steps))
    inner = math.ceil(steps / epochs)
    mu = facts.share(1.0 - FULL_SHARE).mu
    rate = choose_batch_rate(problem.n_rows, mu, epochs * (inner - 1))
    passes, averaged = 0.0, running(algorithm1.mean)

    def after(step: Step) -> None:
        nonlocal passes, averaged
        if step.index == 0:  # a full gradient, and no correction
            passes, averaged = passes + 1.0, running(algorithm1.mean)
        else:  # a correction takes a batch's gradient at two points
            passes += 2 * rate
        mean = averaged(step.weights)
        if callback is not None:
            callback(passes, mean)

    return dp_svrg(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
        n_epochs=epochs,
        n_inner=inner,
        rate=rate,
    ).weights
