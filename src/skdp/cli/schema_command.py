"""`skdp schema`: a form with a table's columns, for a person to complete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    QuietButResult,
    check_out,
    print_json,
    shown,
    write_out,
)
from skdp.cli.options import Table

EXAMPLES = [
    "skdp schema stays.csv --target readmitted --out stays.toml",
    "skdp schema stays.parquet",
]


def schema(
    file: Table,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What is to be predicted.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="TOML", help="Write it here, not to stdout.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Write a form of a schema, from column names and types.

    No record is read: ranges and categories are for you to fill in, from what is known
    without looking. The first line of a CSV file is taken for its column names.
    """
    from skdp.tables import readers
    from skdp.tables.template import schema_template

    if out is not None:
        check_out(out, force)
    source = readers.source(file)
    text = schema_template(file, target)
    if out is not None:
        write_out(out, text)
    if as_json:
        columns = zip(source.names or (), source.kinds, strict=True)
        print_json(
            {
                "columns": [{"name": name, "type": kind} for name, kind in columns],
                "template": text,
                "out": None if out is None else str(out),
            }
        )
    elif out is None:
        typer.echo(text, nl=False)
    elif not quiet:
        name = shown(str(out))
        typer.echo(f'{name}: replace each "?" in it, then run')
        typer.echo(f"  skdp plan --schema {name} --rows N")
