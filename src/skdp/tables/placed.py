"""Define tables whose rows stay in other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from skdp.privacy.encoding import Records
from skdp.privacy.persons import RowCounts
from skdp.schema import IntArray, Layout
from skdp.tables.readers import Kind, Source

if TYPE_CHECKING:
    from skdp.tables.ids import Ids

#: ``read(table, target, weight, keep, row_counts)`` encodes a part of a table. `keep`
#: says for each row whether it is kept, or is None if all rows are kept. For each
#: person of the part, `row_counts` has the number of the person's rows in the whole
#: table. If the schema has no unit, `row_counts` is None.
Read = Callable[[Any, Any, Any, Any, Any], Records]


class PlacedTable(ABC):
    """A table in several parts, which other processes read.

    Each part has its own table. If the target and the weights were given separately,
    each part also has the targets and weights of its rows.
    """

    @abstractmethod
    def source(self, wanted: Sequence[str] | None) -> Source:
        """Return public facts about the table. This process cannot read its cells."""

    @abstractmethod
    def add_up(self, work: Callable[..., Any], counts: RowCounts | None = None) -> Any:
        """Return the sum of ``work(table, target, row_counts)`` over all parts.

        `row_counts` has the number of rows of each person of the part, as in `Read`.
        """

    @abstractmethod
    def encode(
        self,
        layout: Layout,
        max_weight: float,
        read: Read,
        weighted: bool,
        counts: RowCounts | None,
    ) -> Records:
        """Encode each part with `read`, in the process that holds the part.

        `weighted` says whether the rows have weights.
        """

    @abstractmethod
    def count_rows_per_unit(self, ids: Ids, least: int) -> RowCounts:
        """Count the rows of each person. `RowCounts` explains `least`.

        The counts stay where the rows are. Only the methods of this class and ``len``
        can use them.
        """

    @abstractmethod
    def take(self, at: IntArray) -> PlacedTable:
        """Return a table with only the rows at positions `at`, in the same order.

        A table whose rows have no fixed order is refused.
        """


@dataclass(frozen=True, eq=False, repr=False)
class PlacedColumn:
    """A target or weights that are stored with the parts of a `PlacedTable`."""

    kind: Kind = "unknown"


@dataclass(frozen=True, eq=False, repr=False)
class PlacedCells:
    """Cells of a `PlacedTable`.

    ``read(table, target, row_counts)`` yields the cells and divisors of a part.
    """

    table: PlacedTable
    read: Callable[[Any, Any, RowCounts | None], Iterable[Any]]
    counts: RowCounts | None

    def add_up(self, work: Callable[..., Any]) -> Any:
        """Return the sum of ``work(batches)`` over the batches of all parts."""
        return self.table.add_up(partial(_work_on_part, self.read, work), self.counts)


def open_placed(given: PlacedTable, wanted: Sequence[str] | None) -> Source:
    """Open a placed table."""
    return given.source(wanted)


def read_placed(given: PlacedColumn) -> PlacedColumn:
    """Return the column unchanged, because its cells are in other processes."""
    return given


def _work_on_part(
    read: Any, work: Any, table: Any, target: Any, row_counts: Any
) -> Any:
    return work(read(table, target, row_counts))
