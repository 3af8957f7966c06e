"""Worst-case pairs of neighbouring tables for audits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.privacy.encoding import Records, encode
from skdp.privacy.queries import Neighbours
from skdp.schema import Categorical, Column, FloatArray, Numeric, Schema, Vector, check
from skdp.tables import batches

#: A small table with a column of each kind, for audits of estimators without a schema.
COLUMNS: Mapping[str, Column] = {
    "number": Numeric(0.0, 1.0),
    "kind": Categorical(["a", "b", "c"]),
}


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A table of synthetic records."""

    columns: dict[str, Any]
    target: Any
    weight: FloatArray

    def encode(self, schema: Schema, *, intercept: bool, max_weight: float) -> Records:
        """Encode the table as a fit would."""
        read = batches(
            self.columns, schema, target=self.target, sample_weight=self.weight
        )
        return encode(read, schema, intercept=intercept, max_weight=max_weight)


def make_neighbours(
    schema: Schema,
    neighbours: Neighbours,
    *,
    group: int = 1,
    n_rows: int = 8,
    twins: int = 0,
    replace_features: bool = False,
    low_target: bool = False,
    intercept: bool = True,
    max_weight: float = 1.0,
) -> tuple[SyntheticTable, SyntheticTable]:
    """Make two tables that differ in `group` canaries, records with extreme values.

    A canary has the largest value of every number and the first category of every
    categorical column; no other record has them. In the other table it has the opposite
    target (replace-one), is zeroed out (zero-out) or is absent (add-remove). The other
    records have the smallest values and targets that cancel, which keeps weights near
    zero, where a canary's slope is at its bound. Twins of the canary with targets that
    cancel keep them there over many steps.

    Parameters
    ----------
    schema : Schema
        The schema, including its target.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    group : int
        Number of canaries.
    n_rows : int
        Number of rows of the first table.
    twins : int
        Number of pairs of records with the canary's columns and opposite targets.
    replace_features : bool
        Under replace-one, exchange a canary's columns and keep its target.
    low_target : bool
        Give canaries the lower target instead of the higher one.
    intercept : bool
        Whether there is an intercept; Gram matrices are then centred.
    max_weight : float
        The weight of a canary.
    """
    check(
        1 <= group < n_rows - 2 * twins,
        f"group must be at least 1 and below {n_rows - 2 * twins} (n_rows - 2 twins), "
        f"got {group}.",
    )
    if neighbours == "zero-out":
        for name, column in schema.columns.items():
            binned = isinstance(column, Numeric) and column.bins is not None
            other = isinstance(column, Categorical) and column.other is not None
            check(
                not binned and not other,
                f"Column {name!r} cannot represent a zeroed-out record.",
            )
    low, high = extreme_targets(schema.target_column)
    own, opposite = (low, high) if low_target else (high, low)
    filler = {key: _opposite(column) for key, column in schema.columns.items()}
    canary = {key: _extreme(column) for key, column in schema.columns.items()}
    rest = [canary] * (2 * twins) + [filler] * (n_rows - 2 * twins - group)
    calm = [low if i % 2 else high for i in range(len(rest))]

    def make_table(
        first: Mapping[str, Any], times: int, target: Any, weight: float
    ) -> SyntheticTable:
        weights = np.array([weight] * times + [1.0] * len(rest))
        rows = [first] * times + rest
        cells = [target] * times + calm
        numeric = isinstance(schema.target_column, Numeric)
        whole = np.array(cells, dtype=np.float64) if numeric else cells
        return SyntheticTable(_columns(schema, rows), whole, weights)

    whole = make_table(canary, group, own, max_weight)
    if neighbours == "replace-one":
        if replace_features:
            return whole, make_table(filler, group, own, max_weight)
        return whole, make_table(canary, group, opposite, max_weight)
    if neighbours == "add-remove":
        return whole, make_table(canary, 0, own, max_weight)
    middle = intercept and schema.row_norm is None
    nothing = {key: _nothing(column, middle) for key, column in schema.columns.items()}
    return whole, make_table(nothing, group, own, 0.0)


def _columns(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert rows to the columns that a fit reads."""
    columns: dict[str, Any] = {}
    for key, column in schema.columns.items():
        cells = [row[key] for row in rows]
        if isinstance(column, Vector):
            parts = np.array(cells, dtype=np.float64).reshape(-1, len(column.names))
            columns |= {n: parts[:, i] for i, n in enumerate(column.names)}
        elif isinstance(column, Numeric):
            columns[key] = np.array(cells, dtype=np.float64)
        else:
            columns[key] = cells
    return columns


def _extreme(column: Column) -> Any:
    if isinstance(column, Vector):
        return [column.norm / math.sqrt(len(column.names))] * len(column.names)
    return column.high if isinstance(column, Numeric) else column.levels[0]


def _opposite(column: Column) -> Any:
    if isinstance(column, Vector):
        return [-cell for cell in _extreme(column)]
    return column.low if isinstance(column, Numeric) else column.levels[-1]


def _nothing(column: Column, middle: bool) -> Any:
    """Return a cell that adds nothing to a Gram matrix; a weight of 0 does the rest.

    Single numbers may be centred on their range (`queries.GramPattern`).
    """
    if isinstance(column, Vector):
        return [0.0] * len(column.names)
    if not isinstance(column, Numeric):
        return None
    if not middle or column.indicator:
        return column.low
    half = 0.5 + 2.0**-30  # rounded down to the grid
    if column.scale == "log":
        return column.low + math.expm1(half * math.log1p(column.high - column.low))
    return column.low + half * (column.high - column.low)


def extreme_targets(column: Numeric | Categorical) -> tuple[Any, Any]:
    """Return two targets that are as far apart as possible."""
    if isinstance(column, Numeric):
        return column.low, column.high
    return column.levels[0], column.levels[1]
