"""`skdp summary`: print a saved model's coefficients, standard errors and intervals."""

from __future__ import annotations

from typing import Annotated

import typer

from skdp.cli.options import (
    AsJson,
    ModelDirectory,
    Quiet,
    escape,
    load_model,
    print_json,
)

EXAMPLES = ["skdp summary model", "skdp summary model --ratios"]


def summary_command(
    model: ModelDirectory,
    ratios: Annotated[
        bool,
        typer.Option(
            "--ratios",
            help="Print odds ratios, or rate ratios of counts, and their intervals.",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print a saved model's coefficients with standard errors and intervals.

    Everything was released when the model was fitted, so this spends nothing.
    """
    found = load_model(model).summary(ratios=ratios)
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        typer.echo(escape(str(found)))
