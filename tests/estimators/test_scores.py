"""`score` is scikit-learn's score of the same predictions."""

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model, metrics
from sklearn.model_selection import cross_val_score

import skdp

RNG = np.random.default_rng(0)
N = 400
X = RNG.uniform(size=(N, 2))
YEARS = RNG.uniform(0.05, 2.0, N)
COUNTS = RNG.poisson(np.exp(1.0 + 2 * X[:, 0]) * YEARS)
WEIGHT = RNG.uniform(size=N)
OPTIONS = {"epsilon": 20.0, "bounds": (0, 1), "engine": "reference", "n_steps": 10}
COUNTED = OPTIONS | {"target_bounds": (0, 60), "random_state": 0}


def d2(y, predicted, **weights):
    return metrics.d2_tweedie_score(y, predicted, power=1, **weights)


@pytest.mark.parametrize(
    "model",
    [
        skdp.PoissonRegressor(**COUNTED),
        skdp.AdditiveRegressor(loss="poisson", **COUNTED),
        skdp.LinearRegression(**COUNTED),
        skdp.HuberRegressor(**COUNTED),
        skdp.AdditiveRegressor(**COUNTED),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.link}",
)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weighted"])
def test_numbers(model, weight):
    model.fit(X, COUNTS)
    expected = d2 if model.link == "log" else metrics.r2_score
    found = model.score(X.copy(), COUNTS, weight)
    predicted = model.predict(X)
    assert found == expected(COUNTS, predicted, sample_weight=weight)
    assert abs(found) > 0.01
    assert d2(COUNTS, predicted.clip(1e-3)) != metrics.r2_score(COUNTS, predicted)


def test_a_model_of_counts_scores_as_that_of_scikit_learn():
    model = skdp.PoissonRegressor(**COUNTED).fit(X, COUNTS)
    other = linear_model.PoissonRegressor().fit(X, COUNTS)
    other.coef_, other.intercept_ = model.coef_, model.intercept_
    for weight in (None, WEIGHT):
        found = model.score(X.copy(), COUNTS, weight)
        assert found == pytest.approx(other.score(X, COUNTS, weight), abs=1e-9)


def test_exposures_and_offsets():
    model = skdp.PoissonRegressor(**COUNTED).fit(X, COUNTS, exposure=YEARS)
    expected = d2(COUNTS / YEARS, model.predict(X), sample_weight=YEARS)
    table = X.copy()
    found = [
        model.score(table, COUNTS / YEARS, YEARS),
        model.score(table, COUNTS, exposure=YEARS),
        model.score(table, COUNTS, offset=np.log(YEARS)),
    ]
    assert found == pytest.approx([expected] * 3)
    odd = [np.nan, np.inf, 0.0, -1.0]
    longer, counts = np.append(X, X[:4], axis=0), np.append(COUNTS, [5] * 4)
    more = model.score(longer, counts, exposure=np.append(YEARS, odd))
    assert more == pytest.approx(expected)
    with pytest.raises(ValueError, match="Pass the exposure or the offset"):
        model.score(table, COUNTS)
    with pytest.raises(ValueError, match="exposure must have as many rows"):
        model.score(table, COUNTS, exposure=YEARS[:-1])
    with pytest.raises(ValueError, match="not both"):
        model.score(table, COUNTS, YEARS, exposure=YEARS)


@pytest.mark.parametrize("kind", [skdp.LogisticRegression, skdp.LinearSVC])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weighted"])
def test_classes(kind, weight):
    y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    model = kind(classes=["yes", "no"], random_state=0, **OPTIONS).fit(X, y)
    expected = metrics.accuracy_score(y, model.predict(X), sample_weight=weight)
    assert model.score(X.copy(), y, weight) == expected > 0.6
    with pytest.raises(ValueError, match="y must have as many rows"):
        model.score(X.copy(), y[:-1])


def test_labels_of_another_type_are_those_of_the_fit():
    """They raised an error or, as other strings, counted as wrong."""
    truth = X[:, 0] > 0.5
    schema = skdp.Schema(
        {"a": skdp.Numeric(0, 1), "b": skdp.Numeric(0, 1)},
        target=skdp.Categorical(["True", "False"]),
    )
    options = {"epsilon": 20.0, "engine": "reference", "n_steps": 10}
    model = skdp.LogisticRegression(schema=schema, random_state=0, **options)
    model.fit(X, truth)
    expected = metrics.accuracy_score(truth.astype(str), model.predict(X))
    assert expected > 0.6
    for labels in (
        truth,
        truth.astype(int),
        truth.astype(float),
        truth.astype(int).astype(str).tolist(),
        pd.Series(truth).astype("category"),
        pd.Series(truth, dtype="boolean"),
    ):
        assert model.score(X.copy(), labels) == expected
    unknown = truth.astype(object)
    unknown[:100] = [None, "?", "", np.nan] * 25
    known = metrics.accuracy_score(truth.astype(str)[100:], model.predict(X)[100:])
    assert model.score(X.copy(), unknown) == pytest.approx(known * 0.75)


def test_scikit_learn_scores_by_it():
    model = skdp.PoissonRegressor(**COUNTED)
    by_default, by_name = (
        cross_val_score(model, X, COUNTS, cv=2, scoring=scoring)
        for scoring in (None, metrics.make_scorer(d2))
    )
    assert by_default == pytest.approx(by_name)
