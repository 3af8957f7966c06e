"""What a reader hands over: the public face of a table, and its columns in slices."""

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
"""What the type of a column says of it, no cell being read.

Libraries may have guessed numbers, texts and truths from the cells. A category is a
type that somebody asked for; "other" ones (dates, times, nested values) hold neither
numbers nor texts.
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
        What their types say of them.
    read : callable
        ``read(positions, rows)`` yields lists of cells, one for each position, of at
        most `rows` rows.
    n_rows : int, optional
        Number of rows, if it is known before reading.
    count : callable, optional
        Counts the rows where that is faster than to `read` them, and tells what it is
        given, if not None, the share of them that it has passed.
    share : callable, optional
        Share of a file's bytes that the last `read` has read so far.
    """

    names: Sequence[str] | None
    kinds: Sequence[Kind]
    read: Callable[[Sequence[int], int], Iterator[list[Cells]]]
    n_rows: int | None = None
    count: Callable[[Callable[[float], None] | None], int] | None = None
    share: Callable[[], float] | None = None


def library(name: str) -> Any:
    """A library of the ``tables`` extra, imported where it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise ImportError(
            f"Reading this table needs {root}. Install it: pip install {root}."
        ) from None


def installed(name: str) -> bool:
    """Whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def slices(n_rows: int, rows: int) -> Iterator[slice]:
    """Cut 0..n_rows into slices of at most `rows`."""
    return (slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def positions(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted columns are; raises if one is absent or there twice."""
    times = Counter(names)
    absent = [name for name in wanted if name not in times][:1]
    # Names that are all foreign may be the cells of a file without a header, which
    # no message may quote.
    known = len(set(wanted) & set(names)) > 0
    for name in absent:
        close = difflib.get_close_matches(name, names, 1) if known else []
        remedy = (
            f"Did you mean {close[0]!r}?"
            if close
            else "A fitted model needs it: add it, or rename the table's column. "
            "Before a fit the schema may leave it out."
            if known
            else "Nor has it any other of the schema's: name its columns."
        )
        check(False, f"The table has no column {name!r}. {remedy}")
    twice = [name for name in wanted if times[name] > 1][:1]
    check(not twice, f"The table has two columns {twice}: rename one of them.")
    where = {name: position for position, name in enumerate(names)}
    return [where[name] for name in wanted]


def quietly(rows: Iterator[T], what: str) -> Iterator[T]:
    """Iterate, and let no message of a library through: it might quote a cell."""
    while True:
        failed = False
        try:
            row = next(rows, None)
        except Exception:  # of whatever kind
            failed = True
        # Raised here, so that the library's error is not even its context.
        if failed:
            raise ValueError(f"{what} could not be read. Check it outside of skdp.")
        if row is None:
            return
        yield row
