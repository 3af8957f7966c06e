"""Classes are in scikit-learn's order, whatever order a schema lists them in."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import get_scorer
from typer.testing import CliRunner

import skdp
from skdp.cli import app
from skdp.estimators.opening import sort_target
from skdp.schema import Categorical, Numeric, Schema, toml_files

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.uniform(size=4000), "b": RNG.uniform(size=4000)})
SIDE = (X["a"] + 0.2 * RNG.normal(size=4000) > 0.5).to_numpy().astype(int)
THIRD = np.digitize(X["a"] + 0.1 * RNG.normal(size=4000), [0.33, 0.67])
#: Levels as a schema may list them; the place in the list is not the sorted one.
TWO = {"texts": ["yes", "no"], "integers": [7, -1], "truths": [True, False]}
THREE = {
    "texts": ["poor", "well", "fair"],
    "integers": [9, 10, -3],
    "floats": [2.0, 0.0, 1.0],
}


def fitted(levels, codes, kind=skdp.LogisticRegression):
    """A model of a schema with levels in an order of its own, and its labels."""
    schema = Schema(
        {"a": Numeric(0, 1), "b": Numeric(0, 1)}, target=("y", Categorical(levels))
    )
    table = X.assign(y=np.array(levels)[codes])
    model = kind(schema=schema, epsilon=np.inf, neighbours="replace-one", n_steps=30)
    return model.fit(table), table["y"].to_numpy()


@pytest.mark.parametrize("levels", TWO.values(), ids=TWO)
def test_scorers_of_two_classes(levels):
    model, y = fitted(levels, SIDE)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert get_scorer("roc_auc")(model, X, y) > 0.9
    assert get_scorer("neg_log_loss")(model, X, y) > -0.5
    assert get_scorer("accuracy")(model, X, y) > 0.8
    positive = model.decision_function(X) > 0
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[positive.astype(int)]
    )
    # The second class is the one that ``coef_`` speaks for.
    rises = np.mean(X["a"][y == model.classes_[1]]) > np.mean(X["a"])
    assert (model.coef_[0, 0] > 0) == rises


@pytest.mark.parametrize("levels", THREE.values(), ids=THREE)
def test_scorers_of_three_classes(levels):
    model, y = fitted(levels, THIRD)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert get_scorer("roc_auc_ovr")(model, X, y) > 0.85
    assert get_scorer("neg_log_loss")(model, X, y) > -0.8
    high = model.classes_.tolist().index(levels[2])
    assert np.argmax(model.coef_[:, 0]) == high
    assert model.decision_function(X).shape == (4000, 3)


def test_margins_of_support_vectors():
    model, y = fitted(["yes", "no"], SIDE, skdp.LinearSVC)
    assert get_scorer("roc_auc")(model, X, y) > 0.9


@pytest.mark.parametrize("case", ["two", "three"])
def test_exports(case, tmp_path):
    levels, codes = (["yes", "no"], SIDE) if case == "two" else (THREE["texts"], THIRD)
    model, y = fitted(levels, codes)
    chances = model.predict_proba(X)
    pipeline = model.to_sklearn()
    np.testing.assert_array_equal(pipeline.classes_, np.unique(y))
    np.testing.assert_allclose(pipeline.predict_proba(X), chances, atol=1e-9)
    np.testing.assert_array_equal(pipeline.predict(X), model.predict(X))
    model.save(tmp_path / "m")
    loaded = skdp.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.classes_, np.unique(y))
    np.testing.assert_array_equal(loaded.predict_proba(X), chances)
    runtime = pytest.importorskip("onnxruntime")
    graph = runtime.InferenceSession(model.to_onnx().SerializeToString())
    label, given = graph.run(None, {n: X[[n]].to_numpy(float) for n in ("a", "b")})
    np.testing.assert_allclose(given, chances, atol=1e-9)
    np.testing.assert_array_equal(label, model.predict(X))


def test_the_command_and_private_scores(tmp_path):
    model, y = fitted(["yes", "no"], SIDE)
    model.save(tmp_path / "m")
    X.to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", str(tmp_path / "m"), str(tmp_path / "new.csv")]
    words += ["--probabilities", "--out", str(tmp_path / "p.csv")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = pd.read_csv(tmp_path / "p.csv")
    names = ["prediction", "probability of no", "probability of yes"]
    assert list(told.columns) == names
    chances = model.predict_proba(X)
    np.testing.assert_allclose(told[names[1:]].to_numpy(), chances, atol=1e-6)
    scores = skdp.evaluate(
        model, X, y, epsilon=np.inf, metrics=["auc", "log_loss", "accuracy"]
    ).scores
    assert scores["auc"].value > 0.9
    assert scores["log_loss"].value < 0.5
    assert scores["accuracy"].value > 0.8


def test_a_saved_model_of_another_order_is_refused(tmp_path):
    """Versions before this one kept the schema's order."""
    model, _ = fitted(["no", "yes"], SIDE)
    model.save(tmp_path / "m")
    path = tmp_path / "m" / "schema.toml"
    schema = toml_files.read_toml(path)
    swapped = Schema(schema.columns, target=("y", Categorical(["yes", "no"])))
    path.write_text(toml_files.dumps(swapped), "utf-8")
    with pytest.raises(ValueError, match="must be sorted"):
        skdp.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["b", "a", "B"], ("B", "a", "b")),
        ([10, 9, "a"], (10, 9, "a")),  # texts: "10" comes before "9"
        ([1.5, -2, True], (-2, True, 1.5)),
        ([10**30, 5], (5, 10**30)),
    ],
)
def test_the_order_is_that_of_numpy(levels, expected):
    column = sort_target(("y", Categorical(levels, other=levels[0])))[1]
    assert column.levels == expected
    assert column.other == levels[0]
    made = np.array(column.levels)
    np.testing.assert_array_equal(made, np.unique(made))
    assert sort_target(Numeric(0, 1)) == Numeric(0, 1)
