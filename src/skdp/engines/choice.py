"""Engines by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from skdp.privacy.encoding import Records
from skdp.privacy.queries import Engine
from skdp.schema import check


def engine_named(
    name: str = "auto", n_threads: int | None = None
) -> Callable[[Records], Engine]:
    """Return what makes an engine for records.

    Parameters
    ----------
    name : {"auto", "compiled", "reference"}
        All give the same bits; ``"auto"`` is the compiled one where numba is installed.
    n_threads : int, optional
        Threads of the compiled engine; all cores if None.
    """
    check(
        name in ("auto", "compiled", "reference"),
        f"engine must be 'auto', 'compiled' or 'reference'. Got {name!r}: choose one.",
    )
    if name == "auto":
        found = importlib.util.find_spec("numba") is not None
        name = "compiled" if found else "reference"
    if name == "reference":
        from skdp.engines.reference import ReferenceEngine

        return ReferenceEngine
    from skdp.engines.compiled import CompiledEngine

    return lambda records: CompiledEngine(records, n_threads=n_threads)
