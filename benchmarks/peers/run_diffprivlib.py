"""diffprivlib: objective perturbation for classes, noisy moments for numbers.

Both claim pure ε for replacing a record. Public bounds are handed in: the largest norm
of a row, or the range of every feature and of the target.
"""

from __future__ import annotations

from typing import Any

import diffprivlib
import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression
from serve import Data, serve


def fit(data: Data, job: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Fit with the defaults, or with the C of the setting."""
    given = {"epsilon": job["epsilon"], "random_state": job["seed"], **job["setting"]}
    if data.classification:
        model = LogisticRegression(data_norm=data.row_norm, **given)
        chance = model.fit(data.X, data.y).predict_proba(data.X_test)[:, 1]
        return chance, {"claimed": job["epsilon"]}
    model = LinearRegression(bounds_X=(0, 1), bounds_y=data.target_bounds, **given)
    predicted = model.fit(data.X, data.y).predict(data.X_test)
    return predicted, {"claimed": job["epsilon"]}


if __name__ == "__main__":
    serve(fit, diffprivlib.__version__)
