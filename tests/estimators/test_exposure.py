"""Counts over different times: exposures are weights by which counts are divided."""

import math

import numpy as np
import pytest
from sklearn import linear_model, metrics

import skdp

RNG = np.random.default_rng(0)
N = 4000
X = RNG.random((N, 2))
YEARS = RNG.uniform(0.05, 1.0, N)
COUNTS = RNG.poisson(np.exp(0.5 + X @ [1.0, -1.0]) * YEARS)
EXACT = {"epsilon": math.inf, "bounds": (0, 1), "target_bounds": (0, 60), "alpha": 0.0}


def test_an_exposure_is_an_offset():
    """The fit is that of rates with weights, which is that of counts with offsets."""
    model = skdp.PoissonRegressor(**EXACT).fit(X, COUNTS, exposure=YEARS)
    exact = linear_model.PoissonRegressor(alpha=0.0, tol=1e-8)
    exact.fit(X, COUNTS / YEARS, sample_weight=YEARS)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=2e-3)
    assert model.intercept_ == pytest.approx(exact.intercept_, abs=2e-3)
    expected = (model.predict(X) * YEARS).mean()
    assert expected == pytest.approx(COUNTS.mean(), rel=1e-3)
    found = skdp.evaluate(model, X, COUNTS, exposure=YEARS, epsilon=math.inf)
    rates = {"sample_weight": YEARS}
    deviance = metrics.mean_poisson_deviance(COUNTS / YEARS, model.predict(X), **rates)
    assert found["deviance"] == pytest.approx(deviance, rel=1e-3)
    assert found.n_rows == pytest.approx(YEARS.sum(), rel=1e-3)


def test_an_exposure_may_be_a_column_and_odd_ones_count_as_no_row():
    columns = {"a": skdp.Numeric(0, 1), "b": skdp.Numeric(0, 1)}
    schema = skdp.Schema(columns, target=("y", skdp.Numeric(0, 60)))
    options = EXACT | {"bounds": None, "target_bounds": None, "schema": schema}
    table = {"a": X[:, 0], "b": X[:, 1], "y": COUNTS, "years": YEARS}
    model = skdp.PoissonRegressor(**options).fit(table, exposure="years")
    odd = [math.nan, math.inf, -1.0, 0.0, None, "x", "", 10**400, -0.0]
    longer = {
        name: np.array([*cells, *[1.0] * len(odd)], dtype=object)
        for name, cells in table.items()
    }
    longer["years"][N:] = odd
    longer["y"][N:] = 10**300
    again = skdp.PoissonRegressor(**options, n_rows=N).fit(longer, exposure="years")
    model.set_params(n_rows=N).fit(table, exposure="years")
    np.testing.assert_allclose(again.weights_, model.weights_, atol=1e-4)


def test_an_offset_is_the_logarithm_of_an_exposure():
    model = skdp.PoissonRegressor(**EXACT).fit(X, COUNTS, exposure=YEARS)
    again = skdp.PoissonRegressor(**EXACT).fit(X, COUNTS, offset=np.log(YEARS))
    np.testing.assert_allclose(again.weights_, model.weights_, atol=1e-3)
    for given in ({"exposure": YEARS}, {"offset": np.log(YEARS)}):
        scores = skdp.evaluate(model, X, COUNTS, epsilon=math.inf, **given)
        assert scores["deviance"] == pytest.approx(1.89, abs=0.05)
        assert scores["d2"] > 0


def test_odd_offsets_are_clipped_or_count_as_no_row():
    odd = [math.nan, math.inf, -math.inf, 1e300, -1e300, None, "x"]
    offset = np.array([*np.log(YEARS), *odd], dtype=object)
    rows = np.vstack([X, np.ones((len(odd), 2))])
    counts = np.append(COUNTS, np.zeros(len(odd)))
    model = skdp.PoissonRegressor(**EXACT, n_rows=N)
    model.fit(rows, counts, offset=offset)  # none of them raises or overflows
    assert np.isfinite(model.weights_).all()


def test_public_mistakes_are_refused():
    model = skdp.PoissonRegressor(**EXACT)
    with pytest.raises(ValueError, match="either exposure or sample_weight"):
        model.fit(X, COUNTS, sample_weight=YEARS, exposure=YEARS)
    with pytest.raises(ValueError, match=r"Pass target_bounds=\(0, high\) or a schema"):
        skdp.PoissonRegressor(bounds=(0, 1)).fit(X, COUNTS, exposure=YEARS)
    with pytest.raises(ValueError, match="either exposure or offset"):
        model.fit(X, COUNTS, exposure=YEARS, offset=YEARS)
    with pytest.raises(ValueError, match="either offset or sample_weight"):
        model.fit(X, COUNTS, sample_weight=YEARS, offset=YEARS)
    with pytest.raises(ValueError, match="offset must have as many rows"):
        model.fit(X, COUNTS, offset=YEARS[1:])
    with pytest.raises(ValueError, match="exposure must have as many rows"):
        model.fit(X, COUNTS, exposure=YEARS[1:])
    linear = skdp.LinearRegression(**EXACT).fit(X, COUNTS)
    with pytest.raises(ValueError, match="exposure is only for models of counts"):
        skdp.evaluate(linear, X, COUNTS, exposure=YEARS, epsilon=1.0)


def test_a_model_of_rates_remembers_that_it_is_one(tmp_path):
    """Scores of counts without their exposures would be wrong, and would be charged."""
    model = skdp.PoissonRegressor(**EXACT).fit(X, COUNTS, exposure=YEARS)
    model.save(tmp_path / "m")
    for one in (model, skdp.load(tmp_path / "m")):
        with pytest.raises(ValueError, match="fitted with exposures, so it predicts"):
            skdp.evaluate(one, X, COUNTS, epsilon=1.0)
        said = " ".join(str(one.summary()).split())
        assert "mean of the target per unit of exposure" in said
    plain = skdp.PoissonRegressor(**EXACT).fit(X, COUNTS)
    assert "per unit of exposure" not in str(plain.summary())
