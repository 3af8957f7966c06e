"""Show a model's privacy in notebooks, and the progress of a fit as a bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from typing import Any

from skdp.descent.algorithm1 import Step
from skdp.planning.plan import Plan, default_delta

STYLE = "font-family:sans-serif;font-size:0.9em;margin:0.5em 0 0 0.3em;max-width:60em"


class NotebookMixin:
    """Add the privacy statement to scikit-learn's diagram of an estimator.

    This class must come before ``BaseEstimator`` in the list of bases.
    """

    def _repr_html_inner(self) -> str:
        diagram: Any = super()._repr_html_inner  # type: ignore[misc]
        return f"{diagram()}{render_promise(self)}"

    def plot(self, axes: Any = None) -> Any:
        """Draw the coefficients with their 95 % intervals; return matplotlib's figure.

        The coefficients are the same as in ``summary()``. No budget is spent.

        Parameters
        ----------
        axes : matplotlib axes, optional
            Where to draw. By default a new figure is made.
        """
        from skdp.estimators.coefficient_plots import (
            plot_coefficients,  # which imports this file
        )

        return plot_coefficients(self, axes)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: Any = super()._repr_mimebundle_  # type: ignore[misc]
        shown: dict[str, str] = bundle(**kwargs)
        if "text/html" in shown:  # absent if scikit-learn is set to display text
            shown["text/html"] += render_promise(self)
        return shown


def render_promise(model: Any) -> str:
    """Return HTML about the budget that a model has spent or that a fit would spend."""
    record = model.__dict__.get("privacy_")
    first, *rest = _describe_fit(model) if record is None else str(record).splitlines()
    lines = "".join(f"<li>{escape(line)}</li>" for line in rest)
    more = "<code>skdp.statement(model)</code> says it in words."
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
        lines.append("The number of rows is released, for a hundredth of it.")
    if model.ledger is not None:
        lines.append("A ledger is charged first.")
    if model.schema is None and model.bounds is None:
        lines.append("Ranges and categories are inferred, for a tenth of it.")
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
def show_reading(what: str = "reading") -> Iterator[Callable[[float], None]]:
    """Show a progress bar, and yield a callback that takes the share read so far."""
    with _make_bar() as bar:
        task = bar.add_task(what, total=1.0)

        def callback(share: float) -> None:
            bar.update(task, completed=share)

        yield callback


@contextmanager
def show_work(what: str, verbose: int) -> Iterator[None]:
    """If `verbose` is true, show a moving bar and the elapsed time during the work.

    The bar does not show how much is left, because that may be private.
    """
    if not verbose:
        yield
        return
    with _make_bar(measured=False) as bar:
        bar.add_task(what, total=None)
        yield


def _make_bar(measured: bool = True) -> Any:
    """Return a bar that shows the share done, or the elapsed time if not `measured`."""
    try:
        from rich.console import Console
        from rich.progress import Progress, TimeElapsedColumn
    except ImportError:
        raise ImportError(
            "verbose needs rich, which pip install 'skdp[cli]' installs."
        ) from None
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        # Without widgets, a notebook can still overwrite a line of text.
        console = Console(stderr=True, force_jupyter=False, force_terminal=True)
    *columns, percentage, remaining = Progress.get_default_columns()
    last = (percentage, remaining) if measured else (TimeElapsedColumn(),)
    return Progress(*columns, *last, console=console)
