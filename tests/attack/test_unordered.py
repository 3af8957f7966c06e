"""Rows and their persons stay together, in whatever order a table returns its rows."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shuffled import Shuffled

import skdp
from skdp.estimators import opening

N = 900
_rng = np.random.default_rng(0)
WHO = np.where(np.arange(N) < 600, np.arange(N), 10**6)  # one person has 300 rows
TABLE = {
    "age": _rng.uniform(18, 90, N),
    # Nobody but that person has this word.
    "job": np.where(WHO < 10**6, _rng.choice(["a", "b"], N), "judge").astype(object),
    "ill": _rng.choice(["no", "yes"], N).astype(object),
    "weight": _rng.uniform(0, 1, N),
    "days": _rng.uniform(1, 9, N),
    "visits": _rng.integers(0, 5, N),
    "who": WHO,
}
COLUMNS = {"age": skdp.Numeric(18, 90), "job": skdp.Categorical(["a", "b", "judge"])}
SCHEMA = skdp.Schema(
    COLUMNS, target=("ill", skdp.Categorical(["no", "yes"])), unit="who"
)
COUNTS = skdp.Schema(COLUMNS, target=("visits", skdp.Numeric(0, 5)), unit="who")
FIXED = {"n_steps": 4, "random_state": 1, "engine": "reference"}
#: Functions that read a table. Their results must not depend on the order of its rows.
ENTRIES = {
    "fit": lambda t: _fit(t).weights_,
    "weights": lambda t: _fit(t, sample_weight="weight").weights_,
    "exposure": lambda t: (
        skdp.PoissonRegressor(schema=COUNTS, **FIXED).fit(t, exposure="days").weights_
    ),
    "fit of what is found": lambda t: _fit_what_is_found(t).weights_,
    "curves": lambda t: skdp.AdditiveClassifier(schema=SCHEMA, **FIXED).fit(t).weights_,
    "discover": lambda t: str(
        skdp.discover(t, epsilon=9.0, unit="who", random_state=1).schema
    ),
    "evaluate": lambda t: str(
        skdp.evaluate(_fit(TABLE), t, epsilon=9.0, random_state=1)
    ),
    "search": lambda t: str(_search(t).results_),
}


def _fit(table, **given):
    return skdp.LogisticRegression(epsilon=9.0, schema=SCHEMA, **FIXED).fit(
        table, **given
    )


def _fit_what_is_found(table):
    """Fit without a schema: a query has no target beside it, so it is named."""
    given = {"epsilon": 9.0, "target": "ill", "unit": "who", "random_state": 1}
    found = skdp.discover(table, **given).schema
    return skdp.LogisticRegression(epsilon=9.0, schema=found, **FIXED).fit(table)


def _search(table):
    model = skdp.LogisticRegression(schema=SCHEMA, n_steps=4)
    grid = {"alpha": [0.1, 1.0]}
    return skdp.PrivateSearchCV(model, grid, method="split", random_state=3).fit(table)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_result_depends_on_the_order_of_rows(entry):
    act = ENTRIES[entry]
    usual = act(TABLE)
    for _ in range(2):
        assert np.array_equal(act(Shuffled(TABLE)), usual)


def test_a_query_of_polars_releases_no_word_of_one_person():
    frame = pl.DataFrame({"row": np.arange(N), "who": WHO, "job": list(TABLE["job"])})
    left = frame.lazy().select("row", "who")
    query = left.join(frame.lazy().select("row", "job"), on="row").select("who", "job")
    for _ in range(3):
        found = skdp.discover(query, epsilon=2.0, delta=1e-6, unit="who")
        assert found.schema.columns["job"].levels == ("a", "b")


@pytest.mark.parametrize("n_rows", [25, 26, 51])
def test_ids_that_are_given_fit_batches_of_any_length(n_rows, monkeypatch, tmp_path):
    """Cells were once cut at other rows than ids, which raised for some sizes."""
    monkeypatch.setattr(opening, "ROWS", 50)
    for start in range(0, n_rows, 25):
        rows = pa.table({"a": np.linspace(0, 1, min(25, n_rows - start))})
        pq.write_table(rows, tmp_path / f"{start}.parquet")
    skdp.discover(tmp_path, epsilon=1.0, unit=np.arange(n_rows))


@pytest.mark.parametrize("what", ["y", "sample_weight", "unit", "exposure", "offset"])
def test_columns_beside_rows_without_an_order_are_refused(what):
    counts = what in ("exposure", "offset")
    kind = skdp.PoissonRegressor if counts else skdp.LogisticRegression
    schema = skdp.Schema(COLUMNS, target=(COUNTS if counts else SCHEMA).target)
    given = {what: TABLE[{"y": "ill", "unit": "who"}.get(what, "weight")]}
    with pytest.raises(ValueError, match=f"{what} must name a column of the table"):
        kind(schema=schema).fit(Shuffled(TABLE), **given)


def test_a_fit_without_a_schema_takes_no_target_beside_rows_without_an_order():
    table = Shuffled({name: TABLE[name] for name in ("age", "job", "who")})
    with pytest.raises(ValueError, match="y must name a column of the table"):
        skdp.LogisticRegression(classes=["no", "yes"]).fit(table, TABLE["ill"])


def test_rows_without_an_order_are_not_scored_by_position():
    table = Shuffled(TABLE)
    with pytest.raises(ValueError, match="matches rows with y by position"):
        _fit(TABLE).score(table, TABLE["ill"])


def test_rows_without_an_order_are_not_divided_by_position():
    """A row could take part in fits and in scores, which are charged as if apart."""
    rows = skdp.Schema(COLUMNS, target=SCHEMA.target)
    model = skdp.LogisticRegression(schema=rows)
    search = skdp.PrivateSearchCV(model, {"alpha": [0.1, 1.0]}, method="split")
    with pytest.raises(ValueError, match="have no fixed order"):
        search.fit(Shuffled(TABLE), "ill")
