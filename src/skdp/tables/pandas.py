"""Read pandas data frames. Rows keep their order, and the index is ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.tables import arrow
from skdp.tables.readers import Cells, Kind, Source, is_installed, make_slices


def table(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a DataFrame."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        columns = [_open(given.iloc[:, position]) for position in at]
        for part in make_slices(len(given), rows):
            yield [cut(part) for cut in columns]

    names = [str(name) for name in given.columns]
    kinds = [_kind(dtype) for dtype in given.dtypes]
    return Source(names=names, kinds=kinds, read=read, n_rows=len(given))


def _open(series: Any) -> Callable[[slice], Cells]:
    """Return a function that reads a slice of a Series.

    Slicing in pandas is slow, so the Series is converted once if this needs no copy.
    """
    dtype, data = series.dtype, series.array
    if hasattr(dtype, "categories"):
        codes, values = np.asarray(data.codes), _list_values(data.categories)
        return lambda part: _drop_unused(codes[part], values)
    if isinstance(dtype, np.dtype):
        cells = series.to_numpy()
        return lambda part: cells[part]
    return lambda part: column(series.iloc[part])


def column(given: Any) -> Cells:
    """Read a Series or an Index."""
    dtype, data = given.dtype, given.array
    if hasattr(dtype, "categories"):
        return _drop_unused(np.asarray(data.codes), _list_values(data.categories))
    if isinstance(dtype, np.dtype):
        return given.to_numpy()
    # Arrow cannot encode every string that pandas stores as a Python object.
    in_arrow = _storage(dtype) == "pyarrow"
    if in_arrow or (dtype.kind in "biuf" and is_installed("pyarrow")):
        convert = getattr(data, "__arrow_array__", data.__array__)
        return arrow.array(convert())
    return given.to_numpy(dtype=object)


def _list_values(categories: Any) -> list[object]:
    values = column(categories)
    if not isinstance(values, (np.ndarray, Coded)):
        values = arrow.to_objects(values)
    return list(values)


def _drop_unused(codes: Any, values: list[object]) -> Coded:
    """Return a categorical column, given its codes and its categories `values`.

    If there are more categories than rows, categories that no row has are dropped.
    """
    if len(values) > len(codes):
        used, codes = np.unique(codes, return_inverse=True)
        codes = codes - (used[:1] < 0).sum()
        values = [values[code] for code in used.tolist() if code >= 0]
    return Coded(codes=codes, values=values)


def _storage(dtype: Any) -> str | None:
    return getattr(dtype, "storage", None)


def _kind(dtype: Any) -> Kind:
    if hasattr(dtype, "categories"):
        return "category"
    if _storage(dtype) is not None:
        pyarrow_type = getattr(dtype, "pyarrow_dtype", None)
        return "text" if pyarrow_type is None else arrow.kind(pyarrow_type)
    kinds: dict[str, Kind] = {"b": "truth", "m": "other", "M": "other", "f": "float"}
    return "number" if dtype.kind in "iu" else kinds.get(dtype.kind, "unknown")
