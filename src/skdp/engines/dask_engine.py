"""Add up rows on the workers of a Dask cluster.

Rows are read and encoded by the worker that keeps them. Weights, settings and schemas
travel to the workers, and exact integer sums travel back. A sum is a pure function of
the rows and of the values sent. If a worker is lost, another one computes its part of
the sum, with the same result.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, cast, overload
from weakref import finalize

import numpy as np
from distributed.protocol.pickle import dumps

from skdp.engines import dask_rows, dask_tasks, dask_tree
from skdp.engines.dask_client import Cluster, WorkersLostError, keep_trying
from skdp.engines.dask_rows import Job, Settings, UnknownSettingsError
from skdp.engines.dask_tree import Branch
from skdp.privacy.encoding import AnyArray, Chunk, Records
from skdp.privacy.queries import BigInts, Metric, Slopes
from skdp.schema import FloatArray, IntArray
from skdp.tables.placed import Read

#: Seconds after which a fit looks for new workers, and occupies those that it has.
#: Clusters that adapt to their load close workers that are idle for three seconds.
LOOK_FOR_MORE = 2.0
#: Seconds to wait for a worker before rows are sent to it.
SEND = 5.0


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """The data and settings that a worker needs to read a partition.

    Attributes
    ----------
    table, target, weight, keep, counts : any
        The arguments of the function that reads the partition, as in `Read`. A value
        that is too large for a task, or is already on a worker, is given as a function
        of a client and a worker. The function returns a future for the value.
    size : float
        A public measure of the work, such as the size of a file.
    anywhere : bool
        Whether Dask chooses the worker, because Dask knows where the data is.
    """

    table: Any
    target: Any = None
    weight: Any = None
    keep: Any = None
    counts: Any = None
    size: float = 1.0
    anywhere: bool = False

    def arguments(self, cluster: Cluster, worker: str) -> list[Any]:
        """Return the arguments of the function that reads the partition."""
        given = (self.table, self.target, self.weight, self.keep, self.counts)
        return [one(cluster.client, worker) if callable(one) else one for one in given]


class Partitions:
    """The partitions of a table, and the workers that keep them.

    Parameters
    ----------
    cluster : Cluster
        The cluster whose workers read the partitions.
    parts : sequence of Part
        The partitions. There must be at least one.
    read : callable
        The function that reads and encodes the rows of a partition, on a worker.
    """

    def __init__(self, cluster: Cluster, parts: Sequence[Part], read: Read) -> None:
        self.cluster, self.parts = cluster, parts
        self._read = read
        self._name = uuid.uuid4().hex
        self._homes: dict[int, str] = {}
        self._kept: dict[int, Any] = {}  # the futures that keep rows alive
        self._stays: dict[str, Any] = {}  # the futures that keep workers occupied
        end = finalize(self, cluster.let_go, self._name, self._stays)
        end.atexit = False
        self._looked = -LOOK_FOR_MORE

    def add_up(
        self,
        job: Job,
        only: Sequence[int] | None = None,
        own: Callable[[Sequence[int]], Any] | None = None,
    ) -> Any:
        """Return the sum of a job over all partitions, or over those in `only`.

        If given, `own(numbers)` returns the last argument of the job's function for the
        partitions with these numbers.
        """
        packed = dask_tree.pack(self._name, job)

        def attempt() -> Any:
            self._settle()
            tasks: dict[str, list[int]] = {}
            for number in sorted(self._homes if only is None else only):
                tasks.setdefault(self._homes[number], []).append(number)
            branches = []
            for worker, numbers in tasks.items():
                last = () if own is None else (own(numbers),)
                branches.append(Branch(worker, numbers, dumps(last)))
            tree = dask_tree.grow(branches)
            try:
                answer = self.cluster.ask(packed, tree, tasks, self._occupy)
            except WorkersLostError:
                self._looked = -LOOK_FOR_MORE
                raise
            if answer.error is not None:
                try:
                    raise answer.error
                finally:
                    del answer  # or else the error would keep the rows alive
            for number in answer.missing:
                del self._homes[number], self._kept[number]
            if answer.missing:
                raise WorkersLostError
            return answer.total

        return keep_trying(attempt)

    def _settle(self) -> None:
        """Make sure that each partition is kept by some worker."""
        complete = len(self._homes) == len(self.parts)
        if complete and time.monotonic() < self._looked + LOOK_FOR_MORE:
            return
        if complete:  # so this is not a short fit, which needs no such tasks
            self._occupy()
        running = self.cluster.find_workers()
        workers = self.cluster.list_workers() | running
        self._looked = time.monotonic()
        homes = {n: home for n, home in self._homes.items() if home in workers}
        wanted = self._assign(homes, workers, running)
        futures = {}
        for number, worker in wanted.items():
            if homes.get(number) == worker:
                continue
            part = self.parts[number]
            try:
                arguments = part.arguments(self.cluster, worker)
            except (OSError, TimeoutError, CancelledError):  # while rows were sent
                self._looked = -LOOK_FOR_MORE
                raise WorkersLostError from None
            futures[number] = self.cluster.submit(
                dask_tasks.hold,
                (self._name, number),
                self._read,
                *arguments,
                worker=None if part.anywhere else worker,
            )
        bound = {wanted[n] for n in futures if not self.parts[n].anywhere}
        try:
            self.cluster.finish(list(futures.values()), bound)
        finally:  # keep the partitions that were read before a worker was lost
            done = {n: f for n, f in futures.items() if f.status == "finished"}
            self._homes = homes | self.cluster.find_holders(done)
            kept = {n: f for n, f in self._kept.items() if n in homes} | done
            self._kept = {n: kept[n] for n in self._homes}

    def _occupy(self) -> None:
        """Keep Dask from considering the workers idle, and let go of other workers."""
        homes = set(self._homes.values())
        for worker in homes - set(self._stays):
            stay = self.cluster.submit(dask_tasks.stay, self._name, worker=worker)
            self._stays[worker] = stay
        for worker in set(self._stays) - homes:
            del self._stays[worker]

    def _assign(
        self, homes: dict[int, str], workers: dict[str, int], running: Collection[str]
    ) -> dict[int, str]:
        """Choose a worker for each partition.

        A partition stays where it is, unless its worker has at least two partitions
        and a running worker has none. Partitions without a worker, large ones first,
        go to the running worker with the least work per thread.
        """
        homes = dict(homes)
        load = dict.fromkeys(workers, 0.0)
        own: dict[str, list[int]] = {worker: [] for worker in workers}
        for number, worker in sorted(homes.items()):
            own[worker].append(number)
        idle = [worker for worker in running if not own[worker]] if homes else []
        while idle and len(most := max(own.values(), key=len)) >= 2:
            taken = [most.pop() for _ in range(max(1, len(most) // 2 // len(idle)))]
            own[idle.pop()].extend(taken)
        homes = {number: worker for worker, some in own.items() for number in some}
        for number, worker in homes.items():
            load[worker] += self.parts[number].size / workers[worker]
        rest = [number for number in range(len(self.parts)) if number not in homes]
        for number in sorted(rest, key=lambda n: -self.parts[n].size):
            worker = min(running, key=load.__getitem__)
            homes[number] = worker
            load[worker] += self.parts[number].size / workers[worker]
        return homes


class AwayChunks(Sequence[Any]):
    """A placeholder for the chunks of a table whose rows are in other processes."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise ValueError(
            "This algorithm needs all rows in one process, but the rows of this table "
            "stay on the workers of a cluster. Use DP-SkGD, or a solver that is "
            "registered without reads_rows."
        )

    __len__ = __iter__ = __getitem__ = _refuse


@dataclass(frozen=True, eq=False, repr=False)
class ClusterRecords(Records):
    """An encoded table whose rows are on the workers of a cluster."""

    elsewhere: ClassVar[bool] = True
    chunks: tuple[Chunk, ...] = field(
        default_factory=lambda: cast("tuple[Chunk, ...]", AwayChunks())
    )
    partitions: Partitions = field(kw_only=True)

    def add_up(self, work: Callable[[Records], Any]) -> Any:
        """Return the sum of `work` over all partitions, which workers compute."""
        return self.partitions.add_up(Job(dask_rows.apply, (work,)))


@dataclass(frozen=True, eq=False, repr=False)
class ClusterCaps(Sequence[AnyArray]):
    """The caps of rows, which the workers compute and keep.

    Attributes
    ----------
    settings : Settings
        The settings from which workers compute the caps.
    engine : DaskEngine
        The engine that holds the rows.
    """

    settings: Settings
    engine: DaskEngine

    def __len__(self) -> int:
        return len(self.engine.records.chunks)

    @overload
    def __getitem__(self, at: int) -> AnyArray: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyArray]: ...
    def __getitem__(self, at: int | slice) -> AnyArray | Sequence[AnyArray]:
        return self._fetch()[at]

    def __iter__(self) -> Iterator[AnyArray]:
        return iter(self._fetch())

    def _fetch(self) -> list[AnyArray]:
        """Return the caps of a table whose rows are also in this process."""
        len(self)  # raises if the rows are not in this process
        metric, slopes = self.settings.metric, self.settings.slopes
        job = Job(dask_rows.compute_caps, (metric, slopes))
        partitions = self.engine.partitions
        every = range(len(partitions.parts))
        return [caps for n in every for caps in partitions.add_up(job, only=[n])]


class DaskEngine:
    """Computes the same sums over records as `ReferenceEngine`, on a cluster.

    Parameters
    ----------
    records : Records
        The table. If its rows are in this process, they are sent to the workers.
    n_threads : int, optional
        The number of threads of each worker. By default Dask decides.
    address : str, optional
        The address of the scheduler, as in `Cluster`.
    """

    def __init__(
        self,
        records: Records,
        n_threads: int | None = None,
        address: str | None = None,
    ) -> None:
        self.records = records
        if isinstance(records, ClusterRecords):
            self.partitions = records.partitions
        else:
            self.partitions = send_rows(records, Cluster(address, n_threads))
        self._known: tuple[Any, Settings] | None = None
        self._sent: str | None = None  # the name of the settings that workers have

    def _add_up(self, work: Callable[..., Any], *arguments: Any, **own: Any) -> BigInts:
        job = Job(work, arguments, self.partitions.cluster.n_threads)
        total: BigInts = self.partitions.add_up(job, **own)
        return total

    def _name_settings(self, slopes: Slopes) -> Settings:
        """Return settings without caps. Equal settings have the same name."""
        facts = slopes.loss, slopes.max_weight, slopes.bits
        if self._known is None or self._known[0] != facts:
            divide = self.records.elsewhere
            self._known = facts, Settings(uuid.uuid4().hex, slopes, divide=divide)
        return self._known[1]

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return the same gradient as `ReferenceEngine.gradient`."""
        work = dask_rows.compute_gradient
        if slopes.caps is not None and not isinstance(slopes.caps, ClusterCaps):
            # Caps of rows that are in this process are sent with each gradient.
            edges = np.cumsum([0, *(int(part.size) for part in self.partitions.parts)])

            def find_own(numbers: Sequence[int]) -> Slopes:
                runs = [range(edges[n], edges[n + 1]) for n in numbers]
                return slopes.take_chunks([i for run in runs for i in run])

            return self._add_up(work, units, at, own=find_own)
        if slopes.caps is None:
            settings = self._name_settings(slopes)
        else:
            settings = slopes.caps.settings
        if settings.name == self._sent:
            try:
                return self._add_up(work, units, at, settings.name)
            except UnknownSettingsError as error:  # from a worker that is new
                error.__traceback__ = None  # it would keep the rows alive
        total = self._add_up(work, units, at, settings)
        self._sent = settings.name
        return total

    def gram(self) -> BigInts:
        """Return the same Gram matrix as `ReferenceEngine.gram`."""
        return self._add_up(dask_rows.compute_gram)

    def counts(self, n_classes: int) -> BigInts:
        """Return the same class counts as `ReferenceEngine.counts`."""
        return self._add_up(dask_rows.count_classes, n_classes)

    def caps(self, metric: Metric, slopes: Slopes) -> ClusterCaps:
        """Return a reference to the rows' caps, which stay on the workers."""
        return ClusterCaps(Settings(uuid.uuid4().hex, slopes, metric), self)


def send_rows(records: Records, cluster: Cluster) -> Partitions:
    """Send rows that are in this process to the workers, about equally many to each."""
    n_parts = max(1, min(len(records.chunks), len(cluster.find_workers())))
    runs = np.array_split(np.arange(len(records.chunks)), n_parts)
    parts = []
    for run in runs:
        chunks = tuple(
            # A chunk may hold a view of a file. The new chunk leaves it out.
            Chunk(chunk.parts, chunk.target, chunk.weight, chunk.divisor)
            for chunk in (records.chunks[i] for i in run.tolist())
        )
        own = Records(records.layout, chunks, records.max_weight)
        parts.append(Part(_Scatter(own), size=float(len(chunks))))
    return Partitions(cluster, parts, _return_rows)


@dataclass(frozen=True, eq=False, repr=False)
class _Scatter:
    """Sends rows to a worker directly, so they do not pass through the scheduler."""

    records: Records

    def __call__(self, client: Any, worker: str) -> Any:
        own = {"workers": [worker], "hash": False, "direct": True}
        return client.scatter([self.records], **own, timeout=SEND)[0]


def _return_rows(records: Records, *_: None) -> Records:
    return records
