"""Define the tasks that the workers of a Dask cluster run.

A worker reads and encodes the rows of a partition and keeps them. Later tasks find the
rows on their worker by the partition's name and send back exact sums. No task raises
an error, because Dask logs the arguments of a failing task, and the arguments may hold
rows. Instead, tasks return errors as results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from os.path import exists
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from distributed import get_worker

from skdp.engines.choice import choose_engine, name_engine
from skdp.privacy.encoding import AnyArray, Records
from skdp.privacy.persons import divide_slopes
from skdp.privacy.queries import BigInts, Engine, Metric, Slopes, cap_slopes
from skdp.schema import FloatArray, IntArray
from skdp.tables.placed import Read

#: Errors whose messages are public, because readers and engines raise them on purpose.
PUBLIC_ERRORS = (
    *(ValueError, ImportError, ModuleNotFoundError),
    *(OSError, FileNotFoundError, PermissionError),
)
#: The name of a partition consists of the name of its table and the partition's number.
Name = tuple[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The settings for gradients that stay the same from step to step.

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
        #: The rows of the last task whose first partition was this one.
        self.rows: HeldRows | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Partition, (None, self.error)


class HeldRows:
    """The rows of all partitions of a task, with the engine that adds them up."""

    def __init__(self, parts: Sequence[Records]) -> None:
        self.parts = parts
        chunks = tuple(chunk for part in parts for chunk in part.chunks)
        self.records = replace(parts[0], chunks=chunks)
        self._engine: Engine | None = None
        self._capped: tuple[str, Slopes] | None = None

    @classmethod
    def of(cls, partitions: Sequence[Partition]) -> HeldRows:
        """Return the rows of some partitions.

        They are the same object as for the last task if that had the same rows.
        """
        parts = [one.records for one in partitions if one.records is not None]
        first, *others = partitions
        if first.rows is None or [*map(id, parts)] != [*map(id, first.rows.parts)]:
            first.rows = cls(parts)
        for other in others:
            other.rows = None  # of an earlier task with other partitions
        return first.rows

    def engine(self, n_threads: int) -> Engine:
        """Return the engine that adds up the rows."""
        if self._engine is None:
            # A worker uses the engine named by SKDP_ENGINE, unless that is Dask itself.
            name = name_engine()
            name = "compiled" if name.startswith("dask") else name
            self._engine = choose_engine(name, n_threads)(self.records)
        return self._engine

    def slopes(self, settings: Settings, engine: Engine) -> Slopes:
        """Return the slopes, with caps for these rows where needed."""
        if settings.metric is None and not settings.divide:
            return settings.slopes
        if self._capped is None or self._capped[0] != settings.name:
            if settings.metric is None:
                found = divide_slopes(engine.records, settings.slopes)
            else:
                found = cap_slopes(engine, settings.slopes, settings.metric)
            self._capped = settings.name, found
        return self._capped[1]


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The result of a task.

    Attributes
    ----------
    total : any value that supports addition
        The sum over the task's partitions.
    missing : tuple of int
        The numbers of the partitions whose rows the worker does not have.
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


def hold(name: Name, read: Read, *arguments: Any) -> Partition:
    """Read a partition. The worker keeps its rows for as long as Dask keeps the result.

    Arguments that are answers of other tasks are replaced by their totals. An error
    names the partition's file, or its number if it is not a file.
    """
    answer = call(read, *arguments)
    error = answer.error
    if error is not None and not isinstance(arguments[0], PathLike):
        error = type(error)(f"In partition {name[1]}: {error}")
    partition = Partition(answer.total, error)
    _get_shelf(get_worker())[name] = partition
    return partition


def add_up(table: str, numbers: Sequence[int], job: Job, *arguments: Any) -> Answer:
    """Return the sum of a job over the partitions `numbers`.

    If this worker lacks the rows of some partitions, the answer lists these partitions
    instead. `arguments` are results of other tasks, or values for these partitions
    alone. They are passed to the job's function after the job's own arguments.
    """
    try:
        worker = get_worker()
        shelf = _get_shelf(worker)
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
            return Answer(job.work(rows, threads, *job.arguments, *arguments))
    except Exception as error:
        return Answer(error=_make_public(error))


def call(work: Callable[..., Any], *arguments: Any) -> Answer:
    """Call a function, and return its result or its error.

    Arguments that are answers of other tasks, or lists of them, are replaced by their
    totals. If one of these answers has an error, that answer is returned instead. If
    the first argument is a file, an error names the file.
    """
    for one in arguments:
        for answer in one if isinstance(one, list) else [one]:
            if isinstance(answer, Answer) and answer.error is not None:
                return answer
    try:
        return Answer(work(*map(_get_totals, arguments)))
    except Exception as error:
        return Answer(error=_name_file(_make_public(error), *arguments[:1]))


def _get_totals(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_get_totals(one) for one in argument]
    return argument.total if isinstance(argument, Answer) else argument


def merge(answers: Sequence[Answer]) -> Answer:
    """Add up the answers of several tasks.

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


def share(settings: Settings) -> Settings:
    """Return the settings unchanged.

    This makes them the result of a task, which Dask copies to the workers that need it.
    """
    return settings


def compute_gradient(
    rows: HeldRows,
    n_threads: int,
    units: FloatArray,
    at: IntArray,
    settings: Settings,
    slopes: Slopes | None = None,
) -> BigInts:
    """Return the gradient of some rows. If given, `slopes` overrides `settings`."""
    engine = rows.engine(n_threads)
    own = rows.slopes(settings, engine) if slopes is None else slopes
    return engine.gradient(units, at, own)


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


def _make_public(error: Exception) -> Exception:
    """Return an error whose message is safe to show.

    If the original message might quote a cell, return a RuntimeError that names only
    the type of the original error.
    """
    if type(error) in PUBLIC_ERRORS:  # errors of other libraries derive from these
        return error.with_traceback(None)
    return RuntimeError(f"A worker failed with {type(error).__name__}.")


def _name_file(error: Exception, table: Any = None) -> Exception:
    """Return the error with the name of the file that a task has read.

    Names of files are public, because the caller has listed them.
    """
    if not isinstance(table, PathLike):
        return error
    path = Path(table)
    if not exists(path):  # the method of Path may raise an error
        return ValueError(
            f"A worker of the cluster does not find the file {str(path)!r}. Workers "
            "must be able to read all files, under the same paths as this process."
        )
    if path.name in str(error):
        return error
    return type(error)(f"In {path.name!r}: {error}")


def _get_shelf(worker: Any) -> WeakValueDictionary[Name, Partition]:
    """Return a worker's partitions, by name. Entries vanish when Dask drops them."""
    shelf: WeakValueDictionary[Name, Partition] = vars(worker).setdefault(
        "skdp_partitions", WeakValueDictionary()
    )
    return shelf
