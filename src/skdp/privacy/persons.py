"""Count the rows of each person, so all rows of a person count as one record.

If a person has m rows, each of them counts as 1/m of a record. Averages of bounded
vectors are bounded, so the person adds no more to any sum than one record would,
whatever m is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import AnyArray, Coded, Records
from skdp.privacy.grid import UNIT_BITS
from skdp.schema import IntArray, check_integer, limit_codes

if TYPE_CHECKING:
    from skdp.privacy.queries import Slopes

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class SomePersons:
    """The persons in one of several folds, or all persons outside of it.

    Attributes
    ----------
    key : bytes
        Random bytes, which must be drawn once for all folds.
    n_folds, fold : int
        The number of folds, and the number of this fold.
    inside : bool
        Whether the persons in the fold are meant, rather than all others.
    """

    key: bytes
    n_folds: int
    fold: int
    inside: bool

    def contain(self, ids: Sequence[object]) -> BoolArray:
        """Return for each id whether the person is one of them.

        Notes
        -----
        **Guarantee.** For all tables, the answer for a person depends on the key and on
        this person's id alone. With the same key, a person is either in a fold or
        outside of it, in every process that asks.
        """
        own: BoolArray = find_buckets(ids, self.n_folds, self.key) == self.fold
        return own if self.inside else ~own


def find_buckets(ids: Iterable[object], n_buckets: int, key: bytes = b"") -> IntArray:
    """Return a number from 0 to n_buckets - 1 for each id, by a keyed hash of the id.

    Equal ids have equal numbers in every process.
    """
    # Python's own hash of a string differs from process to process, and workers must
    # agree about the bucket of an id.
    empty, digests = hashlib.blake2b(digest_size=8, key=key), []
    for one in ids:
        state = empty.copy()
        state.update(_write_id(one))
        digests.append(state.digest())
    words = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    return np.asarray((words % np.uint64(n_buckets)).astype(np.int64))


def _write_id(one: object) -> bytes:
    """Return the bytes of an id, which are equal for equal ids and differ otherwise.

    Other types than integers, strings and tuples of them are refused, because they may
    be equal but be written differently.
    """
    if type(one) is int:
        return b"i%d" % one
    if type(one) is str:
        return b"s" + one.encode("utf-8", "surrogatepass")
    if type(one) is not tuple:
        raise TypeError("An id must be an integer, a string or a tuple of these.")
    # Lengths come first, because ("a", "bc") and ("ab", "c") are two persons.
    parts = [_write_id(part) for part in one]
    return b"t" + b"".join(b"%d:%b" % (len(part), part) for part in parts)


class RowCounts:
    """The number of rows of each person, by the person's id.

    Ids are compared exactly, so two persons never share a count. Memory is
    proportional to the number of persons.

    Parameters
    ----------
    least : int
        Each person is treated as having at least this many rows. So a row counts as at
        most 1/least of a record, and a person with fewer than `least` rows counts as
        less than one record.
    """

    def __init__(self, least: int = 1) -> None:
        self.least = check_integer(least, "max_rows_per_unit", high=2**31 - 1)
        self._rows: dict[object, int] = {}

    def __len__(self) -> int:
        """Return the number of persons."""
        return len(self._rows)

    def add(self, ids: Coded) -> None:
        """Count some rows of the table. Rows without an id are not counted."""
        inside = ids.codes[(ids.codes >= 0) & (ids.codes < len(ids.values))]
        counts = np.bincount(inside, minlength=len(ids.values)).tolist()
        rows = self._rows
        for value, count in zip(ids.values, counts, strict=True):
            if count:
                rows[value] = rows.get(value, 0) + count

    def split(self, n_parts: int) -> list[RowCounts]:
        """Divide the persons into parts, by a hash of their ids.

        Equal ids are in the same part, whichever process counted them.
        """
        parts = [RowCounts(self.least) for _ in range(n_parts)]
        places = find_buckets(self._rows, n_parts).tolist()
        for place, (value, count) in zip(places, self._rows.items(), strict=True):
            parts[place]._rows[value] = count
        return parts

    def join(self, others: Iterable[RowCounts]) -> RowCounts:
        """Return the sum of these counts and the counts of other parts of the table."""
        total = RowCounts(self.least)
        for one in (self, *others):
            for value, count in one._rows.items():
                total._rows[value] = total._rows.get(value, 0) + count
        return total

    def select(self, wanted: RowCounts) -> RowCounts:
        """Return these counts for only those persons that `wanted` contains."""
        found = RowCounts(self.least)
        found._rows = {value: self._rows[value] for value in wanted._rows}
        return found

    def choose(self, some: SomePersons) -> RowCounts:
        """Return these counts for only some persons. Rows of others have divisor 0."""
        found = RowCounts(self.least)
        chosen = some.contain([*self._rows]).tolist()
        found._rows = dict(compress(self._rows.items(), chosen))
        return found

    def find_divisors(self, ids: Coded) -> IntArray:
        """Return the divisor m of each row.

        The row counts as 1/m of a record, or not at all if m is 0.

        Notes
        -----
        **Guarantee.** For every table whose rows were all counted by `add`, in any
        order and any batches, the shares 1/m of a person's rows add up to at most one.
        They depend only on the number of this person's rows and on `least`. A row
        without an id could belong to anyone, so its divisor is 0.
        """
        # The last entry is for codes outside of the values, which `limit_codes` maps to
        # it.
        rows = np.array([*(self._rows.get(v, 0) for v in ids.values), 0], np.int64)
        divisors = np.where(rows > 0, np.maximum(rows, self.least), 0)
        return np.asarray(divisors[limit_codes(ids.codes, len(ids.values))])


def divide_slopes(records: Records, slopes: Slopes) -> Slopes:
    """Return slopes that are bounded for all rows of a person together.

    Notes
    -----
    **Guarantee.** For every person, the slope norms of all rows add up to at most the
    cap of the grid. A person has at most m rows, where m is the divisor of the chunks
    that hold these rows, and m ⌊cap/m⌋ ≤ cap. If the schema has no unit, or if the
    slopes already have caps, the slopes are returned unchanged. If the rows are in
    other processes, each process calls this function for its own rows, and the call in
    the main process only sets the grid of the slopes.
    """
    if records.layout.unit is None or slopes.caps is not None:
        return slopes
    slopes = replace(slopes, bits=UNIT_BITS)
    if records.elsewhere:
        return slopes
    whole = [np.full(len(c.target), slopes.grid.cap, np.int32) for c in records.chunks]
    return replace(slopes, caps=divide_caps(records, whole))


def divide_caps(records: Records, caps: Sequence[AnyArray]) -> Sequence[AnyArray]:
    """Divide the caps of rows by the divisors of their chunks, and round down.

    Notes
    -----
    **Guarantee.** For all integer caps c_i ≥ 0 and every divisor m, the new cap
    ⌊c_i/m⌋ is at most c_i/m. A person has at most m rows, so the new caps of these rows
    add up to at most the largest c_i. If the schema has no unit, the caps are returned
    unchanged. They are also returned unchanged if the rows are in other processes,
    because each process calls this function for its own rows.
    """
    if records.layout.unit is None or records.elsewhere:
        return caps
    pairs = zip(caps, records.chunks, strict=True)
    most = np.iinfo(np.int32).max  # larger divisors give 0 too
    return [np.floor_divide(own, min(chunk.divisor, most)) for own, chunk in pairs]
