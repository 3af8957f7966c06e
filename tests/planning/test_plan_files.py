"""Plans are the same after writing and reading. Other files are refused."""

import json
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from skdp.descent import plan_files
from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import InterceptOnly
from skdp.descent.plan import run
from skdp.descent.rule import SAMPLING_NAMES, make_plan, replan
from skdp.models.losses import LOSSES, Logistic
from skdp.models.penalties import Box
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
    again = plan_files.parse_plan(plan_files.dump_plan(plan))
    assert plan_files.dump_plan(again) == plan_files.dump_plan(plan)
    first = run(plan, records(), random_state=3).weights
    assert (run(again, records(), random_state=3).weights == first).all()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_written(name):
    plan = make_plan(LAYOUT, LOSSES[name](), n_rows=200, epsilon=1.0, delta=1e-6)
    assert plan_files.parse_plan(plan_files.dump_plan(plan)).loss == plan.loss


def test_bounds_that_are_infinite_are_written():
    plan = make_plan(LAYOUT, Logistic(), n_rows=200, epsilon=1.0, delta=1e-6)
    plan = replace(plan, penalty=Box(low=-math.inf))
    again = plan_files.parse_plan(plan_files.dump_plan(plan))
    assert again.penalty == Box(low=-math.inf, high=math.inf)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"format": 2}', '{"format": 1}', "1e999", "[" * 9),
        *("[" * 9999, '{"a":' * 9999, "9" * 9999),
    ],
    ids=range(11),
)
def test_something_else_than_a_plan_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match="This is not a plan of format 1"):
        plan_files.parse_plan(text)


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
        ("n_rows", True),
        ("n_steps", 1.0),
        ("neighbours", "friends"),
        ("assumptions", [3]),
        ("layout", {"groups": [{"name": "x"}], "row_norm": None}),
        ("more", 1),
        ("layout", {"more": 1}),
        ("layout", {"groups": "x"}),
        ("layout", {"row_norm": "1"}),
        ("rate", {"theorem": "x"}),
    ]:
        state = json.loads(plan_files.dump_plan(plan))
        known = key == "layout" and "groups" not in value
        state[key] = state[key] | value if known else value
        with pytest.raises(ValueError, match="This is not a plan of format 1"):
            plan_files.parse_plan(json.dumps(state))


def test_numbers_of_numpy_are_written_as_their_own():
    given = {"n_rows": np.int64(200), "epsilon": 1.0, "delta": 1e-6}
    plan = make_plan(LAYOUT, Logistic(), **given, n_steps=np.int64(7))
    assert plan_files.parse_plan(plan_files.dump_plan(plan)).n_steps == 7


def test_a_sampling_of_another_size_takes_no_memory():
    plan = make_plan(LAYOUT, Logistic(), n_rows=200, epsilon=1.0, delta=1e-6)
    about = json.loads(plan_files.dump_plan(plan))
    about["sampling"]["n_coordinates"] = 10**7
    tracemalloc.start()
    with pytest.raises(ValueError, match="its sampling must have 5 coordinates"):
        plan_files.parse_plan(json.dumps(about))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_wide_tables_are_planned_with_full_steps_from_a_constant():
    names = [f"x{i}" for i in range(1500)]
    schema = Schema({"words": Vector(names)}, target=Categorical([0, 1]))
    facts = {"n_rows": 9000, "delta": 1e-6, "neighbours": "zero-out"}
    plan = make_plan(schema.layout(), Logistic(), epsilon=1.0, **facts)
    assert isinstance(plan.geometry, Diagonal)
    signal = 9000 * accountant.gdp_mu(1.0, 1e-6)
    share = pytest.approx(max(0.005, (50 / signal) ** 2))
    assert plan.geometry.share == share
    M = plan.geometry.smoothness
    # β (Σ x_j²/M_j + 1/M_0) = 1 for the longest row: the step is safe.
    assert 0.25 * (1 / M[0] + 1 / M[-1]) == pytest.approx(1.0)
    assert plan.n_steps == round((50 * signal**2) ** (1 / 3) * M[0])
    assert plan_files.parse_plan(plan_files.dump_plan(plan)).geometry.share == share
    few = make_plan(schema.layout(), Logistic(), epsilon=0.01, **facts)
    assert isinstance(few.geometry, InterceptOnly)
    assert isinstance(
        plan_files.parse_plan(plan_files.dump_plan(few)).geometry, InterceptOnly
    )
    assert "cannot support a single coefficient" in str(few)


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
