"""List the engines and choose one of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from typing import Any

from skdp.privacy.encoding import Records
from skdp.privacy.queries import Engine
from skdp.schema import check
from skdp.tables.placed import PlacedTable

#: A function that makes an engine for encoded records.
MakeEngine = Callable[[Records], Engine]


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """The place where an engine is defined and the package that it needs.

    The engine is imported only when it is used.

    Attributes
    ----------
    location : str
        The engine's module and class, as ``"module:class"``.
    package : str, optional
        The package that the engine imports.
    extra : str, optional
        The extra of skdp that installs the package, if skdp alone does not.
    threaded : bool
        Whether the class takes ``n_threads``.
    addressed : bool
        Whether the class takes ``address``. Users write it after the engine's name, as
        in ``"dask://host:port"``.
    """

    location: str
    package: str | None = None
    extra: str | None = None
    threaded: bool = False
    addressed: bool = False

    def is_installed(self) -> bool:
        """Return whether the engine's package can be imported."""
        return self.package is None or find_spec(self.package) is not None

    def load(self) -> Callable[..., Engine]:
        """Import the engine's class."""
        module, name = self.location.split(":")
        made: Callable[..., Engine] = getattr(import_module(module), name)
        return made


#: Engines by name. All of them return the same integers, because every entry must pass
#: ``tests/conformance/test_engines.py``. ``"auto"`` means the engine that the
#: environment variable ``SKDP_ENGINE`` names or, if it is not set, the first engine
#: that is installed.
ENGINES: dict[str, EngineEntry] = {
    "compiled": EngineEntry(
        location="skdp.engines.compiled:CompiledEngine", package="numba", threaded=True
    ),
    "reference": EngineEntry(location="skdp.engines.reference:ReferenceEngine"),
    "cuda": EngineEntry(
        location="skdp.engines.cuda:CudaEngine", package="cupy", extra="cuda"
    ),
    "dask": EngineEntry(
        location="skdp.engines.dask_engine:DaskEngine",
        package="distributed",
        extra="dask",
        threaded=True,
        addressed=True,
    ),
}


#: Whether engines must not print that they compile kernels. This is not in
#: `compilation`, because that module imports numba.
quiet = False
#: The number of entries that the reference engine reads, in about half a second, before
#: a process uses the default engine, and the part of it that is left.
PATIENCE = 1 << 28
_patience: float = PATIENCE


def suppress_message(suppressed: bool) -> None:
    """Suppress the message about compiling from now on, or allow it again."""
    global quiet
    quiet = suppressed


def name_engine(name: str = "auto") -> str:
    """Resolve ``"auto"`` to the name of an engine, and check that the name is known.

    Parameters
    ----------
    name : str
        A name in `ENGINES`, with or without an address, or ``"auto"``.
    """
    if name == "auto":
        installed = (known for known, one in ENGINES.items() if one.is_installed())
        name = os.environ.get("SKDP_ENGINE") or next(installed)
    names = ["auto", *ENGINES]
    known = isinstance(name, str) and name.partition("://")[0] in names
    check(known, f"engine must be one of {names}, got {name!r}.")
    return name


def choose_engine(name: str = "auto", n_threads: int | None = None) -> MakeEngine:
    """Return a function that makes the named engine for encoded records.

    Parameters
    ----------
    name : str
        A name in `ENGINES`, or ``"auto"``. ``"dask://host:port"`` also says where the
        cluster's scheduler is. The choice never changes a result.
    n_threads : int, optional
        The number of threads, for engines that use threads. By default the engine
        decides, and usually uses all cores.
    """
    name, mark, address = name_engine(name).partition("://")
    entry = ENGINES[name]
    check(not mark or entry.addressed, f"engine={name!r} takes no address.")
    check(
        not mark or bool(address),
        f"The address of the cluster is empty. Use '{name}://host:port', or {name!r} "
        "for the current client.",
    )
    if not entry.is_installed():
        wanted = entry.package if entry.extra is None else f"'skdp[{entry.extra}]'"
        raise ImportError(
            f"engine={name!r} requires {entry.package}, which is not installed: pip "
            f"install {wanted}."
        )
    options: dict[str, Any] = {"n_threads": n_threads} if entry.threaded else {}
    options |= {"address": address} if address else {}

    def make(records: Records) -> Engine:
        return entry.load()(records, **options)  # imported only now

    return make


def choose_small_engine(name: str, entries: float) -> MakeEngine | None:
    """Return the reference engine if a fit is so small that it is the fastest.

    Loading numba and compiling kernels takes longer than a small fit. So the first
    small fits of a process use the reference engine, until they have read `PATIENCE`
    entries together. For other fits, return None.

    Parameters
    ----------
    name : str
        The name of the fit's engine. Only ``"auto"`` leaves a choice.
    entries : float
        About how many entries of rows all steps of the fit read. This number must be
        public, because the compiled engine may print that it compiles kernels.
    """
    global _patience
    free = name == "auto" and "SKDP_ENGINE" not in os.environ
    if not free or entries > _patience:
        return None
    _patience -= entries
    return choose_engine("reference")


def is_dask(table: Any) -> bool:
    """Return whether a table is a Dask collection, such as a Dask data frame."""
    return any(one.__module__.split(".")[0] == "dask" for one in type(table).__mro__)


def place_table(
    table: Any,
    y: Any,
    sample_weight: Any,
    unit: Any,
    name: str,
    n_threads: int | None,
) -> tuple[Any, Any, Any, Any, MakeEngine]:
    """Choose an engine, and prepare a table for the processes that will read it.

    Dask data frames are read by the workers of a cluster. So are files, if the engine
    is ``"dask"``. All other tables are read by this process, and are returned
    unchanged. The result is the table, its target, its weights, its ids, and a function
    that makes the engine.
    """
    frame = is_dask(table)
    placed = isinstance(table, PlacedTable)
    chosen = name_engine(name)
    if (frame or placed) and name == "auto" and not chosen.startswith("dask"):
        chosen = "dask"
    engine = choose_engine(chosen, n_threads)
    kind, _, address = chosen.partition("://")
    check(
        kind == "dask" or not (frame or placed),
        f"A Dask data frame requires engine='dask', got {name!r}.",
    )
    if kind != "dask" or not (frame or isinstance(table, (str, PathLike))):
        return table, y, sample_weight, unit, engine
    from skdp.engines.dask_engine import Cluster
    from skdp.engines.dask_table import place_files, place_frame

    cluster = Cluster(address or None, n_threads)
    place = place_frame if frame else place_files
    return *place(table, y, sample_weight, unit, cluster), engine
