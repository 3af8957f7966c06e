"""Count the rows of each person, so that all of them together count as one record.

A row of a person with m rows counts 1/m. Averages of bounded vectors are bounded, so
the person adds no more to any sum than one record would, whatever m is.
"""

from __future__ import annotations

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.schema import IntArray, check


class RowCounts:
    """The number of rows of each person, by the person's id.

    Ids are compared exactly, so two persons never share a count. Memory is
    proportional to the number of persons.

    Parameters
    ----------
    least : int
        Count a person with fewer rows as if there were this many. A row then counts at
        most 1/least, and persons with fewer rows count less than others.
    """

    def __init__(self, least: int = 1) -> None:
        whole = isinstance(least, (int, np.integer)) and not isinstance(least, bool)
        check(
            whole and 1 <= least < 1 << 31,
            f"max_rows_per_unit must be a whole number of at least 1, got {least!r}.",
        )
        self.least = int(least)
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

    def find_divisors(self, ids: Coded) -> IntArray:
        """Return the number m for each row that counts 1/m, or 0 if it counts nothing.

        Notes
        -----
        **Guarantee.** For every table whose rows were all counted by `add`, in any
        order and any batches, the shares 1/m of a person's rows add up to at most one.
        They depend on the number of this person's rows and on `least` alone. A row
        without an id could be anyone's, so it counts for nothing.
        """
        last = len(ids.values)
        rows = np.array([*(self._rows.get(v, 0) for v in ids.values), 0], np.int64)
        divisors = np.where(rows > 0, np.maximum(rows, self.least), 0)
        inside = (ids.codes >= 0) & (ids.codes < last)
        return np.asarray(divisors[np.where(inside, ids.codes, last)])
