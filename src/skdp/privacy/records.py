"""Tables become records on the grid: bounded whatever the cells held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skdp.privacy import grid
from skdp.schema import (
    Categorical,
    FloatArray,
    Layout,
    Numeric,
    Schema,
    Vector,
    level_key,
)

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A categorical column as read: `values[codes]`; a code outside is missing."""

    codes: AnyArray
    values: Sequence[object]


#: What a reader hands over for a chunk: by key of the schema, floats for Numeric,
#: Coded for Categorical, a matrix of floats for Vector.
Columns = Mapping[str, "FloatArray | Coded"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Chunk:
    """Encoded rows.

    Attributes
    ----------
    parts : tuple of arrays, one a group
        int16 (n, width) in units of 2⁻¹⁴ for dense groups, unsigned (n,) for codes
        (a code equal to the width touches nothing), empty (n, 0) for the intercept.
    target : array (n,)
        Class codes, or integers 0..2¹⁴ for a numeric target scaled to [0, 1].
    weight : float64 (n,)
        What the slope is multiplied by, in [0, max_weight]; 0 for a null record.
    """

    parts: tuple[AnyArray, ...]
    target: AnyArray
    weight: FloatArray

    @property
    def n_rows(self) -> int:
        """Rows of the chunk: private under add-remove, for engines alone."""
        return len(self.target)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Records:
    """The encoded table: the only thing that a query may read."""

    layout: Layout
    chunks: tuple[Chunk, ...]
    max_weight: float = 1.0


def encode(
    tables: Iterable[Columns],
    schema: Schema,
    *,
    intercept: bool = True,
    max_weight: float = 1.0,
    sample_weight: str | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> Records:
    """Put the chunks of a table on the grid.

    Parameters
    ----------
    tables : iterable of mappings
        Chunks of columns, by key of the schema; the target under its own name or
        ``"target"``.
    sample_weight : str, optional
        Key of the column of weights. They are multiplied by the `class_weight` of the
        row's class code and clipped to [0, max_weight].

    Notes
    -----
    **Guarantee.** For every table of floats and codes, each encoded row has norm at
    most one in every group, at most ``schema.row_norm`` over all groups but the
    intercept, a weight in [0, max_weight], and depends on its own cells alone.
    """
    layout = schema.layout(intercept)
    room = np.inf
    if layout.row_norm is not None:
        coded = sum(group.kind == "code" for group in layout.groups)
        room = float(np.floor((layout.row_norm**2 - coded) * grid.FEATURE_ONE**2))
    chunks = []
    for columns in tables:
        parts = [_part(columns[key], schema, key) for key in schema.columns]
        dense = [i for i, part in enumerate(parts) if part.ndim == 2]
        if dense and np.isfinite(room):
            edges = np.cumsum([parts[i].shape[1] for i in dense])[:-1]
            joined = np.hstack([parts[i] for i in dense]).astype(np.float64)
            for i, part in zip(
                dense, np.split(grid.shortened(joined, room), edges, 1), strict=True
            ):
                parts[i] = part.astype(np.int16)
        target, weight = _target(columns[schema.target_name or "target"], schema)
        if sample_weight is not None:
            weight = weight * columns[sample_weight]
        if class_weight is not None:
            weight = weight * _class_weights(schema, class_weight)[target]
        weight = np.clip(np.where(np.isnan(weight), 0.0, weight), 0.0, max_weight)
        if intercept:
            parts.append(np.empty((len(target), 0), np.int16))
        for start in range(0, len(target), grid.CHUNK_ROWS):
            rows = slice(start, start + grid.CHUNK_ROWS)
            chunks.append(
                Chunk(
                    parts=tuple(part[rows] for part in parts),
                    target=target[rows],
                    weight=weight[rows],
                )
            )
    return Records(layout=layout, chunks=tuple(chunks), max_weight=max_weight)


def _part(cells: FloatArray | Coded, schema: Schema, key: str) -> AnyArray:
    """One column's cells on the grid."""
    column = schema.columns[key]
    if isinstance(column, Vector):
        return grid.joint_rows(cells, column.norm).astype(np.int16)
    if isinstance(column, Categorical):
        return _codes(cells, column)
    scaled, missing = column.scaled(np.asarray(cells, dtype=np.float64))
    if column.bins is not None:
        bins = np.minimum(np.floor(scaled * column.bins), column.bins - 1)
        if column.indicator:
            bins = np.where(missing, column.bins, bins)
        return bins.astype(np.uint16)
    value = grid.truncated(scaled).astype(np.int16)[:, None]
    if not column.indicator:
        return value
    # The two coordinates exclude each other, so that the group's norm stays one.
    absent = missing[:, None]
    return np.where(
        np.hstack([absent, ~absent]),
        0,
        np.hstack([value, np.full_like(value, 1 << 14)]),
    ).astype(np.int16)


def _codes(cells: Coded, column: Categorical) -> AnyArray:
    """Codes of the schema for codes as read; unknown and missing ones default."""
    default = column.default_code
    known = [column.codes.get(level_key(value), default) for value in cells.values]
    lookup = np.array([*known, default])
    inside = (cells.codes >= 0) & (cells.codes < len(known))
    width = len(column.levels)
    dtype = np.uint8 if width < 256 else np.uint16
    return lookup[np.where(inside, cells.codes, len(known))].astype(dtype)


def _target(cells: FloatArray | Coded, schema: Schema) -> tuple[AnyArray, FloatArray]:
    """Target on its grid, and weight zero where it is an unknown class."""
    column = schema.target_column
    if isinstance(column, Numeric):
        scaled, _ = column.scaled(np.asarray(cells, dtype=np.float64))
        units = np.rint(scaled * grid.FEATURE_ONE).astype(np.int16)
        return units, np.ones(len(units))
    codes = _codes(cells, column)
    known = codes < len(column.levels)
    return np.where(known, codes, 0), known.astype(np.float64)


def _class_weights(schema: Schema, class_weight: Mapping[int, float]) -> FloatArray:
    column = schema.target_column
    levels = column.levels if isinstance(column, Categorical) else ()
    return np.array([class_weight.get(code, 1.0) for code in range(len(levels))])
