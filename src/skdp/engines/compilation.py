"""Say that kernels are being compiled: a first fit must not look like a hang.

numba tells of a compilation when it starts, and only if its disk cache has no result.
Which kernels are needed follows from the plan and the types of columns, all public.
"""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event

#: What compiling takes, roughly.
SECONDS = 10
#: Whether to say nothing, as commands that are to be quiet ask.
_silent = False


def silence(wanted: bool) -> None:
    """Announce nothing from now on, or announce again."""
    global _silent
    _silent = wanted


class Announcer(event.Listener):
    """Writes one line to the standard error, once in a process.

    Parameters
    ----------
    module : str
        Name of the module whose functions are announced.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._done = False

    def on_start(self, event: Any) -> None:
        """Announce the first compilation of the module."""
        dispatcher = event.data["dispatcher"]
        if _silent or self._done or dispatcher.py_func.__module__ != self._module:
            return
        self._done = True
        remedy = (
            "set NUMBA_CACHE_DIR to a directory that can be written to, to do so once."
            if dispatcher.stats.cache_path is None
            else "once, as they are kept on disk."
        )
        line = f"skdp is compiling its kernels, for about {SECONDS} seconds: {remedy}"
        print(line, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Nothing is said at the end."""


def announce(module: str) -> None:
    """Announce compilations of a module from now on."""
    event.register("numba:compile", Announcer(module))  # type: ignore[no-untyped-call]
