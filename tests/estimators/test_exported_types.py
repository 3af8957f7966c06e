"""Exports read cells as the model does, also if their type is not the schema's."""

import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from skdp.estimators import LinearRegression
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

#: Levels as schemas list them, in files as strings and in Python also by their values.
LEVELS = {
    "truth as text": ["True", "False"],
    "lower case": ["false", "true"],
    "truth": [True, False],
    "truth and number": [True, 1, 0],
    "integers as text": ["3", "1", "2"],
    "integers": [3, 1, 2],
    "padded numbers": ["01", "1", "2"],
    "floats as text": ["0.1", "1.5", "2.50"],
    "floats": [0.1, 1.5, 2.5],
    "mixed": ["a", 1, 2.5, True],
    "words": ["a b", "x", " x", "nan", "None"],
    "empty": ["", "a b", "1"],
    "large": [2**53 + 1, 2**60, 7],
    "infinite": [float("inf"), 1.0],
}
MIXED = [True, 1, 1.0, "1", "01", " 1", "1.0", "TRUE", "true ", b"1", b"a b", None]
MIXED += [Decimal("1.50"), Decimal(1), np.float32(0.1), np.str_("x"), np.nan]
MIXED += [
    "a b",
    " a b ",
    "x",
    " x",
    "1_0",
    "1e0",
    "nan",
    "None",
    "",
    " ",
    "?",
    2**60,
    2**53 + 1,
    7,
]
MIXED += [pd.NA, pd.NaT, pd.Timestamp("2020-01-01"), 1 + 0j, "inf", "Infinity", "2.5"]
MIXED += ["2", "3", "a"]
TEXTS = [cell for cell in MIXED if type(cell) is str]
#: Columns of the same few cells, as libraries store them.
COLUMNS = {
    "objects": pd.Series(MIXED, dtype=object),
    "texts": pd.Series(TEXTS, dtype=object),
    "strings": pd.Series([*TEXTS, None], dtype="string"),
    "category": pd.Series([*TEXTS, None], dtype="category"),
    "category of numbers": pd.Series([1, 2, 3, None], dtype="category"),
    "category of truth": pd.Series([True, False, None], dtype="category"),
    "bool": pd.Series([True, False]),
    "boolean": pd.Series([True, False, None], dtype="boolean"),
    "int64": pd.Series([0, 1, 2, 3, 2**60, 2**53 + 1]),
    "Int8": pd.Series([0, 1, 2, None], dtype="Int8"),
    "uint8": pd.Series([0, 1, 2, 255], dtype="uint8"),
    "float64": pd.Series([0.0, 1.0, 0.1, 2.5, 2.0**60, np.nan, np.inf]),
    "float32": pd.Series([0.1, 1.0, 1.5, np.nan], dtype="float32"),
    "Float64": pd.Series([0.1, 1.0, 1.5, None], dtype="Float64"),
    "decimals": pd.Series([Decimal("1.50"), Decimal("2.0"), None], dtype=object),
    "dates": pd.Series(pd.to_datetime(["2020-01-01", None])),
    "lengths of time": pd.Series(pd.to_timedelta([1, 2], unit="s")),
    "nothing": pd.Series([None, None], dtype=object),
}


def fit(columns, n=60):
    """Return a model with a different weight for each coordinate."""
    rng = np.random.default_rng(0)
    names = Schema(columns).inputs
    cells = pd.DataFrame({name: np.zeros(n, object) for name in names})
    schema = Schema(columns, target=Numeric(0, 1))
    model = LinearRegression(schema=schema, n_steps=1, engine="reference")
    model.fit(cells, np.zeros(n))
    model.weights_ = rng.normal(size=model.weights_.shape)
    return model


def assert_same(model, table):
    found = model.to_sklearn().predict(table)
    np.testing.assert_allclose(found, model.predict(table), rtol=1e-12, atol=1e-12)


def test_a_pipeline_finds_the_levels_of_cells_of_any_type():
    columns = {"n": Numeric(0, 2, indicator=True)}
    for name, levels in LEVELS.items():
        columns[name] = Categorical(levels)
        columns[f"{name}, other"] = Categorical(levels, other=levels[1])
    model = fit(columns)
    found = set()
    features = model.to_sklearn()["features"]
    names = features.get_feature_names_out()
    for series in COLUMNS.values():
        table = pd.DataFrame(dict.fromkeys(columns, series))
        assert_same(model, table)
        found |= {*names[features.transform(table).nonzero()[1]]}
    # Or else only unknown cells were compared.
    assert {name for name in names if "=" in name} <= found


def test_columns_of_a_pair_and_of_a_vector_keep_their_types():
    columns = {
        "truth": Categorical(["true", "false"]),
        "n": Numeric(0, 2),
        "pair": Pair("truth", "n", knots=2),
        "v": Vector(["v0", "v1"], norm=1.0),
    }
    model = fit(columns)
    for name in ("objects", "bool", "boolean", "Int8", "category of truth", "texts"):
        cells = COLUMNS[name]
        floats = pd.Series(np.linspace(0, 2, len(cells)))
        given = {"truth": cells, "n": floats, "v0": cells, "v1": floats}
        assert_same(model, pd.DataFrame(given))


def test_arrays_and_other_frames_are_read_as_by_the_model():
    columns = {"c": Categorical(["1", "0"]), "n": Numeric(0, 2, missing=0.3)}
    model = fit(columns)
    table = {"c": [True, False, None], "n": [1.5, None, 0.5]}
    assert_same(model, pl.DataFrame(table))
    schema = Schema(columns, target=Numeric(0, 1))
    X = np.array([[1.0, 1.5], [0.0, np.nan], [5.0, 9.0]])
    by_position = LinearRegression(schema=schema, n_steps=1, engine="reference")
    by_position.fit(X, np.zeros(3))
    by_position.weights_ = model.weights_
    masked = np.ma.masked_array([[1, 0], [0, 1], [1, 2]], [[0, 0], [0, 1], [1, 0]])
    ragged = np.array([["1.0", True], [False, "1.5"], [None, "x"]], dtype=object)
    for array in (X, X > 0, masked, ragged, ragged.astype(str), X.tolist()):
        assert_same(by_position, array)
    assert_same(by_position, sparse.csr_array(X))


def test_a_pickled_pipeline_predicts_the_same():
    model = fit({"c": Categorical(["True", "False"]), "n": Numeric(0, 2, knots=3)})
    table = pd.DataFrame({"c": COLUMNS["boolean"], "n": COLUMNS["boolean"]})
    again = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert (again.predict(table) == model.to_sklearn().predict(table)).all()


def run_graph(model, cells):
    """Return the predictions of one column of strings or of numbers."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    graph = model.to_onnx().SerializeToString()
    session = runtime.InferenceSession(graph, options)
    (node,) = session.get_inputs()
    kind = object if node.type == "tensor(string)" else float
    feeds = {node.name: np.array(cells, dtype=kind)[:, None]}
    return node.type, lambda at: session.run(None, {node.name: feeds[node.name][at]})[0]


#: Spellings of levels and of unknown cells.
SPELLED = [
    "1",
    "01",
    "+1",
    "1.0",
    "1.",
    "1e0",
    "10e-1",
    "true",
    "TRUE",
    "True",
    "False",
]
SPELLED += [
    "0",
    "-0.0",
    "2.5",
    "2.50",
    ".1",
    "0.10",
    "1_0",
    "１",
    "nan",
    "None",
    "",
    " ",
]
SPELLED += [
    "x",
    "a b",
    "a  b",
    "?",
    "inf",
    "-inf",
    "Infinity",
    "7.0",
    "0x1",
    "1e",
    "e1",
]
SPELLED += [str(2**60), str(2**53 + 1), "3.0", "02", "+", ".", "\n", "\u2003", "a\nb"]
#: Those that a graph may refuse, although the model reads them.
PADDED = [" x", "x\t", " a b", " 1", "1.0 ", "\u20031", "\n?", "\na", "true\n", "\x1f1"]
LARGE = [f"+{2**60}", f"{2**60}.0", "1.152921504606846976e18", "1e400", f"+{2**53 + 1}"]


@pytest.mark.parametrize("levels", LEVELS)
def test_a_graph_finds_the_level_of_every_spelling_or_refuses_it(levels):
    model = fit({"c": Categorical(LEVELS[levels])})
    kind, run = run_graph(model, ["1"])
    if kind == "tensor(double)":
        numbers = [0.0, 1.0, 2.0, 3.0, 0.1, 1.5, 2.5, 7.0, np.nan, np.inf, 2.0**60]
        _, run = run_graph(model, numbers)
        expected = model.predict(pd.DataFrame({"c": numbers}))
        np.testing.assert_allclose(run(slice(None)), expected, atol=1e-12)
        return
    every = SPELLED + PADDED + LARGE
    expected = model.predict(pd.DataFrame({"c": pd.Series(every, dtype=object)}))
    _, run = run_graph(model, every)
    refused, said = [], []
    for i, cell in enumerate(every):
        try:
            found = run(slice(i, i + 1))
        except Exception as error:
            refused.append(cell)
            said.append(str(error))
        else:
            np.testing.assert_allclose(found, expected[i : i + 1], atol=1e-12)
    allowed = set(PADDED) | set(LARGE)
    if "" in LEVELS[levels]:
        allowed |= {" ", "\n", "\u2003"}
    assert set(refused) <= allowed
    assert set(PADDED) - set(map(str, LEVELS[levels])) <= set(refused)
    blanks = [e for cell, e in zip(refused, said, strict=True) if cell in PADDED]
    assert all("Remove the blanks around cells of 'c'" in error for error in blanks)
