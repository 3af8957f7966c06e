"""`skdp demo`: show on a synthetic table what privacy costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.options import AsJson, Quiet, Seed, check_out, escape

EXAMPLES = [
    "skdp demo",
    "skdp demo --epsilon 0.3 --rows 10000 --save stays",
]


def demo_command(
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε.")] = 1.0,
    rows: Annotated[int, typer.Option(help="Number of rows of the table.")] = 50_000,
    seed: Seed = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write the table and its schema there, to try other commands.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit models to a synthetic table and show what privacy costs."""
    from skdp.cli.demo_fits import run_demo, save_table
    from skdp.schema import check

    if save is not None:
        check_out(save / "stays.csv", force=True)
        for path in (save / "stays.csv", save / "stays.toml"):
            check(not path.exists(), f"--save: {str(path)!r} already exists.")
    run_demo(rows, epsilon, seed, as_json, quiet)
    if save is not None:
        paths = save_table(save, rows)
        if not quiet and not as_json:
            for path in paths:
                typer.echo(escape(f"written  {path}"))
            typer.echo(escape(f"next     skdp plan --schema {paths[1]} --rows {rows}"))
