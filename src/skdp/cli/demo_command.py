"""`skdp demo`: what privacy costs, on a table that is nobody's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.console import AsJson, Quiet, check_out, shown

EXAMPLES = [
    "skdp demo",
    "skdp demo --epsilon 0.3 --rows 10000 --save stays",
]


def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε.")] = 1.0,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 50_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeatable noise, for tests: no privacy is claimed then."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the table and its schema there too, to try other commands on.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a synthetic table and show what privacy costs."""
    from skdp.cli.demo_fits import run_demo
    from skdp.schema import check

    if save is not None:
        check_out(save / "stays.csv", force=True)
        for path in (save / "stays.csv", save / "stays.toml"):
            check(not path.exists(), f"{str(path)!r} exists: choose another --save.")
    run_demo(rows, epsilon, seed, as_json, quiet)
    if save is not None:
        from skdp.cli.demo_table import write

        paths = write(save, rows)
        if not quiet and not as_json:
            for path in paths:
                typer.echo(shown(f"written  {path}"))
            typer.echo(shown(f"next     skdp plan --schema {paths[1]} --rows {rows}"))
