"""Tests of gaps that planted bugs (`tests/mutants`) revealed."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import records_of, row_of, rows_of, schema_of
from test_sensitivity import exceeds, neighbouring_tables, reached

import skdp
from skdp.audit.fits import replay, replay_look
from skdp.descent import geometry as target
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import LOSSES
from skdp.privacy import discovery
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import encode
from skdp.privacy.look import describe_finely, use_ranges
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import NEIGHBOURS, Kind, Metric, Slopes
from skdp.privacy.randomness import Randomness
from skdp.tables.batches import batches

N_ROWS = 5
ENGINES = [ReferenceEngine, CompiledEngine]


def asked_and_found(
    rows, schema, loss, neighbours, values=None, engine=ReferenceEngine
):
    """The query about the target, and the model made from its answer."""
    asked = []

    def release(total):
        asked.append(total)
        seen = (
            total.value.astype(float) if values is None else values[: total.value.size]
        )
        return Released(seen, np.full(seen.shape, 0.3), total.kind, total.query)

    found = target.release_constant(
        engine(records_of(rows, schema)), LOSSES[loss](), neighbours, N_ROWS, release
    )
    return asked, found


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_no_neighbour_moves_the_target_s_histogram_beyond_its_sensitivity(
    loss, neighbours, data
):
    schema = schema_of("plain", loss)
    tables = neighbouring_tables(
        neighbours,
        data.draw(rows_of(schema, max_size=2)),
        0,
        data.draw(row_of(schema)),
        data.draw(row_of(schema)),
    )
    (one,), (other,) = (
        asked_and_found(rows, schema, loss, neighbours)[0] for rows in tables
    )
    assert not exceeds(one, other)
    known = [w > 0 for c in records_of(tables[0], schema).chunks for w in c.weight]
    assert sum(one.value.tolist()) == sum(known)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_sensitivity_of_the_target_s_histogram_is_reached(loss, neighbours, engine):
    schema = schema_of("plain", loss)
    numeric = isinstance(schema.target_column, skdp.Numeric)
    low, high = (-2.0, 2.0) if numeric else (0, 1)
    row = {"x": 1.0, "job": 0, "weight": 1.0}
    rows = [row | {"target": low}, row | {"target": high}]
    (one,), (other,) = (
        asked_and_found(table, schema, loss, neighbours, engine=engine)[0]
        for table in neighbouring_tables(neighbours, [], 0, *rows)
    )
    assert 0.999 <= reached(one, other) <= 1.0


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_learnt_of_the_target_follows_from_the_answer_alone(loss, data):
    schema = schema_of("plain", loss)
    values = np.array(data.draw(st.lists(st.floats(-2, 9), min_size=32, max_size=32)))
    tables = [data.draw(rows_of(schema, max_size=4)) for _ in range(2)]
    # Rows that count, more or fewer of them: how many must not show.
    some = {"x": 1.0, "job": 0, "target": 1, "weight": 1.0}
    tables += [[some] * n_rows for n_rows in (2, 3, 7)]
    one, *others = (
        asked_and_found(rows, schema, loss, "zero-out", values)[1] for rows in tables
    )
    for other in others:
        assert np.array_equal(one.margins, other.margins)
        assert one.scale == other.scale


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_s_cap_is_its_own(engine):
    """Rows of very different lengths in the metric, together and one by one."""
    schema, loss = schema_of("plain", "logistic"), LOSSES["logistic"]()
    rows = [
        {"x": x, "job": job, "target": 0, "weight": 1.0}
        for x, job in [(0.0, 2), (0.001, 0), (0.1, 1), (2.0, 0), (2.0, 1)]
    ]
    stretch = np.diag([1000.0, 1.0, 1.0, 30.0, 0.01])
    metric, slopes = Metric.of(stretch, 0.5), Slopes(loss)

    def caps(some):
        (found,) = engine(records_of(some, schema)).caps(metric, slopes)
        return found.tolist()

    together = caps(rows)
    assert together == [cap for row in rows for cap in caps([row])]
    assert len(set(together)) > 2


@pytest.mark.parametrize("odd", [1e9, -1e9, 1e-9, np.inf, 0.0])
def test_a_lone_value_does_not_widen_a_range(odd):
    """Ranges follow from the noisy counts: one record in 5,000 is lost in them."""
    found = []
    for last in (3.0, odd):
        columns = {"x": np.append(np.full(5000, 3.0), last)}
        book = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
        found.append(
            discovery.release_ranges(
                [(columns, None)], ["x"], 20.0, Randomness(0), book
            )
        )
    assert found[0] == found[1] == {"x": (pytest.approx(2 * np.sqrt(2)), 4.0)}


@pytest.mark.parametrize("look", [True, False])
def test_rows_that_are_private_are_counted_by_a_release(look):
    """The number of rows that a fit works with is the one that was released."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = (X[:, 0] > 0.5).astype(int)
    given = {"neighbours": "add-remove", "delta": 1e-6, "n_steps": 2, "look": look}
    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], **given)
    planned = set()
    for _ in range(5):
        record = model.fit(X, y).privacy_
        counts = [r for r in record.transcript if r.kind in (Kind.ROW_COUNT, Kind.LOOK)]
        assert len(counts) == 1
        assert counts[0].kind == (Kind.LOOK if look else Kind.ROW_COUNT)
        assert model.plan_.n_rows == max(1, round(float(counts[0].values[-1])))
        planned.add(model.plan_.n_rows)
    assert len(planned) > 1  # noise of a standard deviation of about forty rows


@pytest.mark.parametrize(
    "model",
    [
        skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1]),
        skdp.LinearRegression(bounds=(0, 1), target_bounds=(0, 1)),
        skdp.LogisticRegression(),  # ranges are found
    ],
    ids=["classes", "numbers", "ranges"],
)
def test_every_number_in_a_transcript_is_noisy(model):
    """Fits of one table share hardly a released number."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 3))
    y = (X[:, 0] > 0.5).astype(int)
    model.set_params(n_steps=2)
    fits = [model.fit(X, y).privacy_.transcript for _ in range(8)]
    # What a release finds decides whether a finer look follows, and of which bins.
    same = defaultdict(list)
    for fit in fits:
        seen = Counter()
        for one in fit:
            same[one.query, one.values.shape, seen[one.query]].append(one)
            seen[one.query] += 1
    same = [releases for releases in same.values() if len(releases) >= 6]
    assert len(same) >= 3
    assert sum(map(len, same)) >= 0.75 * sum(map(len, fits))
    for releases in same:
        spread = np.std([r.values for r in releases], axis=0)
        assert np.mean(spread == 0) <= 0.1, releases[0].query
        assert np.mean(spread / releases[0].noise_std) > 0.2, releases[0].query


@pytest.mark.parametrize("sampling", ["full", "columns"])
def test_a_sum_of_zero_is_released_as_any_other(sampling):
    """Records that count for nothing change neither the queries nor the charges."""
    X = np.random.default_rng(0).uniform(size=(50, 3))
    y, settings = (X[:, 0] > 0.5).astype(int), {"n_steps": 4, "random_state": 0}
    model = skdp.LogisticRegression(
        bounds=(0, 1), classes=[0, 1], sampling=sampling, **settings
    )
    books = [
        model.fit(X, y, sample_weight=weight).privacy_
        for weight in (np.zeros(50), np.ones(50))
    ]
    zeros, ones = ([r.query for r in book.transcript] for book in books)
    assert zeros == ones
    assert books[0].events == books[1].events


@pytest.mark.parametrize("geometry", ["matrix", "diagonal"])
@pytest.mark.parametrize("kind", [skdp.LogisticRegression, skdp.LinearRegression])
def test_a_model_follows_from_its_transcript_whatever_the_table(kind, geometry):
    """The fit of one table, replayed on another that has nothing to do with it."""
    rng = np.random.default_rng(0)
    classes = kind is skdp.LogisticRegression
    target = skdp.Categorical([0, 1]) if classes else skdp.Numeric(0, 1)
    schema = skdp.Schema({"a": skdp.Numeric(0, 1), "b": skdp.Numeric(0, 1)}, target)
    model = kind(
        schema=schema,
        geometry=geometry,
        sampling="full",
        n_steps=4,
        epsilon=8.0,
        n_rows=3000,
    )
    model.fit(rng.uniform(size=(3000, 2)), rng.integers(0, 2, 3000))
    cells = rng.uniform(size=(3000, 2)) ** 9
    used, transcript = schema, model.privacy_.transcript
    if model.profile_ is not None:
        finely = describe_finely(schema)
        seen = encode(batches(cells, finely, target=np.ones(3000)), finely)
        profile, looked = replay_look(seen, schema, transcript, "add-remove", 3000)
        used, transcript = use_ranges(profile), transcript[len(looked) :]
    assert used == model.schema_
    records = encode(batches(cells, used, target=np.ones(3000)), used)
    weights, _ = replay(model.plan_, [records], transcript)
    np.testing.assert_array_equal(weights, model.weights_)
