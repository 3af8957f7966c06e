"""All rows of a person together obey the bound of one record, in integers."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import (
    COLUMNS,
    batch_of,
    rows_of,
    schema_of,
    sets_of,
    squared_difference,
    weights_of,
)

from skdp.descent.geometry import release_constant
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import LOSSES, Logistic, Squared
from skdp.privacy import discovery, grid, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.mechanism import Released
from skdp.privacy.persons import RowCounts, divide_caps, find_buckets
from skdp.privacy.queries import NEIGHBOURS, GramPattern, Metric, Slopes
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema

#: How often each of a person's rows is repeated.
TIMES = (1, 2, 3, 7, 40)


def ids_of(persons):
    return Coded(np.array(persons, np.int64), list(range(100)))


def count(persons, least=1):
    counts = RowCounts(least)
    for part in np.array_split(persons, 3):  # however the table is read
        counts.add(ids_of(part))
    return counts


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64])
@pytest.mark.parametrize("n", [1, 127, 128, 200, 40_000])
def test_rows_without_an_id_count_for_nobody_whatever_the_type_of_codes(kind, n):
    """-1 and codes beyond the last id must not wrap around to another person's."""
    known = np.arange(min(n, np.iinfo(kind).max + 1)).astype(kind)
    codes = np.concatenate([known, known[:1], np.array([-1, -5, -128], kind)])
    ids = Coded(codes, [f"p{i}" for i in range(n)])
    counts = RowCounts()
    counts.add(ids)
    divisors = counts.find_divisors(ids).tolist()
    assert divisors == [2, *[1] * (len(known) - 1), 2, 0, 0, 0]


def engine_of(persons, schema, intercept=True, most=1.0, least=1):
    """A reference engine of persons, each a list of rows."""
    rows = [row for person in persons for row in person]
    whose = [i for i, person in enumerate(persons) for _ in person]
    divisor = count(whose, least).find_divisors(ids_of(whose))
    batch = replace(batch_of(rows, schema), divisor=divisor)
    schema = replace(schema, unit="id")
    return ReferenceEngine(
        encode([batch], schema, intercept=intercept, max_weight=most)
    )


@st.composite
def neighbouring_persons(draw, schema, neighbours):
    """Tables that differ in one person with all rows, as lists of persons."""

    def person():
        rows = draw(rows_of(schema, min_size=1, max_size=3))
        return rows * draw(st.sampled_from(TIMES))

    others = [person() for _ in range(draw(st.integers(0, 2)))]
    table = [person(), *others]
    return table, [person(), *others] if neighbours == "replace-one" else others


def within(one, other):
    return squared_difference(one, other) <= Fraction(one.sensitivity) ** 2


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_no_person_moves_a_gradient_beyond_its_sensitivity(loss, neighbours, data):
    schema = schema_of(data.draw(st.sampled_from(list(COLUMNS))), loss)
    slopes, layout = Slopes(LOSSES[loss](), 2.5), schema.layout()
    tables = data.draw(neighbouring_persons(schema, neighbours))
    weights = data.draw(weights_of(layout, slopes.loss.n_outputs))
    at, least = data.draw(sets_of(layout)), data.draw(st.sampled_from([1, 5]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    d, radius = layout.n_features, data.draw(st.sampled_from([1e-3, 1.0, 20.0]))
    metric = Metric.of(rng.standard_normal((d, d)), radius)
    shape = rng.uniform(0.5, 2.0, len(at))
    engines = [engine_of(table, schema, most=2.5, least=least) for table in tables]
    plain, mapped = [], []
    for engine in engines:
        plain.append(queries.gradient(engine, slopes, weights, at, neighbours, shape))
        capped = queries.cap_slopes(engine, slopes, metric)
        mapped.append(queries.mapped_gradient(engine, capped, weights, neighbours))
        # A gradient of slopes that were capped must not be bounded by rows either.
        queries.gradient(engine, capped, weights, at, neighbours, shape)
    assert within(*plain)
    assert within(*mapped)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_no_person_moves_gram_or_counts_beyond_their_sensitivity(
    name, neighbours, data
):
    schema = schema_of(name, "softmax")
    intercept, n_classes = data.draw(st.booleans()), data.draw(st.integers(1, 4))
    tables = data.draw(neighbouring_persons(schema, neighbours))
    engines = [engine_of(table, schema, intercept) for table in tables]
    layout = engines[0].records.layout
    for centred in (False, True):
        pattern = GramPattern.of(layout, neighbours, centred)
        assert within(*(queries.gram(engine, pattern) for engine in engines))
    assert within(*(queries.counts(e, n_classes, neighbours) for e in engines))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_number_of_persons_in_the_gram_matrix_is_released(neighbours):
    """Shares are rounded down, so their sum is not the public number of persons."""
    layout = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 1), unit="id").layout()
    pattern = GramPattern.of(layout, neighbours)
    last = layout.n_features - 1
    assert (last, last) in zip(
        pattern.rows.tolist(), pattern.columns.tolist(), strict=True
    )


@pytest.mark.parametrize("m", [1, 3, 1000, 10**6])
def test_a_person_with_a_million_rows_reaches_the_bound_and_not_more(m):
    schema = Schema(
        {"x": Numeric(0, 1), "c": Categorical(["a", "b"])},
        target=Categorical([0, 1]),
        unit="id",
    )
    batch = Batch(
        columns={"x": np.ones(m), "c": Coded(np.zeros(m, int), ["a"])},
        target=Coded(np.ones(m, int), [0, 1]),
        divisor=np.full(m, m),
    )
    engine = CompiledEngine(encode([batch], schema))
    at, weights = np.arange(4), np.full((4, 1), -50.0)
    slopes, shape = Slopes(Logistic()), np.ones(4)
    metric = Metric.of(np.eye(4), 0.7)
    pattern = GramPattern.of(engine.records.layout, "add-remove")
    asked = [
        queries.gradient(engine, slopes, weights, at, "add-remove", shape),
        queries.mapped_gradient(
            engine, queries.cap_slopes(engine, slopes, metric), weights, "add-remove"
        ),
        queries.counts(engine, 2, "add-remove"),
        queries.gram(engine, pattern),
    ]
    least = 0.0 if m > 1000 else 1.0 - 4 * m / 2**grid.UNIT_BITS
    for total in asked:
        empty = replace(total, value=total.value * 0)
        reached = float(squared_difference(total, empty)) ** 0.5 / total.sensitivity
        assert least <= reached <= 1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-1, 6), max_size=60), st.integers(1, 9), st.data())
def test_shares_depend_on_a_persons_own_rows_and_add_up_to_at_most_one(
    persons, least, data
):
    counts = count(persons, least)
    order = data.draw(st.permutations(range(len(persons))))
    divisors = counts.find_divisors(ids_of(persons))
    again = count([persons[i] for i in order], least)
    assert (again.find_divisors(ids_of(persons)) == divisors).all()
    assert len(counts) == len(set(persons) - {-1})
    for person in set(persons):
        own = divisors[np.array(persons) == person]
        rows = persons.count(person)
        assert set(own.tolist()) == {0 if person == -1 else max(rows, least)}
        shares = [Fraction(1, m) for m in own.tolist() if m]
        assert sum(shares) <= 1


@pytest.mark.parametrize("m", [2**31 - 1, 2**31, 2**40])
def test_any_number_of_rows_divides_caps(m):
    """An error would tell of a person with 2³¹ rows."""
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 1), unit="id")
    one = np.ones(1)
    batch = Batch(columns={"x": one}, target=one, divisor=np.array([m]))
    records = encode([batch], schema)
    (caps,) = divide_caps(records, [np.array([2**20], np.int32)])
    assert caps.tolist() == [0]


def test_rows_without_an_id_are_not_encoded():
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 1), unit="id")
    batch = Batch(
        columns={"x": np.ones(3)}, target=np.ones(3), divisor=np.array([0, 2, 2])
    )
    records = encode([batch], schema)
    assert records.count() == 1
    assert sum(len(chunk.target) for chunk in records.chunks) == 2
    with pytest.raises(ValueError, match="must have divisors"):
        encode([replace(batch, divisor=None)], schema)


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_constant_model_of_a_fit_is_bounded_by_persons(loss, neighbours):
    schema = schema_of("plain", "squared" if loss.kind == "squared" else "logistic")
    row = {"x": 1.0, "job": 0, "target": 0, "weight": 1.0}
    engine, asked = engine_of([[row] * 7, [row]], schema), []

    def release(total):
        asked.append(total)
        return Released(np.ones(total.value.shape), np.ones(1), total.kind, total.query)

    release_constant(engine, loss, neighbours, 2, release)
    assert sum(asked[0].value) * Fraction(asked[0].unit) <= 2
    assert float(sum(asked[0].value) * Fraction(asked[0].unit)) > 1.99


# ------------------------------------------------------------------------ discovery


def record_of(neighbours="add-remove"):
    return PrivacyRecord(
        epsilon=1.0, delta=1e-2, neighbours=neighbours, reserved_delta=2e-3, unit="id"
    )


def captured(monkeypatch):
    """The sums that are about to be released."""
    asked, real = [], discovery.release
    monkeypatch.setattr(
        discovery,
        "release",
        lambda total, *rest: asked.append(total) or real(total, *rest),
    )
    return asked


@pytest.mark.parametrize("m", [1, 7, 3000])
def test_a_person_moves_ranges_and_categories_by_at_most_one(m, monkeypatch):
    asked = captured(monkeypatch)
    names = [str(i) for i in range(m)]
    cells = {"x": np.arange(m) * 1.0, "y": np.ones(m)}
    levels = {"x": Coded(np.arange(m), names), "y": Coded(np.zeros(m, int), ["a"])}
    own, noise = np.full(m, m), Randomness(0)
    discovery.release_ranges_and_texts(
        [(cells, own)], ["x", "y"], 5.0, noise, record_of(), True
    )
    discovery.release_levels(
        [(levels, own)], ["x", "y"], 5.0, 1e-8, noise, record_of(), True
    )
    for total in asked:
        square = sum(
            (Fraction(v) * Fraction(total.unit)) ** 2 for v in total.value.flat
        )
        assert square <= Fraction(total.sensitivity) ** 2
        columns = total.value if total.value.ndim == 2 else [total.value[:-1]]
        for column in columns:
            assert sum(column) * Fraction(total.unit) <= 1


def test_many_rare_categories_of_one_person_do_not_show():
    """With m categories of count 1/m each, one of them is shown with delta at most."""
    std, delta, m = 10.0, 0.2, discovery.LEVEL_PARTS
    threshold = discovery.compute_threshold(std, delta, m)
    rng = np.random.default_rng(0)
    shown = [
        (1.0 / m + std * rng.standard_normal(m) > threshold).any() for _ in range(400)
    ]
    assert np.mean(shown) < delta
    alone = discovery.compute_threshold(std, delta)
    naive = [(1.0 / m + std * rng.standard_normal(m) > alone).any() for _ in range(20)]
    assert all(naive)  # the threshold for one record would show one every time


def test_rare_categories_of_one_person_are_not_released():
    m = discovery.LEVEL_PARTS
    levels = {"x": Coded(np.arange(m), [str(i) for i in range(m)])}
    for seed in range(5):
        found = discovery.release_levels(
            *([(levels, np.full(m, m))], ["x"], 9.0, 1e-3),
            *(Randomness(seed), record_of(), True),
        )
        assert found == {"x": []}


def test_a_person_is_charged_for_all_draws_that_may_differ():
    record = record_of("replace-one")
    levels = {"x": Coded(np.zeros(3, int), ["a"])}
    rows = [(levels, np.full(3, 3))]
    discovery.release_levels(rows, ["x"], 9.0, 1e-8, Randomness(0), record, True)
    (event,) = record.events
    assert event.n_draws == 2 * discovery.LEVEL_PARTS


def test_only_ids_of_exact_types_are_hashed():
    """Equal strings of other types could be written differently."""
    assert find_buckets(["7"], 1 << 60) != find_buckets([7], 1 << 60)
    assert find_buckets([("a", "bc")], 1 << 60) != find_buckets([("ab", "c")], 1 << 60)
    for one in (np.str_("a"), np.int64(7), ("a", np.str_("b")), 7.0, None):
        with pytest.raises(TypeError, match="must be an integer, a string or"):
            find_buckets([one], 5)
