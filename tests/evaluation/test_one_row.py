"""One row changes a score by no more than what is charged."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skdp
from skdp.engines.reference import to_dense
from skdp.estimators.opening import open_table
from skdp.evaluation import evaluate, metrics, score_cells
from skdp.evaluation.evaluate import encode_table, make_columns
from skdp.evaluation.metrics import (
    choose_scale,
    list_columns,
    list_metrics,
    predict_rows,
)
from skdp.evaluation.score_cells import Bins
from skdp.privacy.grid import WeightGrid
from skdp.privacy.mechanism import Released, release

COLUMNS = {
    "age": skdp.Numeric(0, 90),
    "gain": skdp.Numeric(0, 1e5, scale="log", indicator=True),
    "v": skdp.Vector(["v0", "v1"], norm=2.0),
    "job": skdp.Categorical(["admin", "tech"]),
}
TARGETS = {
    "logistic": skdp.Categorical(["no", "yes"]),
    "softmax": skdp.Categorical(["no", "yes", "maybe"]),
    "linear": skdp.Numeric(-1, 1),
    "poisson": skdp.Numeric(0, 3),
}
KINDS = {
    "logistic": skdp.LogisticRegression,
    "softmax": skdp.LogisticRegression,
    "linear": skdp.LinearRegression,
    "poisson": skdp.PoissonRegressor,
}
N = 20
RNG = np.random.default_rng(0)
ROWS = {
    "age": RNG.uniform(0, 90, N).tolist(),
    "gain": RNG.uniform(0, 1e5, N).tolist(),
    "v0": RNG.normal(size=N).tolist(),
    "v1": RNG.normal(size=N).tolist(),
    "job": RNG.choice(["admin", "tech"], N).tolist(),
}


def test_counts_are_the_nearest_ones_that_agree():
    """Least squares under what holds for all tables, by a solver for any constraint."""
    classes = {"bins": [0, 0, 0, 0, 1], "curve": [0, 1, 1], "answer": None}
    columns = [
        score_cells.Column(
            name=name,
            size=2 if of is None else len(of),
            divide=lambda rows: ([], []),
            classes=None if of is None else np.array(of),
        )
        for name, of in classes.items()
    ]
    values = np.random.default_rng(0).normal(100.0, 10.0, (2, 10))
    given, at = np.zeros((5, 10)), np.split(np.arange(10), [5, 8])
    for i, own in enumerate(([0, 1], [1, 2])):  # each class, in both columns that know
        given[i, at[0][np.array(classes["bins"]) == i]] = 1.0
        given[i, at[1][np.array(classes["curve"]) == i]] = -1.0
        given[2 + i, np.concatenate([at[j] for j in own])] = 1.0
        given[2 + i, at[own[1]]] = -1.0
    given[4, at[0]] = 1.0
    for n_rows, rules in ((None, given[:4]), (470.0, given)):
        wanted = np.zeros(len(rules))
        wanted[4:] = 470.0
        off = values @ rules.T - wanted
        expected = values - off @ np.linalg.pinv(rules).T
        counts, total = score_cells.estimate_counts(columns, values, n_rows)
        found = np.concatenate([counts[name] for name in classes], axis=-1)
        np.testing.assert_allclose(found, expected, atol=1e-8)
        np.testing.assert_allclose(total, expected[:, :5].sum(axis=1))


def model(kind, seed=0, size=10.0):
    """A model with weights of our own, large enough that losses reach their bounds."""
    schema = skdp.Schema(COLUMNS, target=("y", TARGETS[kind]))
    made = KINDS[kind](schema=schema)
    outputs = 3 if kind == "softmax" else 1
    shape = (schema.layout(True).n_features, outputs)
    made._set_fitted(np.random.default_rng(seed).normal(0, size, shape), schema, True)
    return made


def targets(kind, n=N):
    column = TARGETS[kind]
    if isinstance(column, skdp.Categorical):
        return RNG.choice(column.levels, n).tolist()
    return RNG.uniform(column.low, column.high, n).tolist()


def opened(made, table, weight=None):
    return open_table(table, None, schema=made.schema_, sample_weight=weight)


def asked(kind, made, rows, neighbours="replace-one", weighted=False):
    """The exact sum that is released for all scores of a model."""
    table = {name: np.array(cells_, dtype=object) for name, cells_ in rows.items()}
    weight = "w" if weighted else None
    records = encode_table(made, opened(made, table, weight), 1.0)
    edges = np.array([-1.0, 0.0, 2.0])
    bins = Bins(edges, 1.0) if kind == "logistic" else None
    wanted = list_metrics(made, made.schema_)
    needed = dict.fromkeys(c for name in wanted for c in list_columns(name, made))
    scale = choose_scale(made, made.schema_, 5.0, None)
    columns = make_columns(made, list(needed), bins, edges, scale)
    pieces = predict_rows(records, made.weights_, weighted)
    return score_cells.sum_columns(columns, pieces, neighbours), columns


HOSTILE = [math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0, None, "", "x", 10**400]
cell = st.one_of(st.sampled_from(HOSTILE), st.floats(), st.text(max_size=3))
row = st.fixed_dictionaries(
    dict.fromkeys((*ROWS, "w"), cell)
    | {"y": st.one_of(cell, st.sampled_from(["no", "yes", "maybe", -1, 1, 3]))}
)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    weighted=st.booleans(),
    one=row,
    other=row,
    size=st.sampled_from([0.1, 10.0, 1e6]),
)
def test_one_row_changes_no_more_than_the_sensitivity(kind, weighted, one, other, size):
    made = model(kind, size=size)
    table = ROWS | {"y": targets(kind), "w": RNG.uniform(0, 1, N).tolist()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (
            {name: [*table[name], new[name]] for name in table} for new in (one, other)
        )
        kept, _ = asked(kind, made, table, weighted=weighted)
        before, columns = asked(kind, made, first, weighted=weighted)
        after, _ = asked(kind, made, second, weighted=weighted)

    def apart(a, b):
        return math.sqrt(sum(int(d) ** 2 for d in a.value - b.value))

    assert apart(before, after) <= before.sensitivity
    added, _ = asked(kind, made, first, "add-remove", weighted)
    assert apart(before, kept) <= added.sensitivity
    # It is the row's own part that changed: nothing negative, one unit per column.
    edges = np.cumsum([column.size for column in columns])[:-1]
    for part in np.split(before.value - kept.value, edges):
        assert min(part) >= 0
        assert sum(part) <= score_cells.UNIT


def test_the_sensitivity_is_reached():
    """A right answer that becomes a wrong one changes every column by √2."""
    made = model("logistic")
    table = ROWS | {"y": targets("logistic")}
    made.weights_ = made.weights_ * 0
    made.weights_[-1] = 20.0
    yes, _ = asked("logistic", made, table | {"y": ["yes", *table["y"][1:]]})
    no, columns = asked("logistic", made, table | {"y": ["no", *table["y"][1:]]})
    apart = math.sqrt(sum(int(d) ** 2 for d in yes.value - no.value))
    assert len(columns) == 5
    assert apart == pytest.approx(yes.sensitivity, rel=1e-5)
    assert yes.sensitivity == pytest.approx(math.sqrt(2 * 5) * score_cells.UNIT)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_row_divides_exactly_one_unit_in_each_column(kind):
    """Its parts are not negative, so their squares sum to at most one unit's."""
    made = model(kind, size=1.0)
    table = {name: np.array(ROWS[name], dtype=object) for name in ROWS}
    table["y"] = np.array([*targets(kind)[:-1], "unknown"], dtype=object)
    records = encode_table(made, opened(made, table), 1.0)
    (rows,) = predict_rows(records, made.weights_, False)
    _, columns = asked(kind, made, {name: list(table[name]) for name in table})
    for column in columns:
        at, parts = column.divide(rows)
        assert parts.min() >= 0
        assert (parts.sum(axis=1) == score_cells.CELL_ONE).all()
        assert 0 <= at.min() <= at.max() < column.size


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_add_up_whatever_stands_beside_them(kind):
    """To the last bit, over sizes at which libraries change their loops."""
    made = model(kind, size=1.0)
    n = 67
    frame = {name: RNG.choice(ROWS[name], n).tolist() for name in ROWS}
    frame["y"] = targets(kind, n)
    whole, _ = asked(kind, made, frame)
    for cut in (1, 2, 3, 8, 33):
        parts = [
            asked(kind, made, {name: frame[name][a:b] for name in frame})[0].value
            for a, b in ((0, cut), (cut, n))
        ]
        assert (parts[0] + parts[1] == whole.value).all()


def test_margins_are_exact():
    """So that no order of summation, and no other row, can change a bit of them."""
    made = model("softmax", size=3.0)
    table = {name: np.array(ROWS[name], dtype=object) for name in ROWS}
    table["y"] = np.array(targets("softmax"), dtype=object)
    records = encode_table(made, opened(made, table), 1.0)
    (rows,) = predict_rows(records, made.weights_, False)
    grid = WeightGrid.of(records.layout)
    units = [[int(w) for w in row] for row in grid.units(made.weights_)]
    at = np.arange(records.layout.n_features)
    features = to_dense(records.chunks[0], slice(0, N), at, records.layout)
    for row, margins in zip(features.tolist(), rows.margin, strict=True):
        for k, margin in enumerate(margins):
            exact = sum(int(x) * w[k] for x, w in zip(row, units, strict=True))
            assert Fraction(float(margin)) == Fraction(exact, 2 ** (grid.bits + 14))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_cell_shows_but_in_released_numbers(neighbours):
    made = model("logistic", size=1.0)
    told = set()
    for odd in HOSTILE:
        table = {name: np.array([odd, *ROWS[name][1:]], dtype=object) for name in ROWS}
        table["y"] = np.array([odd, *targets("logistic")[1:]], dtype=object)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            options = {"epsilon": 1.0, "neighbours": neighbours, "by": "job"}
            found = skdp.evaluate(made, table, **options)
        groups = tuple(group.level for group in found.groups)
        shapes = tuple(found.scores), len(found.calibration), groups
        told.add((str(found.privacy_), *shapes))
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_all_that_is_shown_follows_from_what_was_released(
    kind, neighbours, monkeypatch
):
    """With the released numbers held fixed, another table gives the same result."""

    def fixed(total, noise_multiplier, noise, record):
        release(total, noise_multiplier, noise, record)
        shape = total.value.shape
        values = (1.0 + np.arange(total.value.size).reshape(shape)) * score_cells.UNIT
        return Released(
            values, np.full(shape, 2.0 * score_cells.UNIT), total.kind, total.query
        )

    for module in (evaluate, score_cells):
        monkeypatch.setattr(module, "release", fixed)
    made, shown = model(kind, size=1.0), set()
    for seed in range(3):
        drawn = np.random.default_rng(seed)
        table = pd.DataFrame(ROWS).sample(frac=1.0, replace=True, random_state=seed)
        own = ["no", "yes", "neither"] if kind == "logistic" else [0.0, 1.5, 3.0, 9e9]
        table["y"] = drawn.choice(own, N)
        for by in (None, "job"):
            options = {"epsilon": 1.0, "neighbours": neighbours, "by": by}
            found = skdp.evaluate(made, table, **options)
            shown.add((by, str(found), repr(found.roc)))
    assert len(shown) == 2


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(["logistic", "linear", "poisson"]), one=row, other=row)
def test_bins_and_bounds_have_the_sensitivity_they_state(kind, one, other):
    """The first release, which chooses bins and bounds, has a bound of its own."""
    made = model(kind)
    table = ROWS | {"y": targets(kind), "w": [1.0] * N}
    asked = []
    for new in (one, other):
        rows = {
            name: np.array([*table[name], new[name]], dtype=object) for name in table
        }
        found = skdp.evaluate(made, rows, epsilon=math.inf, neighbours="replace-one")
        first, _ = found.privacy_.transcript
        (event, _) = found.privacy_.events
        asked.append((first.values, event))
    (before, event), (after, _) = asked
    assert np.linalg.norm(before - after) <= event.sensitivity
    columns = {"logistic": 1, "linear": 2, "poisson": 3}[kind]
    stated = math.sqrt(2 * columns) * score_cells.UNIT
    assert event.sensitivity == pytest.approx(stated)


def test_wrong_noise_is_caught():
    """Counts of one cell that no row is in show the noise by itself."""
    made = model("logistic", size=1.0)
    table = pd.DataFrame(ROWS).assign(y=targets("logistic"))
    given = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace-one"}
    drawn = []
    for seed in range(30):
        found = skdp.evaluate(made, table, **given, random_state=seed)
        released = found.privacy_.transcript[-1]
        drawn += (released.values[-1:] / score_cells.UNIT).tolist()
        std = float(released.noise_std[-1]) / score_cells.UNIT
    # Four columns under replace-one, nine tenths of μ² = 0.0560².
    mu = skdp.evaluate(made, table, **given).privacy_.spent ** 0.5
    assert std == pytest.approx(math.sqrt(8) / (mu * math.sqrt(0.9)), rel=1e-3)
    scaled = np.sum(np.square(drawn)) / std**2
    assert 14 < scaled < 52  # χ² of 30 degrees, beyond 0.5 % on either side
    assert metrics.CONFUSION in str(found.privacy_)
