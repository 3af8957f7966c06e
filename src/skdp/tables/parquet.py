"""Parquet files, read in batches of rows and only in the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skdp.tables import arrow
from skdp.tables.source import Cells, Source, library, quietly

#: Bytes of a column that are read ahead.
BUFFER = 1 << 20


def table(path: Path, wanted: Sequence[str] | None) -> Source:
    """A Parquet file."""
    parquet = library("pyarrow.parquet")
    (about,) = quietly(_opened(parquet, path), f"{path.name!r}")
    schema, n_rows = about

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names[position] for position in at]
        # By default the whole file would be held in memory until its end is read.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as opened:
            yield from arrow.batched(
                _batches(opened, names, rows), range(len(at)), rows
            )
        # Nor would what was read last be given back, tens of megabytes of it.
        library("pyarrow").default_memory_pool().release_unused()

    kinds = [arrow.kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


def _opened(parquet: Any, path: Path) -> Iterator[tuple[Any, int]]:
    with parquet.ParquetFile(path) as file:
        yield file.schema_arrow, file.metadata.num_rows


def _batches(opened: Any, names: list[str], rows: int) -> Iterator[Any]:
    for batch in opened.iter_batches(batch_size=rows, columns=names):
        yield batch.select(names)
