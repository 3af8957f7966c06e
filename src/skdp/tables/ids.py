"""Convert cells to ids, which identify the rows of a person.

An id is an exact integer or a string. Libraries guess a column's type from its cells,
so one person's cell may decide how the ids of others are stored. An id depends on that
as little as possible. 7, 7.0 and the strings "7", "007" and "7.0" are the same id,
because a library that reads them as numbers makes them equal. All other strings are
compared character by character. A date is the string in ISO form, such as "2026-01-31"
or "2026-01-31T09:30:00". It is in UTC, and without a time of day at midnight. So files
may store dates with different resolutions.

What a library merged before skdp sees it cannot be undone. Read as floats, "3.1" and
"3.10" are one id, and so are "12e3" and "12000", or two integers of 17 digits. A column
of floats is therefore refused as a unit (`refuse_floats`). The remedy is to read ids as
text, as skdp itself does if it gets the path of a CSV file. Types in memory are taken
as public, in columns of Python objects the type of each cell. Integers and strings may
be of any length.

A cell has no id if it is empty, blank, nan, None, or one of the usual strings for
missing cells, such as "NA". It is always safe to treat a cell as missing, because the
row of a missing id is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import numpy as np

from skdp.privacy.encoding import AnyArray, Coded
from skdp.privacy.persons import RowCounts, SomePersons
from skdp.schema import check
from skdp.schema.validation import fact
from skdp.tables import arrays, readers
from skdp.tables.cells import (
    MISSING,
    as_text,
    look_up,
    shorten_date,
    write_dates,
)
from skdp.tables.readers import Cells, Source, find_positions, make_slices

#: Name of a schema's unit if the ids are not columns of the table.
GIVEN = "(ids given)"
#: Number of rows to read at a time when the rows of persons are counted.
COUNT_ROWS = 1 << 18
#: Strings that mean a missing id, in lower case and without surrounding blanks.
_ABSENT = {"", "nan", "+nan", "-nan", "na", "n/a", "#n/a", "<na>", "null", "none"}
_ABSENT |= {"nat", "?", ".", "-"}
# Longer numbers are compared as strings, and int() may refuse them.
_WHOLE = re.compile(r"([+-]?[0-9]{1,400})(?:\.0*)?", re.ASCII)
_FLOATS = (float, np.floating)
#: Types whose cells may be looked up in a dict. Equal cells of these types (1 and True)
#: are the same id. A float is not, because it may equal an integer that it is not.
_PLAIN = set(map(id, (str, int, bool, bytes, type(None))))


@dataclass(frozen=True, eq=False, repr=False)
class Ids:
    """The ids that identify persons. They are columns of the table or given separately.

    Attributes
    ----------
    unit : str or tuple of str
        The unit of the schema.
    given : cells, optional
        The ids, if they are not columns of the table.
    some : SomePersons, optional
        The persons to use. The rows of all others are left out. By default all persons
        are used.
    """

    unit: str | tuple[str, ...]
    given: Cells | None = None
    some: SomePersons | None = None
    #: The names of the unit's columns, joined by commas as in `Layout`.
    name: str = fact()
    #: The names of the table's columns that hold the ids.
    columns: tuple[str, ...] = fact()

    def __post_init__(self) -> None:
        names = (self.unit,) if isinstance(self.unit, str) else tuple(self.unit)
        columns = names if self.given is None else ()
        vars(self).update(name=", ".join(names), columns=columns)

    @classmethod
    def of(cls, unit: Any) -> Ids:
        """Return the `Ids` for names of columns, or for the ids themselves.

        A list is read as names of columns, so ids must be passed as an array or a
        series.
        """
        if isinstance(unit, Ids):
            return unit
        if isinstance(unit, str):
            return cls(unit)
        if isinstance(unit, (list, tuple)):
            check(
                bool(unit) and all(isinstance(name, str) for name in unit),
                "unit must be a column's name, a list of names, or an array of ids.",
            )
            return cls(tuple(unit))
        return cls(GIVEN, readers.read_column(unit, "unit"))

    def read(self, source: Source, rows: int) -> Iterator[Coded]:
        """Yield the ids of a table, at most `rows` rows at a time."""
        if self.given is not None:
            whole = find_ids([self.given])
            for part in make_slices(len(whole.codes), rows):
                yield Coded(whole.codes[part], whole.values)
            return
        check(
            source.names is not None,
            "An array has no column names, so the ids must be an array too, got "
            f"unit={self.unit!r}.",
        )
        at = find_positions(source.names or (), self.columns)
        for columns in source.read(at, rows):
            yield find_ids(columns)

    def choose(self, some: SomePersons) -> Ids:
        """Return these `Ids` for a table that is used for only some persons."""
        return replace(self, some=some)

    def count(self, source: Source, least: int = 1) -> RowCounts:
        """Count the rows of each person in one pass. `RowCounts` explains `least`."""
        refuse_floats(source, self)
        counts = RowCounts(least)
        rows = COUNT_ROWS if self.given is None else readers.count_cells(self.given)
        for ids in self.read(source, max(1, rows)):
            counts.add(ids)
        return counts if self.some is None else counts.choose(self.some)


def refuse_floats(source: Source, ids: Ids | None) -> None:
    """Refuse ids that are stored as floats, by the type of their column alone."""
    if ids is None:
        return
    if ids.given is not None:
        kinds = {"unit": arrays.kind_of(ids.given)}
    else:
        at = find_positions(source.names or ids.columns, ids.columns)
        kinds = {n: source.kinds[i] for n, i in zip(ids.columns, at, strict=True)}
    for name, kind in kinds.items():
        check(
            kind not in ("float", "float category"),
            f"{name!r} holds floating-point numbers, which cannot be ids, because "
            'different ids such as "3.1" and "3.10" may have become one number. Read '
            "ids as text (dtype=str), or as integers.",
        )


def find_ids(columns: Sequence[Cells]) -> Coded:
    """Return the id of each row as a code. Rows without an id have the code MISSING.

    If there are several columns, the id of a row is the tuple of its ids in these
    columns. If any of them is missing, the row has no id.
    """
    coded = [_code(column) for column in columns]
    if len(coded) == 1:
        return coded[0]
    codes = np.column_stack([one.codes for one in coded]).astype(np.int64)
    codes[(codes < 0).any(axis=1)] = MISSING
    found, own = np.unique(codes, axis=0, return_inverse=True)
    values = [
        tuple(one.values[code] for one, code in zip(coded, row, strict=True))
        for row in found.tolist()
        if row[0] >= 0
    ]
    skipped = len(found) - len(values)  # unique sorts, so MISSING comes first
    return Coded(own.reshape(-1) - skipped, values)


def _code(column: Cells) -> Coded:
    """Return the ids of one column as codes."""
    if isinstance(column, Coded):
        return _join_equal_ids(column.codes, list(column.values))
    if not isinstance(column, np.ndarray):
        from skdp.tables import frames

        codes, values = frames.to_distinct(column)
        return _join_equal_ids(codes, [str(v) if type(v) is int else v for v in values])
    kind = column.dtype.kind
    if kind in "iu":
        unique, codes = np.unique(column, return_inverse=True)
        return Coded(codes, unique.tolist())
    if kind == "M":
        unique, codes = np.unique(column, return_inverse=True)
        return _join_equal_ids(codes, write_dates(unique))
    if kind == "m":  # a length of time identifies nobody
        return Coded(np.full(len(column), MISSING), [])
    if kind in "bfUS":
        unique, codes = np.unique(column, return_inverse=True)
        return _join_equal_ids(codes, unique.tolist())
    cells = column.tolist()
    if kind == "O" and not set(map(id, map(type, cells))) <= _PLAIN:
        return _join_equal_ids(np.arange(len(cells)), cells)
    places = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
    codes = np.fromiter(map(places.__getitem__, cells), np.int64, len(cells))
    return _join_equal_ids(codes, list(places))


def _join_equal_ids(codes: AnyArray, values: Sequence[object]) -> Coded:
    """Convert codes of cells to codes of ids. Different cells may have equal ids."""
    ids = [_find_id(value) for value in values]
    found = [one for one in dict.fromkeys(ids) if one is not None]
    places = {one: code for code, one in enumerate(found)}
    new = np.array([MISSING if one is None else places[one] for one in ids], np.int64)
    return Coded(look_up(codes, new, MISSING), found)


def _find_id(cell: Any) -> int | str | None:
    """Return the id of a cell, or None if it has none."""
    kind = type(cell)
    if kind is bool or kind is np.bool_:
        return int(cell)
    try:
        if issubclass(kind, _FLOATS) and not abs(float(cell)) < 2.0**53:
            return None  # larger floats merge integers
        if issubclass(kind, date):
            text = _write_date(cell)
        elif issubclass(kind, np.datetime64):
            (text,) = write_dates(np.array([cell]))
        else:
            text = str(cell) if kind is UUID else as_text(cell)
        text = None if text is None else str.__str__(text)  # not of a derived type
    except Exception:  # a derived type may raise any error
        return None
    if text and text[0].isalpha() and text[0] not in "nN":
        return text  # the usual case of an id that is not a number
    if text is None or text.strip().lower() in _ABSENT:
        return None
    whole = _WHOLE.fullmatch(text.strip())
    return text if whole is None else int(whole[1])


def _write_date(cell: Any) -> str | None:
    """Write a date as `write_dates` does, or return None for a missing one."""
    if cell != cell:
        return None
    if not isinstance(cell, datetime):
        return date.isoformat(cell)
    if cell.tzinfo is not None:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    nanoseconds = int(getattr(cell, "nanosecond", 0))  # pandas has them
    text = datetime.isoformat(cell, timespec="microseconds")
    return shorten_date(f"{text}{nanoseconds:03d}")
