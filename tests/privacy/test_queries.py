"""Sums against Python's integers, for every order, cut and split of the rows."""

import itertools
import math
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import (
    COLUMNS,
    ONE,
    clipped_features,
    exact_caps,
    exact_gradient,
    exact_images,
    exact_slopes,
    features,
    records_of,
    rows_of,
    schema_of,
    sets_of,
    weight_units,
    weights_of,
)

from skdp.descent.matrix import fill_gram
from skdp.engines import reference
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import LOSSES
from skdp.privacy import grid, queries
from skdp.privacy.grid import WeightGrid
from skdp.privacy.queries import NEIGHBOURS, GramPattern, Metric, Slopes

MAX_WEIGHTS = (1.0, 0.25, 2.5)


@dataclass(frozen=True, eq=False)
class Watched(Slopes):
    """Slopes that keep what each piece of rows was given."""

    seen: list = field(default_factory=list)

    def units(self, margin, i, chunk, at):
        units = super().units(margin, i, chunk, at)
        self.seen.extend(units.tolist())
        return units


@dataclass(frozen=True)
class Case:
    """A drawn table and what to ask of it."""

    schema: object
    rows: list
    cuts: list
    weights: np.ndarray
    at: np.ndarray
    slopes: Slopes
    intercept: bool

    def records(self, order=None, cuts=None):
        rows = self.rows if order is None else [self.rows[i] for i in order]
        cuts = self.cuts if cuts is None else cuts
        return records_of(
            rows,
            self.schema,
            cuts=[min(cut, len(rows)) for cut in cuts],
            intercept=self.intercept,
            max_weight=self.slopes.max_weight,
        )


@st.composite
def cases(draw, loss, kind=Slopes):
    schema = schema_of(draw(st.sampled_from(list(COLUMNS))), loss)
    rows = draw(rows_of(schema, min_size=1, max_size=7))
    intercept = draw(st.booleans())
    layout = schema.layout(intercept)
    slopes = kind(LOSSES[loss](), draw(st.sampled_from(MAX_WEIGHTS)))
    return Case(
        schema=schema,
        rows=rows,
        cuts=draw(st.lists(st.integers(0, len(rows)), max_size=3)),
        weights=draw(weights_of(layout, slopes.loss.n_outputs)),
        at=draw(sets_of(layout)),
        slopes=slopes,
        intercept=intercept,
    )


def metric_of(d, seed, radius):
    """A full matrix, or a wide or tall one: rows need not be as many as columns."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((int(rng.integers(1, d + 2)), d))
    return Metric.of(matrix * 10.0 ** rng.integers(-3, 4), radius)


@pytest.fixture(params=[1 << 14, 2])
def piece(request, monkeypatch):
    """Rows that the engine writes out at a time."""
    monkeypatch.setattr(reference, "ROWS", request.param)


def reordered(case, data):
    order = data.draw(st.permutations(range(len(case.rows))))
    cuts = data.draw(st.lists(st.integers(0, len(case.rows)), max_size=3))
    return case.records(order, cuts)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_gradient_is_the_sum_in_integers_in_any_order_and_split(loss, data):
    case = data.draw(cases(loss))
    wanted = exact_gradient(case.records(), case.slopes, case.weights, case.at)
    shape = np.ones(len(case.at))
    for records in (case.records(), reordered(case, data)):
        total = queries.gradient(
            ReferenceEngine(records),
            case.slopes,
            case.weights,
            case.at,
            "replace-one",
            shape,
        )
        assert total.value.tolist() == wanted
        assert all(type(value) is int for value in total.value.ravel())
    assert Fraction(total.unit) == Fraction(case.slopes.grid.unit) / ONE


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_mapped_gradient_is_the_sum_in_integers_in_any_order_and_split(loss, data):
    case = data.draw(cases(loss))
    d = case.records().layout.n_features
    radius = data.draw(st.sampled_from([1e-4, 0.03, 1.0, 50.0, 1e6]))
    metric = metric_of(d, data.draw(st.integers(0, 99)), radius)
    records = case.records()
    capped = queries.cap_slopes(ReferenceEngine(records), case.slopes, metric)
    caps = [int(cap) for chunk in capped.caps for cap in chunk]
    exact = exact_caps(records, metric, case.slopes)
    assert all(e - 1 <= cap <= e for cap, e in zip(caps, exact, strict=True))
    unit = Fraction(case.slopes.grid.unit) / ONE / Fraction(2) ** metric.bits
    for cap, image in zip(caps, exact_images(records, metric), strict=True):
        assert cap**2 * sum(u * u for u in image) * unit**2 <= Fraction(radius) ** 2
    total = exact_gradient(records, case.slopes, case.weights, range(d), caps)
    wanted = [
        [sum(int(b) * t[k] for b, t in zip(row, total, strict=True)) for k in range(n)]
        for n in [case.weights.shape[1]]
        for row in metric.units.tolist()
    ]
    for table in (records, reordered(case, data)):
        engine = ReferenceEngine(table)
        slopes = queries.cap_slopes(engine, case.slopes, metric)
        got = queries.mapped_gradient(engine, slopes, case.weights, "replace-one")
        assert got.value.tolist() == wanted
        assert Fraction(got.unit) == unit


@pytest.mark.parametrize("power", [1, 5, 12])
def test_caps_hold_where_the_root_of_a_norm_is_rounded_down(power):
    """The float √3 is below √3: a radius of 2ᵖ of its own has no room for 2ᵖ units."""
    slopes, cap = Slopes(LOSSES["logistic"]()), 1 << power
    metric = Metric(np.eye(3), 0, cap * math.sqrt(3.0) * slopes.grid.unit)
    (got,) = metric.caps(np.full((1, 3), float(ONE)), slopes).tolist()
    assert 3 * Fraction(got * slopes.grid.unit) ** 2 <= Fraction(metric.radius) ** 2
    assert got == cap - 1


@given(st.data())
@settings(deadline=None)
def test_the_matrix_product_is_exact_for_integers_of_any_size(data):
    d, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    entry = st.integers(-(2**24) + 1, 2**24 - 1)
    most = 2 ** data.draw(st.sampled_from([10, 62, 63, 64, 200]))
    big = st.integers(-most, most)
    matrix = [[data.draw(entry) for _ in range(d)] for _ in range(2)]
    total = [[data.draw(big) for _ in range(k)] for _ in range(d)]
    got = grid.multiply(np.array(matrix, float), np.array(total, object))
    assert got.tolist() == [
        [sum(row[j] * total[j][c] for j in range(d)) for c in range(k)]
        for row in matrix
    ]


@pytest.mark.parametrize("entry", [2**63 - 1, -(2**63), 2**300 - 1, 1 - 2**300])
def test_the_matrix_product_is_exact_at_its_largest_entries(entry):
    for d in (1, 2, 3, 4, 7, 8, 127, 128, 1000):
        matrix = np.full((1, d), 2.0**24 - 1)
        total = np.full((d, 1), entry, dtype=object)
        wanted = d * (2**24 - 1) * entry
        assert grid.multiply(matrix, total).tolist() == [[wanted]]


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_gram_and_counts_are_the_sums_in_integers_in_any_order_and_split(name, data):
    schema = schema_of(name, "softmax")
    rows = data.draw(rows_of(schema, min_size=1, max_size=7))
    x = clipped_features(records_of(rows, schema))
    d = range(len(x[0]))
    wanted = [[sum(row[i] * row[j] for row in x) for j in d] for i in d]
    order = data.draw(st.permutations(rows))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
    records = records_of(order, schema, cuts=cuts)
    engine = ReferenceEngine(records)
    assert engine.gram().tolist() == wanted
    targets = [int(t) for chunk in records.chunks for t in chunk.target]
    known = [w > 0 for chunk in records.chunks for w in chunk.weight]
    for n_classes in (1, 2, 3, 5):
        got = queries.counts(engine, n_classes, "add-remove").value.tolist()
        last = n_classes - 1
        assert got == [
            sum(
                min(t, last) == c and (k or n_classes == 1)
                for t, k in zip(targets, known, strict=True)
            )
            for c in range(n_classes)
        ]
        assert sum(got) == (len(rows) if n_classes == 1 else sum(known))


# --------------------------------------------------------- each row's slope by itself


def slopes_by_row(case, order, cuts, weights, metric=None):
    """Integer slopes of the rows, by their place in the table that was drawn."""
    slopes = replace(case.slopes, seen=[])
    engine = ReferenceEngine(case.records(order, cuts))
    at = np.array([0])
    if metric is not None:
        slopes = queries.cap_slopes(engine, slopes, metric)
    result = []
    for w in weights:  # margins are moved, not computed anew
        slopes.seen.clear()
        queries.gradient(engine, slopes, w, at, "replace-one", np.ones(1))
        result.append(dict(zip(order, list(slopes.seen), strict=True)))
    return result


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_no_other_row_changes_a_bit_of_a_rows_slope(loss, data):
    """Permuting, dropping and cutting the rows, one after the other and all at once."""
    case = data.draw(cases(loss, Watched))
    n, layout = len(case.rows), case.records().layout
    other = data.draw(weights_of(layout, case.slopes.loss.n_outputs))
    weights = [case.weights, other, case.weights]
    metric = data.draw(st.sampled_from([None, metric_of(layout.n_features, 3, 0.1)]))
    whole = slopes_by_row(case, range(n), [], weights, metric)
    alone = [slopes_by_row(case, [i], [], weights, metric) for i in range(n)]
    for step in range(3):
        assert whole[step] == {i: alone[i][step][i] for i in range(n)}
    assert whole[0] == whole[2]
    order = data.draw(st.lists(st.sampled_from(range(n)), unique=True, min_size=1))
    cuts = data.draw(st.lists(st.integers(0, len(order)), max_size=3))
    some = slopes_by_row(case, order, cuts, weights, metric)
    for step in range(3):
        assert some[step] == {i: whole[step][i] for i in order}
    if metric is None:
        exact = exact_slopes(case.records(range(n), []), case.slopes, other)
        assert list(whole[1].values()) == exact


@pytest.mark.parametrize("loss", LOSSES)
def test_a_thousand_rows_have_the_slopes_that_they_have_alone(loss):
    """Vector units take rows by fours and eights; the remainder must not differ."""
    rng = np.random.default_rng(1)
    slopes = Slopes(LOSSES[loss]())
    margin = rng.standard_normal((1003, slopes.loss.n_outputs)) * 4
    target = rng.integers(0, 2, 1003)
    whole = slopes.loss.slope(margin, target)
    alone = [
        slopes.loss.slope(margin[i : i + 1], target[i : i + 1]) for i in range(1003)
    ]
    assert np.array_equal(whole, np.concatenate(alone))
    strided = slopes.loss.slope(np.repeat(margin, 3, 0)[::3], np.repeat(target, 3)[::3])
    assert np.array_equal(whole, strided)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_moved_margins_equal_fresh_ones_after_many_moves(n_outputs):
    schema = schema_of("mixed", "softmax")
    rng = np.random.default_rng(n_outputs)
    rows = [
        {
            "x": rng.uniform(0, 2),
            "log": rng.choice([rng.uniform(0, 1e5), math.nan]),
            "bins": rng.uniform(-3, 3),
            "job": int(rng.integers(-1, 4)),
            "kin": int(rng.integers(-1, 8)),
            "text": rng.standard_normal(3).tolist(),
            "target": int(rng.integers(0, 3)),
            "weight": 1.0,
        }
        for _ in range(50)
    ]
    records = records_of(rows, schema, cuts=[13, 20])
    d = records.layout.n_features
    moved, weights = ReferenceEngine(records), np.zeros((d, n_outputs))
    grid = WeightGrid.of(records.layout)
    for step in range(300):
        at = rng.choice(d, int(rng.integers(1, d + 1)), replace=False)
        size = rng.choice([1e-6, 1.0, 1e3, 1e6])
        weights[at] = size * rng.standard_normal((len(at), n_outputs))
        moved._move_margins(grid.units(weights))
        if step % 50 == 49:
            fresh = ReferenceEngine(records)
            fresh._move_margins(grid.units(weights))
            for one, other in zip(moved._margins, fresh._margins, strict=True):
                assert np.array_equal(one, other)
    w = weight_units(weights, records.layout)
    exact = [
        [sum(x[j] * w[j][k] for j in range(d)) for k in range(n_outputs)]
        for x in features(records)
    ]
    assert [[int(m) for m in row] for row in np.concatenate(moved._margins)] == exact


def test_an_engine_takes_weights_of_another_number_of_outputs():
    records = records_of(
        [{"x": 1.0, "job": 0, "target": 1, "weight": 1.0}], schema_of("plain")
    )
    engine = ReferenceEngine(records)
    for loss in ("softmax", "logistic", "softmax"):
        slopes = Slopes(LOSSES[loss]())
        weights = np.ones((records.layout.n_features, slopes.loss.n_outputs))
        at = np.arange(records.layout.n_features)
        got = queries.gradient(
            engine, slopes, weights, at, "zero-out", np.ones(len(at))
        )
        assert got.value.tolist() == exact_gradient(records, slopes, weights, at)


# ----------------------------------------------------------------------------- Gram


def patterns(layout):
    """The released entries of a Gram matrix, under each relation."""
    return [(relation, GramPattern.of(layout, relation)) for relation in NEIGHBOURS]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_the_entries_released_make_the_whole_gram_matrix(name, intercept, data):
    schema = schema_of(name)
    rows = data.draw(rows_of(schema, min_size=1, max_size=6))
    records = records_of(rows, schema, intercept=intercept)
    x = clipped_features(records)
    d = range(len(x[0]))
    wanted = [[sum(row[i] * row[j] for row in x) for j in d] for i in d]
    for neighbours, pattern in patterns(records.layout):
        total = queries.gram(ReferenceEngine(records), pattern)
        assert total.unit == 2.0**-30
        values = total.value.astype(float) * total.unit
        full = fill_gram(records.layout, pattern, values, float(len(rows)))
        got = [[Fraction(v) * 2**28 for v in row] for row in full.tolist()]
        assert got == wanted, neighbours


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_noise_scales_add_up_to_the_frobenius_norm(name, intercept, data):
    """Σ D²/shape² over what is released is ‖xxᵀ - x'x'ᵀ‖², less D² of a public n.

    Here x is multiplied by the scales of its groups.
    """
    schema = schema_of(name)
    rows = data.draw(rows_of(schema, min_size=2, max_size=2))
    one, other = clipped_features(records_of(rows, schema, intercept=intercept))
    d, layout = range(len(one)), schema.layout(intercept)
    scale = [Fraction(s) for s in layout.scales.tolist()]
    for neighbours, pattern in patterns(layout):
        if neighbours != "replace-one":
            other = [0] * len(one)
        parts = {(i, j): one[i] * one[j] - other[i] * other[j] for i in d for j in d}
        times = [Fraction(round(2**16 / s**2), 2**16) for s in pattern.shape.tolist()]
        assert pattern.shape == pytest.approx([t**-0.5 for t in times], rel=1e-15)
        entries = zip(
            pattern.rows.tolist(), pattern.columns.tolist(), times, strict=True
        )
        released = sum(t * parts[i, j] ** 2 for i, j, t in entries)
        last = (d[-1], d[-1])
        public = parts[last] ** 2 if intercept and neighbours != "add-remove" else 0
        scaled = (scale[i] * scale[j] * part for (i, j), part in parts.items())
        assert released == sum(part**2 for part in scaled) - public, neighbours


def corners(column):
    """Cells that reach every corner of a column's part of a row."""
    if hasattr(column, "names"):
        axes = np.eye(len(column.names)) * column.norm
        diagonal = column.norm / (2.0 + np.arange(len(column.names)))
        return [*axes.tolist(), diagonal.tolist()]
    if hasattr(column, "levels"):
        return [-1, 0, 1, 2, 5, 7]
    steps = np.linspace(column.low, column.high, 2 * (column.bins or 1) + 1)
    return [*steps.tolist(), math.nan]


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", ["codes", "plain", "text"])
def test_only_entries_that_can_differ_are_released_and_none_of_them_twice(
    name, intercept, neighbours
):
    schema = schema_of(name)
    pattern = GramPattern.of(schema.layout(intercept), neighbours)
    kinds = [corners(column) for column in schema.columns.values()]
    rows = [
        dict(zip(schema.columns, cells, strict=True)) | {"target": 0, "weight": 1.0}
        for cells in itertools.product(*kinds)
    ]
    x = np.array(features(records_of(rows, schema, intercept=intercept)), dtype=object)
    if neighbours != "replace-one":
        x = np.vstack([x, np.zeros_like(x[:1])])
    parts = [
        tuple(x[:, i] * x[:, j])
        for i, j in zip(pattern.rows, pattern.columns, strict=True)
    ]
    assert all(len(set(part)) > 1 for part in parts), "an entry that never differs"
    assert len(set(parts)) == len(parts), "two entries that are always equal"


# ------------------------------------------------------------------------- refusals


def test_a_mapped_gradient_needs_capped_slopes():
    schema = schema_of("plain")
    engine = ReferenceEngine(records_of([], schema))
    slopes = Slopes(LOSSES["logistic"]())
    with pytest.raises(TypeError, match=r"^A mapped gradient .*queries\.cap_slopes\.$"):
        queries.mapped_gradient(engine, slopes, np.zeros((5, 1)), "replace-one")


@pytest.mark.parametrize(
    ("matrix", "radius", "message"),
    [
        (np.zeros((2, 2)), 1.0, "Metric requires a finite, nonzero matrix."),
        (np.full((2, 2), math.nan), 1.0, "Metric requires a finite, nonzero matrix"),
        (np.array([[1.0, math.inf]]), 1.0, "Metric requires a finite, nonzero matrix"),
        (np.eye(2), 0.0, "radius must be in (0, 1e99), got 0.0."),
        (np.eye(2), -1.0, "radius must be in (0, 1e99), got -1.0."),
        (np.eye(2), math.inf, "radius must be in (0, 1e99), got inf."),
        (np.eye(2), math.nan, "radius must be in (0, 1e99), got nan."),
    ],
)
def test_a_metric_is_finite(matrix, radius, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        Metric.of(matrix, radius)


@pytest.mark.parametrize("n_batches", [0, 1])
def test_sums_over_no_rows_are_zero(n_batches):
    schema = schema_of("mixed", "softmax")
    records = records_of([], schema)
    records = replace(records, chunks=records.chunks[:n_batches])
    engine, d = ReferenceEngine(records), records.layout.n_features
    slopes = queries.cap_slopes(
        engine, Slopes(LOSSES["softmax"]()), metric_of(d, 0, 1.0)
    )
    weights, at = np.ones((d, 3)), np.arange(d)
    totals = [
        queries.gradient(engine, slopes, weights, at, "add-remove", np.ones(d)),
        queries.mapped_gradient(engine, slopes, weights, "add-remove"),
        queries.gram(engine, GramPattern.of(records.layout, "add-remove")),
        queries.counts(engine, 3, "add-remove"),
    ]
    for total in totals:
        assert total.value.size
        assert not total.value.any()
        assert total.sensitivity > 0
