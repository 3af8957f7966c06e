"""Accept the tables and columns that users of scikit-learn pass.

Shapes, types and lengths are public, and wrong ones are refused. Nothing here reads a
cell, because an odd value must not show as an error or a warning.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from skdp.schema import check
from skdp.tables import arrays
from skdp.tables.readers import TABLES

_LIBRARIES = {root for root, _ in TABLES} - {"builtins"}


def accept_table(X: Any, *, empty: bool = True) -> Any:
    """Return a table that readers know, or refuse it.

    Rows in lists become an array of objects, a type that depends on no cell. The first
    row says how many columns there are, which is public. Shorter rows end in missing
    cells, and longer ones are cut.

    Parameters
    ----------
    X : table
        As given to ``fit`` or ``predict``.
    empty : bool
        Whether it may have no rows.
    """
    if isinstance(X, (list, tuple)):
        X = _stack_rows(X)
    elif not _has_reader(X) and hasattr(X, "__array__"):
        X = np.asarray(X)
    if hasattr(X, "dtype"):
        _refuse_complex([X.dtype])
    elif hasattr(X, "iloc"):  # only pandas has frames with complex columns
        _refuse_complex(list(X.dtypes))
    shape = getattr(X, "shape", None)
    if shape is None:
        return X
    check(
        len(shape) == 2,
        f"Expected 2D array, got {len(shape)}D array instead. Reshape your data: "
        "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row.",
    )
    for count, what in ((shape[1], "feature(s)"), (shape[0], "sample(s)")):
        check(
            count > 0 or (what == "sample(s)" and empty),
            f"Found array with {count} {what} (shape={tuple(shape)}) while a minimum "
            "of 1 is required.",
        )
    return X


def _stack_rows(rows: Any) -> Any:
    """Turn a list of rows into an array; the first row decides its dimensions."""
    first = _list_cells(rows[0]) if rows else None
    if first is None:
        return np.empty(len(rows), dtype=object)  # whose shape is refused
    if first and isinstance(first[0], (list, tuple)):
        return np.empty((len(rows), len(first), len(first[0])), dtype=object)
    table = np.empty((len(rows), len(first)), dtype=object)
    for i, row in enumerate(rows):
        for j, cell in zip(range(len(first)), _list_cells(row) or [], strict=False):
            table[i, j] = cell
    return table


def _list_cells(row: Any) -> list[Any] | None:
    """List the cells of a row, None if it is not one; derived lists run no methods."""
    try:
        if hasattr(row, "__array__") and len(getattr(row, "shape", ())) == 1:
            row = row.tolist() if hasattr(row, "tolist") else None
    except Exception:  # a row may raise anything
        return None
    if issubclass(type(row), list):
        return list.copy(row)
    return [*tuple.__iter__(row)] if issubclass(type(row), tuple) else None


def accept_column(y: Any, what: str = "y") -> Any:
    """Return a column that readers know, or refuse it; a (n, 1) array is flattened."""
    if y is None or isinstance(y, str):
        return y
    if not _has_reader(y) and hasattr(y, "__array__"):
        y = np.asarray(y)
    elif isinstance(y, (list, tuple)):  # a nested cell is not a number or a label
        y = arrays.objects(y)
    shape = getattr(y, "shape", None)
    _refuse_complex([y.dtype] if hasattr(y, "dtype") else [])
    if shape is None or len(shape) == 1:
        return y
    check(
        len(shape) == 2 and shape[1] == 1,
        f"{what} should be a 1d array, got an array of shape {tuple(shape)} instead.",
    )
    warnings.warn(
        f"A column-vector {what} was passed when a 1d array was expected: write "
        f"{what}.ravel().",
        DataConversionWarning,
        stacklevel=3,
    )
    return y.iloc[:, 0] if hasattr(y, "iloc") else y.reshape(-1)


def check_width(X: Any, n_features: int, name: str) -> None:
    """Refuse a table without column names that has another number of columns."""
    if isinstance(X, np.ndarray) or hasattr(X, "tocsr"):
        check(
            X.shape[1] == n_features,
            f"X has {X.shape[1]} features, but {name} is expecting {n_features} "
            "features as input.",
        )


def has_names(X: Any) -> bool:
    """Return whether the columns have names that are texts, not numbers of pandas."""
    columns = getattr(X, "columns", None) if hasattr(X, "iloc") else None
    return columns is None or all(isinstance(name, str) for name in columns)


def _has_reader(given: Any) -> bool:
    """Return whether there is a reader for the library that an object is of."""
    roots = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    return bool(roots & _LIBRARIES) or hasattr(given, "__arrow_c_stream__")


def _refuse_complex(types: list[Any]) -> None:
    check(
        all(getattr(dtype, "kind", "") != "c" for dtype in types),
        "Complex data not supported.",
    )
