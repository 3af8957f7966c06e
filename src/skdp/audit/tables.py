"""Make worst-case pairs of neighbouring tables for audits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.engines.reference import ReferenceEngine
from skdp.privacy.encoding import Records, encode
from skdp.privacy.queries import Neighbours
from skdp.schema import (
    Categorical,
    Column,
    FloatArray,
    Numeric,
    Pair,
    Product,
    Schema,
    Vector,
    check,
)
from skdp.tables import batches

#: A numeric and a categorical column, for audits of estimators without a schema.
COLUMNS: Mapping[str, Column] = {
    "number": Numeric(0.0, 1.0),
    "kind": Categorical(["a", "b", "c"]),
}


#: A schema of `COLUMNS` with a numeric target.
MIXED = Schema(COLUMNS, target=Numeric(-1.0, 1.0))


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A table of synthetic records, with the target and the weight of each record."""

    columns: dict[str, Any]
    target: Any
    weight: FloatArray

    def encode(self, schema: Schema, *, intercept: bool, max_weight: float) -> Records:
        """Encode the table in the same way as a fit."""
        read = batches(
            self.columns, schema, target=self.target, sample_weight=self.weight
        )
        return encode(read, schema, intercept=intercept, max_weight=max_weight)


def make_neighbours(
    schema: Schema,
    neighbours: Neighbours,
    *,
    group: int = 1,
    rows_each: int = 1,
    n_rows: int = 8,
    twins: int = 0,
    replace_features: bool = False,
    low_target: bool = False,
    intercept: bool = True,
    max_weight: float = 1.0,
) -> tuple[SyntheticTable, SyntheticTable]:
    """Make two tables that differ in `group` canaries, which are extreme records.

    A canary has the largest value in every numeric column and the first category in
    every categorical column. In the second table, each canary has the opposite target
    (replace-one), is zeroed out (zero-out) or is absent (add-remove). Twins are
    pairs of records that have a canary's columns and opposite targets. All other
    records have the smallest values and the last categories. Half of them have the
    lowest target and half the highest, which keeps the fitted weights near zero. At
    zero weights, the slope of the loss on a canary is at its bound. In long runs, the
    twins help to keep the weights near zero.

    Parameters
    ----------
    schema : Schema
        The schema, which must include the target.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    group : int
        Number of canaries.
    rows_each : int
        Number of equal rows that each canary has. If the schema has a unit, these are
        the rows of one person. Every other row is a different person.
    n_rows : int
        Number of rows that the first table has if `rows_each` is 1.
    twins : int
        Number of pairs of twins.
    replace_features : bool
        Whether, under replace-one, a canary's columns are replaced and its target is
        kept.
    low_target : bool
        Whether canaries have the lower target instead of the higher one.
    intercept : bool
        Whether the fit has an intercept. If so, Gram matrices are centred.
    max_weight : float
        The weight of a canary.

    Returns
    -------
    pair of SyntheticTable
        The table with the canaries, and its neighbour.
    """
    check(
        1 <= group < n_rows - 2 * twins,
        f"group must be at least 1 and below {n_rows - 2 * twins} (n_rows - 2 twins), "
        f"got {group}.",
    )
    check(
        not any(isinstance(column, Product) for column in schema.columns.values()),
        "Schemas with products of columns are not audited. Describe the product as a "
        "Numeric column.",
    )
    if neighbours == "zero-out":
        for name, column in schema.columns.items():
            other = isinstance(column, Categorical) and column.other is not None
            fixed = isinstance(column, (Numeric, Pair)) and column.kind != "dense"
            check(
                not fixed and not other,
                f"Column {name!r} cannot represent a zeroed-out record.",
            )
    low, high = extreme_targets(schema.target_column)
    own, opposite = (low, high) if low_target else (high, low)
    columns = {k: c for k, c in schema.columns.items() if not isinstance(c, Pair)}
    filler = {key: _opposite(column) for key, column in columns.items()}
    canary = {key: _extreme(column) for key, column in columns.items()}
    rest = [canary] * (2 * twins) + [filler] * (n_rows - 2 * twins - group)
    calm = [low if i % 2 else high for i in range(len(rest))]

    def make_table(
        first: Mapping[str, Any], times: int, target: Any, weight: float
    ) -> SyntheticTable:
        persons = np.repeat(np.arange(times), rows_each).tolist()
        weights = np.array([weight] * len(persons) + [1.0] * len(rest))
        rows = [first] * len(persons) + rest
        cells = [target] * len(persons) + calm
        ids = persons + [group + i for i in range(len(rest))]
        numeric = isinstance(schema.target_column, Numeric)
        whole = np.array(cells, dtype=np.float64) if numeric else cells
        columns = _make_columns(schema, rows)
        columns |= {name: np.array(ids, np.int64) for name in schema.unit_columns}
        return SyntheticTable(columns, whole, weights)

    whole = make_table(canary, group, own, max_weight)
    if neighbours == "replace-one":
        if replace_features:
            return whole, make_table(filler, group, own, max_weight)
        return whole, make_table(canary, group, opposite, max_weight)
    if neighbours == "add-remove":
        return whole, make_table(canary, 0, own, max_weight)
    middle = intercept and schema.row_norm is None
    nothing = {key: _nothing(column, middle) for key, column in columns.items()}
    return whole, make_table(nothing, group, own, 0.0)


def make_engines(
    schema: Schema, neighbours: Neighbours, group: int, replace_features: bool = False
) -> list[ReferenceEngine]:
    """Return two engines, one for each of two neighbouring tables."""
    tables = make_neighbours(
        schema,
        neighbours,
        group=group,
        n_rows=group + 2,
        replace_features=replace_features,
    )
    return [
        ReferenceEngine(t.encode(schema, intercept=True, max_weight=1.0))
        for t in tables
    ]


def _make_columns(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for key, column in schema.columns.items():
        if isinstance(column, Pair):
            continue
        cells = [row[key] for row in rows]
        if isinstance(column, Vector):
            parts = np.array(cells, dtype=np.float64).reshape(-1, len(column.names))
            columns |= {n: parts[:, i] for i, n in enumerate(column.names)}
        elif isinstance(column, Numeric):
            columns[key] = np.array(cells, dtype=np.float64)
        else:
            columns[key] = cells
    return columns


def _extreme(column: Numeric | Categorical | Vector) -> Any:
    if isinstance(column, Vector):
        return [column.norm / math.sqrt(len(column.names))] * len(column.names)
    return column.high if isinstance(column, Numeric) else column.levels[0]


def _opposite(column: Numeric | Categorical | Vector) -> Any:
    if isinstance(column, Vector):
        return [-cell for cell in _extreme(column)]
    return column.low if isinstance(column, Numeric) else column.levels[-1]


def _nothing(column: Numeric | Categorical | Vector, middle: bool) -> Any:
    """Return a value of the column that adds nothing to a Gram matrix.

    The record also gets weight 0, so it adds nothing to the other sums. If `middle` is
    true, numbers are measured from the middle of their range (`queries.GramPattern`),
    so the middle is returned.
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
    """Return the ends of a numeric target's range, or the first two categories."""
    if isinstance(column, Numeric):
        return column.low, column.high
    return column.levels[0], column.levels[1]
