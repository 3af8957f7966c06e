"""Look at a table before a fit: release what its rows fill, and derive a profile.

A schema says what a value may be. How much of that the rows fill is private. The look
reads the table once and releases noisy counts: for each number, the rows in bins of its
public range; for each category, its rows; for a numeric target, bins too. If the rows
of a column fill a small part of its range, a second release has finer bins there.
Everything else in this file is post-processing of these counts.

The counts of a *family* belong to one column. A record adds at most one to each family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from skdp.privacy import accountant, grid, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import Kind, Neighbours
from skdp.privacy.randomness import Randomness
from skdp.schema import (
    Categorical,
    Column,
    FloatArray,
    IntArray,
    Numeric,
    Pair,
    Product,
    Schema,
    count_in_words,
)
from skdp.schema.validation import fact

#: A function that releases a sum for a share of the budget.
Ask = Callable[[queries.BoundedSum, float], Released]
#: Share of the budget (of μ²) of a look. Each of its two releases has half of it.
LOOK_SHARE = 0.05
#: Number of equal bins of a range, and of the part that the finer release looks at.
BINS = 32
#: The finer release looks at a column if its rows fill at most this share of the range.
CONCENTRATED = 0.5
#: The finer release has so many bins inside that a bin of even rows has this many
#: standard deviations of noise, but at least 4 and at most `BINS` bins.
FINER_NOISE = 2.0
#: Weights of a column of categories and of a numeric target in the noise of a release,
#: relative to a number's. A larger weight means less noise.
LEVELS_WEIGHT, TARGET_WEIGHT = 0.25, 4.0
#: Share of the first release that is spent on the number of records, if it is private.
COUNT_SHARE = 0.3
#: Shares below this many standard deviations of noise may be noise alone.
HIDDEN = 3.5
#: Rows are only at the two ends of a column if all are within 1/`ENDS` of the ends.
ENDS = 16
#: The price, in nats of the width of a range, of leaving all rows outside. A range is
#: made narrower by a share s of itself for at most a share s / `PRICE` of the rows.
PRICE = 22.0
#: Standard deviations of noise that are added to the share of rows outside.
DOUBT = 0.5
#: Rows that are neither zero nor at the low end are rare below this share. Then half of
#: them must surely be inside: so many standard deviations of noise are taken from what
#: is seen there.
RARE, SURELY = 0.2, 2.0
#: Rows that are zero are seen if their share is this many standard deviations of noise,
#: and so are those that are not.
SEEN = 4.0
#: A line may be fitted to values this many widths of the filled part beyond its ends.
#: The largest of these numbers is chosen for which rows outside the filled part add at
#: most `EXCESS` times its variance. Values further away are clipped.
ROOMS, EXCESS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.0), 3.0
#: A numeric target keeps room for this many widths.
TARGET_ROOM = 2.0

#: If the noise in a share of the target's histogram is above `TARGET_LOST`, the target
#: is looked at again, by itself, so that the noise becomes `TARGET_FOUND`. Each such
#: release has at most the share `TARGET_SHARE` of the budget. Where rows are so few,
#: nothing that follows is worth as much as the target's range.
TARGET_LOST, TARGET_FOUND, TARGET_SHARE = 0.06, 0.03, 0.2

# ---- Count the cells of each column in fine bins, exactly and in one pass


#: Cells of a number that are counted apart from the bins.
APART = ("low", "high", "zero", "missing")
#: Number of fine bins of a range.
FINE = 1 << 14
#: Numbers are read as positions on a curve with this many intervals, because positions
#: are stored with more bits than numbers.
INTERVALS = 64


def describe_finely(schema: Schema) -> Schema:
    """Return the schema as which a look reads the table, without curves and pairs."""
    columns: dict[str, Column] = {}
    for name, column in schema.columns.items():
        if isinstance(column, Numeric) and column.bins is None:
            column = replace(
                column, knots=INTERVALS + 1, indicator=True, missing=None, fill=None
            )
        if not isinstance(column, Pair):
            columns[name] = column
    return replace(schema, columns=columns)


@dataclass(frozen=True, kw_only=True)
class Family:
    """The counts of one column: fine bins of a number, or categories.

    A number has four further counts (`APART`) of cells that are in none of the bins:
    those at the low end of the range or below, those at the high end or above, those
    that are exactly zero, and missing ones. A column of categories has one further
    count, of the missing and unknown cells.

    Attributes
    ----------
    name : str
        The name of the column. It is empty for the target.
    column : Numeric or Categorical
        Its description in the user's schema.
    """

    name: str
    column: Numeric | Categorical

    @property
    def is_number(self) -> bool:
        """Whether the counts are those of a number in bins of its range."""
        return isinstance(self.column, Numeric) and self.column.bins is None

    @property
    def size(self) -> int:
        """How many counts there are."""
        return FINE + len(APART) if self.is_number else self.column.width + 1

    def count(self, stored: IntArray) -> IntArray:
        """Count the rows of a chunk, given as positions, codes or a target's units."""
        if not self.is_number:
            return np.bincount(np.ravel(stored), minlength=self.size).astype(np.int64)
        units = np.ravel(stored).astype(np.int64)
        steps = grid.FEATURE_ONE * (INTERVALS if self.name else 1)
        bins = np.minimum(units * FINE // steps, FINE - 1)
        bins[units == 0] = FINE + APART.index("low")
        bins[units == steps] = FINE + APART.index("high")
        zero = find_zero(self.column)
        if zero is not None:
            there = math.floor(zero * steps) if self.name else round(zero * steps)
            bins[units == there] = FINE + APART.index("zero")
        bins[units > steps] = FINE + APART.index("missing")
        return np.bincount(bins, minlength=self.size).astype(np.int64)


def list_families(schema: Schema) -> list[Family]:
    """Return the families of a schema, and last that of its target."""
    found = [
        Family(name=name, column=column)
        for name, column in schema.columns.items()
        if isinstance(column, (Numeric, Categorical))
    ]
    return [*found, Family(name="", column=schema.target_column)]


def count_families(records: Records, families: Sequence[Family]) -> IntArray:
    """Return all counts of all families, and last the number of records.

    `Records.find_share` gives the number of parts that each row counts as. A row of
    weight zero, such as one without a known class, is in no family.
    """
    places = {group.name: at for at, group in enumerate(records.layout.groups)}
    total = np.zeros(sum(one.size for one in families) + 1, np.int64)
    for chunk in records.chunks:
        kept, share, at = chunk.weight > 0, records.find_share(chunk), 0
        for one in families:  # in place, because wide tables have many counts
            stored = chunk.parts[places[one.name]] if one.name else chunk.target
            total[at : at + one.size] += one.count(stored[kept]) * share
            at += one.size
        total[-1] += len(chunk.target) * share
    return total


# ---- Release the counts, with noise that covers all columns together


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """Noisy counts of a number in bins of its public range, divided by the rows.

    Attributes
    ----------
    edges : int (bins + 1,)
        The edges of the bins on the scaled range, in units of 1 / `FINE`.
    values : float64 (bins + 4,)
        The noisy share of all rows in each bin, and in each of `APART`.
    error : float
        The standard deviation of the noise in one share.
    """

    edges: IntArray
    values: FloatArray
    error: float
    #: The edges on the scaled range [0, 1].
    scaled: FloatArray = fact()
    #: The noisy shares of the bins. Cells at an end are in the first or last of them.
    noisy: FloatArray = fact()
    #: The same shares without most of the noise: none is negative.
    shares: FloatArray = fact()
    #: The estimated shares of the rows that are exactly zero and that are missing.
    zeros: float = fact()
    missing: float = fact()

    def __post_init__(self) -> None:
        n = len(self.edges) - 1
        clean = project(self.values)
        noisy, shares = self.values[:n].copy(), clean[:n].copy()
        for part, whole in ((noisy, self.values), (shares, clean)):
            part[0] += whole[n]
            part[-1] += whole[n + 1]
        vars(self).update(
            scaled=self.edges / FINE,
            noisy=noisy,
            shares=shares,
            zeros=float(clean[n + 2]),
            missing=float(clean[n + 3]),
        )

    def get(self, what: str) -> float:
        """Return the noisy share of the rows of one of `APART`."""
        return float(self.values[len(self.edges) - 1 + APART.index(what)])

    def find_visible(self) -> FloatArray:
        """Return the shares, with 0 where a bin's count may be noise alone."""
        return np.where(self.noisy > HIDDEN * self.error, self.shares, 0.0)

    def spread(self, edges: FloatArray, visible: bool = False) -> FloatArray:
        """Return the shares of rows between other edges, as if bins were even.

        If `visible`, bins whose counts may be noise alone count as empty.
        """
        shares = self.find_visible() if visible else self.shares
        heights = np.append(0.0, np.cumsum(shares))
        return np.diff(np.interp(edges, self.scaled, heights))

    def find_quantile(self, level: float, zero: float | None) -> float:
        """Return a quantile of the known cells on the scaled range.

        `zero` is where the cells that are zero lie, if the range contains zero.
        """
        edges, heights = self.scaled, np.append(0.0, np.cumsum(self.shares))
        if zero is not None and self.zeros > 0:
            before = float(np.interp(zero, edges, heights))
            at = int(np.searchsorted(edges, zero))
            edges = np.insert(edges, at, [zero, zero])
            heights = np.concatenate(
                [heights[:at], [before, before + self.zeros], heights[at:] + self.zeros]
            )
        return float(np.interp(level * heights[-1], heights, edges))


def release_counts(
    exact: Sequence[IntArray],
    weights: Sequence[float],
    kind: Kind,
    query: str,
    one: int,
    neighbours: Neighbours,
    ask: Ask,
    share: float = LOOK_SHARE / 2,
) -> list[tuple[FloatArray, float]]:
    """Release several families of counts at once, for a share of the budget.

    Return the noisy counts of each family, and the standard deviation of their noise.
    The noise of a family is proportional to 1/√w, where w is its weight.
    """
    asked = queries.histograms(exact, weights, neighbours, kind, query, one)
    released = ask(asked, share)
    ends = np.cumsum([len(part) for part in exact])[:-1]
    values = np.split(released.values, ends)
    stds = np.split(released.noise_std, ends)
    return [(own, float(std[0])) for own, std in zip(values, stds, strict=True)]


def find_zero(column: Column) -> float | None:
    """Return where the number zero lies on a column's scaled range, or None."""
    if not isinstance(column, Numeric) or not column.low <= 0 <= column.high:
        return None
    return float(replace(column, fill=None).rescale(np.zeros(1))[0][0])


def project(noisy: FloatArray, total: float = 1.0) -> FloatArray:
    """Return the nearest nonnegative numbers with a given sum.

    Noise in empty bins is removed by this, and no bin needs a threshold.
    """
    falling = np.sort(noisy)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(noisy - excess[last], 0.0))


# ---- Choose the part of a range that the rows fill


def choose_edges(found: Histogram, zero: float | None) -> tuple[int, int]:
    """Return the indices of the two edges between which a number is used.

    It minimises log(width) + `PRICE` · (share of rows outside)/√s. Here s is the share
    of rows that are neither zero nor missing. Rows that are exactly zero say little
    about the width that the others fill, but zero is inside if there are such rows. The
    same holds for rows that are exactly at the low end, such as the ones in a column of
    ones and twos. If the others are rare, half of them must be inside: a value that is
    far from a frequent one would otherwise be clipped to it, and the effect of the
    column would be that of another one. The more noise there is, the more rows are
    assumed to be outside. `zero` is where zero lies on the scaled range, or None.
    """
    edges, shares = found.scaled, found.noisy
    heights = np.append(0.0, np.cumsum(shares))
    whole = float(found.shares.sum())
    at_low = found.get("low") * (found.get("low") > SEEN * found.error)
    others = whole - at_low
    if others <= SEEN * found.error:  # noise hides all rows that are elsewhere
        return 0, len(shares)
    low, high = np.triu_indices(len(edges), 1)
    inside = heights[high] - heights[low]
    n_inside = high - low
    n_outside = len(shares) - n_inside
    # Two independent estimates of the share outside, of which the better counts more:
    # what is missing inside, and what is seen outside.
    trust = n_inside / len(shares)
    outside = (1.0 - trust) * (whole - inside) + trust * (heights[-1] - inside)
    noise = found.error * np.sqrt(n_outside * trust)
    seen = others - outside - SURELY * noise
    outside = np.maximum(outside, 0.0) + DOUBT * noise
    outside = np.where(n_outside > 0, outside, 0.0)
    cost = np.log(edges[high] - edges[low]) + PRICE * outside / math.sqrt(whole)
    if zero is not None and found.zeros > SEEN * found.error:
        cost[(edges[low] > zero) | (edges[high] < zero)] = math.inf
    if others < RARE:
        cost[(seen < others / 2.0) & (n_outside > 0)] = math.inf
    best = int(np.argmin(cost))
    return int(low[best]), int(high[best])


def choose_fill(column: Numeric, found: Histogram) -> tuple[float, float]:
    """Return the part of a range in which a number is used, in the user's units.

    Its ends are the roundest numbers in the first and the last bin, so the numbers 0
    and 1 have the range from 0 to 1. If these are (nearly) the same number, its ends
    are those of the bins.
    """
    first, last = choose_edges(found, find_zero(column))
    edges = np.clip(column.unscale(found.scaled), column.low, column.high)
    edges[0], edges[-1] = column.low, column.high
    whole = float(edges[first]), float(edges[last])
    low, high = whole
    if last - first < 2:
        return whole
    if first > 0:
        low = round_inside(low, float(edges[first + 1]), math.ceil)
    if last < len(edges) - 1:
        high = round_inside(float(edges[last - 1]), high, math.floor)
    return (low, high) if high - low > (whole[1] - whole[0]) / 4 else whole


def round_inside(low: float, high: float, towards: Callable[[float], int]) -> float:
    """Return the number in [low, high] with the fewest digits.

    Of several, return the lowest if `towards` is `math.ceil`, and else the highest.
    """
    if low <= 0 <= high:
        return 0.0
    power = math.floor(math.log10(max(abs(low), abs(high))))
    for digits in range(17):
        unit = 10.0 ** (power - digits)
        found = towards((low if towards is math.ceil else high) / unit) * unit
        if low <= found <= high:
            return float(f"{found:.{digits + 1}g}")
    return low if towards is math.ceil else high


def choose_room(found: Histogram, low: float, high: float) -> float:
    """Return how far beyond [low, high] a line is fitted, in units of its width.

    The Gram matrix is computed from rows clipped to [low, high], but gradients are not.
    If the rows outside had too large a part in the variance, steps would be too long.
    """
    middles = (found.scaled[:-1] + found.scaled[1:]) / 2
    width = high - low
    clipped = np.clip(middles, low, high)
    mean = float(found.shares @ clipped) / max(float(found.shares.sum()), 1e-9)
    variance = float(found.shares @ (clipped - mean) ** 2)
    far = np.where(middles < low, found.scaled[:-1], found.scaled[1:])
    outside = (middles < low) | (middles > high)
    for room in ROOMS:
        ends = np.clip(far, low - room * width, high + room * width)
        added = np.where(outside, (ends - mean) ** 2 - (clipped - mean) ** 2, 0.0)
        noise = DOUBT * found.error * float(np.linalg.norm(added))
        if float(found.shares @ added) + noise <= EXCESS * variance:
            break
    return room


def choose_finer_edges(low: float, high: float, error: float) -> IntArray:
    """Return the edges of the finer bins: even inside, and wider and wider outside.

    The larger the noise in a share is, the fewer bins there are.
    """
    start, stop = round(low * FINE), round(high * FINE)
    bins = min(max(int(1.0 / max(FINER_NOISE * error, 1e-9)), 4), BINS)
    width = max((stop - start) // bins, 1)
    inner = [*range(start, stop, width), stop]
    steps = [max((stop - start) >> 2, 1) << k for k in range(20)]
    below = np.maximum(start - np.cumsum(steps), 0)
    above = np.minimum(stop + np.cumsum(steps), FINE)
    return np.unique([0, *below, *inner, *above, FINE])


# ---- Look at a table


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelShares:
    """Noisy counts of categories, divided by the rows.

    Attributes
    ----------
    values : float64 (categories + 1,)
        The noisy share of rows of each category, and last of all other cells.
    error : float
        The standard deviation of the noise in one share.
    """

    values: FloatArray
    error: float
    #: The same shares without most of the noise.
    shares: FloatArray = fact()

    def __post_init__(self) -> None:
        vars(self).update(shares=project(self.values))


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """What a look found: the number of records, and what each column's rows fill.

    Attributes
    ----------
    limits : Schema
        The schema whose ranges were looked at.
    n_rows : int
        The released or public number of records.
    numbers : mapping of str to Histogram
        The histogram of each number, by the name of the column. The name of the target
        is empty.
    levels : mapping of str to LevelShares
        The shares of the categories, by the name of the column.
    """

    limits: Schema
    n_rows: int
    numbers: Mapping[str, Histogram]
    levels: Mapping[str, LevelShares]

    def __repr__(self) -> str:
        columns = count_in_words(len(self.limits.columns), "column")
        return f"<Profile: {columns}, about {self.n_rows:,} rows>"

    def __str__(self) -> str:
        rows = [
            ("column", "limits", "rows fill", "zero", "missing"),
            *self._list_rows(),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            "  ".join(
                f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def _list_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield what is known of each column. Shares carry the error of their noise."""
        described = [*self.limits.columns.items(), ("", self.limits.target_column)]
        for name, column in described:
            own = name or f"{self.limits.target_name or 'target'} (target)"
            if name in self.numbers and isinstance(column, Numeric):
                found = self.numbers[name]
                low, high = choose_fill(column, found)
                shares = (found.get("zero"), found.get("missing"))
                yield (
                    own,
                    f"{column.low:g} to {column.high:g}",
                    f"{low:g} to {high:g}",
                    *(_write_share(share, found.error) for share in shares),
                )
            elif name in self.levels and isinstance(column, Categorical):
                levels = self.levels[name]
                seen = levels.values[:-1] > HIDDEN * levels.error
                empty = count_in_words(int((~seen).sum()), "level")
                if (~seen).sum() == 1:
                    empty = str(column.levels[int(np.argmin(seen))])
                yield (
                    own,
                    count_in_words(column.width, "level"),
                    "all" if seen.all() else f"{empty} (nearly) without rows",
                    "",
                    _write_share(float(levels.values[-1]), levels.error),
                )


def _write_share(share: float, error: float) -> str:
    """Write a noisy share, or that noise hides it."""
    if share <= HIDDEN * error:
        return f"< {max(2 * HIDDEN * error, 0.0005):.1%}"
    return f"{share:.1%} ± {2 * error:.1%}"


def release_look(
    records: Records,
    limits: Schema,
    record: PrivacyRecord,
    noise: Randomness,
    n_rows: int | None,
) -> Profile:
    """Look at a table that was read as `describe_finely` describes it.

    This spends at most `LOOK_SHARE` of the budget.

    Parameters
    ----------
    records : Records
        The rows.
    limits : Schema
        The user's schema.
    record, noise : PrivacyRecord and Randomness
        What is charged, and the source of noise.
    n_rows : int, optional
        The number of records, or None if it is private. It is then released too.
    """

    def release_share(total: queries.BoundedSum, share: float) -> Released:
        z = accountant.noise_multiplier(math.sqrt(record.budget * share), 1)
        return release(total, z, noise, record)

    return make_profile(records, limits, record.neighbours, n_rows, release_share)


def make_profile(
    records: Records,
    limits: Schema,
    neighbours: Neighbours,
    n_rows: int | None,
    ask: Ask,
) -> Profile:
    """Look at a table as `release_look` does.

    `ask` releases a sum for a share of the budget. An audit passes a function that
    returns what an earlier look released.
    """
    families = list_families(limits)
    counted = records.add_up(partial(count_families, families=tuple(families)))
    *exact, rows = np.split(counted, np.cumsum([one.size for one in families]))
    even = np.arange(0, FINE + 1, FINE // BINS)
    asked = [
        _merge(part, even) if one.is_number else part
        for one, part in zip(families, exact, strict=True)
    ]
    weights = weigh_families(families, counted=n_rows is None)
    names = count_in_words(len(limits.columns), "column")
    query = f"histograms of {names} and of the target"
    if n_rows is None:
        query = f"number of {records.layout.counted}, {query}"
    given = Kind.LOOK, query, records.one, neighbours, ask
    first = release_counts(asked + [rows] * (n_rows is None), weights, *given)
    counted = (float(n_rows or 0), 0.0)  # how many records, and its standard deviation
    if n_rows is None:
        values, std = first.pop()
        counted = float(values[0]), std
        n_rows = max(1, round(counted[0]))
    n = _estimate_counted(first, n_rows)
    numbers, levels, again = {}, {}, []
    for one, part, weight, (values, std) in zip(
        families, exact, weights, first, strict=False
    ):
        if not one.is_number:
            levels[one.name] = LevelShares(values=values / n, error=std / n)
            continue
        found = Histogram(edges=even, values=values / n, error=std / n)
        numbers[one.name] = found
        low, high = found.scaled[[*choose_edges(found, find_zero(one.column))]]
        if high - low <= CONCENTRATED:
            edges = choose_finer_edges(low, high, found.error)
            again.append((one.name, edges, _merge(part, edges), weight))
    if families[-1].is_number and numbers[""].error > TARGET_LOST:
        again = [one for one in again if one[0]]
        share = LOOK_SHARE / 2 * weights[len(families) - 1] / math.fsum(weights)
        share = min(share * (numbers[""].error / TARGET_FOUND) ** 2, TARGET_SHARE)
        asking = (records.one, neighbours, ask)
        numbers[""], n_rows = _look_at_target(
            families[-1],
            exact[-1],
            rows,
            counted,
            records.layout.counted,
            asking,
            share,
        )
    if again:
        own, finer, parts, heavy = zip(*again, strict=True)
        query = f"finer histograms of {count_in_words(len(again), 'column')}"
        given = Kind.FINER_LOOK, query, records.one, neighbours, ask
        second = release_counts(parts, heavy, *given)
        for name, edges, (values, std) in zip(own, finer, second, strict=True):
            numbers[name] = Histogram(edges=edges, values=values / n, error=std / n)
    return Profile(limits=limits, n_rows=n_rows, numbers=numbers, levels=levels)


def _look_at_target(
    target: Family,
    exact: IntArray,
    rows: IntArray,
    counted: tuple[float, float],
    what: str,
    asked: tuple[int, Neighbours, Ask],
    share: float,
) -> tuple[Histogram, int]:
    """Look at the target by itself, and again where its rows are.

    Each release has a `share` of the budget. If the number of records is private, it is
    released again too, because shares that do not add up to one mislead. `counted` is
    the number of records (rows or persons: `what`) so far and the standard deviation of
    its noise, which is 0 if the number is public. Return the last histogram, and the
    best number.
    """
    edges = np.arange(0, FINE + 1, FINE // BINS)
    private = counted[1] > 0
    weights = [1.0] + [COUNT_SHARE / (1 - COUNT_SHARE)] * private
    query = f"number of {what}, " * private + "histogram of the target"
    for _ in range(2):
        parts = [_merge(exact, edges)] + [rows] * private
        (values, std), *again = release_counts(
            parts, weights, Kind.TARGET_LOOK, query, *asked, share=share
        )
        for (found,), own_std in again:
            counted = _weigh_estimates(counted, (float(found), own_std))
        n = max(1.0, counted[0])
        seen = Histogram(edges=edges, values=values / n, error=std / n)
        low, high = seen.scaled[[*choose_edges(seen, find_zero(target.column))]]
        if high - low > CONCENTRATED:
            break
        edges = choose_finer_edges(low, high, seen.error)
    return seen, max(1, round(counted[0]))


def _weigh_estimates(
    first: tuple[float, float], second: tuple[float, float]
) -> tuple[float, float]:
    """Return the best combination of two estimates, each with its deviation."""
    if not first[1] or not second[1]:  # without noise
        return second
    one, other = 1.0 / first[1] ** 2, 1.0 / second[1] ** 2
    value = (one * first[0] + other * second[0]) / (one + other)
    return value, 1.0 / math.sqrt(one + other)


def weigh_families(families: Sequence[Family], counted: bool) -> list[float]:
    """Return the weight of each family, and that of the number of rows if `counted`."""
    number = {"": TARGET_WEIGHT}
    weights = [
        number.get(one.name, 1.0) if one.is_number else LEVELS_WEIGHT
        for one in families
    ]
    total = math.fsum(weights)
    return weights + [COUNT_SHARE / (1 - COUNT_SHARE) * total] * counted


def _merge(fine: IntArray, edges: IntArray) -> IntArray:
    """Merge fine bins into those between the edges, and keep the other counts."""
    merged = np.add.reduceat(fine[:FINE], edges[:-1])
    return np.append(merged, fine[FINE:])


def _estimate_counted(
    released: Sequence[tuple[FloatArray, float]], n_rows: int
) -> float:
    """Return how many records are in each family, in which weights of zero are not.

    It is the number of records, unless the released counts surely add up to less.
    """
    sums = np.array([values.sum() for values, _ in released])
    variances = np.array([len(values) * std**2 for values, std in released])
    if not variances.all():  # without noise
        return max(1.0, float(sums[0]))
    trust = 1.0 / variances
    found, std = float(sums @ trust / trust.sum()), 1.0 / math.sqrt(trust.sum())
    return max(1.0, found) if found < n_rows - SEEN * std else float(n_rows)


# ---- Use what was found: ranges, values for missing cells, and places of knots


def can_be_narrowed(schema: Schema) -> bool:
    """Return whether a schema has a range that a look could narrow."""
    columns = [*schema.columns.values(), schema.target_column]
    numbers = [one for one in columns if isinstance(one, Numeric)]
    return any(n.bins is None and not isinstance(n.knots, tuple) for n in numbers)


def use_ranges(profile: Profile) -> Schema:
    """Return the schema with each number in the range that the rows fill.

    A straight line keeps room outside (`Numeric.fill`), because clipping the tail of a
    skewed column would bias its effect. Curves, and numbers with an indicator, get the
    filled part as their range. Bins and listed knots are kept as they are.
    """
    schema = profile.limits
    looked = profile.numbers.keys() - set(schema.lines.values())  # curves keep ranges
    columns = {
        name: _narrow(column, profile.numbers[name])
        if isinstance(column, Numeric) and name in looked
        else column
        for name, column in schema.columns.items()
    }
    shares = {name: found.shares for name, found in profile.levels.items()}
    columns = {
        name: column.recentre(columns, shares)
        if isinstance(column, Product)
        else column
        for name, column in columns.items()
    }
    target = schema.target_column
    if isinstance(target, Numeric):
        target = _narrow_target(target, profile.numbers[""])
    named = (schema.target_name, target) if schema.target_name else target
    return replace(schema, columns=columns, target=named)


def _narrow(column: Numeric, found: Histogram) -> Numeric:
    if isinstance(column.knots, tuple):
        return column
    low, high = choose_fill(column, found)
    at = column.rescale(np.array([low, high]))[0].tolist()
    logarithmic = column.scale == "log"  # which starts at the lower end of the range
    if column.missing is not None:
        default = min(max(column.missing, low), high)
    else:
        middle = min(max(found.find_quantile(0.5, find_zero(column)), at[0]), at[1])
        default = float(column.unscale(np.array([middle]))[0])
        default = min(max(default, low), high)
    missing = None if column.indicator else default
    if column.knots is not None or column.indicator:
        start = float(column.low) if logarithmic else low
        return replace(column, low=start, high=high, missing=missing)
    width = high - low
    start = float(column.low)
    stop = float(column.high)
    if not logarithmic:
        room = choose_room(found, *at) * width
        start, stop = max(start, low - room), min(stop, high + room)
    return replace(column, low=start, high=stop, missing=missing, fill=(low, high))


def _narrow_target(target: Numeric, found: Histogram) -> Numeric:
    """Return a target's range with room around the filled part.

    A range that starts at zero still does: it is that of counts.
    """
    low, high = choose_fill(target, found)
    width = TARGET_ROOM * (high - low)
    start, stop = float(target.low), float(target.high)
    if start != 0:
        start = max(start, low - width)
    return replace(target, low=start, high=min(stop, high + width), missing=None)


def find_knot_shares(
    profile: Profile, used: Schema, n_bins: int
) -> dict[str, FloatArray]:
    """Return the shares of rows in equal bins of each range that is used."""
    shares = {}
    for name, found in profile.numbers.items():
        column, limits = used.columns.get(name), profile.limits.columns.get(name)
        if isinstance(column, Numeric) and isinstance(limits, Numeric):
            column = column.narrow()
            values = column.unscale(np.linspace(0.0, 1.0, n_bins + 1))
            edges = limits.rescale(values)[0]
            edges[0], edges[-1] = 0.0, 1.0  # values outside are clipped to the ends
            own = found.spread(edges, visible=True)
            zero = find_zero(column)
            if zero is not None:
                own[min(int(zero * n_bins), n_bins - 1)] += found.zeros
            ends = own[: n_bins // ENDS].sum() + own[-(n_bins // ENDS) :].sum()
            if ends >= (1.0 - 1e-9) * own.sum():  # as in a column of zeros and ones
                own = np.zeros(n_bins)
                own[[0, -1]] = 1.0
            shares[name] = own / max(float(own.sum()), 1e-9)
    return shares
