"""Choose the knots of curves and the pairs of columns, from public facts alone.

`choose_curves` is the only place where these choices are made. They depend only on the
schema, the public or released number of rows, and the budget, so they cost no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from skdp.models.losses import Loss
from skdp.privacy.queries import Neighbours
from skdp.schema import Categorical, Column, Numeric, Pair, Schema, check

#: The smallest and the largest number of intervals of a curve.
FEWEST, MOST = 4, 16
#: Curves are lines if nν is below this.
CURVES_FROM = 100.0
#: Pairs of numbers are added if nν is at least this.
PAIRS_FROM = 1e4
#: Number of knots of each number in a pair.
PAIR_KNOTS = 4
#: Pairs are added only if there are at most this many coordinates with them.
MOST_COORDINATES = 1500


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A schema in which all numbers of knots are known, and the reasons for them."""

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
) -> Choice:
    """Return the schema with curves and pairs, and the reasons for the choices.

    Parameters
    ----------
    schema : Schema
        The columns. Bins, and knots that are given as integers, are kept.
    loss : Loss
        The loss.
    n_rows, mu, neighbours
        The public or released number of rows, the Gaussian-DP parameter of the
        remaining budget, and the neighbour relation.
    knots : int, "auto" or None
        The number of knots of each numeric column that does not state one.
    pairs : "auto", "all", list of pairs of names, or None
        The pairs to add: as many as the rows support ("auto"), all pairs of columns,
        the listed pairs, or none.
    """
    check_choices(knots, pairs)
    signal = n_rows * mu / (2.0 if neighbours == "replace-one" else 1.0)
    chosen = choose_knots(signal)
    columns: dict[str, Column] = {}
    resolved = 0
    for name, column in schema.columns.items():
        if isinstance(column, Numeric) and column.bins is None:
            asked = knots if column.knots is None else column.knots
            resolved += asked == "auto"
            asked = chosen if asked == "auto" else asked
            column = replace(column, knots=asked)
        elif isinstance(column, Pair) and column.knots == "auto":
            column = replace(column, knots=PAIR_KNOTS)
        columns[name] = column
    reasons = []
    if resolved:
        carried = f"the {signal:,.0f} rows that remain per unit of noise"
        reasons.append(
            f"curves: {chosen} knots per number, as many as {carried} carry"
            if chosen is not None
            else f"curves: none, because {carried} carry only lines"
        )
    added = _list_pairs(columns, pairs, signal)
    if pairs is not None:
        columns, reason = _add_pairs(columns, added, pairs, signal)
        reasons.append(reason)
    made = replace(schema, columns=columns)
    return Choice(schema=made, reasons=tuple(reasons))


def draw_lines(schema: Schema) -> Schema:
    """Return the schema without curves and pairs, for a first pass over the table."""
    columns = {
        name: replace(column, knots=None) if isinstance(column, Numeric) else column
        for name, column in schema.columns.items()
        if not isinstance(column, Pair)
    }
    return replace(schema, columns=columns)


def check_choices(knots: Any, pairs: Any) -> None:
    """Refuse values of `knots` and `pairs` that no table allows."""
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


def choose_knots(signal: float) -> int | None:
    """Return the number of knots of a curve, or None for a line.

    A curve with k intervals misses a smooth effect by about 1/k², and its noise costs
    about k/(nν)². The sum is smallest if k is proportional to (nν)^(2/5). In
    measurements, (nν)^(1/3) is near the best.
    """
    if signal < CURVES_FROM:
        return None
    return 1 + round(min(max(math.cbrt(signal), FEWEST), MOST))


def _list_pairs(
    columns: dict[str, Column], pairs: Any, signal: float
) -> list[tuple[str, str]]:
    """Return the names of the columns of each pair to add."""
    if pairs is None:
        return []
    known = {
        frozenset((c.first, c.second)) for c in columns.values() if isinstance(c, Pair)
    }
    if pairs == "auto":
        names = [n for n, c in columns.items() if isinstance(c, Numeric) and c.n_knots]
        found = list(combinations(names, 2)) if signal >= PAIRS_FROM else []
    elif pairs == "all":
        kinds = (Numeric, Categorical)
        found = list(
            combinations([n for n, c in columns.items() if isinstance(c, kinds)], 2)
        )
    else:
        found = [(str(first), str(second)) for first, second in pairs]
    return [pair for pair in found if frozenset(pair) not in known]


def _add_pairs(
    columns: dict[str, Column], added: list[tuple[str, str]], pairs: Any, signal: float
) -> tuple[dict[str, Column], str]:
    """Return the columns with pairs, and the reason."""
    if not added:
        why = "there are no two curves to join"
        if pairs == "auto" and signal < PAIRS_FROM:
            why = f"nν = {signal:,.0f} is below {PAIRS_FROM:,.0f}"
        return columns, f"pairs: none, because {why}"
    made = dict(columns)
    for first, second in added:
        name = f"{first}:{second}"
        while name in made:
            name += "_"
        made[name] = Pair(first, second, knots=PAIR_KNOTS)
    width = Schema(made).layout().n_features
    if pairs == "auto" and width > MOST_COORDINATES:
        return columns, (
            f"pairs: none, because {len(added)} pairs would take {width:,} "
            f"coefficients, more than {MOST_COORDINATES:,}"
        )
    size = f"{PAIR_KNOTS} knots per number"
    why = f", because nν = {signal:,.0f} carries them" if pairs == "auto" else ""
    return made, f"pairs: {len(added)}, with {size}{why}"
