"""DP-EBM of interpret-core: the private additive model that people use today.

It reads one job per line and writes one result per line, in JSON. A job names an .npz
of raw columns, where a category is the number of its level. Ranges, kinds of columns
and the range of the target are public and handed in.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import lru_cache
from typing import Any

import interpret
import numpy as np
from interpret.privacy import (
    DPExplainableBoostingClassifier,
    DPExplainableBoostingRegressor,
)


@lru_cache(maxsize=1)
def read(path: str) -> dict[str, np.ndarray]:
    """Read a table that `benchmarks/additive.py` wrote."""
    with np.load(path) as z:
        return dict(z)


def fit(job: dict[str, Any]) -> np.ndarray:
    """Return chances or values of the test rows."""
    data = read(job["path"])
    numeric = data["numeric"].astype(bool)
    given = {
        "feature_types": ["continuous" if n else "nominal" for n in numeric],
        "epsilon": job["epsilon"],
        "delta": job["delta"],
        "privacy_bounds": {
            int(j): tuple(map(float, data["bounds"][j]))
            for j in np.flatnonzero(numeric)
        },
        "n_jobs": 1,
        "random_state": job["seed"],
        **job["setting"],
    }
    train, test = _clip(data["X"], data), _clip(data["X_test"], data)
    if bool(data["classification"]):
        model = DPExplainableBoostingClassifier(**given).fit(train, data["y"])
        return np.asarray(model.predict_proba(test)[:, 1])
    low, high = map(float, data["target_bounds"])
    given |= {"privacy_target_min": low, "privacy_target_max": high}
    model = DPExplainableBoostingRegressor(**given).fit(train, data["y"])
    return np.asarray(model.predict(test))


def _clip(X: np.ndarray, data: dict[str, np.ndarray]) -> np.ndarray:
    """Clip numbers to their public ranges."""
    return np.clip(X, data["bounds"][:, 0], data["bounds"][:, 1])


def score(job: dict[str, Any], predicted: np.ndarray) -> float:
    """Log-loss of chances for classes, R² of values for numbers."""
    data = read(job["path"])
    if not bool(data["classification"]):
        residual = np.mean((predicted - data["y_test"]) ** 2)
        return float(1 - residual / np.var(data["y_test"]))
    chance = np.clip(predicted, 1e-15, 1 - 1e-15)
    return float(-np.mean(np.log(np.where(data["y_test"] == 1, chance, 1 - chance))))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        job = json.loads(line)
        start = time.process_time()
        value = score(job, fit(job))
        said = {"value": value, "seconds": round(time.process_time() - start, 3)}
        said["version"] = interpret.__version__
        print(json.dumps(job | said), flush=True)
