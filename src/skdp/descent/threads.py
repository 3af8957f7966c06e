"""Run linear algebra on small matrices on one thread.

BLAS libraries split the decomposition of even a small matrix over all cores, and wait
for the slowest core after each piece. If the cores are busy, this can take a hundred
times as long as on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

#: Matrices with more rows than this use all cores.
SMALL = 256

# If two limits overlapped in time, they could be undone in the wrong order.
_ONE_AT_A_TIME = Lock()


@contextmanager
def one_thread(n_rows: int) -> Iterator[None]:
    """Limit linear algebra to one thread, if `n_rows` is at most `SMALL`."""
    if n_rows > SMALL:
        yield
        return
    with _ONE_AT_A_TIME, _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Return the loaded BLAS libraries, cached because searching for them is slow."""
    return ThreadpoolController()
