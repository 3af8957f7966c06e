"""Read pandas data frames. Rows keep their order, and the index is ignored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.tables import arrow
from skdp.tables.readers import Cells, Kind, Source, installed, slices


def table(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a DataFrame."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        columns = [given.iloc[:, position] for position in at]
        for part in slices(len(given), rows):
            yield [column(series.iloc[part]) for series in columns]

    names = [str(name) for name in given.columns]
    kinds = [_kind(dtype) for dtype in given.dtypes]
    return Source(names=names, kinds=kinds, read=read, n_rows=len(given))


def column(given: Any) -> Cells:
    """Read a Series or an Index."""
    dtype, data = given.dtype, given.array
    if hasattr(dtype, "categories"):
        return _coded(np.asarray(data.codes), data.categories)
    if isinstance(dtype, np.dtype):
        return given.to_numpy()
    # Arrow cannot encode every string that pandas stores as a Python object.
    in_arrow = _storage(dtype) == "pyarrow"
    if in_arrow or (dtype.kind in "biuf" and installed("pyarrow")):
        convert = getattr(data, "__arrow_array__", data.__array__)
        return arrow.array(convert())
    return given.to_numpy(dtype=object)


def _coded(codes: Any, categories: Any) -> Coded:
    if len(categories) > len(codes):
        used, codes = np.unique(codes, return_inverse=True)
        codes = codes - (used[:1] < 0).sum()
        categories = categories[used[used >= 0]]
    values = column(categories)
    if not isinstance(values, (np.ndarray, Coded)):
        values = arrow.to_objects(values)
    return Coded(codes=codes, values=list(values))


def _storage(dtype: Any) -> str | None:
    return getattr(dtype, "storage", None)


def _kind(dtype: Any) -> Kind:
    if hasattr(dtype, "categories"):
        return "category"
    if _storage(dtype) is not None:
        pyarrow_type = getattr(dtype, "pyarrow_dtype", None)
        return "text" if pyarrow_type is None else arrow.kind(pyarrow_type)
    kinds: dict[str, Kind] = {"b": "truth", "m": "other", "M": "other"}
    return "number" if dtype.kind in "iuf" else kinds.get(dtype.kind, "unknown")
