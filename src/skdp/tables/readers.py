"""Which reader reads what: by the name of a type, so that no library is imported."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skdp.schema import check
from skdp.tables import arrays
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
}
"""Reader of a table, by root module and name of its type or of a base of it."""

COLUMNS: Mapping[tuple[str, str], str] = {
    ("builtins", "list"): "arrays:objects",
    ("builtins", "tuple"): "arrays:objects",
    ("numpy", "ndarray"): "arrays:column",
    ("pandas", "Index"): "pandas:column",
    ("pandas", "Series"): "pandas:column",
    ("polars", "Series"): "polars:column",
    ("pyarrow", "Array"): "arrow:array",
    ("pyarrow", "ChunkedArray"): "arrow:array",
}
"""Reader of one column, likewise."""

FILES: Mapping[str, str] = {
    ".csv": "csv:table",
    ".tsv": "csv:table",
    ".parquet": "parquet:table",
    ".pq": "parquet:table",
}
"""Reader of a file, by its extension."""


def source(table: Any, wanted: Sequence[str] | None = None) -> Source:
    """Open a table of any kind; `wanted` are the columns that will be asked for."""
    where = _registered(table, TABLES)
    if where is None and hasattr(table, "__arrow_c_stream__"):
        where = "arrow:stream"
    check(
        where is not None,
        "A table is a pandas or polars frame, a pyarrow table, a dict of columns, a "
        "2-D array, a sparse matrix or the path of a CSV or Parquet file. "
        f"Got {type(table).__name__}: convert it.",
    )
    reader: Reader = _load(str(where))
    return reader(table, wanted)


def file(given: Any, wanted: Sequence[str] | None) -> Source:
    """A file, by its extension."""
    path = Path(given)
    where = FILES.get(path.suffix.lower())
    folder = _folder(path)
    remedy = f", {folder}: name a file" if folder else ": convert it"
    check(
        where is not None,
        f"A file of records ends in {', '.join(FILES)}. Got {str(path)!r}{remedy}.",
    )
    check(
        folder is None,
        f"There is no file {str(path)!r}, but {folder}: correct its path.",
    )
    check(path.is_file(), f"There is no file {str(path)!r}: correct its path.")
    reader: Reader = _load(str(where))
    told = where == "csv:table" and isinstance(given, CSV)
    return reader(given if told else path, wanted)


def _folder(path: Path) -> str | None:
    """What a directory is, for a message; None if the path is none."""
    if not os.path.isdir(path):
        return None
    return "a saved model" if os.path.isfile(path / "model.json") else "a directory"


def column(given: Any, what: str) -> Cells:
    """A column that comes by itself, `what` being its name in messages."""
    where = _registered(given, COLUMNS)
    check(
        where is not None,
        f"The {what} needs to be an array, a series or a list. "
        f"Got {type(given).__name__}: convert it.",
    )
    cells = _load(str(where))(given)
    if isinstance(cells, np.ndarray):
        check(
            cells.ndim == 1 or (cells.ndim == 2 and cells.shape[1] == 1),
            f"The {what} needs one dimension. Got {cells.ndim}: choose a column.",
        )
        return arrays.column(cells).reshape(-1)
    return cells


def _registered(given: Any, registry: Mapping[tuple[str, str], str]) -> str | None:
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
