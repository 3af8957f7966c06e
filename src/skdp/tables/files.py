"""Read Parquet and Feather files, and folders of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.schema import InputError, check
from skdp.tables import frames, readers
from skdp.tables.cells import MISSING
from skdp.tables.csv import CSV
from skdp.tables.locations import (
    Address,
    AnyPath,
    get_name,
    is_address,
    list_names,
    measure_file,
    open_for_arrow,
    show_path,
    walk_partitions,
)
from skdp.tables.readers import (
    Cells,
    Kind,
    Section,
    Source,
    count_cells,
    count_rows,
    find_positions,
    hide_errors,
    import_library,
)

# ---- Read only the required columns of Parquet files, in batches of rows


#: Number of bytes to read ahead in a column.
BUFFER = 1 << 20


def open_parquet(given: AnyPath, wanted: Sequence[str] | None) -> Source:
    """Open a Parquet file."""
    parquet = import_library("pyarrow.parquet")
    (about,) = hide_errors(_read_facts(parquet, given), f"{get_name(given)!r}")
    schema, groups = about
    own = range(len(groups))
    if isinstance(given, Section):
        own = own[given.first : given.stop]
    n_rows = sum(groups[group][0] for group in own)

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names[position] for position in at]
        # By default the whole file would stay in memory until its end is read.
        # In an object store, one request for much is faster than many for little.
        ahead = {"pre_buffer": is_address(given), "buffer_size": BUFFER}
        with (
            open_for_arrow(given) as file,
            parquet.ParquetFile(file, **ahead) as opened,
        ):
            batches = _read_batches(opened, names, rows, own)
            yield from frames.read_batches(batches, range(len(at)), rows)
        # Otherwise Arrow would keep tens of megabytes for later use.
        import_library("pyarrow").default_memory_pool().release_unused()

    kinds = [frames.find_arrow_kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


def split_parquet(given: AnyPath, most: float) -> list[Section]:
    """Split a file into sections of about `most` bytes, each of whole row groups."""
    found = _read_facts(import_library("pyarrow.parquet"), given)
    ((_, groups),) = hide_errors(found, f"{get_name(given)!r}")
    # Row groups state their sizes before compression. Scale them to the file's size.
    sizes = np.array([size for _, size in groups], float)
    sizes *= measure_file(given) / max(1.0, sizes.sum())
    first, sections = 0, []
    for stop in range(1, len(sizes) + 1):
        own = float(sizes[first:stop].sum())
        if own >= most or stop == len(sizes):
            sections.append(Section(given, first, stop, own))
            first = stop
    return sections or [Section(given, 0, 0, 0.0)]


def _read_facts(
    parquet: Any, path: AnyPath
) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
    """Yield one pair: the file's schema, and the rows and bytes of each row group."""
    with open_for_arrow(path) as opened, parquet.ParquetFile(opened) as file:
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


# ---- Read Feather files, which hold Arrow's record batches


def open_feather(given: AnyPath, wanted: Sequence[str] | None) -> Source:
    """Open a Feather file of version 2, which is an Arrow IPC file."""
    (schema,) = hide_errors(_read_schema(given), f"{get_name(given)!r}")

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        ipc = import_library("pyarrow.ipc")
        own = sorted(set(at))
        options = ipc.IpcReadOptions(included_fields=own)
        with open_for_arrow(given) as file:
            opened = ipc.open_file(file, options=options)
            batches = map(opened.get_batch, range(opened.num_record_batches))
            yield from frames.read_batches(batches, [own.index(i) for i in at], rows)

    return frames.make_arrow_source(schema, read, None)


def _read_schema(path: AnyPath) -> Iterator[Any]:
    """Yield the schema of a Feather file."""
    with open_for_arrow(path) as file:
        yield import_library("pyarrow.ipc").open_file(file).schema


def split_feather(given: AnyPath, most: float) -> list[Section]:
    """Return the whole file as one section."""
    return [Section(given, 0, 0, measure_file(given))]


# ---- Read all files of a directory, or all that match a pattern, as one table
#
# The order and the types of columns may differ from file to file, because columns are
# found by their names. The rows are in the order of the files' names. Directories such
# as ``year=2024`` in the directory hold the rows of which the column "year" is 2024.


@dataclass(frozen=True)
class PartitionFile(PathLike[str]):
    """A file of a partitioned directory, with the cells that its path stands for.

    Attributes
    ----------
    file : path
        The file or a section of it.
    cells : tuple of (str, str or None)
        The name of each column in the path, and the cell of all rows of the file.
    """

    file: PathLike[str]
    cells: tuple[tuple[str, str | None], ...]

    @property
    def size(self) -> float:
        """The number of bytes of a section."""
        assert isinstance(self.file, Section)
        return self.file.size

    def __fspath__(self) -> str:
        return os.fspath(self.file)


def list_files(given: AnyPath) -> list[PathLike[str]] | None:
    """Return the files of a directory or of a pattern such as ``data/*.parquet``.

    Return None if `given` is anything else.
    """
    if list_names(given) is None:
        return None
    found = list(walk_partitions(given))
    check(bool(found), f"There are no files in {show_path(given)!r}.")
    columns = {tuple(name for name, _ in cells) for _, cells in found}
    check(
        len(columns) == 1,
        f"All files of {show_path(given)!r} must be in directories of the same columns "
        "(the names before the equals sign).",
    )
    files = []
    for name, cells in found:
        file = replace_path(given, name)
        files.append(PartitionFile(file, cells) if cells else file)
    return files


def replace_path(given: AnyPath, path: str) -> PathLike[str]:
    """Return another path, with the options and partitions that `given` has."""
    if isinstance(given, PartitionFile):
        return replace(given, file=replace_path(given.file, path))
    if isinstance(given, CSV):
        return replace(given, path=path)
    return Address(path) if is_address(path) else Path(path)


def open_partition(given: PartitionFile, wanted: Sequence[str] | None) -> Source:
    """Open a file, with one more column for each directory that it is in.

    Some programs also write that column into the file, which is then read there.
    """
    source = readers.open_file(given.file, wanted)
    width, inside = len(source.kinds), source.names or ()
    above = [(name, cell) for name, cell in given.cells if name not in inside]

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        own = [position for position in at if position < width]
        for cells in source.read(own or [0], rows):
            n_rows, found = count_cells(cells[0]), iter(cells)
            yield [
                next(found) if position < width else fill(position - width, n_rows)
                for position in at
            ]

    def fill(index: int, n_rows: int) -> Coded:
        cell = above[index][1]
        code = MISSING if cell is None else 0
        return Coded(np.full(n_rows, code, np.int8), [] if cell is None else [cell])

    kinds: list[Kind] = ["unknown"] * len(above)
    return replace(
        source,
        names=[*inside, *(name for name, _ in above)],
        kinds=[*source.kinds, *kinds],
        read=read,
    )


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
                raise InputError(f"In {get_name(file)!r}: {error}") from None
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
