"""Choose the knots of curves and the pairs of columns.

A curve is a function of one numeric column that is linear between its knots. A pair is
a surface over two columns. `choose_curves` makes all these choices. They depend on the
schema, the public or released number of rows, the budget, and released histograms. So
they cost no privacy beyond these releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np

from skdp.descent.rule import TOO_FEW
from skdp.models.losses import Loss
from skdp.privacy.queries import Neighbours, count_changes
from skdp.schema import (
    Categorical,
    Column,
    Factor,
    FloatArray,
    Numeric,
    Pair,
    Product,
    Schema,
    check,
    count_in_words,
)

#: Ratio of the number of intervals of a curve to (nν/(R²√p))^(1/2), for numeric targets
#: and for classes. `choose_n_knots` explains the formula.
NUMBER_INTERVALS, CLASS_INTERVALS = 0.9, 1.27
#: The largest number of intervals, whatever the number of rows.
MOST_INTERVALS = 32
#: Along each numeric column of a pair: the ratio of the number of intervals to
#: (nν/R²)^(1/4), which `choose_n_pair_knots` explains, and the largest number.
PAIR_INTERVALS, MOST_PAIR_INTERVALS = 0.8, 8
#: With pairs="auto", pairs are added if nν/R² (see `choose_n_knots`) is at least this
#: large, for numeric targets, and for classes and counts. A class carries less
#: information than a number, and most counts are zero or one.
NUMBER_PAIRS, CLASS_PAIRS = 42.0, 160.0
#: With pairs="auto", pairs are not added if the model would then have more coordinates
#: than this.
MOST_COORDINATES = 1500
#: Largest share of knots that follow the released histogram.
FOLLOW = 0.5


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A schema in which all knots are fixed, and the reasons for the choices."""

    schema: Schema
    reasons: tuple[str, ...]


def choose_curves(
    schema: Schema,
    *,
    loss: Loss,
    n_rows: float,
    mu: float,
    neighbours: Neighbours,
    knots: Any = None,
    pairs: Any = None,
    shares: Mapping[str, FloatArray] | None = None,
    lines: bool = False,
) -> Choice:
    """Return the schema with curves and pairs, and the reasons for the choices.

    Parameters
    ----------
    schema : Schema
        The columns. Bins and given knots are kept.
    loss : Loss
        The loss.
    n_rows, mu, neighbours
        The public or released number of rows, the Gaussian-DP parameter of the
        remaining budget, and which tables are neighbours.
    knots : int, "auto" or None
        The number of knots of each numeric column whose description has neither knots
        nor bins. With "auto", it is chosen by `choose_n_knots`. With None, these
        columns get straight lines.
    pairs : "auto", "all", list of pairs of names, or None
        The pairs to add: as many as the rows support, all pairs of columns, the listed
        pairs, or none.
    shares : mapping of names to arrays, optional
        Released shares of rows in equal bins of a column's scaled range. The knots of
        each listed column are placed by these shares (`place_knots`).
    lines : bool
        Whether a curve whose knots are chosen here gets a straight line beside it. It
        pays in a matrix geometry.
    """
    check_choices(knots, pairs)
    nu = mu / count_changes(neighbours)
    rows = n_rows * min(nu, 1.0)  # with little noise, sampling limits the knots
    columns = dict(schema.columns)
    names = find_auto_columns(schema, knots)
    # Measured without curves, which would lower the signal. The number of knots would
    # then depend on itself.
    straight = draw_lines(schema)
    signal = rows / _bound_rows(straight) / math.sqrt(straight.width + 1)
    ratio = CLASS_INTERVALS if loss.n_classes else NUMBER_INTERVALS
    chosen = choose_n_knots(signal, rows, ratio)
    bent, beside = [], lines and schema.row_norm is None
    for name, column in columns.items():
        if name in schema.lines.values():
            continue
        if isinstance(column, Numeric) and column.bins is None:
            if beside and column.knots in (None, "auto"):
                bent.append(name)
            asked = knots if column.knots is None else column.knots
            if asked == "auto":
                asked = chosen
                if chosen is not None and shares:
                    asked = place_knots(column.narrow(), shares[name], chosen)
            used = column if asked is None else column.narrow()
            columns[name] = replace(used, knots=asked)
    reasons = []
    if names:
        carried = f"{rows:,.0f} rows per unit of noise"
        reasons.append(
            f"curves: {chosen} knots per numeric column, based on {carried}"
            if chosen is not None
            else f"curves: none, because {carried} only support straight lines"
        )
    few = loss.n_classes > 0 or loss.target_law == "poisson"
    least = CLASS_PAIRS if few else NUMBER_PAIRS
    for added in _list_families(columns, pairs):
        squared = 1 + len(columns) + len(added) * Pair("a", "b").scale ** 2
        size = choose_n_pair_knots(rows / squared)
        joined = _join_pairs(columns, added, size)
        if pairs != "auto":
            reason = f"pairs: {len(added)}, with {size} knots per numeric column"
            break
        # Coarser surfaces for all pairs are better than finer ones for some of them:
        # which pairs matter cannot be asked of the records for free.
        while size > 3 and Schema(joined).width >= MOST_COORDINATES:
            size -= 1
            joined = _join_pairs(columns, added, size)
        reason, fits = _judge_pairs(
            added, Schema(joined).width + 1, rows / squared, least, size
        )
        if fits:
            break
        joined = _join_pairs(columns, [], size)
    if pairs is not None:
        reasons.append(reason)
    columns = _add_lines(joined, bent)
    return Choice(schema=replace(schema, columns=columns), reasons=tuple(reasons))


def draw_lines(schema: Schema) -> Schema:
    """Return the schema without curves and pairs, for a first pass over the table."""
    columns = {
        name: replace(column, knots=None) if isinstance(column, Numeric) else column
        for name, column in schema.columns.items()
        if not isinstance(column, Pair)
    }
    return replace(schema, columns=columns)


def _add_lines(
    columns: Mapping[str, Column], names: Sequence[str]
) -> dict[str, Column]:
    """Return the columns and, for each listed curve, a column that is its number.

    A curve can be a straight line without it. But most columns act mostly along a
    line, and a coordinate that is measured from the middle of its range has half the
    norm of a curve, so noise hides it less. Both say the same about the line, which
    lowers the noise further (`matrix.keep_relations`). A number with an indicator of
    missing cells stays as it is.
    """
    made = dict(columns)
    for name in names:
        column = made[name]
        assert isinstance(column, Numeric)
        curved = (column.n_knots or 0) > 2 and not isinstance(column, Product)
        if curved and not column.indicator:
            line = f"{name} (line)"
            while line in made:
                line += "_"
            made[line] = Product.of(Factor(name, replace(column, knots=None)))
    return made


def find_auto_columns(schema: Schema, knots: Any) -> list[str]:
    """Return the names of the numeric columns whose knots are to be chosen."""
    return [
        name
        for name, column in schema.columns.items()
        if isinstance(column, Numeric)
        and column.bins is None
        and name not in schema.lines.values()
        and (knots if column.knots is None else column.knots) == "auto"
    ]


def check_choices(knots: Any, pairs: Any) -> None:
    """Raise if `knots` or `pairs` is invalid for every table."""
    Numeric(0, 1, knots=knots)  # refuses a wrong number
    named = isinstance(pairs, Sequence) and all(
        isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        for pair in pairs
    )
    check(
        pairs is None or pairs in ("auto", "all") or named,
        "pairs must be 'auto', 'all', None or a list of pairs of column names, got "
        f"{pairs!r}.",
    )


def choose_n_knots(signal: float, rows: float, ratio: float) -> int | None:
    """Return the number of knots of a curve, or None for a line.

    The number of intervals is `ratio` times the root of `signal`, which is nν/(R²√p).
    Here nν is the number of rows divided by the noise of a sum, R² bounds the squared
    norm of a centred row, and p is the number of coordinates. R² and p are computed
    without curves.

    The noise of the Gram matrix has an operator norm of about R²√p/(nν). In a curve
    with k intervals, the noise hides the directions of small variance. This costs about
    kR²√p/(nν). A piecewise linear function with k intervals misses a jump, or a part
    that is steeper than 1/k, by about 1/k. The sum of these two errors is smallest if k
    is proportional to (nν/(R²√p))^(1/2).

    `rows` is nν. There are at most `rows`/`TOO_FEW` intervals, because an interval with
    fewer rows per unit of noise than `TOO_FEW` supports only a constant.
    """
    intervals = round(min(ratio * math.sqrt(signal), MOST_INTERVALS))
    intervals = min(intervals, math.floor(rows / TOO_FEW))
    return 1 + intervals if intervals > 1 else None


def choose_n_pair_knots(signal: float) -> int:
    """Return the number of knots along each numeric column of a pair.

    `signal` is nν/R², in the notation of `choose_n_knots`. A surface with k intervals
    on each side has k² directions. By the argument given there, k is therefore
    proportional to (nν/R²)^(1/4).
    """
    intervals = PAIR_INTERVALS * math.sqrt(math.sqrt(signal))
    return 1 + round(min(max(intervals, 2.0), MOST_PAIR_INTERVALS))


def place_knots(column: Numeric, shares: FloatArray, n_knots: int) -> tuple[float, ...]:
    """Return knots that are dense where the rows are, in the user's units.

    The knots are quantiles of a mixture. At most half of the mixture follows the
    `shares` of the rows in equal bins. In this half, a bin has at most the weight of
    one interval, so a single value that many rows share does not attract several knots.
    The rest of the mixture is spread evenly over the scaled range, so no two knots are
    equal. If rows are found at both ends of the range and nowhere else, the knots are
    these two ends.
    """
    # A column of zeros and ones that is described as a number. Knots between its two
    # values would have noise and no rows.
    if np.flatnonzero(shares).tolist() == [0, len(shares) - 1]:
        return (float(column.low), float(column.high))
    n_bins, total = len(shares), max(float(shares.sum()), 1e-9)
    dense = np.minimum(FOLLOW * shares / total, 1.0 / (n_knots - 1))
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    heights = np.append(0.0, np.cumsum(dense + (1.0 - dense.sum()) / n_bins))
    inner = np.interp(np.arange(1, n_knots - 1) / (n_knots - 1), heights, edges)
    placed = column.unscale(inner).tolist()
    return (float(column.low), *placed, float(column.high))


def _bound_rows(schema: Schema) -> float:
    """Return an approximate bound R² on the squared norm of a centred row.

    The intercept is included.
    """
    lines = sum(
        isinstance(c, Numeric) and c.kind == "dense" and not c.indicator
        for c in schema.columns.values()
    )
    return 1.0 + len(schema.columns) - 0.75 * lines  # a centred number is at most 1/2


def _list_families(
    columns: Mapping[str, Column], pairs: Any
) -> list[list[tuple[str, str]]]:
    """Return the sets of pairs that may be added, with the preferred set first."""
    known = {
        frozenset((c.first, c.second)) for c in columns.values() if isinstance(c, Pair)
    }
    curves = [n for n, c in columns.items() if isinstance(c, Numeric) and c.n_knots]
    levels = [n for n, c in columns.items() if isinstance(c, Categorical)]
    numbers = list(combinations(curves, 2))
    if pairs is None:
        families: list[Any] = [[]]
    elif pairs == "auto":
        families = [[*numbers, *product(curves, levels)], numbers]
    elif pairs == "all":
        both = [n for n, c in columns.items() if isinstance(c, (Numeric, Categorical))]
        families = [list(combinations(both, 2))]
    else:
        families = [[(str(first), str(second)) for first, second in pairs]]
    return [
        [pair for pair in family if frozenset(pair) not in known] for family in families
    ]


def _join_pairs(
    columns: Mapping[str, Column], added: list[tuple[str, str]], size: int
) -> dict[str, Column]:
    """Return the columns and the added pairs.

    Every pair whose knots are not fixed gets `size` knots per numeric column.
    """
    made = {
        name: replace(column, knots=size)
        if isinstance(column, Pair) and column.knots == "auto"
        else column
        for name, column in columns.items()
    }
    for first, second in added:
        name = f"{first}:{second}"
        while name in made:
            name += "_"
        made[name] = Pair(first, second, knots=size)
    return made


def _judge_pairs(
    added: list[tuple[str, str]], count: int, signal: float, least: float, size: int
) -> tuple[str, bool]:
    """Return why these pairs are added or not, in words, and whether they are added."""
    if not added:
        return "pairs: none, because there are no two columns to join", False
    if signal < least:
        return (
            f"pairs: none, because the signal nν/R² would be only {signal:,.0f}, and "
            f"pairs require {least:,.0f}"
        ), False
    if count > MOST_COORDINATES:
        return (
            f"pairs: none, because {count_in_words(len(added), 'pair')} would take "
            f"{count:,} coefficients, more than {MOST_COORDINATES:,}"
        ), False
    return f"pairs: {len(added)}, with {size} knots per numeric column", True
