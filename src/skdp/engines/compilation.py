"""Tell the user when kernels are being compiled, so the first fit does not seem stuck.

numba reports the start of each compilation. A kernel is compiled only if numba's disk
cache does not contain it. The message must not depend on records, so it is printed only
for one kernel, the sweep, which is called whenever a compiled engine is made. Whether
one is made depends on public and released numbers only (`choice.choose_small_engine`).
Which other kernels are compiled may depend on how the rows are stored, and so on their
number.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba.core import event

from skdp.engines import choice, kernels

#: The rough number of seconds that compiling for a table of numbers and codes takes.
SECONDS = 5


class CompilationListener(event.Listener):
    """A listener that reports the compilation of the sweep on standard error."""

    def on_start(self, event: Any) -> None:
        """Print the message if the sweep is being compiled and messages are allowed."""
        dispatcher = event.data["dispatcher"]
        if choice.quiet or dispatcher is not kernels.sweep:
            return
        remedy = (
            "Set NUMBA_CACHE_DIR to a writable directory to cache the result."
            if dispatcher.stats.cache_path is None
            else "The result is cached on disk."
        )
        line = f"skdp is compiling its kernels (about {SECONDS} seconds). {remedy}"
        print(line, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Do nothing when compilation ends."""


event.register("numba:compile", CompilationListener())  # type: ignore[no-untyped-call]  # of numba


def compile_sweep() -> None:
    """Compile the sweep, or load it from the cache, before any row is read."""
    taken = np.zeros(1, np.int64)
    nothing = kernels.SweepJob(*[0] * len(kernels.SweepJob._fields))
    kernels.sweep(np.array(nothing._replace(taken=taken.ctypes.data)))
