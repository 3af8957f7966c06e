"""Without noise, defaults give the estimates of statsmodels, far below their errors."""

import math

import numpy as np
import pandas as pd
import pytest

import skdp

sm = pytest.importorskip("statsmodels.api")

#: Ranges as a person would write them, far wider than what rows fill.
SCHEMA = {
    "share": skdp.Numeric(0, 1),
    "months": skdp.Numeric(0, 128),
    "quarters": skdp.Numeric(0, 4),
    "income": skdp.Numeric(0, 1024),
    "born": skdp.Numeric(0, 1),
}
#: The grid of features allows no more: a cell is one of 2¹⁴ values of its range.
CLOSE = 2e-3


@pytest.fixture(scope="module")
def table():
    """Arrests, as in crime1: most counts are zero, and columns are skewed."""
    rng = np.random.default_rng(3)
    n = 2700
    income = np.floor(rng.exponential(90, n)) * (rng.random(n) < 0.7)
    columns = {
        "share": rng.choice([0, 0.25, 0.5, 1], n, p=[0.5, 0.2, 0.15, 0.15]),
        "months": np.floor(rng.exponential(12, n)) * (rng.random(n) < 0.15),
        "quarters": np.where(income > 0, rng.integers(1, 5, n), rng.integers(0, 2, n)),
        "income": income,
        "born": (rng.random(n) < 0.35).astype(float),
    }
    table = pd.DataFrame(columns)
    table["margin"] = (
        -0.6 - 0.4 * table["share"] + 0.02 * table["months"] - 0.008 * table["income"]
    )
    rate = np.exp(table["margin"]) * rng.gamma(2.0, 0.5, n)
    table["count"] = rng.poisson(rate).clip(0, 16)
    table["class"] = (table["count"] > 0).astype(int)
    table["kind"] = np.where(rng.random(n) < 0.3, 2, table["class"])
    table["number"] = np.round(table["margin"] + rng.normal(size=n), 2)
    return table


KINDS = {
    "linear": (skdp.LinearRegression, "number", skdp.Numeric(-8, 8)),
    "logistic": (skdp.LogisticRegression, "class", skdp.Categorical([0, 1])),
    "classes": (skdp.LogisticRegression, "kind", skdp.Categorical([0, 1, 2])),
    "poisson": (skdp.PoissonRegressor, "count", skdp.Numeric(0, 16)),
}


@pytest.mark.parametrize("name", KINDS)
def test_defaults_without_noise_reach_the_optimum_of_the_likelihood(name, table):
    kind, target, described = KINDS[name]
    schema = skdp.Schema(SCHEMA, target=(target, described))
    model = kind(schema=schema, epsilon=math.inf).fit(table[[*SCHEMA, target]])
    X, y = sm.add_constant(table[[*SCHEMA]]), table[target]
    if name == "linear":  # on the grid of targets, which has 2¹⁴ values
        y = np.rint(y * 2**11) / 2**11
    if name == "classes":
        theirs = sm.MNLogit(y, X).fit(disp=False, tol=1e-12)
        own = (model.coef_[1:] - model.coef_[0]).T
        best = theirs.params.to_numpy()[1:]
        errors = theirs.bse.to_numpy()[1:]
    else:
        families = sm.families
        family = {
            "linear": families.Gaussian,
            "logistic": families.Binomial,
            "poisson": families.Poisson,
        }[name]
        theirs = sm.GLM(y, X, family=family()).fit(tol=1e-12)
        own = model.coef_.ravel()
        best, errors = theirs.params.to_numpy()[1:], theirs.bse.to_numpy()[1:]
    assert np.abs((own - best) / errors).max() < CLOSE
