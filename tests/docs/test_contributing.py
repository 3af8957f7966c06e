"""The examples of CONTRIBUTING.md work: one class each, and nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.descent import plan_files, smoothness
from skdp.descent.plan import run
from skdp.descent.rule import make_plan
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.fit import ESTIMATORS
from skdp.models.losses import LOSSES, Loss
from skdp.models.penalties import Penalty
from skdp.privacy import queries
from skdp.solvers import SOLVERS, Problem
from skdp.tables import batches as read_batches
from skdp.verification.sensitivities import RELEASES_OF

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
DATA = skdp.make_hospital(900, target="cost")


@pytest.fixture(scope="module")
def made():
    """The names that the programs define. Their registry entries are removed later."""
    registries = LOSSES, ESTIMATORS, SOLVERS, RELEASES_OF
    before = [dict(registry) for registry in registries]
    names = {"__name__": "contributing"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        exec(block, names)
    yield names
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


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
    assert plan_files.parse_plan(plan_files.dump_plan(plan)).loss == loss


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


def test_a_penalty_runs_in_both_geometries_and_is_saved(made, records):
    penalty = made["RidgeTo"](centre=0.5, strength=1e6)
    assert Penalty.from_dict(penalty.to_dict()) == penalty
    for geometry in ("matrix", "diagonal"):
        options = {"geometry": geometry, "sampling": "full", "n_steps": 5}
        plan = replace(plan_of(skdp.Squared(), **options), penalty=penalty)
        again = plan_files.parse_plan(plan_files.dump_plan(plan))
        fits = [run(p, records, random_state=4).weights for p in (plan, again)]
        assert np.array_equal(*fits)
        assert np.abs(fits[0] - 0.5).max() < 1e-2  # so strong that it decides


def test_its_proximal_map_minimises(made):
    penalty = made["RidgeTo"](centre=0.5, strength=2.0)
    weights, metric, at = np.array([[1.0], [-3.0]]), np.array([1.0, 4.0]), np.arange(2)
    found = penalty.prox(weights, metric, at)

    def objective(u):
        return float((metric / 2 * (u - weights)[:, 0] ** 2).sum()) + penalty.value(u)

    for step in (1e-3, -1e-3):
        for j in at:
            moved = found.copy()
            moved[j] += step
            assert objective(moved) > objective(found)


def test_a_solver_is_registered_and_fits_an_estimator(made, records):
    name = "noisy_gradient_descent"
    problem = Problem(
        records=records, loss=skdp.Squared(), n_rows=900, neighbours="zero-out"
    )
    solved = SOLVERS[name].run(problem, epsilon=1.0, random_state=0)
    assert solved.record.spent_epsilon == pytest.approx(1.0)
    noiseless = made[name](problem, epsilon=np.inf, n_steps=5).weights
    nearly = made[name](problem, epsilon=1e9, n_steps=5).weights
    assert np.abs(noiseless - nearly).max() < 1e-3
    target = ("cost", skdp.Numeric(0, 200_000))
    schema = skdp.Schema(DATA.schema.columns, target=target)
    model = skdp.LinearRegression(schema=schema, solver=name, random_state=0)
    model.fit(DATA.columns)
    assert model.plan_["solver"] == name
    assert model.n_iter_ == 20
    assert model.privacy_.spent_epsilon <= 1.0


def test_a_solver_is_verified_only_if_its_releases_are_listed(made, monkeypatch):
    pytest.importorskip("mpmath")
    name = "noisy_gradient_descent"
    target = ("cost", skdp.Numeric(0, 200_000))
    schema = skdp.Schema(DATA.schema.columns, target=target)
    for neighbours in queries.NEIGHBOURS:
        options = {"solver": name, "neighbours": neighbours, "max_weight": 2.0}
        model = skdp.LinearRegression(schema=schema, **options).fit(DATA.columns)
        found = skdp.verify(model)
        assert found.passed, str(found)
    monkeypatch.delitem(RELEASES_OF, name)
    found = skdp.verify(model)
    assert not found.passed
    assert "not checked  sensitivities: RELEASES_OF in verification" in str(found)
    assert str(found).endswith("NOT VERIFIED: a required check was not possible.")
    assert all(check.passed is not False for check in found.checks)
    monkeypatch.delitem(SOLVERS, name)
    assert f"FAILED  sensitivities: there is no solver {name!r}" in str(
        skdp.verify(model)
    )


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
    again = plan_files.parse_plan(plan_files.dump_plan(plan))
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
