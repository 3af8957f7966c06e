"""A table in memory, divided by the positions of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.schema import IntArray, check

#: Every how manieth row is held out.
EVERY = 5


def held_out(n_rows: int) -> tuple[IntArray, IntArray]:
    """Positions of the rows that are kept, and of every fifth one.

    The rule reads no cell: a row that is replaced or left out stays in its part.
    """
    at = np.arange(n_rows)
    last = at % EVERY == EVERY - 1
    return at[~last], at[last]


def rows_at(table: Any, at: IntArray) -> Any:
    """Some rows of a table or of a column; None is returned as it is."""
    if table is None:
        return table
    if isinstance(table, dict):
        return {name: rows_at(column, at) for name, column in table.items()}
    if isinstance(table, np.ndarray):
        return table[at]
    if hasattr(table, "iloc"):
        return table.iloc[at]
    if hasattr(table, "tocsr"):
        return table.tocsr()[at]
    library = type(table).__module__.partition(".")[0]
    if library == "pyarrow":
        return table.take(at)
    check(
        library == "polars" and hasattr(table, "__getitem__"),
        "A search divides a table by its rows, so that it must be in memory: read it "
        f"into a frame first. Got a {type(table).__name__}.",
    )
    return table[at.tolist()]


def weights_at(weights: Any, at: IntArray, n_rows: int) -> Any:
    """Weights of some rows; the name of a column that holds them stays as it is."""
    if isinstance(weights, str):
        return weights
    check(
        weights is None or len(weights) == n_rows,
        f"sample_weight needs as many rows as the table, {n_rows}: give one each.",
    )
    return rows_at(weights, at)
