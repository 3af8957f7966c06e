"""Plans forecast intervals: as fits of such rows have them, and for every schema."""

import math
import pickle

import numpy as np
import pytest

import skdp
from skdp.estimators.effects import compute_effects
from skdp.estimators.expected_effects import draw_uniforms
from skdp.estimators.model_formula import read_formula

SCHEMA = skdp.Schema(
    {
        "age": skdp.Numeric(0, 120),
        "dose": skdp.Numeric(-3, 3),
        "sex": skdp.Categorical(["f", "m"], reference="f"),
    },
    target=("ill", skdp.Categorical([0, 1])),
)


def forecast(n_rows, epsilon=1.0, schema=SCHEMA, model="logistic", **options):
    outlook = skdp.plan(schema, n_rows, epsilon, model=model, **options).outlook()
    return {one.column: one for one in outlook.effects}, outlook


def test_more_rows_tell_more_and_more_closely():
    few, said = forecast(500)
    many, all_told = forecast(50_000)
    most, _ = forecast(500_000)
    assert few["age"].told == 0
    assert math.isinf(few["age"].width)
    assert 1 < said.times_to_tell_all < 100
    assert said.epsilon_to_tell_all > 1
    assert all_told.times_to_tell_all == 1
    for name in SCHEMA.columns:
        assert many[name].told == 1
        assert most[name].width < 0.5 * many[name].width
    enough, _ = forecast(round(500 * said.times_to_tell_all))
    assert min(one.told for one in enough.values()) > 0.5


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_a_fit_of_rows_as_assumed_has_such_intervals(epsilon):
    n, rng = 20_000, np.random.default_rng(0)
    bell = (0.5 + rng.standard_normal((2, n)) / 15).clip(1 / 3, 2 / 3)
    sex = rng.choice(["f", "m"], n, p=[2 / 3, 1 / 3])
    margin = 9 * (bell[0] - 0.5) - 9 * (bell[1] - 0.5) + 1.2 * (sex == "m") - 0.4
    ill = (rng.uniform(size=n) < 1 / (1 + np.exp(-margin))).astype(int)
    table = {"age": 120 * bell[0], "dose": 6 * bell[1] - 3, "sex": sex, "ill": ill}
    fitted = skdp.LogisticRegression(schema=SCHEMA, epsilon=epsilon, random_state=0)
    (output,) = compute_effects(fitted.fit(table))
    expected, _ = forecast(n, epsilon)
    for one in output.effects:
        told = bool(np.isfinite(one.std))
        share = expected[one.column].told
        assert 0.2 < share < 0.8 or told == (share > 0.5), one.column
        ratio = 2 * 1.96 * one.std / expected[one.column].width
        assert not told or 2 / 3 < ratio < 3 / 2, one.column


ODD = skdp.Schema(
    {
        "cost": skdp.Numeric(0, 1e5, scale="log"),
        "late": skdp.Numeric(-9, 90, indicator=True),
        "class": skdp.Numeric(0, 9, bins=3),
        "one": skdp.Categorical(["only"]),
    },
    target=skdp.Numeric(0, 200),
    unit="who",
)
EXTREME = skdp.Schema(
    {"a": skdp.Numeric(0, 2e-323), "b": skdp.Numeric(-1e300, 1e300)},
    target=("y", skdp.Categorical([0, 1])),
)
FORMULA = skdp.Schema(SCHEMA.columns, target=("y", skdp.Numeric(0, 9)))


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (ODD, {"model": "linear"}),
        (ODD, {"model": "poisson", "neighbours": "replace-one"}),
        (ODD, {"model": "huber", "look": False}),
        (SCHEMA, {"class_weight": "balanced"}),
        (read_formula("y ~ age*sex + dose:sex", FORMULA)[0], {"model": "linear"}),
        (read_formula("y ~ age:dose + age:sex", FORMULA)[0], {"model": "linear"}),
    ],
)
def test_every_kind_of_column_has_a_forecast(schema, options):
    found, _ = forecast(300_000, schema=schema, **options)
    assert [*found] == [name for name in schema.columns if name != "one"]
    assert all(one.told == 1 and one.width < 1e3 for one in found.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fit_intercept": False}, "require an intercept"),
        ({"l1_ratio": 0.5}, "penalty"),
        ({"model": "additive"}, "without curves"),
        ({"epsilon": math.inf}, "finite"),
        ({"schema": EXTREME}, "extreme"),
    ],
)
def test_others_say_why_there_is_none(options, said):
    options = {"schema": SCHEMA, "n_rows": 20_000, "epsilon": 1.0} | options
    plan = skdp.plan(**options)
    assert said in plan.outlook()
    assert said in str(plan)


def test_a_plan_shows_them_and_is_saved_and_copied_without():
    plan = skdp.plan(SCHEMA, 700, 1.0)
    text = str(plan)
    assert "age   no interval, because noise hides the effect" in text
    assert "times as many rows or ε = " in text
    assert type(plan).from_json(plan.to_json()).to_json() == plan.to_json()
    assert type(plan).from_json(plan.to_json()).outlook is None
    assert str(pickle.loads(pickle.dumps(plan))) == text
    assert "±" in str(skdp.plan(SCHEMA, 50_000, 1.0))


def test_made_up_numbers_are_even_and_differ_between_sequences():
    drawn = np.array([draw_uniforms(20_000, k) for k in range(4)])
    assert 0 < drawn.min() < drawn.max() < 1
    np.testing.assert_allclose(drawn.mean(axis=1), 0.5, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(drawn), np.eye(4), atol=0.03)
