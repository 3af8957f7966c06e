"""Linear algebra on small matrices, on one thread.

A library of linear algebra hands a decomposition of a small matrix to all cores, piece
by piece, and waits for the slowest at each. Where cores are busy this takes a hundred
times longer than one core would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

#: Matrices with more rows than this are worth all cores.
SMALL = 256

# Limits that overlap in time would be undone in the wrong order.
_ONE_AT_A_TIME = Lock()


@contextmanager
def one_thread(n_rows: int) -> Iterator[None]:
    """Keep linear algebra inside to one thread, if matrices of `n_rows` are small."""
    if n_rows > SMALL:
        yield
        return
    with _ONE_AT_A_TIME, _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """The libraries that are loaded: looking for them takes milliseconds."""
    return ThreadpoolController()
