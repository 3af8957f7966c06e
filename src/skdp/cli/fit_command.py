"""`skdp fit`: a private model of a file, saved as a directory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    Quiet,
    check_out,
    hushed,
    print_json,
    screen,
    watched,
)
from skdp.cli.options import (
    Delta,
    Epsilon,
    Ledger,
    ModelName,
    Multiline,
    Neighbours,
    NeighboursName,
    Purpose,
    SchemaFile,
    Seed,
    Table,
    TargetName,
    Threads,
    User,
    model_name,
    paid_by,
    read_schema,
    table_of,
)

#: Largest ε that still says something.
MOST = 10

EXAMPLES = [
    "skdp fit stays.csv --schema stays.toml --epsilon 1 --out model",
    "skdp fit stays.parquet --schema stays.toml --epsilon 0.5 --force --out model",
]


def fit(
    file: Table,
    schema: SchemaFile,
    epsilon: Epsilon,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory to save the model in.")
    ],
    target: TargetName = None,
    delta: Delta = None,
    model: ModelName = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Number of rows, if it is public; under add-remove it is released if "
            "not given."
        ),
    ] = None,
    multiline: Multiline = False,
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a private model to a CSV or Parquet file.

    The file may be larger than memory. What is printed, and what the model holds, is
    public or was released with noise and charged to the budget.
    """
    from skdp.cli.fitting import fitted, note, summary
    from skdp.reporting.statement import NEIGHBOURS

    hushed(as_json, quiet)
    check_out(out, force)
    described = read_schema(schema, target)
    made = fitted(
        table_of(file, multiline),
        described,
        model=model_name(model, described),
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours.value,
        n_rows=rows,
        ledger=paid_by(ledger, purpose, user),
        seed=seed,
        n_threads=threads,
        verbose=watched(as_json, quiet),
        out=out,
    )
    if as_json:
        print_json(summary(made, out))
        return
    console = screen(quiet=quiet)
    claim, tables, *_ = str(made.privacy_).splitlines()
    hidden = NEIGHBOURS[made.privacy_.neighbours]
    console.print(f"[bold]{claim}[/bold]\n{tables} ({hidden})")
    if MOST < epsilon < math.inf and seed is None:  # else the claim is that of none
        console.print(
            f"ε = {epsilon:g} is a promise in name only: choose {MOST} or less (docs: "
            "Choose ε).",
            markup=False,
        )
    if (limit := note(made)) is not None:
        console.print(limit, markup=False)
    console.print(f"model  {out}", markup=False, soft_wrap=True)
    console.print(
        f"next   skdp predict {out} NEW.csv --out predictions.csv", markup=False
    )
