"""Read only the required columns of Parquet files, in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.tables import arrow
from skdp.tables.readers import Cells, Section, Source, hide_errors, import_library

#: Number of bytes to read ahead in a column.
BUFFER = 1 << 20


def table(given: str | PathLike[str], wanted: Sequence[str] | None) -> Source:
    """Open a Parquet file."""
    path = Path(given)
    parquet = import_library("pyarrow.parquet")
    (about,) = hide_errors(_read_facts(parquet, path), f"{path.name!r}")
    schema, groups = about
    own = range(len(groups))
    if isinstance(given, Section):
        own = own[given.first : given.stop]
    n_rows = sum(groups[group][0] for group in own)

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names[position] for position in at]
        # By default the whole file would stay in memory until its end is read.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as opened:
            batches = _read_batches(opened, names, rows, own)
            yield from arrow.read_batches(batches, range(len(at)), rows)
        # Otherwise Arrow would keep tens of megabytes for later use.
        import_library("pyarrow").default_memory_pool().release_unused()

    kinds = [arrow.kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


def split(given: str | PathLike[str], most: float) -> list[Section]:
    """Split a file into sections of about `most` bytes, each of whole row groups."""
    path = Path(given)
    found = _read_facts(import_library("pyarrow.parquet"), path)
    ((_, groups),) = hide_errors(found, f"{path.name!r}")
    # Row groups state their sizes before compression. Scale them to the file's size.
    sizes = np.array([size for _, size in groups], float)
    sizes *= path.stat().st_size / max(1.0, sizes.sum())
    first, sections = 0, []
    for stop in range(1, len(sizes) + 1):
        own = float(sizes[first:stop].sum())
        if own >= most or stop == len(sizes):
            sections.append(Section(path, first, stop, own))
            first = stop
    return sections or [Section(path, 0, 0, 0.0)]


def _read_facts(
    parquet: Any, path: Path
) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
    """Yield one pair: the file's schema, and the rows and bytes of each row group."""
    with parquet.ParquetFile(path) as file:
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
        yield file.schema_arrow, sizes


def _read_batches(
    opened: Any, names: list[str], rows: int, groups: Sequence[int]
) -> Iterator[Any]:
    """Yield batches or tables of `rows` rows each. The last one may have fewer rows.

    Arrow's own batches end at row groups. A file may have many short ones, and short
    batches are slow to convert.
    """
    waiting: list[Any] = []
    n_rows = 0
    for batch in opened.iter_batches(
        batch_size=rows, row_groups=list(groups), columns=names
    ):
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
    return import_library("pyarrow").Table.from_batches(batches).unify_dictionaries()
