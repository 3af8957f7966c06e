"""Read Dask data frames and directories of files on the workers of a Dask cluster.

Persons are counted there too. A person's rows may be in several partitions. Each
partition counts its own rows, and divides its persons into buckets by a hash of their
ids. One task adds up the counts of a bucket over all partitions. Each partition gets
back the counts of its own persons. Ids travel from worker to worker. Neither the
scheduler nor the caller receives them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import getitem
from os import PathLike
from typing import Any, NoReturn

import numpy as np

from skdp.engines.dask_engine import (
    Cluster,
    ClusterRecords,
    Part,
    Partitions,
    call,
    hide_sizes,
    keep_trying,
)
from skdp.privacy.encoding import Coded, Records
from skdp.privacy.persons import RowCounts
from skdp.schema import IntArray, Layout, check
from skdp.tables import arrays, readers
from skdp.tables.batches import Exposure, check_rows
from skdp.tables.files import list_files, replace_path
from skdp.tables.ids import GIVEN, Ids
from skdp.tables.locations import get_name, is_file, make_absolute, measure_file
from skdp.tables.placed import PlacedColumn, PlacedTable, Read
from skdp.tables.readers import Source, count_rows, find_positions

#: The approximate number of partitions per thread of a cluster, if files are large
#: enough. Files of up to LEAST_BYTES bytes are never split.
PARTITIONS, LEAST_BYTES = 4, 1 << 25
#: Largest number of buckets of persons. Each takes two small tasks per partition.
MOST_BUCKETS = 64
#: Names of Dask's classes of frames whose rows are the same at each computation.
_KEEP_ORDER = {"FromPandas", "FromArray", "ReadParquetFSSpec", "ReadParquetPyarrowFS"}


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
    ordered : bool
        As in `Source`. The rows of files have a fixed order. Those of a Dask data frame
        may be computed again at any time, and a join then returns them in another one.
    """

    def __init__(
        self, cluster: Cluster, parts: Sequence[Part], example: Any, ordered: bool
    ) -> None:
        self._cluster, self._parts, self._example = cluster, parts, example
        self._ordered = ordered

    def source(self, wanted: Sequence[str] | None) -> Source:
        """Return the table's public facts. No row can be read in this process."""
        return replace(
            readers.open_source(self._example, wanted),
            read=_refuse_reading,
            n_rows=None,
            count=lambda: sum(self._count_parts()),
            share=None,
            ordered=self._ordered,
        )

    def add_up(self, work: Callable[..., Any], counts: RowCounts | None = None) -> Any:
        """Return the sum of ``work(table, target, row_counts)`` over all parts."""
        cluster = self._cluster

        def attempt() -> Any:
            tasks = []
            for part in _hand_out(self._parts, counts):
                table, target, _, _, own = part.arguments(cluster)
                tasks.append(cluster.submit(call, work, table, target, own))
            return cluster.total(tasks)

        return keep_trying(attempt)

    def _count_parts(self) -> list[int]:
        """Return the number of rows of each part."""
        if all(part.keep is not None for part in self._parts):
            return [int(part.keep.sum()) for part in self._parts]
        counts: list[int] = self.add_up(_count_part)
        return counts

    def take(self, at: IntArray) -> ClusterTable:
        """Return a table with only the rows at positions `at`, in ascending order."""
        assert self._ordered  # `divide_table` refuses others
        counts = self._count_parts()
        keep = np.zeros(sum(counts), bool)
        keep[at] = True
        kept = np.split(keep, np.cumsum(counts)[:-1])
        pairs = zip(self._parts, kept, strict=True)
        parts = [replace(part, keep=mask) for part, mask in pairs]
        return ClusterTable(self._cluster, parts, self._example, self._ordered)

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
        n_buckets = min(len(self._cluster.find_workers()), MOST_BUCKETS)
        submit = partial(self._cluster.submit, call)
        cells = []
        for part in self._parts:
            table = part.arguments(self._cluster)[0]
            own = submit(_count_own, table, self._ids, self.least, n_buckets)
            cells.append([submit(getitem, own, bucket) for bucket in range(n_buckets)])
        totals = [submit(_join, [*own]) for own in zip(*cells, strict=True)]
        self._sizes = [submit(len, total) for total in totals]
        self._own = []
        for own in cells:
            pairs = zip(totals, own, strict=True)
            chosen = [submit(RowCounts.select, *pair) for pair in pairs]
            self._own.append(submit(_join, chosen))

    def _restart_if_lost(self) -> None:
        if any(one.status not in ("pending", "finished") for one in self._own):
            self._start()

    def __len__(self) -> int:
        """Return the number of persons."""

        def attempt() -> Any:
            self._restart_if_lost()
            return self._cluster.total(self._sizes)

        total: int = keep_trying(attempt)
        return total

    def find_own(self, number: int) -> Callable[..., Any]:
        """Return a function that returns the future of one partition's counts."""

        def get_future(*_: Any) -> Any:
            self._restart_if_lost()
            return self._own[number]

        return get_future

    def _refuse(self, ids: Coded) -> NoReturn:
        raise TypeError("Ids stay on the workers and cannot be read in this process.")

    add = find_divisors = _refuse


def _count_own(table: Any, ids: Ids, least: int, n_buckets: int) -> list[RowCounts]:
    """Count the rows of each person in a partition. Split the persons into buckets."""
    return ids.count(readers.open_source(table, ids.columns), least).split(n_buckets)


def _join(counts: Sequence[RowCounts]) -> RowCounts:
    return counts[0].join(counts[1:])


def _compute(delayed: Any, client: Any, worker: str | None) -> Any:
    """Compute a partition of a Dask data frame."""
    with hide_sizes():
        return client.compute(delayed)


def place_frame(
    table: Any, y: Any, sample_weight: Any, unit: Any, cluster: Cluster
) -> tuple[ClusterTable, Any, Any, Any]:
    """Wrap a Dask data frame, its target, weights and ids for reading by workers.

    Series that were passed separately become columns of the frame. Dask may compute a
    partition several times, with its rows in another order each time, so a row and what
    belongs to it must come from one computation.
    """
    check(
        hasattr(table, "columns") and hasattr(table, "to_delayed"),
        "A table of Dask must be a data frame, whose columns have names, got "
        f"{type(table).__name__}. dask.dataframe.from_dask_array makes a data frame.",
    )
    series: dict[str, Any] = {}
    target, seen_target = _place_column("y", y, table, series)
    weight, seen_weight = _place_column("sample_weight", sample_weight, table, series)
    if not (unit is None or isinstance(unit, (str, list, tuple, Ids))):
        _place_column("unit", unit, table, series, GIVEN)
        unit = Ids(GIVEN)
    example = table._meta
    if GIVEN in series:  # this process reads neither targets nor weights
        example = _bind(example, series[GIVEN]._meta, names=[GIVEN])
    if series:
        table = table.map_partitions(
            _bind_on_worker,
            *series.values(),
            names=list(series),
            meta=example,
            align_dataframes=False,
            enforce_metadata=False,  # workers return an `Answer`
        )
    # Dask's optimizer may compute the origin of the frame and that of a series apart,
    # each with the columns that it needs. Without it, both are the same task.
    frames = table.to_delayed(optimize_graph=not series)
    computed = [partial(_compute, one) for one in frames]
    parts = [Part(one, target, weight, anywhere=True) for one in computed]
    placed = ClusterTable(cluster, parts, example, ordered=False)
    return placed, seen_target, seen_weight, unit


def collect_rows(
    table: Any, inputs: Sequence[str], y: Any, sample_weight: Any
) -> tuple[Any, Any, Any]:
    """Return columns of a Dask data frame as a frame of pandas, with y and weights.

    `y` and `sample_weight` are series or columns of the same frame. All come from one
    computation of each partition.
    """
    find_positions(list(table.columns), inputs)  # refuses names that it does not have
    series: dict[str, Any] = {}
    places = {"y": y, "sample_weight": sample_weight}
    for what, given in places.items():
        if isinstance(given, str):
            find_positions(list(table.columns), [given])
            given = table[given]
        places[what], _ = _place_column(what, given, table, series)
    chosen = table[[*inputs]]
    bound = chosen.map_partitions(
        _bind,
        *series.values(),
        names=list(series),
        meta=_bind(chosen._meta, *[s._meta for s in series.values()], names=[*series]),
        align_dataframes=False,
    )
    dask, pandas = map(readers.import_library, ("dask", "pandas"))
    # Without the optimizer, for the reason that `place_frame` gives.
    whole = pandas.concat(dask.compute(*bound.to_delayed(optimize_graph=False)))
    own = [None if place is None else whole[place] for place in places.values()]
    return whole[[*inputs]], own[0], own[1]


def _place_column(
    what: str,
    given: Any,
    table: Any,
    series: dict[str, Any],
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return a column as workers see it, and as the calling process sees it.

    A series is added to `series`, under the name that workers will know it by.
    """
    if given is None or isinstance(given, str):
        return given, given
    if isinstance(given, Exposure):
        there, here = _place_column(given.role, given.weights, table, series)
        return replace(given, weights=there), replace(given, weights=here)
    check(
        hasattr(given, "to_delayed"),
        f"{what} must be a Dask series or the name of a column if the table is a Dask "
        f"data frame, got {type(given).__module__.partition('.')[0]}'s "
        f"{type(given).__name__}.",
    )
    check(
        given.npartitions == table.npartitions,
        f"{what} must have as many partitions as the table.",
    )
    check(
        _have_same_rows(table, given),
        f"{what} must be a series of the same Dask data frame as the table, or the "
        "name of a column. Add it to the frame first: frame.assign(name=series).",
    )
    name = f"({what} given)" if name is None else name
    series[name] = given
    kind = arrays.kind_of(readers.read_column(given._meta, what))
    return name, PlacedColumn(kind)


def _have_same_rows(table: Any, series: Any) -> bool:
    """Return whether a series has the rows of a table in the same order.

    It has if both are made of the columns of one frame, by operations on single cells.
    Other frames may have the same rows in another order, even if one was made of the
    other. Frames in memory and Parquet files keep their order, like the columns that
    are passed beside a table in memory. But `from_pandas` sorts frames by their index.
    """
    ours, theirs = _list_origins(table.expr), _list_origins(series.expr)
    both = list((ours | theirs).values())
    if len(both) == 1 and ours == theirs:
        return True
    first, *others = map(_find_sorted_index, both)
    if first is None:
        together = all(index is None for index in others)
    else:
        together = all(index is not None and index.equals(first) for index in others)
    return together and {type(origin).__name__ for origin in both} <= _KEEP_ORDER


def _list_origins(expression: Any) -> dict[str, Any]:
    """Return the frames, by name, that a Dask collection takes its rows from."""
    from dask.dataframe.dask_expr._expr import Elemwise

    found, left = {}, [expression]
    while left:
        one = left.pop()
        if isinstance(one, Elemwise):
            left += [own for own in one.dependencies() if own.ndim > 0]
        else:
            found[one._name] = one
    return found


def _find_sorted_index(origin: Any) -> Any:
    """Return the index by which Dask sorts the rows of a frame, or None."""
    if type(origin).__name__ != "FromPandas" or not origin.operand("sort"):
        return None
    index = origin.operand("frame")._data.index
    return None if index.is_monotonic_increasing else index


def _bind_on_worker(table: Any, *columns: Any, names: Sequence[str]) -> Any:
    return call(partial(_bind, names=names), table, *columns)


def _bind(table: Any, *columns: Any, names: Sequence[str]) -> Any:
    """Return a data frame with more columns, whose rows are in the same order."""
    for name, column in zip(names, columns, strict=True):
        what = "unit" if name == GIVEN else name.strip("()").removesuffix(" given")
        check_rows(len(table) == len(column), what)
        own = column.set_axis(table.index) if hasattr(column, "set_axis") else column
        table = table.assign(**{name: own})
    return table


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
    files = list_files(given)
    if files is None:
        files = [replace_path(given, os.fspath(given))]
    readers.open_file(files[0], None)  # refuses a file that is not there
    for file in files:
        check(is_file(file), f"There is no file {get_name(file)!r}.")
    sizes = [measure_file(file) for file in files]
    threads = sum(cluster.find_workers().values())
    most = max(LEAST_BYTES, sum(sizes) / (PARTITIONS * threads))
    parts = []
    for file, size in zip(files, sizes, strict=True):
        whole = replace_path(file, make_absolute(file))
        if size <= most:
            parts.append(Part(whole, y, sample_weight, size=float(size)))
        else:
            sections = readers.split_file(whole, most)
            own = [Part(one, y, sample_weight, size=one.size) for one in sections]
            parts += own
    table = ClusterTable(cluster, parts, parts[0].table, ordered=True)
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


def _count_part(table: Any, target: Any, row_counts: None) -> list[int]:
    return [count_rows(readers.open_source(table))]
