"""The examples of CONTRIBUTING.md work: one class each, and nothing else."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.descent import smoothness
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.base import ESTIMATORS
from skdp.models.losses import LOSSES, Loss
from skdp.planning import plan_files
from skdp.planning.decide import make_plan
from skdp.planning.plan import run
from skdp.privacy import queries
from skdp.tables import batches as read_batches

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
DATA = skdp.make_hospital(900, target="cost")


@pytest.fixture(scope="module")
def made():
    """What the page's programs define; their entries leave the registries after."""
    before, estimators = dict(LOSSES), dict(ESTIMATORS)
    names = {"__name__": "contributing"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        exec(block, names)
    yield names
    LOSSES.clear()
    LOSSES.update(before)
    ESTIMATORS.clear()
    ESTIMATORS.update(estimators)


@pytest.fixture(scope="module")
def records():
    batches = read_batches(DATA.columns, DATA.schema, batch_rows=250)
    return skdp.encode(batches, DATA.schema)


def plan_of(loss, **options):
    layout = DATA.schema.layout(True)
    options = {"n_rows": 900, "epsilon": 1.0, "delta": 1e-6} | options
    return make_plan(layout, loss, **options)


def test_a_loss_runs_on_every_engine_and_is_saved(made, records):
    loss = made["PseudoHuber"](width=0.3)
    plan = plan_of(loss, n_steps=5)
    fits = [
        run(plan, records, engine=e, random_state=1)
        for e in (ReferenceEngine, CompiledEngine)
    ]
    assert np.array_equal(fits[0].weights, fits[1].weights)
    assert np.abs(fits[0].weights).max() > 0
    assert plan_files.loads(plan_files.dumps(plan)).loss == loss


def test_its_slope_is_the_derivative_of_its_value(made):
    loss, target = made["PseudoHuber"](), np.full(200, 5000)
    margin = np.linspace(-3, 3, 200)[:, None]
    step = 1e-5
    change = loss.value(margin + step, target) - loss.value(margin - step, target)
    slope = loss.slope(margin, target)[:, 0]
    assert np.abs(change / (2 * step) - slope).max() < 1e-4
    assert np.abs(slope).max() <= loss.slope_bound
    assert isinstance(loss, Loss)


def test_an_estimator_is_planned_fitted_and_exported(made):
    target = ("cost", skdp.Numeric(0, 200_000))
    schema = skdp.Schema(DATA.schema.columns, target=target)
    plan = skdp.plan(schema, 900, model="pseudo-huber")
    assert plan.loss == made["PseudoHuber"](0.5)
    model = made["PseudoHuberRegressor"](schema=schema, random_state=0)
    model.fit(DATA.columns)
    table = pd.DataFrame(dict(DATA.columns))
    assert model.to_sklearn().predict(table) == pytest.approx(model.predict(table))


def test_a_sampling_runs_and_is_saved(made, records):
    layout = DATA.schema.layout(True)
    law = made["PoissonColumns"](layout.blocks, 0.3)
    hessian = np.eye(layout.n_features) + 0.1
    v = smoothness.from_hessian(law, hessian)
    assert smoothness.is_valid(law, hessian, v)
    rng = np.random.default_rng(0)
    seen = np.zeros(layout.n_features)
    for _ in range(4000):
        seen[law.draw(rng)] += 1
    assert np.abs(seen / 4000 - law.probabilities).max() < 0.05
    plan = plan_of(skdp.Squared(), sampling=law, geometry="diagonal", n_steps=7)
    again = plan_files.loads(plan_files.dumps(plan))
    first, second = (run(p, records, random_state=2).weights for p in (plan, again))
    assert np.array_equal(first, second)


def test_an_engine_of_chunks_gives_the_same_bits(made, records):
    assert len(records.chunks) > 2
    plan = plan_of(skdp.Squared(), n_steps=4)
    engines = (ReferenceEngine, made["ChunkEngine"])
    fits = [
        run(plan, records, engine=engine, random_state=3).weights for engine in engines
    ]
    assert np.array_equal(*fits)
    assert isinstance(
        queries.counts(made["ChunkEngine"](records), 1, "add-remove").value[0], int
    )
