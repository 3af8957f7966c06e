"""Progress of a fit on standard error: step counts, which are public, and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from skdp.descent.plan import Plan
from skdp.descent.skgd import Step


@contextmanager
def progress(plan: Plan, verbose: int) -> Iterator[Callable[[Step], None] | None]:
    """Yield a callback that moves a bar, or None if nothing is to be shown."""
    if not verbose:
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise ImportError(
            "verbose needs rich. Install it: pip install 'skdp[cli]', or verbose=0."
        ) from None
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("fitting", total=plan.n_steps * plan.n_restarts)

        def callback(step: Step) -> None:
            bar.advance(task)

        yield callback
