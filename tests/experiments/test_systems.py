"""Systems and the figures that compare them."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.figures import a_systems as a
from experiments.figures import g_cost as g
from experiments.folders import modules
from experiments.paths import columns_share, followed, running
from experiments.problems import Objective, make_problem
from skdp.datasets import make_hospital
from skdp.descent import algorithm1
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.queries import Kind
from tables import Table

SYSTEMS = modules("systems")
N_ROWS = 600


def table_of(target):
    data = make_hospital(n_rows=N_ROWS, target=target)
    columns = dict(data.columns)
    return Table(columns, columns.pop(target), data.schema)


@pytest.fixture(scope="module")
def objectives():
    """Small problems, one per loss, with their optimal values."""
    targets = {"logistic": "readmitted", "squared": "cost"}
    return {k: Objective(make_problem(table_of(t))) for k, t in targets.items()}


@pytest.mark.parametrize("folder", ["systems", "data"])
def test_files_are_found_by_their_names(folder):
    for name, module in modules(folder).items():
        assert name == module.NAME
    assert len({system.LABEL for system in SYSTEMS.values()}) == len(SYSTEMS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_spend_the_budget_and_tell_their_path(name, objectives, monkeypatch):
    system = SYSTEMS[name]
    assert list(inspect.signature(system.fit).parameters) == [
        "problem",
        "epsilon",
        "delta",
        "seed",
        "callback",
    ]
    opened, real = [], PrivacyRecord.__post_init__

    def watched(self):
        opened.append(self)
        real(self)

    monkeypatch.setattr(PrivacyRecord, "__post_init__", watched)
    monkeypatch.setattr(system, "ANALYSED_STEPS", 100, raising=False)  # of 2500
    if hasattr(system, "list_settings"):  # trials have records of their own
        first = system.list_settings(objectives[system.LOSSES[0]].problem, 1.0, 1e-6)[0]
        monkeypatch.setattr(system, "choose", lambda *problem: first)
    objective = objectives[system.LOSSES[0]]
    recorder = Every()
    budget = {"epsilon": 1.0, "delta": 1e-6, "seed": 0}
    weights = system.fit(objective.problem, callback=recorder, **budget)
    kept = [record for record in opened if record.epsilon == 1.0 and record.events]
    assert len(kept) == 1
    assert 0.99 < kept[0].spent_epsilon <= 1
    assert kept[0].neighbours == "zero-out"
    assert np.isfinite(objective.excess(weights))
    passes = [point[1] for point in recorder.points]
    assert passes == sorted(passes)
    if recorder.points:  # the last average is returned, with a corrected intercept
        assert np.allclose(recorder.points[-1][3][:-1], weights[:-1], atol=1e-12)


class Every(a.Recorder):
    """Keep every step."""

    def __call__(self, passes, weights):
        self._next = 0
        super().__call__(passes, weights)


@pytest.mark.parametrize("average", ["mean", "rising", "most", "last"])
def test_averages_so_far_are_those_of_a_run_that_stops(average):
    law = algorithm1.AVERAGES[average]
    steps = np.random.default_rng(0).normal(size=(23, 4, 1))
    so_far = running(law)
    for count, step in enumerate(steps, start=1):
        expected = np.tensordot(law(count), steps[:count], axes=1)
        assert np.allclose(so_far(step), expected)


def test_passes_are_shares_of_columns(objectives):
    layout = objectives["logistic"].problem.layout
    share = columns_share(layout)
    everything = np.arange(layout.n_features)
    assert share(SimpleNamespace(at=everything)) == 1
    assert share(SimpleNamespace(at=np.array([0]))) == 1 / len(layout.groups)
    told = []
    after = followed(
        lambda *each: told.append(each), share, algorithm1.last, before=2.0
    )
    for _ in range(2):
        after(SimpleNamespace(at=np.array([0]), weights=np.ones((1, 1))))
    assert [passes for passes, _ in told] == pytest.approx(
        [2 + 1 / len(layout.groups), 2 + 2 / len(layout.groups)]
    )


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_minimum_is_one(loss, objectives):
    objective = objectives[loss]
    assert np.linalg.norm(objective.gradient(objective.minimiser)) < 1e-6
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1e-2, 1.0):
        move = scale * rng.normal(size=objective.minimiser.shape)
        assert objective.excess(objective.minimiser + move) > 0


def test_gradient_and_hessian_are_those_of_the_value(objectives):
    objective = objectives["logistic"]
    w = np.random.default_rng(1).normal(size=objective.minimiser.shape)
    v = np.random.default_rng(2).normal(size=w.shape)
    h = 1e-4
    slope = (objective.value(w + h * v) - objective.value(w - h * v)) / (2 * h)
    assert (objective.gradient(w) * v).sum() == pytest.approx(slope, rel=1e-4)
    bend = objective.gradient(w + h * v) - objective.gradient(w - h * v)
    assert np.allclose(objective.hessian(w) @ v, bend / (2 * h), rtol=0.02, atol=1e-4)


def test_the_recorder_keeps_few_points():
    recorder = a.Recorder()
    for step in range(1, 101):
        recorder(step / 10, np.full(1, step))
    assert [point[0] for point in recorder.points] == [
        1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93,
    ]  # fmt: skip
    assert recorder.passes == 10


def made_up(ours, other, epsilon=1.0):
    """Rows of two systems, seed by seed, with paths that come near the excess."""
    return [
        row
        for system, excess in ((a.OURS, ours), ("dp_sgd", other))
        for seed in range(10)
        for row in run_of(system, excess * (0.955 + seed / 100), seed, epsilon)
    ]


def run_of(system, excess, seed, epsilon):
    where = {"table": "adult", "system": system, "epsilon": epsilon, "seed": seed}
    for step in (1, 2, 4):
        reached = {"step": step, "passes": step / 2, "seconds": step / 8}
        yield where | {"kind": "path", "excess": excess * 7 / step} | reached
    end = {"kind": "end", "step": 8, "passes": 4.0, "seconds": 1.0}
    yield where | end | {"excess": excess}


def test_the_text_says_who_wins():
    won = made_up(ours=0.001, other=0.004)
    assert "excess in 1 of 1 pairs" in a.text(won)
    assert "in 0 of\nthem" in a.text(won)
    assert "**1 [0.978, 1.02]**" in a.text(won)
    assert a.losses(won) == []
    lost = made_up(ours=0.004, other=0.001)
    assert "excess in 0 of 1 pairs" in a.text(lost)
    (point,) = a.losses(lost)
    assert point.startswith("adult, ε = 1: DP-SGD, practised (ours is 4 [4, 4] times")


def test_the_text_says_how_far_tuned_settings_get():
    rows = made_up(ours=0.001, other=0.004)
    assert "tuned (not private) has" not in a.text(rows)
    for row in rows:
        row["system"] = a.TUNED if row["system"] == "dp_sgd" else row["system"]
    assert "tuned (not private) has 4 to 4 times our mean excess in 1 pairs" in a.text(
        rows
    )


def test_bounds_that_are_exceeded_are_counted():
    rows = [
        row
        for epsilon in (0.1, 1.0)
        for seed in range(10)
        for row in run_of("skgd_full", 0.02, seed, epsilon)
    ]
    where = {"table": "adult", "system": "skgd_full", "kind": "bound"}
    rows += [
        where | {"epsilon": 0.1, "excess": 0.04, "true": 0.1, "step": 9},
        where | {"epsilon": 1.0, "excess": 0.01, "true": 0.04, "step": 9},
    ]
    said = a.text(rows)
    assert "In 1 of 2 settings (on adult)" in said
    assert "by up to 2 times (adult, ε = 1, DP-SkGD, full)" in said
    assert "exceeded in 0 of 2 settings; the mean excess is 0.200 to 0.500" in said
    assert a.learnt(rows) == [
        "bounds that guess ‖w*‖ are exceeded in 1 of 2 settings; with the true w*, in "
        "0."
    ]
    assert g.derive(rows)  # without the rows of bounds


def test_only_the_sampling_differs():
    rows = [
        row
        for system, excess in (
            ("skgd_importance", 0.02),
            ("dp_cd_unclipped", 0.01),
            ("dp_cd", 0.04),
        )
        for seed in range(10)
        for row in run_of(system, excess * (1 + seed / 100), seed, 1.0)
    ]
    said = a.text(rows)
    assert "Of 1 settings, importance sampling is better in 0 and worse in 1" in said
    assert "adult, ε = 1: 2 [2, 2]" in said
    (point,) = a.learnt(rows)
    assert "on 0 of 1 tables and loses on 1" in point
    assert "factors from 4 to 4" in point


@pytest.mark.parametrize("name", ["skgd_columns", "skgd_full", "skgd_full_elliptical"])
def test_the_paper_has_isotropic_noise_in_its_own_geometry(name, objectives):
    problem = objectives["logistic"].problem
    plan = SYSTEMS[name].plan(problem, epsilon=1.0, delta=1e-6)
    assert plan.geometry.elliptical == name.endswith("elliptical")
    assert plan.rate.n_steps == plan.n_steps


def test_importance_and_unclipped_dp_cd_differ_in_the_sampling_only(
    objectives, monkeypatch
):
    """The same M, the same sensitivities, and other sets."""
    found = {}
    for name in ("skgd_importance", "dp_cd_unclipped"):
        records = []
        real = PrivacyRecord.__post_init__
        monkeypatch.setattr(
            PrivacyRecord,
            "__post_init__",
            lambda self, real=real, records=records: (records.append(self), real(self)),
        )
        problem = objectives["logistic"].problem
        SYSTEMS[name].fit(problem, epsilon=1.0, delta=1e-6, seed=4)
        monkeypatch.undo()
        found[name] = records[0]
    one, other = found.values()
    squares = [
        [r.values.tolist() for r in record.transcript if r.values.shape[0] != 1][:1]
        for record in (one, other)
    ]
    assert squares[0] == squares[1]
    steps = [
        {event.sensitivity for event in record.events if event.kind == Kind.GRADIENT}
        for record in (one, other)
    ]
    assert steps[0] == steps[1]


def test_a_tie_is_not_a_loss():
    rows = made_up(ours=0.001, other=0.001)
    for row in rows:
        if row["system"] == a.OURS:
            row["excess"] *= 1.1 + 0.3 * (-1) ** row["seed"]
    assert a.losses(rows) == []


def test_costs_are_those_of_the_first_point_below():
    rows = g.derive(made_up(ours=0.001, other=0.004))
    known = {(row["system"], row["factor"]): row for row in rows}
    # The least mean excess is .001; after 1, 2, 4 and 8 steps 7, 3.5, 1.75 and 1 times.
    twice = known[a.OURS, 2.0]
    assert (twice["passes"], twice["seconds"], twice["reached"]) == (2, 0.5, 10)
    assert known[a.OURS, 10.0]["passes"] == 0.5
    assert known["dp_sgd", 2.0]["reached"] == 0
    assert "passes" not in known["dp_sgd", 2.0]
    assert "| DP-SGD, practised | never |" in g.text(rows)
    assert "| ours (matrix) | 2, 0.5 s |" in g.text(rows)
    assert g.losses(rows) == []
    (passes, seconds) = g.losses(g.derive(made_up(ours=0.004, other=0.001)))
    assert "DP-SGD, practised in " in passes
    assert seconds.startswith("In seconds another system is the cheapest in ")


def test_a_median_is_infinite_where_most_seeds_fail():
    rows = made_up(ours=0.001, other=0.004)
    for row in rows:  # seven of ten never get near
        if row["system"] == "dp_sgd" and row["seed"] < 7:
            row["excess"] = 1.0
    found = {(r["system"], r["factor"]): r for r in g.derive(rows)}["dp_sgd", 5.0]
    assert found["reached"] == 3
    assert "seconds" not in found


def test_figures_are_drawn_of_what_there_is():
    rows = made_up(ours=0.001, other=0.004) + made_up(0.01, 0.01, epsilon=0.1)
    figure = a.draw(rows)
    names = {t.get_text().strip("┄ ") for each in figure.axes for t in each.texts}
    assert {"ours (matrix)", "DP-SGD, practised"} <= names
    assert g.draw(g.derive(rows)).axes
