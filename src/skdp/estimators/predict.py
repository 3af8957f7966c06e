"""Compute margins from features and weights; convert weights to the user's units.

The columns of the schema map cells to features (`skdp.schema.columns`). The functions
here multiply the features by weights. Predictions are computed from released weights
(post-processing), so features are not rounded to a grid and no noise is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from skdp.estimators.opening import accept_table
from skdp.schema import (
    Categorical,
    FloatArray,
    Group,
    IntArray,
    Layout,
    Product,
    Schema,
    level_key,
    split_hats,
)
from skdp.schema.columns import clip_to_fill
from skdp.tables import batches


def compute_margins(
    table: Any, schema: Schema, layout: Layout, weights: FloatArray
) -> FloatArray:
    """Compute the margins x·w of all rows of a table, shape (n, k)."""
    rows = [_add_parts(p, layout, weights) for p in _read_parts(table, schema)]
    return np.concatenate([np.zeros((0, weights.shape[1])), *rows])


def accept_rows(X: Any) -> Any:
    """Return `X` as a table. A dict of single cells is a row, and so is one in a list.

    Cells that a dict of the list lacks are missing. The first one has all the names.
    """
    if type(X) is dict and X and not any(map(_is_column, X.values())):
        X = [X]
    if isinstance(X, list) and X and all(type(row) is dict for row in X):
        X = {name: [row.get(name) for row in X] for name in X[0]}
    return accept_table(X)


def _is_column(cells: object) -> bool:
    return hasattr(cells, "__len__") and not isinstance(cells, (str, bytes))


def _read_parts(table: Any, schema: Schema) -> Iterator[list[Any]]:
    """Yield the features of each column, for some rows at a time."""
    public = Schema(schema.columns, row_norm=schema.row_norm)
    for batch in batches(table, public):
        with np.errstate(all="ignore"):  # a cell must not cause a warning
            parts = [
                column.compute_features(
                    clip_to_fill(column, schema.pick_cells(batch.columns, name))
                )
                for name, column in schema.columns.items()
            ]
            if schema.row_norm is not None:
                dense = [column.kind == "dense" for column in schema.columns.values()]
                _shorten_dense(parts, dense, schema.row_norm)
        yield parts


@np.errstate(all="ignore")
def _add_parts(parts: list[Any], layout: Layout, weights: FloatArray) -> FloatArray:
    """Return the margins of some rows: the sum of what each column contributes."""
    total = np.zeros((len(parts[0]), weights.shape[1]))
    for group, part in zip(layout.groups, parts, strict=False):
        own = weights[group.coordinates]
        padded = np.vstack([own, np.zeros((1, weights.shape[1]))])
        if group.kind == "code":  # a code equal to the width adds zero
            total += padded[part]
        elif group.kind == "hats":
            places, shares = split_hats(part, group.axes)
            for place, share in zip(places.T, shares.T, strict=True):
                total += padded[place] * share[:, None]
        else:
            total += part @ own
    for group in layout.groups:
        if group.kind == "ones":
            total += weights[group.start]
    return total


def compute_features(table: Any, schema: Schema) -> Any:
    """Return the features of all rows, shape (n, width), without the intercept.

    The array is sparse if fewer than three tenths of the features of a row can be
    nonzero. This follows from the schema alone.
    """
    groups = schema.layout(intercept=False).groups
    width = sum(group.width for group in groups)
    filled = sum(
        group.width if group.kind == "dense" else 2 ** len(group.axes)
        for group in groups
    )
    made = [_place_parts(p, groups, width) for p in _read_parts(table, schema)]
    places = np.concatenate([np.zeros((0, filled), np.intp), *(at for at, _ in made)])
    values = np.concatenate([np.zeros((0, filled)), *(own for _, own in made)])
    if filled < 0.3 * width:
        ends = np.arange(0, places.size + 1, filled)
        shape = len(places), width + 1
        found = csr_array((values.ravel(), places.ravel(), ends), shape=shape)
        return found[:, :width]
    dense, rows = np.zeros((len(places), width + 1)), np.arange(len(places))
    for at, own in zip(places.T, values.T, strict=True):
        dense[rows, at] += own
    return dense[:, :width]


def _place_parts(
    parts: list[Any], groups: Sequence[Group], width: int
) -> tuple[IntArray, FloatArray]:
    """Return where each row has features and their values, both (n, filled).

    Zeros that belong to no coordinate are at the place `width`.
    """
    at: list[npt.NDArray[Any]] = []
    values: list[npt.NDArray[Any]] = []
    for group, part in zip(groups, parts, strict=True):
        if group.kind == "dense":
            places = np.broadcast_to(np.arange(group.width), part.shape)
            shares = part
        elif group.kind == "code":
            places, shares = part[:, None].astype(np.intp), np.ones((len(part), 1))
        else:
            places, shares = split_hats(part, group.axes)
        at.append(np.where(places < group.width, places + group.start, width))
        values.append(shares)
    return np.hstack(at), np.hstack(values)


def _shorten_dense(parts: list[Any], dense: list[bool], row_norm: float) -> None:
    """Scale down the dense parts of rows whose norm is above `row_norm`.

    Encoding does the same.
    """
    numbers = [i for i, is_dense in enumerate(dense) if is_dense]
    squares = sum((parts[i] ** 2).sum(axis=1) for i in numbers)
    room = np.sqrt(row_norm**2 - (len(parts) - len(numbers)))
    factor = room / np.maximum(np.sqrt(squares), room)
    for i in numbers:
        parts[i] = parts[i] * np.asarray(factor)[:, None]


def convert_to_user_units(
    schema: Schema, layout: Layout, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (k, width) and intercepts (k,) in units of the table's cells.

    A value x inside the range of a linear column adds w (x - low) / (high - low) to the
    margin. So the column's coefficient is w / (high - low), and the constant
    -w low / (high - low) is added to the intercept. The coefficient of a log column is
    per unit of log(1 + x - low). Each category and each bin has its own coefficient.
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
        with np.errstate(over="ignore"):  # a range may be as short as 5e-324
            coef[:, group.coordinates] /= divisors
    starts = {group.name: group.start for group in layout.groups}
    for name, column in schema.columns.items():
        if isinstance(column, Product) and column.centred:
            _move_centres(column, name, schema, starts, coef, intercept)
    return coef, intercept


def _move_centres(
    product: Product,
    name: str,
    schema: Schema,
    starts: Mapping[str, int],
    coef: FloatArray,
    intercept: FloatArray,
) -> None:
    """Change coefficients, in place, to those of a product without centres.

    (f - a)(g - b) = fg - b f - a g + ab, so the columns f and g and the intercept take
    what was subtracted.
    """
    own = coef[:, starts[name]]
    first, second = product.factors
    for factor, other in ((first, second), (second, first)):
        if other.centre != 0:
            main = product.find_main(factor, schema.columns)
            (key,) = (key for key, one in schema.columns.items() if one is main)
            at = starts[key]
            if isinstance(main, Categorical):
                at += main.codes[level_key(factor.level)]
            coef[:, at] -= other.centre * own
    if first.centre * second.centre != 0:
        intercept += first.centre * second.centre * own


def find_references(schema: Schema, layout: Layout) -> dict[str, int]:
    """Return the code of each column's reference category.

    Without an intercept there are none, because no coordinate could take their effect.
    """
    if layout.groups[-1].kind != "ones":
        return {}
    return {
        name: column.reference_code
        for name, column in schema.columns.items()
        if isinstance(column, Categorical) and column.reference_code is not None
    }


def centre_categories(
    layout: Layout, weights: FloatArray, references: Mapping[str, int] | None = None
) -> FloatArray:
    """Move the mean weight of each column's categories or knots to the intercept.

    For a column of `references`, move the weight of this category instead. Without an
    intercept nothing is moved. The margin of a row stays the same if the row has a
    level in every categorical column.
    """
    moved = weights.copy()
    if layout.groups[-1].kind == "ones":
        for group in layout.groups:
            if group.kind in ("code", "hats"):
                own = moved[group.coordinates]
                place = (references or {}).get(group.name)
                level = own.mean(axis=0) if place is None else own[place]
                moved[group.coordinates] -= level
                moved[-1] += level
    return moved


def convert_to_numbers(levels: Sequence[Any]) -> FloatArray | None:
    """Return levels as floats, or None if any is not a number or a boolean."""
    if all(isinstance(level, (int, float, np.number, np.bool_)) for level in levels):
        return np.array([float(level) for level in levels])
    return None
