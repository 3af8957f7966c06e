"""Plans survive being written, and what is no plan is refused."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from skdp.descent.geometry import Diagonal
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.models.losses import LOSSES, Logistic
from skdp.planning import plan_files
from skdp.planning.decide import SAMPLING_NAMES, make_plan, replan
from skdp.planning.forecast import forecast, in_words, more_to_halve
from skdp.planning.plan import run
from skdp.privacy import accountant
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema, Vector

SCHEMA = Schema(
    {"age": Numeric(0, 100), "job": Categorical(["a", "b", "c"])},
    target=Categorical([0, 1]),
)
LAYOUT = SCHEMA.layout()


def records(n_rows=200):
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.uniform(0, 100, n_rows),
        "job": Coded(rng.integers(0, 3, n_rows), ["a", "b", "c"]),
    }
    target = Coded(rng.integers(0, 2, n_rows), [0, 1])
    return encode([Batch(columns=columns, target=target)], SCHEMA)


@pytest.mark.parametrize("epsilon", [0.5, math.inf])
@pytest.mark.parametrize("sampling", ["auto", *SAMPLING_NAMES])
def test_a_plan_that_was_written_runs_to_the_same_bits(sampling, epsilon):
    plan = make_plan(
        LAYOUT,
        Logistic(),
        n_rows=200,
        epsilon=epsilon,
        delta=1e-6,
        sampling=sampling,
        n_steps=7,
    )
    again = plan_files.loads(plan_files.dumps(plan))
    assert plan_files.dumps(again) == plan_files.dumps(plan)
    first = run(plan, records(), seed=3).weights
    assert (run(again, records(), seed=3).weights == first).all()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_written(name):
    plan = make_plan(LAYOUT, LOSSES[name](), n_rows=200, epsilon=1.0, delta=1e-6)
    assert plan_files.loads(plan_files.dumps(plan)).loss == plan.loss


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"format": 2}', '{"format": 1}', "1e999", "[" * 9),
        *("[" * 9999, '{"a":' * 9999, "9" * 9999),
    ],
    ids=range(11),
)
def test_what_is_no_plan_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match="This is not a plan of format 1"):
        plan_files.loads(text)


def test_a_plan_that_was_tampered_with_is_refused():
    plan = make_plan(LAYOUT, Logistic(), n_rows=200, epsilon=1.0, delta=1e-6)
    for key, value in [
        ("n_steps", 0),
        ("n_rows", 10**400),
        ("epsilon", -1),
        ("delta", 0.5),
        ("loss", {"name": "os.system"}),
        ("sampling", {"kind": "SAMPLINGS"}),
        ("geometry", {"kind": "matrix", "radius": -1, "floor": 1}),
        ("average", "none"),
    ]:
        state = json.loads(plan_files.dumps(plan)) | {key: value}
        with pytest.raises(ValueError, match="This is not a plan of format 1"):
            plan_files.loads(json.dumps(state))


def test_forecasts_fall_with_rows_and_budget():
    def excess(n_rows, epsilon):
        plan = make_plan(LAYOUT, Logistic(), n_rows=n_rows, epsilon=epsilon, delta=1e-7)
        return forecast(plan).excess

    assert excess(1000, 1.0) > excess(4000, 1.0) > excess(4000, 4.0)


@pytest.mark.parametrize("n_columns", [5, 200])
@pytest.mark.parametrize("n_rows", [3000, 50_000])
def test_a_larger_budget_is_never_forecast_to_be_worse(n_rows, n_columns):
    """Where shrinkage leaves hardly any noise it leaves hardly any model either."""
    wide = Schema(dict.fromkeys(map(str, range(n_columns)), Numeric(0, 1))).layout(True)
    seen = []
    for epsilon in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0):
        plan = make_plan(wide, Logistic(), n_rows=n_rows, epsilon=epsilon, delta=1e-6)
        assert isinstance(plan.geometry, Matrix)
        seen.append(forecast(plan).privacy_excess)
    for small, large in itertools.pairwise(seen):
        assert large < 1.01 * small
    assert seen[-1] < 0.1 * seen[0]


def test_shrinkage_costs_all_that_is_to_know_where_it_is_large():
    plan = make_plan(LAYOUT, Logistic(), n_rows=10**6, epsilon=1.0, delta=1e-7)
    held = replace(plan, geometry=replace(plan.geometry, shrinkage=1e9))
    # Half the curvature, 1/8, times half the variance of the best log-odds.
    assert forecast(held).privacy_excess == pytest.approx(3 / 16, rel=1e-3)
    assert forecast(plan).privacy_excess < 1e-3


def test_what_halves_the_error_halves_it():
    plan = make_plan(LAYOUT, Logistic(), n_rows=1000, epsilon=0.1, delta=1e-6)
    rows = more_to_halve(plan, "n_rows")
    assert rows is not None
    more = make_plan(
        LAYOUT, Logistic(), n_rows=round(1000 * rows), epsilon=0.1, delta=1e-6
    )
    assert forecast(more).excess == pytest.approx(forecast(plan).excess / 2, rel=0.01)


def test_words_name_the_limit():
    def words(n_rows, epsilon):
        return in_words(
            make_plan(LAYOUT, Logistic(), n_rows=n_rows, epsilon=epsilon, delta=1e-9)
        )

    assert "cannot support" in words(100, 0.05)
    assert "The budget limits" in words(6000, 0.1)
    assert "The number of rows limits" in words(10**6, 8.0)
    assert "No noise" in words(1000, math.inf)
    assert "a rare class" in words(6000, 0.1)
    assert "a rare class" not in words(10**6, 8.0)


def test_the_forecast_of_noise_is_about_what_noise_does():
    """Noise of the matrix geometry in the weights of a table that fits the prior."""
    rng = np.random.default_rng(0)
    n_rows = 20_000
    columns = {
        "age": rng.uniform(0, 100, n_rows),
        "job": Coded(rng.integers(0, 3, n_rows), ["a", "b", "c"]),
    }
    target = Coded((rng.random(n_rows) < 0.5).astype(int), [0, 1])
    table = encode([Batch(columns=columns, target=target)], SCHEMA)
    plan = make_plan(
        LAYOUT, Logistic(), n_rows=n_rows, epsilon=1.0, delta=1e-6, alpha=0.0
    )
    fits = np.array([run(plan, table, seed=s).weights[:, 0] for s in range(40)])
    # Classes are balanced: the loss curves twice as much as the prior says.
    expected = forecast(plan).weight_noise[0] / 2
    assert 0.7 < fits[:, 0].std() / expected < 1.4


def test_wide_tables_are_planned_with_full_steps_from_a_constant():
    names = [f"x{i}" for i in range(1500)]
    schema = Schema({"words": Vector(names)}, target=Categorical([0, 1]))
    facts = {"n_rows": 9000, "delta": 1e-6, "relation": "zero-out"}
    plan = make_plan(schema.layout(), Logistic(), epsilon=1.0, **facts)
    assert isinstance(plan.geometry, Diagonal)
    signal = 9000 * accountant.gdp_mu(1.0, 1e-6)
    share = pytest.approx(max(0.005, (50 / signal) ** 2))
    assert plan.geometry.share == share
    M = plan.geometry.smoothness
    # β (Σ x_j²/M_j + 1/M_0) = 1 for the longest row: the step is safe.
    assert 0.25 * (1 / M[0] + 1 / M[-1]) == pytest.approx(1.0)
    assert plan.n_steps == round((50 * signal**2) ** (1 / 3) * M[0])
    assert plan_files.loads(plan_files.dumps(plan)).geometry.share == share
    few = make_plan(schema.layout(), Logistic(), epsilon=0.01, **facts)
    assert isinstance(few.geometry, InterceptOnly)
    assert isinstance(plan_files.loads(plan_files.dumps(few)).geometry, InterceptOnly)
    assert "cannot support a model" in str(few)


def test_plans_of_the_widest_columns_are_described_in_no_time():
    """65,000 bins: nothing of the size of their square is made."""
    schema = Schema({"x": Numeric(0, 1, bins=65_000)}, target=Categorical([0, 1]))
    plan = make_plan(
        schema.layout(), Logistic(), n_rows=20_000, epsilon=1.0, delta=1e-6
    )
    assert "Expected cost in mean loss" in str(plan)


def test_a_wide_plan_is_made_again_by_its_own_rule():
    names = [f"x{i}" for i in range(1500)]
    layout = Schema({"words": Vector(names)}, target=Categorical([0, 1])).layout()
    facts = {"epsilon": 1.0, "delta": 1e-6}
    plan = make_plan(layout, Logistic(), n_rows=9000, **facts)
    more = replan(plan, n_rows=18_000)
    wanted = make_plan(layout, Logistic(), n_rows=18_000, **facts)
    assert (more.n_steps, more.geometry.share) == (
        wanted.n_steps,
        wanted.geometry.share,
    )
