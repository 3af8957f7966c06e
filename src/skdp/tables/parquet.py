"""Read only the required columns of Parquet files, in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from skdp.tables import arrow
from skdp.tables.readers import Cells, Source, hide_errors, library

#: Number of bytes to read ahead in a column.
BUFFER = 1 << 20


def table(given: str | PathLike[str], wanted: Sequence[str] | None) -> Source:
    """Open a Parquet file."""
    path = Path(given)
    parquet = library("pyarrow.parquet")
    (about,) = hide_errors(_read_schema(parquet, path), f"{path.name!r}")
    schema, n_rows = about

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names[position] for position in at]
        # By default the whole file would stay in memory until its end is read.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as opened:
            batches = _read_batches(opened, names, rows)
            yield from arrow.read_batches(batches, range(len(at)), rows)
        # Arrow would keep tens of megabytes for later use.
        library("pyarrow").default_memory_pool().release_unused()

    kinds = [arrow.kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


def _read_schema(parquet: Any, path: Path) -> Iterator[tuple[Any, int]]:
    with parquet.ParquetFile(path) as file:
        yield file.schema_arrow, file.metadata.num_rows


def _read_batches(opened: Any, names: list[str], rows: int) -> Iterator[Any]:
    """Yield batches or tables of `rows` rows each, except the last.

    Arrow cuts some types of columns at row groups, and others not. Cells and ids are
    read one after the other, and must be cut at the same rows.
    """
    waiting: list[Any] = []
    n_rows = 0
    for batch in opened.iter_batches(batch_size=rows, columns=names):
        rest = batch.select(names)
        while n_rows + rest.num_rows >= rows:
            yield _join([*waiting, rest.slice(0, rows - n_rows)])
            rest = rest.slice(rows - n_rows)
            waiting, n_rows = [], 0
        if rest.num_rows:
            waiting.append(rest)
            n_rows += rest.num_rows
    if waiting:
        yield _join(waiting)


def _join(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return library("pyarrow").Table.from_batches(batches).unify_dictionaries()
