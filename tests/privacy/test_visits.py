"""What a run on public sets costs: the steps that one record can take part in."""

import itertools
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import skdp
from skdp import Categorical, Numeric, Schema, Vector
from skdp.audit.games import make_record
from skdp.descent import algorithm1
from skdp.descent.algorithm1 import draw_course, run_steps
from skdp.descent.geometry import Diagonal, Task
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import SAMPLINGS, ExplicitSets, ShuffledBlocks
from skdp.descent.samplings import SingleCoordinate as Single
from skdp.descent.sketches import Sketched, randomised_hadamard
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Squared
from skdp.models.penalties import ElasticNet
from skdp.privacy import accountant, queries
from skdp.privacy.budget import BudgetError, Event, PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import NEIGHBOURS, Kind
from skdp.privacy.randomness import Randomness
from skdp.privacy.visits import (
    Visits,
    find_longest,
    visit_gradients,
    visit_images,
)

COLUMNS = {
    "a": Numeric(0, 1),
    "b": Categorical(["x", "y", "z"]),
    "c": Categorical(["u", "v"]),
    "d": Vector(["d0", "d1"], norm=1.0),
}
SCHEMA = Schema(COLUMNS, target=Numeric(0, 1))
LAYOUT = SCHEMA.layout(True)
D = LAYOUT.n_features
STEEP = np.linspace(0.5, 4.0, D)
LAWS = {name: make(D) for name, make in SAMPLINGS.items()} | {
    "overlapping": ExplicitSets([[0, 1, 4], [1], [2, 3, 4, 5], range(D)], [0.25] * 4)
}


def draw(law, count=None, n_steps=30, n_restarts=1, seed=0):
    loops = {"n_steps": n_steps, "n_restarts": n_restarts}
    return draw_course(law.sets, count, randomness=Randomness(seed), **loops)


# ---- the theorem


def test_the_cost_of_public_sets_is_what_a_simulation_finds():
    """Five coordinates, 30 steps, a row that has one of them; z = 6 and ε = ½.

    The simulation draws sets and noise, and computes the likelihood ratio of what both
    tables release. It knows nothing of μ.
    """
    d, n_steps, z, epsilon = 5, 30, 6.0, 0.5
    chance = binom.pmf(np.arange(n_steps + 1), n_steps, 1 / d)
    exact = sum(
        p * accountant.gdp_delta(epsilon, math.sqrt(n) / z)
        for n, p in enumerate(chance)
    )
    rng = np.random.default_rng(0)
    n_runs = 200_000
    part = rng.integers(d, size=(n_runs, n_steps)) == 0
    released = (
        rng.normal(size=(n_runs, n_steps)) + part / z
    )  # on the table with the row
    loss = (released**2 - (released - part / z) ** 2).sum(axis=1) / 2
    gain = np.maximum(0.0, -np.expm1(epsilon - loss))
    error = gain.std() / math.sqrt(n_runs)
    assert exact == pytest.approx(0.0285, abs=5e-5)
    assert gain.mean() == pytest.approx(exact, abs=4 * error)
    every_step = accountant.gdp_delta(epsilon, math.sqrt(n_steps) / z)
    assert every_step == pytest.approx(0.204, abs=5e-4)
    # Visits that were drawn have the same law as those of the simulation.
    codes = Schema({"b": Categorical(list("abcde"))}, target=Numeric(0, 1))
    layout = codes.layout(intercept=False)
    found = []
    for seed in range(400):
        course = draw(
            Single.uniform(d), lambda s: visit_gradients(layout, s), seed=seed
        )
        found.append(course.visits.profile)
        assert course.most == pytest.approx(found[-1].max())
    deltas = [accountant.gdp_delta(epsilon, math.sqrt(n) / z) for v in found for n in v]
    assert np.mean(deltas) == pytest.approx(exact, rel=0.05)


def list_extreme_rows():
    """Every row with numbers at the end of their range: 1 · 3 · 2 · 2 of them."""
    for level, other, axis in itertools.product(range(3), range(2), range(2)):
        x = np.zeros(D)
        x[[0, 1 + level, 4 + other, 6 + axis, D - 1]] = 1.0
        yield x


@pytest.mark.parametrize("who", ["row", "replaced", "person"])
@pytest.mark.parametrize("name", sorted(LAWS))
def test_mu_is_what_a_monte_carlo_finds(name, who):
    """Noise is drawn, and likelihood ratios are computed from what both tables release.

    The sensitivity of a set is the largest norm of all rows on it. Under replace-one,
    the same row comes back with the opposite slope. The person has two rows that are
    the worst one, with half of the cap each.
    """
    rng = np.random.default_rng(sorted(LAWS).index(name))
    course = draw(LAWS[name], lambda sets: visit_gradients(LAYOUT, sets))
    sets = [at for loop in draw(LAWS[name]).loops for at in loop]
    rows = list(list_extreme_rows())
    reach = [max(np.linalg.norm(x[at]) for x in rows) for at in sets]
    worst = max(
        rows,
        key=lambda x: sum(
            np.sum(x[at] ** 2) / r**2 for at, r in zip(sets, reach, strict=True)
        ),
    )
    z, epsilon, n_runs = math.sqrt(course.most), 0.5, 10_000  # so μ = 1
    slopes = {"row": (1.0,), "replaced": (1.0, 1.0), "person": (0.5, 0.5)}[who]
    c = 2.0 if who == "replaced" else 1.0
    moved = sum(slope * np.concatenate([worst[at] for at in sets]) for slope in slopes)
    sizes = [len(at) for at in sets]
    std = np.repeat(z * c * np.array(reach), sizes)
    released = moved + std * rng.normal(size=(n_runs, len(std)))
    loss = (released**2 - (released - moved) ** 2) @ (0.5 / std**2)
    gain = np.maximum(0.0, -np.expm1(epsilon - loss))
    error = gain.std() / math.sqrt(n_runs)
    found, exact = gain.mean(), accountant.gdp_delta(epsilon, 1.0)
    assert abs(found - exact) < 4 * error
    # A tenth more or less of μ would be seen.
    assert abs(found - accountant.gdp_delta(epsilon, 1.1)) > 4 * error
    assert abs(found - accountant.gdp_delta(epsilon, 0.9)) > 4 * error


unit = st.floats(-1.0, 1.0)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(LAWS)), st.booleans(), st.data())
def test_no_row_takes_part_in_more(name, elliptical, data):
    """Row by row and step by step, from the definition of a_t(x)."""
    geometry = Diagonal(smoothness=STEEP, elliptical=elliptical)
    course = draw(LAWS[name], lambda sets: geometry.count_visits(LAYOUT, sets))
    sets = [at for loop in draw(LAWS[name]).loops for at in loop]

    def taken(x):
        total = 0.0
        for at in sets:
            weights = 1.0 / geometry.shape(at, LAYOUT.group_of) ** 2
            part = float(weights @ x[at] ** 2)
            total += part / LAYOUT.squared_norm(at, weights)
        return total

    x = np.zeros(D)
    x[0], x[1 + data.draw(st.integers(0, 2))] = data.draw(unit), 1.0
    x[4 + data.draw(st.integers(0, 1))] = 1.0
    angle, x[-1] = data.draw(st.floats(0, 7)), 1.0
    x[6:8] = data.draw(unit) * np.array([math.cos(angle), math.sin(angle)])
    assert taken(x) <= course.most
    if course.visits is not None:  # and some row attains it
        worst, profile = np.zeros(D), course.visits.profile
        for group in LAYOUT.groups:
            worst[group.start + profile[group.coordinates].argmax()] = 1.0
        assert taken(worst) == pytest.approx(course.most, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_no_row_has_a_larger_part_in_images(seed):
    """Rows with categories, two hats, a vector and an intercept, against V itself."""
    rng = np.random.default_rng(seed)
    curved = COLUMNS | {"a": Numeric(0, 1, knots=4)}
    layout = Schema(curved, target=Numeric(0, 1)).layout(True)
    d = layout.n_features
    scales = np.exp(rng.normal(size=d))
    images = [(rng.normal(size=(2, d)) * scales / 9, 1 + k) for k in range(3)]
    visits = visit_images(layout, images)
    for _ in range(30):
        x = np.zeros(d)
        knot, share = rng.integers(3), rng.uniform()
        x[[knot, knot + 1]] = share, 1 - share
        x[4 + rng.integers(3)] = x[7 + rng.integers(2)] = x[-1] = 1.0
        x[9:11] = rng.normal(size=2)
        x[9:11] /= np.linalg.norm(x[9:11])
        parts = [times * min(1, np.linalg.norm(E @ x)) ** 2 for E, times in images]
        assert sum(parts) <= visits.most


def test_when_sampling_coordinates_costs_nothing():
    """A row is in d coordinates of d, of which it has one per column: K·G/d visits."""

    def most(law, layout=LAYOUT, n_steps=10 * D, seed=0):
        return draw(law, lambda s: visit_gradients(layout, s), n_steps, seed=seed).most

    singles = [[j] for j in range(D)]
    assert most(ShuffledBlocks(singles)) == pytest.approx(10 * len(LAYOUT.groups))
    independent = np.mean([most(Single.uniform(D), seed=k) for k in range(40)])
    assert 10 * len(LAYOUT.groups) < independent < 10 * D
    assert most(ShuffledBlocks(LAYOUT.blocks)) == 10 * D  # a row has every column
    text = Schema({"t": Vector(list("abcdefgh"), norm=1.0)}, target=Numeric(0, 1))
    layout = text.layout(intercept=False)
    eight = ShuffledBlocks([[j] for j in range(8)])
    assert most(eight, layout, 80) == pytest.approx(10)  # as many as full gradients


@settings(deadline=None, max_examples=60)
@given(st.floats(1.5, 2.4), st.integers(0, 10**6))
def test_a_joint_bound_is_filled_where_visits_are_most(row_norm, seed):
    """Against all rows that could be longest: two categories, the rest dense."""
    rng = np.random.default_rng(seed)
    schema = replace(SCHEMA, row_norm=row_norm)
    layout, profile = schema.layout(True), rng.exponential(size=D)
    longest = find_longest(layout, profile)
    assert longest <= layout.squared_norm(np.arange(D), profile) * (1 + 1e-12)
    for _ in range(20):
        x = np.zeros(D)
        x[1 + rng.integers(3)] = x[4 + rng.integers(2)] = x[-1] = 1.0
        dense = rng.normal(size=3) * rng.integers(2, size=3)
        room = min(1.0, row_norm**2 - 2)
        x[[0, 6, 7]] = dense * math.sqrt(room) / max(np.linalg.norm(dense), 1e-9)
        assert profile @ x**2 <= longest * (1 + 1e-12)


# ---- runs


ROWS = {  # the first row may be taken out, replaced or belong to a person
    "worst": {"a": 1.0, "b": "y", "c": "u", "d": [0.0, 1.0]},
    "other": {"a": 0.5, "b": "z", "c": "v", "d": [0.6, 0.6]},
    "third": {"a": 0.0, "b": "x", "c": "v", "d": [1.0, 0.0]},
}


def table(rows, divisors=None):
    def coded(key):
        levels = COLUMNS[key].levels
        return Coded(np.array([levels.index(r[key]) for r in rows], int), list(levels))

    schema = SCHEMA if divisors is None else replace(SCHEMA, unit="who")
    batch = Batch(
        columns={
            "a": np.array([r["a"] for r in rows]),
            "b": coded("b"),
            "c": coded("c"),
            "d": np.array([r["d"] for r in rows]).reshape(len(rows), 2),
        },
        target=np.array([r.get("t", 0.0) for r in rows]),
        divisor=None if divisors is None else np.array(divisors),
    )
    return encode([batch], schema)


def pairs(neighbours):
    """Pairs of neighbouring tables of rows and of persons, by name."""
    one, two, three = ROWS.values()
    rest = [one | {"t": 0.5}]
    if neighbours != "replace-one":  # a row, or a person with many, goes
        yield "row", table([one, *rest]), table(rest)
        yield "other", table([two, *rest]), table(rest)
        persons = [one, two, three, *rest]
        yield "person", table(persons, [3, 3, 3, 1]), table(rest, [1])
        yield "twins", table([one, one, *rest], [2, 2, 1]), table(rest, [1])
    else:
        flipped = one | {"t": 1.0}  # its slope changes its sign
        yield "row", table([one, *rest]), table([flipped, *rest])
        yield "other", table([one, *rest]), table([two | {"t": 1.0}, *rest])
        three_of_one = table([one, two, three, *rest], [3, 3, 3, 1])
        yield "person", three_of_one, table([flipped, *rest], [1, 1])


def measure(geometry, law, neighbours, tables, z=3.0):
    """Run on the first table, and return ‖shift‖² of the second, and what was charged.

    Both tables' sums are asked for at the weights of the run.
    """
    loss, sums = Squared(0.01), [[], []]

    def prepare(records):
        layout = records.layout
        return geometry.prepare(
            Task(
                engine=ReferenceEngine(records),
                loss=loss,
                slopes=queries.Slopes(loss=loss),
                curvature=loss.curvature,
                neighbours=neighbours,
                n_rows=1e7,  # so that weights hardly move
                penalty=ElasticNet(),
                release=None,
                sampling=law,
            )
        ), layout

    runs = [prepare(records)[0] for records in tables]

    def query(at, theta):
        asked = [one.query(at, theta) for one in runs]
        for found, total in zip(sums, asked, strict=True):
            found.append(total)
        return asked[0]

    record = make_record(neighbours)
    noise = Randomness()
    course = draw_course(
        law.sets, runs[0].visits, n_steps=20, n_restarts=2, randomness=noise
    )
    run_steps(
        query=query,
        update=runs[0].update,
        course=course,
        average=algorithm1.last,
        start=runs[0].start,
        noise_multiplier=z,
        randomness=noise,
        record=record,
    )
    assert sum(record.events.values()) == len(record.transcript) == 40
    assert record.prepaid == 0.0
    shift = 0.0
    for one, two, released in zip(*sums, record.transcript, strict=True):
        apart = (one.value - two.value).astype(float) * one.unit / released.noise_std
        shift += float((apart**2).sum())
    return shift, record.spent, course


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_run_costs_what_one_record_changes(name, neighbours):
    """Exactly: the worst record changes the releases by √spent, and none by more."""
    geometry = Diagonal(smoothness=STEEP, elliptical=name != "single-uniform")
    largest = 0.0
    for who, *tables in pairs(neighbours):
        shift, spent, course = measure(geometry, LAWS[name], neighbours, tables)
        assert spent == pytest.approx(course.most / 9.0)
        assert shift <= spent * (1 + 1e-9), who
        largest = max(largest, shift / spent)
    # The worst row of these sets may be another one, so it need not be attained here.
    assert largest > 0.4


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_most_visited_row_pays_all(neighbours):
    cheap = np.full(D, 0.01)
    cheap[[0, 2, 4, 7, 8]] = 1.0  # the coordinates of the worst row
    law = Single(cheap / cheap.sum())
    found = {}
    for who, *tables in pairs(neighbours):
        shift, spent, _ = measure(Diagonal(smoothness=STEEP), law, neighbours, tables)
        assert shift <= spent * (1 + 1e-9), who
        found[who] = shift / spent
    assert found["row"] > 0.999
    assert found.get("twins", 1.0) > 0.99  # caps of persons are rounded down


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("cap", [math.inf, 0.002])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sketched_run_costs_at_least_what_one_record_changes(neighbours, cap, seed):
    """Along random directions, a row has a part of its length in each step."""
    directions = randomised_hadamard(D, seed)
    law = Single.uniform(len(directions))
    for who, *tables in pairs(neighbours):
        geometry = Sketched(directions=directions, cap=cap)
        shift, spent, course = measure(geometry, law, neighbours, tables)
        assert shift <= spent * (1 + 1e-9), who
        assert cap < 1 or 8 <= course.most < 30  # of 40
        assert shift > 0.05 * spent


@pytest.mark.parametrize("law", ["norms", "largest"])
def test_sets_that_follow_releases_pay_for_every_step(law):
    geometry = Sketched(directions=np.eye(D), law=law)
    plan = Plan(
        layout=LAYOUT,
        loss=Squared(1.0),
        n_rows=60,
        epsilon=1.0,
        delta=1e-6,
        sampling=Single.uniform(D),
        geometry=geometry,
        n_steps=40,
        neighbours="zero-out",
    )
    record = run(plan, table([*ROWS.values()] * 20), random_state=0).record
    assert record.visits == []
    assert {event.presence for event in record.events} == {1.0}
    (z,) = {event.noise_multiplier for event in record.events}
    assert 40 / z**2 == pytest.approx(record.budget)


@pytest.mark.parametrize("sampling", ["coordinates", "columns", "full", "shuffled"])
def test_a_plan_spends_its_budget_and_says_how(sampling):
    records = table([*ROWS.values()] * 20)
    d = LAYOUT.n_features
    laws = {"coordinates": Single.uniform(d), "full": SAMPLINGS["full"](d)}
    laws["columns"] = SAMPLINGS["blocks-uniform"](d)
    laws["shuffled"] = ShuffledBlocks([[j] for j in range(d)])
    plan = Plan(
        layout=LAYOUT,
        loss=Squared(1.0),
        n_rows=60,
        epsilon=1.0,
        delta=1e-6,
        sampling=laws[sampling],
        geometry=Diagonal(smoothness=STEEP),
        n_steps=40,
        neighbours="zero-out",
    )
    fit = run(plan, records, random_state=0)
    record = fit.record
    assert record.spent == pytest.approx(record.budget, rel=1e-9)
    assert record.spent_epsilon <= 1.0
    (z,) = {event.noise_multiplier for event in record.events}
    assert z == pytest.approx(plan.noise_multiplier(record.budget), rel=0.15)
    if sampling == "full":
        assert (record.visits, plan.expected_visits) == ([], 40)
        assert z == accountant.noise_multiplier(math.sqrt(record.budget), 40)
    else:
        (visits,) = record.visits
        assert visits.most < 40
        assert {event.presence for event in record.events} == {visits.presence}
        assert "one record in at most" in str(record)


# ---- charges


def steps(presence, z=5.0):
    return Event(Kind.GRADIENT, "gradient", 1.0, z, 3, presence=presence)


def half(n_steps=8):
    return Visits(n_steps=n_steps, most=n_steps / 2, profile=np.ones(D))


def test_a_part_of_a_run_costs_as_much_as_the_run():
    """A record may take part in the first steps and not in the others."""
    record = PrivacyRecord(epsilon=5.0, delta=1e-6, neighbours="zero-out")
    record.prepay(half(), 5.0)
    for k in range(8):
        assert record.spent == pytest.approx(4 / 25)
        record.charge(steps(0.5))
        assert record.prepaid == pytest.approx((7 - k) / 50)
    assert record.spent == pytest.approx(4 / 25)
    assert record.prepaid == 0.0


def test_what_was_not_paid_in_advance_costs_in_full():
    record = PrivacyRecord(epsilon=5.0, delta=1e-6, neighbours="zero-out")
    with pytest.raises(BudgetError, match="not paid for in advance"):
        record.charge(steps(0.5))
    record.prepay(half(1), 5.0)
    record.charge(steps(0.5))
    with pytest.raises(BudgetError, match="not paid for in advance"):
        record.charge(steps(0.5))
    small = PrivacyRecord(epsilon=0.1, delta=1e-6, neighbours="zero-out")
    with pytest.raises(BudgetError, match="steps cost"):
        small.prepay(half(), 5.0)


def test_a_run_that_is_interrupted_stays_charged():
    class Stop(Exception):
        pass

    def stop(step):
        raise Stop

    records, record = table([*ROWS.values()] * 20), make_record("zero-out")
    geometry, law = Diagonal(smoothness=STEEP), Single.uniform(D)
    plan = Plan(
        layout=LAYOUT,
        loss=Squared(1.0),
        n_rows=60,
        epsilon=1.0,
        delta=1e-6,
        sampling=law,
        geometry=geometry,
        n_steps=40,
        neighbours="zero-out",
    )
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="zero-out")
    with pytest.raises(Stop):
        run(plan, records, record=record, callback=stop)
    assert sum(record.events.values()) == 1
    assert record.spent == pytest.approx(record.budget, rel=1e-9)


# ---- saved models


FRAME = {
    "a": np.linspace(0, 1, 300),
    "b": np.array(["x", "y", "z"] * 100),
    "c": np.array(["u", "v"] * 150),
    "y": np.array([0, 1, 1] * 100),
}


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "coordinates"},
        {"solver": "dp_cd"},
        {"sampling": "coordinates", "neighbours": "replace-one"},
    ],
)
def test_saved_models_are_verified_with_their_visits(options, tmp_path):
    pytest.importorskip("mpmath")
    columns = {key: COLUMNS[key] for key in "abc"}
    schema = Schema(columns, target=("y", Categorical([0, 1])))
    model = skdp.LogisticRegression(schema=schema, n_rows=300, **options).fit(FRAME)
    assert model.privacy_.visits
    model.save(tmp_path / "honest")
    seen = skdp.verify(tmp_path / "honest")
    assert seen.passed, str(seen)
    assert skdp.load(tmp_path / "honest").privacy_.spent == model.privacy_.spent

    def fail(change):
        shutil.copytree(tmp_path / "honest", tmp_path / "bad", dirs_exist_ok=True)
        place = tmp_path / "bad" / "privacy.json"
        record = json.loads(place.read_text("utf-8"))
        change(record["visits"][0], record)
        place.write_text(json.dumps(record), "utf-8")
        checks = {c.name: c.passed for c in skdp.verify(tmp_path / "bad").checks}
        return checks["steps that a record can take part in"] is False

    def take_part_in_fewer(run, record):
        """All that adds up is changed together."""
        run["most"] *= 0.9
        for release in record["releases"]:
            if release["presence"] < 1:
                release["presence"] = run["most"] / run["n_steps"]

    assert fail(take_part_in_fewer)
    assert fail(lambda run, record: run.update(most=run["most"] * 0.99))
    assert fail(lambda run, record: run.update(profile=[0.5] * len(run["profile"])))
    assert fail(lambda run, record: run.update(profile=run["profile"][1:]))
    assert fail(lambda run, record: record.update(visits=[]))
    assert fail(lambda run, record: run.update(n_steps=run["n_steps"] + 1))
