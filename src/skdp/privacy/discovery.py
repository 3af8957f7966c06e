"""Ranges and categories found privately, where a schema does not give them.

Both are histograms. Ranges use bins that are public: a logarithmic grid of both signs.
Categories are not public, so that a category is shown only if its noisy count exceeds
a threshold that a single record passes with probability at most δ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from skdp.privacy import queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.encoding import Coded
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray

#: Magnitudes from 2⁻³² to 2⁴⁸ in half octaves; smaller and larger ones are clipped.
LOWEST, HIGHEST = -32, 48
SIDE = 2 * (HIGHEST - LOWEST)
#: Chance that noise alone widens some range, over all columns.
FALSE_ALARM = 0.01


def magnitude_bins(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Bin of each value, in increasing order: negative, zero, positive, and nan."""
    mantissa, exponent = np.frexp(np.abs(np.where(np.isfinite(values), values, 1.0)))
    half = 2 * (exponent - 1 - LOWEST) + (mantissa >= math.sqrt(0.5))
    half = np.where(np.isinf(values), SIDE - 1, np.clip(half, 0, SIDE - 1))
    signed = np.where(values < 0, SIDE - 1 - half, SIDE + 1 + half)
    bins = np.where(values == 0, SIDE, signed)
    return np.where(np.isnan(values), 2 * SIDE + 1, bins).astype(np.intp)


def bin_edges() -> FloatArray:
    """Lower edge of every bin but nan's, and the upper edge of the last."""
    size = np.power(2.0, LOWEST + np.arange(SIDE + 1) / 2)
    return np.concatenate([-size[::-1], size[:1], size[1:]])


def ranges(
    batches: Iterable[Mapping[str, FloatArray]],
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, tuple[float, float]]:
    """Release a range for each numeric column.

    It reaches from the lowest to the highest bin whose noisy count is above what noise
    alone would reach; (0, 1) if there is none. Values beyond it will be clipped.

    Notes
    -----
    **Guarantee.** For all neighbouring tables the ranges are post-processing of one
    Gaussian release of a histogram to which a record adds one in each column.
    """
    n_bins = 2 * SIDE + 2
    total = np.zeros((len(names), n_bins), dtype=np.int64)
    for columns in batches:
        for row, name in enumerate(names):
            bins = magnitude_bins(columns[name])
            total[row] += np.bincount(bins, minlength=n_bins)
    query = f"magnitudes of {len(names)} columns"
    asked = queries.histogram(queries.big(total), len(names), record.relation, query)
    counts = release(asked, noise_multiplier, noise, record)
    threshold = counts.noise_std * ndtri(1.0 - FALSE_ALARM / total.size)
    edges, found = bin_edges(), {}
    for row, name in enumerate(names):
        high = counts.values[row, :-1] > np.maximum(threshold[row, :-1], 0.5)
        at = np.flatnonzero(high)
        low_edge = 0.0 if not len(at) or at[0] == SIDE else float(edges[at[0]])
        high_edge = 0.0 if len(at) and at[-1] == SIDE else 1.0
        if len(at) and at[-1] != SIDE:
            high_edge = float(edges[at[-1] + 1])
        found[name] = (low_edge, high_edge if high_edge > low_edge else low_edge + 1.0)
    return found


def level_threshold(noise_std: float, delta: float) -> float:
    """Return the count that a single record passes with probability at most `delta`.

    Notes
    -----
    **Guarantee.** For all noise_std and delta, P(rounded(1 + noise) > threshold) is at
    most delta: counts are rounded to cells of at most 2⁻¹⁰ of the noise's standard
    deviation, so that one cell more than the normal quantile is asked for.
    """
    return 1.0 - noise_std * (float(ndtri(delta)) - 2.0**-10)


def levels(
    batches: Iterable[Mapping[str, Coded]],
    names: Sequence[str],
    noise_multiplier: float,
    delta: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, list[str]]:
    """Release the categories of columns that are frequent enough, sorted by name.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the categories that both tables have are
    post-processing of a Gaussian release; one that only a single record has is shown
    with probability at most `delta` over all columns, twice if it may be replaced
    (both are charged). Noise on counts that do not differ is drawn alike for both
    tables, so that at most two draws a column can tell them apart.
    """
    counters: dict[str, Counter[str]] = {name: Counter() for name in names}
    for columns in batches:
        for name in names:
            cells = columns[name]
            inside = cells.codes[(cells.codes >= 0) & (cells.codes < len(cells.values))]
            counts = np.bincount(inside, minlength=len(cells.values))
            for value, count in zip(cells.values, counts.tolist(), strict=True):
                counters[name][str(value)] += count
    keys = [(name, key) for name in names for key, n in counters[name].items() if n > 0]
    value = queries.big([counters[name][key] for name, key in keys])
    query = f"categories of {len(names)} columns"
    asked = queries.histogram(value, len(names), record.relation, query)
    sides = 2 if record.relation == "replace-one" else 1
    n_draws, z = sides * len(names), noise_multiplier
    record.charge(Event(query, asked.sensitivity, z, n_draws, delta))
    # How many keys there are is private: the release is charged above and kept here.
    private = PrivacyRecord(epsilon=math.inf, delta=0.5, relation=record.relation)
    noisy = release(asked, z, noise, private)
    record.seeded |= noise.seeded
    threshold = level_threshold(z * asked.sensitivity, delta / (sides * len(names)))
    found: dict[str, list[str]] = {name: [] for name in names}
    for (name, key), count in zip(keys, noisy.values.tolist(), strict=True):
        if count > threshold or z == 0:
            found[name].append(key)
    return {name: sorted(kept) for name, kept in found.items()}
