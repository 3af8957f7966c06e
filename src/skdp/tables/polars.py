"""Read eager and lazy polars frames. Columns become Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from skdp.tables import arrays, arrow
from skdp.tables.readers import Cells, Kind, Source, hide_errors, make_slices


def table(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a DataFrame."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(given.height, rows):
            cut = given[part]
            yield [column(cut.to_series(position)) for position in at]

    return _source(given.schema, read, given.height)


def lazy(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a LazyFrame; only the required columns are computed, in batches.

    Each read computes the query again. Joins and groups have no fixed order, and polars
    does not tell which queries have one, so the rows of a lazy frame are unordered.

    The query may fail at a cell, for example of a CSV file whose types polars guessed.
    Reading then fails too, so a lazy frame is only as safe as its query.
    """
    schema = given.collect_schema()

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names()[position] for position in at]
        query = given.select(names)
        for batch in hide_errors(_collect(query, rows), "The lazy frame"):
            yield from table(batch, None).read(range(len(names)), rows)

    return replace(_source(schema, read, None), ordered=False)


def column(given: Any) -> Cells:
    """Read a Series."""
    # Arrow lacks these types.
    if str(given.dtype) in ("Object", "Int128", "UInt128"):
        return arrays.objects(given.to_list())
    return arrow.array(given.to_arrow())


def _collect(query: Any, rows: int) -> Iterator[Any]:
    if hasattr(query, "collect_batches"):
        yield from query.collect_batches(chunk_size=rows, maintain_order=True)
    else:
        yield query.collect(engine="streaming")


def _source(schema: Any, read: Any, n_rows: int | None) -> Source:
    kinds = [_kind(dtype) for dtype in schema.dtypes()]
    return Source(names=schema.names(), kinds=kinds, read=read, n_rows=n_rows)


def _kind(dtype: Any) -> Kind:
    if dtype.is_float():
        return "float"
    if dtype.is_numeric():
        return "number"
    if dtype.is_temporal() or dtype.is_nested():
        return "other"
    kinds: dict[str, Kind] = {"Boolean": "truth", "String": "text"}
    kinds |= dict.fromkeys(("Categorical", "Enum"), "category")
    name = type(dtype).__name__ if not isinstance(dtype, type) else dtype.__name__
    return kinds.get(name, "unknown")
