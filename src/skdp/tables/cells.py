"""Define what a cell means as a number and as a category.

No cell makes a function of this module fail.

As a number, a cell means the following. A number is itself, true is 1 and false is 0.
Python's ``float`` converts a string, which must be ASCII without underscores and may
have blanks around it. The strings ``true`` and ``false``, in upper or lower case, are 1
and 0. An integer too large for a float is infinite. Everything else is nan: dates,
times, ``1,5``, numbers with an imaginary part, nested values and None.

As a category, a cell means the level with the same key (`skdp.schema.level_key`). If no
level has this key, the key is looked up again without the blanks around it. If that
fails too, the cell means the level with the same number, provided that only one level
has that number. The strings ``1.0``, ``01`` and ``1`` are the same number, and so are
``true`` and 1. A cell therefore finds its level whether the column was read as strings,
integers, floats or booleans. Dates, times, nan and None are missing. An empty string is
missing unless the schema lists the empty level.

A cell whose type is derived from a known type, such as `str`, is read as the known
type. Methods of the derived type are not called. If reading the cell still raises an
error, the cell is missing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import AnyArray, Coded
from skdp.schema import Categorical, FloatArray, level_key, limit_codes

MISSING = -1
"""Code of a cell that matches no level."""

_TRUTH = {"true": 1.0, "false": 0.0}
# Longer integers are not used as levels, and int() may refuse them.
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_TEXT = "OUST"
_NUMBERS = "biuf"
#: Functions that convert a cell of a derived type to the base type. No type can be
#: derived from bool.
_COPIES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (Decimal, lambda cell: Decimal.__new__(Decimal, cell)),
    (np.generic, np.generic.item),
)
#: Types whose methods are known. They are compared by id, because a type may redefine
#: ==.
_KNOWN = {str, bytes, int, float, bool, complex, Decimal, *np.sctypeDict.values()}
_PLAIN = set(map(id, _KNOWN))
_HASHED = {id(str), id(float), id(type(None))}
_FEW = 16  # with at most this many levels, comparing with each of them is fast


def plain(cell: object) -> object:
    """Return a cell converted to a known base of its type, or None if that fails.

    A derived type may override methods to do anything, such as raise an error. The
    result has only the methods of the base type.
    """
    kind = type(cell)
    if id(kind) in _PLAIN:
        return cell
    try:
        copies = (copy(cell) for base, copy in _COPIES if issubclass(kind, base))
        return next(copies, None)
    except Exception:  # a derived type may raise any error
        return None


def number(cell: object) -> float:
    """Return a cell as a number, or nan if it is not one."""
    cell = plain(cell)
    if isinstance(cell, str):
        return text_number(cell)
    if isinstance(cell, bytes):
        return text_number(cell.decode("ascii", "replace"))
    cell = _real(cell)
    if not _is_number(cell):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]  # a number
    except OverflowError:
        return math.inf if cell > 0 else -math.inf  # type: ignore[operator]  # a number
    except ValueError:
        return math.nan


def text_number(text: str) -> float:
    """Return a string as a number, or nan if it is not one."""
    if not text.isascii() or "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return _TRUTH.get(text.strip().lower(), math.nan)


class Levels:
    """Find the level of each cell of a categorical column."""

    def __init__(self, column: Categorical) -> None:
        self.values = column.levels
        self.exact = column.codes
        #: The smallest type that holds MISSING and the number of levels.
        self.kind = np.min_scalar_type(-1 - len(self.exact))
        self._of_bytes: dict[np.dtype[Any], AnyArray] = {}
        sharing: dict[float, list[str]] = defaultdict(list)
        for key in self.exact:
            if (value := _exact_number(key)) is not None:
                sharing[value].append(key)
        # A level in its usual spelling takes precedence over "01" or "true".
        best = {
            value: [key for key in keys if key == level_key(value)] or keys
            for value, keys in sharing.items()
        }
        #: The code of each number that a level denotes, if it is the only one.
        self.by_number = {
            value: self.exact[keys[0]] for value, keys in best.items() if len(keys) == 1
        }

    def code(self, cell: object) -> int:
        """Return the index of a cell's level, or MISSING."""
        text = as_text(cell)
        if text is None:
            return MISSING
        code = self.exact.get(text)
        if code is None:
            code = self.exact.get(text.strip())
        if code is None:
            value = _exact_number(text)
            code = None if value is None else self.by_number.get(value)
        return MISSING if code is None else code

    def codes(self, cells: Iterable[object]) -> AnyArray:
        """Return the index of each cell's level, or MISSING."""
        return np.fromiter(map(self.code, cells), self.kind)

    def codes_of_bytes(self, kind: np.dtype[Any]) -> AnyArray:
        """Return `codes` of the 256 numbers of a type that takes one byte."""
        if kind not in self._of_bytes:
            self._of_bytes[kind] = self.codes(np.arange(256, dtype=np.uint8).view(kind))
        return self._of_bytes[kind]


class _CodeCache(dict[object, int]):
    """A cache of codes, so that equal cells are looked up only once."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels

    def __missing__(self, cell: object) -> int:
        code = self[cell] = self._levels.code(cell)
        return code


def numbers(cells: Any) -> FloatArray:
    """Return each cell of a column as a number, or nan if it is not one.

    A column is an array of numpy or pyarrow, or `Coded`.
    """
    if not isinstance(cells, (np.ndarray, Coded)):
        from skdp.tables import frames  # not at the top, because it imports this module

        return frames.to_numbers(cells)
    with np.errstate(all="ignore"):  # a cell's overflow must not become a warning
        return _numpy_numbers(cells)


def stored_numbers(cells: Any) -> AnyArray:
    """Return `numbers` of a column, but of their own type if that needs no copy."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in _NUMBERS:
        return cells
    if isinstance(cells, (np.ndarray, Coded)):
        return numbers(cells)
    from skdp.tables import frames  # not at the top, because it imports this module

    return frames.to_stored_numbers(cells)


def _numpy_numbers(cells: AnyArray | Coded) -> FloatArray:
    if isinstance(cells, Coded):
        values = np.fromiter(map(number, cells.values), np.float64)
        return look_up(cells.codes, values, np.nan)
    if cells.dtype.kind in _NUMBERS:
        return cells.astype(np.float64, copy=False)
    if cells.dtype.kind == "c":
        return np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)
    if cells.dtype.kind in _TEXT:
        return np.fromiter(map(number, cells.tolist()), np.float64, len(cells))
    return np.full(len(cells), np.nan)


def is_exact(numbers: AnyArray) -> npt.NDArray[np.bool_]:
    """Return which numbers numpy stores exactly, both as integers and as floats.

    If one cell of a column is missing, all integers of the column become floats. Floats
    cannot represent every integer above 2⁵³. A missing cell of one record could
    therefore change such an integer in another record.
    """
    exact: npt.NDArray[np.bool_] = np.abs(numbers.astype(np.float64)) < 2.0**53
    return exact


def codes(cells: Any, levels: Levels) -> AnyArray:
    """Return the index of each cell's level, or MISSING if the cell has none.

    If `cells` is Coded, any code that is not an index may stand for MISSING.
    """
    if not isinstance(cells, (np.ndarray, Coded)):
        from skdp.tables import frames  # not at the top, because it imports this module

        return frames.to_codes(cells, levels)
    if isinstance(cells, Coded):
        found = levels.codes(cells.values)
        if np.array_equal(found, np.arange(len(levels.values))):  # codes stay the same
            return cells.codes
        return look_up(cells.codes, found, MISSING)
    if cells.dtype.kind in _TEXT:
        return _code_texts(cells, levels)
    if cells.dtype.kind in _NUMBERS:
        if cells.dtype.itemsize == 1:  # only 256 possible numbers, so no need to sort
            return levels.codes_of_bytes(cells.dtype).take(cells.view(np.uint8))
        # tolist would turn a float32 into a float64, which prints more digits.
        unique, inverse = np.unique(cells, return_inverse=True)
        found = levels.codes(unique)
        return np.where(is_exact(unique), found, MISSING).astype(levels.kind)[inverse]
    if cells.dtype.kind == "c":
        return codes(numbers(cells), levels)
    return np.full(len(cells), MISSING, levels.kind)


def _code_texts(cells: AnyArray, levels: Levels) -> AnyArray:
    if cells.dtype.kind == "U" and len(levels.exact) <= _FEW:
        return _compare_codes(cells, levels)
    texts = cells.tolist()
    # Cells of other types can be equal but differ as strings: 1, 1.0 and True.
    if cells.dtype.kind in "OT" and not set(map(id, map(type, texts))) <= _HASHED:
        return levels.codes(texts)
    code = _CodeCache(levels).__getitem__
    return np.fromiter(map(code, texts), levels.kind, len(texts))


def _compare_codes(cells: AnyArray, levels: Levels) -> AnyArray:
    """Find the codes of strings by comparing all of them with one level at a time."""
    result = np.full(len(cells), MISSING, levels.kind)
    rest = np.ones(len(cells), bool)
    for key, code in levels.exact.items():
        if not key.endswith("\0"):  # numpy drops it from both sides of a comparison
            same = cells == key
            result[same] = code
            rest &= ~same
    result[rest] = levels.codes(cells[rest].tolist())
    return result


def look_up(at: AnyArray, values: AnyArray, default: float) -> AnyArray:
    """Return ``values[at]``, and the default where `at` is out of range."""
    padded = np.append(values, np.array(default, values.dtype))
    return padded.take(limit_codes(at, len(values)))


def _real(cell: object) -> object:
    """Return a complex cell as a real number, or nan if it has an imaginary part.

    A single complex cell makes the whole column complex, so real numbers may be stored
    as complex ones. Cells that are not complex are returned unchanged.
    """
    if isinstance(cell, (complex, np.complexfloating)):
        return cell.real if cell.imag == 0 else math.nan
    return cell


def _is_number(cell: object) -> bool:
    # numpy's timedelta64 is derived from its integers.
    kinds = (int, float, Decimal, np.bool_, np.integer, np.floating)
    return isinstance(cell, kinds) and not isinstance(cell, np.timedelta64)


def as_text(cell: object) -> str | None:
    """Return a cell as a string to compare with levels, or None for other types."""
    cell = plain(cell)
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return None
    cell = _real(cell)
    if not _is_number(cell) or math.isnan(number(cell)):
        return None
    try:
        return level_key(cell)
    except ValueError:  # an integer of thousands of digits
        return None


def write_dates(dates: AnyArray) -> list[str]:
    """Write dates in ISO form, in the same way for all resolutions.

    A date without a time of day is written like midnight of that day.
    """
    texts: list[str] = np.datetime_as_string(dates, unit="ns").tolist()
    return [shorten_date(text) for text in texts]


def shorten_date(text: str) -> str:
    """Return an ISO date and time without zeros at the end of the fraction.

    The time of day is left out if it is midnight.
    """
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.removesuffix("T00:00:00")


def number_key(text: str) -> str | None:
    """Return the key of the number or boolean that a string denotes, or None."""
    truth = text.strip().lower()
    if truth in _TRUTH:
        return truth
    value = _exact_number(text)
    return None if value is None else level_key(value)


def _exact_number(text: str) -> float | None:
    """Return the number that a string denotes, or None. Integers are exact."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    value = text_number(text)
    return None if math.isnan(value) else value


# ---- Convert cells to string keys, from which levels are discovered privately
#
# Libraries guess a column's type from its cells, so a single cell may decide whether
# all cells become strings, integers, floats or booleans. The discovered levels must not
# depend on that. A cell therefore has the same key as the string that it was read from.


def keys(column: Any) -> Coded:
    """Return the distinct keys, and for each cell the code of its key.

    Missing cells have code -1.
    """
    if not isinstance(column, (np.ndarray, Coded)):
        from skdp.tables import frames

        column = frames.to_coded(column)
    if isinstance(column, Coded):
        texts = [_key(value) for value in column.values]
        own = limit_codes(column.codes, len(texts))
    elif column.dtype.kind in "biuf":
        unique, own = np.unique(column, return_inverse=True)
        texts = [_key(value) for value in unique]
    else:
        texts, own = [_key(cell) for cell in column], np.arange(len(column))
    found = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    found.pop(None, None)
    values = list(found)
    places = {text: code for code, text in enumerate(values)}
    codes = np.array([*(places.get(t, MISSING) for t in texts), MISSING])
    return Coded(codes[own], values)


def magnitudes(column: Any) -> Any:
    """Return cells as numbers. Strings that are not numbers are masked.

    Missing cells are nan and not masked.
    """
    values = numbers(column)
    absent = np.isnan(values)
    if not absent.any():
        return values
    found = keys(column)
    texts = np.array([bool(str(key).strip()) for key in found.values], bool)
    return np.ma.masked_array(values, absent & look_up(found.codes, texts, False))


def _key(cell: object) -> str | None:
    """Return the key of a cell, or None if the cell is missing.

    A number has the same key however it is written or stored.
    """
    text = as_text(cell)
    if text is None:
        return None
    key = number_key(text)
    if key is not None:
        return key
    return None if _is_nan(text) else text


def _is_nan(text: str) -> bool:
    """Return whether a string denotes a missing number, such as "nan"."""
    return math.isnan(text_number(text)) and text.strip().lower().lstrip("+-") == "nan"
