"""From new rows to margins: the schema's scaling in floats, no grid and no privacy.

Predictions are post-processing of released weights, so that they need neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.privacy.encoding import Batch, Coded
from skdp.schema import Categorical, Column, FloatArray, Layout, Schema, Vector
from skdp.tables import batches


def margins(
    table: Any, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """x·w of every row of a table, shape (n, k)."""
    public = Schema(schema.columns, row_norm=schema.row_norm)
    rows = [_batch_margins(b, public, layout, weights) for b in batches(table, public)]
    return np.concatenate([np.zeros((0, weights.shape[1])), *rows])


def _batch_margins(
    batch: Batch, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    parts = [features(batch.columns[key], c) for key, c in schema.columns.items()]
    if schema.row_norm is not None:
        _shorten(parts, schema.row_norm)
    total = np.zeros((len(parts[0]), weights.shape[1]))
    for group, part in zip(layout.groups, parts, strict=False):
        own = weights[group.coordinates]
        if part.ndim == 1:  # a code equal to the width touches nothing
            total += np.vstack([own, np.zeros((1, weights.shape[1]))])[part]
        else:
            total += part @ own
    for group in layout.groups:
        if group.kind == "ones":
            total += weights[group.start]
    return total


def features(cells: Any, column: Column) -> Any:
    """Scaled values (n, width) of a column, or codes (n,) of one that is one-hot."""
    if isinstance(column, Vector):
        return within_norm(cells, column.norm)
    if isinstance(column, Categorical):
        return _codes(cells, column)
    scaled, missing = column.scaled(np.asarray(cells, dtype=np.float64))
    if column.bins is not None:
        bins = np.minimum(np.floor(scaled * column.bins), column.bins - 1).astype(int)
        return np.where(missing & column.indicator, column.bins, bins)
    if column.indicator:
        return np.column_stack([np.where(missing, 0.0, scaled), missing])
    return scaled[:, None]


def within_norm(cells: Any, norm: float) -> FloatArray:
    """Rows divided by `norm`, or by their own norm if it is larger."""
    finite = np.nan_to_num(np.asarray(cells, dtype=np.float64), nan=0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True, initial=0.0)
    direction = finite / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        scale = np.minimum(largest / norm, 1.0 / np.where(length > 0, length, 1.0))
    return np.asarray(direction * scale)


def _codes(cells: Coded, column: Categorical) -> Any:
    """The reader used the schema's own levels; what is none of them defaults."""
    known = (cells.codes >= 0) & (cells.codes < len(column.levels))
    return np.where(known, cells.codes, column.default_code)


def _shorten(parts: list[Any], row_norm: float) -> None:
    """Scale the dense parts of long rows down, as encoding does."""
    coded = sum(part.ndim == 1 for part in parts)
    squares = sum((part**2).sum(axis=1) for part in parts if part.ndim == 2)
    room = np.sqrt(row_norm**2 - coded)
    factor = room / np.maximum(np.sqrt(squares), room)
    for i, part in enumerate(parts):
        if part.ndim == 2:
            parts[i] = part * np.asarray(factor)[:, None]
