"""Synthetic rows by dpmm (AIM or MST), followed by boosted trees on them.

It reads one job per line and writes one result per line, in JSON. A job names an .npz
of raw columns, where a category is the number of its level. Numbers are cut into bins
of equal width between their public ends before dpmm sees them, so its whole budget goes
to the marginals. A row of synthetic data has bins as features. So have the rows to
predict, and the trees see nothing else.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import roc_auc_score

PIPELINES = {"AIM": AIMPipeline, "MST": MSTPipeline}


@lru_cache(maxsize=1)
def read(path: str) -> dict[str, np.ndarray]:
    """Read a table that `benchmarks/additive.py` wrote."""
    with np.load(path) as z:
        return dict(z)


def cut(X: np.ndarray, data: dict[str, np.ndarray], n_bins: int) -> pd.DataFrame:
    """Return the columns as categories, numbers in bins of equal width."""
    columns = {}
    for j, numeric in enumerate(data["numeric"]):
        low, high = data["bounds"][j]
        codes, n_levels = X[:, j], int(max(data["X"][:, j].max(), 0)) + 1
        if numeric:
            share = np.clip((codes - low) / (high - low), 0.0, 1.0)
            codes, n_levels = np.minimum(share * n_bins, n_bins - 1), n_bins
        codes = np.clip(codes, 0, n_levels - 1).astype(int)
        columns[f"x{j}"] = pd.Categorical(codes, categories=range(n_levels))
    return pd.DataFrame(columns)


def find_targets(data: dict[str, np.ndarray], n_bins: int) -> tuple[Any, np.ndarray]:
    """Return the targets as codes, and the number that each code stands for."""
    if bool(data["classification"]):
        return data["y"].astype(int), np.array([0.0, 1.0])
    low, high = map(float, data["target_bounds"])
    share = np.clip((data["y"] - low) / (high - low), 0.0, 1.0)
    middles = low + (high - low) * (np.arange(n_bins) + 0.5) / n_bins
    return np.minimum(share * n_bins, n_bins - 1).astype(int), middles


def fit(job: dict[str, Any]) -> np.ndarray:
    """Return chances or values of the test rows."""
    data, setting = read(job["path"]), dict(job["setting"])
    n_bins = setting.pop("n_bins", 20)
    kind, trees = setting.pop("model", "MST"), setting.pop("trees", {})
    codes, values = find_targets(data, n_bins)
    table = cut(data["X"], data, n_bins)
    table["y"] = pd.Categorical(codes, categories=range(len(values)))
    made = PIPELINES[kind](
        epsilon=job["epsilon"],
        delta=job["delta"],
        proc_epsilon=None,
        n_jobs=1,
        **setting,
    )
    domain = {name: {"categories": list(table[name].cat.categories)} for name in table}
    made.fit(table, domain=domain, random_state=job["seed"])
    drawn = made.generate(n_records=len(table), random_state=job["seed"])
    X = np.column_stack([drawn[n].astype(int) for n in table.columns[:-1]])
    y = values[drawn["y"].astype(int).to_numpy()]
    X_test = np.column_stack(
        [column.cat.codes for _, column in cut(data["X_test"], data, n_bins).items()]
    )
    if bool(data["classification"]):
        if len(np.unique(y)) < 2:
            return np.full(len(X_test), float(y.mean()))
        model = HistGradientBoostingClassifier(random_state=0, **trees).fit(X, y)
        return np.asarray(model.predict_proba(X_test)[:, 1])
    model = HistGradientBoostingRegressor(random_state=0, **trees).fit(X, y)
    return np.asarray(model.predict(X_test))


def score(job: dict[str, Any], predicted: np.ndarray) -> dict[str, float]:
    """Log-loss and AUC of chances for classes, R² of values for numbers."""
    data = read(job["path"])
    if not bool(data["classification"]):
        residual = np.mean((predicted - data["y_test"]) ** 2)
        return {"value": float(1 - residual / np.var(data["y_test"]))}
    chance = np.clip(predicted, 1e-15, 1 - 1e-15)
    right = np.where(data["y_test"] == 1, chance, 1 - chance)
    auc = float(roc_auc_score(data["y_test"], chance))
    return {"value": float(-np.mean(np.log(right))), "auc": auc}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        job = json.loads(line)
        start = time.process_time()
        said: dict[str, Any] = score(job, fit(job))
        said["seconds"] = round(time.process_time() - start, 3)
        said["version"] = version("dpmm")
        print(json.dumps(job | said), flush=True)
