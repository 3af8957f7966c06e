"""Privately infer the types, ranges and categories that a schema lacks.

All of them come from noisy histograms. Types and ranges use public bins: a logarithmic
grid of positive and negative numbers, and one bin for strings that are not numbers. The
count of this last bin decides whether a column contains strings. Categories are not
public, so a category is shown only if its noisy count exceeds a threshold. If only one
record has the category, it is shown with probability at most δ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri

from skdp.privacy import grid, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.grid import UNIT_BITS
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, count_in_words

#: Bins cover magnitudes from 2⁻³² to 2⁴⁸ in half octaves, so each bin spans a factor
#: of √2. Smaller and larger magnitudes are clipped.
LOWEST, HIGHEST = -32, 48
SIDE = 2 * (HIGHEST - LOWEST)
#: The bin from 1 to √2 comes this many bins after the bin of zero.
ONE = 1 - 2 * LOWEST
#: Probability that noise alone widens the range of at least one column.
FALSE_ALARM = 0.01
#: Number of equal bins into which `release_shares` divides the range of a column.
N_SHARES = 64
#: Counts below this many standard deviations of the noise are treated as noise.
HIDDEN = 3.5
#: The bin of empty cells, and the bin of strings that are not numbers.
NOTHING, TEXT = 2 * SIDE + 1, 2 * SIDE + 2
#: When categories are counted, all rows of a person together count as at most this many
#: parts. So a person adds to the counts of at most this many categories per column.
LEVEL_PARTS = 1 << 12


class Elsewhere(Protocol):
    """Cells of a table whose parts are read by other processes."""

    def add_up(self, work: Callable[..., Any]) -> Any:
        """Return the sum of ``work(batches)`` over the table's parts."""


#: Some rows of a table: the cells of each column, and the divisor of each row (see
#: `RowCounts.find_divisors`), or None if each row is a record. Cells and divisors come
#: from one read, so a row never gets the divisor of another person.
SomeRows = tuple[Mapping[str, Any], IntArray | None]
Batches = Iterable[SomeRows] | Elsewhere


def find_bins(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the number of the bin of each value.

    Bins are numbered in this order: negative numbers, zero, positive numbers, nan
    (empty cells), and masked values (strings).
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
    """Return the edges of all bins of numbers, in increasing order."""
    size = np.power(2.0, LOWEST + np.arange(SIDE + 1) / 2)
    return np.concatenate([-size[::-1], size[:1], size[1:]])


def release_ranges(
    batches: Batches,
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
    persons: bool = False,
) -> dict[str, tuple[float, float]]:
    """Release a range for each column, as `release_ranges_and_texts` does."""
    return release_ranges_and_texts(
        batches, names, noise_multiplier, noise, record, persons
    )[0]


def _find_shares(divisors: IntArray | None, one: int | None) -> IntArray | None:
    """Return the number of parts that each row counts as.

    A whole record has `one` parts. A row with divisor m counts as ⌊one/m⌋ parts, so the
    parts of a person's rows add up to at most `one`. If `one` is None, each row counts
    as one record, and there are no divisors.
    """
    if (divisors is None) != (one is None):
        raise TypeError("Rows have divisors if, and only if, they belong to persons.")
    if divisors is None or one is None:
        return None
    return np.where(divisors > 0, one // np.maximum(divisors, 1), 0)


def release_ranges_and_texts(
    batches: Batches,
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
    persons: bool = False,
) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """Release a range for each column, and the set of columns that contain strings.

    A range extends from the lowest to the highest bin whose noisy count exceeds the
    level that noise alone would reach. The range is (0, 1) if no bin exceeds that
    level. If the visible bins suggest that a column has integers only, its range ends
    at integers, so a column of zeros and ones has the range (0, 1). Values outside the
    range will be clipped later. A column is taken to contain strings if the noisy count
    of its strings exceeds both that level and the noisy count of its numbers. In
    `batches`, strings are masked, and nan stands for an empty cell. `persons` says
    whether rows belong to persons, so that each batch has divisors.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the ranges and types are post-processing
    of one Gaussian release of a histogram. A record adds one to that histogram for each
    column. All rows of a person together add at most one.
    """
    one = 1 << UNIT_BITS if persons else 1
    total = _count_everywhere(
        batches, partial(count_magnitudes, names=names, persons=persons)
    )
    asked = _bound_counts(queries.big(total), Kind.RANGES, len(names), record, one)
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
        if _seem_whole(at):
            low_edge, high_edge = -_last_integer(-low_edge), _last_integer(high_edge)
        found[name] = (low_edge, high_edge if high_edge > low_edge else low_edge + 1.0)
    return found, texts


def _seem_whole(visible: IntArray) -> bool:
    """Return whether visible bins suggest that all numbers of a column are integers.

    The bin from 1 to √2 must be visible. The bins between 0 and 1 and the bin from √2
    to 2 contain no integer, so none of them may be visible. Signs do not matter.
    """
    away = np.abs(visible - SIDE)  # 0 is the bin of zero
    between = ((away > 0) & (away < ONE)) | (away == ONE + 1)
    return bool((away == ONE).any() and not between.any())


def _last_integer(edge: float) -> float:
    """Return the largest integer that is not above a bin with this upper edge.

    The edge belongs to the bin if the edge is negative, but not if it is positive.
    """
    return float(math.ceil(edge) - 1 if edge > 0 else math.floor(edge))


def count_magnitudes(
    batches: Iterable[SomeRows], names: Sequence[str], persons: bool
) -> IntArray:
    """Count the cells of each column in each bin, shape (columns, bins)."""
    n_bins = TEXT + 1
    total = np.zeros((len(names), n_bins), dtype=np.int64)
    for columns, divisors in batches:
        shares = _find_shares(divisors, 1 << UNIT_BITS if persons else None)
        for row, name in enumerate(names):
            bins = find_bins(columns[name])
            total[row] += np.bincount(bins, shares, n_bins).astype(np.int64)
    return total


def count_levels(
    batches: Iterable[SomeRows], names: Sequence[str], persons: bool
) -> Counter[tuple[str, str]]:
    """Count, for each column and each text, the cells with this text."""
    counter: Counter[tuple[str, str]] = Counter()
    for columns, divisors in batches:
        shares = _find_shares(divisors, LEVEL_PARTS if persons else None)
        for name in names:
            cells = columns[name]
            inside = (cells.codes >= 0) & (cells.codes < len(cells.values))
            own = None if shares is None else shares[inside]
            counts = np.bincount(cells.codes[inside], own, len(cells.values))
            for value, count in zip(cells.values, counts.tolist(), strict=True):
                counter[name, str(value)] += int(count)
    return counter


def _count_everywhere(batches: Batches, count: Callable[..., Any]) -> Any:
    """Return the counts of all batches. Rows in other processes are counted there."""
    elsewhere = getattr(batches, "add_up", None)
    return count(batches) if elsewhere is None else elsewhere(count)


def _bound_counts(
    value: queries.BigInts, kind: Kind, n_columns: int, record: PrivacyRecord, one: int
) -> queries.BoundedSum:
    """Return counts in `n_columns` columns, with the sensitivity of all together."""
    query = f"{kind} of {count_in_words(n_columns, 'column')}"
    total = queries.histogram(value, n_columns, record.neighbours, kind, query, one)
    return replace(total, n_columns=n_columns)


def release_shares(
    records: Records,
    names: Sequence[str],
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> dict[str, FloatArray]:
    """Release the shares of rows in `N_SHARES` equal bins of numeric columns.

    Shares whose counts are below `HIDDEN` standard deviations of the noise are set to
    zero. This can make every share of a column zero.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the shares are post-processing of one
    Gaussian release of a histogram. A record adds one to the counts of each column, or
    nothing at all if its weight is zero. All rows of a person together add at most one.
    """
    total = records.add_up(partial(count_shares, names=tuple(names)))
    kind, value = Kind.KNOT_SHARES, queries.big(total)
    asked = _bound_counts(value, kind, len(names), record, records.one)
    found = release(asked, noise_multiplier, noise, record)
    seen = np.where(found.values > HIDDEN * found.noise_std, found.values, 0.0)
    whole = np.maximum(seen.sum(axis=1, keepdims=True), 1.0)
    return dict(zip(names, seen / whole, strict=True))


def count_shares(records: Records, names: Sequence[str]) -> IntArray:
    """Count rows in `N_SHARES` equal bins of each column, shape (columns, bins).

    `Records.find_share` gives the number of parts that each row counts as. Rows of
    weight zero do not count.
    """
    groups = [group.name for group in records.layout.groups]
    total = np.zeros((len(names), N_SHARES), dtype=np.int64)
    for chunk in records.chunks:
        for row, name in enumerate(names):
            units = chunk.parts[groups.index(name)][chunk.weight > 0, 0]
            bins = units.astype(np.int64) * N_SHARES >> grid.FEATURE_BITS
            bins = np.clip(bins, 0, N_SHARES - 1)
            counts = np.bincount(bins, minlength=N_SHARES)
            total[row] += counts * records.find_share(chunk)
    return total


def compute_threshold(noise_std: float, delta: float, n_levels: int = 1) -> float:
    """Return the threshold for the noisy counts of categories.

    The noisy count of a category that only one record has exceeds the threshold with
    probability at most `delta`. If a record is a person with several rows, it may have
    up to `n_levels` such categories. It then adds a fraction c_k to the count of each,
    and these fractions add up to at most one.

    Notes
    -----
    **Guarantee.** For all noise_std and delta, P(rounded(1 + noise) > threshold) is at
    most delta. Counts are rounded to multiples of at most 2⁻¹⁰ of the noise's standard
    deviation, so the threshold is 2⁻¹⁰ standard deviations above the normal quantile.
    If a person has several categories, the probabilities of showing each of them add up
    to at most delta. The probability g(c) that a count c is shown is convex in c up to
    the threshold, so Σ g(c_k) ≤ Σ (c_k g(1) + (1 - c_k) g(0)) ≤ g(1) + n_levels g(0),
    and each of the two terms is at most delta/2.
    """
    if n_levels > 1:
        alone = compute_threshold(noise_std, delta / 2)
        return max(alone, compute_threshold(noise_std, delta / (2 * n_levels)) - 1.0)
    return 1.0 - noise_std * (float(ndtri(delta)) - 2.0**-10)


def release_levels(
    batches: Batches,
    names: Sequence[str],
    noise_multiplier: float,
    delta: float,
    noise: Randomness,
    record: PrivacyRecord,
    persons: bool = False,
) -> dict[str, list[str]]:
    """Release the categories that are frequent enough, sorted by name.

    `persons` is as in `release_ranges_and_texts`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the categories that both tables have are
    post-processing of a Gaussian release. Consider the categories that only one of the
    two tables has. The probability that any of them is shown, in any column, is at most
    `delta`. If a record may be replaced, both tables may have such a category in each
    column, and `delta` covers both. Only the noise of counts that differ between the
    tables affects privacy. Each column has at most two such counts, and one noise draw
    is charged for each. If rows belong to persons, each column has at most two such
    counts for each of the `LEVEL_PARTS` categories that a person may have.
    """
    one = LEVEL_PARTS if persons else 1
    counter = _count_everywhere(
        batches, partial(count_levels, names=names, persons=persons)
    )
    # Neither the order of rows nor where they were counted may show.
    keys = sorted(key for key, n in counter.items() if n > 0)
    value = queries.big([counter[key] for key in keys])
    asked = _bound_counts(value, Kind.CATEGORIES, len(names), record, one)
    sides = queries.count_changes(record.neighbours)
    n_draws, z = sides * len(names) * one, noise_multiplier
    record.charge(Event.of(asked, z, n_draws, delta))
    # The number of keys is private, but `release` would record it. The real record was
    # therefore charged above, and `release` gets a record that is thrown away.
    private = PrivacyRecord(epsilon=math.inf, delta=0.5, neighbours=record.neighbours)
    noisy = release(asked, z, noise, private)
    record.seeded |= noise.seeded
    part = delta / (sides * len(names))
    threshold = compute_threshold(z * asked.sensitivity, part, one)
    found: dict[str, list[str]] = {name: [] for name in names}
    for (name, key), count in zip(keys, noisy.values.tolist(), strict=True):
        if count > threshold or z == 0:
            found[name].append(key)
    return found
