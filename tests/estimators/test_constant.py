"""A fit of a constant says so, from public facts alone."""

import re
import warnings

import numpy as np
import pytest

import skdp
from skdp.estimators import ConstantModelWarning
from skdp.schema import Categorical, Numeric, Schema

CLASSES = Schema({"x": Numeric(0, 1)}, target=Categorical([0, 1]))
NUMBERS = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 10))
MODELS = {
    skdp.LogisticRegression: (CLASSES, "the base rate"),
    skdp.LinearSVC: (CLASSES, "the larger class"),
    skdp.LinearRegression: (NUMBERS, "the mean"),
    skdp.HuberRegressor: (NUMBERS, "the mean"),
    skdp.PoissonRegressor: (NUMBERS, "the mean"),
}


def table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n_rows, 1))
    return {"x": x[:, 0]}, (x[:, 0] > 0.5).astype(int)


def fit(model, n_rows, seed=0, **given):
    X, y = table(n_rows, seed)
    options = {"epsilon": 0.5, "neighbours": "replace-one", "random_state": 0} | given
    return model(schema=MODELS[model][0], **options).fit(X, y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("high", [10, 100, 1000])
def test_a_constant_of_counts_finds_a_small_part_of_the_range(high, weight):
    """A mean that noise hides becomes half of the noise, and not a part of the end."""
    rng = np.random.default_rng(1)
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, high))
    found = []
    for seed in range(20):
        X = {"x": rng.uniform(size=300)}
        model = skdp.PoissonRegressor(
            schema=schema,
            epsilon=0.3,
            delta=1e-6,
            n_rows=300,
            look=False,
            random_state=seed,
        ).fit(X, rng.poisson(2.0, 300), np.full(300, weight))
        assert model.plan_.geometry.is_constant
        assert model.plan_.n_steps == 1
        found.append(float(model.predict(X)[0]))
    mu = np.sqrt(model.privacy_.budget)
    noise = high / (300 * mu)
    assert abs(np.mean(found) - 2.0 * weight) < 1.2 * noise
    assert max(found) < 2.0 + 5 * noise
    assert min(found) >= min(0.3 * noise, 0.5)


@pytest.mark.parametrize("model", MODELS)
def test_a_constant_says_so(model, tmp_path):
    said = f"Only a constant is fitted ({MODELS[model][1]}), because 200 rows"
    with pytest.warns(ConstantModelWarning, match=re.escape(said)) as caught:
        fitted = fit(model, 200)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not np.any(fitted.coef_)
    assert said in " ".join(str(fitted.summary()).split())
    assert said in str(fitted.plan_)
    fitted.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert said in " ".join(str(loaded.summary()).split())
    text = str(caught[0].message)
    factor = float(text.split("About ")[1].split()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = fit(model, round(200 * 1.1 * factor))
    assert "constant" not in str(more.summary())


def test_the_warning_does_not_depend_on_records():
    texts = set()
    for seed in range(3):
        with pytest.warns(ConstantModelWarning) as caught:
            fit(skdp.LogisticRegression, 200, seed)
        texts.add(str(caught[0].message))
    assert len(texts) == 1


def test_other_solvers_say_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(skdp.LogisticRegression, 200, solver="objective_perturbation")


def test_a_search_does_not_tell_how_many_trials_fitted_a_constant():
    """Their number is random and private: only the public plan may speak."""
    X, y = table(300)
    search = skdp.PrivateSearchCV(
        skdp.LogisticRegression(schema=CLASSES, neighbours="replace-one"),
        {"alpha": [1e-4, 1e-3]},
        epsilon=0.3,
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    assert not [one for one in caught if one.category is ConstantModelWarning]


def test_a_constant_of_persons_speaks_of_persons(tmp_path):
    X, y = table(50)
    model = skdp.LogisticRegression(schema=CLASSES, neighbours="replace-one")
    with pytest.warns(ConstantModelWarning) as caught:
        model.fit(X, y, unit=np.arange(50) // 2)
    model.save(tmp_path / "model")
    said = str(caught[0].message)
    assert "because 25 persons cannot support" in said
    assert "as many persons would" in said
    for one in (model, skdp.load(tmp_path / "model")):
        assert said in " ".join(str(one.summary()).split())
