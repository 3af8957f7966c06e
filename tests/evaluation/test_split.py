"""Folds that are drawn for each row by itself."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict

import skdp

N = 600
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(N, 2))
Y = (X[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b"])


def folds_of(splitter, table=X):
    """Return the fold of each row."""
    fold = np.full(N, -1)
    for number, (outside, inside) in enumerate(splitter.split(table)):
        assert sorted([*outside, *inside]) == list(range(N))
        assert (fold[inside] == -1).all()
        fold[inside] = number
    assert (fold >= 0).all()
    return fold


@pytest.mark.parametrize("n_splits", [2, 5])
def test_each_row_has_a_fold_of_its_own(n_splits):
    """Folds are uniform, new in each split, and no row tells of the next one's.

    Bits are fresh. Four tests with five tails of 1e-7 raise a false alarm once in 2e6
    runs. Pairs must be disjoint: counts of overlapping pairs vary more than χ² says.
    """
    level, splitter = 1e-7, skdp.RandomFolds(n_splits)
    folds = np.array([folds_of(splitter) for _ in range(40)])
    assert len({tuple(one) for one in folds}) == 40
    counts = np.bincount(folds.ravel(), minlength=n_splits)
    assert stats.chisquare(counts).pvalue > level
    # Neither by position nor by the number of rows: sizes vary as coins do.
    sizes = (folds == 0).sum(axis=1)
    expected = N / n_splits * (1 - 1 / n_splits)
    spread = sizes.var(ddof=1) / expected * 39
    assert min(stats.chi2(39).cdf(spread), stats.chi2(39).sf(spread)) > level
    for first in (0, 1):
        pairs = n_splits * folds[:, first : N - 1 : 2] + folds[:, first + 1 :: 2]
        seen = np.bincount(pairs.ravel(), minlength=n_splits**2)
        assert stats.chisquare(seen).pvalue > level
    assert splitter.get_n_splits() == n_splits


@pytest.mark.parametrize(
    "table",
    [
        X,
        FRAME,
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        sparse.csr_array(X),
        X.tolist(),
        {"a": X[:, 0], "b": X[:, 1]},
    ],
    ids=["array", "pandas", "polars", "arrow", "sparse", "lists", "dict"],
)
def test_rows_of_every_table_are_counted(table):
    seeded = skdp.RandomFolds(3, random_state=1)
    assert (folds_of(seeded, table) == folds_of(seeded)).all()


QUERIES = {
    "polars.LazyFrame": lambda: pl.from_pandas(FRAME).lazy(),
    # Both of these have a length and a shape, which they compute when they are asked.
    "duckdb.DuckDBPyRelation": lambda: pytest.importorskip("duckdb").from_arrow(
        pa.table(FRAME)
    ),
    "dask.DataFrame": lambda: pytest.importorskip("dask.dataframe").from_pandas(
        FRAME, npartitions=2
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_has_no_positions(name):
    table = QUERIES[name]()
    with pytest.raises(ValueError, match=f"must be in memory, got {name}"):
        next(skdp.RandomFolds(3).split(table))


def test_no_rows_have_folds():
    for outside, inside in skdp.RandomFolds().split(X[:0]):
        assert len(outside) == len(inside) == 0


def test_scikit_learn_takes_them(tmp_path):
    ledger = skdp.Ledger(tmp_path / "ledger", epsilon=8.0, delta=1e-5)
    model = skdp.LogisticRegression(
        bounds=(0, 1), classes=[0, 1], ledger=ledger, n_steps=5
    )
    assert len(cross_val_predict(model, X, Y, cv=skdp.RandomFolds(3))) == N
    assert len([e for e in ledger.entries() if e.kind == "commit"]) == 3
    free = clone(model).set_params(ledger=None)
    search = GridSearchCV(free, {"alpha": [0.1, 1.0]}, cv=skdp.RandomFolds(2))
    assert clone(search).fit(X, Y).n_splits_ == 2


@pytest.mark.parametrize("n_splits", [1, 0, 2.5, "5"])
def test_folds_that_are_none_are_refused(n_splits):
    with pytest.raises(ValueError, match="n_splits must be an integer of at least 2"):
        skdp.RandomFolds(n_splits)


def test_groups_are_in_one_fold_and_as_long_as_the_table():
    for train, test in skdp.RandomFolds().split(X, Y, np.zeros(N, int)):
        assert sorted((len(train), len(test))) == [0, N]
    with pytest.raises(ValueError, match="groups must have as many rows"):
        next(skdp.RandomFolds().split(X, Y, np.zeros(N - 1, int)))
    with pytest.raises(ValueError, match="groups must not be floating-point"):
        next(skdp.RandomFolds().split(X, Y, np.zeros(N)))


#: Ids of which every fourth is missing, as libraries store them.
PEOPLE = ["a", "b", "c", None] * (N // 4)
ABSENT = {
    "None": None,
    "nan": np.nan,
    "NaT": pd.NaT,
    "NA": pd.NA,
    "empty": "",
    "blank": " ",
    "text": "NA",
}
COLUMNS = {
    name: np.array(["a", "b", "c", value] * (N // 4), dtype=object)
    for name, value in ABSENT.items()
} | {
    "list": PEOPLE,
    "texts": np.array(["a", "b", "c", "nan"] * (N // 4)),
    "strings": pd.Series(PEOPLE, dtype="string"),
    "category": pd.Series(PEOPLE, dtype="category"),
    "objects": pd.Series(PEOPLE, dtype=object),
    "integers": pd.Series([1, 2, 3, None] * (N // 4), dtype="Int64"),
    "masked": np.ma.masked_array([1, 2, 3, 4] * (N // 4), [0, 0, 0, 1] * (N // 4)),
    "dates": pd.Series(
        np.array(["2020-01-01", "2020-01-02", "2021-01-01", "NaT"] * (N // 4), "M8[s]")
    ),
    "polars": pl.Series(PEOPLE),
    "arrow": pa.chunked_array([PEOPLE]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_fold_of_a_row_without_an_id_is_drawn_by_itself(name):
    """Every kind of missing id, also through scikit-learn."""
    sizes = []
    for _ in range(5):
        folds = np.full(N, -1)
        split = skdp.RandomFolds(3).split(X, groups=COLUMNS[name])
        for number, (outside, inside) in enumerate(split):
            assert len(outside) + len(inside) == N
            folds[inside] = number
        known, unknown = folds.reshape(-1, 4)[:, :3], folds[3::4]
        assert (known == known[0]).all()  # all rows of a person are in one fold
        sizes.append(np.bincount(unknown, minlength=3))
    # N/4 rows by themselves are in all folds, and in other folds each time.
    assert np.min(sizes) > 10  # 50 are expected, give or take 6
    assert len({tuple(one) for one in sizes}) > 1
    assert stats.chisquare(np.sum(sizes, axis=0)).pvalue > 1e-7
    found = cross_val_predict(
        DummyClassifier(), X, Y, groups=COLUMNS[name], cv=skdp.RandomFolds(2)
    )
    assert len(found) == N


def test_private_models_are_cross_validated_by_persons_with_missing_ids():
    """As the guide to persons recommends."""
    model = skdp.LogisticRegression(
        bounds=(0, 1), classes=[0, 1], n_steps=1, engine="reference"
    )
    for groups in (COLUMNS["None"], np.full(N, None), pd.Series([None] * N)):
        found = cross_val_predict(model, X, Y, groups=groups, cv=skdp.RandomFolds(2))
        assert set(found) <= {0, 1}


def test_one_missing_id_changes_no_other_fold():
    """A row whose id is missing keeps the folds of all others, for the same key."""
    ids = np.array([f"p{i % 50}" for i in range(N)], dtype=object)
    without = ids.copy()
    without[7] = None
    folds = [
        [
            set(inside) - {7}
            for _, inside in skdp.RandomFolds(3, random_state=1).split(X, groups=g)
        ]
        for g in (ids, without)
    ]
    assert folds[0] == folds[1]
