"""`skdp compare`: a model at several budgets, side by side, all of it charged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    Quiet,
    check_out,
    hushed,
    print_json,
    screen,
    shown,
    watched,
)
from skdp.cli.options import (
    Delta,
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
    User,
    model_name,
    paid_by,
    read_schema,
    table_of,
)

if TYPE_CHECKING:
    from skdp.cli.comparison import Comparison

#: Budgets that fit beside each other on a terminal.
MOST = 6

EXAMPLES = [
    "skdp compare stays.csv --schema stays.toml --epsilon 0.5 --epsilon 1 "
    "--total 1.5 --out models",
]


def compare(
    file: Table,
    schema: SchemaFile,
    epsilon: Annotated[
        list[float], typer.Option(help="Budget of a fit; give two or more.")
    ],
    total: Annotated[
        float, typer.Option(help="The ε that all of them together may spend.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the models, one each.")
    ],
    score: Annotated[
        float | None,
        typer.Option(
            help="ε to score each model with, on the same rows; none if left out."
        ),
    ] = None,
    target: TargetName = None,
    delta: Delta = None,
    model: ModelName = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows, if it is public, for add-remove."),
    ] = None,
    multiline: Multiline = False,
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit at several ε, which add up, and show them side by side.

    Every fit and every score spends privacy, and so does choosing among them by what
    they show: the sum is what holds. It is computed first, and refused above --total.
    To see what a budget may buy without spending any, use `skdp plan`.
    """
    from skdp.cli.comparison import compared
    from skdp.schema import check

    hushed(as_json, quiet)
    epsilons = sorted(set(epsilon))
    check(
        2 <= len(epsilons) <= MOST,
        f"Compare 2 to {MOST} budgets. Got {len(epsilons)}: repeat --epsilon.",
    )
    for budget in epsilons:
        check_out(out / f"epsilon-{budget:g}", force)
    described = read_schema(schema, target)
    found = compared(
        table_of(file, multiline),
        described,
        epsilons=epsilons,
        total=total,
        score=score,
        out=out,
        model=model_name(model, described),
        delta=delta,
        neighbours=neighbours.value,
        n_rows=rows,
        ledger=paid_by(ledger, purpose, user),
        seed=seed,
        verbose=watched(as_json, quiet),
    )
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found, quiet)


def _show(found: Comparison, quiet: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = screen(quiet=quiet)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for side in found.sides:
        table.add_column(f"ε = {side.epsilon:g}", justify="right")
    lines = [side.lines() for side in found.sides]
    for name in lines[0]:
        table.add_row(Text(shown(name)), *(line[name] for line in lines))
    console.print(table)
    for note in found.notes:
        console.print(shown(note), markup=False)
    console.print(f"[bold]{found.claim}[/bold]")
    console.print(f"models  {found.sides[0].out.parent}", markup=False)
