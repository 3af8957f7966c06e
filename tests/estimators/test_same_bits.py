"""One seed, one plan, one model: bit for bit, however the table comes and is added."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skdp.estimators import HuberRegressor, LogisticRegression, PoissonRegressor
from skdp.schema import Categorical, Numeric, Schema, Vector

N = 1500
rng = np.random.default_rng(5)
TABLE = pd.DataFrame(
    {
        "age": rng.uniform(0, 100, N),
        "gain": rng.exponential(1e4, N),
        "v0": rng.normal(size=N),
        "v1": rng.normal(size=N),
        "job": rng.choice(["admin", "tech", "?"], N),
        "count": rng.poisson(2.0, N),
        "label": rng.choice(["no", "yes", "perhaps"], N),
    }
)
COLUMNS = {
    "age": Numeric(0, 90),
    "gain": Numeric(0, 1e5, scale="log"),
    "v": Vector(["v0", "v1"], norm=2.0),
    "job": Categorical(["admin", "tech"]),
}
BINARY = Schema(COLUMNS, target=("label", Categorical(["no", "yes"])))
THREE = Schema(COLUMNS, target=("label", Categorical(["no", "yes", "perhaps"])))
COUNTS = Schema(COLUMNS, target=("count", Numeric(0, 12)))
MODELS = {
    "matrix": LogisticRegression(schema=BINARY, n_steps=8),
    "softmax": LogisticRegression(schema=THREE, n_steps=8),
    "columns": LogisticRegression(schema=BINARY, geometry="diagonal", n_steps=20),
    "huber": HuberRegressor(schema=COUNTS, neighbours="add-remove", n_steps=8),
    "poisson": PoissonRegressor(schema=COUNTS, n_steps=8),
}


def fitted(name, table=TABLE, **options):
    model = MODELS[name].set_params(random_state=11, engine="compiled", n_threads=2)
    model.set_params(**options).fit(table)
    released = [
        np.asarray(value.values).tobytes() for value in model.privacy_.transcript
    ]
    return model.coef_.tobytes(), np.asarray(model.intercept_).tobytes(), released


@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table, dict])
def test_no_cell_makes_a_prediction_warn_or_fail(frame):
    """A signalling nan and a number beyond float64, where numpy was told to raise."""
    model = LogisticRegression(schema=Schema(COLUMNS, target=Categorical([0, 1])))
    model.fit(TABLE, rng.integers(0, 2, N))
    signalling = np.array([0x7FA00000, 0x3F800000], np.uint32).view(np.float32)
    cells = {"age": signalling, "gain": np.array([1.0, 2.0]), "v0": signalling}
    cells |= {"v1": np.array([1.0, 2.0]), "job": np.array(["tech", "?"], object)}
    if frame is dict:
        cells["gain"] = np.array(["1e4000", "2"], np.longdouble)
    with np.errstate(all="raise"):
        chances = model.predict_proba(frame(cells))
    assert np.isfinite(chances).all()


def forms(where):
    TABLE.to_csv(where / "table.csv", index=False)
    TABLE.to_csv(where / "table.tsv", index=False, sep="\t", lineterminator="\r\n")
    TABLE.to_parquet(where / "table.parquet")
    arrow = pa.Table.from_pandas(TABLE)
    return {
        "polars": pl.from_pandas(TABLE),
        "lazy": pl.from_pandas(TABLE).lazy(),
        "arrow": arrow,
        "chunks": pa.concat_tables([arrow[:7], arrow[7:700], arrow[700:]]),
        "categories": TABLE.astype({"job": "category", "label": "category"}),
        "objects": TABLE.astype(object),
        "dict": {name: TABLE[name].tolist() for name in TABLE},
        "csv": where / "table.csv",
        "tsv": where / "table.tsv",
        "parquet": where / "table.parquet",
        "turned": TABLE.sample(frac=1.0, random_state=1),
        "columns": TABLE[list(TABLE)[::-1]],
    }


@pytest.mark.parametrize("name", MODELS)
def test_engines_and_threads(name):
    expected = fitted(name)
    assert fitted(name, engine="reference") == expected
    assert fitted(name, n_threads=1) == expected
    assert fitted(name, random_state=12) != expected


@pytest.mark.parametrize("name", MODELS)
def test_forms_of_a_table(name, tmp_path):
    expected = fitted(name)
    for form, table in forms(tmp_path).items():
        assert fitted(name, table) == expected, form


def test_no_seed_no_repetition():
    assert fitted("matrix", random_state=None) != fitted("matrix", random_state=None)
