"""`skdp verify`: compute a saved model's ε anew, and say in words what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.console import AsJson, Quiet, print_json, shown

EXAMPLES = [
    "skdp verify model",
    "skdp verify model --ledger ledger.sqlite",
    "skdp verify model --statement",
]


def verify(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `skdp fit` saved the model in.")
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The ledger that the fit was charged to."),
    ] = None,
    statement: Annotated[
        bool,
        typer.Option("--statement", help="Add a privacy statement in plain words."),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check a saved model's privacy record.

    ε is computed anew from the list of releases, in closed form and by privacy loss
    distributions. The record is compared with the plan, and with what schema and
    settings say one record can do. With --ledger, the entry that paid for this very
    model must be there. The exit code is 0 if privacy is claimed and everything agrees,
    1 if something does not or if nothing is claimed (a seed, or no noise), 2 if the
    directory is no saved model.
    """
    import skdp
    from skdp.schema import check

    check(model.is_dir(), f"There is no saved model {str(model)!r}: correct its path.")
    check(
        ledger is None or ledger.is_file(),
        f"There is no ledger {str(ledger)!r}: correct its path.",
    )
    found = skdp.verify(model, ledger)
    # A record that fails is not put in words: they would be its own.
    failed = any(one.passed is False for one in found.checks)
    words = skdp.statement(skdp.load(model)) if statement and not failed else None
    if as_json:
        print_json(found.to_dict() | ({} if words is None else {"statement": words}))
    elif not quiet or failed:
        typer.echo(shown(str(found)))
        if words is not None:
            typer.echo(shown(f"\n{words}"), nl=False)
    if not found.passed:
        raise typer.Exit(1)
