"""Frames of any library go in and through scikit-learn's machinery, weights too."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import skdp

rng = np.random.default_rng(2)
N = 1200
FRAME = pd.DataFrame(
    {
        "age": np.where(rng.uniform(size=N) < 0.1, np.nan, rng.uniform(0, 90, N)),
        "size": rng.uniform(size=N),
        "job": rng.choice(["a", "b", "?"], N),
        "count": rng.poisson(2.0, N),
        "label": rng.choice(["no", "yes"], N),
    }
)
Y = FRAME["label"].to_numpy(dtype=str)
COLUMNS = {
    "age": skdp.Numeric(0, 90),
    "size": skdp.Numeric(0, 1),
    "job": skdp.Categorical(["a", "b"]),
}
LABELS = skdp.Schema(COLUMNS, target=("label", skdp.Categorical(["no", "yes"])))
COUNTS = skdp.Schema(COLUMNS, target=("count", skdp.Numeric(0, 12)))
WEIGHT = (FRAME["size"] > 0.5).to_numpy(dtype=float)
PLAIN = skdp.LogisticRegression(
    schema=skdp.Schema(COLUMNS, target=skdp.Categorical(["no", "yes"])),
    random_state=0,
    n_steps=8,
)


def forms(where):
    """The same table in every form that has a reader."""
    FRAME.to_csv(where / "table.csv", index=False)
    FRAME.to_parquet(where / "table.parquet")
    return {
        "pandas": FRAME,
        "arrow types": FRAME.convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.from_pandas(FRAME),
        "lazy": pl.from_pandas(FRAME).lazy(),
        "arrow": pa.Table.from_pandas(FRAME),
        "dict": {name: FRAME[name].tolist() for name in FRAME},
        "csv": where / "table.csv",
        "parquet": str(where / "table.parquet"),
    }


@pytest.mark.parametrize(
    "model",
    [
        skdp.LogisticRegression(schema=LABELS, n_steps=8),
        skdp.LinearSVC(schema=LABELS, n_steps=8),
        skdp.LinearRegression(schema=COUNTS, n_steps=8),
        skdp.HuberRegressor(schema=COUNTS, n_steps=8),
        skdp.PoissonRegressor(schema=COUNTS, n_steps=8),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_form_gives_the_same_bits_of_model_and_predictions(model, tmp_path):
    model = clone(model).set_params(random_state=4)
    expected = clone(model).fit(FRAME)
    methods = [m for m in ("predict", "predict_proba") if hasattr(model, m)]
    for form, table in forms(tmp_path).items():
        fitted = clone(model).fit(table)
        assert fitted.weights_.tobytes() == expected.weights_.tobytes(), form
        assert list(fitted.feature_names_in_) == ["age", "size", "job"], form
        for method in methods:
            found = getattr(fitted, method)(table)
            assert type(found) is np.ndarray, form
            assert found.tobytes() == getattr(expected, method)(FRAME).tobytes(), form


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("frame", [FRAME, pl.from_pandas(FRAME)], ids=["pd", "pl"])
def test_frames_that_steps_hand_on_keep_their_names(library, frame):
    """set_output is for transformers: ours have none, and take what theirs give."""
    columns = ColumnTransformer(
        [("size", MinMaxScaler(), ["size"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    assert not hasattr(PLAIN, "set_output")
    whole = make_pipeline(columns, clone(PLAIN)).set_output(transform=library)
    whole.fit(frame, Y)
    assert whole[0].get_feature_names_out()[0] == "size"  # another order
    assert list(whole[-1].feature_names_in_) == ["age", "size", "job"]
    found = whole.predict_proba(frame)
    scaled = FRAME.assign(size=MinMaxScaler().fit_transform(FRAME[["size"]])[:, 0])
    direct = clone(PLAIN).fit(scaled, Y).predict_proba(scaled)
    np.testing.assert_array_equal(found, direct)


@pytest.fixture
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def weighted(model):
    return clone(model).set_fit_request(sample_weight=True)


@pytest.mark.usefixtures("_routing")
def test_weights_go_through_a_pipeline():
    whole = make_pipeline("passthrough", weighted(PLAIN))
    whole.fit(FRAME, Y, sample_weight=WEIGHT)
    direct = clone(PLAIN).fit(FRAME, Y, sample_weight=WEIGHT)
    assert (whole[-1].coef_ == direct.coef_).all()
    assert (clone(PLAIN).fit(FRAME, Y).coef_ != direct.coef_).any()


@pytest.mark.usefixtures("_routing")
@pytest.mark.parametrize("table", [FRAME, pl.from_pandas(FRAME)], ids=["pd", "pl"])
def test_weights_go_through_cross_validation_and_searches(table):
    model = weighted(PLAIN).set_score_request(sample_weight=True)
    params = {"sample_weight": WEIGHT}
    found = cross_val_score(model, table, Y, cv=3, params=params)
    assert (found != cross_val_score(PLAIN, table, Y, cv=3, params={})).any()
    options = {"cv": 3, "params": params, "method": "predict_proba"}
    with pytest.raises(ValueError, match="cross_val_predict number the labels"):
        cross_val_predict(weighted(PLAIN), table, Y, **options)
    coded = skdp.Schema(COLUMNS, target=skdp.Categorical([0, 1]))
    numbered = weighted(PLAIN).set_params(schema=coded)
    chance = cross_val_predict(numbered, table, Y, **options)
    assert chance.shape == (N, 2)
    search = GridSearchCV(model, {"epsilon": [1.0, 2.0]}, cv=3)
    search.fit(table, Y, sample_weight=WEIGHT)
    best = clone(PLAIN).set_params(**search.best_params_)
    expected = best.fit(FRAME, Y, sample_weight=WEIGHT)
    assert (search.best_estimator_.coef_ == expected.coef_).all()


@pytest.mark.usefixtures("_routing")
def test_weights_that_nobody_asked_for_are_refused():
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        cross_val_score(PLAIN, FRAME, Y, params={"sample_weight": WEIGHT})


def private_search(**options):
    model = clone(PLAIN).set_params(random_state=None)
    return skdp.PrivateSearchCV(
        model, {"alpha": [1e-5, 1.0]}, epsilon=2.0, method="split", **options
    )


def test_a_private_search_fits_with_weights():
    """The model is that of the rows that do not score, with their weights."""
    search = private_search(random_state=6)
    kept, _ = next(skdp.RandomFolds(5, random_state=6).split(FRAME))
    for weight in (WEIGHT, pl.Series(WEIGHT), WEIGHT.tolist()):
        search.fit(FRAME, Y, sample_weight=weight)
        model = clone(search.best_estimator_)
        again = model.fit(FRAME.iloc[kept], Y[kept], sample_weight=WEIGHT[kept])
        assert (again.coef_ == search.best_estimator_.coef_).all()
    by_name = private_search(random_state=6)
    by_name.fit(FRAME.assign(weight=WEIGHT), Y, sample_weight="weight")
    assert (by_name.best_estimator_.coef_ == search.best_estimator_.coef_).all()
    plain = private_search(random_state=6).fit(FRAME, Y)
    assert (plain.best_estimator_.coef_ != search.best_estimator_.coef_).any()
    assert search.privacy_.spent == pytest.approx(plain.privacy_.spent)


def test_a_private_search_refuses_weights_that_do_not_fit():
    for weight in (WEIGHT[:-1], np.append(WEIGHT, 1.0)):
        with pytest.raises(ValueError, match="as many rows"):
            private_search().fit(FRAME, Y, sample_weight=weight)


@pytest.mark.usefixtures("_routing")
def test_a_private_search_is_routed_to():
    search = private_search().set_fit_request(sample_weight=True)
    search.set_score_request(sample_weight=True)
    params = {"sample_weight": WEIGHT}
    assert cross_val_score(search, FRAME, Y, cv=2, params=params).shape == (2,)
