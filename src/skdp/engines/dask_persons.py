"""Count the rows of each person on the workers of a Dask cluster.

A person's rows may be in several partitions. Each partition counts its own rows, and
divides its persons into buckets by a hash of their ids. One worker adds up the counts
of a bucket over all partitions. Each partition gets back the counts of its own persons.
Ids travel from worker to worker. Neither the scheduler nor the caller receives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from skdp.engines import dask_tasks
from skdp.engines.dask_client import Cluster, get_total, keep_trying
from skdp.engines.dask_engine import Part
from skdp.privacy.encoding import Coded
from skdp.privacy.persons import RowCounts
from skdp.tables import readers
from skdp.tables.ids import Ids

#: Largest number of buckets. Each bucket takes two small tasks per partition.
MOST_BUCKETS = 64


class ClusterCounts(RowCounts):
    """The number of rows of each person, on the workers of a cluster.

    Dask computes counts again if they were lost with a worker. Ids are compared
    exactly, so the result is the same as that of one process.

    Parameters
    ----------
    cluster : Cluster
        The cluster whose workers count the rows.
    parts : sequence of Part
        The partitions of the table.
    ids : Ids
        The columns of the table that identify persons.
    least : int
        As in `RowCounts`.
    """

    def __init__(
        self, cluster: Cluster, parts: Sequence[Part], ids: Ids, least: int
    ) -> None:
        super().__init__(least)
        self._cluster, self._parts, self._ids = cluster, parts, ids
        self._start()

    def _start(self) -> None:
        """Start the tasks that count rows, and keep only their final results."""
        call, workers = dask_tasks.call, self._cluster.find_workers()
        n_buckets, (worker, *_) = min(len(workers), MOST_BUCKETS), workers

        def submit(work: Callable[..., Any], *arguments: Any) -> Any:
            return self._cluster.submit(call, work, *arguments)

        split = []
        for part in self._parts:
            table = part.arguments(self._cluster, worker)[0]
            split.append(submit(_count_own, table, self._ids, self.least, n_buckets))
        cells = [[submit(_pick, s, b) for b in range(n_buckets)] for s in split]
        totals = [submit(_join_counts, [*own]) for own in zip(*cells, strict=True)]
        self._sizes = [submit(len, total) for total in totals]
        self._own = []
        for own in cells:
            pairs = zip(totals, own, strict=True)
            self._own.append(
                submit(_join_counts, [submit(_select, *pair) for pair in pairs])
            )

    def _restart_if_lost(self) -> None:
        if any(one.status not in ("pending", "finished") for one in self._own):
            self._start()

    def __len__(self) -> int:
        """Return the number of persons."""

        def attempt() -> Any:
            self._restart_if_lost()
            return self._cluster.total(self._sizes)

        total: int = get_total(keep_trying(attempt))
        return total

    def find_own(self, number: int) -> Callable[[Any, str], Any]:
        """Return a function that returns the future of one partition's counts."""

        def get_future(client: Any, worker: str) -> Any:
            self._restart_if_lost()
            return self._own[number]

        return get_future

    def _refuse(self, ids: Coded) -> NoReturn:
        raise TypeError("Ids stay on the workers and cannot be read in this process.")

    add = find_divisors = _refuse


def _count_own(table: Any, ids: Ids, least: int, n_buckets: int) -> list[RowCounts]:
    """Count the rows of each person in a partition. Split the persons into buckets."""
    return ids.count(readers.open_source(table, ids.columns), least).split(n_buckets)


def _pick(buckets: Sequence[RowCounts], number: int) -> RowCounts:
    return buckets[number]


def _join_counts(counts: Sequence[RowCounts]) -> RowCounts:
    return counts[0].join(counts[1:])


def _select(whole: RowCounts, own: RowCounts) -> RowCounts:
    return whole.select(own)
