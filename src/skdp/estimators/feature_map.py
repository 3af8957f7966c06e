"""From the schema's coordinates to margins, and back to the user's units.

The columns of the schema map cells to features (`skdp.schema.columns`); here the mapped
features meet weights. Predictions are post-processing of released weights, so they
need neither a grid nor privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skdp.privacy.encoding import Batch
from skdp.schema import FloatArray, Layout, Schema, level_key
from skdp.tables import batches


def compute_margins(
    table: Any, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """Compute x·w of every row of a table, shape (n, k)."""
    public = Schema(schema.columns, row_norm=schema.row_norm)
    rows = [_add_parts(b, public, layout, weights) for b in batches(table, public)]
    return np.concatenate([np.zeros((0, weights.shape[1])), *rows])


def _add_parts(
    batch: Batch, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """Add up what each column contributes to the margins of a batch."""
    parts = [
        column.compute_features(batch.columns[name])
        for name, column in schema.columns.items()
    ]
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


def _shorten(parts: list[Any], row_norm: float) -> None:
    """Scale the dense parts of long rows down, as encoding does."""
    coded = sum(part.ndim == 1 for part in parts)
    squares = sum((part**2).sum(axis=1) for part in parts if part.ndim == 2)
    room = np.sqrt(row_norm**2 - coded)
    factor = room / np.maximum(np.sqrt(squares), room)
    for i, part in enumerate(parts):
        if part.ndim == 2:
            parts[i] = part * np.asarray(factor)[:, None]


def convert_to_user_units(
    schema: Schema, layout: Layout, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (k, width) and intercepts (k,) for the cells of a table.

    Inside its range a linear column x counts w (x - low) / (high - low), so its
    coefficient is w / (high - low) and the rest belongs to the intercept. A log column
    has a coefficient per unit of log(1 + x - low); categories and bins have one each.
    """
    width = sum(group.width for group in layout.groups if group.kind != "ones")
    coef = weights[:width].T.copy()
    intercept = np.zeros(weights.shape[1])
    for group in layout.groups:
        if group.kind == "ones":
            intercept += weights[group.start]
            continue
        offsets, divisors = schema.columns[group.name].find_units()
        for place in np.flatnonzero(offsets).tolist():
            intercept -= coef[:, group.start + place] * offsets[place]
        coef[:, group.coordinates] /= divisors
    return coef, intercept


def centre_categories(layout: Layout, weights: FloatArray) -> FloatArray:
    """Move the mean weight of each column's categories to the intercept, if any.

    Margins of rows that have a level in every column stay the same.
    """
    moved = weights.copy()
    if layout.groups[-1].kind == "ones":
        for group in layout.groups:
            if group.kind == "code":
                mean = moved[group.coordinates].mean(axis=0)
                moved[group.coordinates] -= mean
                moved[-1] += mean
    return moved


def convert_to_numbers(levels: Sequence[Any]) -> FloatArray | None:
    """Return levels as numbers, if all of them are numbers, True or False."""
    if all(isinstance(level, (int, float, np.number, np.bool_)) for level in levels):
        return np.array([float(level) for level in levels])
    return None


def convert_to_text(level: object) -> str:
    """Return a level as the text that cells are compared with."""
    return level if isinstance(level, str) else level_key(level)
