"""Rows of persons, counted on the workers of a cluster."""

from dataclasses import replace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.base import clone

import skdp
from skdp.engines import dask_engine
from skdp.engines.dask_engine import Cluster, Part
from skdp.engines.dask_table import ClusterCounts
from skdp.privacy.queries import NEIGHBOURS
from skdp.schema import Categorical, Numeric, Schema
from skdp.tables import readers
from skdp.tables.ids import Ids

SECRET = "the only id of its kind"
SCHEMA = Schema(
    {"age": Numeric(0, 1), "job": Categorical(["a", "b"])},
    target=("y", Categorical([0, 1])),
    unit="who",
)


@pytest.fixture(scope="module")
def frame():
    rng, n = np.random.default_rng(0), 3000
    table = pd.DataFrame({"age": rng.random(n), "job": rng.choice(["a", "b"], n)})
    table["y"] = (table["age"] + rng.normal(0, 0.3, n) > 0.5).astype(int)
    # Some persons have one row, others many, in all files and far apart.
    who = np.char.add("p", rng.geometric(0.01, n).astype(str)).astype(object)
    who[::97], who[::7], who[5], who[6] = None, "7", "007", SECRET
    return table.assign(who=who, house=rng.integers(0, 3, n))


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("parts")
    for i, rows in enumerate(np.split(np.arange(3000), [0, 1000, 1010])):
        frame.iloc[rows].to_csv(path / f"{i}.csv", index=False)
    return path


@pytest.fixture
def client(cluster):
    with Client(cluster) as made:
        yield made


def model(**options):
    given = {"schema": SCHEMA, "epsilon": 3.0, "n_steps": 6, "random_state": 1}
    return skdp.LogisticRegression(**(given | options))


def test_fits_scores_and_discoveries_have_the_bits_of_one_process(
    client, frame, folder
):
    there = dd.from_pandas(frame, npartitions=3)
    cases = zip(
        NEIGHBOURS, ["matrix", "diagonal"] * 2, [folder, there] * 2, strict=False
    )
    for relation, geometry, table in cases:
        given = {"neighbours": relation, "geometry": geometry}
        one = model(**given).fit(frame)
        other = model(**given, engine="dask").fit(table)
        assert (one.weights_ == other.weights_).all()
        assert one.plan_.n_rows == other.plan_.n_rows
        assert "\nengine: dask" in str(other.plan_)
    assert "persons" in str(other.privacy_)
    # Clipped slopes, without noise: a person's rows share the bound, rounded down.
    steep = skdp.LinearRegression(
        schema=replace(SCHEMA, target=("y", Numeric(0, 1))),
        epsilon=np.inf,
        slope_bound=0.05,
        geometry="diagonal",
        max_rows_per_unit=6,
        n_steps=3,
        random_state=1,
    )
    two = [clone(steep).fit(table).weights_ for table in (folder, there)]
    assert (two[0] == two[1]).all()
    scores = [
        skdp.evaluate(one, table, epsilon=1.0, random_state=2).scores
        for table in (frame, there)
    ]
    assert scores[0] == scores[1]
    inferred = [
        skdp.LogisticRegression(epsilon=5.0, random_state=1).fit(
            t[["age", "job", "who", "house"]], t["y"], unit=["who", "house"]
        )
        for t in (frame, there)
    ]
    assert inferred[0].schema_ == inferred[1].schema_
    assert (inferred[0].weights_ == inferred[1].weights_).all()


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_search_has_the_bits_of_one_process(client, frame, folder, relation):
    found, there = [], dd.from_pandas(frame, npartitions=3)
    alone, away = (folder, there) if relation == "add-remove" else (frame, folder)
    for table, engine in ((alone, "auto"), (away, "dask")):
        search = skdp.PrivateSearchCV(
            model(neighbours=relation, random_state=None, engine=engine),
            {"alpha": [0.01, 1.0]},
            epsilon=6.0,
            method="split",
            random_state=1,
        ).fit(table)
        scores = [trial.score for trial in search.results_]
        weights = search.best_estimator_.weights_.tolist()
        found.append((scores, search.best_params_, weights))
    assert found[0] == found[1]


def test_ids_stay_on_the_workers(client, folder, caplog, monkeypatch):
    """The caller receives the number of persons, and no task's text has an id."""
    arrived, scheduler = [], client.cluster.scheduler
    get_total = dask_engine.get_total

    def noted(answers):
        arrived.append([answer.total for answer in answers])
        for task in scheduler.tasks.values():
            assert SECRET not in task.key
            assert SECRET.encode() not in bytes(repr(task.run_spec), "utf-8")
        return get_total(answers)

    monkeypatch.setattr(dask_engine, "get_total", noted)
    ids = Ids("who")
    counts = ClusterCounts(Cluster(), _list_parts(folder), ids, 1)
    assert len(counts) == len(ids.count(readers.open_source(folder)))
    assert [type(total) for total in arrived[0]] == [int] * 2
    with pytest.raises(TypeError, match="on the workers"):
        counts.find_divisors(None)
    with pytest.raises(ValueError, match="has no column 'whom'"):
        len(ClusterCounts(Cluster(), _list_parts(folder), Ids("whom"), 1))
    assert SECRET not in caplog.text


def test_counts_that_are_lost_with_a_worker_are_counted_again(
    start_cluster, folder, monkeypatch
):
    undisturbed, lost = model().fit(folder), []
    monkeypatch.setattr(dask_engine, "LOOK", 0.05)
    real = ClusterCounts.find_own

    def disturbed(self, number):
        own = real(self, number)

        def lose(*arguments):
            if len(lost) < 2:  # before the first two partitions are read
                client.gather(client.submit(len, self._own, pure=False))
                lost.append(list(cluster.workers.values())[len(lost)])
                cluster.sync(lost[-1].close, executor_wait=False, nanny=False)
            return own(*arguments)

        return lose

    monkeypatch.setattr(ClusterCounts, "find_own", disturbed)
    with start_cluster(3, protocol="tcp") as cluster, Client(cluster) as client:
        made = model(engine="dask").fit(folder)
    assert len(lost) == 2
    assert (made.weights_ == undisturbed.weights_).all()


def test_ids_may_be_a_series_of_dask(client, frame, caplog):
    rows = replace(SCHEMA, unit=None)
    bare = frame.drop(columns="who").set_index(np.arange(3000) // 2)  # repeats labels
    here = model(schema=rows).fit(bare, unit=frame["who"].to_numpy())
    there = dd.from_pandas(bare, npartitions=3)
    ids = dd.from_pandas(frame["who"].set_axis(bare.index), npartitions=3)
    made = model(schema=rows).fit(there, unit=ids)
    assert (made.weights_ == here.weights_).all()
    assert made.privacy_.unit == here.privacy_.unit
    scores = [
        skdp.evaluate(here, table, unit=unit, epsilon=1.0, random_state=2).scores
        for table, unit in ((bare, frame["who"]), (there, ids))
    ]
    assert scores[0] == scores[1]
    shorter = dd.from_pandas(frame["who"][:-1], npartitions=3)
    with pytest.raises(ValueError, match="unit must have as many rows as the table"):
        model(schema=rows).fit(there, unit=shorter)
    assert SECRET not in caplog.text
    assert "Compute Failed" not in caplog.text


def _list_parts(folder):
    return [Part(path) for path in sorted(folder.iterdir())]


def test_partitions_whose_rows_change_their_order_have_the_same_bits(client, frame):
    """A partition may be computed several times, after a join in any order."""
    n_rows = len(frame)
    here = model().fit(frame)
    word = skdp.discover(
        frame[["age", "job", "who"]], epsilon=5.0, unit="who", random_state=1
    )
    there = dd.from_pandas(frame, npartitions=3).map_partitions(
        lambda part: part.sample(frac=1), meta=frame.iloc[:0]
    )
    assert there.compute().index.tolist() != list(range(n_rows))
    assert (model().fit(there).weights_ == here.weights_).all()
    rows = replace(SCHEMA, unit=None)
    apart = model(schema=rows).fit(there.drop(columns="who"), unit=there["who"])
    assert (apart.weights_ == here.weights_).all()
    for table, unit in (
        (there[["age", "job", "who"]], "who"),
        (there[["age", "job"]], there["who"]),
    ):
        found = skdp.discover(table, epsilon=5.0, unit=unit, random_state=1)
        assert found.schema.columns == word.schema.columns


def test_a_series_of_another_frame_is_refused(client, frame):
    """Its rows may be in another order, and one person's rows get the ids of others."""
    there = dd.from_pandas(frame, npartitions=3)
    other = there.map_partitions(lambda part: part.sample(frac=1), meta=there._meta)
    rows = model(schema=replace(SCHEMA, unit=None))
    for table, series in (
        (there, other["who"]),
        (other, there["who"]),
        (there, there.sort_values("age")["who"]),
        (there, there["who"].map_partitions(lambda part: part[::-1])),
    ):
        with pytest.raises(ValueError, match="unit must be a series of the same Dask"):
            rows.fit(table[["age", "job", "y"]], unit=series)
    mixed = frame.sample(frac=1, random_state=0)  # which Dask sorts by its index
    with pytest.raises(ValueError, match="unit must be a series of the same Dask"):
        rows.fit(
            dd.from_pandas(mixed.drop(columns="who"), npartitions=2),
            unit=dd.from_pandas(mixed["who"].reset_index(drop=True), npartitions=2),
        )
    cells = other.assign(who=other["who"].astype(str)).drop(columns="job")
    scored = model(random_state=None).fit(frame)
    with pytest.raises(ValueError, match="y must be a series of the same Dask"):
        scored.score(cells.assign(job="a"), there["y"])


def test_scores_of_partitions_without_an_order_are_those_of_one_table(client, frame):
    there = dd.from_pandas(frame, npartitions=2)
    left = there[["who", "y"]].assign(row=there.index)
    right = there[["age", "job"]].assign(row=there.index)
    joined = left.merge(right, on="row")  # each computation of it has its own order
    fitted = model(random_state=None).fit(frame)
    own = joined.assign(weight=joined["age"] / 9)
    usual = fitted.score(frame.copy(), frame["y"], frame["age"] / 9)
    for y, weight in ((own["y"], own["weight"]), ("y", "weight")):
        assert fitted.score(own, y, weight) == pytest.approx(usual, abs=1e-12)
    assert len(fitted.predict(joined)) == len(frame)


def test_each_reading_of_partitions_without_an_order_has_the_same_result(client, frame):
    """Target, weights and ids are series here, so they might come apart from rows."""
    there = dd.from_pandas(frame.assign(w=frame["age"] / 2), npartitions=2)
    there = there.map_partitions(lambda part: part.sample(frac=1), meta=there._meta)
    fitted, rows = model(random_state=None).fit(frame), replace(SCHEMA, unit=None)

    def read(table):
        parts, unit = (table[["age", "job"]], table["y"]), {"unit": table["who"]}
        search = skdp.PrivateSearchCV(
            skdp.LogisticRegression(schema=rows, n_steps=2),
            {"alpha": [0.1, 1.0]},
            method="split",
            random_state=1,
        )
        weighted = {"sample_weight": table["w"], "random_state": 2, "epsilon": 9.0}
        return [
            skdp.evaluate(fitted, *parts, **unit, **weighted).scores,
            str(search.fit(*parts, **unit).results_),
            model(schema=None, classes=[0, 1]).fit(*parts, **unit).weights_.tolist(),
        ]

    assert read(there) == read(frame.assign(w=frame["age"] / 2))
