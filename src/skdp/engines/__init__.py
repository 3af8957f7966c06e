"""Where records are added up: every engine returns the same integers.

Engines are chosen by name, once, and imported when chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from skdp.engines.reference import ReferenceEngine
from skdp.privacy.records import Records
from skdp.privacy.sums import Engine
from skdp.schema import check

#: Names of engines: ``"auto"`` is compiled where numba is installed.
ENGINES = ("auto", "reference", "compiled")


def engine_named(
    name: str = "auto", n_threads: int | None = None
) -> Callable[[Records], Engine]:
    """Return what makes an engine for records: an argument of `descent.plan.run`.

    Parameters
    ----------
    name : {"auto", "reference", "compiled"}
        Which one; the choice changes no bit of any result.
    n_threads : int, optional
        Threads of the compiled engine, all cores by default.
    """
    check(
        name in ENGINES,
        f"The engine must be one of {ENGINES}. Got {name!r}: choose one of them.",
    )
    found = find_spec("numba") is not None
    check(
        found or name != "compiled",
        "The compiled engine needs numba: install it or choose engine 'reference'.",
    )
    if name == "reference" or not found:
        return ReferenceEngine

    def make(records: Records) -> Engine:
        from skdp.engines.compiled import CompiledEngine

        return CompiledEngine(records, n_threads)

    return make
