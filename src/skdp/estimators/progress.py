"""Progress of a fit on standard error: the share that is done, and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from skdp.descent.algorithm1 import Step
from skdp.planning.plan import Plan


@contextmanager
def progress(plan: Plan, verbose: int) -> Iterator[Callable[[Step], None] | None]:
    """Yield a callback that moves a bar, or None if nothing is to be shown."""
    if not verbose:
        yield None
        return
    with _bar() as bar:
        task = bar.add_task("fitting", total=plan.n_steps * plan.n_restarts)

        def callback(step: Step) -> None:
            bar.advance(task)

        yield callback


@contextmanager
def reading(
    verbose: int, what: str = "reading"
) -> Iterator[Callable[[float], None] | None]:
    """Yield what is told the share of a table that was read, or None."""
    if not verbose:
        yield None
        return
    with _bar() as bar:
        task = bar.add_task(what, total=1.0)

        def callback(share: float) -> None:
            bar.update(task, completed=share)

        yield callback


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise ImportError(
            "verbose needs rich. Install it: pip install 'skdp[cli]', or verbose=0."
        ) from None
    return Progress(console=Console(stderr=True))
