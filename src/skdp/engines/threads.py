"""Keep a team of threads together, and share the rows among them."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, cached_property
from threading import Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from skdp.engines import kernels
from skdp.engines.kernels import MOST_ROWS, TILE, SweepJob

# ---- Let threads sweep over rows without waiting for the interpreter's lock
#
# A thread needs the interpreter's lock to start or end a call from Python. Sixteen
# threads therefore start one after another, which takes longer than a sweep over a
# million rows. The threads of a `Team` stay in compiled code from one sweep to the
# next. They wait there for locks of the operating system, which need no interpreter.
# The thread that calls the team sweeps too.
#
# numba's own parallel loops would also work without the lock. But they kill a forked
# process that uses them. With some threading libraries, they also kill a process in
# which two threads use them at the same time.


#: Words after the fields of a job: the compiled sweep, how often a thread tries to
#: acquire a lock before it sleeps, whether the threads must end, and the addresses of
#: two C functions that acquire and release a lock. They do not depend on the number of
#: fields, because numba keeps compiled code until this file changes. numba describes a
#: compiled function by two or three words.
SWEEP, TRIES, END, ACQUIRE, RELEASE = 56, 60, 61, 62, 63
#: How often a thread tries to acquire a lock, if each thread has a core of its own.
#: This takes one or two milliseconds, which is longer than the time between two sweeps.
#: Waking a thread that sleeps takes longer, above all on a virtual machine.
MANY_TRIES = 1 << 16

Words = npt.NDArray[np.int64]


def _call_with(*arguments: int) -> Any:
    """Return a compiled function that calls a C function at an address.

    The C function gets a pointer and then the integers in `arguments`. It returns an
    integer. If it is declared to return nothing, this integer has no meaning.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(number, [pointer, *[number] * len(arguments)])
        function = builder.inttoptr(values[0], kind.as_pointer())
        lock = builder.inttoptr(values[1], pointer)
        return builder.call(function, [lock, *(number(one) for one in arguments)])

    def call(typing_context: Any, function: Any, lock: Any) -> Any:
        return types.int32(types.int64, types.int64), codegen

    return intrinsic(call)


_acquire, _try_to_acquire, _release = _call_with(1), _call_with(0), _call_with()

WORDS, PAIRS = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
SWEEP_TYPE = types.FunctionType(types.void(WORDS))


def _store_function(typing_context: Any, function: Any, address: Any) -> Any:
    """Define the compiled function `_store`, which stores a function at an address."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[1], values[0].type.as_pointer())
        builder.store(values[0], pointer)
        return context.get_dummy_value()

    return types.void(SWEEP_TYPE, types.int64), codegen


def _load_function(typing_context: Any, address: Any) -> Any:
    """Define the compiled function `_load`, which returns the function stored there."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(SWEEP_TYPE)
        return builder.load(builder.inttoptr(values[0], kind.as_pointer()))

    return SWEEP_TYPE(types.int64), codegen


_store: Any = intrinsic(_store_function)
_load: Any = intrinsic(_load_function)


def _keep(sweep: Any, job: Words) -> None:
    _store(sweep, job.ctypes.data + 8 * SWEEP)


@kernels.kernel()
def _wait_for(lock: int, job: Words) -> None:
    """Acquire a lock when it is released."""
    for _ in range(job[TRIES]):
        if _try_to_acquire(job[ACQUIRE], lock):
            return
    _acquire(job[ACQUIRE], lock)


def _work(job: Words, locks: Words) -> None:
    """Wait for the first lock, sweep, and release the second lock, until the end."""
    sweep = _load(job.ctypes.data + 8 * SWEEP)
    while True:
        _wait_for(locks[0], job)
        if job[END]:
            break
        try:  # noqa: SIM105 (compiled code has no contextlib)
            sweep(job)
        except Exception:  # the job then counts too few threads as finished
            pass
        _release(job[RELEASE], locks[1])


def _lead(job: Words, locks: Words, finished: int) -> int:
    """Wake the threads with these locks, sweep too, and wait until all have swept.

    Return how many have finished, which is the job's field with the index `finished`.
    """
    sweep = _load(job.ctypes.data + 8 * SWEEP)
    for i in range(len(locks)):
        _release(job[RELEASE], locks[i, 0])
    try:  # noqa: SIM105 (compiled code has no contextlib)
        sweep(job)
    except Exception:  # see `_work`
        pass
    for i in range(len(locks)):
        _wait_for(locks[i, 1], job)
    return int(job[finished])


@cache
def _compile() -> tuple[Any, Any, Any]:
    """Compile `_keep`, `_work` and `_lead`.

    They get the sweep as a value. Otherwise it would be compiled again. Python takes
    long to pass such a value, so it does this once and not for each sweep.
    """
    return (
        kernels.kernel(types.void(SWEEP_TYPE, WORDS))(_keep),
        kernels.kernel(types.void(WORDS, WORDS))(_work),
        kernels.kernel(types.int64(WORDS, PAIRS, types.int64))(_lead),
    )


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Team:
    """Threads that sweep over rows together.

    Parameters
    ----------
    n_threads : int
        The number of threads, including the one that calls `sweep`.
    """

    def __init__(self, n_threads: int) -> None:
        keep, work, self._lead = _compile()
        python = ctypes.pythonapi
        python.PyThread_allocate_lock.restype = ctypes.c_void_p
        functions = python.PyThread_acquire_lock, python.PyThread_release_lock
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
        self._one_at_a_time = Lock()
        self._job = np.zeros(RELEASE + 1, np.int64)
        self._job[ACQUIRE:] = addresses
        self._job[TRIES] = MANY_TRIES if n_threads <= count_cores() else 0
        self._sweep = kernels.sweep  # kept alive, like any function that is stored
        keep(self._sweep, self._job)
        others = n_threads - 1
        locks = [python.PyThread_allocate_lock() for _ in range(2 * others)]
        for lock in locks:
            python.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
        self._locks = np.array(locks, np.int64).reshape(others, 2)
        for own in self._locks:
            Thread(target=_follow, args=(work, self._job, own), daemon=True).start()
        end = weakref.finalize(self, _end, self._job, self._locks, os.getpid())
        end.atexit = False  # the threads end with the process

    def sweep(self, job: SweepJob, n_threads: int) -> None:
        """Let some of the threads sweep."""
        with self._one_at_a_time:
            self._job[: len(job)] = job
            others = self._locks[: n_threads - 1]
            finished = self._lead(self._job, others, kernels.FINISHED)
        if finished < n_threads:
            raise MemoryError("There is not enough memory for a sweep over the rows.")


def _follow(work: Any, job: Words, locks: Words) -> None:
    """Sweep whenever the first lock is released, and free both locks at the end."""
    work(job, locks)
    for lock in locks.tolist():
        ctypes.pythonapi.PyThread_free_lock(ctypes.c_void_p(lock))


def _end(job: Words, locks: Words, process: int) -> None:
    """Let the threads of a team end, without waiting for them.

    The garbage collector may call this function anywhere, even while a lock is held
    that a thread needs in order to end.
    """
    if os.getpid() != process:  # a forked process has no threads to end
        return
    job[END] = 1
    for lock in locks[:, 0].tolist():
        ctypes.pythonapi.PyThread_release_lock(ctypes.c_void_p(lock))


# ---- Divide the rows of a table among threads


#: Rough number of column entries that make it worthwhile to use one more thread.
TASK_ENTRIES = 1 << 21
#: Number of shares of rows per thread if the rows are in a file. Each share takes a
#: call from Python, and its memory is released afterwards.
FILE_SHARES = 16
#: Smallest number of rows for which `Threads.map` uses several threads.
MANY_ROWS = 1 << 20


class Ranges:
    """Ranges of rows, which threads take one after another.

    A range consists of the index of a chunk, the first row, and the row after the last.
    Kernels read ranges from `array` (m, 3), and `taken` counts the ranges that were
    taken. Threads that get the same object share its ranges.
    """

    def __init__(self, array: npt.NDArray[np.int64]) -> None:
        self.array = array
        self.taken = np.zeros(1, np.int64)

    @cached_property
    def words(self) -> tuple[int, int, int]:
        """The fields `ranges` to `taken` of a `SweepJob`."""
        return self.array.ctypes.data, len(self.array), self.taken.ctypes.data


class Threads:
    """Threads that work on the rows of a table.

    Parameters
    ----------
    n_threads : int
        The largest number of threads.
    sizes : sequence of int
        The number of rows of each chunk.
    rests : sequence of callables or None
        For each chunk, the function that releases the chunk's memory, or None if the
        chunk is not stored in a file.
    """

    def __init__(
        self,
        n_threads: int,
        sizes: Sequence[int],
        rests: Sequence[Callable[[], None] | None],
    ) -> None:
        self._n_threads, self._sizes, self._rests = n_threads, sizes, rests
        self.n_rows = sum(sizes)
        self._in_files = any(rests)
        self._known: dict[tuple[int, frozenset[int] | None], Any] = {}
        self._known_ranges: dict[int, Ranges] = {}
        self._pools = cache(lambda process: ThreadPoolExecutor(n_threads))
        self._teams = cache(lambda process: Team(n_threads))

    # A forked process has none of its parent's threads, so it makes its own.

    @property
    def _pool(self) -> ThreadPoolExecutor:
        return self._pools(os.getpid())

    @property
    def _team(self) -> Team:
        return self._teams(os.getpid())

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> list[Any]:
        """Return ``work(chunk)`` for each chunk."""

        def work_and_rest(chunk: Any, rest: Callable[[], None] | None) -> Any:
            result = work(chunk)
            if rest is not None:
                rest()
            return result

        few = self._n_threads == 1 or self.n_rows < MANY_ROWS
        own: Any = map if few else self._map_on_pool
        return list(own(work_and_rest, chunks, self._rests))

    def _map_on_pool(self, work: Callable[..., Any], *items: Any) -> list[Any]:
        """Call `work` on several threads, and return the results in order.

        All threads have finished when this function returns or raises an error, even
        if it is interrupted. They use addresses of arrays that the caller may then
        delete.
        """
        futures: list[Future[Any]] = []
        try:
            for one in zip(*items, strict=True):
                futures.append(self._pool.submit(work, *one))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            _wait_for_all(futures)

    def run(
        self,
        work: Callable[[Ranges], Any],
        entries: int,
        only: frozenset[int] | None = None,
    ) -> list[Any]:
        """Divide the rows among threads, and return the results of their `work`.

        A row counts as `entries` units of work, so small tables use fewer threads. If
        `only` is given, only the rows of the chunks with these indices are used.
        """
        n_threads = self._count(entries, only)
        ranges = self._cut(n_threads, only)
        if self._in_files and len(ranges):  # memory is released after each share
            n_shares = min(len(ranges), FILE_SHARES * n_threads)
            shares = [Ranges(one) for one in np.array_split(ranges, n_shares)]
        else:
            shares = [Ranges(ranges)] * min(n_threads, len(ranges))

        def work_and_rest(share: Ranges) -> Any:
            result = work(share)
            if self._in_files:
                for index in share.array[:, 0].tolist():
                    rest = self._rests[index]
                    if rest is not None:
                        rest()
            return result

        if n_threads == 1 or len(shares) < 2:
            return list(map(work_and_rest, shares))
        return self._map_on_pool(work_and_rest, shares)

    def sweep(self, job: tuple[int, ...], entries: int) -> None:
        """Divide a sweep among threads.

        The fields of the `SweepJob` that come after the ranges are in `job`. A row
        counts as `entries` units of work, as in `run`.
        """

        def work(share: Ranges) -> None:
            kernels.sweep(np.array(SweepJob(*share.words, *job)))

        n_threads = self._count(entries)
        if n_threads == 1 or self._in_files:
            self.run(work, entries)
        else:
            if n_threads not in self._known_ranges:
                self._known_ranges[n_threads] = Ranges(self._cut(n_threads))
            ranges = self._known_ranges[n_threads]
            ranges.taken[0] = 0
            self._team.sweep(SweepJob(*ranges.words, *job), n_threads)

    def _count(self, entries: int, only: frozenset[int] | None = None) -> int:
        """Return the number of threads for rows with `entries` units of work each."""
        n_rows = self.n_rows
        if only is not None:
            n_rows = sum(self._sizes[index] for index in only)
        return max(1, min(self._n_threads, -(-n_rows * entries // TASK_ENTRIES)))

    def _cut(
        self, n_threads: int, only: frozenset[int] | None = None
    ) -> npt.NDArray[np.int64]:
        """Divide all rows, or the rows of the chunks in `only`, into ranges (m, 3).

        A core reads long ranges faster, because it fetches memory ahead. The first
        ranges are long, and they become shorter, so all threads finish at about the
        same time. Ranges of rows in files have about the same length.
        """
        if (n_threads, only) not in self._known:
            sizes = [
                size if only is None or index in only else 0
                for index, size in enumerate(self._sizes)
            ]
            ranges, left, equal = [], sum(sizes), sum(sizes) // FILE_SHARES
            for index, size in enumerate(sizes):
                start = 0
                while start < size:
                    length = (equal if self._in_files else left // 2) // n_threads
                    length = min(max(length, TILE), MOST_ROWS) // TILE * TILE
                    stop = min(start + length, size)
                    ranges.append((index, start, stop))
                    left -= stop - start
                    start = stop
            found = np.array(ranges, np.int64).reshape(-1, 3)
            self._known[n_threads, only] = found
        ranges_of: npt.NDArray[np.int64] = self._known[n_threads, only]
        return ranges_of


def _wait_for_all(futures: Sequence[Future[Any]]) -> None:
    """Wait until no future runs any more, however often the user interrupts."""
    while True:
        try:
            wait(futures)
        except BaseException:  # raised by a handler of signals, after another error
            continue
        return
