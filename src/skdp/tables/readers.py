"""Choose a reader by the name of a table's type, without importing other libraries."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skdp.schema import check
from skdp.tables import arrays, folder
from skdp.tables.csv import CSV
from skdp.tables.source import Cells, Source

Reader = Callable[[Any, Sequence[str] | None], Source]

TABLES: Mapping[tuple[str, str], str] = {
    ("builtins", "dict"): "arrays:mapping",
    ("builtins", "str"): "readers:file",
    ("numpy", "ndarray"): "arrays:matrix",
    ("os", "PathLike"): "readers:file",
    ("pandas", "DataFrame"): "pandas:table",
    ("pathlib", "PurePath"): "readers:file",
    ("polars", "DataFrame"): "polars:table",
    ("polars", "LazyFrame"): "polars:lazy",
    ("pyarrow", "RecordBatch"): "arrow:table",
    ("pyarrow", "RecordBatchReader"): "arrow:reader",
    ("pyarrow", "Table"): "arrow:table",
    ("scipy", "_spbase"): "sparse:matrix",
    ("skdp", "PlacedTable"): "placed:table",
}
"""Readers of tables, by root module and name of the type or of one of its bases."""

COLUMNS: Mapping[tuple[str, str], str] = {
    ("builtins", "list"): "arrays:objects",
    ("builtins", "tuple"): "arrays:objects",
    ("numpy", "ndarray"): "arrays:column",
    ("pandas", "Index"): "pandas:column",
    ("pandas", "Series"): "pandas:column",
    ("polars", "Series"): "polars:column",
    ("pyarrow", "Array"): "arrow:array",
    ("pyarrow", "ChunkedArray"): "arrow:array",
    ("skdp", "PlacedColumn"): "placed:column",
}
"""Readers of single columns, likewise."""

FILES: Mapping[str, str] = {
    ".csv": "csv:table",
    ".tsv": "csv:table",
    ".parquet": "parquet:table",
    ".pq": "parquet:table",
}
"""Readers of files, by extension."""


def source(table: Any, wanted: Sequence[str] | None = None) -> Source:
    """Open a table of any kind; `wanted` names the columns that will be read."""
    where = _find_reader(table, TABLES)
    if where is None and hasattr(table, "__arrow_c_stream__"):
        where = "arrow:stream"
    check(
        where is not None,
        "A table must be a pandas or polars frame, a pyarrow table, a dict of columns, "
        "a 2-D array, a sparse matrix or the path of CSV or Parquet files, got "
        f"{type(table).__name__}.",
    )
    reader: Reader = _load(str(where))
    return reader(table, wanted)


def file(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a file with the reader for the file's extension, or a folder of files."""
    path = Path(given)
    check(
        not os.path.isfile(path / "model.json"),
        f"There is no table in {str(path)!r}, which is a saved model.",
    )
    files = folder.list_files(given)
    if files is not None:
        for one in files:
            _find_file_reader(Path(one))
        return folder.table(files, wanted)
    where = _find_file_reader(path)
    check(path.is_file(), f"There is no file {str(path)!r}.")
    reader: Reader = _load(where)
    has_options = where == "csv:table" and isinstance(given, CSV)
    return reader(given if has_options else path, wanted)


def _find_file_reader(path: Path) -> str:
    where = FILES.get(path.suffix.lower())
    check(
        where is not None,
        f"The file must end in {', '.join(FILES)}, got {str(path)!r}.",
    )
    return str(where)


def column(given: Any, what: str) -> Cells:
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
        return arrays.column(cells).reshape(-1)
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
