"""skdp.plan is the plan that fit runs, for every model."""

import dataclasses
import math

import numpy as np
import pytest

import skdp
from skdp.estimators.fit import ESTIMATORS
from skdp.privacy.queries import NEIGHBOURS

RNG = np.random.default_rng(0)
N_ROWS = 400
TABLE = {
    "age": RNG.uniform(0, 100, N_ROWS),
    "job": RNG.choice(["a", "b", "c"], N_ROWS),
    "label": RNG.integers(0, 2, N_ROWS),
    "count": RNG.integers(0, 9, N_ROWS).astype(float),
}
COLUMNS = {"age": skdp.Numeric(0, 100), "job": skdp.Categorical(["a", "b", "c"])}


def schema_of(model):
    if model in ("logistic", "svc", "additive"):
        return skdp.Schema(COLUMNS, target=("label", skdp.Categorical([0, 1])))
    return skdp.Schema(COLUMNS, target=("count", skdp.Numeric(0, 10)))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("epsilon", [0.5, math.inf])
@pytest.mark.parametrize("model", ESTIMATORS)
def test_fit_runs_the_plan(model, epsilon, neighbours):
    schema = schema_of(model)
    settings = {"epsilon": epsilon, "neighbours": neighbours, "look": False}
    fitted = ESTIMATORS[model](schema=schema, random_state=0, **settings).fit(TABLE)
    n_rows = fitted.plan_.n_rows  # under add-remove it was released
    assert n_rows == N_ROWS or (neighbours, epsilon) == ("add-remove", 0.5)
    plan = skdp.plan(schema, n_rows, model=model, **settings)
    planned = plan
    if neighbours == "add-remove":  # a run of this plan would release no number
        assert plan.assumptions[-1] == "The number of rows given is public."
        planned = dataclasses.replace(plan, assumptions=plan.assumptions[:-1])
    if model.startswith("additive"):  # the fit places its knots by released shares
        own = fitted.plan_
        assert vars(planned.geometry) == pytest.approx(vars(own.geometry), rel=1e-9)
        planned = dataclasses.replace(planned, layout=own.layout, geometry=own.geometry)
    assert fitted.plan_.to_json() == planned.to_json()
    again = skdp.Plan.from_json(plan.to_json())
    assert str(again) == str(dataclasses.replace(plan, outlook=None))


def test_a_plan_says_what_it_does_and_what_limits_it():
    text = str(skdp.plan(schema_of("logistic"), 5000, epsilon=0.1))
    for said in ("5,000 rows", "ε = 0.1", "noise:", "limits the result", "halve"):
        assert said in text


def test_no_plan_without_a_known_model():
    with pytest.raises(ValueError, match="model must be one of"):
        skdp.plan(schema_of("logistic"), 100, model="forest")


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got 0.0"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"delta": "1e-6"}, "delta must be a number"),
    ],
)
def test_no_plan_without_a_budget(budget, sentence):
    with pytest.raises(ValueError, match=sentence):
        skdp.plan(schema_of("logistic"), 100, **budget)


def test_a_text_file_needs_a_schema(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("age,label\n1,0\n2,1\n")
    with pytest.raises(ValueError, match="Pass a schema"):
        skdp.LogisticRegression(classes=[0, 1]).fit(path, [0, 1])
