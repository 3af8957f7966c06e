"""Read Dask data frames and directories of files on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from skdp.engines import dask_tasks
from skdp.engines.dask_client import Cluster, get_total, keep_trying
from skdp.engines.dask_engine import ClusterRecords, Part, Partitions
from skdp.engines.dask_persons import ClusterCounts
from skdp.privacy.encoding import Records
from skdp.privacy.units import RowCounts
from skdp.schema import IntArray, Layout, check
from skdp.tables import arrays, folder, readers
from skdp.tables.csv import CSV
from skdp.tables.ids import Ids
from skdp.tables.placed import PlacedColumn, PlacedTable, Read
from skdp.tables.readers import Source, count_rows

#: The approximate number of partitions per thread of a cluster, if files are large
#: enough. Files of up to LEAST_BYTES bytes are never split.
PARTITIONS, LEAST_BYTES = 4, 1 << 25


class ClusterTable(PlacedTable):
    """A table whose partitions are read by the workers of a cluster.

    Parameters
    ----------
    cluster : Cluster
        The cluster whose workers read the table.
    parts : sequence of Part
        The partitions.
    example : table
        A table with the same columns, whose rows are not read.
    """

    def __init__(self, cluster: Cluster, parts: Sequence[Part], example: Any) -> None:
        self._cluster, self._parts, self._example = cluster, parts, example

    def source(self, wanted: Sequence[str] | None) -> Source:
        """Return the table's public facts. No row can be read in this process."""
        return replace(
            readers.source(self._example, wanted),
            read=_refuse_reading,
            n_rows=None,
            count=lambda: sum(self._count_parts()),
            share=None,
        )

    def add_up(self, work: Callable[..., Any], counts: RowCounts | None = None) -> Any:
        """Return the sum of ``work(table, target, row_counts)`` over all parts."""
        cluster = self._cluster

        def attempt() -> Any:
            (worker, *_) = cluster.find_workers()
            tasks = []
            for part in _hand_out(self._parts, counts):
                table, target, _, _, own = part.arguments(cluster, worker)
                tasks.append(cluster.submit(dask_tasks.call, work, table, target, own))
            return cluster.total(tasks)

        return get_total(keep_trying(attempt))

    def _count_parts(self) -> list[int]:
        """Return the number of rows of each part."""
        if all(part.keep is not None for part in self._parts):
            return [int(part.keep.sum()) for part in self._parts]
        counts: list[int] = self.add_up(_count_rows)
        return counts

    def take(self, at: IntArray) -> ClusterTable:
        """Return a table with only the rows at positions `at`, in ascending order."""
        counts = self._count_parts()
        keep = np.zeros(sum(counts), bool)
        keep[at] = True
        kept = np.split(keep, np.cumsum(counts)[:-1])
        pairs = zip(self._parts, kept, strict=True)
        parts = [replace(part, keep=mask) for part, mask in pairs]
        return ClusterTable(self._cluster, parts, self._example)

    def count_rows_per_unit(self, ids: Ids, least: int) -> RowCounts:
        """Count the rows of each person. The ids and counts stay on the workers."""
        check(
            ids.given is None,
            "unit must name columns of the table. Separate ids cannot be used if the "
            "rows are on the workers of a cluster.",
        )
        return ClusterCounts(self._cluster, self._parts, ids, least)

    def encode(
        self,
        layout: Layout,
        max_weight: float,
        read: Read,
        weighted: bool,
        counts: RowCounts | None,
    ) -> Records:
        """Return records whose rows the workers read when they are first needed."""
        parts = _hand_out(self._parts, counts)
        if not weighted:
            parts = [replace(part, weight=None) for part in parts]
        partitions = Partitions(self._cluster, parts, read)
        return ClusterRecords(
            layout=layout, max_weight=max_weight, partitions=partitions
        )


@dataclass(frozen=True, eq=False, repr=False)
class _Compute:
    """Computes a partition of a Dask collection."""

    delayed: Any

    def __call__(self, client: Any, worker: str) -> Any:
        return client.compute(self.delayed)


def place_frame(
    table: Any, y: Any, sample_weight: Any, cluster: Cluster
) -> tuple[ClusterTable, Any, Any]:
    """Wrap a Dask data frame, its target and its weights for reading by workers."""
    frames = table.to_delayed()
    given: list[list[Any]] = []
    columns: list[Any] = []
    for what, one in (("y", y), ("sample_weight", sample_weight)):
        if one is None or (isinstance(one, str) and what == "sample_weight"):
            given.append([one] * len(frames))
            columns.append(one)
            continue
        check(
            hasattr(one, "to_delayed"),
            f"{what} must be a Dask series if the table is a Dask data frame, got "
            f"{type(one).__name__}.",
        )
        parts = one.to_delayed()
        check(
            len(parts) == len(frames),
            f"{what} must have as many partitions as the table.",
        )
        given.append([_Compute(part) for part in parts])
        columns.append(PlacedColumn(arrays.kind_of(readers.column(one._meta, what))))
    parts = [
        Part(_Compute(frame), target, weight, anywhere=True)
        for frame, target, weight in zip(frames, *given, strict=True)
    ]
    placed = ClusterTable(cluster, parts, table._meta)
    return placed, columns[0], columns[1]


def place_files(given: str | PathLike[str], cluster: Cluster) -> ClusterTable:
    """Return the files at a path as a table that the cluster's workers read.

    Each file is one partition, or several if it is large.
    """
    files = folder.list_files(given)
    if files is None:
        files = [given if isinstance(given, CSV) else Path(given)]
    readers.file(files[0], None)  # refuses a file that is not there
    sizes = [os.path.getsize(file) for file in files]
    threads = sum(cluster.find_workers().values())
    most = max(LEAST_BYTES, sum(sizes) / (PARTITIONS * threads))
    parts = []
    for file, size in zip(files, sizes, strict=True):
        path = os.path.abspath(file)
        whole = replace(file, path=path) if isinstance(file, CSV) else Path(path)
        if size <= most:
            parts.append(Part(whole, size=float(size)))
        else:
            sections = readers.split_file(whole, most)
            parts += [Part(section, size=section.size) for section in sections]
    return ClusterTable(cluster, parts, parts[0].table)


def _hand_out(parts: Sequence[Part], counts: RowCounts | None) -> Sequence[Part]:
    """Return the parts, each with the row counts of the persons who are in it."""
    if counts is None:
        return parts
    assert isinstance(counts, ClusterCounts)
    return [replace(p, counts=counts.find_own(n)) for n, p in enumerate(parts)]


def _refuse_reading(at: Sequence[int], rows: int) -> NoReturn:
    raise ValueError(
        "A search assigns each person to a fold in one process, but the rows of this "
        "table stay on the workers of a cluster. Load the table on one machine instead."
    )


def _count_rows(table: Any, target: Any, row_counts: None) -> list[int]:
    return [count_rows(readers.source(table))]
