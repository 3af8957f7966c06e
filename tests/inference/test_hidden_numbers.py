"""Intervals allow for effects that flow from a neighbour that noise hides."""

import numpy as np
import pandas as pd
import pytest

from skdp import LinearRegression, Numeric, Schema

TRUTH = {"age": 0.04, "cost": 0.0005}


def fit(seed, most):
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 20_000)
    table = pd.DataFrame({"age": 45 + 15 * z[:, 0], "cost": 1000 * np.exp(z[:, 1])})
    y = table @ pd.Series(TRUTH) + rng.normal(0, 2, len(table))
    schema = Schema(
        {"age": Numeric(0, 120), "cost": Numeric(0, most)}, target=Numeric(-20, 80)
    )
    model = LinearRegression(schema=schema, look=False, delta=1e-6, random_state=seed)
    model.fit(table, y)
    return model.coef_[0], model.coef_std_[0], model.coef_std_[1]


@pytest.mark.filterwarnings(
    "ignore::skdp.estimators.fit_warnings.DoubtfulSchemaWarning"
)
def test_a_hidden_number_widens_the_intervals_of_its_neighbours():
    found = [fit(seed, 1_000_000) for seed in range(4)]
    assert all(np.isinf(other) for *_, other in found)
    away = [abs(coef - TRUTH["age"]) for coef, *_ in found]
    assert min(away) > 0.002  # the effect of the cost flows into that of the age
    assert all(a < 1.96 * std for a, (_, std, _) in zip(away, found, strict=True))


def test_numbers_that_are_seen_widen_nothing():
    _, std, other = fit(0, 20_000)
    assert np.isfinite(other)
    assert std < TRUTH["age"] / 4
