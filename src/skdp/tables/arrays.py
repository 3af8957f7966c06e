"""Read numpy arrays, mappings of columns and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skdp.privacy.encoding import AnyArray
from skdp.schema import check
from skdp.tables import readers
from skdp.tables.placed import PlacedColumn
from skdp.tables.readers import Cells, Kind, Source, count_cells, cut, make_slices


def open_array(given: AnyArray, wanted: Sequence[str] | None) -> Source:
    """Open a 2-D array, which must have the schema's columns in the same order."""
    check(
        given.ndim == 2,
        f"An array of records must have 2 dimensions, got {given.ndim}.",
    )

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(len(given), rows):
            tile = read_array(given[part].T)
            yield [tile[position] for position in at]

    kinds = [_find_kind(given.dtype)] * given.shape[1]
    return Source(names=None, kinds=kinds, read=read, n_rows=len(given))


def open_mapping(given: Mapping[Any, Any], wanted: Sequence[str] | None) -> Source:
    """Open a mapping of names to columns, which must have equal lengths."""
    columns = [
        readers.read_column(values, f"column {name!r}")
        for name, values in given.items()
    ]
    lengths = {count_cells(cells) for cells in columns}
    check(len(lengths) <= 1, "All columns must have the same length.")

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(max(lengths, default=0), rows):
            yield [cut(columns[position], part) for position in at]

    kinds = [kind_of(cells) for cells in columns]
    names = [str(name) for name in given]
    return Source(names=names, kinds=kinds, read=read, n_rows=max(lengths, default=0))


def read_array(given: AnyArray) -> AnyArray:
    """Return an array of any shape, with None in place of masked cells."""
    if not isinstance(given, np.ma.MaskedArray):
        return given
    cells = given.data.astype(object)
    cells[np.ma.getmaskarray(given)] = None
    return cells


def read_objects(given: Sequence[object]) -> AnyArray:
    """Return a list as an array of objects, so numpy does not convert the items."""
    return np.fromiter(given, dtype=object, count=len(given))


def kind_of(cells: Cells) -> Kind:
    """Return the kind of a column according to its type."""
    if hasattr(cells, "codes"):
        floats = any(isinstance(value, float) for value in cells.values)
        return "float category" if floats else "category"
    if isinstance(cells, np.ndarray):
        return _find_kind(cells.dtype)
    if isinstance(cells, PlacedColumn):
        return cells.kind
    from skdp.tables import frames

    return frames.find_arrow_kind(cells.type)


def _find_kind(dtype: np.dtype[Any]) -> Kind:
    kinds: dict[str, Kind] = {"b": "truth", "f": "float"}
    kinds |= dict.fromkeys("iu", "number")
    kinds |= dict.fromkeys("UST", "text")
    kinds |= dict.fromkeys("mMV", "other")
    return kinds.get(dtype.kind, "unknown")


# ---- Read scipy sparse matrices in dense tiles of a few rows


def open_sparse(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a sparse matrix, which must have the schema's columns in the same order."""
    by_rows = given.tocsr()

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(by_rows.shape[0], rows):
            tile = by_rows[part].toarray().T
            yield [tile[position] for position in at]

    kinds = open_array(by_rows[:0].toarray(), None).kinds
    return Source(names=None, kinds=kinds, read=read, n_rows=by_rows.shape[0])
