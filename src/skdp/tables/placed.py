"""Define tables whose rows stay in other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from skdp.privacy.encoding import Records
from skdp.schema import IntArray, Layout
from skdp.tables.readers import Kind, Source

#: ``read(table, target, weight, keep)`` encodes a part of a table. `keep` says for each
#: row whether it is kept, or is None if all are.
Read = Callable[[Any, Any, Any, Any], Records]


class PlacedTable(ABC):
    """A table in parts, each of which another process reads.

    Each part has its own table. If the target and the weights were given separately, it
    also has its part of them.
    """

    @abstractmethod
    def source(self, wanted: Sequence[str] | None) -> Source:
        """Return public facts about the table, which this process cannot read."""

    @abstractmethod
    def add_up(self, work: Callable[[Any, Any], Any]) -> Any:
        """Return the sum of ``work(table, target)`` over all parts."""

    @abstractmethod
    def encode(
        self, layout: Layout, max_weight: float, read: Read, weighted: bool
    ) -> Records:
        """Have `read` encode each part where it is, with weights if `weighted`."""

    @abstractmethod
    def take(self, at: IntArray) -> PlacedTable:
        """Return a table of the rows at some positions, in ascending order."""


@dataclass(frozen=True, eq=False, repr=False)
class PlacedColumn:
    """A target or weights that the parts of a `PlacedTable` contain."""

    kind: Kind = "unknown"


@dataclass(frozen=True, eq=False, repr=False)
class PlacedCells:
    """Cells of a `PlacedTable`. ``read(table, target)`` yields those of a part."""

    table: PlacedTable
    read: Callable[[Any, Any], Iterable[Any]]

    def add_up(self, work: Callable[[Iterable[Any]], Any]) -> Any:
        """Return the sum of `work` over the cells of all parts."""
        return self.table.add_up(partial(_apply, self.read, work))


def table(given: PlacedTable, wanted: Sequence[str] | None) -> Source:
    """Open a placed table."""
    return given.source(wanted)


def column(given: PlacedColumn) -> PlacedColumn:
    """Return a column that only the parts of its table contain."""
    return given


def _apply(read: Any, work: Any, table: Any, target: Any) -> Any:
    return work(read(table, target))
