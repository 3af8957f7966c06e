"""Tell the user when kernels are being compiled, so the first fit does not seem stuck.

numba reports the start of each compilation. It compiles only what its disk cache does
not contain. Which kernels are compiled depends only on the plan and on the types of
columns, which are public.
"""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event

#: The rough number of seconds that compiling takes.
SECONDS = 10
#: Whether the message is suppressed.
_quiet = False


def suppress_message(quiet: bool) -> None:
    """Suppress the message from now on, or allow it again."""
    global _quiet
    _quiet = quiet


class CompilationListener(event.Listener):
    """A listener that reports the first compilation in a process, on standard error.

    Parameters
    ----------
    modules : tuple of str
        Names of the modules whose compilation is reported.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._done = False

    def on_start(self, event: Any) -> None:
        """Report the first compilation of the modules."""
        dispatcher = event.data["dispatcher"]
        if _quiet or self._done or dispatcher.py_func.__module__ not in self._modules:
            return
        self._done = True
        remedy = (
            "Set NUMBA_CACHE_DIR to a writable directory to keep the result."
            if dispatcher.stats.cache_path is None
            else "The result is kept on disk."
        )
        line = f"skdp is compiling its kernels (about {SECONDS} seconds). {remedy}"
        print(line, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Do nothing when compilation ends."""


def report_compilation(*modules: str) -> None:
    """Report the compilation of the modules' functions from now on."""
    listener = CompilationListener(modules)
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
