"""Open a table of any kind, for its public facts and for reading its columns.

A reader is chosen by the name of the table's type, so other libraries are not imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from skdp.schema import InputError, check
from skdp.tables.locations import (
    COMPRESSIONS,
    AnyPath,
    get_name,
    is_file,
    show_path,
    split_name,
)

Kind = Literal[
    "number",
    "float",
    "text",
    "truth",
    "category",
    "float category",
    "other",
    "unknown",
]
"""The kind of a column according to its type; no cell is read.

A library may have guessed from the cells that a column is of kind "number" (integers
and decimals), "float", "text" or "truth" (booleans). In contrast, a person chose that a
column is of kind "category". It is of kind "float category" if the library has made
floats of its categories. Columns of kind "other" (dates, times, nested values) have
neither numbers nor strings.
"""

Cells = Any
"""A slice of a column, as a numpy array of any type, a pyarrow Array or `Coded`."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Source:
    """A table that is read slice by slice.

    Attributes
    ----------
    names : sequence of str, optional
        The names of the columns, or None if they have no names.
    kinds : sequence
        The kind of each column.
    read : callable
        ``read(positions, rows)`` yields a list for each slice of at most `rows` rows.
        The list has the cells of each column at `positions`.
    n_rows : int, optional
        Number of rows, if it is known before reading.
    count : callable, optional
        A function that counts the rows, and is faster than `read`.
    share : callable, optional
        A function that returns the share of a file's bytes that the last `read` has
        read so far.
    ordered : bool
        Whether each `read` returns the rows in the same order. A query does not promise
        that. Its rows can only be joined with what is in the same batch, and never by
        their position.
    once : bool
        Whether the table can be read only once.
    """

    names: Sequence[str] | None
    kinds: Sequence[Kind]
    read: Callable[[Sequence[int], int], Iterator[list[Cells]]]
    n_rows: int | None = None
    count: Callable[[], int] | None = None
    share: Callable[[], float] | None = None
    ordered: bool = True
    once: bool = False


Reader = Callable[[Any, Sequence[str] | None], Source]

TABLES: Mapping[tuple[str, str], str] = {
    ("builtins", "dict"): "arrays:open_mapping",
    ("builtins", "str"): "readers:open_file",
    ("numpy", "ndarray"): "arrays:open_array",
    ("os", "PathLike"): "readers:open_file",
    ("pandas", "DataFrame"): "frames:open_pandas",
    ("pathlib", "PurePath"): "readers:open_file",
    ("polars", "DataFrame"): "frames:open_polars",
    ("polars", "LazyFrame"): "frames:open_lazy",
    ("pyarrow", "RecordBatch"): "frames:open_arrow",
    ("pyarrow", "Dataset"): "streams:open_dataset",
    ("pyarrow", "RecordBatchReader"): "streams:open_stream",
    ("pyarrow", "Table"): "frames:open_arrow",
    ("scipy", "_spbase"): "arrays:open_sparse",
    ("skdp", "PlacedTable"): "placed:open_placed",
}
"""Readers of tables, by root module and name of the type or of one of its bases."""

COLUMNS: Mapping[tuple[str, str], str] = {
    ("builtins", "list"): "arrays:read_objects",
    ("builtins", "tuple"): "arrays:read_objects",
    ("numpy", "ndarray"): "arrays:read_array",
    ("pandas", "Index"): "frames:read_pandas",
    ("pandas", "Series"): "frames:read_pandas",
    ("polars", "Series"): "frames:read_polars",
    ("pyarrow", "Array"): "frames:read_arrow",
    ("pyarrow", "ChunkedArray"): "frames:read_arrow",
    ("skdp", "PlacedColumn"): "placed:read_placed",
}
"""Readers of single columns, by root module and name of the type."""

FILES: Mapping[str, str] = {
    ".csv": "csv:open_csv",
    ".tsv": "csv:open_csv",
    ".parquet": "files:open_parquet",
    ".pq": "files:open_parquet",
    ".feather": "files:open_feather",
    ".arrow": "files:open_feather",
}
"""Readers of files, by extension."""

TEXT_FILES = (".csv", ".tsv")
"""Extensions of text files. They do not state types, and may be compressed."""


def is_in_memory(table: Any) -> bool:
    """Return whether a table is in memory, rather than a file, a query or a stream.

    The encoded records of such a table take less memory than the table itself.
    """
    # A query may have a length, which it computes when it is asked.
    reader = _find_table_reader(table) or ""
    elsewhere = reader.startswith("streams:") or hasattr(table, "__dask_graph__")
    return hasattr(table, "__len__") and not isinstance(table, str) and not elsewhere


def is_copied(table: Any) -> bool:
    """Return whether reading rows of a table in memory copies their cells.

    Sparse matrices become dense, and masked cells become None.
    """
    return issparse(table) or isinstance(table, np.ma.MaskedArray)


def open_source(table: Any, wanted: Sequence[str] | None = None) -> Source:
    """Open a table of any kind; `wanted` names the columns that will be read."""
    where = _find_table_reader(table)
    check(
        where is not None,
        "A table must be a pandas or polars frame, a pyarrow table or data set, a "
        "query that exports an Arrow stream (such as connection.sql(...) of DuckDB), a "
        "dict of columns, a 2-D array, a sparse matrix or the path of CSV, Parquet or "
        f"Feather files, got {type(table).__name__}.",
    )
    reader: Reader = _load(str(where))
    return reader(table, wanted)


def _find_table_reader(table: Any) -> str | None:
    where = _find_reader(table, TABLES)
    if where is None and hasattr(table, "__arrow_c_stream__"):
        return "streams:open_stream"
    return where


def is_path(table: Any) -> bool:
    """Return whether a table is the path of a file or directory."""
    return isinstance(table, (str, PathLike))


def is_text_file(table: Any) -> bool:
    """Return whether a table is the path of a text file, whose cells have no types."""
    return is_path(table) and split_name(table)[0] in TEXT_FILES


def check_path(given: Any) -> list[PathLike[str]] | None:
    """Refuse the path of something that is not a table. No file is opened.

    Return the files of a folder, or None if the path is that of one file.
    """
    shown = show_path(given)
    check(
        not os.path.isfile(os.path.join(given, "model.json")),
        f"{shown!r} is a saved model, not a table.",
    )
    from skdp.tables.files import list_files  # not at the top: it imports this module

    files = list_files(given)
    if files is not None:
        for one in files:
            _find_file_reader(one)
        return files
    check(
        bool(split_name(given)[0]) or is_file(given),
        f"There is no file or directory {shown!r}.",
    )
    _find_file_reader(given)
    check(is_file(given), f"There is no file {shown!r}.")
    return None


def open_file(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a file with the reader for the file's extension, or a folder of files."""
    from skdp.tables.files import PartitionFile, open_folder, open_partition

    if isinstance(given, PartitionFile):
        return open_partition(given, wanted)
    # Paths are checked before a file is opened, so a file of another kind in a folder
    # is reported before hours of reading.
    files = check_path(given)
    if files is not None:
        return open_folder(files, wanted)
    reader: Reader = _load(_find_file_reader(given))
    return reader(given, wanted)


@dataclass(frozen=True)
class Section(PathLike[str]):
    """A part of a file. All sections of a file together have the rows of the file.

    Attributes
    ----------
    whole : str or path
        The path of the whole file.
    first, stop : int
        In a CSV file, the section has the rows that begin at the bytes from `first` to
        before `stop`. In a Parquet file, it has the row groups in that range.
    size : float
        The approximate number of bytes of the section.
    """

    whole: str | PathLike[str]
    first: int
    stop: int
    size: float

    def __fspath__(self) -> str:
        return os.fspath(self.whole)


def split_file(given: PathLike[str], most: float) -> list[Any]:
    """Split a file into sections of about `most` bytes, if the format allows it."""
    from skdp.tables.files import PartitionFile

    if isinstance(given, PartitionFile):
        return [replace(given, file=one) for one in split_file(given.file, most)]
    module, reader = _find_file_reader(given).split(":")
    split = reader.replace("open_", "split_")  # open_csv and split_csv, and so on
    sections: list[Any] = _load(f"{module}:{split}")(given, most)
    return sections


def _find_file_reader(path: AnyPath) -> str:
    ending, compression = split_name(path)
    where = FILES.get(ending)
    if compression is not None and ending not in TEXT_FILES:
        where = None  # the others have compression of their own
    # The directories of a partitioned table are named after cells, so none is shown.
    check(
        where is not None,
        f"The file name must end in {', '.join(FILES)}, got {get_name(path)!r}. Text "
        f"files may be compressed ({', '.join(COMPRESSIONS)} after .csv).",
    )
    return str(where)


def read_column(given: Any, what: str) -> Cells:
    """Read a single column; `what` names the column in error messages."""
    where = _find_reader(given, COLUMNS)
    check(
        where is not None,
        f"{what} must be an array, a series or a list, got {type(given).__name__}.",
    )
    cells = _load(str(where))(given)
    if isinstance(cells, np.ndarray):
        check(
            cells.ndim == 1 or (cells.ndim == 2 and cells.shape[1] == 1),
            f"{what} must have 1 dimension, got {cells.ndim}.",
        )
        return cells.reshape(-1)
    return cells


def _find_reader(given: Any, registry: Mapping[tuple[str, str], str]) -> str | None:
    bases = (
        (base.__module__.partition(".")[0], base.__name__)
        for base in type(given).__mro__
    )
    return next((registry[base] for base in bases if base in registry), None)


def _load(where: str) -> Callable[..., Any]:
    module, name = where.split(":")
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"skdp.tables.{module}"), name
    )
    return function


def cut(cells: Cells, part: slice | npt.NDArray[np.intp]) -> Cells:
    """Return some rows of a column."""
    if hasattr(cells, "codes"):
        return type(cells)(codes=cells.codes[part], values=cells.values)
    return cells[part]


def count_cells(cells: Cells) -> int:
    """Return the number of rows of a column."""
    return len(cells.codes if hasattr(cells, "codes") else cells)


@cache
def import_library(name: str) -> Any:
    """Import a library of the ``tables`` extra."""
    try:
        return importlib.import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise ImportError(
            f"This requires {root}, which is not installed: pip install 'skdp[tables]'."
        ) from None


def is_installed(name: str) -> bool:
    """Return whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def make_slices(n_rows: int, rows: int) -> Iterator[slice]:
    """Return slices of nearly equal length, at most `rows`, that cover all rows."""
    n_slices = max(1, -(-n_rows // rows))
    step = max(1, -(-n_rows // n_slices))
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def find_positions(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the positions of the wanted columns; each must occur exactly once."""
    times = Counter(names)
    absent = [name for name in wanted if name not in times][:1]
    # If no wanted name is found, the names may be cells of a file without a header.
    # No message may quote them.
    known = len(set(wanted) & set(names)) > 0
    for name in absent:
        close = difflib.get_close_matches(name, names, 1) if known else []
        remedy = (
            f"Did you mean {close[0]!r}?"
            if close
            else "Every column of the schema is needed."
            if known
            else "None of the requested columns was found. Is the header missing?"
        )
        check(False, f"The table has no column {name!r}. {remedy}")
    twice = [name for name in wanted if times[name] > 1][:1]
    check(not twice, f"The table has several columns named {''.join(twice)!r}.")
    where = {name: position for position, name in enumerate(names)}
    return [where[name] for name in wanted]


def count_rows(source: Source) -> int:
    """Return the number of rows of a table."""
    if source.n_rows is not None:
        return source.n_rows
    if source.count is not None:
        return source.count()
    return sum(count_cells(cells[0]) for cells in source.read([0], 65_536))


def hide_errors(rows: Iterator[T], what: str) -> Iterator[T]:
    """Iterate over `rows`, and hide the errors of libraries, which may quote cells.

    An error that says only that `what` could not be read is raised instead.
    """
    while True:
        failed = False
        try:
            row = next(rows, None)
        except Exception:
            failed = True
        # The new error is raised outside of `except`. Inside, the library's error would
        # be shown as its cause.
        if failed:
            raise InputError(f"{what} could not be read.")
        if row is None:
            return
        yield row
