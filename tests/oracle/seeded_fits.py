"""Some sixty seeded fits and what became of each, as digests.

    python tests/oracle/seeded_fits.py [--write] [NAME ...]

prints the fits whose bits differ from those of ``digests.json``, and exits with 1 if
there are any. A change that only moves code must leave all of them as they are. With
``--write`` the file is made anew, for a change that is meant to alter fits.

A digest covers the weights, every released value, the costs, the number of steps and
the standard errors, but no sentence. Eigenvectors come from LAPACK, whose last bits
differ from one kind of processor to the next. So the file also holds a few sums of each
fit, which `test_oracle.py` compares with a tolerance.
"""

import argparse
import hashlib
import json
import logging
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

import skdp
from skdp import Categorical, Numeric, Pair, Schema, Vector
from skdp.descent.samplings import Full, SingleCoordinate
from skdp.descent.sketches import Sketched
from skdp.solvers.problem import SOLVERS

FILE = Path(__file__).with_name("digests.json")
N_ROWS = 600
RELATIONS = ("replace-one", "zero-out", "add-remove")


def _make_table() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    x, z = rng.uniform(0, 1, N_ROWS), rng.gamma(2, 10, N_ROWS)
    word = rng.choice(["a", "b", "c"], N_ROWS, p=[0.6, 0.3, 0.1])
    score = 2 * x - z / 40 + (word == "b") + rng.normal(0, 0.5, N_ROWS)
    who = rng.integers(0, 150, N_ROWS).astype(object)
    z[::50], who[::90] = np.nan, None
    return {
        "x": x,
        "z": z,
        "word": word.astype(object),
        "yes": np.where(score > 1, "yes", "no").astype(object),
        "kind": rng.choice(["k0", "k1", "k2"], N_ROWS).astype(object),
        "amount": np.clip(score, -2, 4),
        "count": rng.poisson(np.exp(np.clip(score, -2, 1))),
        "days": rng.uniform(0.5, 3, N_ROWS),
        "weight": rng.uniform(0, 2, N_ROWS),
        "who": who,
    }


TABLE = _make_table()
WORDS = np.searchsorted(["a", "b", "c"], TABLE["word"].astype(str))
COLUMNS = {
    "x": Numeric(0, 1),
    "z": Numeric(0, 200),
    "word": Categorical(["a", "b", "c"]),
}
YES = ("yes", Categorical(["no", "yes"]))
AMOUNT = ("amount", Numeric(-2, 4))
COUNT = ("count", Numeric(0, 15))
ESTIMATORS: dict[str, tuple[Any, Any]] = {
    "logistic": (skdp.LogisticRegression, YES),
    "linear": (skdp.LinearRegression, AMOUNT),
    "huber": (skdp.HuberRegressor, AMOUNT),
    "svc": (skdp.LinearSVC, YES),
    "poisson": (skdp.PoissonRegressor, COUNT),
    "additive classifier": (skdp.AdditiveClassifier, YES),
    "additive regressor": (skdp.AdditiveRegressor, AMOUNT),
}


def fit(
    name: str = "logistic",
    columns: Any = None,
    table: Any = None,
    given: Any = None,
    unit: Any = None,
    target: Any = None,
    row_norm: float | None = None,
    **options: Any,
) -> Any:
    """Fit one of the `ESTIMATORS` on the table, with a seed."""
    kind, usual = ESTIMATORS[name]
    schema = Schema(
        columns or COLUMNS, target=target or usual, unit=unit, row_norm=row_norm
    )
    options = {"epsilon": 2.0, "delta": 1e-6, "schema": schema} | options
    model = kind(random_state=3, n_threads=1, **options)
    return model.fit(TABLE if table is None else table, **(given or {}))


def _fit_without_schema(name: str, **options: Any) -> Any:
    kind, (target, described) = ESTIMATORS[name]
    known = {"classes": described.levels} if isinstance(described, Categorical) else {}
    known |= {"target_bounds": (-2, 4)} if name == "linear" else {}
    model = kind(epsilon=4.0, delta=1e-6, random_state=3, **(known | options))
    return model.fit({name: TABLE[name] for name in COLUMNS}, TABLE[target])


def _fit_sparse() -> Any:
    rng = np.random.default_rng(1)
    words = sparse.random(N_ROWS, 30, 0.1, "csr", rng=rng)
    schema = Schema(
        {"text": Vector([f"w{i}" for i in range(30)], norm=1.0)}, target=YES
    )
    model = skdp.LogisticRegression(
        epsilon=2.0, delta=1e-6, schema=schema, random_state=3
    )
    return model.fit(words, TABLE["yes"])


def _search(**options: Any) -> Any:
    schema = Schema(COLUMNS, target=YES, unit=options.pop("unit", None))
    model = skdp.LogisticRegression(schema=schema, n_steps=5)
    search = skdp.PrivateSearchCV(
        model, {"alpha": [0.01, 1.0]}, epsilon=4.0, delta=1e-6, random_state=3
    ).set_params(**options)
    return search.fit(TABLE).best_estimator_


def _descend(sampling: Any, **options: Any) -> Any:
    schema = Schema({name: COLUMNS[name] for name in ("x", "word")}, target=YES)
    batch = skdp.Batch(
        columns={"x": TABLE["x"], "word": skdp.Coded(WORDS, ["a", "b", "c"])},
        target=skdp.Coded(np.array(TABLE["yes"] == "yes", int), ["no", "yes"]),
    )
    records = skdp.encode([batch], schema)
    weights, record = skdp.descend(
        records, sampling, loss=skdp.Logistic(), random_state=3, **options
    )
    return SimpleNamespace(weights=weights, record=record)


def _list_fits() -> dict[str, Callable[[], Any]]:
    fits: dict[str, Callable[[], Any]] = {}

    def add(title: str, make: Callable[..., Any] = fit, *args: Any, **options: Any):
        fits[title] = lambda: make(*args, **options)

    for name in ESTIMATORS:
        for relation in RELATIONS:
            add(f"{name}, {relation}", fit, name, neighbours=relation)
        add(f"{name}, no look", fit, name, look=False)
    for engine in ("reference", "compiled"):
        add(f"{engine} engine", name="linear", engine=engine)
    add("two threads", fit, "linear", engine="compiled")
    for geometry in ("matrix", "diagonal"):
        add(f"{geometry} geometry, huber", fit, "huber", geometry=geometry)
    for sampling in ("coordinates", "columns", "importance", "shuffled"):
        add(f"sampling of {sampling}", sampling=sampling, n_steps=12)
    add("paper calibration", sampling="columns", calibration="paper", n_steps=12)
    along = Sketched(gram_share=0.2, floor=0.05, cap=1.0)
    add("sketched steps", geometry=along, sampling=SingleCoordinate.uniform(6))
    for solver in SOLVERS:
        regression = solver == "adassp"
        name = "linear" if regression else "logistic"
        relation = "replace-one" if solver != "dp_svrg" else "zero-out"
        add(f"solver {solver}", fit, name, solver=solver, neighbours=relation)
    weighted = {"sample_weight": "weight"}
    add("weights", fit, "linear", given=weighted, max_weight=2.0)
    add("weights of classes", class_weight={"yes": 1.0, "no": 0.5})
    add("balanced classes", class_weight="balanced", max_weight=2.0)
    add("exposures", fit, "poisson", given={"exposure": "days"}, max_weight=3.0)
    add("persons", unit="who")
    add("persons, replaced", unit="who", neighbours="replace-one")
    add("rows of persons", fit, "linear", unit="who", max_rows_per_unit=3)
    add("persons with weights", unit="who", given=weighted, max_weight=2.0)
    add("known number of rows", fit, "linear", n_rows=N_ROWS)
    add("three classes", target=("kind", Categorical(["k0", "k1", "k2"])))
    add("lasso", fit, "linear", alpha=0.01, l1_ratio=0.5)
    add("no intercept", fit, "linear", fit_intercept=False)
    add("no noise", epsilon=math.inf, n_steps=20)
    add("joint norm", row_norm=1.3)
    x, z, word = COLUMNS.values()
    logs = {"x": x, "z": Numeric(0, 200, scale="log", indicator=True), "word": word}
    add("log scale and indicator", fit, "linear", logs)
    add("bins", columns={"x": Numeric(0, 1, bins=5), "z": z, "word": word})
    knots = {"x": Numeric(0, 1, knots=5), "z": Numeric(0, 200, knots=4)}
    pair = {"x:z": Pair("x", "z")}
    add("curves and a pair", fit, "linear", knots | {"word": word} | pair)
    add("vector", columns={"v": Vector(["x", "days"], norm=1.0), "word": word})
    add("sparse text", _fit_sparse)
    add("no schema, logistic", _fit_without_schema, "logistic")
    add("no schema, linear", _fit_without_schema, "linear")
    add("no schema, poisson", _fit_without_schema, "poisson", neighbours="zero-out")
    add("search by rows", _search, method="split")
    add("search of persons", _search, method="split", unit="who")
    add("search by noise", _search, method="random")
    budget = {"epsilon": 2.0, "n_steps": 20}
    add("descend, coordinates", _descend, SingleCoordinate.uniform(5), **budget)
    add("descend, replaced", _descend, Full(5), noise=0.01, n_steps=9, n_rows=600)
    return fits


FITS = _list_fits()


def describe(made: Any) -> list[np.ndarray]:
    """Return all numbers of a fit that follow from its records and its noise."""
    record = getattr(made, "privacy_", None) or made.record
    weights = made.weights_ if hasattr(made, "weights_") else made.weights
    costs = [
        (e.sensitivity, e.noise_multiplier, e.n_draws, e.delta, times)
        for e, times in record.events.items()
    ]
    values = [np.asarray(one.values) for one in record.transcript]
    found = [np.asarray(weights), np.array(costs), *values]
    if hasattr(made, "coef_std_"):
        found.append(np.asarray(made.coef_std_, float))
    return [np.ascontiguousarray(array, np.float64) for array in found]


def digest(arrays: list[np.ndarray]) -> str:
    """Return the SHA-256 digest of arrays, bit for bit."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(repr(array.shape).encode() + array.tobytes())
    return hashed.hexdigest()


def summarise(arrays: list[np.ndarray]) -> list[float]:
    """Return a few sums of the weights and of everything released."""
    weights, costs, *values = arrays
    flat = np.concatenate([np.ravel(array) for array in values] or [np.zeros(1)])
    flat = flat[np.isfinite(flat)]
    sums = [weights.sum(), np.abs(weights).sum(), len(values), np.abs(flat).sum()]
    costs = costs[np.isfinite(costs).all(axis=1)]
    return [float(value) for value in (*sums, costs.sum())]


def run(name: str) -> dict[str, Any]:
    """Run one fit and return its digest and its sums."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = describe(FITS[name]())
    return {"digest": digest(arrays), "sums": summarise(arrays)}


def main() -> None:
    """Compare all fits with the file, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these fits")
    parser.add_argument("--write", action="store_true", help="write the file")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    found = {name: run(name) for name in asked.names or FITS}
    if asked.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    known = json.loads(FILE.read_text(encoding="utf-8"))
    changed = [n for n in found if found[n]["digest"] != known.get(n, {}).get("digest")]
    print(*[f"differs: {name}" for name in changed], sep="\n", end="")
    print(f"\n{len(found) - len(changed)} of {len(found)} fits have the same bits.")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
