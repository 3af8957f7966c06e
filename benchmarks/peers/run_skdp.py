"""skdp: ours, with nothing but a schema, ε and δ; as in `benchmarks/utility.py`."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from serve import Data, serve

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utility

import skdp
import tables


@lru_cache(maxsize=1)
def columns(name: str) -> tuple[tables.Table, tables.Table]:
    """Read the same rows as columns: ours encodes them itself."""
    return tables.split(tables.load(name))


def fit(data: Data, job: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Fit the default model under the neighbour relation of the setting."""
    train, test = columns(data.name)
    model = utility.fit(
        train, epsilon=job["epsilon"], random_state=job["seed"], **job["setting"]
    )
    said = {"claimed": job["epsilon"]}
    if not data.classification:
        return model.predict(test.X), said
    return model.predict_proba(test.X)[:, 1], said


if __name__ == "__main__":
    serve(fit, skdp.__version__)
