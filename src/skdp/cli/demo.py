"""`skdp demo`: what privacy costs, on a table that is nobody's."""

from __future__ import annotations

from typing import Annotated

import typer

from skdp.cli.console import AsJson


def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε.")] = 1.0,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 50_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeatable noise, for tests: no privacy is claimed then."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a private model on a synthetic table and show what privacy costs."""
    from skdp.cli.demo_fits import run_demo

    run_demo(rows, epsilon, seed, as_json)
