"""Read one job per line and write one result per line, in JSON, for every peer.

A job names a table (an .npz of encoded matrices), ε, δ, a seed and a setting; the
result adds the score on rows that were not fitted, the CPU time of the fit and what the
peer says about itself. Only numpy is needed, so that any peer's Python can run it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Data:
    """A table: encoded rows to fit and to test, y in {0, 1} or a number.

    `row_norm` and `target_bounds` are public: features are in [0, 1].
    """

    name: str
    classification: bool
    row_norm: float
    target_bounds: tuple[float, float]
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@lru_cache(maxsize=1)
def read(path: str) -> Data:
    """Read a table that `benchmarks/peers.py` wrote."""
    with np.load(path) as z:
        return Data(
            name=Path(path).stem,
            classification=bool(z["classification"]),
            row_norm=float(z["row_norm"]),
            target_bounds=(float(z["target_bounds"][0]), float(z["target_bounds"][1])),
            **{key: z[key] for key in ("X", "y", "X_test", "y_test")},
        )


def score(data: Data, predicted: np.ndarray) -> float:
    """Log-loss of chances for classes, R² of values for numbers."""
    if not data.classification:
        residual = np.mean((predicted - data.y_test) ** 2)
        return float(1 - residual / np.var(data.y_test))
    chance = np.clip(predicted, 1e-15, 1 - 1e-15)
    seen = np.where(data.y_test == 1, np.log(chance), np.log1p(-chance))
    return float(-np.mean(seen))


#: (table, job) -> predictions of the test rows, and what the peer says of the fit.
Fit = Callable[[Data, dict[str, Any]], tuple[np.ndarray, dict[str, Any]]]


def serve(fit: Fit, version: str) -> None:
    """Answer every job on the standard input."""
    for line in sys.stdin:
        job = json.loads(line)
        data = read(job["path"])
        start = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predicted, said = fit(data, job)
        said["seconds"] = round(time.process_time() - start, 4)
        said["warnings"] = sorted({type(w.message).__name__ for w in caught})
        said |= {"version": version, "value": score(data, predicted)}
        print(json.dumps(job | said), flush=True)
