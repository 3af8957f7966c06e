"""An ordinary pipeline of scikit-learn predicts the same, for every kind of column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from skdp.estimators import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
)
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

# Cells of some columns miss their range on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::skdp.estimators.DoubtfulSchemaWarning")

rng = np.random.default_rng(1)
N = 600
# Values on the edges of bins, beyond the ranges, missing, unknown and infinite.
NUMBERS = np.concatenate(
    [np.arange(-5.0, 106.0, 0.5), [np.nan, np.inf, -np.inf, 1e308, -1e-308, 1e9 + 0.3]]
)
KINDS = {
    "linear": (Numeric(0, 100), NUMBERS),
    "far": (Numeric(1e9, 1e9 + 1), NUMBERS),
    "narrow": (Numeric(np.int8(-100), np.int8(100)), NUMBERS),
    "long": (Numeric(2**53 - 3, 2**53 + 7), 2.0**53 + np.arange(-4.0, 10.0)),
    "log": (Numeric(-3, 100, scale="log", missing=-3), NUMBERS),
    "bins": (Numeric(0, 100, bins=10), NUMBERS),
    "sevenths": (Numeric(0, 1, bins=7), np.append(np.arange(0, 8) / 7, np.nan)),
    "unlucky": (Numeric(0, 49, bins=49), np.arange(50.0)),  # 1/49 · 49 < 1
    "log-bins": (Numeric(0, 100, scale="log", bins=13, missing=7), NUMBERS),
    "indicator": (Numeric(0, 100, indicator=True), NUMBERS),
    "bins-indicator": (Numeric(0, 100, bins=10, indicator=True), NUMBERS),
    "knots": (Numeric(0, 100, knots=5), NUMBERS),
    "log-knots": (Numeric(-3, 100, scale="log", knots=4, indicator=True), NUMBERS),
    "placed": (Numeric(0, 100, knots=(0, 10, 12.5, 90, 100)), NUMBERS),
    "log-placed": (Numeric(0, 99, scale="log", knots=[0, 3, 99], missing=5), NUMBERS),
    "text": (Categorical(["b", "a", "ü"]), ["a", "b", "ü", "?", None, np.nan]),
    "other": (Categorical(["b", "a"], other="a"), ["a", "b", "?", None]),
    "only-other": (Categorical(["a"], other="a"), ["a", "?", None]),
    "codes": (Categorical([3, 1, 2]), [1, 2, 3, 9, np.nan]),
    "codes-other": (Categorical([3, 1, 2], other=1), [1, 2, 3, 9, np.nan]),
    "truth": (Categorical([True, False]), [True, False]),
}
PAIRS = {
    "log:text": Pair("log", "text", knots=3),
    "knots:indicator": Pair("knots", "indicator", knots=4),
    "placed:text": Pair("placed", "text", knots=3),
    "text:codes-other": Pair("text", "codes-other", knots=2),
}
COLUMNS = {name: column for name, (column, _) in KINDS.items()} | PAIRS
TABLE = pd.DataFrame(
    {
        name: pd.Series(
            [cells[i] for i in rng.integers(len(cells), size=N)],
            dtype=object if isinstance(column, Categorical) else float,
        )
        for name, (column, cells) in KINDS.items()
    }
)
FEW = [
    "knots",
    "placed",
    "linear",
    "far",
    "log",
    "bins",
    "log-bins",
    "indicator",
    "codes",
    "codes-other",
]
COUNTS = rng.poisson(3.0, N)
LABELS = np.array(["low", "middle", "high"])[np.minimum(COUNTS // 3, 2)]


def model_of(name, columns, **options):
    if name == "binary":
        target = Categorical(["low", "middle"])
        return LogisticRegression(schema=Schema(columns, target=target), **options)
    if name == "multinomial":
        target = Categorical(["middle", "low", "high"])
        return LogisticRegression(schema=Schema(columns, target=target), **options)
    if name == "svc":
        schema = Schema(columns, target=Categorical(["low", "high"]))
        return LinearSVC(schema=schema, **options)
    kind = {
        "linear": LinearRegression,
        "huber": HuberRegressor,
        "poisson": PoissonRegressor,
    }[name]
    return kind(schema=Schema(columns, target=Numeric(0, 12)), n_steps=40, **options)


MODELS = ["binary", "multinomial", "svc", "linear", "huber", "poisson"]


def assert_same(ordinary, model, X):
    found, expected = ordinary.predict(X), model.predict(X)
    if found.dtype.kind == "U":
        assert (found == expected).all()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            np.testing.assert_allclose(
                getattr(ordinary, method)(X), getattr(model, method)(X), atol=1e-9
            )


def fitted(name, columns, X, **options):
    y = LABELS if name in ("binary", "multinomial", "svc") else COUNTS
    return model_of(name, columns, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_of_every_kind_of_column(name):
    model = fitted(name, COLUMNS, TABLE)
    ordinary = model.to_sklearn()
    assert type(ordinary) is Pipeline
    assert_same(ordinary, model, TABLE)
    assert_same(ordinary, model, TABLE[list(TABLE)[::-1]])  # columns by name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_array(name, fit_intercept):
    columns = {key: COLUMNS[key] for key in FEW}
    X = TABLE[FEW].to_numpy(dtype=float)
    model = fitted(name, columns, X, fit_intercept=fit_intercept)
    assert_same(model.to_sklearn(), model, X)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_column_by_itself(kind):
    column, cells = KINDS[kind]
    if kind == "only-other":
        return  # nothing is left of it: see the frame
    X = pd.DataFrame({kind: TABLE[kind]})
    model = fitted("multinomial", {kind: column}, X)
    rows = pd.DataFrame({kind: pd.Series(cells, dtype=TABLE[kind].dtype)})
    assert_same(model.to_sklearn(), model, rows)


@pytest.mark.parametrize("named", [True, False])
def test_a_vector_is_shortened(named):
    columns = {"linear": Numeric(0, 100), "v": Vector(["v0", "v1", "v2"], norm=2.0)}
    X = rng.normal(size=(N, 4)) * np.array([40, 1, 2, 3])
    X[0, 1:], X[1, 1:], X[2, 1] = np.nan, 1e308, np.inf
    X = pd.DataFrame(X, columns=["linear", "v0", "v1", "v2"]) if named else X
    model = fitted("multinomial", columns, X)
    assert_same(model.to_sklearn(), model, X)


def test_no_schema():
    X = rng.uniform(0, 4, size=(N, 3))
    model = LinearRegression(bounds=(0, 4), target_bounds=(0, 12)).fit(X, COUNTS)
    assert_same(model.to_sklearn(), model, X)


def test_rows_are_shortened():
    with pytest.raises(NotFittedError):
        LogisticRegression().to_sklearn()
    columns = {"a": Numeric(0, 1), "b": Numeric(0, 1)}
    schema = Schema(columns, target=Numeric(0, 12), row_norm=0.5)
    X = rng.uniform(size=(N, 2))
    model = LinearRegression(schema=schema, random_state=0).fit(X, COUNTS)
    assert_same(model.to_sklearn(), model, X)


def test_one_row_is_a_dict_of_cells():
    model = fitted("binary", COLUMNS, TABLE)
    row = {name: cells.iloc[3] for name, cells in TABLE.items()}
    for one in (model, model.to_sklearn()):
        found = one.predict_proba(row)
        np.testing.assert_allclose(found, one.predict_proba(TABLE[3:4]), rtol=1e-15)
        several = one.predict_proba([row, {"text": "a"}, row])
        np.testing.assert_array_equal(several[[0, 2]], np.vstack([found, found]))
        assert (several[1] != found[0]).any()


def test_many_levels_are_sparse():
    columns = {"c": Categorical([f"{i}" for i in range(30)]), "n": Numeric(0, 9)}
    X = pd.DataFrame({"c": rng.integers(40, size=N), "n": rng.uniform(size=N)})
    model = fitted("linear", columns, X)
    features = model.to_sklearn()["features"]
    made = features.transform(X)
    assert made.shape == (N, 31)
    assert made.nnz <= 2 * N
    assert list(features.get_feature_names_out()) == list(model.get_feature_names_out())
    assert_same(model.to_sklearn(), model, X)


def test_it_is_an_ordinary_estimator():
    ordinary = fitted("binary", COLUMNS, TABLE).to_sklearn()
    known = LABELS != "high"
    again = clone(ordinary["model"]).fit(
        ordinary[:-1].transform(TABLE)[known], LABELS[known]
    )
    assert again.score(ordinary[:-1].transform(TABLE)[known], LABELS[known]) > 0.4
