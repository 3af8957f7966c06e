"""Infer types, ranges and categories privately, if a schema does not give them.

Each of these is found from a noisy histogram. Types and ranges use public bins: a
logarithmic grid of positive and negative numbers, and one bin for texts that are not
numbers. The count of that last bin decides whether a column holds texts. Categories
are not public, so a category is shown only if its noisy count exceeds a threshold. The
count of a category that a single record has exceeds the threshold with probability at
most δ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from skdp.privacy import grid, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.encoding import Coded, Records
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray

#: Bins cover magnitudes from 2⁻³² to 2⁴⁸ in half octaves, so each bin spans a factor
#: of √2. Smaller and larger magnitudes are clipped.
LOWEST, HIGHEST = -32, 48
SIDE = 2 * (HIGHEST - LOWEST)
#: Probability that noise alone widens the range of at least one column.
FALSE_ALARM = 0.01
#: Number of equal bins of a column's range, of which `release_shares` tells the shares.
N_SHARES = 64
#: Counts below this many standard deviations of the noise are taken for noise.
HIDDEN = 3.5
#: The bin of empty cells, and the bin of texts that are not numbers.
NOTHING, TEXT = 2 * SIDE + 1, 2 * SIDE + 2


def find_bins(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the number of the bin of each value.

    Bins are numbered in this order: negative numbers, zero, positive numbers, nan
    (empty cells), and masked values (texts).
    """
    texts, values = np.ma.getmaskarray(values), np.ma.getdata(values)
    mantissa, exponent = np.frexp(np.abs(np.where(np.isfinite(values), values, 1.0)))
    half = 2 * (exponent - 1 - LOWEST) + (mantissa >= math.sqrt(0.5))
    half = np.where(np.isinf(values), SIDE - 1, np.clip(half, 0, SIDE - 1))
    signed = np.where(values < 0, SIDE - 1 - half, SIDE + 1 + half)
    bins = np.where(values == 0, SIDE, signed)
    bins = np.where(np.isnan(values), NOTHING, bins)
    return np.where(texts, TEXT, bins).astype(np.intp)


def list_edges() -> FloatArray:
    """Return the lower edges of all bins of numbers, then the last one's upper edge."""
    size = np.power(2.0, LOWEST + np.arange(SIDE + 1) / 2)
    return np.concatenate([-size[::-1], size[:1], size[1:]])


def release_ranges(
    batches: Iterable[Mapping[str, FloatArray]],
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, tuple[float, float]]:
    """Release only the ranges of `release_ranges_and_texts`."""
    return release_ranges_and_texts(batches, names, noise_multiplier, noise, record)[0]


def release_ranges_and_texts(
    batches: Iterable[Mapping[str, FloatArray]],
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """Release a range for each column and the set of columns that hold texts.

    A range extends from the lowest to the highest bin whose noisy count exceeds the
    level that noise alone would reach. The range is (0, 1) if no bin exceeds that
    level. Values outside the range will be clipped later. A column counts as texts if
    the noisy count of its texts exceeds that level as well as the noisy count of its
    numbers. In `batches`, texts are masked and nan stands for an empty cell.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the ranges and types are post-processing
    of one Gaussian release of a histogram. A record adds one to that histogram for each
    column.
    """
    n_bins = TEXT + 1
    total = np.zeros((len(names), n_bins), dtype=np.int64)
    for columns in batches:
        for row, name in enumerate(names):
            bins = find_bins(columns[name])
            total[row] += np.bincount(bins, minlength=n_bins)
    query = f"magnitudes of {queries.count_in_words(len(names), 'column')}"
    asked = queries.histogram(queries.big(total), len(names), record.neighbours, query)
    counts = release(asked, noise_multiplier, noise, record)
    threshold = counts.noise_std * ndtri(1.0 - FALSE_ALARM / total.size)
    edges, found, texts = list_edges(), {}, set()
    for row, name in enumerate(names):
        high = counts.values[row] > np.maximum(threshold[row], 0.5)
        at = np.flatnonzero(high[:NOTHING])
        if high[TEXT] and counts.values[row, TEXT] > counts.values[row, at].sum():
            texts.add(name)
        low_edge = 0.0 if not len(at) or at[0] == SIDE else float(edges[at[0]])
        high_edge = 0.0 if len(at) and at[-1] == SIDE else 1.0
        if len(at) and at[-1] != SIDE:
            high_edge = float(edges[at[-1] + 1])
        found[name] = (low_edge, high_edge if high_edge > low_edge else low_edge + 1.0)
    return found, texts


def release_shares(
    records: Records,
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, FloatArray]:
    """Release the shares of rows in `N_SHARES` equal bins of numeric columns.

    A share whose count is below `HIDDEN` standard deviations of the noise is zero. All
    shares of a column are zero if none is above.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the shares are post-processing of one
    Gaussian release of a histogram. A record adds one to the counts of each column, or
    nothing at all if its weight is zero.
    """
    groups = [group.name for group in records.layout.groups]
    total = np.zeros((len(names), N_SHARES), dtype=np.int64)
    for chunk in records.chunks:
        for row, name in enumerate(names):
            units = chunk.parts[groups.index(name)][chunk.weight > 0, 0]
            bins = units.astype(np.int64) * N_SHARES >> grid.FEATURE_BITS
            bins = np.clip(bins, 0, N_SHARES - 1)
            total[row] += np.bincount(bins, minlength=N_SHARES)
    query = f"shares of {queries.count_in_words(len(names), 'column')}"
    asked = queries.histogram(queries.big(total), len(names), record.neighbours, query)
    counts = release(asked, noise_multiplier, noise, record)
    seen = np.where(counts.values > HIDDEN * counts.noise_std, counts.values, 0.0)
    whole = np.maximum(seen.sum(axis=1, keepdims=True), 1.0)
    return dict(zip(names, seen / whole, strict=True))


def compute_threshold(noise_std: float, delta: float) -> float:
    """Return the threshold for the noisy counts of categories.

    The noisy count of a category that only one record has exceeds the threshold with
    probability at most `delta`.

    Notes
    -----
    **Guarantee.** For all noise_std and delta, P(rounded(1 + noise) > threshold) is at
    most delta. Counts are rounded to multiples of at most 2⁻¹⁰ of the noise's standard
    deviation, so the threshold is 2⁻¹⁰ standard deviations above the normal quantile.
    """
    return 1.0 - noise_std * (float(ndtri(delta)) - 2.0**-10)


def release_levels(
    batches: Iterable[Mapping[str, Coded]],
    names: Sequence[str],
    noise_multiplier: float,
    delta: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, list[str]]:
    """Release the categories that are frequent enough, sorted by name.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the categories that both tables have are
    post-processing of a Gaussian release. The probability that any category is shown
    that only one of the two tables has is at most `delta` over all columns. If a record
    may be replaced, both tables may have such a category in each column, and `delta`
    covers both. Counts that do not differ get the same noise on both tables, so at most
    two draws per column can distinguish the tables.
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
    query = f"categories of {queries.count_in_words(len(names), 'column')}"
    asked = queries.histogram(value, len(names), record.neighbours, query)
    sides = 2 if record.neighbours == "replace-one" else 1
    n_draws, z = sides * len(names), noise_multiplier
    record.charge(Event(query, asked.sensitivity, z, n_draws, delta))
    # The number of keys is private, and the release would record it. So the release is
    # charged above and given a record that is thrown away.
    private = PrivacyRecord(epsilon=math.inf, delta=0.5, neighbours=record.neighbours)
    noisy = release(asked, z, noise, private)
    record.seeded |= noise.seeded
    threshold = compute_threshold(z * asked.sensitivity, delta / (sides * len(names)))
    found: dict[str, list[str]] = {name: [] for name in names}
    for (name, key), count in zip(keys, noisy.values.tolist(), strict=True):
        if count > threshold or z == 0:
            found[name].append(key)
    return {name: sorted(kept) for name, kept in found.items()}
