"""The utility theorem of docs/guide/method.md, against runs and its recursion."""

import math

import numpy as np
import pytest

from skdp.descent import algorithm1, samplings
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, run
from skdp.models.losses import Logistic, Squared
from skdp.privacy import accountant
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema


@pytest.mark.parametrize("n_steps", [5, 80, 400])
@pytest.mark.parametrize("h", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("pull", [0.0, 0.05])
def test_the_second_bound_holds_for_its_recursion(n_steps, h, pull):
    """Exact bias and variance of Σ k u_k/Σ k in one direction, β = 1."""
    q, weights = (1 - h) / (1 + pull), algorithm1.rising(n_steps)
    powers = q ** np.arange(1.0, n_steps + 1.0)
    bias = 0.5 * (h + pull) * float(weights @ powers) ** 2
    rho = (h + pull) / (1 + pull)
    assert bias <= 2 * (h + pull) / (n_steps**2 * rho**2) ** 2
    variance, carried = 0.0, 0.0
    for k in range(n_steps - 1, -1, -1):
        carried = weights[k] + q * carried
        variance += carried**2 / (1 + pull) ** 2
    noise = 0.5 * (h + pull) * variance * n_steps  # σ² = K · C²/((1-s)(nν)²)
    assert noise <= 2 / (h + pull)
    if n_steps * rho > 50:
        assert noise <= 1.1 * (4 / 3) / (2 * (h + pull))


def table(n_rows, numeric, seed):
    rng = np.random.default_rng(seed)
    columns = {"a": rng.random(n_rows), "b": rng.random(n_rows) ** 3}
    margin = 3 * columns["a"] - 4 * columns["b"]
    if numeric:
        target = 0.3 * margin + 0.1 * rng.normal(size=n_rows)
        column = Numeric(-2, 2)
    else:
        target = Coded((margin > rng.logistic(size=n_rows)).astype(int), [0, 1])
        column = Categorical([0, 1])
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}, target=column)
    return encode([Batch(columns=columns, target=target)], schema), columns


@pytest.mark.parametrize("numeric", [True, False])
def test_the_first_bound_holds_for_runs(numeric):
    """The mean excess of the capped objective over 20 runs, below the bound."""
    n_rows, radius, n_steps, floor = 2000, 1.0, 30, 0.2
    records, columns = table(n_rows, numeric, 4)
    loss = Squared() if numeric else Logistic()
    settings = {
        "layout": records.layout,
        "loss": loss,
        "n_rows": n_rows,
        "delta": 1e-6,
        "sampling": samplings.Full(3),
        "geometry": Matrix(radius=radius, floor=floor, gram_share=0.5),
        "neighbours": "zero-out",
        "average": algorithm1.mean,
    }
    X = np.column_stack([columns["a"], columns["b"], np.ones(n_rows)])
    target = records.chunks[0].target
    # A is nearly exact at half of a large budget; it is A = G + floor, centred.
    centred = X - np.array([0.5, 0.5, 0.0])
    back = np.eye(3)
    back[:2, 2] += 0.5
    metric = back @ (centred.T @ centred / n_rows + floor * np.eye(3)) @ back.T
    caps = radius / np.sqrt(np.einsum("ij,ij->i", X @ np.linalg.inv(metric), X))

    def objective(w):  # the loss whose slopes are clipped, up to a constant
        points = np.linspace(0, 1, 201)[:, None]
        slopes = loss.slope(
            (points * (X @ w)[:, 0]).reshape(-1, 1), np.tile(target, 201)
        )
        slopes = np.clip(slopes.reshape(201, n_rows), -caps, caps)
        return float((slopes.mean(axis=0) * (X @ w)[:, 0]).mean())

    best = run(
        Plan(epsilon=math.inf, n_steps=1000, **settings | {"average": algorithm1.last}),
        records,
    ).weights
    epsilon = 2.0
    plan = Plan(epsilon=epsilon, n_steps=n_steps, **settings)
    fits = [run(plan, records, random_state=s).weights for s in range(20)]
    excess = np.mean([objective(w) for w in fits]) - objective(best)
    mu = accountant.gdp_mu(epsilon, 1e-6)
    beta, distance = loss.curvature, float((best.T @ metric @ best).item())
    noise = n_steps * 3 * radius**2 / (beta * 0.5 * (n_rows * mu) ** 2)
    bound = beta * distance / (2 * n_steps) + noise
    assert -1e-4 < excess <= bound
    assert excess > bound / 300  # the bound says something
