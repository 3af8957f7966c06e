"""solver="…" on the estimators: spends the same budget, refuses what makes no sense."""

import numpy as np
import pytest
from sklearn.base import clone

import skdp
from skdp.solvers import SOLVERS

rng = np.random.default_rng(0)
X = rng.uniform(size=(3000, 2))
Y = (X[:, 0] + 0.2 * rng.normal(size=3000) > X[:, 1]).astype(int)
KNOWN = {"bounds": (0, 1), "classes": [0, 1], "random_state": 0}
LOGISTIC = [
    name for name, s in SOLVERS.items() if "logistic" in (s.losses or ("logistic",))
]


@pytest.mark.parametrize("name", LOGISTIC)
def test_a_classifier_fits_by_any_solver(name):
    model = skdp.LogisticRegression(epsilon=5.0, solver=name, alpha=0.01, **KNOWN)
    model.fit(X, Y)
    assert model.score(X[:500], Y[:500]) > 0.8
    assert model.plan_["solver"] == name
    assert model.n_iter_ >= 1
    assert 4.9 < model.privacy_.spent_epsilon <= 5.0
    assert clone(model).solver == name


@pytest.mark.parametrize("name", LOGISTIC)
def test_a_saved_model_predicts_the_same(name, tmp_path):
    model = skdp.LogisticRegression(epsilon=5.0, solver=name, alpha=0.01, **KNOWN)
    model.fit(X, Y)
    model.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.privacy_.spent_epsilon == model.privacy_.spent_epsilon
    assert loaded.plan_["solver"] == name


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
def test_what_is_found_privately_is_paid_from_the_same_budget(neighbours):
    model = skdp.LogisticRegression(
        epsilon=5.0, solver="dp_sgd", neighbours=neighbours, delta=1e-6, n_steps=20
    )
    model.fit(X, Y)
    queries = [event.query for event in model.privacy_.events]
    assert len(queries) >= 3
    assert 4.5 < model.privacy_.spent_epsilon <= 5.0
    assert model.n_iter_ == 20


def test_a_regressor_fits_by_another_solver():
    y = X @ [1.0, -1.0]
    model = skdp.LinearRegression(
        epsilon=20.0, solver="dp_cd", bounds=(0, 1), target_bounds=(-1, 1)
    )
    assert model.fit(X, y).score(X[:500], y[:500]) > 0.5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"solver": "sgd"}, "solver must be 'skgd' or one of"),
        ({"solver": None}, "solver must be 'skgd' or one of"),
        ({"solver": "dp_cd", "sampling": "full"}, "sampling is an option of"),
        ({"solver": "dp_cd", "geometry": "matrix"}, "geometry is an option of"),
        ({"solver": "dp_cd", "calibration": "paper"}, "calibration='paper' is"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(options, sentence):
    model = skdp.LogisticRegression(**KNOWN, **options)
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, Y)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("name", [n for n in SOLVERS if n not in LOGISTIC])
def test_a_solver_of_another_loss_is_refused(name):
    with pytest.raises(ValueError, match="supports only the loss"):
        skdp.LogisticRegression(solver=name, **KNOWN).fit(X, Y)


def test_other_solvers_are_not_planned():
    schema = skdp.Schema(
        {"x": skdp.Numeric(0, 1)}, target=("y", skdp.Categorical([0, 1]))
    )
    with pytest.raises(ValueError, match="has a plan before the fit"):
        skdp.plan(schema, 1000, solver="dp_sgd")
