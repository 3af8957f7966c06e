"""Fits that protect persons: what they count, what they refuse and what they say."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.estimators import ConstantModelWarning
from skdp.estimators.fit import ESTIMATORS
from skdp.evaluation.folds import split_persons
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.persons import RowCounts
from skdp.solvers import SOLVERS
from skdp.tables import encoder, readers
from skdp.tables.ids import Ids

ROWS = skdp.Schema(
    {"x": skdp.Numeric(0, 1), "c": skdp.Categorical(["a", "b"])},
    target=("y", skdp.Categorical([0, 1])),
)
SCHEMA = replace(ROWS, unit="id")


def make_table(n=3000, persons=600, seed=0):
    rng = np.random.default_rng(seed)
    x, c = rng.uniform(size=n), rng.choice(["a", "b"], n)
    y = (rng.uniform(size=n) < 0.2 + 0.6 * x).astype(int)
    ids = rng.integers(0, persons, n)
    return pd.DataFrame({"x": x, "c": c, "y": y, "id": ids})


TABLE = make_table()


def fit(table=TABLE, schema=SCHEMA, estimator=skdp.LogisticRegression, **options):
    options = {"epsilon": math.inf, "n_steps": 60, "n_rows": 600} | options
    return estimator(schema=schema, **options).fit(table)


def repeat(table, times):
    """The same persons, with every row several times."""
    return pd.concat([table] * times, ignore_index=True)


def test_repeating_all_rows_of_every_person_changes_hardly_a_bit():
    once, often = fit(), fit(repeat(TABLE, 7))
    assert np.allclose(once.weights_, often.weights_, atol=2e-3)


def test_a_person_counts_once_however_many_rows_there_are():
    """Equal to the fit in which each row weighs one over the rows of its person."""
    rows = TABLE.groupby("id")["id"].transform("size")
    weighted = skdp.LogisticRegression(
        schema=ROWS, epsilon=math.inf, n_steps=400, n_rows=600, alpha=1e-5
    )
    weighted.fit(TABLE, sample_weight=(1 / rows).to_numpy())
    found = fit(n_steps=400, alpha=1e-5)
    assert np.allclose(found.weights_, weighted.weights_, atol=5e-3)


@pytest.mark.parametrize("solver", ["skgd", "dp_cd", "dp_gcd", "dp_sega"])
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_order_of_rows_size_of_chunks_and_engine_change_no_bit(
    engine, solver, monkeypatch
):
    options = {"epsilon": 1.0, "random_state": 3, "solver": solver, "n_steps": 5}
    expected = fit(**options).weights_
    shuffled = TABLE.sample(frac=1.0, random_state=1)
    monkeypatch.setattr(encoder, "WAITING", 2000)
    assert (fit(shuffled, engine=engine, **options).weights_ == expected).all()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one", "zero-out"])
def test_n_is_the_number_of_persons(neighbours):
    options = {"epsilon": 8.0, "n_rows": None, "neighbours": neighbours}
    model = fit(**options)
    persons, released = TABLE["id"].nunique(), neighbours == "add-remove"
    queries = [event.query for event in model.privacy_.events]
    assert any(query.startswith("number of persons") for query in queries) == released
    assert abs(model.plan_.n_rows - persons) < (200 if released else 1)
    assert model.plan_.layout.counted == "persons"


def test_rows_without_an_id_count_for_nothing():
    more = make_table(500, seed=1).assign(id=None)
    both = pd.concat([TABLE.astype({"id": object}), more])
    options = {"epsilon": 1.0, "random_state": 0}
    assert (fit(both, **options).weights_ == fit(**options).weights_).all()
    for neighbours in ("replace-one", "zero-out"):
        with pytest.raises(ValueError, match="No row of the table has an id"):
            fit(more, n_rows=None, neighbours=neighbours)


def test_ids_may_be_an_array_a_name_or_several_names():
    X, y, ids = TABLE[["x"]].to_numpy(), TABLE["y"].to_numpy(), TABLE["id"].to_numpy()
    model = skdp.LogisticRegression(
        epsilon=1.0, bounds=(0, 1), classes=[0, 1], random_state=0
    )
    array = model.fit(X, y, unit=ids).weights_
    assert model.privacy_.unit == "(ids given)"
    frame = TABLE[["x", "id"]]
    options = {"epsilon": 1.0, "bounds": (0, 1), "classes": [0, 1], "random_state": 0}
    named = skdp.LogisticRegression(**options).fit(frame, y, unit="id")
    assert (named.weights_ == array).all()
    assert named.schema_.unit == "id"
    assert list(named.feature_names_in_) == ["x"]
    assert named.predict(TABLE[["x"]]).shape == y.shape
    split = TABLE.assign(ward=TABLE["id"] % 7, number=TABLE["id"] // 7)
    two = fit(
        split, replace(ROWS, unit=("ward", "number")), epsilon=1.0, random_state=0
    )
    one = fit(epsilon=1.0, random_state=0)
    assert (two.weights_ == one.weights_).all()
    assert two.privacy_.unit == "ward, number"


def test_a_description_is_inferred_per_person():
    model = skdp.LogisticRegression(epsilon=8.0, delta=1e-6, random_state=0)
    model.fit(TABLE[["x", "c", "id"]], TABLE["y"], unit="id")
    assert list(model.schema_.columns) == ["x", "c"]
    assert model.schema_.columns["c"].levels == ("a", "b")
    assert list(model.classes_) == [0, 1]
    loud = pd.concat([TABLE, *[TABLE.iloc[:1].assign(c="odd", x=1e9)] * 5000])
    model.fit(loud[["x", "c", "id"]], loud["y"], unit="id")
    assert "odd" not in model.schema_.columns["c"].levels  # only one person has it
    assert model.schema_.columns["x"].high < 10


def test_row_groups_do_not_separate_cells_from_ids(tmp_path):
    """Arrow cuts batches at row groups if a column is a dictionary, as c is here."""
    table = TABLE.astype({"c": "category"})
    found = []
    for rows in (1000, len(table)):
        path = tmp_path / f"{rows}.parquet"
        table.to_parquet(path, row_group_size=rows)
        found.append(
            skdp.Schema.discover(
                path, epsilon=8.0, target="y", unit="id", random_state=0
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("n_rows", [0, 1])
def test_a_table_without_rows_is_fitted_like_others(n_rows):
    X, y = np.full((n_rows, 1), 0.5), np.full(n_rows, 0.5)
    model = skdp.LinearRegression(bounds=(0, 1))
    with pytest.warns(ConstantModelWarning):
        model.fit(X, y, unit=np.arange(n_rows))
    assert model.privacy_.unit is not None


def test_a_row_may_count_a_share_instead():
    model = fit(epsilon=8.0, n_rows=None, max_rows_per_unit=10)
    counted = np.minimum(TABLE["id"].value_counts(), 10).sum() / 10
    assert abs(model.plan_.n_rows - counted) < 100
    given = fit(epsilon=8.0, n_rows=3000, max_rows_per_unit=10)
    assert given.plan_.n_rows == 300
    assert np.allclose(
        fit(n_rows=3000, max_rows_per_unit=10, n_steps=400).weights_,
        skdp.LogisticRegression(schema=ROWS, epsilon=math.inf, n_rows=3000, n_steps=400)
        .fit(TABLE)
        .weights_,
        atol=0.1,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_rows_per_unit": 0}, "must be an integer from 1"),
        ({"max_rows_per_unit": True}, "must be an integer from 1"),
        ({"max_rows_per_unit": 2, "schema": ROWS}, "requires a unit"),
        ({"max_rows_per_unit": 2, "neighbours": "zero-out"}, "requires neighbours="),
    ],
)
def test_options_that_cannot_keep_the_bound_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        fit(**options)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solver_supports_persons_or_refuses_them(solver):
    numeric = replace(SCHEMA, target=("y", skdp.Numeric(0, 1)))
    options = {"solver": solver, "epsilon": 1.0, "n_steps": "auto"}
    made = {"schema": numeric, "estimator": ESTIMATORS["linear"]} | options
    if SOLVERS[solver].persons:
        assert fit(**made).privacy_.unit == "id"
        return
    with pytest.raises(ValueError, match="influence of one row, not of one person"):
        fit(**made)


def test_a_record_of_rows_cannot_pay_for_persons():
    plan = skdp.plan(SCHEMA, 600, epsilon=1.0)
    records = skdp.encode(skdp.tables.batches(TABLE, SCHEMA), SCHEMA)
    record = PrivacyRecord(epsilon=1.0, delta=1e-9, neighbours="add-remove")
    with pytest.raises(ValueError, match="must have the unit of the schema, id"):
        skdp.run(plan, records, record=record)
    assert skdp.run(plan, records).record.unit == "id"


def test_the_unit_is_not_a_feature_and_is_saved(tmp_path):
    for unit in ("x", "y", "", (), ["id", "id"]):
        with pytest.raises(ValueError, match=r"unit|once"):
            replace(ROWS, unit=unit)
    model = fit(epsilon=1.0, random_state=0)
    model.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert loaded.schema_ == model.schema_
    assert loaded.privacy_.unit == "id"
    assert str(loaded.privacy_) == str(model.privacy_)
    assert skdp.Schema.from_toml(SCHEMA.to_toml()) == SCHEMA


def test_everything_that_is_said_is_about_persons():
    model = fit(epsilon=1.0, n_rows=None)
    said = " ".join(skdp.statement(model).split())
    assert "differs in a single person" in said
    assert "Persons with several values of id" in said
    assert "one row" not in said.partition("What was assumed")[0]
    assert "Protects one person, with all rows that have the same id" in str(
        model.privacy_
    )
    assert "600 persons" in str(skdp.plan(SCHEMA, 600))
    assert "persons;" in str(model.summary())
    found = skdp.verify(model)
    assert found.passed, found


def test_a_ledger_is_for_rows_or_for_one_unit(tmp_path):
    rows = skdp.Ledger(tmp_path / "rows.db", 2.0, 1e-6)
    persons = skdp.Ledger(tmp_path / "persons.db", 2.0, 1e-6, unit="id")
    options = {"epsilon": 0.5, "delta": 1e-7}
    fit(ledger=persons, **options)
    fit(schema=ROWS, ledger=rows, n_rows=3000, **options)
    for ledger, schema in ((rows, SCHEMA), (persons, ROWS)):
        with pytest.raises(ValueError, match="different units"):
            fit(schema=schema, ledger=ledger, **options)
    assert "of one person (id)" in str(skdp.Ledger(tmp_path / "persons.db"))
    assert '"unit"' not in rows.export()


def test_scores_are_those_of_persons():
    """A person who has a thousand rows has one voice in a score too."""
    model = fit(epsilon=math.inf)
    loud = pd.concat([TABLE, *[TABLE.iloc[:1].assign(id=9999)] * 3000])
    found = skdp.evaluate(model, TABLE, epsilon=math.inf)
    after = skdp.evaluate(model, loud, epsilon=math.inf)
    for name, score in found.scores.items():
        assert abs(score.value - after.scores[name].value) < 4 / 600
    assert after.n_rows == pytest.approx(TABLE["id"].nunique() + 1, abs=0.01)
    by_rows = skdp.evaluate(fit(schema=ROWS), loud, epsilon=math.inf)
    assert abs(by_rows["accuracy"] - found["accuracy"]) > 0.1
    assert skdp.evaluate(model, TABLE, epsilon=1.0).privacy_.unit == "id"


def test_a_search_keeps_the_rows_of_a_person_together(monkeypatch):
    seen, rows = [], TABLE["id"].value_counts().to_dict()
    real = RowCounts.find_divisors

    def noted(self, ids):
        found = real(self, ids)
        pairs = zip(ids.codes, found.tolist(), strict=True)
        used = {ids.values[code]: divisor for code, divisor in pairs if divisor}
        assert used.items() <= rows.items()  # a person's rows are all in one part
        seen.append(set(used))
        return found

    monkeypatch.setattr(RowCounts, "find_divisors", noted)
    # A look would read the rows once more.
    model = skdp.LogisticRegression(schema=SCHEMA, n_steps=5, look=False)
    search = skdp.PrivateSearchCV(
        model, {"alpha": [1e-5, 1.0]}, epsilon=4.0, method="split"
    )
    search.fit(TABLE)
    fits, scores = seen[::2], seen[1::2]
    assert fits[0] == fits[1]  # all trials share the parts
    assert scores[0] == scores[1]
    assert fits[0] | scores[0] == set(rows)
    assert not fits[0] & scores[0]
    assert 0.6 < len(fits[0]) / len(rows) < 0.95
    assert search.privacy_.unit == search.score_privacy_.unit == "id"
    assert "Each person was held out for scoring" in str(search.privacy_)


def test_folds_take_a_person_whole():
    ids = TABLE["id"].to_numpy()
    for train, test in skdp.RandomFolds(4).split(TABLE, groups=ids):
        assert not set(ids[train]) & set(ids[test])
        assert len(train) + len(test) == len(ids)
    with pytest.raises(ValueError, match="as many rows"):
        next(skdp.RandomFolds(4).split(TABLE, groups=ids[:5]))


def test_the_fold_of_a_person_does_not_depend_on_others():
    """Order of rows, type of ids and place of reading do not matter either."""
    ids = TABLE["id"].to_numpy()
    folds = skdp.RandomFolds(4, random_state=1)
    held_out = set(ids[next(folds.split(ids, groups=ids))[1]])
    fewer = ids[::-1][ids[::-1] != ids[0]]
    for groups in (fewer, fewer.astype(str)):
        own = set(fewer[next(folds.split(fewer, groups=groups))[1]])
        assert own == held_out - {ids[0]}
    parts = split_persons(Ids.of("id"), folds)
    counts = [part.count(readers.open_source(TABLE)) for part in parts]
    assert len(counts[0]) + len(counts[1]) == len(set(ids))
    assert len(counts[1]) == len(held_out)
    drawn = {tuple(next(skdp.RandomFolds(2).split(ids, groups=ids))[1]) for _ in "123"}
    assert len(drawn) == 3  # without a seed, each split has a key of its own


def test_standard_errors_treat_a_person_as_one_observation():
    often = fit(repeat(TABLE, 9), epsilon=1e6, n_rows=600)
    once = fit(epsilon=1e6, n_rows=600)
    assert np.allclose(often.coef_std_[0, 0], once.coef_std_[0, 0], rtol=0.02)
