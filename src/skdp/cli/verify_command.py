"""`skdp verify`: recompute a saved model's ε and check its privacy record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.options import AsJson, Quiet, escape, print_json

EXAMPLES = [
    "skdp verify model",
    "skdp verify model --ledger ledger.sqlite",
    "skdp verify model --statement",
]


def verify_command(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the saved model.")
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

    ε is recomputed from the list of releases, in closed form and from privacy loss
    distributions. The privacy record is compared with the plan, and with the largest
    influence that one row (with a unit, one person) can have under the schema and the
    settings. With --ledger, the ledger must contain the entry that paid for this model.
    The exit code is 0 if privacy is claimed and everything agrees. It is 1 if something
    disagrees, or if no privacy is claimed because of a seed or a lack of noise. It is 2
    if there is no saved model.
    """
    import skdp
    from skdp.schema import check

    check(model.is_dir(), f"There is no saved model {str(model)!r}.")
    check(ledger is None or ledger.is_file(), f"There is no ledger {str(ledger)!r}.")
    found = skdp.verify(model, ledger)
    # If a check fails, omit the statement. It would repeat the record's false claims.
    failed = any(one.passed is False for one in found.checks)
    words = skdp.statement(skdp.load(model)) if statement and not failed else None
    if as_json:
        print_json(found.to_dict() | ({} if words is None else {"statement": words}))
    elif not quiet or failed:
        typer.echo(escape(str(found)))
        if words is not None:
            typer.echo(escape(f"\n{words}"), nl=False)
    if not found.passed:
        raise typer.Exit(1)
