"""`skdp evaluate`: score a saved model on a private file, within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Cluster,
    Delta,
    Encoding,
    Epsilon,
    Exposure,
    Force,
    Ledger,
    MaxExposure,
    ModelDirectory,
    Multiline,
    Neighbours,
    NeighboursName,
    Offset,
    Purpose,
    QuietButResult,
    Seed,
    Table,
    Unit,
    User,
    check_out,
    choose_cluster,
    choose_reader,
    escape,
    load_model,
    open_ledger_file,
    print_json,
    read_exposure,
    shows_progress,
    write_out,
)

EXAMPLES = [
    "skdp evaluate model test.csv --epsilon 1",
    "skdp evaluate model test.csv --epsilon 1 --metric auc --metric log_loss",
    "skdp evaluate model test.csv --epsilon 1 --metric accuracy --by ward",
    "skdp evaluate model test.csv --epsilon 1 --metric accuracy --by sex=F,M",
    "skdp evaluate model test.csv --epsilon 1 --ledger budget.db --out scores.html",
]


def evaluate_command(
    model: ModelDirectory,
    file: Table,
    epsilon: Epsilon,
    delta: Delta = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Score to release; repeat for several.  [default: all]"
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Score the rows of each category of a column too. Write "
            "COLUMN=LEVEL,LEVEL for a column that the model does not use.",
        ),
    ] = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    rows: Annotated[
        int | None, typer.Option(help="Number of rows, if it is public.")
    ] = None,
    unit: Unit = None,
    exposure: Exposure = None,
    offset: Offset = None,
    max_exposure: MaxExposure = None,
    multiline: Multiline = False,
    encoding: Encoding = "utf-8",
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    cluster: Cluster = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML", help="Write an HTML page about the scores to this file."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Score a saved model on a file, within a privacy budget.

    The budget protects the rows of this file. If the model was fitted to the same rows,
    the two budgets add up, so charge both to the same ledger.
    """
    import skdp

    check_out(out, force)
    table = choose_reader(file, multiline, encoding)
    found = skdp.evaluate(
        load_model(model),
        table,
        epsilon=epsilon,
        delta=delta,
        metrics=metric or None,
        by=None if by is None else read_by(by),
        unit=unit or None,
        neighbours=neighbours.value,
        n_rows=rows,
        ledger=open_ledger_file(ledger, purpose, user, seed),
        engine=choose_cluster(cluster),
        random_state=seed,
        verbose=shows_progress(as_json, quiet),
        max_weight=1.0 if max_exposure is None else max_exposure,
        **read_exposure(exposure, offset, max_exposure),
    )
    if out is not None:
        write_out(out, skdp.report(found))
    if as_json:
        print_json(found.to_dict() | {"out": None if out is None else str(out)})
    elif out is None or not quiet:
        typer.echo(escape(str(found)))
        if out is not None:
            typer.echo(escape(f"page written to {out}"))


def read_by(text: str) -> Any:
    """Return the argument `by` of `skdp.evaluate` for the option --by."""
    name, mark, levels = text.partition("=")
    if not mark:
        return text
    from skdp.schema import Categorical

    return name, Categorical([level.strip() for level in levels.split(",")])
