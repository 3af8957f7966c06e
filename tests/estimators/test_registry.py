"""An estimator is one class: defining it registers it everywhere."""

import math

import numpy as np
import pytest

import skdp
from skdp.cli.options import Model
from skdp.descent import rule
from skdp.estimators import fit
from skdp.estimators.regressors import PrivateRegressor
from skdp.models.losses import Huber

X = np.random.default_rng(0).uniform(size=(300, 2))
Y = X @ [1.0, -0.5]


def test_the_command_line_knows_every_estimator():
    """The list is written out there, because `skdp --help` must not import them."""
    assert {one.value for one in Model} == set(fit.ESTIMATORS)


@pytest.fixture
def added():
    class CappedRegression(PrivateRegressor):
        short_name = "capped"
        title = "Regression with capped residuals"
        sklearn_class = "sklearn.linear_model:LinearRegression"

        def _make_loss(self, target):
            return Huber(self._choose_slope_bound(0.3))

    yield CappedRegression
    del fit.ESTIMATORS["capped"]


def test_a_new_estimator_is_planned_exported_and_reported(added):
    assert fit.ESTIMATORS["capped"] is added
    schema = skdp.Schema({"a": skdp.Numeric(0, 1)}, target=("y", skdp.Numeric(0, 1)))
    assert skdp.plan(schema, 1000, model="capped").loss == Huber(0.3)
    model = added(bounds=(0, 1), target_bounds=(-1, 1), random_state=0).fit(X, Y)
    assert model.to_sklearn().predict(X) == pytest.approx(model.predict(X))
    assert "Regression with capped residuals" in skdp.report(model)
    assert set(skdp.evaluate(model, X, Y, epsilon=1.0).scores) >= {"r2", "rmse"}


def test_a_class_without_a_short_name_is_not_an_estimator():
    before = dict(fit.ESTIMATORS)

    class Derived(skdp.LogisticRegression):
        pass

    assert before == fit.ESTIMATORS


def test_a_fit_makes_one_plan(monkeypatch):
    made = []

    def count(*given, **options):
        made.append(given)
        return rule.make_plan(*given, **options)

    monkeypatch.setattr(fit, "make_plan", count)
    skdp.LinearRegression(bounds=(0, 1), target_bounds=(-1, 1)).fit(X, Y)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"sampling": "rows"}, "sampling must be one of"),
        ({"geometry": "round"}, "geometry must be one of"),
        ({"n_steps": 0}, "n_steps must be"),
        ({"n_steps": True}, "n_steps must be"),
        ({"alpha": "light"}, "alpha must be"),
        ({"alpha": None}, "alpha must be"),
        ({"l1_ratio": 2.0}, "l1_ratio must be"),
        ({"l1_ratio": None}, "l1_ratio must be"),
        ({"max_weight": None}, "max_weight must be"),
        ({"n_rows": "x"}, "n_rows must be"),
        ({"n_threads": math.nan}, "n_threads must be"),
        ({"calibration": "rough"}, "calibration must be"),
        ({"random_state": "a"}, "random_state must be None, an integer or"),
        ({"random_state": 1.5}, "random_state must be None, an integer or"),
        ({"slope_bound": -1.0}, "slope_bound > 0, got -1"),
        ({"slope_bound": "x"}, "slope_bound must be 'auto' or a number, got 'x'"),
    ],
)
def test_wrong_options_are_refused_before_a_record_is_opened(
    option, sentence, monkeypatch
):
    """Also where nothing is known about the target or the columns."""

    def spend(*given, **options):
        raise AssertionError("a budget was opened")

    monkeypatch.setattr(fit, "reserve_budget", spend)
    with pytest.raises(ValueError, match=sentence):
        skdp.HuberRegressor(**option).fit(X, Y)


@pytest.mark.parametrize("given", [-1, 0.5, "x", None])
@pytest.mark.parametrize(
    "kind", [skdp.LogisticRegression, skdp.LinearSVC, skdp.AdditiveClassifier]
)
def test_a_classifier_takes_no_slope_bound(kind, given):
    model = kind(slope_bound=given, bounds=(0, 1), classes=[0, 1])
    with pytest.raises(ValueError, match="slope_bound is for regressors, got"):
        model.fit(X, Y > 0)
