"""Coverage of intervals of counts, classes and weights: make bench NAME=coverage-kinds.

Hospital tables as in intervals.py, with the same columns of noise, but with counts of
visits, three classes, class weights, sample weights (independent of the columns, or
rising with age) or exposures. The true weights are known in all of them. Results are
written to interval_kinds.csv and to a table of docs/evidence/intervals.md.

    python benchmarks/interval_kinds.py [--scale 1] [--only visits] [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import intervals
import numpy as np
import pandas as pd
from intervals import FILLS, NOISE, ROOT, Case

import skdp
from skdp import datasets
from skdp.estimators.standard_errors import StandardErrors, make_unit_matrices
from skdp.estimators.weights import make_weighting
from skdp.inference.slopes import Weighting
from skdp.privacy.encoding import encode

CLASSES = skdp.Categorical(["elsewhere", "no", "yes"])
#: The target of each table.
KINDS: dict[str, Any] = {
    "visits": "visits",
    "exposure": "visits",
    "three classes": "readmitted",
    "balanced": "readmitted",
    "weights": "readmitted",
    "weights by age": "readmitted",
}
START, END = "<!-- kinds -->", "<!-- /kinds -->"


def drawn(name: str, n_rows: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """A fresh table, its schema, true weights by class, and weights of the rows."""
    rng = np.random.default_rng([seed, 1])
    data = datasets.make_hospital(n_rows, random_state=seed, target=KINDS[name])
    columns, schema, weight = dict(data.columns), data.schema, None
    own = np.array(list(data.truth.values()))
    truth = own[:, None]
    if name == "three classes":
        other = -0.6 * own[::-1]
        other[-1] = -0.5
        truth = np.stack([np.zeros_like(own), own, other], axis=1)
        truth = truth - truth.mean(axis=1, keepdims=True)
        margins = datasets.compute_true_margins(encode([data.batch], schema), truth)
        code = np.argmax(margins + rng.gumbel(size=margins.shape), axis=1)
        columns["readmitted"] = np.array(CLASSES.levels)[code]
        schema = replace(schema, target=("readmitted", CLASSES))
    elif name == "exposure":
        weight = rng.uniform(0.25, 1.0, n_rows)
        margins = datasets.compute_true_margins(encode([data.batch], schema), truth)
        top = schema.target_column.high
        columns["visits"] = rng.poisson(top * weight * np.exp(margins[:, 0]))
    elif name == "weights":
        weight = rng.uniform(0.2, 1.0, n_rows)
    elif name == "weights by age":
        weight = 0.2 + 0.8 * np.clip(np.asarray(columns["age"]) / 100.0, 0.0, 1.0)
    X = pd.DataFrame(columns)
    for column, fill in FILLS.items():
        part = np.nan if fill is None else fill * (rng.random(n_rows) - 0.3)
        X[column] = np.clip(0.3 + part, 0.0, 1.0)
    labels = data.schema.layout().labels
    true = dict(zip(labels, truth, strict=True))
    return X, replace(schema, columns={**schema.columns, **NOISE}), true, weight


def one(task: tuple[Case, int, bool]) -> Any:
    """Labels, errors and standard errors of summary()."""
    (name, n_rows, epsilon, neighbours), seed, _ = task
    X, schema, truth, weight = drawn(name, n_rows, seed)
    kind: Any = skdp.LogisticRegression
    if KINDS[name] == "visits":
        kind = skdp.PoissonRegressor
    model = kind(
        epsilon=epsilon,
        schema=schema,
        neighbours=neighbours,
        n_threads=1,
        class_weight="balanced" if name == "balanced" else None,
    )
    what = "exposure" if name == "exposure" else "sample_weight"
    model.fit(X, **({} if weight is None else {what: weight}))
    found = model._standard_errors()
    if not isinstance(found, StandardErrors):
        return None
    labels, k = model.plan_.layout.labels, model.weights_.shape[1]
    true = np.array([truth.get(label, np.zeros(k)) for label in labels])
    if name == "balanced":
        known = make_weighting(model)
        assert isinstance(known, Weighting)
        assert known.factors is not None
        true[-1] += math.log(known.factors[1] / known.factors[0])
    away = model.weights_ - true
    if k > 1:
        away -= away.mean(axis=1, keepdims=True)
        labels = [f"{label}, {level}" for level in CLASSES.levels for label in labels]
    error = (make_unit_matrices(model)[1] @ away).T.ravel()
    std = found.effects_std.T.ravel()
    return labels, np.array([error, std, np.full(len(std), math.nan)])


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description="Coverage of 95 % intervals.")
    parser.add_argument("--scale", type=float, default=1.0, help="of the fits")
    parser.add_argument("--only", choices=list(KINDS))
    parser.add_argument("--output", type=Path, default=ROOT)
    given = parser.parse_args()
    path = given.output / "interval_kinds.csv"
    listed = itertools.product(KINDS, (10_000,), (1.0, 4.0), ("add-remove",))
    kept = [case for case in listed if given.only in (None, case[0])]
    intervals.run(path, given.scale, kept, one)
    lines = intervals.read(path)
    for line in lines:  # columns of noise are those of all classes
        name = line["coefficient"].split(", ")[0]
        if name in (*FILLS, "indicator?"):
            line["coefficient"] = name
    intervals.replace_tables(intervals.pages(lines), START, END)


if __name__ == "__main__":
    main()
