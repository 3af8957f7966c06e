"""Encoding: every bound in integers, and each row by itself."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import (
    COLUMNS,
    MIXED,
    NUMERIC,
    ONE,
    WORDS,
    batch_of,
    codes,
    features,
    hostile,
    read_by,
    records_of,
    rows_of,
    schema_of,
)

from skdp.privacy import grid
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema, Vector, level_key

TARGETS = ["logistic", NUMERIC[0]]
max_weights = st.sampled_from([1.0, 2.5, 0.25, 2.0**-20, 1e3])


def rows_of_records(records):
    """All that is stored about each row, bit for bit."""
    return [
        (
            tuple(part[i].tobytes() for part in chunk.parts),
            chunk.target[i].tobytes(),
            chunk.weight[i].tobytes(),
        )
        for chunk in records.chunks
        for i in range(len(chunk.target))
    ]


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_bound_holds_in_integers_for_hostile_cells(name, loss, data):
    schema = schema_of(name, loss)
    rows = data.draw(rows_of(schema, min_size=1, max_size=6))
    most = data.draw(max_weights)
    records = records_of(rows, schema, max_weight=most)
    layout = records.layout
    for x in features(records):
        for group in layout.groups:
            part = x[group.start : group.start + group.width]
            assert sum(k * k for k in part) <= ONE * ONE
            assert group.signed or min(part) >= 0
        if schema.row_norm is not None:
            inside = sum(k * k for k in x[:-1])  # the intercept is last
            assert inside <= Fraction(schema.row_norm) ** 2 * ONE * ONE
    (chunk,) = records.chunks
    assert all(0 <= Fraction(float(w)) <= Fraction(most) for w in chunk.weight)
    top = ONE if loss in NUMERIC else len(schema.target_column.levels) - 1
    assert all(0 <= int(target) <= top for target in chunk.target)


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_row_is_encoded_from_its_own_cells_alone(name, data):
    """Drop, permute, duplicate, cut: no other row changes a bit of this one."""
    schema = schema_of(name, data.draw(st.sampled_from(TARGETS)))
    rows = data.draw(rows_of(schema, min_size=2, max_size=8))
    alone = [rows_of_records(records_of([row], schema))[0] for row in rows]
    order = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1))
    cuts = data.draw(st.lists(st.integers(0, len(order))))
    table = records_of([rows[i] for i in order], schema, cuts=cuts)
    assert rows_of_records(table) == [alone[i] for i in order]


def random_rows(schema, n, seed=0):
    rng = np.random.default_rng(seed)

    def cells(column):
        if isinstance(column, Categorical):
            return rng.integers(-1, len(WORDS) + 1, n).tolist()
        if isinstance(column, Vector):
            return rng.standard_normal((n, len(column.names))).tolist()
        return (rng.standard_normal(n) * column.high).tolist()

    columns = {key: cells(column) for key, column in read_by(schema)}
    columns |= {"target": cells(schema.target_column)}
    columns |= {"weight": rng.uniform(-1, 2, n).tolist()}
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_neither_length_nor_memory_layout_enters_the_encoding(name):
    schema = schema_of(name, "squared")
    rows = random_rows(schema, 1003)
    whole = batch_of(rows, schema)
    wanted = rows_of_records(encode([whole], schema))

    def view(cells, change):
        if isinstance(cells, Coded):
            return replace(cells, codes=change(cells.codes))
        return change(cells)

    def laid_out(change):
        return Batch(
            columns={key: view(cells, change) for key, cells in whole.columns.items()},
            target=view(whole.target, change),
            weight=change(whole.weight),
        )

    def strided(cells):
        return np.repeat(np.repeat(cells, 3, axis=0), 2, axis=-1)[::3, ..., ::2]

    changes = {
        "F": np.asfortranarray,
        "backwards": lambda cells: cells[::-1].copy()[::-1],
        "rows": lambda cells: np.repeat(cells, 3, axis=0)[::3],
        "columns": lambda c: strided(c) if c.ndim == 2 else np.repeat(c, 2)[::2],
    }
    for change in changes.values():
        assert rows_of_records(encode([laid_out(change)], schema)) == wanted
    for size in (1, 2, 7, 16):  # vector units have remainders of many lengths
        parts = range(0, len(rows), size)
        batches = [batch_of(rows[i : i + size], schema) for i in parts]
        assert rows_of_records(encode(batches, schema)) == wanted


# ------------------------------------------------------- cells, from the definitions


def number(column, value):
    """The scaled cell of a numeric column, one float at a time."""
    default = (
        (column.low + column.high) / 2 if column.missing is None else column.missing
    )
    inside = max(column.low, min(column.high, default if math.isnan(value) else value))
    above, span = inside - column.low, column.high - column.low
    if column.scale == "log":
        above, span = float(np.log1p(above)), math.log1p(span)
    return max(0.0, min(1.0, above / span))


def level(column, code):
    """Index of the level of a raw code, or None: it touches no coordinate."""
    known = {level_key(level): i for i, level in enumerate(column.levels)}
    word = WORDS[code] if 0 <= code < len(WORDS) else None
    unknown = None if column.other is None else known[level_key(column.other)]
    absent = not 0 <= code < len(WORDS)
    return unknown if absent else known.get(level_key(word), unknown)


def coordinates(column, cell):
    """Units of one cell's coordinates."""
    if isinstance(column, Categorical):
        hot = level(column, cell)
        return [ONE * (i == hot) for i in range(len(column.levels))]
    missing, scaled = math.isnan(cell), number(column, cell)
    if column.bins is None:
        absent = missing and column.indicator
        values = [0 if absent else math.trunc(Fraction(scaled) * ONE)]
    else:
        absent = missing and column.indicator
        hot = min(math.floor(scaled * column.bins), column.bins - 1)
        values = [ONE * (i == hot and not absent) for i in range(column.bins)]
    return values + [ONE * absent] * column.indicator


CELLS = {
    **{key: column for key, column in MIXED.items() if not isinstance(column, Vector)},
    "tiny": Numeric(0.0, 5e-324),
    "huge": Numeric(-8e307, 8e307),
    "edge": Numeric(1.0, 1.0 + 2**-52, scale="log"),
    "bins without a default": Numeric(0.0, 1.0, bins=3, missing=1.0),
    "indicator": Numeric(0.0, 1.0, indicator=True),
}


@pytest.mark.parametrize("key", CELLS)
@settings(deadline=None)
@given(st.data())
def test_cells_are_encoded_as_defined(key, data):
    column = CELLS[key]
    kind = codes if isinstance(column, Categorical) else hostile
    cells = data.draw(st.lists(kind, min_size=1, max_size=8))
    schema = Schema({"c": column}, target=Numeric(0.0, 1.0))
    rows = [{"c": cell, "target": 0.0, "weight": 1.0} for cell in cells]
    got = features(records_of(rows, schema, intercept=False))
    assert got == [coordinates(column, cell) for cell in cells]


def test_a_vector_is_stored_as_its_joint_row():
    """To the last unit and in both signs: no integer type wraps."""
    cells = np.array([[2.0, 0.0, 0.0], [0.0, -9.0, 0.0], [0.3, -0.4, 0.0], [1, 1, 1]])
    batch = Batch(columns={"text": cells}, target=np.zeros(4))
    schema = Schema({"text": MIXED["text"]}, target=Numeric(0.0, 1.0))
    got = features(encode([batch], schema, intercept=False))
    assert got == grid.bound_rows(cells, 2.0).tolist()
    assert got[:2] == [[ONE, 0, 0], [0, -ONE, 0]]


@given(st.lists(hostile, min_size=1), max_weights)
def test_weights_are_clipped_and_a_missing_one_is_zero(weights, most):
    rows = [{"x": 1.0, "job": 0, "target": 0, "weight": weight} for weight in weights]
    (chunk,) = records_of(rows, schema_of("plain"), max_weight=most).chunks
    for weight, got in zip(weights, chunk.weight.tolist(), strict=True):
        wanted = 0.0 if math.isnan(weight) else max(0.0, min(most, weight))
        assert 0.0 <= got <= most
        assert got == pytest.approx(wanted, rel=2**-23, abs=2**-149)


@pytest.mark.parametrize("max_weight", [0.1, 0.3, 1 / 3, 1.1, 1e-3])
def test_rounding_a_weight_does_not_lift_it_over_its_bound(max_weight):
    rows = [{"x": 1.0, "job": 0, "target": 0, "weight": math.inf}]
    (chunk,) = records_of(rows, schema_of("plain"), max_weight=max_weight).chunks
    assert Fraction(float(chunk.weight[0])) <= Fraction(max_weight)


@pytest.mark.parametrize("max_weight", [1.0, 5.0, 0.3, 1e-6])
def test_a_row_without_weight_counts_one_or_the_bound_if_that_is_less(max_weight):
    schema = Schema({"x": Numeric(0, 1)}, target=Categorical([0, 1]))
    target = Coded(np.array([0, 1, -1]), [0, 1])
    batch = Batch(columns={"x": np.zeros(3)}, target=target)
    (chunk,) = encode([batch], schema, max_weight=max_weight).chunks
    most = min(1.0, max_weight)
    assert chunk.weight.dtype == np.float32
    assert chunk.weight[2] == 0.0  # a null record
    assert all(0.999999 * most <= weight <= most for weight in chunk.weight[:2])


@pytest.mark.parametrize("max_weight", [0.0, -1.0, math.nan, math.inf, 1e39])
def test_a_bound_on_weights_must_be_a_positive_number_of_single_precision(max_weight):
    rows = [{"x": 1.0, "job": 0, "target": 9, "weight": math.inf}]
    with pytest.raises(ValueError, match="max_weight"):
        records_of(rows, schema_of("plain"), max_weight=max_weight)


def test_a_record_of_unknown_class_is_a_null_record():
    """Its weight is zero, whatever weight it came with; its class reads as any."""
    for target in (3, 9, -1, 10**6):
        for weight in (1.0, math.inf, math.nan):
            row = {"x": 1.0, "job": 0, "target": target, "weight": weight}
            (chunk,) = records_of([row], schema_of("plain")).chunks
            assert (chunk.weight.tolist(), chunk.target.tolist()) == ([0.0], [0])


@pytest.mark.parametrize(("n_levels", "dtype"), [(255, np.uint8), (256, np.uint16)])
def test_the_code_of_unknown_values_fits_its_type(n_levels, dtype):
    column = Categorical(range(n_levels))
    schema = Schema({"c": column}, target=Numeric(0.0, 1.0))
    cells = Coded(np.array([-1, 0, n_levels - 1, n_levels]), range(n_levels))
    batch = Batch(columns={"c": cells}, target=np.zeros(4))
    part = encode([batch], schema, intercept=False).chunks[0].parts[0]
    assert part.dtype == dtype
    assert part.tolist() == [n_levels, 0, n_levels - 1, n_levels]


class LongRows(Numeric):
    """A column whose feature map forgets that a row has norm at most one."""

    def compute_features(self, cells):
        return np.full((len(cells), 2), 0.9)


class WildNumbers(Numeric):
    """A column whose feature map leaves the unit interval."""

    def compute_features(self, cells):
        return np.array([[1.5], [-0.5], [math.nan], [math.inf]])


class WildCodes(Categorical):
    """A column whose feature map gives codes of no level."""

    def compute_features(self, cells):
        return np.array([-1, 2, 99, 2**40])


def test_whatever_a_column_computes_its_part_is_bounded():
    columns = {
        "x": LongRows(0, 1, indicator=True),
        "w": WildNumbers(0, 1),
        "c": WildCodes(["a", "b"]),
    }
    schema = Schema(columns, target=Numeric(0, 1))
    none = np.zeros(4)
    cells = {"x": none, "w": none, "c": Coded(np.zeros(4, int), ["a"])}
    batch = Batch(columns=cells, target=none)
    rows, wild, codes = encode([batch], schema, intercept=False).chunks[0].parts
    assert ((wild >= 0) & (wild <= grid.FEATURE_ONE)).all()
    assert ((rows.astype(int) ** 2).sum(axis=1) <= grid.FEATURE_ONE**2).all()
    assert rows.min() > 0.7 * grid.FEATURE_ONE
    assert codes.tolist() == [0, 2, 2, 2]


class WildTarget(Numeric):
    """A column whose scaled numbers leave the unit interval."""

    def rescale(self, values):
        return np.array([1.5, -0.5, math.nan, math.inf]), np.zeros(4, bool)


def test_whatever_a_target_computes_it_is_bounded():
    schema = Schema({"x": Numeric(0, 1)}, target=WildTarget(0, 1))
    batch = Batch(columns={"x": np.zeros(4)}, target=np.zeros(4))
    (chunk,) = encode([batch], schema).chunks
    assert ((chunk.target >= 0) & (chunk.target <= grid.FEATURE_ONE)).all()


#: Ranges whose ends, sum or length do not fit their type.
RANGES = [
    (np.int8(100), np.int8(120)),
    (np.int8(-100), np.int8(100)),
    (np.uint8(100), np.uint8(250)),
    (np.float16(40000), np.float16(60000)),
    (np.uint64(2**63), np.uint64(2**63 + 2**40)),
    (1e308, 1.7e308),
    (-1.7e308, -1e308),
    (2**53 - 3, 2**53 + 7),
    (2**60 + 1, 2**60 + 2**10),
    (0.0, 5e-324),
    (5e-324, 1.5e-323),
]


@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_missing_numbers_are_in_every_range(ends, scale):
    column = Numeric(*ends, scale=scale)
    assert column.low <= column.default <= column.high
    cells = np.array([math.nan, -math.inf, math.inf, *map(float, ends)])
    with np.errstate(all="ignore"):
        scaled, _ = column.rescale(cells)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert scaled[1:].tolist() == pytest.approx([0, 1, 0, 1])


def test_codes_of_the_levels_themselves_are_final():
    """A reader that used the schema's levels has coded its cells for good."""
    column = Categorical([2, 1, "x"], other="x")
    codes = np.array([0, 1, 2, 3, -1, 2**40])
    own = column.compute_features(Coded(codes, column.levels))
    assert own.tolist() == [0, 1, 2, 2, 2, 2]
    assert column.compute_features(Coded(codes, ["x", "1", 2])).tolist() == [
        *[2, 1, 0],
        *[2, 2, 2],
    ]


@pytest.mark.parametrize("bins", [2, 255, 256, 65000])
def test_the_code_of_missing_numbers_fits_its_type(bins):
    schema = Schema(
        {"c": Numeric(0, 1, bins=bins, indicator=True)}, target=Numeric(0, 1)
    )
    cells = np.array([math.nan, 0.0, 1.0, math.inf])
    batch = Batch(columns={"c": cells}, target=np.zeros(4))
    part = encode([batch], schema).chunks[0].parts[0]
    assert part.tolist() == [bins, 0, bins - 1, bins - 1]


def test_row_norm_leaves_short_rows_alone_and_uses_the_room_of_long_ones():
    columns = {"x": Numeric(0, 1), "y": Numeric(0, 1), "c": Categorical(["a", "b"])}
    schema = Schema(columns, target=Numeric(0, 1), row_norm=1.5)  # room 1.25
    rows = [
        {"x": x, "y": y, "c": 0, "target": 0.0, "weight": 1.0}
        for x, y in ((1.0, 0.5), (1.0, 1.0), (0.25, 0.0))
    ]
    short, long, tiny = features(records_of(rows, schema, intercept=False))
    assert short == [ONE, ONE // 2, ONE, 0]
    assert tiny == [ONE // 4, 0, ONE, 0]
    assert long[0] == long[1]
    assert 0.9995 * 1.25 < (long[0] ** 2 + long[1] ** 2) / ONE**2 <= 1.25


def test_a_batch_must_fit_the_exact_sums(monkeypatch):
    monkeypatch.setattr(grid, "CHUNK_ROWS", 2)
    rows = [{"x": 1.0, "job": 0, "target": 0, "weight": 1.0}]
    assert len(records_of(2 * rows, schema_of("plain")).chunks) == 1
    with pytest.raises(ValueError, match=r"^A batch must have at most .* rows\.$"):
        records_of(3 * rows, schema_of("plain"))


# ---- cells of another type


@pytest.mark.parametrize("cells", [np.array(["no", "SECRET"]), ["no", "SECRET"]])
def test_a_text_target_is_refused_by_its_type(cells):
    schema = Schema({"x": Numeric(0, 1)}, target=Categorical(["no", "yes"]))
    batch = Batch(columns={"x": np.zeros(2)}, target=cells)
    with pytest.raises(ValueError, match=r"must be skdp\.Coded") as refusal:
        encode([batch], schema)
    assert "SECRET" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["U", "O"])
def test_text_where_numbers_belong_shows_no_cell(kind):
    cells = np.array(["1.0", "SECRET"], dtype=kind)
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 1))
    for columns, target in (({"x": cells}, np.zeros(2)), ({"x": np.zeros(2)}, cells)):
        batch = Batch(columns=columns, target=target)
        with pytest.raises(ValueError, match="must be an array of floats") as refusal:
            encode([batch], schema)
        assert "SECRET" not in str(refusal.value)
