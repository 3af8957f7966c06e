"""Keep the rows of partitions on the workers of a Dask cluster, and add them up.

A worker finds its rows by the partition's name. Sums do not raise errors. They return
them as part of an answer, because Dask logs errors, and an error may quote a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from skdp.engines.choice import choose_engine, name_engine
from skdp.privacy.encoding import AnyArray, Records
from skdp.privacy.persons import divide_slopes
from skdp.privacy.queries import BigInts, Engine, Metric, Slopes, cap_slopes
from skdp.schema import FloatArray, InputError, IntArray

#: The name of a partition consists of the name of its table and the partition's number.
Name = tuple[str, int]


class UnknownSettingsError(Exception):
    """Raised if a worker gets the name of settings that it does not have."""


#: Errors whose messages are public, because readers and engines raise them on purpose.
PUBLIC_ERRORS = (
    *(InputError, ImportError, ModuleNotFoundError, UnknownSettingsError),
    *(OSError, FileNotFoundError, PermissionError),
)


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The settings for gradients that stay the same from step to step.

    Workers receive them with the first gradient, and later only their name.

    Attributes
    ----------
    name : str
        A unique name.
    slopes : Slopes
        How slopes are computed and bounded, without caps on single rows.
    metric : Metric, optional
        The matrix that caps are computed from. Workers compute and keep the caps.
    divide : bool
        Whether workers divide the bound on a person's slopes among the person's rows.
        They must if the caller does not have the rows.
    """

    name: str
    slopes: Slopes
    metric: Metric | None = None
    divide: bool = False


class Partition:
    """The encoded rows of a partition, on the worker that read them.

    Pickling leaves out the rows, and keeps only the error that reading them raised. If
    Dask moves a partition to another worker or to disk, its rows are lost, and the
    caller requests that they be read again.
    """

    def __init__(self, records: Records | None, error: Exception | None = None) -> None:
        self.records = records
        self.error = error
        self.lock = Lock()
        #: The rows of the last sum whose first partition was this one.
        self.rows: HeldRows | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Partition, (None, self.error)


class HeldRows:
    """The rows of all partitions of a sum, with the engine that adds them up."""

    def __init__(self, parts: Sequence[Records]) -> None:
        self.parts = parts
        chunks = tuple(chunk for part in parts for chunk in part.chunks)
        self.records = replace(parts[0], chunks=chunks)
        self._engine: Engine | None = None
        self._last: tuple[str, Slopes] | None = None

    @classmethod
    def of(cls, partitions: Sequence[Partition]) -> HeldRows:
        """Return the rows of some partitions.

        They are the same object as for the last sum if that had the same rows.
        """
        parts = [one.records for one in partitions if one.records is not None]
        first, *others = partitions
        rows = first.rows  # which another sum may delete at the same time
        if rows is None or [*map(id, parts)] != [*map(id, rows.parts)]:
            rows = first.rows = cls(parts)
        for other in others:
            other.rows = None  # of an earlier sum over other partitions
        return rows

    def engine(self, n_threads: int) -> Engine:
        """Return the engine that adds up the rows."""
        if self._engine is None:
            # A worker uses the engine named by SKDP_ENGINE, unless that is Dask itself.
            name = name_engine()
            name = "compiled" if name.startswith("dask") else name
            self._engine = choose_engine(name, n_threads)(self.records)
        return self._engine

    def slopes(self, settings: Settings | str, engine: Engine) -> Slopes:
        """Return the slopes for some settings, with caps for these rows where needed.

        The settings may be given by their name if they are those of the last gradient.
        """
        name = settings if isinstance(settings, str) else settings.name
        if self._last is None or self._last[0] != name:
            if isinstance(settings, str):
                raise UnknownSettingsError
            found = settings.slopes
            if settings.metric is not None:
                found = cap_slopes(engine, settings.slopes, settings.metric)
            elif settings.divide:
                found = divide_slopes(engine.records, settings.slopes)
            self._last = name, found
        return self._last[1]


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The result of a task, or the sum over some partitions.

    Attributes
    ----------
    total : any value that supports addition
        The sum.
    missing : tuple of int
        The numbers of the partitions whose rows were not found on their worker.
    error : Exception, optional
        The first error.
    """

    total: Any = None
    missing: tuple[int, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """A function of rows, with the arguments that all partitions share.

    Attributes
    ----------
    work : callable
        ``work(rows, n_threads, *arguments)`` returns the part of a sum for some rows.
    arguments : tuple
        Public values.
    n_threads : int, optional
        The threads of each worker. By default, as many as Dask gives to the worker.
    """

    work: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    n_threads: int | None = None


def add_up_partitions(
    worker: Any, table: str, numbers: Sequence[int], job: Job, *own: Any
) -> Answer:
    """Return the sum of a job over the partitions `numbers`, which the worker keeps.

    If the worker lacks the rows of some partitions, the answer lists these partitions
    instead. `own` is a value for these partitions alone, if there is one. It is passed
    to the job's function after the job's arguments.
    """
    try:
        shelf = get_shelf(worker)
        kept = {number: shelf.get((table, number)) for number in numbers}
        ready: dict[int, Partition] = {}
        for number, partition in kept.items():
            if partition is not None and partition.error is not None:
                return Answer(error=partition.error)
            if partition is not None and partition.records is not None:
                ready[number] = partition
        missing = tuple(number for number in numbers if number not in ready)
        if missing:
            for partition in ready.values():
                partition.rows = None  # it may hold the rows that are missing
            return Answer(missing=missing)
        threads = job.n_threads or worker.state.nthreads
        with ready[numbers[0]].lock:
            rows = HeldRows.of(list(ready.values()))
            return Answer(job.work(rows, threads, *job.arguments, *own))
    except BaseException as error:  # Dask would log any that is left
        return Answer(error=make_public(error))


def merge(answers: Sequence[Answer]) -> Answer:
    """Add up several answers.

    If there is an error, the first answer with an error is returned. Otherwise, if
    partitions are missing, the result lists all of them.
    """
    for answer in answers:
        if answer.error is not None:
            return answer
    missing = tuple(number for answer in answers for number in answer.missing)
    return (
        Answer(missing=missing) if missing else Answer(_sum([a.total for a in answers]))
    )


def compute_gradient(
    rows: HeldRows,
    n_threads: int,
    units: FloatArray,
    at: IntArray,
    given: Slopes | Settings | str,
) -> BigInts:
    """Return the gradient of some rows.

    It has the slopes `given`, or those for settings, which may be given by their name.
    """
    engine = rows.engine(n_threads)
    slopes = given if isinstance(given, Slopes) else rows.slopes(given, engine)
    return engine.gradient(units, at, slopes)


def compute_gram(rows: HeldRows, n_threads: int) -> BigInts:
    """Return the Gram matrix of some rows."""
    return rows.engine(n_threads).gram()


def count_classes(rows: HeldRows, n_threads: int, n_classes: int) -> BigInts:
    """Return `Engine.counts` of some rows."""
    return rows.engine(n_threads).counts(n_classes)


def compute_caps(
    rows: HeldRows, n_threads: int, metric: Metric, slopes: Slopes
) -> Sequence[AnyArray]:
    """Return the caps of some rows."""
    return rows.engine(n_threads).caps(metric, slopes)


def apply(rows: HeldRows, n_threads: int, work: Callable[[Records], Any]) -> Any:
    """Return the sum of a function of records over some partitions."""
    with ThreadPoolExecutor(min(n_threads, len(rows.parts))) as pool:
        return _sum(list(pool.map(work, rows.parts)))


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def make_public(error: BaseException) -> Exception:
    """Return an error whose message is safe to show.

    If the original message might quote a cell, return a RuntimeError that names only
    the type of the original error.
    """
    if isinstance(error, Exception) and type(error) in PUBLIC_ERRORS:
        return error.with_traceback(None)  # errors of other libraries derive from these
    return RuntimeError(f"A worker failed with {type(error).__name__}.")


def get_shelf(worker: Any) -> WeakValueDictionary[Name, Partition]:
    """Return a worker's partitions, by name. Entries vanish when Dask drops them."""
    shelf: WeakValueDictionary[Name, Partition] = vars(worker).setdefault(
        "skdp_partitions", WeakValueDictionary()
    )
    return shelf
