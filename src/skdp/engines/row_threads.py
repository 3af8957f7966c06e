"""Divide the rows of a table among threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from skdp.engines import kernels
from skdp.engines.kernels import MOST_ROWS, TILE, SweepJob
from skdp.engines.team import Team

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
