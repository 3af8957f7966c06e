"""List the engines and choose one of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from skdp.privacy.encoding import Records
from skdp.privacy.queries import Engine
from skdp.schema import check


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """The place where an engine is defined and the package that it needs.

    The engine is imported only when it is used.

    Attributes
    ----------
    location : str
        The engine's module and class, as ``"module:class"``.
    package : str, optional
        The optional package that the engine imports.
    threaded : bool
        Whether the class takes ``n_threads``.
    """

    location: str
    package: str | None = None
    threaded: bool = False

    def is_installed(self) -> bool:
        """Return whether the engine's package can be imported."""
        return self.package is None or find_spec(self.package) is not None

    def load(self) -> Callable[..., Engine]:
        """Import the engine's class."""
        module, name = self.location.split(":")
        made: Callable[..., Engine] = getattr(import_module(module), name)
        return made


#: Engines by name. All of them return the same integers, because every entry must pass
#: ``tests/conformance/test_engines.py``. ``"auto"`` is the one that the variable
#: ``SKDP_ENGINE`` of the environment names or, without it, the first that is installed.
ENGINES: dict[str, EngineEntry] = {
    "compiled": EngineEntry(
        location="skdp.engines.compiled:CompiledEngine", package="numba", threaded=True
    ),
    "reference": EngineEntry(location="skdp.engines.reference:ReferenceEngine"),
    "cuda": EngineEntry(location="skdp.engines.cuda:CudaEngine", package="cupy"),
}


def name_engine(name: str = "auto") -> str:
    """Return the name of the engine that `name` chooses.

    Parameters
    ----------
    name : str
        A name in `ENGINES`, or ``"auto"``.
    """
    if name == "auto":
        installed = (known for known, one in ENGINES.items() if one.is_installed())
        name = os.environ.get("SKDP_ENGINE") or next(installed)
    names = ["auto", *ENGINES]
    check(name in names, f"engine must be one of {names}, got {name!r}.")
    return name


def choose_engine(
    name: str = "auto", n_threads: int | None = None
) -> Callable[[Records], Engine]:
    """Return a function that takes encoded records and makes the named engine for them.

    Parameters
    ----------
    name : str
        A name in `ENGINES`, or ``"auto"``. The choice never changes a result.
    n_threads : int, optional
        The number of threads, for engines that use threads. By default the engine
        decides, and usually uses all cores.
    """
    name = name_engine(name)
    entry = ENGINES[name]
    if not entry.is_installed():
        raise ImportError(
            f"engine={name!r} requires {entry.package}, which is not installed."
        )
    engine = entry.load()
    return partial(engine, n_threads=n_threads) if entry.threaded else engine
