"""Add up rows on the workers of a Dask cluster.

Dask's tasks read and encode the partitions of a table. On each worker, an actor, which
is Dask's word for an object that stays on a worker, takes the rows that were read
there. The caller asks the actors for each sum and adds up their answers. Weights,
settings and schemas travel to the workers, and exact integer sums travel back. A sum is
a pure function of the rows and of the values sent. If a worker is lost, its partitions
are read again and the sum is computed again, with the same result.

Sums are not tasks, because Dask's scheduler takes several times as long for a task as
for a call to an actor, and a gradient takes only milliseconds. Actors also keep what is
derived from their rows, such as margins. Dask does not move or copy them or write them
to disk, and keeps a worker that has one. But it does not start lost actors again,
so `Partitions` does.

Neither tasks nor actors raise errors, because Dask logs the arguments of a failing task
and an error may quote a cell. They return an `Answer` instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from asyncio import run_coroutine_threadsafe
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_calls
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from os.path import exists
from typing import Any, ClassVar, NamedTuple, NoReturn, cast
from weakref import finalize

import dask
import numpy as np
from distributed import Client, LocalCluster, get_worker, wait
from distributed.scheduler import KilledWorker

from skdp.engines.choice import choose_engine, name_engine
from skdp.privacy.encoding import AnyArray, Chunk, Records
from skdp.privacy.persons import divide_slopes
from skdp.privacy.queries import BigInts, Engine, Metric, Slopes, cap_slopes
from skdp.schema import FloatArray, InputError, IntArray, check
from skdp.tables.locations import get_name, is_address, show_path
from skdp.tables.placed import Read

#: Largest number of answers that one task adds up.
FAN_IN = 16
#: Seconds between two checks of the cluster while it works.
LOOK = 0.5
#: Seconds to wait for a worker if the cluster has none.
PATIENCE = 60.0
#: Seconds to wait for a worker before rows are sent to it.
SEND = 5.0
#: Number of times that a sum is tried before lost workers become an error.
ATTEMPTS = 10
#: The error if the client is closed, or if the scheduler does not answer.
UNREACHABLE = "The scheduler of the cluster cannot be reached."
#: Errors whose messages are public, because readers raise them on purpose.
PUBLIC_ERRORS = (InputError, ImportError, ModuleNotFoundError)
#: Errors whose messages are public if they come from the operating system.
FILE_ERRORS = (OSError, FileNotFoundError, PermissionError)


class ClusterError(RuntimeError):
    """Raised if a cluster could not finish its work."""


class WorkersLostError(Exception):
    """Raised if rows or tasks were lost with a worker, so they must start again."""


# What workers run.


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The result of a task or an actor, or its error."""

    total: Any = None
    error: Exception | None = None


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
    except BaseException as error:  # Dask would log any that is left
        return Answer(error=_name_file(make_public(error), *arguments[:1]))


def _get_totals(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_get_totals(one) for one in argument]
    return argument.total if isinstance(argument, Answer) else argument


def make_public(error: BaseException) -> Exception:
    """Return an error whose message is safe to show.

    If the original message might quote a cell, return a RuntimeError that names only
    the type of the original error.
    """
    # Only equal types count, because errors of other libraries derive from these. An
    # OSError without a number is not from the system, and may describe a file's cells.
    public = type(error) in PUBLIC_ERRORS
    if type(error) in FILE_ERRORS and isinstance(error, OSError):
        public = error.errno is not None
    if public and isinstance(error, Exception):
        return error.with_traceback(None)
    return RuntimeError(f"A worker failed with {type(error).__name__}.")


def _name_file(error: Exception, table: Any = None) -> Exception:
    """Return the error with the name of the file that a task has read.

    Names of files are public, because the caller has listed them.
    """
    if not isinstance(table, PathLike):
        return error
    name, shown = get_name(table), show_path(table)
    if not (is_address(table) or exists(table)):  # a Path's method may raise an error
        return ValueError(
            f"A worker of the cluster does not find the file {shown!r}. Workers "
            "must be able to read all files, under the same paths as this process."
        )
    if name in str(error):
        return error
    return type(error)(f"In {name!r}: {error}")


def add_totals(totals: Sequence[Any]) -> Any:
    """Return the sum of some values of any type that supports addition."""
    total = totals[0]
    for one in totals[1:]:
        total = total + one
    return total


class Partition:
    """The encoded rows of a partition, on their way from a task to an actor.

    Pickling leaves out the rows, because Dask pickles the results of tasks to move them
    to other workers or to disk. The rows count as lost then, and are read again.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __reduce__(self) -> tuple[Any, ...]:
        error = self.answer.error or WorkersLostError()
        return Partition, (Answer(error=error),)


def read_partition(number: int, read: Read, *arguments: Any) -> Partition:
    """Read a partition. An error names the partition's file or else its number."""
    answer = call(read, *arguments)
    error = answer.error
    if error is not None and not isinstance(arguments[0], PathLike):
        answer = Answer(error=type(error)(f"In partition {number}: {error}"))
    return Partition(answer)


class Settings(NamedTuple):
    """The settings for gradients that stay the same from step to step.

    Equal settings have the same name. An actor receives only the name if it has them
    already. ``find_slopes(engine)`` returns the slopes for the rows of an engine.
    """

    name: str
    find_slopes: Callable[[Engine], Slopes]


class Adder:
    """The actor that keeps the rows of some partitions and adds them up.

    Dask runs the methods of all actors of a worker in one thread, so sums use threads
    of their own.

    Parameters
    ----------
    partitions : sequence of Partition
        The partitions. There must be at least one.
    n_threads : int, optional
        The number of threads. By default, as many as Dask gives to the worker.
    """

    def __init__(
        self, partitions: Sequence[Partition], n_threads: int | None = None
    ) -> None:
        answers = [one.answer for one in partitions]
        self._error = next((one for one in answers if one.error is not None), None)
        self._parts: list[Records] = [one.total for one in answers]
        self._n_threads = n_threads or get_worker().state.nthreads
        self._engine: Engine | None = None
        # Slopes hold caps and divisors of these rows. If the rows are read again, they
        # may be in another order, but they also get another actor.
        self._slopes: tuple[str, Any] = "", None

    def add_up(self, name: str, *arguments: Any) -> Answer:
        """Return the result of a method, which is a sum over the rows."""
        return self._error or call(getattr(self, name), *arguments)

    def engine(self) -> Engine:
        """Return the engine that adds up the rows."""
        if self._engine is None:
            chunks = tuple(chunk for part in self._parts for chunk in part.chunks)
            records = replace(self._parts[0], chunks=chunks)
            self._engine = make_local_engine(records, self._n_threads)
        return self._engine

    def gradient(
        self,
        units: FloatArray,
        at: IntArray,
        name: str,
        find_slopes: Callable[[Engine], Slopes] | None,
    ) -> BigInts:
        """Return the gradient for the settings of this name.

        They may be left out if they are those of the last gradient.
        """
        if find_slopes is not None:
            self._slopes = name, find_slopes(self.engine())
        known, slopes = self._slopes
        if known != name:  # a call that was given up has come late
            raise RuntimeError("These are not the settings of the last gradient.")
        return self.engine().gradient(units, at, slopes)

    def gram(self) -> BigInts:
        """Return the Gram matrix."""
        return self.engine().gram()

    def counts(self, n_classes: int) -> BigInts:
        """Return the class counts."""
        return self.engine().counts(n_classes)

    def apply(self, work: Callable[[Records], Any]) -> Any:
        """Return the sum of a function of records over the partitions."""
        with ThreadPoolExecutor(min(self._n_threads, len(self._parts))) as pool:
            return add_totals(list(pool.map(work, self._parts)))


def make_local_engine(records: Records, n_threads: int | None) -> Engine:
    """Return an engine for rows that are in this process.

    It is the one named by SKDP_ENGINE, unless that is Dask itself.
    """
    name = name_engine()
    name = "compiled" if name.startswith("dask") else name
    return choose_engine(name, n_threads)(records)


# What the calling process does.


def get_total(answers: Sequence[Answer]) -> Any:
    """Return the sum of some answers, or raise the first error."""
    answer = call(add_totals, [*answers])
    if answer.error is not None:
        try:
            raise answer.error
        finally:  # or else the error would keep the rows alive
            del answer, answers
    return answer.total


class Cluster:
    """A connection to a Dask cluster.

    Parameters
    ----------
    address : str, optional
        The address of the scheduler. By default the current client is used. If there is
        no client, a cluster of threads is started in this process. That cluster ends
        with this object.
    n_threads : int, optional
        The threads that each worker uses for a sum. By default, as many as Dask gives
        to the worker.
    """

    def __init__(
        self, address: str | None = None, n_threads: int | None = None
    ) -> None:
        check(
            n_threads is None or n_threads >= 1,
            f"n_threads must be at least 1, got {n_threads}.",
        )
        self.n_threads = n_threads
        self.client: Any = None
        if address is None:
            with suppress(ValueError):  # there is no current client
                self.client = Client.current()
        if self.client is None:
            self.client, opened = _connect(address, n_threads)
            finalize(self, _close_all, opened)

    def find_workers(self, running: bool = True) -> dict[str, int]:
        """Return the number of threads of each worker, by its address.

        Dask pauses workers that are short of memory, and they start no tasks then. If
        `running` is true, they are left out. If there are no workers, wait for one.
        """
        end = time.monotonic() + PATIENCE
        while True:
            self._check_open()
            scheduler = self.client.scheduler
            look = scheduler.ncores_running if running else scheduler.ncores
            limit = {"workers": None, "callback_timeout": PATIENCE}
            try:
                workers: dict[str, int] = self.client.sync(look, **limit)
            except (OSError, TimeoutError, RuntimeError, AttributeError):
                raise ClusterError(UNREACHABLE) from None
            if workers:
                return workers
            if time.monotonic() > end:
                raise ClusterError(
                    f"The cluster has had no workers for {PATIENCE:g} seconds."
                )
            time.sleep(LOOK)

    def _check_open(self) -> None:
        if self.client.status not in ("running", "connecting"):
            raise ClusterError(UNREACHABLE)

    def submit(
        self,
        task: Callable[..., Any],
        *arguments: Any,
        worker: str | None = None,
        actor: bool = False,
    ) -> Any:
        """Start a task, preferably on the given worker, and return its future.

        The name of a task consists of the name of its function and random digits.
        Dask's usual names would contain a hash of the arguments, which may hold rows.
        """
        self._check_open()
        with hide_sizes():
            return self.client.submit(
                task,
                *arguments,
                key=f"skdp-{task.__name__}-{uuid.uuid4().hex}",
                workers=worker,
                allow_other_workers=worker is not None,
                priority=1,  # before the tasks that read further partitions
                pure=False,
                actor=actor,
            )

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait until all tasks are done, and return their results.

        Dask starts tasks again if workers are lost. If that is impossible, raise an
        error.
        """

        async def fetch() -> list[Any]:
            with self.client.as_current():  # for references to actors too
                await wait(futures)
                skip = {"errors": "skip", "asynchronous": True}
                found: list[Any] = await self.client.gather(futures, **skip)
            return found

        results: list[Any] = self._run(fetch())
        if len(results) < len(futures):
            _refuse(futures)
        return results

    def total(self, futures: Sequence[Any]) -> Any:
        """Return the sum of the tasks' answers. The cluster adds them up in a tree."""
        level = list(futures)
        while len(level) > FAN_IN:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [self.submit(call, add_totals, group) for group in groups]
        return get_total(self.gather(level))

    def ask(self, held: Sequence[Held], questions: Sequence[Any]) -> list[Answer]:
        """Call the method `add_up` of some actors, and return their answers."""

        async def ask_all() -> list[Answer]:
            pairs = zip(held, questions, strict=True)
            return await asyncio.gather(*(_ask(*pair) for pair in pairs))

        return cast("list[Answer]", self._run(ask_all()))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of `work`. Raise an error if no workers are left for it."""
        self._check_open()
        running = run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)
        try:
            while not wait_for_calls([running], LOOK).done:
                self.find_workers(running=False)
            return running.result()
        except (CancelledError, KilledWorker, OSError):
            raise WorkersLostError from None
        except AttributeError:  # from Dask, if the client was closed in the meantime
            self._check_open()
            raise
        finally:
            running.cancel()

    def find_homes(self, futures: Sequence[Any]) -> list[str]:
        """Return the worker that has the result of each task."""
        try:
            homes = self.client.who_has(list(futures))
            return [homes[future.key][0] for future in futures]
        except (OSError, TimeoutError, RuntimeError, AttributeError, LookupError):
            raise WorkersLostError from None  # the next look at the cluster says why


async def _ask(held: Held, question: tuple[Any, ...]) -> Answer:
    """Call an actor. If it was lost, the answer's error is a WorkersLostError."""
    try:
        asked = asyncio.ensure_future(held.actor.add_up(*question))
        try:
            # Dask never ends a call to an actor whose worker was lost in the meantime.
            while not (await asyncio.wait([asked], timeout=LOOK))[0]:
                if held.future.status != "finished":
                    raise WorkersLostError
            return cast("Answer", asked.result())
        finally:
            asked.cancel()
    except Exception:  # whatever Dask raises if a connection breaks
        return Answer(error=WorkersLostError())


def keep_trying(attempt: Callable[[], Any]) -> Any:
    """Return the result of `attempt`. Call it again each time workers are lost."""
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except WorkersLostError:
            continue
    raise ClusterError(
        f"The cluster lost workers, or rows that they kept, {ATTEMPTS} times in a row. "
        "Check whether the workers have enough memory."
    )


def _refuse(futures: Sequence[Any]) -> NoReturn:
    """Raise the error for tasks of which at least one has no result."""
    failed = [future for future in futures if future.status == "error"]
    error = failed[0].exception() if failed else None
    lost = isinstance(error, (CancelledError, KilledWorker))
    if error is None or lost or type(error) is RuntimeError:  # an actor was lost
        raise WorkersLostError
    # A message may quote an argument, so it is shown only if it names a missing module.
    detail = f": {error}" if isinstance(error, ImportError) else ""
    raise ClusterError(
        f"A task could not run on the cluster ({type(error).__name__}{detail})."
    )


def hide_sizes() -> Any:
    """Keep Dask from warning about the size of what is sent to workers.

    The warning would state the size of rows, which a single record may change.
    """
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})


class _Quiet:
    """Hides Dask's messages below ERROR until it is closed.

    Dask's own option ``silence_logs`` is not enough. If there are several clusters, it
    shows messages again as soon as the first cluster is closed.
    """

    n_open: ClassVar[int] = 0
    levels: ClassVar[dict[logging.Handler, int]] = {}

    def __init__(self) -> None:
        if _Quiet.n_open == 0:
            handlers = logging.getLogger("distributed").handlers
            _Quiet.levels = {handler: handler.level for handler in handlers}
        _Quiet.n_open += 1
        for handler in _Quiet.levels:
            handler.setLevel(logging.ERROR)

    def close(self) -> None:
        """Show messages again if no other object hides them."""
        _Quiet.n_open -= 1
        if _Quiet.n_open == 0:
            for handler, level in _Quiet.levels.items():
                handler.setLevel(level)


def _connect(address: str | None, n_threads: int | None) -> tuple[Any, list[Any]]:
    """Return a client, and the objects to close after use."""
    if address is None:
        # No dashboard is served, and ports are open to this machine only.
        pages: dict[str, list[str]] = {
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
        }
        quiet = _Quiet()
        with dask.config.set(pages):
            cluster = LocalCluster(
                processes=False,
                n_workers=1,
                threads_per_worker=n_threads,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                silence_logs=False,  # `quiet` does it
            )
        client = Client(cluster, set_as_default=False)
        return client, [client, cluster, quiet]
    try:
        client = Client(address, set_as_default=False)
    except (OSError, TimeoutError, ValueError):
        raise ClusterError(f"There is no Dask scheduler at {address!r}.") from None
    return client, [client]


def _close_all(opened: list[Any]) -> None:
    for one in opened:
        one.close()


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """What a worker needs to read a partition.

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

    def arguments(self, cluster: Cluster, worker: str | None = None) -> list[Any]:
        """Return the arguments of the function that reads the partition."""
        given = (self.table, self.target, self.weight, self.keep, self.counts)
        return [one(cluster.client, worker) if callable(one) else one for one in given]


@dataclass(eq=False, repr=False)
class Held:
    """An actor with the rows of some partitions."""

    actor: Any  # Dask's reference to an `Adder`
    future: Any  # keeps the actor alive
    worker: str
    numbers: list[int]  # of the partitions
    settings: str = ""  # the name of the settings that the actor has

    def __post_init__(self) -> None:
        # Dask's reference to an actor is part of a cycle after a call. It would keep
        # the rows on their worker until Python looks for cycles.
        finalize(self, _forget, self.future).atexit = False


def _forget(future: Any) -> None:
    client = future.client
    if client.status == "running":
        client.loop.add_callback(client.cancel, [future], asynchronous=True)


class Partitions:
    """The partitions of a table, and the actors that keep their rows.

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
        self._held: list[Held] = []
        self._known: set[str] = set()  # the workers at the last look

    def add_up(
        self,
        name: str,
        *arguments: Any,
        settings: Callable[[Sequence[int]], Settings] | None = None,
    ) -> Any:
        """Return the sum of what the method `name` of all actors returns.

        If given, ``settings(numbers)`` are the settings for the partitions with these
        numbers. They become the last arguments of the method.
        """

        def attempt() -> Any:
            self._settle()
            return get_total(self._ask(name, arguments, settings))

        return keep_trying(attempt)

    def _ask(
        self, name: str, arguments: tuple[Any, ...], settings: Any
    ) -> list[Answer]:
        """Return the answer of each actor."""
        questions, sent = [], []
        for held in self._held:
            question = name, *arguments
            if settings is not None:
                own = settings(held.numbers)
                sent.append(own.name)
                known = held.settings == own.name
                question += (own.name, None if known else own.find_slopes)
                held.settings = ""  # until the actor has answered
            questions.append(question)
        answers = self.cluster.ask(self._held, questions)
        lost = [isinstance(one.error, WorkersLostError) for one in answers]
        if any(lost):
            pairs = zip(self._held, lost, strict=True)
            self._held = [held for held, gone in pairs if not gone]
            raise WorkersLostError
        for held, sent_name in zip(self._held, sent, strict=False):
            held.settings = sent_name
        return answers

    def _settle(self) -> None:
        """Make sure that an actor has the rows of each partition."""
        workers = self.cluster.find_workers()
        self._held = [one for one in self._held if one.future.status == "finished"]
        # Dask does not move actors to workers that are new. So the actors with the most
        # partitions are given up, and their partitions are read again on all workers.
        new = set(workers) - self._known - {one.worker for one in self._held}
        most = sorted(self._held, key=lambda one: -len(one.numbers))[: len(new)]
        self._held = [
            one for one in self._held if one not in most or len(one.numbers) == 1
        ]
        self._known = set(workers)
        kept = {number for one in self._held for number in one.numbers}
        missing = [n for n in range(len(self.parts)) if n not in kept]
        if missing:
            self._hold(missing, workers)

    def _hold(self, missing: Sequence[int], workers: dict[str, int]) -> None:
        """Let workers read some partitions, and start actors that keep their rows."""
        # Dask would balance the number of tasks. But in each step, all workers wait for
        # the one with the most rows per thread.
        load = dict.fromkeys(workers, 0.0)
        for one in self._held:
            size = sum(self.parts[n].size for n in one.numbers)
            load[one.worker] = load.get(one.worker, 0.0) + size
        futures = {}
        for number in sorted(missing, key=lambda n: -self.parts[n].size):
            part = self.parts[number]
            worker = min(workers, key=lambda w: (load[w] + part.size) / workers[w])
            load[worker] += part.size
            try:
                arguments = part.arguments(self.cluster, worker)
            except (OSError, TimeoutError, CancelledError):  # while rows were sent
                raise WorkersLostError from None
            futures[number] = self.cluster.submit(
                read_partition,
                number,
                self._read,
                *arguments,
                worker=None if part.anywhere else worker,
            )
        del arguments  # which Dask may forget as soon as the rows have been read
        self.cluster.gather(list(futures.values()))  # none of them has its rows here
        homes: dict[str, list[int]] = {}
        where = self.cluster.find_homes(list(futures.values()))
        for number, home in zip(futures, where, strict=True):
            homes.setdefault(home, []).append(number)
        made = [
            self.cluster.submit(
                Adder,
                [futures[n] for n in numbers],
                self.cluster.n_threads,
                worker=home,
                actor=True,
            )
            for home, numbers in homes.items()
        ]
        given = zip(self.cluster.gather(made), made, homes, homes.values(), strict=True)
        self._held += [Held(*one) for one in given]


class AwayChunks(Sequence[Any]):
    """A placeholder for the chunks of a table whose rows are in other processes."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise ValueError(
            "This algorithm needs all rows in one process, but the rows of this table "
            "stay on the workers of a cluster. Use DP-SkGD, or a solver that is "
            "registered without reads_rows."
        )

    __len__ = __iter__ = __getitem__ = _refuse


class AwayCaps(AwayChunks):
    """A placeholder for the caps of rows that are in other processes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings  # from which actors compute the caps


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
        return self.partitions.add_up("apply", work)


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
        #: The chunks of each partition, if they are in this process.
        self._runs: list[list[int]] = []
        if isinstance(records, ClusterRecords):
            self.partitions = records.partitions
        else:
            cluster = Cluster(address, n_threads)
            n_parts = max(1, min(len(records.chunks), len(cluster.find_workers())))
            every = np.arange(len(records.chunks))
            self._runs = [run.tolist() for run in np.array_split(every, n_parts)]
            parts = [_send_chunks(records, run) for run in self._runs]
            self.partitions = Partitions(cluster, parts, _return)
        self._last: tuple[Any, Any, str] = None, None, ""

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return the same gradient as `ReferenceEngine.gradient`."""
        caps, facts = slopes.caps, (slopes.loss, slopes.max_weight, slopes.bits)
        if self._last[0] != facts or self._last[1] is not caps:
            self._last = facts, caps, uuid.uuid4().hex  # equal settings, equal names

        def find_settings(numbers: Sequence[int]) -> Settings:
            if isinstance(caps, AwayCaps):
                return caps.settings
            if self.records.elsewhere:
                return Settings(self._last[2], partial(_divide_on_worker, slopes))
            run = [chunk for number in numbers for chunk in self._runs[number]]
            return Settings(self._last[2], partial(_return, slopes.take_chunks(run)))

        total: BigInts = self.partitions.add_up(
            "gradient", units, at, settings=find_settings
        )
        return total

    def gram(self) -> BigInts:
        """Return the same Gram matrix as `ReferenceEngine.gram`."""
        total: BigInts = self.partitions.add_up("gram")
        return total

    def counts(self, n_classes: int) -> BigInts:
        """Return the same class counts as `ReferenceEngine.counts`."""
        total: BigInts = self.partitions.add_up("counts", n_classes)
        return total

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[AnyArray]:
        """Return the rows' caps, or a placeholder if the rows are on the workers."""
        if self.records.elsewhere:
            find = partial(cap_slopes, slopes=slopes, metric=metric)
            return AwayCaps(Settings(uuid.uuid4().hex, find))
        n_threads = self.partitions.cluster.n_threads
        return make_local_engine(self.records, n_threads).caps(metric, slopes)


def _send_chunks(records: Records, run: Sequence[int]) -> Part:
    """Return a partition of rows that are in this process."""
    chunks = tuple(
        # A chunk may hold a view of a file. The new chunk leaves it out.
        Chunk(chunk.parts, chunk.target, chunk.weight, chunk.divisor)
        for chunk in (records.chunks[i] for i in run)
    )
    own = Records(records.layout, chunks, records.max_weight)

    def send(client: Any, worker: str) -> Any:
        """Send the rows to a worker directly, and not through the scheduler."""
        to = {"workers": [worker], "hash": False, "direct": True, "timeout": SEND}
        return client.scatter([own], **to)[0]

    return Part(send, size=float(len(chunks)))


def _return(value: Any, *_: Any) -> Any:
    return value


def _divide_on_worker(slopes: Slopes, engine: Engine) -> Slopes:
    return divide_slopes(engine.records, slopes)
