"""Read frames of pandas and polars, and everything that Arrow can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np

from skdp.privacy.encoding import AnyArray, Coded
from skdp.schema import FloatArray
from skdp.tables import arrays, cells
from skdp.tables.cells import MISSING, Levels
from skdp.tables.readers import (
    Cells,
    Kind,
    Source,
    hide_errors,
    import_library,
    is_installed,
    make_slices,
)

# ---- Read pyarrow tables. `skdp.tables.cells` defines the meaning of their cells


# Python's float and Arrow's cast convert strings of this form to the same number.
_PLAIN = r"^[+-]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?$"


def open_arrow(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a Table or RecordBatch."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(given.num_rows, rows):
            cut = given.slice(part.start, part.stop - part.start)
            yield [read_arrow(cut.column(position)) for position in at]

    return make_arrow_source(given.schema, read, given.num_rows)


def read_batches(
    batches: Iterator[Any], at: Sequence[int], rows: int
) -> Iterator[list[Cells]]:
    """Yield the columns at positions `at` of a stream of record batches."""
    for batch in hide_errors(batches, "The stream"):
        for part in make_slices(batch.num_rows, rows):
            cut = batch.slice(part.start, part.stop - part.start)
            yield [read_arrow(cut.column(position)) for position in at]


def read_arrow(given: Any) -> Any:
    """Return an Array or a ChunkedArray as one Array, in the type it is stored in."""
    if hasattr(given, "combine_chunks"):
        given = given.chunk(0) if given.num_chunks == 1 else given.combine_chunks()
        return read_arrow(given)
    # Databases have types that Arrow lacks, such as numbers with any digits. They are
    # extensions of types that it has.
    if not hasattr(given, "storage"):
        return given
    if getattr(given.type, "extension_name", None) == "arrow.uuid":
        cells: list[bytes | None] = given.storage.to_pylist()
        texts = [None if one is None else str(UUID(bytes=one)) for one in cells]
        return import_library("pyarrow").array(texts, "string")
    return read_arrow(given.storage)


def find_arrow_kind(type_: Any) -> Kind:
    """Return the kind of a column according to its Arrow type."""
    types = import_library("pyarrow.types")
    if hasattr(type_, "storage_type"):
        return find_arrow_kind(type_.storage_type)
    if types.is_boolean(type_):
        return "truth"
    if types.is_floating(type_):
        return "float"
    if types.is_dictionary(type_) and types.is_floating(type_.value_type):
        return "float category"
    if types.is_integer(type_) or types.is_decimal(type_):
        return "number"
    if types.is_temporal(type_) or types.is_nested(type_):
        return "other"
    return "text" if _family(type_) in ("text", "dictionary") else "unknown"


def to_numbers(given: Any) -> FloatArray:
    """Return each cell as a number, or nan if it is not one."""
    pa = import_library("pyarrow")
    family = _family(given.type)
    if family == "number":
        # A safe cast raises an error for an integer above 2⁵³, and so would tell of one
        # cell.
        floats = given.cast(pa.float64(), safe=False)
        return np.asarray(floats.to_numpy(zero_copy_only=False), np.float64)
    if family == "text":
        return _text_numbers(given)
    if family == "decimal":  # Arrow's cast to floats does not round correctly
        return _text_numbers(given.cast(pa.string()))
    if family == "dictionary":
        return cells.look_up(_indices(given), to_numbers(given.dictionary), np.nan)
    return np.full(len(given), np.nan)


def to_stored_numbers(given: Any) -> AnyArray:
    """Return the numbers of a column as they are stored, or `numbers` of it."""
    if _family(given.type) != "number" or given.null_count:
        return to_numbers(given)
    stored: AnyArray = given.to_numpy(zero_copy_only=False)  # booleans are bits there
    return stored


def to_codes(given: Any, levels: Levels) -> AnyArray:
    """Return the index of each cell's level, or MISSING if the cell has none."""
    family = _family(given.type)
    if family == "text":
        return _code_arrow_texts(given, levels)
    if family == "dictionary":
        return cells.look_up(
            _indices(given), to_codes(given.dictionary, levels), MISSING
        )
    if family == "number":
        if import_library("pyarrow.types").is_float16(given.type):
            return cells.codes(given.to_numpy(zero_copy_only=False), levels)
        if given.type.bit_width == 8:  # only 256 possible numbers
            found = cells.codes(given.fill_null(0).to_numpy(), levels)
            if given.null_count:
                found[given.is_null().to_numpy(zero_copy_only=False)] = MISSING
            return found
        coded = given.dictionary_encode()
        # to_pylist would turn a float32 into a float64, which prints more digits.
        values = coded.dictionary.to_numpy(zero_copy_only=False)
        return cells.look_up(_indices(coded), levels.codes(values), MISSING)
    if family == "decimal":
        return levels.codes(given.to_pylist())
    return np.full(len(given), MISSING, levels.kind)


def make_arrow_source(
    schema: Any,
    read: Callable[[Sequence[int], int], Iterator[list[Cells]]],
    n_rows: int | None,
) -> Source:
    """Return a source of columns whose types are those of an Arrow schema."""
    kinds = [find_arrow_kind(field.type) for field in schema]
    return Source(names=schema.names, kinds=kinds, read=read, n_rows=n_rows)


@cache
def _family(type_: Any) -> str:
    """Return the family of an Arrow type, which decides how its cells are read.

    All cells of the family "other" count as missing.
    """
    types = import_library("pyarrow.types")
    families = {
        "number": (types.is_boolean, types.is_integer, types.is_floating),
        "decimal": (types.is_decimal,),
        "dictionary": (types.is_dictionary,),
        "text": (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_fixed_size_binary,
        ),
    }
    return next(
        (name for name, tests in families.items() if any(t(type_) for t in tests)),
        "other",
    )


def to_objects(given: Any) -> list[Any]:
    """Return cells as Python objects. Strings become bytes, and dates become None.

    No cell makes this function fail.
    """
    family = _family(given.type)
    if family == "other":
        return [None] * len(given)
    cells_of: list[Any] = (
        _cast_to_bytes(given) if family == "text" else given
    ).to_pylist()
    return cells_of


def to_coded(given: Any) -> Coded | AnyArray:
    """Return a dictionary column as codes, and any other column as objects."""
    if _family(given.type) == "dictionary":
        return Coded(_indices(given), to_objects(given.dictionary))
    cells_of = np.empty(len(given), dtype=object)
    cells_of[:] = to_objects(given)
    return cells_of


def to_distinct(given: Any) -> tuple[AnyArray, list[Any]]:
    """Return the code of each cell, and the distinct cells. A missing cell has code -1.

    Dates are returned as text. Lengths of time, times of day and cells of nested types
    count as missing.
    """
    is_coded = import_library("pyarrow.types").is_dictionary(given.type)
    if is_coded and _find_unit(given.type.value_type) is not None:
        given = given.dictionary_decode()
    unit = _find_unit(given.type)
    if unit is not None:
        coded = given.cast(f"int{given.type.bit_width}").dictionary_encode()
        numbers = np.asarray(coded.dictionary).astype(np.int64)
        return _indices(coded), cells.write_dates(numbers.astype(f"M8[{unit}]"))
    family = _family(given.type)
    if family == "other":
        return np.full(len(given), MISSING, np.int64), []
    if family == "text":
        given = _cast_to_bytes(given)
    coded = given if family == "dictionary" else given.dictionary_encode()
    return _indices(coded), to_objects(coded.dictionary)


def _find_unit(type_: Any) -> str | None:
    """Return the unit in which an Arrow type stores dates, or None for other types."""
    types = import_library("pyarrow.types")
    if types.is_date(type_):
        return "D" if types.is_date32(type_) else "ms"
    unit: str | None = type_.unit if types.is_timestamp(type_) else None
    return unit


def _indices(given: Any) -> AnyArray:
    indices = given.indices
    if not import_library("pyarrow.types").is_signed_integer(indices.type):
        # Unsigned indices could not represent MISSING.
        indices = indices.cast("int64", safe=False)
    indices = indices.fill_null(MISSING)
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def _cast_to_bytes(given: Any) -> Any:
    """Return text as bytes, without checking the encoding."""
    pa = import_library("pyarrow")
    # Some functions of Arrow raise an error for text that is not valid UTF-8, which a
    # single cell may hold. For bytes they do not.
    if given.type in (pa.large_binary(), pa.binary()):
        return given
    wide = import_library("pyarrow.types").is_large_string(given.type)
    return given.cast(pa.large_binary() if wide else pa.binary())


def _text_numbers(given: Any) -> FloatArray:
    pa, compute = import_library("pyarrow"), import_library("pyarrow.compute")
    text = _cast_to_bytes(given)
    empty = compute.equal(compute.binary_length(text), 0)
    if compute.any(empty).as_py():
        # With a null scalar, pyarrow before 24 would mix up the rows of a slice.
        text = compute.if_else(empty, pa.nulls(len(text), text.type), text)
    try:
        return to_numbers(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        pass  # Arrow refuses the whole column if one cell is not a number
    plain = compute.fill_null(compute.match_substring_regex(text, _PLAIN), False)
    result = np.full(len(text), np.nan)
    at = plain.to_numpy(zero_copy_only=False)
    result[at] = to_numbers(text.filter(plain).cast(pa.float64()))
    rest = text.filter(compute.invert(plain)).dictionary_encode()
    values = np.fromiter(map(cells.number, rest.dictionary.to_pylist()), np.float64)
    result[~at] = cells.look_up(_indices(rest), values, np.nan)
    return result


def _code_arrow_texts(given: Any, levels: Levels) -> AnyArray:
    pa, compute = import_library("pyarrow"), import_library("pyarrow.compute")
    text = _cast_to_bytes(given)
    # Most cells are spelled as in the schema, and Arrow finds these at once. Only the
    # others are compared in Python, each distinct text once.
    keys = [key.encode("utf-8", "replace") for key in levels.exact]
    found = compute.index_in(text, value_set=pa.array(keys, text.type))
    result = np.asarray(found.fill_null(MISSING).to_numpy(zero_copy_only=False))
    rest = compute.and_(found.is_null(), text.is_valid())
    if compute.any(rest).as_py():
        coded = text.filter(rest).dictionary_encode()
        values = levels.codes(coded.dictionary.to_pylist())
        result = result.copy()
        at = rest.to_numpy(zero_copy_only=False)
        result[at] = cells.look_up(_indices(coded), values, MISSING)
    return result


# ---- Read pandas data frames. Rows keep their order, and the index is ignored


def open_pandas(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a DataFrame."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        columns = [_open_series(given.iloc[:, position]) for position in at]
        for part in make_slices(len(given), rows):
            yield [cut(part) for cut in columns]

    names = [str(name) for name in given.columns]
    kinds = [_find_pandas_kind(dtype) for dtype in given.dtypes]
    return Source(names=names, kinds=kinds, read=read, n_rows=len(given))


def _open_series(series: Any) -> Callable[[slice], Cells]:
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
    return lambda part: read_pandas(series.iloc[part])


def read_pandas(given: Any) -> Cells:
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
        return read_arrow(convert())
    return given.to_numpy(dtype=object)


def _list_values(categories: Any) -> list[object]:
    values = read_pandas(categories)
    if not isinstance(values, (np.ndarray, Coded)):
        values = to_objects(values)
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


def _find_pandas_kind(dtype: Any) -> Kind:
    if hasattr(dtype, "categories"):
        return "float category" if dtype.categories.dtype.kind == "f" else "category"
    if _storage(dtype) is not None:
        pyarrow_type = getattr(dtype, "pyarrow_dtype", None)
        return "text" if pyarrow_type is None else find_arrow_kind(pyarrow_type)
    kinds: dict[str, Kind] = {"b": "truth", "m": "other", "M": "other", "f": "float"}
    return "number" if dtype.kind in "iu" else kinds.get(dtype.kind, "unknown")


# ---- Read eager and lazy polars frames. Columns become Arrow arrays


def open_polars(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a DataFrame."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(given.height, rows):
            cut = given[part]
            yield [read_polars(cut.to_series(position)) for position in at]

    return _make_polars_source(given.schema, read, given.height)


def open_lazy(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a LazyFrame; only the required columns are computed, in batches.

    Each read computes the query again. Joins and groups have no fixed order, and polars
    does not tell which queries have one, so the rows of a lazy frame are unordered.

    The query may fail at a cell, for example of a CSV file whose types polars guessed.
    Reading then fails too, so a lazy frame is only as safe as its query.
    """
    schema = given.collect_schema()

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        names = [schema.names()[position] for position in at]
        query = given.select(names)
        for batch in hide_errors(_collect(query, rows), "The lazy frame"):
            yield from open_polars(batch, None).read(range(len(names)), rows)

    return replace(_make_polars_source(schema, read, None), ordered=False)


def read_polars(given: Any) -> Cells:
    """Read a Series."""
    # Arrow lacks these types.
    if str(given.dtype) in ("Object", "Int128", "UInt128"):
        return arrays.read_objects(given.to_list())
    return read_arrow(given.to_arrow())


def _collect(query: Any, rows: int) -> Iterator[Any]:
    if hasattr(query, "collect_batches"):
        yield from query.collect_batches(chunk_size=rows, maintain_order=True)
    else:
        yield query.collect(engine="streaming")


def _make_polars_source(schema: Any, read: Any, n_rows: int | None) -> Source:
    kinds = [_find_polars_kind(dtype) for dtype in schema.dtypes()]
    return Source(names=schema.names(), kinds=kinds, read=read, n_rows=n_rows)


def _find_polars_kind(dtype: Any) -> Kind:
    if dtype.is_float():
        return "float"
    if dtype.is_numeric():
        return "number"
    if dtype.is_temporal() or dtype.is_nested():
        return "other"
    kinds: dict[str, Kind] = {"Boolean": "truth", "String": "text"}
    kinds |= dict.fromkeys(("Categorical", "Enum"), "category")
    name = type(dtype).__name__ if not isinstance(dtype, type) else dtype.__name__
    return kinds.get(name, "unknown")
