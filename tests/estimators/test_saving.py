"""A saved model predicts the same bits, holds no seed, and cannot lie about ε."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest

from skdp.estimators import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
)
from skdp.estimators.saving import load
from skdp.schema import Categorical, Numeric, Schema

rng = np.random.default_rng(0)
N = 400
TABLE = pd.DataFrame(
    {"age": rng.uniform(10, 90, N), "job": rng.choice(["ä", "b", "c\n"], N)}
)
COLUMNS = {
    "age": Numeric(10, 90, scale="log"),
    "job": Categorical(["ä", "b", "c\n"], other="b"),
}
COUNTS = rng.poisson(2.0, N)
CLASSIFIED = Schema(COLUMNS, target=Categorical(["no", "yes"]))
COUNTED = Schema(COLUMNS, target=Numeric(0, 12))
YES = np.where(COUNTS > 2, "yes", "no")

MODELS = {
    "logistic": (LogisticRegression(schema=CLASSIFIED), TABLE, YES),
    "svc": (LinearSVC(schema=CLASSIFIED, class_weight={"yes": 0.5}), TABLE, YES),
    "linear": (LinearRegression(schema=COUNTED), TABLE, COUNTS),
    "huber": (HuberRegressor(schema=COUNTED, neighbours="add-remove"), TABLE, COUNTS),
    "poisson": (PoissonRegressor(schema=COUNTED, n_steps=20), TABLE, COUNTS),
    "noiseless": (LogisticRegression(epsilon=math.inf, n_steps=9), TABLE, YES),
    "multinomial": (
        LogisticRegression(classes=[0, 2, 1], bounds=([0, 0], [9, 1])),
        rng.uniform(size=(N, 2)),
        np.minimum(COUNTS, 2),
    ),
    "integers": (
        LogisticRegression(
            classes=np.array([3, 1], np.int16), bounds=(0, 1), fit_intercept=False
        ),
        rng.uniform(size=(N, 2)),
        np.where(COUNTS > 2, 3, 1),
    ),
    "booleans": (
        LogisticRegression(classes=[False, True], bounds=(0, 1), geometry="diagonal"),
        rng.uniform(size=(N, 2)),
        COUNTS > 2,
    ),
}


@pytest.fixture(scope="module")
def fitted():
    return LogisticRegression(schema=CLASSIFIED, random_state=7).fit(TABLE, YES)


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_predict_the_same_bits(name, tmp_path):
    model, X, y = MODELS[name]
    model = model.fit(X, y)
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    assert type(other) is type(model)
    assert other.predict(X).dtype == model.predict(X).dtype
    assert (other.predict(X) == model.predict(X)).all()
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            assert (getattr(other, method)(X) == getattr(model, method)(X)).all()
    for attribute in ("coef_", "intercept_", "weights_", "n_features_in_", "n_iter_"):
        assert np.array_equal(getattr(other, attribute), getattr(model, attribute))
    assert list(other.get_feature_names_out()) == list(model.get_feature_names_out())
    assert hasattr(other, "feature_names_in_") == hasattr(model, "feature_names_in_")
    assert other.privacy_.spent_epsilon == model.privacy_.spent_epsilon
    assert other.privacy_.events == model.privacy_.events
    assert str(other.privacy_) == str(model.privacy_)
    assert other.plan_["n_rows"] == model.plan_.n_rows
    other.save(tmp_path / "again")
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / "model" / file.name).read_bytes()


def test_parameters_come_back_but_no_seed(tmp_path):
    given = {"epsilon": 2.0, "alpha": 0.5, "class_weight": {"yes": 0.5, "no": 1.0}}
    model = LogisticRegression(schema=CLASSIFIED, random_state=123_456_789, **given)
    model.fit(TABLE, YES).save(tmp_path / "model")
    other = load(tmp_path / "model")
    assert {name: getattr(other, name) for name in given} == given
    assert other.schema == CLASSIFIED
    assert other.random_state is None
    assert other.privacy_.seeded
    for file in (tmp_path / "model").iterdir():
        assert "123456789" not in file.read_text("utf-8")
    other.set_params(random_state=123_456_789).fit(TABLE, YES)
    assert (other.coef_ == model.coef_).all()


def test_saving_again_replaces_a_model_and_nothing_else(saved, tmp_path):
    model = LogisticRegression(schema=CLASSIFIED).fit(TABLE, YES)
    model.save(saved)
    assert (load(saved).coef_ == model.coef_).all()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "directory").mkdir()
    (saved / "notes.txt").write_text("mine too")
    for name in ("file", "directory", "model"):
        with pytest.raises(ValueError, match="is not a saved model"):
            model.save(tmp_path / name)
    assert (saved / "notes.txt").read_text() == "mine too"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["directory", "file", "model"]


def test_a_failure_while_writing_leaves_the_old_model(saved, tmp_path, monkeypatch):
    before = load(saved).coef_
    model = LogisticRegression(schema=CLASSIFIED).fit(TABLE, YES)

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(saved)
    assert (load(saved).coef_ == before).all()
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def changed(path, key, value):
    about = json.loads(path.read_text("utf-8"))
    at = about
    *way, last = key
    for step in way:
        at = at[step]
    if value is KeyError:
        del at[last]
    else:
        at[last] = value
    path.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        ("model.json", ["format"], "other", "at format"),
        ("model.json", ["format_version"], 2, "at format_version"),
        ("model.json", ["format_version"], True, "got true or false at format_version"),
        ("model.json", ["estimator"], "os.system", "must be one of"),
        ("model.json", ["estimator"], "LinearRegression", "numeric target"),
        ("model.json", ["estimator"], KeyError, "missing key `estimator`"),
        ("model.json", ["extra"], 1, "unknown key `extra`"),
        ("model.json", ["parameters", "random_state"], 3, "a parameter"),
        ("model.json", ["parameters", "__class__"], 3, "a parameter"),
        ("model.json", ["parameters", "epsilon"], "1", "wrong parameter epsilon"),
        ("model.json", ["parameters", "alpha"], {"a": 1}, "got a table at parameters"),
        ("model.json", ["parameters", "schema"], 3, "wrong parameter schema"),
        (
            "model.json",
            ["parameters", "class_weight"],
            [3],
            "wrong parameter class_weight",
        ),
        (
            "model.json",
            ["parameters", "fit_intercept"],
            False,
            "weights in model.json must have shape",
        ),
        (
            "model.json",
            ["weights", 0],
            [1.0, 2.0],
            "weights in model.json must have shape",
        ),
        ("model.json", ["weights", 0, 0], "1", "got text at weights"),
        ("model.json", ["weights", 0, 0], float("nan"), "not JSON"),
        ("model.json", ["weights"], {}, "got a table at weights"),
        ("model.json", ["classes_dtype"], "<f8", "classes have type"),
        ("model.json", ["classes_dtype"], "<U1", "classes have type"),
        ("model.json", ["classes_dtype"], "import os", "at classes_dtype"),
        ("privacy.json", ["neighbours"], "friends", "at neighbours"),
        ("privacy.json", ["releases", 0, "noise_multiplier"], 1e9, "add up to"),
        ("privacy.json", ["releases", 0, "times"], 2, "add up to"),
        ("privacy.json", ["releases", 0, "n_draws"], -1, "at releases"),
        ("privacy.json", ["releases", 0], 3, "at releases"),
        ("privacy.json", ["spent_epsilon"], 0.1, "add up to"),
        ("privacy.json", ["spent_epsilon"], None, "at spent_epsilon"),
        ("privacy.json", ["epsilon"], 0.01, "a budget of ε = 0.01 but spends"),
        ("privacy.json", ["delta"], "x", "at delta"),
        ("privacy.json", ["assumptions"], [3], "at assumptions"),
    ],
)
def test_changed_files_are_refused(saved, file, key, value, message):
    changed(saved / file, key, value)
    with pytest.raises(ValueError, match=message) as error:
        load(saved)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["model.json", "schema.toml", "privacy.json"])
@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\xfe", b"[" * 100_000, b"[]", b"3", b"null"]
)
def test_files_that_are_something_else_are_refused(saved, file, content):
    (saved / file).unlink()
    if content is not None:
        (saved / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"[a-z]") as error:
        load(saved)
    assert "\n" not in str(error.value).strip()


def test_a_release_that_is_listed_twice_is_refused(saved):
    """Its last line would count, while a reader may add up both."""
    listed = json.loads((saved / "privacy.json").read_text("utf-8"))["releases"]
    again = [listed[0] | {"times": listed[0]["times"] + 1}, *listed]
    changed(saved / "privacy.json", ["releases"], again)
    with pytest.raises(ValueError, match="lists a release twice"):
        load(saved)


def test_a_schema_of_other_columns_is_refused(saved, tmp_path):
    LinearRegression(schema=COUNTED).fit(TABLE, COUNTS).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "schema.toml", saved / "schema.toml")
    with pytest.raises(ValueError, match="categorical target"):
        load(saved)


def test_nothing_is_saved_before_a_fit(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        LogisticRegression().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["none", "a.txt"])
def test_a_missing_model_is_reported(tmp_path, name):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match=f"There is no saved model '.*{name}'"):
        load(tmp_path / name)
