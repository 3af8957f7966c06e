"""A source: the public facts about a table, and its columns in slices."""

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

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Source:
    """A table that can be read once, slice by slice.

    Attributes
    ----------
    names : sequence of str, optional
        The columns; None if they are known by position only.
    kinds : sequence
        The kind of each column.
    read : callable
        ``read(positions, rows)`` yields lists of cells, one for each position, of at
        most `rows` rows.
    n_rows : int, optional
        Number of rows, if it is known before reading.
    count : callable, optional
        Counts the rows, if that is faster than `read`. Its argument, if not None, is
        called with the share of rows counted so far.
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
    """Whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def slices(n_rows: int, rows: int) -> Iterator[slice]:
    """Cut 0..n_rows into slices of at most `rows`."""
    return (slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def positions(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the positions of the wanted columns; each must occur exactly once."""
    times = Counter(names)
    absent = [name for name in wanted if name not in times][:1]
    # If no name is known, the names may be the cells of a file without a header,
    # which no message may quote.
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


def hide_errors(rows: Iterator[T], what: str) -> Iterator[T]:
    """Iterate, and replace a library's error message, which might quote a cell."""
    while True:
        failed = False
        try:
            row = next(rows, None)
        except Exception:
            failed = True
        # Raised outside of `except`, so the library's error is not its context.
        if failed:
            raise ValueError(f"{what} could not be read.")
        if row is None:
            return
        yield row
