"""`skdp discover`: find a schema privately and write it as a TOML file."""

from __future__ import annotations

from typing import Annotated

import typer

from skdp.cli.options import (
    AsJson,
    Cluster,
    Delta,
    Encoding,
    Epsilon,
    Force,
    Ledger,
    Multiline,
    Neighbours,
    NeighboursName,
    OutFile,
    Purpose,
    QuietButResult,
    Seed,
    Table,
    Target,
    Unit,
    User,
    check_out,
    choose_cluster,
    choose_reader,
    escape,
    open_ledger_file,
    print_json,
    shows_progress,
    write_out,
)

EXAMPLES = [
    "skdp discover stays.csv --epsilon 0.1 --target readmitted --out stays.toml",
    "skdp discover stays.csv --epsilon 0.1 --ledger budget.db --purpose 'a schema'",
]

#: The first lines of the file. They are comments.
FOUND = (
    "# Found with ε = {:g}. Noise hides values that few rows have, so the ranges and\n"
    "# categories may not cover all rows. Edit them if you know better.\n\n"
)


def discover_command(
    file: Table,
    epsilon: Epsilon,
    target: Target = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column whose numbers are categories; repeat for several.",
        ),
    ] = None,
    delta: Delta = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    unit: Unit = None,
    multiline: Multiline = False,
    encoding: Encoding = "utf-8",
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    cluster: Cluster = None,
    out: OutFile = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Find the ranges and categories of a table's columns within a privacy budget.

    Ranges are rounded to readable numbers. Categories are found if enough rows have
    them. Public knowledge is better than noisy facts and costs nothing. If you have
    any, edit the file before you use it, or start from `skdp schema`.
    """
    import skdp

    check_out(out, force)
    found = skdp.discover(
        choose_reader(file, multiline, encoding),
        epsilon=epsilon,
        delta=delta,
        target=target,
        categorical=categorical or (),
        unit=unit or None,
        neighbours=neighbours.value,
        ledger=open_ledger_file(ledger, purpose, user, seed),
        engine=choose_cluster(cluster),
        random_state=seed,
        verbose=shows_progress(as_json, quiet),
    )
    text, record = FOUND.format(epsilon) + found.schema.to_toml(), found.privacy_
    if out is not None:
        write_out(out, text)
    if as_json:
        print_json(
            {
                "schema": text,
                "left_out": list(found.left_out),
                "out": None if out is None else str(out),
                "claim": str(record).partition("\n")[0],
                "epsilon": record.epsilon,
                "delta": record.delta,
                "spent_epsilon": record.spent_epsilon,
                "neighbours": record.neighbours,
            }
        )
    elif out is None:
        typer.echo(text, nl=False)
    elif not quiet:
        typer.echo(escape(f"{found}\nschema written to {out}"))
