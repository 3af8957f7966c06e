"""Define `Source`, which has a table's public facts and reads columns in slices."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from skdp.schema import check

Kind = Literal["number", "text", "truth", "category", "other", "unknown"]
"""The kind of a column according to its type; no cell is read.

Libraries may have guessed numbers, texts and booleans from the cells. A category is a
type that someone chose. Columns of kind "other" (dates, times, nested values) contain
neither numbers nor texts.
"""

Cells = Any
"""A column's slice: a numpy array (typed or of objects), a pyarrow Array or Coded."""

#: Number of rows that are read at a time to count rows.
COUNT_ROWS = 65_536

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Source:
    """A table that is read slice by slice. A stream can be read only once.

    Attributes
    ----------
    names : sequence of str, optional
        The names of the columns, or None if they have no names.
    kinds : sequence
        The kind of each column.
    read : callable
        ``read(positions, rows)`` yields a list for each slice of at most `rows` rows.
        The list has the cells of each column at `positions`.
    n_rows : int, optional
        Number of rows, if it is known before reading.
    count : callable, optional
        Counts the rows faster than `read` does. The argument is None, or a function
        that is called with the share of the table counted so far.
    share : callable, optional
        Returns the share of a file's bytes that the last `read` has read so far.
    """

    names: Sequence[str] | None
    kinds: Sequence[Kind]
    read: Callable[[Sequence[int], int], Iterator[list[Cells]]]
    n_rows: int | None = None
    count: Callable[[Callable[[float], None] | None], int] | None = None
    share: Callable[[], float] | None = None


def library(name: str) -> Any:
    """Import a library of the ``tables`` extra."""
    try:
        return importlib.import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise ImportError(
            f"Reading this table requires {root}: pip install {root}."
        ) from None


def installed(name: str) -> bool:
    """Return whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def slices(n_rows: int, rows: int) -> Iterator[slice]:
    """Cut the range of `n_rows` rows into slices of at most `rows` rows."""
    return (slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def positions(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the positions of the wanted columns; each must occur exactly once."""
    times = Counter(names)
    absent = [name for name in wanted if name not in times][:1]
    # If no wanted name is found, the names may be cells of a file without a header.
    # No message may quote them.
    known = len(set(wanted) & set(names)) > 0
    for name in absent:
        close = difflib.get_close_matches(name, names, 1) if known else []
        remedy = (
            f"Did you mean {close[0]!r}?"
            if close
            else "A fitted model needs all columns of its schema."
            if known
            else "None of the schema's columns were found. Is the header missing?"
        )
        check(False, f"The table has no column {name!r}. {remedy}")
    twice = [name for name in wanted if times[name] > 1][:1]
    check(not twice, f"The table has two columns named {twice}.")
    where = {name: position for position, name in enumerate(names)}
    return [where[name] for name in wanted]


def count_rows(source: Source, progress: Callable[[float], None] | None = None) -> int:
    """Return the number of rows of a table."""
    if source.n_rows is not None:
        return source.n_rows
    if source.count is not None:
        return source.count(progress)
    columns = (cells for cells, *_ in source.read([0], COUNT_ROWS))
    return sum(len(getattr(cells, "codes", cells)) for cells in columns)


def hide_errors(rows: Iterator[T], what: str) -> Iterator[T]:
    """Iterate, and replace errors of a library, whose messages might quote a cell."""
    while True:
        failed = False
        try:
            row = next(rows, None)
        except Exception:
            failed = True
        # Raised outside of `except`, so that it does not show the library's error.
        if failed:
            raise ValueError(f"{what} could not be read.")
        if row is None:
            return
        yield row
