"""Fits, scores and searches have the same bits on every engine.

An entry of `skdp.engines.choice.ENGINES` is tested by being there.
"""

from functools import cache
from itertools import cycle, product
from typing import Any

import cuda_on_processor
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import ClassifierMixin, clone

import skdp
from skdp.engines.choice import ENGINES
from skdp.estimators.fit import ESTIMATORS
from skdp.privacy.queries import NEIGHBOURS
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import SOLVERS

NO_CUDA = cuda_on_processor.install()
OTHERS = [name for name in ENGINES if name != "reference"]
every_other = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.skipif(bool(NO_CUDA), reason=str(NO_CUDA)))
        if name == "cuda"
        else name
        for name in OTHERS
    ],
)
#: Each estimator with each relation, and each of them with both geometries.
CASES = [
    (name, neighbours, geometry)
    for (name, neighbours), geometry in zip(
        product(ESTIMATORS, NEIGHBOURS), cycle(["matrix", "diagonal"]), strict=False
    )
]
COLUMNS = {"a": Numeric(0, 1), "b": Numeric(0, 1), "c": Categorical(list("xyz"))}


@cache
def frame() -> pd.DataFrame:
    rng, n = np.random.default_rng(0), 3000
    table = pd.DataFrame(
        {
            "a": rng.random(n),
            "b": rng.random(n),
            "c": rng.choice(list("xyz"), n),
            "w": rng.random(n),
        }
    )
    margin = 2 * table["a"] - table["b"] + (table["c"] == "x")
    table["yes"] = np.where(margin + rng.normal(size=n) > 0.8, "yes", "no")
    table["number"] = np.clip(margin / 3 + 0.1 * rng.normal(size=n), 0, 1)
    return table


@cache
def schema(name: str) -> Schema:
    yes = ("yes", Categorical(["no", "yes"]))
    classifies = issubclass(ESTIMATORS[name], ClassifierMixin)
    return Schema(COLUMNS, target=yes if classifies else ("number", Numeric(0, 1)))


def make(name: str, neighbours: str, geometry: str, engine: str) -> Any:
    return ESTIMATORS[name](
        schema=schema(name),
        neighbours=neighbours,
        geometry=geometry,
        engine=engine,
        epsilon=3.0,
        n_steps=6,
        random_state=1,
    )


@cache
def reference(case: tuple[str, str, str]) -> Any:
    return make(*case, "reference").fit(frame()).weights_


@every_other
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_coefficients(engine: str, case: tuple[str, str, str]) -> None:
    made = make(*case, engine).fit(frame())
    assert (made.weights_ == reference(case)).all()
    assert made.weights_.any()


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_dask_frame_gives_what_its_rows_give(neighbours: str) -> None:
    case = ("logistic", neighbours, "matrix")
    table = dd.from_pandas(frame(), npartitions=3)
    made = make(*case, "auto").fit(table)
    assert (made.weights_ == reference(case)).all()


@pytest.mark.parametrize("weight", ["w", None])
def test_weights_scores_and_searches_on_a_cluster(
    weight: str | None, tmp_path: Any
) -> None:
    here, there = frame(), dd.from_pandas(frame(), npartitions=3)
    here.to_csv(tmp_path / "t.csv", index=False)
    case = ("logistic", "add-remove", "diagonal", "auto")
    one = make(*case).fit(here, sample_weight=weight)
    other = make(*case).fit(there, sample_weight=weight and there[weight])
    assert (one.weights_ == other.weights_).all()
    given = {"epsilon": 1.0, "sample_weight": weight, "random_state": 2}
    scores = [skdp.evaluate(one, table, **given).scores for table in (here, there)]
    assert scores[0] == scores[1]
    found = []
    grid = {"alpha": [0.1, 1.0]}
    given = {"method": "split", "random_state": 3}
    for table, engine in ((here, "auto"), (tmp_path, "dask")):
        named = make(*case).set_params(engine=engine)
        search = skdp.PrivateSearchCV(named, grid, **given)
        search.fit(table, sample_weight=weight)
        found.append((search.best_params_, search.best_score_))
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="of a Dask data frame have no fixed order"):
        skdp.PrivateSearchCV(make(*case), grid, **given).fit(there)


def test_columns_that_are_named_or_given_apart(tmp_path: Any) -> None:
    """Targets, weights and exposures have the same meaning wherever the rows are."""
    here, there = frame(), dd.from_pandas(frame(), npartitions=3)
    here.to_csv(tmp_path / "t.csv", index=False)
    files = {"engine": "dask"}
    named = skdp.LogisticRegression(
        schema=Schema(COLUMNS, target=Categorical(["no", "yes"])),
        epsilon=3.0,
        n_steps=6,
        random_state=1,
    )
    one = clone(named).fit(here, "yes", sample_weight="w").weights_
    for table, own in ((there, {}), (tmp_path, files)):
        other = clone(named).set_params(**own).fit(table, "yes", sample_weight="w")
        assert (one == other.weights_).all()
    grid = {"alpha": [0.1, 1.0]}
    found = []
    for table, own in ((here, {}), (tmp_path, files)):
        one_of = clone(named).set_params(**own)
        search = skdp.PrivateSearchCV(one_of, grid, method="split", random_state=3)
        found.append([trial.score for trial in search.fit(table, "yes").results_])
    assert found[0] == found[1]
    counts = make("poisson", "add-remove", "diagonal", "auto")
    one = clone(counts).fit(here, exposure="w")
    score = {"epsilon": 1.0, "metrics": "deviance", "random_state": 2}
    found = skdp.evaluate(one, here, exposure="w", **score).scores
    for table, exposure, own in (
        (there, "w", {}),
        (there, there["w"], {}),
        (tmp_path, "w", files),
    ):
        other = clone(counts).set_params(**own).fit(table, exposure=exposure)
        assert (one.weights_ == other.weights_).all()
        assert found == skdp.evaluate(other, table, exposure=exposure, **score).scores
    for what, given in (("y", "yes"), ("sample_weight", "w"), ("unit", "c")):
        for table, own in ((there, {}), (tmp_path, files)):
            fit = clone(named).set_params(**own).fit
            apart = {"y": "yes"} | {what: here[given].to_numpy()}
            with pytest.raises(ValueError, match=rf"^{what} must .* got .*ndarray"):
                fit(table, **apart)


def test_discovery_on_a_dask_frame() -> None:
    here, there = frame(), dd.from_pandas(frame(), npartitions=4)
    names = ["a", "b", "c"]
    one, other = (
        skdp.LogisticRegression(epsilon=5.0, random_state=1).fit(t[names], t["yes"])
        for t in (here, there)
    )
    assert one.schema_ == other.schema_
    assert "c=x" in list(one.get_feature_names_out())
    assert (one.weights_ == other.weights_).all()
    found = [skdp.discover(t, epsilon=5.0, random_state=1) for t in (here, there)]
    assert found[0].schema == found[1].schema
    here = here.astype(there.dtypes.to_dict())  # Dask changes the type of text
    assert skdp.schema_template(there) == skdp.schema_template(here)


def test_other_solvers_on_a_dask_frame() -> None:
    table = dd.from_pandas(frame(), npartitions=2)
    fit = {"schema": schema("linear"), "epsilon": 3.0, "random_state": 1}
    for solver in ("dp_gcd", "adassp", "dp_cd", "dp_sega"):
        own = {"solver": solver} | ({"n_steps": 5} if solver == "dp_sega" else {})
        one, other = (
            skdp.LinearRegression(**fit, **own).fit(t) for t in (frame(), table)
        )
        assert (one.weights_ == other.weights_).all()
    for solver in (name for name, one in SOLVERS.items() if one.reads_rows):
        with pytest.raises(ValueError, match="needs all rows in one process") as caught:
            skdp.LinearRegression(**fit, solver=solver).fit(table)
        assert "use one of ['skgd', 'adassp', " in str(caught.value)


def test_directories_are_tables_on_one_machine_and_on_a_cluster(tmp_path: Any) -> None:
    """Uneven files, one without rows, other types, other orders, other columns."""
    table = frame()
    table.iloc[:7].to_csv(tmp_path / "0.csv", index=False)
    table.iloc[:0].to_csv(tmp_path / "1.csv", index=False)
    table.iloc[7:2000].astype({"a": str}).to_parquet(tmp_path / "2.parquet")
    rest = table.iloc[2000:]
    rest[[*reversed(table.columns)]].assign(more=1).to_parquet(tmp_path / "3.pq")
    (tmp_path / "_SUCCESS").touch()
    for neighbours in NEIGHBOURS:
        case = ("logistic", neighbours, "matrix")
        for engine in ("compiled", "dask"):
            made = make(*case, engine).fit(tmp_path)
            assert (made.weights_ == reference(case)).all()
    pattern = make(*case, "dask").fit(f"{tmp_path}/*.*[vtq]")
    assert (pattern.weights_ == reference(case)).all()
    rest.drop(columns="b").to_parquet(tmp_path / "4.parquet")
    said = []
    for engine in ("compiled", "dask"):
        with pytest.raises(ValueError, match="has no column 'b'") as caught:
            make(*case, engine).fit(tmp_path)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith("In '4.parquet': ")


def test_what_a_cluster_cannot_take_is_refused() -> None:
    table = dd.from_pandas(frame(), npartitions=2)
    case = ("logistic", "add-remove", "matrix")
    with pytest.raises(ValueError, match="requires engine='dask', got 'compiled'"):
        make(*case, "compiled").fit(table)
    with pytest.raises(ValueError, match="y must be a Dask series"):
        make(*case, "dask").fit(table, frame()["yes"])
    with pytest.raises(ValueError, match="as many partitions as the table"):
        make(*case, "dask").fit(table, table["yes"].repartition(npartitions=1))
    with pytest.raises(ValueError, match="must be a data frame, whose columns"):
        make(*case, "dask").fit(table[["a"]].to_dask_array(lengths=True))
    with pytest.raises(ValueError, match="address of the cluster is empty"):
        make(*case, "dask://").fit(table)
    with pytest.raises(ValueError, match="engine='compiled' takes no address"):
        make(*case, "compiled://here").fit(table)
