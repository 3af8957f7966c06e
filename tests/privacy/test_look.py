"""What a look counts, what one record can change of it, and what follows from it."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import COLUMNS, records_of, rows_of, schema_of, squared_difference
from test_persons_rows import engine_of, neighbouring_persons
from test_sensitivity import exceeds, neighbouring_tables, reached

import skdp
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.fit_warnings import DoubtfulSchemaWarning, describe_doubts
from skdp.privacy import look, queries
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.look import APART, BINS, FINE, Histogram, describe_finely
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import NEIGHBOURS, GramPattern, Kind
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

# ---- What is counted


def count(batch, limits, max_weight=1.0):
    """The counts of each family, by the name of its column, and of all rows."""
    records = encode([batch], describe_finely(limits), max_weight=max_weight)
    families = look.list_families(limits)
    total = look.count_families(records, families)
    *parts, rows = np.split(total, np.cumsum([one.size for one in families]))
    return dict(zip((one.name for one in families), parts, strict=True)), int(rows[0])


def test_cells_are_counted_as_numpy_counts_them():
    rng, n = np.random.default_rng(0), 3000
    odd = [-9.0, -1.0, 0.0, -0.0, 3.0, 7.0, math.inf, -math.inf, math.nan]
    x = np.where(rng.random(n) < 0.3, rng.choice(odd, n), rng.uniform(-1, 3, n))
    y = np.where(rng.random(n) < 0.3, rng.choice(odd[:-3], n), rng.uniform(-2, 6, n))
    word, weight = rng.integers(-1, 4, n), rng.choice([0.0, 0.3, 5.0], n)
    columns = {
        "x": Numeric(-1, 3),
        "curve": Numeric(-1, 3, knots=4, missing=2.0),
        "word": Categorical(["a", "b"]),
        "other": Categorical(["a", "b"], other="b"),
        "bins": Numeric(-1, 3, bins=4, indicator=True),
        "v": Vector(["v0"], norm=1.0),
        "x:word": Pair("x", "word"),
    }
    limits = Schema(columns, target=Numeric(-2, 6))
    codes = Coded(word, ["a", "b", "?"])
    cells = {"x": x, "curve": x, "word": codes, "other": codes, "bins": x}
    cells["v"] = x[:, None]
    found, rows = count(Batch(columns=cells, target=y, weight=weight), limits)
    assert rows == n  # rows of weight zero are records
    assert list(found) == ["x", "curve", "word", "other", "bins", ""]
    kept = weight > 0
    for name, values, low, high in (
        ("x", x[kept], -1, 3),
        ("curve", x[kept], -1, 3),
        ("", y[kept], -2, 6),
    ):
        known = values[~np.isnan(values)]
        scaled = (known - low) / (high - low)
        inside = (scaled > 0) & (scaled < 1) & (known != 0)
        apart = [(scaled <= 0).sum(), (scaled >= 1).sum(), (known == 0).sum()]
        expected, _ = np.histogram(scaled[inside], np.linspace(0, 1, FINE + 1))
        assert found[name][FINE:].tolist() == [*apart, len(values) - len(known)]
        wrong = found[name][:FINE] - expected
        if name:
            assert not wrong.any()
        else:  # a target is stored with as many bits as there are bins, to the nearest
            assert np.abs(np.cumsum(wrong)).max() <= expected.max()
    word = word[kept]
    levels = [(word == 0).sum(), (word == 1).sum()]
    assert found["word"].tolist() == [*levels, len(word) - sum(levels)]
    assert found["other"].tolist() == [levels[0], len(word) - levels[0], 0]
    bins = np.clip(np.floor(np.nan_to_num(x[kept], nan=9) + 1), 0, 3)
    expected = np.bincount(np.where(np.isnan(x[kept]), 4, bins).astype(int))
    assert found["bins"].tolist() == [*expected, 0]


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(
    ("low", "high"), [(-0.1, 0.7), (-3, 100), (0, 7), (-1, 0), (-1 / 3, 1e6)]
)
def test_zeros_are_counted_apart_wherever_zero_lies(low, high, scale):
    limits = Schema({"x": Numeric(low, high, scale)}, target=Numeric(low, high))
    found, _ = count(Batch(columns={"x": np.zeros(5)}, target=np.zeros(5)), limits)
    for counted in found.values():
        assert counted[FINE + APART.index("zero")] == counted.sum() == 5


# ---- What one record can change


def ask(records, limits, neighbours, n_rows, answers=None, deviation=1e-3):
    """The exact sums of a look whose releases have a small error, but may state more.

    With the `answers` to another table, the look goes on as if it had released them.
    """
    sums, seen = [], []

    def release(total, share):
        values = total.value.astype(float) * total.unit
        std = deviation * np.broadcast_to(total.shape, values.shape)
        own = Released(values + 1e-3, std, total.kind, total.query)
        seen.append(own if answers is None else answers[len(sums)])
        sums.append(total)
        return seen[-1]

    profile = look.make_profile(records, limits, neighbours, n_rows, release)
    return sums, seen, profile


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", ["softmax", "squared"])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_record_moves_a_look_beyond_its_sensitivity(loss, neighbours, data):
    limits = schema_of(data.draw(st.sampled_from(["mixed", "curved", "filled"])), loss)
    others = data.draw(rows_of(limits, max_size=2))
    record, replacement = data.draw(rows_of(limits, min_size=2, max_size=2))
    n_rows = data.draw(st.sampled_from([None, 3]))
    tables = [
        records_of(rows, describe_finely(limits), max_weight=2.5)
        for rows in neighbouring_tables(neighbours, others, 0, record, replacement)
    ]
    # Where noise is large, a numeric target is looked at by itself.
    given_ = {"deviation": data.draw(st.sampled_from([1e-3, 1.0]))}
    one, seen, _ = ask(tables[0], limits, neighbours, n_rows, **given_)
    other, _, _ = ask(tables[1], limits, neighbours, n_rows, seen, **given_)
    assert len(one) == len(other)
    alone = [total for total in one if total.kind == Kind.TARGET_LOOK]
    assert bool(alone) == (loss == "squared" and given_["deviation"] == 1.0)
    for pair in zip(one, other, strict=True):
        assert not exceeds(*pair), pair[0].query


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_person_moves_a_look_beyond_its_sensitivity(neighbours, data):
    limits = schema_of(data.draw(st.sampled_from(["mixed", "curved", "plain"])))
    tables = data.draw(neighbouring_persons(limits, neighbours))
    least = data.draw(st.sampled_from([1, 5]))
    records = [
        engine_of(table, describe_finely(limits), most=2.5, least=least).records
        for table in tables
    ]
    given_ = {"deviation": data.draw(st.sampled_from([1e-3, 1.0]))}
    one, seen, _ = ask(records[0], limits, neighbours, None, **given_)
    other, _, _ = ask(records[1], limits, neighbours, None, seen, **given_)
    for pair in zip(one, other, strict=True):
        assert not exceeds(*pair), pair[0].query


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("n_rows", [None, 1])
def test_the_sensitivity_of_a_look_is_reached(n_rows, neighbours):
    """By a row that is in another bin of every column than its replacement."""
    columns = {
        "x": Numeric(0, 2),
        "y": Numeric(-1, 8),
        "job": COLUMNS["mixed"][0]["job"],
    }
    limits = Schema(columns, target=Numeric(-2, 2))
    rows = [
        {"x": v, "y": v, "job": int(v), "target": v, "weight": 1e-3} for v in (0.1, 1.9)
    ]
    tables = [
        records_of(table, describe_finely(limits))
        for table in neighbouring_tables(neighbours, [], 0, *rows)
    ]
    one, seen, _ = ask(tables[0], limits, neighbours, n_rows)
    other, _, _ = ask(tables[1], limits, neighbours, n_rows, seen)
    assert [total.kind for total in one] == [Kind.LOOK, Kind.FINER_LOOK]
    weights = [1.0, 1.0, 0.25, 4.0]
    counted = sum(weights) / 0.7 if n_rows is None else sum(weights)
    for total, moved, square in zip(one, other, (counted, 6.0), strict=True):
        found = reached(total, moved)
        if neighbours == "replace-one":
            assert total.sensitivity == pytest.approx(math.sqrt(2 * square))
            # A replaced row is still one row.
            whole = sum(weights) if total.kind == Kind.LOOK else square
            assert found == pytest.approx(math.sqrt(whole / square))
        else:
            assert total.sensitivity == pytest.approx(math.sqrt(square))
            assert found == pytest.approx(1.0)
            assert found <= 1.0
    assert squared_difference(one[0], one[0]) == 0


def test_a_look_spends_its_share_and_no_more():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, [1, 0.1], (4000, 2)), rng.integers(0, 2, 4000)
    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], random_state=0)
    record = model.fit(X, y).privacy_
    kinds = (Kind.LOOK, Kind.FINER_LOOK)
    spent = [e.mu_squared for e in record.events if e.kind in kinds]
    assert len(spent) == 2
    assert sum(spent) == pytest.approx(look.LOOK_SHARE * record.budget, rel=1e-6)
    assert record.spent == pytest.approx(record.budget, rel=1e-6)


def test_few_rows_have_their_target_looked_at_alone():
    """A range a thousand times too wide would drown the mean of 300 rows in noise."""
    rng = np.random.default_rng(5)
    table = {"x": rng.uniform(size=300), "y": rng.normal(40, 5, 300)}
    schema = Schema({"x": Numeric(0, 1)}, target=("y", Numeric(0, 50_000)))
    given_ = {"schema": schema, "epsilon": 1.0, "delta": 1e-6}
    off = []
    for seed in range(10):
        model = skdp.LinearRegression(**given_, random_state=seed).fit(table)
        off.append(abs(float(np.mean(model.predict(table))) - 40))
        kinds = [event.kind for event in model.privacy_.events]
        spent = [e for e in model.privacy_.events if e.kind == Kind.TARGET_LOOK]
        assert kinds[:2] == [Kind.LOOK, Kind.TARGET_LOOK]
        most = look.TARGET_SHARE * model.privacy_.budget * (1 + 1e-6)
        assert all(event.mu_squared <= most for event in spent)
        assert all(one.passed is not False for one in skdp.verify(model).checks)
    assert np.median(off) < 20  # of a range of 50,000
    many = skdp.LinearRegression(**given_ | {"epsilon": 50.0}).fit(table)
    assert Kind.TARGET_LOOK not in [e.kind for e in many.privacy_.events]


# ---- What follows from the counts


def test_the_nearest_shares():
    for given_, nearest in (
        ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
        ([1.2, -0.2], [1.0, 0.0]),
        ([0.6, 0.6], [0.5, 0.5]),
        ([-5.0, -5.0, -4.9], [0.3, 0.3, 0.4]),
    ):
        np.testing.assert_allclose(look.project(np.array(given_)), nearest, atol=0.04)
    noisy = np.random.default_rng(0).normal(size=50)
    found = look.project(noisy)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    for _ in range(50):  # no other shares are nearer
        other = np.random.default_rng(1).dirichlet(np.ones(50))
        assert np.linalg.norm(found - noisy) <= np.linalg.norm(other - noisy)


@pytest.mark.parametrize(
    ("low", "high", "down", "up"),
    [
        (0.93, 1.07, 1.0, 1.0),
        (17.2, 18.9, 18.0, 18.0),
        (-0.3, 0.2, 0.0, 0.0),
        (-23.0, -18.5, -20.0, -20.0),
        (1.2, 4.7, 2.0, 4.0),
        (0.0301, 0.0309, 0.031, 0.030),
    ],
)
def test_round_numbers(low, high, down, up):
    for towards, expected in ((math.ceil, down), (math.floor, up)):
        found = look.round_inside(low, high, towards)
        assert low <= found <= high
        if low * 1.03 < high or expected == 0:
            assert found == pytest.approx(expected)


def histogram(cells, column, error=1e-4):
    """What a look without much noise finds, in even bins."""
    found, rows = count(
        Batch(columns={"x": cells}, target=cells), Schema({"x": column}, column)
    )
    even = np.arange(0, FINE + 1, FINE // BINS)
    return Histogram(
        edges=even, values=look._merge(found["x"], even) / rows, error=error
    )


@pytest.mark.parametrize(
    ("cells", "column", "expected"),
    [
        (np.repeat([0.0, 1.0], 50), Numeric(-10, 10), (0.0, 1.0)),
        (np.linspace(18, 90, 999), Numeric(0, 1000), (0.0, 90.0)),
        (np.linspace(0, 1000, 999), Numeric(0, 1000), (0.0, 1000.0)),
        (np.full(99, math.nan), Numeric(0, 1000), (0.0, 1000.0)),
        (np.append(np.linspace(3, 5, 200), 90), Numeric(-100, 100), (0.0, 6.25)),
        # Zeros are inside, however few other cells there are.
        (
            np.append(np.zeros(900), np.linspace(60, 80, 99)),
            Numeric(-100, 100),
            (0, 80),
        ),
        # A rare value that is far from a frequent one is not clipped to it.
        (np.repeat([0.0, 1.0], [990, 10]), Numeric(0, 1), (0.0, 1.0)),
        (np.repeat([1.0, 2.0], [990, 10]), Numeric(1, 2), (1.0, 2.0)),
    ],
)
def test_the_part_that_rows_fill(cells, column, expected):
    low, high = look.choose_fill(column, histogram(cells, column))
    assert (low, high) == pytest.approx(expected)
    assert not np.any((cells < low) | ((cells > high) & (cells < 90)))


def test_both_ends_are_never_the_same_number():
    """Rows on both sides of zero, within a bin of it."""
    column = Numeric(-1000, 1000)
    cells = np.append(np.linspace(-50, -1, 50), np.linspace(1, 50, 50))
    found = histogram(cells, column)
    assert look.choose_edges(found, 0.5) == (15, 17)
    assert look.choose_fill(column, found) == (-62.5, 62.5)


def test_noise_hides_no_rows_and_makes_none():
    """Bins of noise alone do not widen a range, and much noise leaves it whole."""
    rng, column = np.random.default_rng(0), Numeric(0, 1000)
    exact = histogram(np.linspace(100, 200, 999), column)
    for _ in range(50):
        noisy = exact.values + 0.01 * rng.standard_normal(exact.values.shape)
        found = Histogram(edges=exact.edges, values=noisy, error=0.01)
        low, high = look.choose_fill(column, found)
        assert 0 <= low <= 110
        assert 190 <= high <= 300
    hidden = Histogram(edges=exact.edges, values=exact.values, error=0.5)
    assert look.choose_fill(column, hidden) == (0.0, 1000.0)


# ---- The Gram matrix of clipped rows


FILLED = {
    "a": Numeric(0, 10, missing=2.5, fill=(2, 3)),
    "b": Numeric(-5, 5, missing=4.5, fill=(4, 5)),
    "c": Numeric(0, 1),
    "job": Categorical(["u", "v"]),
}


@pytest.mark.parametrize("engine", [ReferenceEngine, CompiledEngine])
def test_the_gram_matrix_is_that_of_clipped_rows(engine):
    rng, n = np.random.default_rng(0), 500
    cells = {name: rng.uniform(-6, 11, n) for name in "abc"}
    cells["b"][::7] = math.nan
    cells["job"] = Coded(rng.integers(0, 2, n), ["u", "v"])
    schema = Schema(FILLED, target=Categorical([0, 1]))
    batch = Batch(columns=cells, target=Coded(rng.integers(0, 2, n), [0, 1]))
    parts = encode([batch], schema).chunks[0].parts
    clipped = [
        np.clip(parts[0][:, 0].astype(int), math.ceil(0.2 * 2**14), 0.3 * 2**14 // 1),
        np.clip(parts[1][:, 0].astype(int), math.ceil(0.9 * 2**14), 2**14),
        parts[2][:, 0].astype(int),
        *(2**14 * (parts[3] == code).astype(int) for code in (0, 1)),
        np.full(n, 2**14),
    ]
    rows = np.column_stack(clipped).astype(np.int64)
    found = engine(encode([batch], schema)).gram()
    assert (found == rows.T @ rows).all()
    whole = Schema(
        {n: replace(c, fill=None) if n in "ab" else c for n, c in FILLED.items()},
        target=schema.target,
    )
    assert (engine(encode([batch], whole)).gram() != found).any()


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_sensitivity_of_a_clipped_gram_matrix_is_reached(neighbours):
    """By corners of the box that values are clipped to."""
    columns = {
        name: Numeric(0, 1, fill=(0.25, 0.5), missing=0.5 - 0.05 * odd)
        for odd, name in enumerate("abcd")
    }
    schema = Schema(columns, target=Categorical(["a", "b"]))
    rows = [
        dict.fromkeys("abcd", cell) | {"target": 0, "weight": 1.0}
        for cell in (0.0, 0.9)
    ]
    pattern = GramPattern.of(schema.layout(True), neighbours, centred=True)
    assert pattern.shift.tolist() == [0.75] * 4 + [0]
    tables = neighbouring_tables(neighbours, [], 0, *rows)
    for engine in (ReferenceEngine, CompiledEngine):
        one, other = (
            queries.gram(engine(records_of(table, schema)), pattern) for table in tables
        )
        assert 0.999 <= reached(one, other) <= 1.0
    # On the scale of what rows fill, they are as long as rows of a tight range.
    tight = Schema(dict.fromkeys("abcd", Numeric(0, 1)), target=schema.target)
    own = GramPattern.of(tight.layout(True), neighbours, centred=True).sensitivity
    assert pattern.sensitivity == pytest.approx(own)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_no_pair_of_rows_is_further_apart_than_the_sensitivity(neighbours):
    """A search that climbs from random rows. It gets as far as in tight ranges."""
    rng = np.random.default_rng(0)
    schema = Schema(FILLED, target=Categorical(["a", "b"]))
    pattern = GramPattern.of(schema.layout(True), neighbours, centred=True)
    ends = {"a": (0, 10), "b": (-5, 5), "c": (0, 1)}

    def measure(cells):
        rows = [
            {"a": a, "b": b, "c": c, "job": int(job), "target": 0, "weight": 1.0}
            for a, b, c, job in cells
        ]
        tables = neighbouring_tables(neighbours, [], 0, *rows)
        sums = (
            queries.gram(ReferenceEngine(records_of(table, schema)), pattern)
            for table in tables
        )
        return reached(*sums)

    def draw():
        numbers = (rng.choice([*end, rng.uniform(*end)]) for end in ends.values())
        return [*numbers, rng.integers(0, 2)]

    best, top = [draw(), draw()], 0.0
    for _ in range(300):
        trial = [list(row) for row in best]
        at = rng.integers(0, 4)
        trial[rng.integers(0, 2)][at] = draw()[at]
        found = measure(trial)
        assert found <= 1.0
        if found >= top:
            best, top = trial, found
    assert top > 0.55


def test_fills_that_would_break_a_bound_are_refused():
    with pytest.raises(ValueError, match="row_norm requires numbers without a fill"):
        Schema(FILLED, target=Categorical([0, 1]), row_norm=2.0)
    with pytest.raises(ValueError, match="requires a straight line"):
        Numeric(0, 10, fill=(2, 3), knots=4)
    with pytest.raises(ValueError, match="must be a part of"):
        Numeric(0, 10, fill=(2, 30))
    with pytest.raises(ValueError, match="missing must be in fill"):
        Numeric(0, 10, fill=(2, 3), missing=5)


# ---- Fitted models


def make_table(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    table = {"age": rng.uniform(18, 90, n), "dose": rng.lognormal(1, 0.5, n)}
    chance = 1 / (1 + np.exp(-(table["age"] - 50) / 15))
    return pd.DataFrame(table | {"ill": np.where(rng.random(n) < chance, "yes", "no")})


GENEROUS = {"age": Numeric(0, 1200), "dose": Numeric(0, 5000)}
ILL = ("ill", Categorical(["no", "yes"]))


@pytest.fixture(scope="module")
def fitted():
    schema = Schema(GENEROUS, target=ILL)
    return skdp.LogisticRegression(epsilon=2.0, schema=schema).fit(make_table())


def test_generous_ranges_cost_little_and_are_not_warned_of(fitted):
    assert describe_doubts(fitted) == []
    column = fitted.schema_.columns["age"]
    assert column.ends[0] <= 25
    assert 80 <= column.ends[1] <= 150
    fresh = make_table(seed=1)

    def measure(model):
        chances = model.predict_proba(fresh)[:, 1]
        right = np.where(fresh["ill"] == "yes", chances, 1 - chances)
        return -np.log(right).mean()

    assert measure(fitted) < 0.54
    plain = skdp.LogisticRegression(
        epsilon=2.0, schema=fitted.schema, look=False, random_state=0
    ).fit(make_table())
    assert plain.profile_ is None
    assert plain.schema_ == fitted.schema
    assert not {Kind.LOOK, Kind.FINER_LOOK} & {e.kind for e in plain.privacy_.events}
    assert measure(fitted) < measure(plain) - 0.01


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_range_that_misses_the_rows_is_found(neighbours):
    """At ε = 1 and 2,000 rows, in nine of ten fits; a good range is not.

    Of ten fits, 8 or more find it with a probability of 93 %. The seeds are fixed.
    """
    table, found, false = make_table(2000), 0, 0
    wrong = Schema(GENEROUS | {"age": Numeric(100, 200)}, target=ILL)
    zeros = table.assign(dose=np.where(np.arange(2000) % 12, 0.0, table["dose"]))
    for seed in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulSchemaWarning)
            given_ = {"neighbours": neighbours, "random_state": seed, "n_steps": 1}
            model = skdp.LogisticRegression(schema=wrong, **given_).fit(table)
            found += any(
                "the low end of its range" in t for t in describe_doubts(model)
            )
            model.set_params(schema=Schema(GENEROUS, target=ILL)).fit(zeros)
            false += len(describe_doubts(model))
    assert found >= 8
    assert false == 0


def test_a_profile_is_saved_printed_and_verified(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert str(loaded.profile_) == str(fitted.profile_)
    assert loaded.profile_.limits == fitted.schema
    assert loaded.schema_ == fitted.schema_
    assert "0 to 1200" in str(fitted.profile_)
    assert repr(fitted.profile_).startswith("<Profile: 2 columns, about ")
    none = look.LevelShares(values=np.array([0.0, 1.0, 0.0]), error=1e-3)
    profile = replace(fitted.profile_, levels={"": none})
    assert "no (nearly) without rows" in str(profile)
    for model in (tmp_path / "model", fitted, loaded):
        assert skdp.verify(model).passed


@pytest.mark.parametrize("what", ["range", "profile", "edges", "column"])
def test_a_changed_range_or_profile_is_refused(what, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    if what == "range":
        path = tmp_path / "model" / "schema.toml"
        text, own = path.read_text("utf-8"), fitted.schema_.columns["age"]
        assert f"high = {own.high}" in text
        changed = text.replace(f"high = {own.high}", f"high = {own.high * 2}")
        path.write_text(changed, "utf-8")
        match = r"range of 'age' in schema\.toml does not follow from the profile"
    else:
        path = tmp_path / "model" / "model.json"
        about = json.loads(path.read_text("utf-8"))
        numbers = about["profile"]["numbers"]
        if what == "profile":
            numbers["age"]["values"] = numbers["age"]["values"][::-1]
            match = "does not follow from the profile"
        elif what == "edges":
            numbers["age"]["edges"][1] = 0
            match = "edges of 'age' in the profile"
        else:
            del numbers["age"]
            match = "lacks a column"
        path.write_text(json.dumps(about), "utf-8")
    with pytest.raises(ValueError, match=match):
        skdp.load(tmp_path / "model")


def test_a_changed_range_of_the_target_is_refused(tmp_path):
    table = make_table(3000)
    schema = Schema({"age": GENEROUS["age"]}, target=("dose", Numeric(0, 5000)))
    model = skdp.LinearRegression(epsilon=4.0, schema=schema).fit(table)
    high = model.schema_.target_column.high
    assert high < 1000
    model.save(tmp_path / "model")
    assert skdp.load(tmp_path / "model").schema_ == model.schema_
    path = tmp_path / "model" / "schema.toml"
    text = path.read_text("utf-8")
    assert text.count(f"high = {high}") == 1
    path.write_text(text.replace(f"high = {high}", f"high = {2 * high}"), "utf-8")
    with pytest.raises(ValueError, match=r"range of the target in schema\.toml"):
        skdp.load(tmp_path / "model")


def test_rare_events_are_not_doubted():
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(size=30_000), "n": (rng.random(30_000) < 0.01) * 1.0}
    schema = Schema({"x": Numeric(0, 1)}, target=("n", Numeric(0, 10)))
    model = skdp.PoissonRegressor(epsilon=3.0, schema=schema).fit(table)
    assert describe_doubts(model) == []


def test_predictions_and_exports_clip_to_what_rows_fill(fitted):
    low, high = fitted.schema_.columns["age"].ends
    assert (low, high) != (0.0, 1200.0)
    ages = [low - 5, low, high, high + 5, 1200.0, math.inf, math.nan, 60.0]
    rows = pd.DataFrame({"age": ages, "dose": 3.0})
    chances = fitted.predict_proba(rows)[:, 1]
    assert chances[0] == chances[1] < chances[7] < chances[2]
    assert len(set(chances[2:6])) == 1
    ordinary = fitted.to_sklearn().predict_proba(rows)
    np.testing.assert_allclose(ordinary[:, 1], chances, atol=1e-9)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(fitted.to_onnx().SerializeToString())
    feeds = {n: rows[[n]].to_numpy() for n in rows}
    outputs = [one.name for one in session.get_outputs()]
    given_ = dict(zip(outputs, session.run(None, feeds), strict=True))
    np.testing.assert_allclose(given_["probabilities"][:, 1], chances, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        *({"look": False}, {"geometry": "diagonal"}, {"sampling": "columns"}),
        *({"solver": "dp_sgd"}, {"l1_ratio": 0.5}, {"epsilon": math.inf}),
    ],
)
def test_fits_that_do_not_look_keep_their_ranges(options):
    schema = Schema(GENEROUS, target=ILL)
    model = skdp.LogisticRegression(**{"schema": schema, "n_steps": 3} | options)
    model.fit(make_table(300))
    assert model.profile_ is None
    assert model.schema_ == schema


def test_anything_but_a_truth_value_is_refused():
    with pytest.raises(ValueError, match="look must be True or False, got 'no'"):
        skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], look="no").fit(
            np.zeros((4, 1)), [0, 1, 0, 1]
        )


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("kind", ["linear", "additive-regressor", "poisson"])
def test_constant_columns_and_targets_never_raise(kind, scale):
    """Whatever a look finds makes a schema, even where all rows have one value."""
    from skdp.estimators.fit import ESTIMATORS

    for value in (0.0, 1e-9, 0.4, 777.7, 1e6, 9e9):
        table = pd.DataFrame({"x": np.full(3000, value), "y": np.full(3000, value)})
        schema = Schema({"x": Numeric(0, 1e6, scale)}, target=("y", Numeric(0, 1e6)))
        model = ESTIMATORS[kind](schema=schema, epsilon=3.0, n_steps=2, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulSchemaWarning)
            assert np.isfinite(model.fit(table).predict(table)).all()
