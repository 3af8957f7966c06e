"""An ONNX graph predicts as the model does, for every kind of column and model."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from test_sklearn_export import (
    COLUMNS,
    COUNTS,
    FEW,
    KINDS,
    MODELS,
    TABLE,
    N,
    fitted,
    rng,
)

import skdp
from skdp.estimators import LinearRegression, LogisticRegression
from skdp.schema import Categorical, Numeric, Schema, Vector

onnxruntime = pytest.importorskip("onnxruntime")
# Cells of some columns miss their range on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::skdp.estimators.DoubtfulSchemaWarning")


def run(graph, X):
    """Outputs by name, of a frame or an array."""
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    feeds = {"X": X}
    if isinstance(X, pd.DataFrame):
        wanted = {node.name: node.type for node in session.get_inputs()}
        feeds = {
            name: np.where(X[name].isna(), "", X[name].astype(str))
            if kind == "tensor(string)"
            else X[name].to_numpy(dtype=float, na_value=np.nan)
            for name, kind in wanted.items()
        }
        feeds = {name: cells.reshape(-1, 1) for name, cells in feeds.items()}
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def assert_same(model, X):
    found, expected = run(model.to_onnx(), X), model.predict(X)
    if not hasattr(model, "classes_"):
        assert list(found) == ["variable"]
        np.testing.assert_allclose(found["variable"], expected, rtol=1e-11, atol=1e-11)
        return
    assert (found["label"] == expected).all()
    if hasattr(model, "predict_proba"):
        assert list(found) == ["label", "probabilities"]
        expected = model.predict_proba(X)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-12)
    else:
        assert list(found) == ["label", "margin"]
        expected = model.decision_function(X)
        np.testing.assert_allclose(found["margin"], expected, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_of_every_kind_of_column(name):
    assert_same(fitted(name, COLUMNS, TABLE), TABLE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_array(name, fit_intercept):
    columns = {key: COLUMNS[key] for key in FEW}
    X = TABLE[FEW].to_numpy(dtype=float)
    assert_same(fitted(name, columns, X, fit_intercept=fit_intercept), X)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_column_by_itself(kind):
    column, cells = KINDS[kind]
    model = fitted("multinomial", {kind: column}, pd.DataFrame({kind: TABLE[kind]}))
    rows = pd.DataFrame({kind: pd.Series(cells, dtype=TABLE[kind].dtype)})
    assert_same(model, rows)


@pytest.mark.parametrize("named", [True, False])
def test_a_vector_is_shortened(named):
    columns = {"linear": Numeric(0, 100), "v": Vector(["v0", "v1", "v2"], norm=2.0)}
    X = rng.normal(size=(N, 4)) * np.array([40, 1, 2, 3])
    X[0, 1:], X[1, 1:], X[2, 1], X[3, 1:], X[4, 2] = np.nan, 1e308, np.inf, 0, -np.inf
    X = pd.DataFrame(X, columns=["linear", "v0", "v1", "v2"]) if named else X
    assert_same(fitted("multinomial", columns, X), X)


def test_it_predicts_as_the_ordinary_pipeline():
    model = fitted("binary", COLUMNS, TABLE)
    found = run(model.to_onnx(), TABLE)["probabilities"]
    expected = model.to_sklearn().predict_proba(TABLE)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_fraction_is_not_a_level():
    """1.5 is neither 1 nor 2."""
    schema = Schema({"code": Categorical([1, 2])}, target=Numeric(0, 12))
    X = pd.DataFrame({"code": rng.choice([1.0, 2.0, 1.5], N)})
    assert_same(LinearRegression(schema=schema, n_steps=5).fit(X, COUNTS), X)


@pytest.mark.parametrize(
    "classes", [["no", "yes"], [3, 7], [True, False], [0.5, 1.5], ["é", "ü", "0"]]
)
def test_labels_of_every_type(classes):
    X = rng.uniform(size=(N, 2))
    y = np.array(classes)[rng.integers(len(classes), size=N)]
    model = LogisticRegression(bounds=(0, 1), classes=classes, n_steps=5).fit(X, y)
    found = run(model.to_onnx(), X)["label"]
    assert_same(model, X)
    assert found.dtype.kind in (model.classes_.dtype.kind, "O")


def test_an_array_of_texts_has_an_input_a_column():
    X = np.column_stack([rng.choice(["a", "b"], N), rng.uniform(size=N)]).astype(object)
    schema = Schema(
        {"job": Categorical(["a", "b"]), "x": Numeric(0, 1)}, target=Numeric(0, 12)
    )
    model = LinearRegression(schema=schema, n_steps=5).fit(X, COUNTS)
    frame = pd.DataFrame({"job": X[:, 0], "x": X[:, 1].astype(float)})
    found = run(model.to_onnx(), frame)["variable"]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-11)


def test_odd_names_of_columns_do_no_harm():
    names = ["0", "1", "X", "label", "probabilities", "é\n/"]
    schema = Schema(
        {name: Numeric(0, 1) for name in names}, target=Categorical(["no", "yes"])
    )
    frame = pd.DataFrame({name: rng.uniform(size=N) for name in names})
    model = LogisticRegression(schema=schema, n_steps=5)
    model.fit(frame, np.array(["no", "yes"])[rng.integers(2, size=N)])
    found = run(model.to_onnx(), frame)
    assert list(found) == ["label_", "probabilities_"]
    chance = model.predict_proba(frame)
    np.testing.assert_allclose(found["probabilities_"], chance, atol=1e-12)


def test_it_says_what_was_promised_and_holds_no_seed():
    graph = fitted("binary", COLUMNS, TABLE).to_onnx()
    said = {pair.key: pair.value for pair in graph.metadata_props}
    assert said["privacy"].startswith("seeded: no privacy claim")
    assert graph.producer_name == "skdp"
    assert set(said) == {"privacy"}


def test_a_loaded_model_has_one_too(tmp_path):
    model = fitted("huber", COLUMNS, TABLE)
    model.save(tmp_path / "model")
    assert_same(skdp.load(tmp_path / "model"), TABLE)


def test_what_it_cannot_do_is_said(monkeypatch):
    with pytest.raises(NotFittedError):
        LogisticRegression().to_onnx()
    schema = Schema({"x0": Numeric(0, 1)}, target=Numeric(0, 12), row_norm=0.5)
    model = LinearRegression(schema=schema).fit(rng.uniform(size=(N, 1)), COUNTS)
    with pytest.raises(ValueError, match="row_norm"):
        model.to_onnx()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"skdp\[onnx\]"):
        fitted("binary", COLUMNS, TABLE).to_onnx()
