"""Work on several batches at the same time, and return the results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Largest number of threads that read a table. More threads would wait for each other.
MOST_THREADS = 16


def count_threads(n_threads: int | None) -> int:
    """Return how many threads `map_in_order` uses."""
    return min(n_threads or os.cpu_count() or 1, MOST_THREADS)


def map_in_order(
    work: Callable[[Item], Result], items: Iterable[Item], n_threads: int | None = None
) -> Iterator[Result]:
    """Return ``work(item)`` for each item, in the order of the items.

    Items are read in order. At most ``1.5 n_threads + 1`` items are started before the
    caller takes the result of the first of them. If `work` raises for an item, the
    exception is raised when the caller reaches that item's result.

    Parameters
    ----------
    work : callable
        A function of one item, which threads may call at the same time.
    items : iterable
        The items.
    n_threads : int, optional
        The number of threads. By default it is the number of cores.
    """
    n_threads = count_threads(n_threads)
    if n_threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > n_threads * 3 // 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
