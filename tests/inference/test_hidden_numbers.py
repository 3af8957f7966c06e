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


@pytest.mark.filterwarnings(
    "ignore::skdp.estimators.fit_warnings.DoubtfulSchemaWarning"
)
def test_after_a_look_a_rare_value_hides_little_of_the_others():
    """One row in a thousand has another value, in a column that noise hides."""
    rng = np.random.default_rng(1)
    n = 20_000
    table = pd.DataFrame({"age": rng.uniform(20, 70, n), "rare": rng.random(n) < 0.001})
    table = table.astype(float)
    y = 0.04 * table["age"] + table["rare"] + rng.normal(0, 2, n)
    schema = Schema({"age": Numeric(20, 70), "rare": Numeric(0, 1)}, Numeric(-20, 80))
    stds = {}
    for look in (True, False):
        model = LinearRegression(schema=schema, look=look, delta=1e-6, random_state=3)
        stds[look], rare = model.fit(table, y).coef_std_
        assert np.isinf(rare)
    assert stds[True] < 0.005
    assert stds[False] > 0.05


def draw_uneven(n, rng):
    """Rows whose residuals are skewed, and the more so the older the row."""
    age = rng.uniform(20, 80, n)
    residual = 0.04 * age * (rng.exponential(size=n) - 1.0)
    return pd.DataFrame({"age": age}), 0.03 * age + residual


def test_what_caps_cut_from_skewed_residuals_is_part_of_the_interval():
    """Caps cut the long residuals of old rows, so their slopes have another mean."""
    schema = Schema({"age": Numeric(0, 120)}, target=Numeric(-20, 80))
    away, stds = [], []
    for seed in range(12):
        X, y = draw_uneven(20_000, np.random.default_rng(seed))
        model = LinearRegression(schema=schema, epsilon=4.0, random_state=seed)
        model.fit(X, y)
        away.append(model.coef_[0] - 0.03)
        stds.append(model.coef_std_[0])
    assert np.mean(away) < -0.001  # caps do bias the effect
    assert np.mean(np.abs(away) < 1.96 * np.array(stds)) > 0.9


def test_numbers_that_are_seen_widen_nothing():
    _, std, other = fit(0, 20_000)
    assert np.isfinite(other)
    assert std < TRUTH["age"] / 4
