"""The estimators inside scikit-learn: clones, pipelines, searches, routing, scores."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from skdp.estimators import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NotPrivateWarning,
    PoissonRegressor,
)
from skdp.schema import Categorical, Numeric, Schema

rng = np.random.default_rng(3)
N = 3000
X = rng.uniform(size=(N, 3))
Y = (X[:, 0] + 0.3 * rng.normal(size=N) > 0.5).astype(int)
FRAME = pd.DataFrame(
    {"size": X[:, 0], "age": 90 * X[:, 1], "job": np.where(Y == 1, "a", "b")}
)
SCHEMA = Schema(
    {"size": Numeric(0, 1), "age": Numeric(0, 90), "job": Categorical(["a", "b"])},
    target=Categorical([0, 1]),
)
ALL = [
    LogisticRegression(classes=[0, 1]),
    LinearSVC(classes=[0, 1]),
    LinearRegression(target_bounds=(0, 1)),
    HuberRegressor(target_bounds=(0, 1)),
    PoissonRegressor(target_bounds=(0, 1), n_steps=30),
]
named = pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)


@named
def test_clone_copies_parameters_and_nothing_fitted(model):
    model = clone(model).set_params(bounds=(0, 1), random_state=1, epsilon=2.0)
    model.fit(X, Y)
    again = clone(model)
    assert again.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        again.predict(X)
    assert (again.fit(X, Y).coef_ == model.coef_).all()


@named
def test_pickles_and_copies_predict_the_same(model):
    model = clone(model).set_params(bounds=(0, 1)).fit(X, Y)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (other.predict(X) == model.predict(X)).all()
        assert str(other.privacy_) == str(model.privacy_)


@named
def test_pickles_hold_no_record(model):
    marked = X.copy()
    marked[7] = 0.123456789, 0.987654321, 0.5555551
    model = clone(model).set_params(bounds=(0, 1)).fit(marked, Y)
    stored = pickle.dumps(model)
    assert len(stored) < 100_000
    for value in marked[7]:
        assert np.float64(value).tobytes() not in stored


@named
def test_cross_validation(model):
    model = clone(model).set_params(bounds=(0, 1), epsilon=8.0)
    scores = cross_val_score(model, X, Y, cv=3)
    assert scores.shape == (3,)
    assert (scores > 0.05).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search(n_jobs):
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1])
    grid = {"alpha": [1e-4, 10.0], "epsilon": [8.0]}
    search = GridSearchCV(model, grid, cv=3, n_jobs=n_jobs).fit(X, Y)
    assert search.best_params_["alpha"] == 1e-4
    assert search.predict(X[:5]).shape == (5,)


def test_a_pipeline_and_a_column_transformer():
    columns = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["size", "age"]),
            ("job", OneHotEncoder(), ["job"]),
        ]
    )
    model = LogisticRegression(bounds=(-3, 3), classes=[0, 1])
    whole = make_pipeline(columns, MinMaxScaler(feature_range=(-3, 3)), model)
    whole.fit(FRAME, Y)
    assert whole.score(FRAME, Y) > 0.9  # the last step sees a new array
    assert clone(whole).get_params()["logisticregression__classes"] == [0, 1]


def test_a_frame_goes_through_a_search():
    search = GridSearchCV(LogisticRegression(schema=SCHEMA), {"epsilon": [1.0, 4.0]})
    assert search.fit(FRAME, Y).best_score_ > 0.9


def test_weights_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(bounds=(0, 1), classes=[0, 1], random_state=0)
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        weight = (X[:, 1] > 0.5).astype(float)
        search = GridSearchCV(model, {"epsilon": [1.0]}, cv=3)
        search.fit(X, Y, sample_weight=weight)
        direct = clone(model).fit(X, Y, sample_weight=weight)
        assert (search.best_estimator_.coef_ == direct.coef_).all()
        plain = clone(model).fit(X, Y)
        assert (plain.coef_ != direct.coef_).any()


def test_columns_are_found_by_name():
    model = LogisticRegression(schema=SCHEMA, random_state=0).fit(FRAME, Y)
    assert list(model.feature_names_in_) == ["size", "age", "job"]
    assert model.n_features_in_ == 3
    turned = FRAME[["job", "size", "age"]].assign(extra=1)
    assert (model.predict_proba(turned) == model.predict_proba(FRAME)).all()
    with pytest.raises(ValueError, match="no column 'age'"):
        model.predict(FRAME.drop(columns="age"))
    assert list(model.get_feature_names_out()) == ["size", "age", "job=a", "job=b"]
    assert model.coef_.shape == (1, 4)
    model.fit(FRAME[["job", "size", "age"]], Y)
    assert list(model.feature_names_in_) == ["size", "age", "job"]


def test_only_named_tables_have_feature_names():
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1])
    assert not hasattr(model.fit(X, Y), "feature_names_in_")
    assert not hasattr(model.fit(pd.DataFrame(X), Y), "feature_names_in_")
    frame = pd.DataFrame(X, columns=list("abc"))
    assert list(model.fit(frame, Y).feature_names_in_) == ["a", "b", "c"]
    assert not hasattr(model.fit(X, Y), "feature_names_in_")  # an earlier fit's
    assert list(model.get_feature_names_out()) == ["x0", "x1", "x2"]


def test_coefficients_are_in_the_users_units():
    columns = {"size": Numeric(-1, 3), "age": Numeric(10, 90)}
    model = LinearRegression(schema=Schema(columns, target=Numeric(-2, 5)))
    model.fit(FRAME, Y)
    ends = {name: column.ends for name, column in model.schema_.columns.items()}
    rows = FRAME.assign(**{name: FRAME[name].clip(*ends[name]) for name in ends})
    by_hand = rows[["size", "age"]].to_numpy() @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(FRAME), by_hand, atol=1e-12)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.array([0, 1]), np.int64),
        (np.array([0, 1], np.uint8), np.int64),
        (np.array([-1.0, 1.0]), np.int64),
        (np.array([False, True]), np.bool_),
        (np.array(["no", "yes"]), np.dtype("<U3")),
        (np.array(["no", "yes"], dtype=object), np.dtype("<U3")),
        (np.array(["0", "1"]), np.int64),
        (np.array([0, 1], dtype=object), np.int64),
    ],
)
def test_labels_that_are_found_have_the_type_of_their_texts(labels, dtype):
    y, typed = labels[Y], labels.astype(dtype)
    model = LogisticRegression(bounds=(0, 1), epsilon=4.0).fit(X, y)
    assert model.classes_.dtype == dtype
    assert (model.classes_ == typed).all()
    assert (model.predict(X) == typed[Y]).mean() > 0.6
    kind = "string[pyarrow]" if y.dtype.kind == "U" else None
    series = model.fit(X, pd.Series(y, dtype=kind))
    assert (series.classes_ == typed).all()


def test_what_is_public_and_wrong_raises():
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1])
    for table, target, message in [
        (X, Y[:-1], "as many rows"),
        (X[0], Y, "Reshape your data"),
        (X[:, :0], Y, r"0 feature\(s\)"),
        (X + 1j, Y, "Complex data not supported"),
        (pd.DataFrame(X + 1j), Y, "Complex data not supported"),
        (X, Y + 1j, "Complex data not supported"),
        (X, None, "requires y"),
        (X, np.column_stack([Y, Y]), "should be a 1d array"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(table, target)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        clone(model).set_params(neighbours="replace-one").fit(X[:0], Y[:0])
    with pytest.raises(ValueError, match="X has 2 features, but LogisticRegression is"):
        model.fit(X, Y).predict(X[:, :2])
    for change, message in [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": "1"}, "epsilon must be a number, got '1'"),
        ({"epsilon": None}, "epsilon must be a number"),
        ({"delta": "1e-6"}, "delta must be a number, got '1e-6'"),
        ({"delta": 0.1}, "delta must be"),
        ({"neighbours": "friends"}, "neighbours must be"),
        ({"n_steps": 0}, "n_steps must be"),
        ({"engine": "fast"}, "engine must be"),
        ({"class_weight": {7: 1}}, "Keys of class_weight must be"),
        ({"bounds": (1, 0)}, "low < high"),
    ]:
        with pytest.raises(ValueError, match=message):
            clone(model).set_params(**change).fit(X, Y)


def test_a_column_vector_is_taken_with_a_warning():
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1], random_state=0)
    expected = clone(model).fit(X, Y).coef_
    for y in (Y[:, None], pd.DataFrame({"y": Y})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            model.fit(X, y)
        assert (model.coef_ == expected).all()


def test_lists_are_tables_too():
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1], random_state=0)
    expected = clone(model).fit(X, Y)
    model.fit(X.tolist(), Y.tolist())
    assert (model.coef_ == expected.coef_).all()
    assert (model.predict_proba(X.tolist()) == expected.predict_proba(X)).all()


def test_private_rows_may_be_none_at_all():
    model = LogisticRegression(
        bounds=(0, 1), classes=[0, 1], neighbours="add-remove", n_rows=100
    )
    assert model.fit(X[:0], Y[:0]).predict(X).shape == (N,)
    model.set_params(n_rows=None)
    assert model.fit(X[:0], Y[:0]).predict(X).shape == (N,)


def test_the_training_tables_score_is_said_not_to_be_private(tmp_path):
    FRAME.assign(y=Y).to_csv(tmp_path / "table.csv", index=False)
    target = {"y": Y}
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1])
    by_file = LogisticRegression(
        schema=Schema(SCHEMA.columns, target=("y", Categorical([0, 1])))
    )
    frame = FRAME.copy()
    for fitted, table in [
        (clone(model).fit(X, Y), X),
        (LogisticRegression(schema=SCHEMA).fit(frame, Y), frame),
        (by_file.fit(tmp_path / "table.csv"), str(tmp_path / "table.csv")),
    ]:
        copied = copy.copy(table) if not isinstance(table, str) else FRAME
        fitted.score(copied, target["y"])  # another object: nothing is said
        with pytest.warns(NotPrivateWarning, match="is not private"):
            fitted.score(table, target["y"])
        fitted.score(table, target["y"])  # said once
    model.fit(X, Y)
    with pytest.warns(NotPrivateWarning):
        model.score(X, Y)
    model.fit(X, Y)
    with pytest.warns(NotPrivateWarning):  # once per fit
        model.score(X, Y)


def test_a_training_table_is_not_kept_alive():
    import gc
    import weakref

    model, table = LogisticRegression(bounds=(0, 1), classes=[0, 1]), X.copy()
    model.fit(table, Y)
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(X, Y)


def test_a_found_range_of_counts_starts_at_zero():
    y = rng.poisson(900.0, size=N)  # no count is near zero
    model = PoissonRegressor(epsilon=4.0, n_steps=30).fit(X, y)
    assert model.schema_.target_column.low == 0
    assert model.schema_.target_column.high > 900


def test_the_record_prints():
    model = LogisticRegression(bounds=(0, 1), classes=[0, 1]).fit(X, Y)
    assert "differential privacy" in str(model.privacy_)
    assert "LogisticRegression" in repr(model)
    seeded = LogisticRegression(bounds=(0, 1), classes=[0, 1], random_state=3)
    assert str(seeded.fit(X, Y).privacy_).startswith("seeded: no privacy claim")
