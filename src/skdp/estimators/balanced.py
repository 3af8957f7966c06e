"""Weigh classes by given weights, or by released counts (``"balanced"``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.engines.reference import ReferenceEngine
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Schema
from skdp.schema.columns import level_key

BALANCED = "balanced"
#: Share of the budget (of μ²) spent on the counts.
BALANCED_SHARE = 0.02
#: The name of the query that releases the counts ends with these words. They identify
#: its release among all releases of a fit.
QUERY_END = ", for weights"


def release_balanced_weights(
    records: Records,
    schema: Schema,
    record: PrivacyRecord,
    *,
    noise: Randomness,
    max_weight: float,
) -> dict[Any, float]:
    """Release the counts of the classes, and return a weight for each class."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # which a check of the parameters requires
    z = accountant.noise_multiplier(math.sqrt(record.budget * BALANCED_SHARE), 1)
    total = queries.counts(
        ReferenceEngine(records), len(column.levels), record.neighbours
    )
    total = replace(total, query=total.query + QUERY_END)
    released = release(total, z, noise, record)
    return compute_balanced_weights(released, column, max_weight)


def compute_balanced_weights(
    released: Released, column: Categorical, max_weight: float
) -> dict[Any, float]:
    """Return a weight for each class, from the released counts of the classes.

    Weights are inversely proportional to the counts, so all classes have the same total
    weight. The rarest class has the weight `max_weight`. (In scikit-learn the mean
    weight is 1. The two choices differ by a constant factor, which only changes the
    relative strength of the penalty.) A count that is below the standard deviation of
    its noise is raised to this standard deviation. Every count is raised to at least 1.
    """
    counts = np.maximum(released.values, np.maximum(released.noise_std, 1.0))
    weights = max_weight * counts.min() / counts
    return dict(zip(column.levels, weights.tolist(), strict=True))


def scale_class_weights(
    given: Mapping[Any, float] | None, schema: Schema, max_weight: float
) -> Mapping[Any, float] | None:
    """Scale class weights down if the largest of them is above `max_weight`.

    All weights are divided by the same number, so the largest becomes `max_weight`. The
    ratios of weights stay the same, and only ratios matter. Otherwise, weights above
    `max_weight` would be clipped. A class that is not listed has the weight 1 before
    the division. Invalid weights are returned unchanged.
    """
    column = schema.target_column
    if not isinstance(given, Mapping) or not isinstance(column, Categorical):
        return given
    listed = {level_key(level) for level in given}
    weights: dict[Any, Any] = dict(given) | {
        v: 1.0 for v in column.levels if level_key(v) not in listed
    }
    numbers = (isinstance(w, int | float | np.number) for w in weights.values())
    if not all(numbers) or min(weights.values()) < 0:
        return given
    largest = max(weights.values(), default=0.0)
    if not max_weight < largest < math.inf:
        return given
    return {level: max_weight / largest * one for level, one in weights.items()}
