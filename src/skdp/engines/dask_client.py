"""Connect to a Dask cluster, and wait for tasks whose workers may be lost."""

from __future__ import annotations

import logging
import time
import uuid
from asyncio import _get_running_loop, run_coroutine_threadsafe
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for_calls
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, TypeVar
from weakref import finalize

import dask
from distributed import Client, LocalCluster, wait
from distributed.actor import ProxyRPC
from distributed.protocol.pickle import loads
from distributed.scheduler import KilledWorker

from skdp.engines.dask_rows import Answer, merge
from skdp.engines.dask_tasks import leave
from skdp.engines.dask_tree import Branch, ask
from skdp.schema import check

T = TypeVar("T")

#: Largest number of answers that one task, or the caller, adds up.
FAN_IN = 16
#: Seconds between two checks of the cluster while tasks run.
LOOK = 0.5
#: Seconds to wait for a worker if the cluster has none.
PATIENCE = 60.0
#: Number of times that a sum is tried before lost workers become an error.
ATTEMPTS = 10
#: The error if the client is closed, or if the scheduler does not answer.
UNREACHABLE = "The scheduler of the cluster cannot be reached."


class ClusterError(RuntimeError):
    """Raised if a cluster could not finish its work."""


class WorkersLostError(Exception):
    """Raised if a cluster lost workers, so their tasks must be started again."""


def hide_sizes() -> Any:
    """Keep Dask from warning about the size of what is sent to workers.

    The warning would state the size of rows, which a single record may change.
    """
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})


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
        self.client: Any = _get_current() if address is None else None
        if self.client is None:
            self.client, closed = _connect(address, n_threads)
            finalize(self, _close_all, closed)

    def find_workers(self) -> dict[str, int]:
        """Return the number of threads of each running worker, by its address.

        If there are no such workers, wait for the first one. Dask pauses workers that
        are short of memory, and they start no tasks then.
        """
        end = time.monotonic() + PATIENCE
        while True:
            workers = self.list_workers(running=True)
            if workers:
                return workers
            if time.monotonic() > end:
                raise ClusterError(
                    f"The cluster has had no workers for {PATIENCE:g} seconds."
                )
            time.sleep(LOOK)

    def submit(
        self, task: Callable[..., Any], *arguments: Any, worker: str | None = None
    ) -> Any:
        """Start a task, on the given worker or anywhere, and return its future.

        The name of a task consists of the name of its function and random digits.
        Dask's usual names would contain a hash of the arguments, which may hold rows.
        """
        self._check_open()
        with hide_sizes():
            return self.client.submit(
                task,
                *arguments,
                key=f"skdp-{task.__name__}-{uuid.uuid4().hex}",
                workers=None if worker is None else [worker],
                priority=1,  # before the tasks that read further partitions
                pure=False,
            )

    def finish(self, futures: Sequence[Any], workers: Collection[str] = ()) -> None:
        """Wait until all tasks are done.

        The tasks are bound to `workers`. Raise WorkersLostError if one of these workers
        is lost or paused first.
        """
        if not self._watch(self._wait(futures), workers, running=True):
            _raise_failure(futures)

    async def _wait(self, futures: Sequence[Any]) -> bool:
        """Wait until tasks are done, and return whether all of them have results."""
        with self.client.as_current():
            await wait(futures)
        return all(future.status == "finished" for future in futures)

    def total(self, futures: Sequence[Any], workers: Collection[str] = ()) -> Answer:
        """Return the sum of the tasks' answers. The cluster adds them up in a tree."""
        level = list(futures)
        while len(level) > FAN_IN:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [self.submit(merge, group) for group in groups]

        async def gather() -> list[Answer]:
            if not await self._wait(level):
                return []
            # Dask computes answers again that were lost with their worker. If that is
            # impossible, it leaves them out.
            skip = {"errors": "skip", "asynchronous": True}
            found: list[Answer] = await self.client.gather(level, **skip)
            return found

        answers = self._watch(gather(), workers)
        if len(answers) < len(level):
            _raise_failure(level)
        return merge(answers)

    def ask(
        self,
        packed: bytes,
        branch: Branch,
        workers: Collection[str],
        meanwhile: Callable[[], None],
    ) -> Answer:
        """Return the sum that a tree of `workers` computes, as in `dask_tree`.

        Call `meanwhile` now and then if this takes long.
        """
        self._check_open()
        proxy = ProxyRPC(self.client.scheduler, branch.worker)
        work = ask(proxy, packed, branch)
        answer: Answer = loads(self._watch(work, workers, meanwhile))
        return answer

    def let_go(self, table: str, workers: Collection[str]) -> None:
        """End the tasks `dask_tasks.stay` for a table on some workers.

        If this is not possible in a short time, they end by themselves a little later.
        """

        async def tell() -> None:
            own = {"workers": list(workers), "on_error": "ignore"}
            await self.client.run(leave, table, **own)

        with suppress(Exception):
            self._check_open()
            loop = self.client.loop.asyncio_loop
            if workers and loop is not _get_running_loop():  # so this thread may wait
                run_coroutine_threadsafe(tell(), loop).result(LOOK)

    def _watch(
        self,
        work: Coroutine[Any, Any, T],
        workers: Collection[str],
        meanwhile: Callable[[], None] = lambda: None,
        running: bool = False,
    ) -> T:
        """Return the result of `work`, and look for lost workers in the meantime.

        Raise an error if one of `workers` is lost, or if no workers are left. A worker
        may be lost with its answer after it has finished its task. If `running` is
        true, a worker that is paused counts as lost.
        """
        alone = time.monotonic()
        call = run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)
        try:
            while not wait_for_calls([call], LOOK).done:
                present = self.list_workers(running)
                if not set(workers) <= set(present):
                    raise WorkersLostError
                meanwhile()
                alone = time.monotonic() if present else alone
                if time.monotonic() > alone + PATIENCE:
                    raise ClusterError(
                        f"The cluster has had no workers for {PATIENCE:g} seconds."
                    )
            return call.result()
        except (CancelledError, KilledWorker, OSError):
            raise WorkersLostError from None
        except AttributeError:  # from Dask, if the client was closed in the meantime
            self._check_open()
            raise
        finally:
            call.cancel()

    def find_holders(self, futures: dict[int, Any]) -> dict[int, str]:
        """Return the worker that has the result of each task, by the task's number."""
        if not futures:
            return {}
        try:
            holders = self.client.who_has(list(futures.values()))
        except (OSError, TimeoutError, RuntimeError, AttributeError):
            return {}  # the next look at the cluster reports the reason
        return {
            number: holders[future.key][0]
            for number, future in futures.items()
            if holders.get(future.key)
        }

    def list_workers(self, running: bool = False) -> dict[str, int]:
        """Return the number of threads of each worker, or only of those not paused."""
        self._check_open()
        scheduler = self.client.scheduler
        look = scheduler.ncores_running if running else scheduler.ncores
        limit = {"workers": None, "callback_timeout": PATIENCE}
        try:
            workers: dict[str, int] = self.client.sync(look, **limit)
        except (OSError, TimeoutError, RuntimeError, AttributeError):
            raise ClusterError(UNREACHABLE) from None
        return workers

    def _check_open(self) -> None:
        if self.client.status not in ("running", "connecting"):
            raise ClusterError(UNREACHABLE)


def get_total(answer: Answer) -> Any:
    """Return the total of an answer, or raise its error."""
    if answer.error is not None:
        raise answer.error
    return answer.total


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


def _raise_failure(futures: Sequence[Any]) -> NoReturn:
    """Raise the error for tasks of which at least one has no result."""
    failed = [future for future in futures if future.status == "error"]
    error = failed[0].exception() if failed else None
    if error is None or isinstance(error, (CancelledError, KilledWorker)):
        raise WorkersLostError
    # A message may quote an argument, so it is shown only if it names a missing module.
    detail = f": {error}" if isinstance(error, ImportError) else ""
    raise ClusterError(
        f"A task could not run on the cluster ({type(error).__name__}{detail})."
    )


def _get_current() -> Any:
    try:
        return Client.current()
    except ValueError:
        return None


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
