"""The content of a single record shows only in released numbers.

One record is replaced by hostile cells. No error, warning, printed line, shape, plan
or record of what was spent may tell, for every kind of table.
"""

import csv
import dataclasses
import io
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skdp.estimators import (
    AdditiveClassifier,
    LinearRegression,
    LogisticRegression,
)
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector
from skdp.tables import CSV

N = 30
rng = np.random.default_rng(4)
COLUMNS = {
    "age": Numeric(0, 90),
    "gain": Numeric(0, 1e5, scale="log", indicator=True),
    "hours": Numeric(0, 100, bins=5),
    "v": Vector(["v0", "v1"], norm=2.0),
    "job": Categorical(["admin", "tech"]),
    "town": Categorical(["here", "there"], other="there"),
}
CURVED = COLUMNS | {
    "age": Numeric(0, 90, knots=4),
    "age:gain": Pair("age", "gain", knots=3),
    "gain:job": Pair("gain", "job", knots=2),
    "job:town": Pair("job", "town", knots=2),
}
ROWS = {
    "age": rng.uniform(0, 90, N).tolist(),
    "gain": rng.uniform(0, 1e5, N).tolist(),
    "hours": rng.uniform(0, 100, N).tolist(),
    "v0": rng.normal(size=N).tolist(),
    "v1": rng.normal(size=N).tolist(),
    "job": rng.choice(["admin", "tech"], N).tolist(),
    "town": rng.choice(["here", "there"], N).tolist(),
    "label": rng.choice(["no", "yes"], N).tolist(),
    "amount": rng.uniform(-1, 1, N).tolist(),
    "weight": rng.uniform(0, 1, N).tolist(),
}
TEXTS = ("job", "town", "label")
HUGE = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 2.0**70]
GARBAGE = ["", "?", "nan", "1e999", "1_0", "\ud7ff", 'a "b", c', "two\nlines", "tech "]
ODD = [
    None,
    True,
    10**400,
    b"\xff",
    (1, 2),
    {"a": 1},
    object,
    1j,
    np.datetime64("NaT", "s"),
]

numbers = st.one_of(st.sampled_from(HUGE), st.floats(), st.none())
texts = st.one_of(st.sampled_from(GARBAGE), st.text(max_size=5), st.none())
anything = st.one_of(numbers, texts, st.sampled_from(ODD))


def arrow(rows):
    types = {name: pa.string() if name in TEXTS else pa.float64() for name in rows}
    return pa.table({name: pa.array(rows[name], types[name]) for name in rows})


def written(rows, path, text):
    def cell(value):
        return "" if value is None else value if isinstance(value, str) else repr(value)

    if text:
        out = io.StringIO(newline="")
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        writer.writerow(rows)
        writer.writerows([map(cell, row) for row in zip(*rows.values(), strict=True)])
        path.write_bytes(out.getvalue().encode("utf-8", "replace"))
    else:
        pq.write_table(arrow(rows), path)
    return CSV(path, multiline=True) if text else path  # cells may hold line ends


def clean(text):
    return None if text is None else text.encode("utf-8", "replace").decode()


KINDS = {
    "pandas": (lambda rows, _: pd.DataFrame(rows), "typed"),
    "pandas-objects": (lambda rows, _: pd.DataFrame(rows, dtype=object), "objects"),
    "polars": (lambda rows, _: pl.from_arrow(arrow(rows)), "typed"),
    "arrow": (lambda rows, _: arrow(rows), "typed"),
    "dict": (lambda rows, _: dict(rows), "objects"),
    "csv": (lambda rows, where: written(rows, where / "t.csv", True), "text"),
    "parquet": (lambda rows, where: written(rows, where / "t.parquet", False), "typed"),
}


def one_record(kind):
    """A strategy for a row index and its cells."""
    cells = {
        "objects": dict.fromkeys(ROWS, anything),
        "text": {name: texts.map(clean) for name in ROWS},
        "typed": {
            name: texts.map(clean) if name in TEXTS else numbers for name in ROWS
        },
    }[kind]
    return st.tuples(st.integers(0, N - 1), st.fixed_dictionaries(cells))


def changed(at, cells):
    return {
        name: [*column[:at], cells[name], *column[at + 1 :]]
        for name, column in ROWS.items()
    }


MODELS = {
    "classifier": LogisticRegression(
        schema=Schema(COLUMNS, target=("label", Categorical(["no", "yes"]))),
        class_weight={"yes": 0.5},
    ),
    "regressor": LinearRegression(
        schema=Schema(COLUMNS, target=("amount", Numeric(-1, 1))),
        geometry="diagonal",
        neighbours="zero-out",
    ),
    "private-rows": LogisticRegression(
        schema=Schema(COLUMNS, target=("label", Categorical(["no", "yes"]))),
        neighbours="add-remove",
        n_rows=N,
        max_weight=2.0,
    ),
    "additive": AdditiveClassifier(
        schema=Schema(CURVED, target=("label", Categorical(["no", "yes"]))),
        neighbours="add-remove",
    ),
}


def face(model, table, predicted):
    """Return all that a fit and its predictions show, except released numbers."""
    out, err = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        try:
            model.set_params(random_state=0, n_steps=2, engine="reference")
            model.fit(table, sample_weight="weight")
            shapes = [np.shape(model.predict(predicted))]
            error = None
        except Exception as raised:
            return repr(raised), getattr(raised, "__notes__", None)
    plan = {
        field.name: repr(getattr(model.plan_, field.name))
        for field in dataclasses.fields(model.plan_)
    }
    for name, value in sorted(vars(model).items()):
        released = name.endswith("_") or name == "_run_weights"
        shapes.append((name, np.shape(value) if released else repr(value)))
    return (
        error,
        [(w.category, str(w.message)) for w in caught],
        out.getvalue(),
        err.getvalue(),
        re.sub("0x[0-9a-f]+", "", repr((plan, repr(model)))),
        str(model.privacy_),
        list(model.privacy_.events.items()),
        [np.shape(value) for value in model.privacy_.transcript],
        repr(vars(find_limits(model))),
        list(model.get_feature_names_out()),
        shapes,
    )


def find_limits(model):
    """The schema before a look, which narrows ranges by what it released."""
    return model.schema_ if model.profile_ is None else model.profile_.limits


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_one_record_shows_in_released_numbers_alone(kind, name, data, tmp_path):
    make, cells = KINDS[kind]
    table = make(ROWS, tmp_path)
    expected = face(MODELS[name], table, table)
    assert expected[0] is None
    at, record = data.draw(one_record(cells))
    other = make(changed(at, record), tmp_path)
    assert face(MODELS[name], other, other) == expected


@pytest.mark.parametrize("hostile", [*HUGE, *GARBAGE, *ODD])
def test_one_record_of_an_array(hostile):
    X = rng.uniform(0, 10, (N, 3)).astype(object)
    y = rng.integers(0, 2, N).astype(object)
    model = LogisticRegression(bounds=(0, 10), classes=[0, 1], random_state=0)
    model.set_params(n_steps=2, engine="reference")

    def shown(X, y):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
            shape = model.predict_proba(X).shape
        record, said = str(model.privacy_), [str(one.message) for one in caught]
        return record, shape, model.coef_.shape, said, repr(vars(find_limits(model)))

    expected = shown(X, y)
    others = X.copy(), y.copy()
    others[0][3, 1] = others[1][3] = None
    others[0][3].fill(None)
    for row in range(3):
        others[0][[3], row] = np.array([hostile, None], dtype=object)[:1]
    others[1][[3]] = np.array([hostile, None], dtype=object)[:1]
    assert shown(*others) == expected
    assert shown(others[0].tolist(), others[1].tolist()) == expected
    if isinstance(hostile, float):
        typed = others[0].astype(float)
        assert shown(typed, others[1].astype(float)) == expected


def test_the_test_can_fail():
    """A schema that differs shows; so would a message about a value."""
    table = pd.DataFrame(ROWS)
    expected = face(MODELS["classifier"], table, table)
    assert face(MODELS["private-rows"], table, table) != expected
    short = face(MODELS["classifier"], table[:-1], table[:-1])
    assert short != expected
