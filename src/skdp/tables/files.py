"""Read Parquet files, and folders of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.schema import InputError, check
from skdp.tables import frames, readers
from skdp.tables.csv import CSV
from skdp.tables.readers import (
    Cells,
    Section,
    Source,
    count_rows,
    find_positions,
    hide_errors,
    import_library,
)

# ---- Read only the required columns of Parquet files, in batches of rows


#: Number of bytes to read ahead in a column.
BUFFER = 1 << 20


def open_parquet(given: str | PathLike[str], wanted: Sequence[str] | None) -> Source:
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
            yield from frames.read_batches(batches, range(len(at)), rows)
        # Otherwise Arrow would keep tens of megabytes for later use.
        import_library("pyarrow").default_memory_pool().release_unused()

    kinds = [frames.find_arrow_kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


def split_parquet(given: str | PathLike[str], most: float) -> list[Section]:
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
            yield _join_batches([*waiting, rest.slice(0, rows - n_rows)])
            rest = rest.slice(rows - n_rows)
            waiting, n_rows = [], 0
        if rest.num_rows:
            waiting.append(rest)
            n_rows += rest.num_rows
    if waiting:
        yield _join_batches(waiting)


def _join_batches(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return import_library("pyarrow").Table.from_batches(batches).unify_dictionaries()


# ---- Read all files of a directory, or all that match a pattern, as one table
#
# The order and the types of columns may differ from file to file, because columns are
# found by their names. The rows are in the order of the files' names.


def list_files(given: str | PathLike[str]) -> list[PathLike[str]] | None:
    """Return the files of a directory or of a pattern such as ``data/*.parquet``.

    Return None if `given` is anything else. Files whose names begin with a dot or an
    underscore are left out. Programs that write directories of Parquet files use such
    names for metadata.
    """
    path = os.fspath(given)
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path)]
    elif has_magic(path) and not os.path.lexists(path):
        found = glob(path)
    else:
        return None
    names = sorted(one for one in found if os.path.basename(one)[0] not in "._")
    check(bool(names), f"There are no files in {path!r}.")
    if isinstance(given, CSV):
        return [replace(given, path=name) for name in names]
    return [Path(name) for name in names]


def open_folder(files: Sequence[PathLike[str]], wanted: Sequence[str] | None) -> Source:
    """Open files as one table."""
    first = readers.open_file(files[0], wanted)
    names, done = first.names or (), 0

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        nonlocal done
        needed = [names[position] for position in at]
        for done, file in enumerate(files):  # noqa: B007 (shown as progress)
            own = readers.open_file(file, needed)
            try:
                at = find_positions(own.names or (), needed)
            except InputError as error:
                raise InputError(f"In {Path(file).name!r}: {error}") from None
            yield from own.read(at, rows)

    def count() -> int:
        return sum(count_rows(readers.open_file(file, wanted)) for file in files)

    return Source(
        names=names,
        kinds=first.kinds,
        read=read,
        count=count,
        share=lambda: done / len(files),
        ordered=first.ordered,
    )
