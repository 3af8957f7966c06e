"""A made-up table of ten coordinates, small enough for hundreds of runs of the program.

Nine correlated numbers in [0, 1] and an intercept, two classes, logistic loss, no
ridge. Smoothness is that of public bounds, so that the theory holds as it does for
users: K* and bound are those of `rule.choose_rate`, with the true w*.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.paths import ENGINE
from experiments.problems import Objective, make_problem
from experiments.quadratics import Array
from skdp import Categorical, Numeric, Plan, Schema, run
from skdp.descent import smoothness
from skdp.descent.algorithm1 import AVERAGES, Step
from skdp.descent.bounds import Budget, Prior
from skdp.descent.geometry import Diagonal
from skdp.descent.rule import choose_rate
from skdp.descent.samplings import Sampling

N_ROWS, N_COLUMNS = 4000, 9


@cache
def objective() -> Objective:
    """The table's mean loss, the same for every seed."""
    rng = np.random.default_rng(0)
    common = rng.random((N_ROWS, 1))
    X = 0.4 * common + 0.6 * rng.random((N_ROWS, N_COLUMNS))
    margin = 3.0 * (X - X.mean(axis=0)) @ np.linspace(-1.0, 1.0, N_COLUMNS)
    y = (rng.random(N_ROWS) < 1 / (1 + np.exp(-margin))).astype(int)
    columns = {str(j): Numeric(0.0, 1.0) for j in range(N_COLUMNS)}
    table = SimpleNamespace(
        X={name: X[:, int(name)] for name in columns},
        y=y,
        schema=Schema(columns, target=Categorical([0, 1])),
        classification=True,
    )
    return Objective(make_problem(table, "zero-out", alpha=0.0))


def planned(
    sampling: Sampling,
    *,
    epsilon: float,
    delta: float,
    calibration: Any = "exact",
    factor: float = 1.0,
) -> Plan:
    """Plan K = factor·K* steps of a sampling."""
    problem = objective().problem
    v = smoothness.from_bounds(sampling, problem.layout.blocks, problem.loss.curvature)
    budget = Budget(
        n_rows=N_ROWS,
        epsilon=epsilon,
        delta=delta,
        neighbours="zero-out",
        calibration=calibration,
    )
    prior = Prior(
        displacement=tuple(objective().minimiser[:, 0]),
        excess=objective().excess(problem.start),
    )
    rate = choose_rate(sampling, v, problem.layout, problem.loss, prior, budget)
    return Plan(
        layout=problem.layout,
        loss=problem.loss,
        n_rows=N_ROWS,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        geometry=Diagonal(smoothness=v),
        n_steps=max(1, round(factor * rate.n_steps)),
        penalty=problem.penalty,
        neighbours="zero-out",
        calibration=calibration,
        rate=rate,
    )


def excesses(plan: Plan, seed: int) -> dict[str, float]:
    """Excess of every average of one run of the program."""
    iterates: list[Array] = []

    def keep(step: Step) -> None:
        iterates.append(step.weights[:, 0])

    records = objective().problem.records
    run(plan, records, engine=ENGINE, random_state=seed, callback=keep)
    path = np.array(iterates)
    return {
        name: objective().excess((average(len(path)) @ path)[:, None])
        for name, average in AVERAGES.items()
    }
