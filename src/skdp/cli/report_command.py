"""`skdp report`: one page about a saved model, to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    Quiet,
    check_out,
    print_json,
    shown,
    write_out,
)

EXAMPLES = [
    "skdp report model",
    "skdp report model --out for-the-officer.html --ledger ledger.sqlite",
]


def report(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `skdp fit` saved the model in.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML", help="Where to write the page; DIR.html by default."
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The ledger that the fit was charged to."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page about a saved model.

    It says what was fitted, what is promised under which assumptions, how the budget
    was spent, how sure each coefficient is, what more rows or budget would give, and
    how to check all of it: one HTML file that loads nothing and runs no script. The
    record is verified first, and a page is refused if that fails.
    """
    from skdp.reporting.report import read_subject, render_page
    from skdp.schema import check

    check(model.is_dir(), f"There is no saved model {str(model)!r}: correct its path.")
    check(
        ledger is None or ledger.is_file(),
        f"There is no ledger {str(ledger)!r}: correct its path.",
    )
    if out is None:
        named = model if model.name not in ("", "..") else model.resolve()
        out = named.with_name(f"{named.name}.html")
    check_out(out, force)
    about = read_subject(model, ledger)
    write_out(out, render_page(about))
    claim = str(about.record).partition("\n")[0]
    if as_json:
        print_json(
            {
                "out": str(out),
                "claim": claim,
                "claims": about.claims,
                "epsilon": about.record.spent_epsilon,
                "delta": about.record.delta,
            }
        )
    elif not quiet:
        typer.echo(shown(f"{claim}\nwritten to {out}: open it in a browser"))
