"""Implement ``class_weight="balanced"``, which weighs classes by released counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Schema

BALANCED = "balanced"
#: Share of μ² spent on the counts.
BALANCED_SHARE = 0.02
#: The query's name ends with these words. They identify the release in a transcript.
QUERY_END = ", for weights"


def release_balanced_weights(
    records: Records,
    schema: Schema,
    record: PrivacyRecord,
    *,
    engine: Callable[[Records], queries.Engine],
    noise: Randomness,
    max_weight: float,
) -> dict[Any, float]:
    """Release the counts of the classes, and return a weight for each class."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # which a check of the parameters requires
    z = accountant.noise_multiplier(math.sqrt(record.budget * BALANCED_SHARE), 1)
    total = queries.counts(engine(records), len(column.levels), record.neighbours)
    total = replace(total, query=total.query + QUERY_END)
    released = release(total, z, noise, record)
    return compute_balanced_weights(released, column, max_weight)


def compute_balanced_weights(
    released: Released, column: Categorical, max_weight: float
) -> dict[Any, float]:
    """Return a weight for each class, from the released counts of the classes.

    Weights are inversely proportional to the counts, so all classes have the same total
    weight. The rarest class has the weight `max_weight`. (In scikit-learn the mean
    weight is 1. This constant factor only changes the relative strength of the
    penalty.) A count that is below the standard deviation of its noise is raised to
    this standard deviation. Every count is raised to at least 1.
    """
    counts = np.maximum(released.values, np.maximum(released.noise_std, 1.0))
    weights = max_weight * counts.min() / counts
    return dict(zip(column.levels, weights.tolist(), strict=True))
