"""scikit-learn: no privacy, the reference that every other score is held against."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from serve import Data, serve
from sklearn.linear_model import LinearRegression, LogisticRegression


def fit(data: Data, job: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Fit at the defaults, or nearly without a penalty ("tuned")."""
    if not data.classification:
        return LinearRegression().fit(data.X, data.y).predict(data.X_test), {}
    model = LogisticRegression(max_iter=10_000, **job["setting"]).fit(data.X, data.y)
    return model.predict_proba(data.X_test)[:, 1], {}


if __name__ == "__main__":
    serve(fit, sklearn.__version__)
