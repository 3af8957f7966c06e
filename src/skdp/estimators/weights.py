"""Release what the weights of classes and of rows need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.engines.reference import ReferenceEngine
from skdp.inference.slopes import Weighting
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import AnyArray, Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Schema
from skdp.schema.columns import level_key

# ---- Weigh classes by given weights, or by released counts (``"balanced"``)


BALANCED = "balanced"
#: Share of the budget (of μ²) spent on the counts.
BALANCED_SHARE = 0.02


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
    query = f"{total.query}, for weights"
    total = replace(total, kind=Kind.CLASS_WEIGHTS, query=query)
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


# ---- Release a histogram of the records' weights, which standard errors require


#: Number of equal bins between 0 and the largest weight.
N_BINS = 32
#: Number of groups of adjacent bins. All weights in a group are taken to be equal to
#: the group's mean weight.
N_POINTS = 8
#: Share of the budget (of μ²) spent on the histogram.
WEIGHTS_SHARE = 0.01
#: If at least this share of the weights is in the last bin, a summary mentions it.
MOSTLY = 0.5


def release_weights(
    records: Records, record: PrivacyRecord, noise: Randomness
) -> Released:
    """Release the histogram of the weights, for a small share of the budget."""
    total = add_up_weights(records, record.neighbours)
    z = accountant.noise_multiplier(math.sqrt(record.budget * WEIGHTS_SHARE), 1)
    return release(total, z, noise, record)


def add_up_weights(
    records: Records, neighbours: queries.Neighbours
) -> queries.BoundedSum:
    """Count the records whose weight lies in each bin. A weight of 0 is not counted.

    A record adds at most one to one bin, and the rows of a person together add at most
    one.
    """
    counts = queries.big(np.zeros(N_BINS, np.int64) + records.add_up(_count_weights))
    kind, query = Kind.WEIGHT_HISTOGRAM, f"histogram of the weights, {N_BINS} bins"
    return queries.histogram(counts, 1, neighbours, kind, query, records.one)


def _count_weights(records: Records) -> AnyArray:
    """Add up, for each bin, the shares of the rows whose weight lies in it."""
    total = np.zeros(N_BINS, np.int64)
    for chunk in records.chunks:
        kept = chunk.weight[chunk.weight > 0].astype(np.float64)
        bins = np.ceil(kept * (N_BINS / records.max_weight)).astype(np.int64) - 1
        bins = np.clip(bins, 0, N_BINS - 1)
        counts = np.bincount(bins, minlength=N_BINS)
        total += counts * records.find_share(chunk)
    return total


def make_weighting(model: Any) -> Weighting | str:
    """Return the distribution of a fit's weights, or a message if it is unknown.

    Only parameters of the model and released values are used.
    """
    most, given = float(model.max_weight), model.class_weight
    released = model.privacy_.find_released
    histogram = released(Kind.WEIGHT_HISTOGRAM)
    if given is None and not model._weighted:
        return Weighting.equal(most)
    if given is not None and histogram is not None:
        return (
            "Standard errors are available with sample weights or with class weights, "
            "but not with both."
        )
    if given is None:
        if histogram is None:
            return (
                "Standard errors of a weighted fit require a histogram of the weights, "
                "but this fit released none."
            )
        return _read_histogram(histogram, most, model)
    column = model.schema_.target_column
    assert isinstance(column, Categorical)  # which a check of the parameters requires
    if given == BALANCED:
        counts = released(Kind.CLASS_WEIGHTS)
        given = compute_balanced_weights(counts, column, most)
    assert isinstance(given, Mapping)
    known = {str(level): float(weight) for level, weight in given.items()}
    factors = np.array([known.get(str(level), 1.0) for level in column.levels])
    if factors.min() <= 0:
        return "There are no standard errors, because a class has the weight 0."
    return Weighting.equal(most, factors * min(1.0, most / float(factors.max())))


def describe_clipped(model: Any) -> str | None:
    """Return a sentence if most sample weights are at `max_weight`, or above it.

    The sentence follows from the released histogram. Return None for exposures, because
    many exposures may well be equal to the largest one.
    """
    histogram = model.privacy_.find_released(Kind.WEIGHT_HISTOGRAM)
    if histogram is None or model._exposed:
        return None
    counts = np.maximum(histogram.values.ravel(), 0.0)
    share = float(counts[-1] / max(counts.sum(), 1.0))
    if share < MOSTLY:
        return None
    most = f"{model.max_weight:g}"
    return (
        f"About {share:.0%} of the sample weights are near max_weight = {most} or "
        f"above it, and those above count as {most}. If weights may be larger, set "
        "max_weight to the largest that is possible."
    )


def _read_histogram(histogram: Released, most: float, model: Any) -> Weighting | str:
    """Return the distribution of weights that a released histogram shows.

    Bins whose counts may be noise alone are left out. If no bin is left, return a
    message.
    """
    shares = np.maximum(histogram.values.ravel() / model.plan_.n_rows, 0.0)
    visible = 3.0 * float(np.max(histogram.noise_std)) / model.plan_.n_rows
    kept = shares > visible
    if not kept.any():
        return "Standard errors are not known, because noise hides the weights."
    middles = (np.arange(N_BINS) + 0.5) * most / N_BINS
    shares = np.where(kept, shares, 0.0)
    sums, weighted = (
        part.reshape(N_POINTS, -1).sum(axis=1) for part in (shares, shares * middles)
    )
    some = sums > 0
    return Weighting(
        most=most,
        weights=weighted[some] / sums[some],
        shares=sums[some] * min(1.0, 1.0 / float(sums.sum())),
        exposed=model._exposed,
    )
