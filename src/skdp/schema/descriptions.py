"""Describe columns in a few words, for printed schemas."""

from __future__ import annotations

from skdp.schema.columns import Categorical
from skdp.schema.pairs import Column, Pair
from skdp.schema.vectors import Vector

#: Largest number of levels that a description lists.
MOST_LEVELS = 6


def describe_column(column: Column) -> tuple[str, str]:
    """Return the kind of a column and its values, as strings."""
    if isinstance(column, Categorical):
        shown = ", ".join(str(level) for level in column.levels[:MOST_LEVELS])
        more = len(column.levels) - MOST_LEVELS
        shown += f" and {more} more" if more > 0 else ""
        shown += "" if column.other is None else f"; others count as {column.other}"
        return "categorical", shown
    if isinstance(column, Vector):
        return "vector", f"joint norm ≤ {column.norm:g}, columns: {len(column.names)}"
    if isinstance(column, Pair):
        return "pair", f"{column.first} and {column.second}"
    words = [f"{column.low:g} to {column.high:g}"]
    words += ["log scale"] if column.scale == "log" else []
    words += [f"{column.bins} bins"] if column.bins is not None else []
    knots = column.knots if isinstance(column.knots, str) else column.n_knots
    words += [f"{knots} knots"] if column.knots is not None else []
    words += [] if column.missing is None else [f"missing = {column.missing:g}"]
    words += ["missing indicator"] if column.indicator else []
    return "numeric", ", ".join(words)
