"""Show a model's privacy in notebooks, and progress bars during a fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from typing import Any

from skdp.descent.algorithm1 import Step
from skdp.descent.plan import Plan
from skdp.privacy.budget import default_delta

STYLE = "font-family:sans-serif;font-size:0.9em;margin:0.5em 0 0 0.3em;max-width:60em"


def render_promise(model: Any) -> str:
    """Return HTML that states the budget a model has spent, or a fit would spend."""
    record = model.__dict__.get("privacy_")
    first, *rest = _describe_fit(model) if record is None else str(record).splitlines()
    lines = "".join(f"<li>{escape(line)}</li>" for line in rest)
    more = "<code>skdp.statement(model)</code> explains this in words."
    if record is None:
        more = "<code>skdp.plan(schema, n_rows, epsilon)</code> shows what to expect."
    return (
        f"<details style='{STYLE}'><summary><b>{escape(first)}</b></summary>"
        f"<ul>{lines}<li>{more}</li></ul></details>"
    )


def _describe_fit(model: Any) -> list[str]:
    """Return sentences that say what a fit would promise.

    The parameters have not been checked at this point, so they may be wrong.
    """
    delta = "min(1e-6, 1/(10 rows))" if model.delta is None else str(model.delta)
    private_rows = model.neighbours == "add-remove" and model.n_rows is None
    if model.delta is None and private_rows:
        delta = f"{default_delta(None):g}"
    claim = f"A fit will spend ε = {model.epsilon}, δ = {delta}"
    if model.epsilon == math.inf:
        claim = "A fit will add no noise and claim no privacy (epsilon is infinite)"
    elif model.random_state is not None:
        claim = "A fit will claim no privacy (random_state is set)"
    lines = [claim, f"neighbouring tables: {model.neighbours}"]
    if private_rows:
        lines.append("Releasing the number of rows takes a hundredth of the budget.")
    if model.ledger is not None:
        lines.append("The budget is first charged to a ledger.")
    if model.schema is None and model.bounds is None:
        lines.append("Inferring ranges and categories takes a tenth of the budget.")
    return lines


@contextmanager
def show_fitting(plan: Plan) -> Iterator[Callable[[Step], None]]:
    """Show a progress bar, and yield a callback that advances it by a step."""
    with _make_bar() as bar:
        task = bar.add_task("fitting", total=plan.n_steps * plan.n_restarts)

        def callback(step: Step) -> None:
            bar.advance(task)

        yield callback


@contextmanager
def show_reading() -> Iterator[Callable[[float], None]]:
    """Show a progress bar, and yield a callback that sets the share read so far.

    Use this only for rows that need no protection, because the share that was read
    depends on the number of rows and on the length of cells.
    """
    with _make_bar() as bar:
        task = bar.add_task("reading", total=1.0)

        def callback(share: float) -> None:
            bar.update(task, completed=share)

        yield callback


@contextmanager
def show_work(what: str, verbose: int) -> Iterator[None]:
    """If `verbose` is true, show a moving bar during the work on private rows.

    The bar shows neither how much is done nor how long it took, because both depend on
    records. For example, one long cell makes a file longer.
    """
    if not verbose:
        yield
        return
    with _make_bar(measured=False) as bar:
        task = bar.add_task(what, total=None)
        yield
        bar.update(task, total=1.0, completed=1.0)  # the last line is always the same


def _make_bar(measured: bool = True) -> Any:
    """Return a progress bar.

    If `measured` is true, the bar shows the share done and the time left.
    """
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise ImportError("verbose requires rich: pip install 'skdp[cli]'.") from None
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        # Without widgets, a notebook can still overwrite a line of text.
        console = Console(stderr=True, force_jupyter=False, force_terminal=True)
    *columns, percentage, remaining = Progress.get_default_columns()
    last = (percentage, remaining) if measured else ()
    return Progress(*columns, *last, console=console)
