"""What one cell means, as a number and as a category: total functions.

As a number: numbers and booleans are themselves (true is one), text is what Python's
``float`` makes of it (ASCII, no underscores, blanks around it allowed), ``true`` and
``false`` in any case are 1 and 0, an integer too large for a float is infinite. All
else is nan: dates, times, ``1,5``, numbers with an imaginary part, nested values, None.

As a category: a cell is the level of the same key (`skdp.schema.level_key`); if there
is none, of the same key without blanks around it; if there is none, of the same number
(``1.0``, ``01`` and ``1`` are one number, and so are ``true`` and 1), provided that
one level has it. So a column may be read as text, integers, floats or booleans, as its
source chose to, and its cells still find their levels. Dates, times, nan and None are
missing. An empty text is a text: it is missing unless the empty level is listed.

A cell of a type derived from one of these means what its base does: none of its own
methods is called. A cell whose type raises all the same is missing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from skdp.privacy.encoding import AnyArray, Coded
from skdp.schema import Categorical, FloatArray, level_key

MISSING = -1
"""Code of a cell that is no level."""

_TRUTH = {"true": 1.0, "false": 0.0}
# Longer ones are refused by int(); nobody lists them as levels.
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_TEXT = "OUST"
_NUMBERS = "biuf"
#: How a cell of a derived type becomes one of its base; a truth is an integer too.
_COPIES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (Decimal, lambda cell: Decimal.__new__(Decimal, cell)),
    (np.generic, np.generic.item),
)
#: Types whose methods are known, by identity: comparing types is up to them too.
_KNOWN = {str, bytes, int, float, bool, complex, Decimal, *np.sctypeDict.values()}
_PLAIN = set(map(id, _KNOWN))
_HASHED = {id(str), id(float), id(type(None))}
_FEW = 16  # levels, so that comparing with each of them is fast


def plain(cell: object) -> object:
    """Return a cell as the base of its type has it; None if it cannot be.

    A type derived from `str` may do as it likes in its methods, even raise.
    """
    kind = type(cell)
    if id(kind) in _PLAIN:
        return cell
    try:
        copies = (copy(cell) for base, copy in _COPIES if issubclass(kind, base))
        return next(copies, None)
    except Exception:  # of whatever kind
        return None


def number(cell: object) -> float:
    """What a cell is as a number; nan if it is none."""
    cell = plain(cell)
    if isinstance(cell, str):
        return text_number(cell)
    if isinstance(cell, bytes):
        return text_number(cell.decode("ascii", "replace"))
    cell = _real(cell)
    if not _is_number(cell):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if cell > 0 else -math.inf  # type: ignore[operator]
    except ValueError:
        return math.nan


def text_number(text: str) -> float:
    """What a text is as a number; nan if it is none."""
    if not text.isascii() or "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return _TRUTH.get(text.strip().lower(), math.nan)


class Levels:
    """The levels of a categorical column, to be found by what a cell holds."""

    def __init__(self, column: Categorical) -> None:
        self.values = column.levels
        self.exact = column.codes
        sharing: dict[float, list[str]] = defaultdict(list)
        for key in self.exact:
            if (value := _exact_number(key)) is not None:
                sharing[value].append(key)
        # A level written as the number itself comes before "01" or "true".
        best = {
            value: [key for key in keys if key == level_key(value)] or keys
            for value, keys in sharing.items()
        }
        self._by_number = {
            value: self.exact[keys[0]] for value, keys in best.items() if len(keys) == 1
        }

    def code(self, cell: object) -> int:
        """Index of the level that a cell is, MISSING if it is none."""
        text = as_text(cell)
        if text is None:
            return MISSING
        code = self.exact.get(text)
        if code is None:
            code = self.exact.get(text.strip())
        if code is None:
            value = _exact_number(text)
            code = None if value is None else self._by_number.get(value)
        return MISSING if code is None else code

    def codes(self, cells: Iterable[object]) -> AnyArray:
        """Index of the level of each cell, int32."""
        return np.fromiter(map(self.code, cells), np.int32)


class _Remembered(dict[object, int]):
    """Codes of cells, equal ones looked up once."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels

    def __missing__(self, cell: object) -> int:
        code = self[cell] = self._levels.code(cell)
        return code


def numbers(cells: AnyArray | Coded) -> FloatArray:
    """What each cell of a numpy or coded column is as a number."""
    if isinstance(cells, Coded):
        values = np.fromiter(map(number, cells.values), np.float64)
        return looked_up(cells.codes, values, np.nan)
    if cells.dtype.kind in _NUMBERS:
        return cells.astype(np.float64)
    if cells.dtype.kind == "c":
        return np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)
    if cells.dtype.kind in _TEXT:
        return np.fromiter(map(number, cells.tolist()), np.float64, len(cells))
    return np.full(len(cells), np.nan)


def codes(cells: AnyArray | Coded, levels: Levels) -> AnyArray:
    """Index of the level of each cell of a numpy or coded column."""
    if isinstance(cells, Coded):
        return looked_up(cells.codes, levels.codes(cells.values), MISSING)
    if cells.dtype.kind in _TEXT:
        return _text_codes(cells, levels)
    if cells.dtype.kind in _NUMBERS:
        # Not tolist: a float32 must be written with its own digits.
        unique, inverse = np.unique(cells, return_inverse=True)
        return levels.codes(unique)[inverse]
    if cells.dtype.kind == "c":
        return codes(numbers(cells), levels)
    return np.full(len(cells), MISSING, np.int32)


def _text_codes(cells: AnyArray, levels: Levels) -> AnyArray:
    if cells.dtype.kind == "U" and len(levels.exact) <= _FEW:
        return _few_codes(cells, levels)
    texts = cells.tolist()
    # Cells of other types can be equal and yet differ as texts: 1, 1.0 and True.
    if cells.dtype.kind in "OT" and not set(map(id, map(type, texts))) <= _HASHED:
        return levels.codes(texts)
    code = _Remembered(levels).__getitem__
    return np.fromiter(map(code, texts), np.int32, len(texts))


def _few_codes(cells: AnyArray, levels: Levels) -> AnyArray:
    """Codes of texts that are compared to one level after the other."""
    result = np.full(len(cells), MISSING, np.int32)
    rest = np.ones(len(cells), bool)
    for key, code in levels.exact.items():
        if not key.endswith("\0"):  # numpy drops it, of both sides of a comparison
            same = cells == key
            result[same] = code
            rest &= ~same
    result[rest] = levels.codes(cells[rest].tolist())
    return result


def looked_up(at: AnyArray, values: AnyArray, default: float) -> AnyArray:
    """``values[at]``, and the default where `at` points outside."""
    padded = np.append(values, np.array(default, values.dtype))
    return padded[np.where((at >= 0) & (at < len(values)), at, len(values))]


def _real(cell: object) -> object:
    """A complex cell that is real: one that is not turns a whole column complex."""
    if isinstance(cell, (complex, np.complexfloating)):
        return cell.real if cell.imag == 0 else math.nan
    return cell


def _is_number(cell: object) -> bool:
    # numpy counts a time span among the integers.
    kinds = (int, float, Decimal, np.bool_, np.integer, np.floating)
    return isinstance(cell, kinds) and not isinstance(cell, np.timedelta64)


def as_text(cell: object) -> str | None:
    """How a cell is compared; None if it is missing or of no use as a level."""
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


def number_key(text: str) -> str | None:
    """Key of the number or truth that a text stands for; None if it is none."""
    truth = text.strip().lower()
    if truth in _TRUTH:
        return truth
    value = _exact_number(text)
    return None if value is None else level_key(value)


def _exact_number(text: str) -> float | None:
    """The number a text stands for, integers exactly (Python's int is a float too)."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    value = text_number(text)
    return None if math.isnan(value) else value
