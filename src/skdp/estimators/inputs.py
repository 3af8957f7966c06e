"""Accept the tables, columns and bounds that users of scikit-learn pass.

Shapes, types and lengths are public, and wrong ones are refused. Nothing here reads a
cell, because no error or warning may depend on a cell.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from skdp.engines.choice import is_dask
from skdp.schema import Schema, check
from skdp.schema.validation import check_numbers
from skdp.tables import arrays
from skdp.tables.readers import TABLES, Source

_LIBRARIES = {root for root, _ in TABLES} - {"builtins"}


def accept_table(X: Any, *, empty: bool = True) -> Any:
    """Return `X` as a table that skdp can read, or refuse it.

    A list of rows becomes an array of objects, because that type does not depend on any
    cell. The number of columns is the length of the first row, which is public. Shorter
    rows are filled up with missing cells, and longer rows are cut.

    Parameters
    ----------
    X : table
        As given to ``fit`` or ``predict``.
    empty : bool
        Whether the table may have no rows.
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
    """Turn a list of rows into an array. The first row determines its width."""
    first = _list_cells(rows[0]) if rows else None
    check(
        not (rows and isinstance(rows[0], dict)),
        "A list of dicts does not say which columns there are. Pass "
        "pandas.DataFrame(rows), or a dict with one list per column.",
    )
    if first is None:
        return np.empty(len(rows), dtype=object)  # the caller refuses 1-D
    if first and isinstance(first[0], (list, tuple)):
        return np.empty((len(rows), len(first), 1), dtype=object)  # refused as 3-D
    table = np.empty((len(rows), len(first)), dtype=object)
    for i, row in enumerate(rows):
        for j, cell in zip(range(len(first)), _list_cells(row) or [], strict=False):
            table[i, j] = cell
    return table


def _list_cells(row: Any) -> list[Any] | None:
    """Return the cells of a list, tuple or 1-D array, or None for any other row.

    If the row's class is derived from list or tuple and overrides some of its methods,
    the overriding methods are not called.
    """
    try:
        if hasattr(row, "__array__") and len(getattr(row, "shape", ())) == 1:
            row = row.tolist() if hasattr(row, "tolist") else None
    except Exception:  # a row may raise anything
        return None
    if issubclass(type(row), list):
        return list.copy(row)
    return [*tuple.__iter__(row)] if issubclass(type(row), tuple) else None


def accept_column(y: Any, what: str = "y") -> Any:
    """Return `y` as a column that skdp can read, or refuse it.

    An (n, 1) array is flattened, with a warning.
    """
    if y is None or isinstance(y, str) or is_dask(y):  # workers read Dask's columns
        return y
    if not _has_reader(y) and hasattr(y, "__array__"):
        y = np.asarray(y)
    elif isinstance(y, (list, tuple)):  # a nested list stays a single cell
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
        f"A column-vector {what} was passed when a 1d array was expected. Use "
        f"{what}.ravel().",
        DataConversionWarning,
        stacklevel=3,
    )
    return y.iloc[:, 0] if hasattr(y, "iloc") else y.reshape(-1)


def warn_of_floats(source: Source, schema: Schema) -> None:
    """Warn of categories in a column that a library has read as floats.

    Whole numbers are not affected, because they are matched by their value.
    """
    kinds = dict(zip(source.names or (), source.kinds, strict=False))
    columns: list[tuple[str, Any]] = [*schema.columns.items()]
    for name, column in [*columns, (schema.target_name or "", schema.target)]:
        levels = getattr(column, "levels", ())
        written = [str(level).removesuffix(".0").lstrip("-") for level in levels]
        if kinds.get(name) == "float" and not all(map(str.isdigit, written)):
            warnings.warn(
                f"Column {name!r} holds floating-point numbers, but its categories are "
                'not whole numbers. Different texts such as "3.1" and "3.10" may have '
                "become one number. Read the column as text (dtype=str).",
                UserWarning,
                stacklevel=4,
            )


def check_pair(given: Any, what: str = "bounds") -> tuple[Any, Any]:
    """Return a public pair (low, high), or refuse anything else."""
    listed = isinstance(given, (tuple, list)) or np.ndim(given) > 0
    check(
        listed and len(given) == 2,
        f"{what} must be a pair (low, high), got {given!r}.",
    )
    return given[0], given[1]


def check_width(X: Any, n_features: int, name: str) -> None:
    """Refuse an array or sparse matrix that does not have `n_features` columns."""
    if isinstance(X, np.ndarray) or hasattr(X, "tocsr"):
        check(
            X.shape[1] == n_features,
            f"X has {X.shape[1]} features, but {name} is expecting {n_features} "
            "features as input.",
        )


def name_target(schema: Schema | None, name: str, target: Any) -> Schema:
    """Return the schema with column `name` as its target. `name` was passed as `y`."""
    check(
        schema is not None,
        f"y is the string {name!r}. To name a column of the table, describe it in a "
        f"schema: Schema({{...}}, target=({name!r}, ...)). Without a schema, pass the "
        f"column itself: fit(df.drop(columns=[{name!r}]), df[{name!r}]).",
    )
    assert schema is not None
    described = target if schema.target is None else schema.target
    if isinstance(described, tuple):
        check(
            described[0] == name,
            f"The schema's target is {described[0]!r}, but y is {name!r}. Leave y out, "
            "or change the schema.",
        )
        return schema
    check(
        not isinstance(described, str),
        f"The schema does not describe the target {name!r}. Add target=({name!r}, "
        "...) to it.",
    )
    return replace(schema, target=(name, described))


def list_ranges(bounds: Any, n_columns: int) -> list[tuple[float, float] | None]:
    """Return each column's (low, high), from a pair of numbers or a pair of arrays."""
    if bounds is None:
        return [None] * n_columns
    lists = [np.ravel(list(end) if np.ndim(end) else end) for end in check_pair(bounds)]
    for ends in lists:
        check(
            len(ends) in (1, n_columns),
            "bounds must be two numbers, or two arrays with one number per column "
            f"({n_columns}), got an array of length {len(ends)}.",
        )
        check_numbers("bounds", **{f"end {i}": e for i, e in enumerate(ends.tolist())})
    shaped = [np.broadcast_to(np.asarray(b, float), (n_columns,)) for b in lists]
    return [(float(low), float(high)) for low, high in zip(*shaped, strict=True)]


def refuse_dates(table: Any, source: Source, names: Sequence[str | None]) -> None:
    """Refuse columns of a file whose type is a date, a time or a nested value.

    All cells of such a column would count as missing. The types in a file are public.
    The types of a table in memory may have been guessed from its cells, so its columns
    are not refused. Released sums will then cause a warning.
    """
    if not isinstance(table, (str, PathLike)):
        return
    types = dict(zip(source.names or names, source.kinds, strict=False))
    for name in names:
        check(
            types.get(name) != "other",
            f"Column {name!r} holds dates, times or nested values, which are neither "
            "numbers nor categories. Convert it, or leave it out.",
        )


def has_names(X: Any) -> bool:
    """Return whether all column names are strings. In pandas they may be numbers."""
    columns = getattr(X, "columns", None) if hasattr(X, "iloc") else None
    return columns is None or all(isinstance(name, str) for name in columns)


def _has_reader(given: Any) -> bool:
    """Return whether there is a reader for the library that defines a table's type."""
    roots = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    return bool(roots & _LIBRARIES) or hasattr(given, "__arrow_c_stream__")


def _refuse_complex(types: list[Any]) -> None:
    check(
        all(getattr(dtype, "kind", "") != "c" for dtype in types),
        "Complex data not supported.",
    )


def choose_seed(random_state: Any) -> int | None:
    """Return `random_state` as a seed, or None. A generator draws a seed."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    old = getattr(random_state, "randint", None)
    draw: Any = getattr(random_state, "integers", old)
    check(
        draw is not None,
        "random_state must be None, an integer or a generator of numpy, got "
        f"{random_state!r}.",
    )
    return int(draw(2**31 - 1))
