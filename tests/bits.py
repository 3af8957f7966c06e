"""Bits for noise that are the same in each run of the tests.

A test of noise has some chance to fail, and thousands of them have a large one. So the
bits that stand for those of the operating system follow from the name of the test that
draws them. A change of the code may still draw an unlucky test, but then it fails for
whoever made the change, each time. `pytest --nightly` draws fresh bits.

Whatever is made once and shared by tests (a fixture of a module, a cached model, what a
module makes when it is imported) has a name of its own. Otherwise its noise would
depend on which test comes first, and so on how tests are shared among processes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import shake_256
from threading import Lock
from typing import Any


class RepeatedBits:
    """Stands for the module `os` where noise is drawn."""

    def __init__(self) -> None:
        self._name, self._drawn, self._lock = "", 0, Lock()

    getpid = staticmethod(os.getpid)

    def urandom(self, size: int) -> bytes:
        """Return the next `size` bytes of what is running now."""
        with self._lock:
            self._drawn += 1
            key = f"{self._name} {self._drawn}"
        return shake_256(key.encode()).digest(size)

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Draw from the start of the bits of `name` inside the block."""
        kept = self._name, self._drawn
        self._name, self._drawn = name, 0
        try:
            yield
        finally:
            self._name, self._drawn = kept


BITS = RepeatedBits()


def made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache what a function makes, with bits of its own for each of its arguments."""

    @cache
    @wraps(make)
    def made(*given: Any) -> Any:
        with BITS.named(f"{make.__module__}.{make.__qualname__}{given}"):
            return make(*given)

    return made
