"""Pairs of neighbouring tables that are as far apart as one record can make them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.privacy.encoding import Records, encode
from skdp.privacy.queries import Relation
from skdp.schema import Categorical, Column, FloatArray, Numeric, Schema, Vector, check
from skdp.tables import batches

#: A small table with a column of each kind, for audits of estimators without a schema.
COLUMNS: Mapping[str, Column] = {
    "number": Numeric(0.0, 1.0),
    "kind": Categorical(["a", "b", "c"]),
}


@dataclass(frozen=True, eq=False)
class Table:
    """A made-up table: nobody's records."""

    columns: dict[str, Any]
    target: Any
    weight: FloatArray

    def encoded(self, schema: Schema, *, intercept: bool, max_weight: float) -> Records:
        """Records as a fit would make them."""
        read = batches(
            self.columns, schema, target=self.target, sample_weight=self.weight
        )
        return encode(read, schema, intercept=intercept, max_weight=max_weight)


def neighbours(
    schema: Schema,
    relation: Relation,
    *,
    group: int = 1,
    n_rows: int = 8,
    twins: int = 0,
    replace_features: bool = False,
    low_target: bool = False,
    intercept: bool = True,
    max_weight: float = 1.0,
) -> tuple[Table, Table]:
    """Two tables that differ in `group` canaries: records at the edge of the schema.

    A canary has the largest value of every number and the first of the categories, no
    other record has. In the other table it has the opposite target (replace-one),
    counts for nothing (zero-out) or is not there (add-remove). The other records have
    the smallest values and targets that cancel, so that weights stay near zero, where
    a canary's slope is at its bound; twins of the canary with targets that cancel keep
    them there over many steps.

    Parameters
    ----------
    schema : Schema
        With its target.
    relation : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    group : int
        Number of canaries.
    n_rows : int
        Rows of the first table.
    twins : int
        Pairs of records with the canary's columns and opposite targets.
    replace_features : bool
        Under replace-one, exchange a canary's columns and keep its target.
    low_target : bool
        Give canaries the lower target, not the higher one.
    intercept : bool
        Whether there is one; a Gram matrix is then taken from the middle of ranges.
    max_weight : float
        The weight of a canary.
    """
    check(
        1 <= group < n_rows - 2 * twins,
        f"A table needs 1 ≤ group < n_rows. Got {group} and {n_rows}: add rows.",
    )
    if relation == "zero-out":
        for name, column in schema.columns.items():
            binned = isinstance(column, Numeric) and column.bins is not None
            other = isinstance(column, Categorical) and column.other is not None
            check(
                not binned and not other,
                f"No cell of {name!r} adds nothing to a sum, as a record that was "
                "zeroed out would: audit another relation.",
            )
    low, high = targets(schema.target_column)
    own, opposite = (low, high) if low_target else (high, low)
    filler = {key: _opposite(column) for key, column in schema.columns.items()}
    canary = {key: _extreme(column) for key, column in schema.columns.items()}
    rest = [canary] * (2 * twins) + [filler] * (n_rows - 2 * twins - group)
    calm = [low if i % 2 else high for i in range(len(rest))]

    def table(
        first: Mapping[str, Any], times: int, target: Any, weight: float
    ) -> Table:
        weights = np.array([weight] * times + [1.0] * len(rest))
        rows = [first] * times + rest
        cells = [target] * times + calm
        numeric = isinstance(schema.target_column, Numeric)
        whole = np.array(cells, dtype=np.float64) if numeric else cells
        return Table(_columns(schema, rows), whole, weights)

    whole = table(canary, group, own, max_weight)
    if relation == "replace-one":
        if replace_features:
            return whole, table(filler, group, own, max_weight)
        return whole, table(canary, group, opposite, max_weight)
    if relation == "add-remove":
        return whole, table(canary, 0, own, max_weight)
    middle = intercept and schema.row_norm is None
    nothing = {key: _nothing(column, middle) for key, column in schema.columns.items()}
    return whole, table(nothing, group, own, 0.0)


def _columns(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as columns that a fit reads."""
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
    """Return what adds nothing to a Gram matrix; weights see to the gradients.

    Single numbers may be taken from the middle of their range (`sums.GramPattern`).
    """
    if isinstance(column, Vector):
        return [0.0] * len(column.names)
    if not isinstance(column, Numeric):
        return None
    if not middle or column.indicator:
        return column.low
    half = 0.5 + 2.0**-30  # which is rounded down to the grid
    if column.scale == "log":
        return column.low + math.expm1(half * math.log1p(column.high - column.low))
    return column.low + half * (column.high - column.low)


def targets(column: Numeric | Categorical) -> tuple[Any, Any]:
    """Return two targets that are as far apart as any."""
    if isinstance(column, Numeric):
        return column.low, column.high
    return column.levels[0], column.levels[1]
