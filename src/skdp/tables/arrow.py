"""Read pyarrow tables. `skdp.tables.cells` defines the meaning of their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from skdp.privacy.encoding import AnyArray, Coded
from skdp.schema import FloatArray
from skdp.tables import cells
from skdp.tables.cells import MISSING, Levels
from skdp.tables.readers import (
    Cells,
    Kind,
    Source,
    hide_errors,
    import_library,
    make_slices,
)

# Python's float and Arrow's cast convert strings of this form to the same number.
_PLAIN = r"^[+-]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?$"


def table(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a Table or RecordBatch."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(given.num_rows, rows):
            cut = given.slice(part.start, part.stop - part.start)
            yield [array(cut.column(position)) for position in at]

    return _source(given.schema, read, given.num_rows)


def reader(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a RecordBatchReader, which can be read only once."""

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        return read_batches(iter(given), at, rows)

    return _source(given.schema, read, None)


def stream(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open anything that supports the Arrow stream protocol, such as a query."""
    opened = import_library("pyarrow").RecordBatchReader.from_stream(given)
    return replace(reader(opened, wanted), ordered=False)


def read_batches(
    batches: Iterator[Any], at: Sequence[int], rows: int
) -> Iterator[list[Cells]]:
    """Yield the columns at positions `at` of a stream of record batches."""
    for batch in hide_errors(batches, "The stream"):
        for part in make_slices(batch.num_rows, rows):
            cut = batch.slice(part.start, part.stop - part.start)
            yield [array(cut.column(position)) for position in at]


def array(given: Any) -> Any:
    """Return an Array or a ChunkedArray as one Array."""
    if not hasattr(given, "combine_chunks"):
        return given
    whole = given.chunk(0) if given.num_chunks == 1 else given.combine_chunks()
    return array(whole)


def kind(type_: Any) -> Kind:
    """Return the kind of a column according to its Arrow type."""
    types = import_library("pyarrow.types")
    if types.is_boolean(type_):
        return "truth"
    if types.is_floating(type_):
        return "float"
    if types.is_integer(type_) or types.is_decimal(type_):
        return "number"
    if types.is_temporal(type_) or types.is_nested(type_):
        return "other"
    return "text" if _family(type_) in ("text", "dictionary") else "unknown"


def numbers(given: Any) -> FloatArray:
    """Return each cell as a number, or nan if it is not one."""
    pa = import_library("pyarrow")
    family = _family(given.type)
    if family == "number":
        floats = given.cast(pa.float64(), safe=False)
        return np.asarray(floats.to_numpy(zero_copy_only=False), np.float64)
    if family == "text":
        return _text_numbers(given)
    if family == "decimal":  # Arrow's cast to floats does not round correctly
        return _text_numbers(given.cast(pa.string()))
    if family == "dictionary":
        return cells.look_up(_indices(given), numbers(given.dictionary), np.nan)
    return np.full(len(given), np.nan)


def stored_numbers(given: Any) -> AnyArray:
    """Return the numbers of a column as they are stored, or `numbers` of it."""
    if _family(given.type) != "number" or given.null_count:
        return numbers(given)
    stored: AnyArray = given.to_numpy(zero_copy_only=False)  # booleans are bits there
    return stored


def codes(given: Any, levels: Levels) -> AnyArray:
    """Return the index of each cell's level, or MISSING if the cell has none."""
    family = _family(given.type)
    if family == "text":
        return _text_codes(given, levels)
    if family == "dictionary":
        return cells.look_up(_indices(given), codes(given.dictionary, levels), MISSING)
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


def _source(
    schema: Any,
    read: Callable[[Sequence[int], int], Iterator[list[Cells]]],
    n_rows: int | None,
) -> Source:
    kinds = [kind(field.type) for field in schema]
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
    cells_of: list[Any] = (_bytes(given) if family == "text" else given).to_pylist()
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
        given = _bytes(given)
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


def _bytes(given: Any) -> Any:
    """Return text as bytes, without checking the encoding."""
    pa = import_library("pyarrow")
    if given.type in (pa.large_binary(), pa.binary()):
        return given
    wide = import_library("pyarrow.types").is_large_string(given.type)
    return given.cast(pa.large_binary() if wide else pa.binary())


def _text_numbers(given: Any) -> FloatArray:
    pa, compute = import_library("pyarrow"), import_library("pyarrow.compute")
    text = _bytes(given)
    empty = compute.equal(compute.binary_length(text), 0)
    if compute.any(empty).as_py():
        # With a null scalar, pyarrow before 24 would mix up the rows of a slice.
        text = compute.if_else(empty, pa.nulls(len(text), text.type), text)
    try:
        return numbers(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        pass  # Arrow refuses the whole column if one cell is not a number
    plain = compute.fill_null(compute.match_substring_regex(text, _PLAIN), False)
    result = np.full(len(text), np.nan)
    at = plain.to_numpy(zero_copy_only=False)
    result[at] = numbers(text.filter(plain).cast(pa.float64()))
    rest = text.filter(compute.invert(plain)).dictionary_encode()
    values = np.fromiter(map(cells.number, rest.dictionary.to_pylist()), np.float64)
    result[~at] = cells.look_up(_indices(rest), values, np.nan)
    return result


def _text_codes(given: Any, levels: Levels) -> AnyArray:
    pa, compute = import_library("pyarrow"), import_library("pyarrow.compute")
    text = _bytes(given)
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
