"""Read Dask data frames and directories of files on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import dask
import numpy as np

from skdp.engines import dask_tasks
from skdp.engines.dask_client import Cluster, get_total, hide_sizes, keep_trying
from skdp.engines.dask_engine import ClusterRecords, Part, Partitions
from skdp.engines.dask_persons import ClusterCounts
from skdp.privacy.encoding import Records
from skdp.privacy.persons import RowCounts
from skdp.schema import IntArray, Layout, check
from skdp.tables import arrays, folder, readers
from skdp.tables.batches import check_rows
from skdp.tables.csv import CSV
from skdp.tables.exposures import Exposure
from skdp.tables.ids import GIVEN, Ids
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
            readers.open_table(self._example, wanted),
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
        assert ids.given is None  # `place_frame` and `place_files` refuse arrays
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
        with hide_sizes():
            return client.compute(self.delayed)


def place_frame(
    table: Any, y: Any, sample_weight: Any, unit: Any, cluster: Cluster
) -> tuple[ClusterTable, Any, Any, Any]:
    """Wrap a Dask data frame, its target, weights and ids for reading by workers."""
    check(
        hasattr(table, "columns") and hasattr(table, "to_delayed"),
        "A table of Dask must be a data frame, whose columns have names, got "
        f"{type(table).__name__}. dask.dataframe.from_dask_array makes a data frame.",
    )
    frames, example = list(table.to_delayed()), table._meta
    targets, target = _place_column("y", y, len(frames))
    weights, weight = _place_column("sample_weight", sample_weight, len(frames))
    if not (unit is None or isinstance(unit, (str, list, tuple, Ids))):
        ids, _ = _place_column("unit", unit, len(frames))
        work = dask.delayed(dask_tasks.call, pure=False)
        pairs = zip(frames, ids, strict=True)
        frames = [work(_add_ids, frame, own.delayed) for frame, own in pairs]
        example, unit = _add_ids(example, unit._meta), Ids(GIVEN)
    parts = [
        Part(_Compute(frame), target, weight, anywhere=True)
        for frame, target, weight in zip(frames, targets, weights, strict=True)
    ]
    return ClusterTable(cluster, parts, example), target, weight, unit


def _place_column(what: str, given: Any, n_parts: int) -> tuple[list[Any], Any]:
    """Return the cells of each part, and the column as the calling process sees it."""
    if given is None or isinstance(given, str):
        return [given] * n_parts, given
    if isinstance(given, Exposure):
        own, column = _place_column(given.role, given.weights, n_parts)
        if not isinstance(column, PlacedColumn):
            return [given] * n_parts, given
        work = dask.delayed(Exposure, pure=False)
        wrapped = [_Compute(work(one.delayed, given.logarithms)) for one in own]
        return wrapped, replace(given, weights=column)
    check(
        hasattr(given, "to_delayed"),
        f"{what} must be a Dask series or the name of a column if the table is a Dask "
        f"data frame, got {type(given).__module__.partition('.')[0]}'s "
        f"{type(given).__name__}.",
    )
    parts = given.to_delayed()
    check(len(parts) == n_parts, f"{what} must have as many partitions as the table.")
    kind = arrays.kind_of(readers.read_column(given._meta, what))
    return [_Compute(part) for part in parts], PlacedColumn(kind)


def _add_ids(table: Any, ids: Any) -> Any:
    """Return a data frame with one more column, named `GIVEN`, for the ids."""
    check_rows(len(table) == len(ids), "unit")
    own = ids.set_axis(table.index) if hasattr(ids, "set_axis") else ids
    return table.assign(**{GIVEN: own})


def place_files(
    given: str | PathLike[str], y: Any, sample_weight: Any, unit: Any, cluster: Cluster
) -> tuple[ClusterTable, Any, Any, Any]:
    """Return the files at a path as a table that the cluster's workers read.

    Each file is one partition, or several if it is large.
    """
    weights = sample_weight
    if isinstance(sample_weight, Exposure):
        weights = sample_weight.weights
    named = unit is None or isinstance(unit, (str, list, tuple))
    for what, one in (("y", y), ("sample_weight", weights), ("unit", unit)):
        check(
            one is None or isinstance(one, str) or (what == "unit" and named),
            f"{what} must name a column of the files, because the workers of a cluster "
            f"read them, got {type(one).__name__}.",
        )
    files = folder.list_files(given)
    if files is None:
        files = [given if isinstance(given, CSV) else Path(given)]
    readers.open_file(files[0], None)  # refuses a file that is not there
    for file in files:
        check(os.path.exists(file), f"There is no file {os.fspath(file)!r}.")
    sizes = [os.path.getsize(file) for file in files]
    threads = sum(cluster.find_workers().values())
    most = max(LEAST_BYTES, sum(sizes) / (PARTITIONS * threads))
    parts = []
    for file, size in zip(files, sizes, strict=True):
        path = os.path.abspath(file)
        whole = replace(file, path=path) if isinstance(file, CSV) else Path(path)
        if size <= most:
            parts.append(Part(whole, y, sample_weight, size=float(size)))
        else:
            sections = readers.split_file(whole, most)
            own = [Part(one, y, sample_weight, size=one.size) for one in sections]
            parts += own
    table = ClusterTable(cluster, parts, parts[0].table)
    return table, y, sample_weight, unit


def _hand_out(parts: Sequence[Part], counts: RowCounts | None) -> Sequence[Part]:
    """Return the parts, each with the row counts of the persons who are in it."""
    if counts is None:
        return parts
    assert isinstance(counts, ClusterCounts)
    return [replace(p, counts=counts.find_own(n)) for n, p in enumerate(parts)]


def _refuse_reading(at: Sequence[int], rows: int) -> NoReturn:
    raise ValueError(
        "The rows of this table stay on the workers of a cluster, so this process "
        "cannot read them."
    )


def _count_rows(table: Any, target: Any, row_counts: None) -> list[int]:
    return [count_rows(readers.open_table(table))]
